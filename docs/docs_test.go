// Package docs_test keeps what the documents say in step with what is there.
package docs_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/cluster"
	"github.com/quorate-dev/quorate/server/kubectl/check"
)

// root is the repository, seen from here.
const root = ".."

// TestGeneratedTables: the tables of modes, rules and checks are those of the code, in their order.
func TestGeneratedTables(t *testing.T) {
	var modes, rules, checks [][]string
	for _, m := range cluster.Modes() {
		var names []string
		for _, r := range m.Rules {
			names = append(names, r.Name)
		}
		modes = append(modes, []string{m.Name, m.Why, strings.Join(names, ", ")})
	}
	for _, r := range cluster.Rules() {
		rules = append(rules, []string{r.Name, r.Why})
	}
	for _, c := range check.Checks {
		checks = append(checks, []string{"`" + c.Name + "`", c.Looks})
	}
	for _, g := range []struct {
		page, name, head string
		rows             [][]string
	}{
		{"docs/explanation/concepts.md", "modes", "| Mode | When | Rules, in order |\n| --- | --- | --- |\n", modes},
		{"docs/explanation/concepts.md", "rules", "| Name | Why |\n| --- | --- |\n", rules},
		{"docs/reference/check.md", "checks", "| Name | What it says when it is well |\n| --- | --- |\n", checks},
	} {
		keep(t, g.page, "generated: begin "+g.name, "generated: end", g.head+rows(g.rows))
	}
}

// keep holds what is between two marks of a page against what it should be. QUORATE_REWRITE=1 writes it.
func keep(t *testing.T, page, begin, end, want string) {
	t.Helper()
	text := readAll(t, page)
	before, rest, found := strings.Cut(text, "<!-- "+begin+" -->\n")
	got, after, ended := strings.Cut(rest, "<!-- "+end+" -->")
	switch {
	case !found || !ended:
		t.Errorf("%s: there is nothing between \"%s\" and \"%s\"", page, begin, end)
	case got == want:
	case os.Getenv("QUORATE_REWRITE") != "":
		text = before + "<!-- " + begin + " -->\n" + want + "<!-- " + end + " -->" + after
		if err := os.WriteFile(filepath.Join(root, page), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	default:
		t.Errorf("%s: what is after \"%s\" is out of date. Run: QUORATE_REWRITE=1 go test ./docs", page, begin)
	}
}

// TestEveryStatusIsExplained: the word in the column STATUS has a line, and what messages name has a heading.
func TestEveryStatusIsExplained(t *testing.T) {
	var explained string
	for _, row := range table(t, "reference/status.md", "STATUS") {
		explained += row[0]
	}
	for _, r := range cluster.Rules() {
		if !strings.Contains(explained, "`"+r.Name+"`") {
			t.Errorf("docs/reference/status.md, \"STATUS\": there is nothing about %s", r.Name)
		}
	}
	for _, m := range code.FindAllStringSubmatch(explained, -1) {
		if !slices.ContainsFunc(cluster.Rules(), func(r cluster.Rule) bool { return r.Name == m[1] }) {
			t.Errorf("docs/reference/status.md, \"STATUS\": there is no rule %s", m[1])
		}
	}
	named := regexp.MustCompile(`see (\w+|Bootstrap that can't finish) in (docs/[a-z/-]+\.md)`)
	messages := regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(readUnder(t, "hooks", ".go"), "")
	for _, m := range named.FindAllStringSubmatch(messages, -1) {
		if !slices.Contains(anchors(t, filepath.Join(root, m[2])), slug(m[1])) {
			t.Errorf("a message of hooks sends people to %s in %s, which has no such heading", m[1], m[2])
		}
	}
}

// TestTheRecordingInTheREADME: what it shows was recorded, and is shown as it was.
func TestTheRecordingInTheREADME(t *testing.T) {
	readme, recording := readAll(t, "README.md"), readAll(t, "docs/evidence/recording.txt")
	_, part, found := strings.Cut(readme, "<!-- recording: begin -->\n```text\n")
	part, _, ended := strings.Cut(part, "```\n<!-- recording: end -->")
	if !found || !ended || part == "" {
		t.Fatal("README.md: there is no recording between \"recording: begin\" and \"recording: end\"; `make " +
			"recording` writes it")
	}
	if !strings.Contains(recording, part) {
		t.Error("README.md: what is between the marks of the recording is not a part of docs/evidence/recording.txt; `make " +
			"recording` writes both")
	}
}

// TestSafetyTable: each rule has its line, and the stories and tests that it names exist.
func TestSafetyTable(t *testing.T) {
	tests := map[string]bool{}
	test := ""
	for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(|^\tc\.tell\("(\w+)"`).FindAllStringSubmatch(readTree(t,
		"_test.go"), -1) {
		if test = cmp.Or(m[1], test); m[2] == "" {
			tests[test] = true
		} else {
			tests[test+"/"+m[2]] = true // a story that shares its cluster with others
		}
	}
	stories := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, "test/simulated/scenario/testdata"),
		func(path string, _ fs.DirEntry, err error) error {
			stories[strings.TrimSuffix(filepath.Base(path), ".txt")] = true
			return err
		})
	if err != nil {
		t.Fatal(err)
	}
	lines := table(t, "explanation/safety.md", "The safety rules")
	if len(lines) != 21 {
		t.Fatalf("docs/explanation/safety.md: %d safety rules, want 21", len(lines))
	}
	for i, row := range lines {
		if want := fmt.Sprintf("S%d", i+1); row[0] != want {
			t.Errorf("docs/explanation/safety.md: %s where %s should be", row[0], want)
		}
		for _, name := range code.FindAllStringSubmatch(strings.Join(row[2:], " "), -1) {
			if !tests[name[1]] && !stories[name[1]] && name[1] != "stabilize" {
				t.Errorf("docs/explanation/safety.md, %s: there is no test and no story %s", row[0], name[1])
			}
		}
	}
}

// TestFieldsAreExplained: what a change of a field does is said for each field, and for none that does not exist.
func TestFieldsAreExplained(t *testing.T) {
	spec := fields(reflect.TypeFor[v1alpha1.EtcdClusterSpec](), "")
	said := map[string]bool{}
	for _, row := range table(t, "how-to/change.md", "Change a field") {
		for _, m := range code.FindAllStringSubmatch(row[0], -1) {
			said[m[1]] = true
			if !slices.Contains(spec, m[1]) {
				t.Errorf("docs/how-to/change.md, \"Change a field\": spec has no field %s", m[1])
			}
		}
	}
	for _, f := range spec {
		explained := said[f]
		for i, c := range f {
			explained = explained || c == '.' && said[f[:i]]
		}
		children := slices.ContainsFunc(spec, func(o string) bool { return strings.HasPrefix(o, f+".") })
		if !explained && !children {
			t.Errorf("docs/how-to/change.md, \"Change a field\": there is nothing about %s", f)
		}
	}
}

// fields are the names of a type of ours and of the types of ours within it, as in replicas and image.repository.
func fields(of reflect.Type, prefix string) []string {
	var all []string
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, prefix+name)
		if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == of.PkgPath() {
			all = append(all, fields(f.Type, prefix+name+".")...)
		}
	}
	return all
}

// TestSettingsAndMetrics: the tables are the server's flags and metrics, no more and no fewer.
func TestSettingsAndMetrics(t *testing.T) {
	serve := readAll(t, "serve.go") + readAll(t, "manifests/install/tenants.go")
	for _, c := range []struct{ page, told, source, pattern string }{
		{"docs/reference/cli.md", "(?m)^\\| `--([a-z-]+)` \\|", serve, `flags\.\w+Var\([^,"]+, "([a-z-]+)"`},
		{"docs/reference/metrics.md", "(?m)^\\| `(quorate_\\w+)` \\|", readAll(t, "server/metrics/*.go"), `"(quorate_\w+)"`},
	} {
		page := readAll(t, c.page)
		if _, after, is := strings.Cut(page, "# Settings of the server\n"); is {
			page, _, _ = strings.Cut(after, "\n## ")
		}
		want, got := found(c.pattern, c.source), found(c.told, page)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the tables have\n\t%v\nand the code\n\t%v", c.page, got, want)
		}
	}
}

// found is what a pattern finds, sorted, each once.
func found(pattern, text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var (
	code   = regexp.MustCompile("`([^`]+)`")
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```")
	target = regexp.MustCompile(`(?:^|[\s;&(])make ((?:[a-z][a-z0-9-]*)|[A-Z]+=\S+ [a-z-]+)`)
)

// TestLinks: every relative link leads to a file, and to a heading of it if it names one.
func TestLinks(t *testing.T) {
	for path, text := range markdown(t) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
				continue
			}
			to := path
			if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link %s leads nowhere", path, m[1])
			} else if anchor != "" && !slices.Contains(anchors(t, to), anchor) {
				t.Errorf("%s: the link %s names no heading of %s", path, m[1], to)
			}
		}
	}
}

// TestMakeTargets: every make command in the documents is one of the Makefile.
func TestMakeTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `).FindAllStringSubmatch(readAll(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	for path, text := range markdown(t) {
		for _, snippet := range snippets(generated.ReplaceAllStringFunc(text, blank)) {
			for _, m := range target.FindAllStringSubmatch(snippet, -1) {
				words := strings.Fields(m[1])
				if name := words[len(words)-1]; !targets[name] {
					t.Errorf("%s: `make %s` is not a target of the Makefile", path, name)
				}
			}
		}
	}
}

// snippets are the parts of a document that are code: fenced, indented or in backquotes.
func snippets(text string) []string {
	var all []string
	for _, m := range fenced.FindAllStringSubmatch(text, -1) {
		all = append(all, m[2])
	}
	text = fenced.ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    ") {
			command, _, _ := strings.Cut(line, " #")
			all = append(all, command)
		}
	}
	for _, m := range code.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestSamples: every EtcdCluster in the documents is one, without a field that does not exist.
func TestSamples(t *testing.T) {
	found := 0
	for path, text := range markdown(t) {
		for _, m := range fenced.FindAllStringSubmatch(text, -1) {
			for _, document := range strings.Split(m[2], "\n---\n") {
				if !strings.Contains(document, "kind: "+v1alpha1.Kind+"\n") {
					continue
				}
				found++
				c, err := parse(document)
				if err != nil {
					t.Errorf("%s: %v in\n%s", path, err, document)
				} else if c.APIVersion != v1alpha1.GroupVersion.String() || c.Name == "" || c.Spec.Version == "" {
					t.Errorf("%s: not an EtcdCluster with a name and a version:\n%s", path, document)
				}
			}
		}
	}
	if found == 0 {
		t.Error("the documents show no EtcdCluster")
	}
}

// parse reads an EtcdCluster as strictly as the API server does with --validate=strict.
func parse(document string) (*v1alpha1.EtcdCluster, error) {
	var tree any
	if err := yaml.Unmarshal([]byte(document), &tree); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	c := &v1alpha1.EtcdCluster{}
	unknown, err := kjson.UnmarshalStrict(raw, c)
	return c, errors.Join(append(unknown, err)...)
}

// ---- reading

// markdown is every Markdown file of the repository by path.
func markdown(t *testing.T) map[string]string {
	all := map[string]string{}
	walk(t, ".md", func(path, text string) { all[path] = text })
	return all
}

// walk reads every file of the repository whose name ends like this.
func walk(t *testing.T, suffix string, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		raw, err := os.ReadFile(path)
		visit(path, string(raw))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readTree(t *testing.T, suffix string) string {
	var all strings.Builder
	walk(t, suffix, func(_, text string) { all.WriteString(text) })
	return all.String()
}

// readAll is the text of the files of this pattern, seen from the root.
func readAll(t *testing.T, pattern string) string {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(root, pattern))
	var all strings.Builder
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(raw)
	}
	if all.Len() == 0 {
		t.Fatalf("there is no %s", pattern)
	}
	return all.String()
}

// table is the first table under a heading, without its head.
func table(t *testing.T, file, heading string) [][]string {
	t.Helper()
	_, section, found := strings.Cut(readAll(t, "docs/"+file), "# "+heading+"\n")
	if !found {
		t.Fatalf("docs/%s has no heading %q", file, heading)
	}
	var all [][]string
	for line := range strings.Lines(section) {
		if row, is := strings.CutPrefix(strings.TrimSpace(line), "| "); is {
			all = append(all, strings.Split(strings.TrimSuffix(row, " |"), " | "))
		} else if len(all) > 0 || strings.HasPrefix(line, "#") {
			break
		}
	}
	if len(all) < 3 {
		t.Fatalf("docs/%s has no table under %q", file, heading)
	}
	return all[2:]
}

func rows(all [][]string) string {
	var b strings.Builder
	for _, row := range all {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}

// anchors are the headings of a Markdown file as links name them.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(raw), ""), -1) {
		all = append(all, slug(m[2]))
	}
	return all
}

var heading = regexp.MustCompile(`(?m)^(#+) (.*)$`)

// slug is a heading as links name it.
func slug(heading string) string {
	kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(kept, " ", "-")
}

// readUnder is the text of all files under a folder whose name ends like this.
func readUnder(t *testing.T, folder, suffix string) string {
	var all strings.Builder
	walk(t, suffix, func(path, text string) {
		if strings.HasPrefix(path, filepath.Join(root, folder)+"/") {
			all.WriteString(text)
		}
	})
	return all.String()
}
