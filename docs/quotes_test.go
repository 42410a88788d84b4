package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ofOthers are messages that pages quote and that other programs say.
var ofOthers = []string{
	// etcd and its client
	"mvcc: database space exceeded", "etcdserver: no leader", "context deadline exceeded", "permission denied",
	"user name is empty", "invalid auth token", "required revision has been compacted",
	"member ... has already been bootstrapped", "member count is unequal", "no space left on device",
	"switched to configuration voters=()", "unhealthy cluster", "in sync with leader",
	"Can only promote a learner member",
	// Go's TLS, and Linux
	"x509: certificate signed by unknown authority", "tls: bad certificate", "nf_conntrack: table full",
	// Kubernetes and its clients
	"exceeded quota", "no PriorityClass with name", "maximum memory usage per Container", "violates PodSecurity",
	"admission webhook", "already exists", "client-side throttling", "secret ... not found", "couldn't find key",
	// people, and pages
	"in work", "A call", "ask again",
}

// TestQuotes: what a page below docs has in quotation marks, or as code in a column "Message", is a message of the code
// or of another program. It may be a part of it, and has "..." for what is filled in.
func TestQuotes(t *testing.T) {
	said, quoted := messages(t), 0
	prose(t, func(name, _, plain string) {
		if !strings.HasPrefix(name, "docs/") || strings.HasPrefix(name, "docs/decisions/") {
			return
		}
		for _, m := range quotation.FindAllStringSubmatch(span.ReplaceAllString(plain, "")+inColumns(plain), -1) {
			quote := simple(m[1])
			if !strings.Contains(quote, " ") || slices.Contains(ofOthers, m[1]) {
				continue
			}
			quoted++
			if !strings.Contains(said, quote) {
				t.Errorf("%s quotes %q, which no code says. Is it of another program? Then add it to ofOthers", name, quote)
			}
		}
	})
	if quoted < 30 {
		t.Errorf("the pages quote only %d messages", quoted)
	}
}

// inColumns is the code in the columns of tables that are called "Message", in quotation marks.
func inColumns(plain string) string {
	var all strings.Builder
	column := -1
	for line := range strings.Lines(plain) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if at := slices.Index(cells, "Message"); at >= 0 {
			column = at
		} else if len(cells) <= column || !strings.HasPrefix(line, "|") {
			column = -1
		}
		if column >= 0 {
			for _, m := range code.FindAllStringSubmatch(cells[column], -1) {
				all.WriteString(` "` + strings.ReplaceAll(m[1], `"`, "") + `"`)
			}
		}
	}
	return all.String()
}

// simple is a message without punctuation, with single spaces and one "..." where something is filled in.
func simple(text string) string {
	text = strings.ReplaceAll(verbs.ReplaceAllString(text, "..."), "...", " … ")
	text = strings.Map(func(r rune) rune {
		if strings.ContainsRune(`:;,.()"`, r) {
			return ' '
		}
		return r
	}, text)
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "… …", "…")
	return strings.Trim(strings.ReplaceAll(text, "…", "..."), " .")
}

var verbs = regexp.MustCompile(`%(?:\[\d\])?[-+.0-9]*[a-zA-Z]`)

// messages are the strings of the product, one a line.
func messages(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	walk(t, "", ".go", func(path, source string) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			expr, is := node.(ast.Expr)
			if !is {
				return true
			}
			text, isText := joined(expr)
			if isText {
				all.WriteString(simple(text) + "\n")
			}
			return !isText
		})
	})
	return all.String()
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
