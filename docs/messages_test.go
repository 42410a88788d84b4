package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMessages: docs/reference/messages.md has what the kinds and the commands say, so that it can be searched, and read
// from top to bottom when it changes. It has no messages of package safety: these refuse an answer of Quorate's own.
func TestMessages(t *testing.T) {
	var page strings.Builder
	for _, part := range []struct {
		name    string
		folders []string
		but     []string
	}{
		{"EtcdCluster", []string{"hooks"}, []string{"hooks/api", "hooks/safety", "hooks/schedule",
			"hooks/snapshot", "hooks/operation", "hooks/mirror"}},
		{"EtcdSnapshot and EtcdSnapshotSchedule", []string{"hooks/snapshot", "hooks/schedule", "etcdops/archive"}, nil},
		{"EtcdOperation", []string{"hooks/operation"}, nil},
		{"Restores and rescue", []string{"etcdops/seed", "etcdops/prepare", "etcdops/rescue"}, nil},
		{"EtcdMirror", []string{"hooks/mirror", "etcdops/mirror"}, nil},
		{"kubectl quorate", []string{"server/kubectl"}, []string{"server/kubectl/check"}},
		{"quorate check", []string{"server/kubectl/check"}, nil},
	} {
		var lines []string
		for _, path := range sources(t, part.folders, part.but) {
			lines = append(lines, said(t, path)...)
		}
		block(&page, part.name, lines)
	}
	var refused []string
	for _, m := range regexp.MustCompile(`message="((?:[^"\\]|\\.)*)"`).FindAllStringSubmatch(
		readUnder(t, "hooks/api", ".go"), -1) {
		text, err := strconv.Unquote(`"` + m[1] + `"`)
		if err != nil {
			t.Fatalf("%s: %v", m[1], err)
		}
		refused = append(refused, text)
	}
	block(&page, "Refused by the API server", refused)
	keep(t, "docs/reference/messages.md", "generated: begin messages", "generated: end", page.String())
}

// block adds a heading, and these lines, each once.
func block(page *strings.Builder, name string, lines []string) {
	slices.Sort(lines)
	page.WriteString("\n## " + name + "\n\n```text\n" + strings.Join(slices.Compact(lines), "\n") + "\n```\n")
}

// sources are the files of Go in these folders and below, without tests and without those folders.
func sources(t *testing.T, folders, but []string) []string {
	t.Helper()
	var all []string
	for _, folder := range folders {
		for _, depth := range []string{"*.go", "*/*.go", "*/*/*.go"} {
			found, err := filepath.Glob(filepath.Join(root, folder, depth))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, found...)
		}
	}
	return slices.DeleteFunc(all, func(path string) bool {
		name, _ := filepath.Rel(root, path)
		return strings.HasSuffix(name, "_test.go") || slices.ContainsFunc(but, func(folder string) bool {
			return strings.HasPrefix(name, folder+"/")
		})
	})
}

var (
	verbs    = regexp.MustCompile(`%(?:\[\d\])?[-+.0-9]*[a-zA-Z]`)
	sentence = regexp.MustCompile(`^[A-Z].*\.$`) // why there is a rule
)

// said are the messages of a file: strings of three words or more, with what is filled in as "...".
func said(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(node ast.Node) bool {
		if field, is := node.(*ast.Field); is && field.Tag != nil {
			return false
		}
		expr, is := node.(ast.Expr)
		if !is {
			return true
		}
		text, ends := joined(expr)
		if !ends {
			return true
		}
		text = strings.ReplaceAll(verbs.ReplaceAllString(text, "..."), "%%", "%")
		text = strings.Trim(strings.ReplaceAll(text, "\n", " "), " ;:,")
		if len(strings.Fields(text)) >= 3 && !sentence.MatchString(text) {
			all = append(all, text)
		}
		return false
	})
	return all
}

// joined is a string as it is put together by +, with "..." for what is no literal, and whether the expression is one.
func joined(expr ast.Expr) (string, bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		x, isX := joined(e.X)
		y, isY := joined(e.Y)
		if e.Op == token.ADD && (isX || isY) {
			return x + y, true
		}
	}
	return "...", false
}
