package docs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

const root = "../../.."

// parts visits every block and every hidden command of the documents.
func parts(t *testing.T, visit func(page string, p Part)) {
	t.Helper()
	pages, err := ReadPages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, p := range page.Parts {
			visit(page.Path, p)
		}
	}
}

// TestEveryBlockCanBeRead: shells can read all commands, YAML is YAML, and what is ours has no field that does not
// exist. Blocks that are not run are listed, with their reasons, and docs/README.md says how many there are.
func TestEveryBlockCanBeRead(t *testing.T) {
	count := map[string]int{}
	parts(t, func(page string, p Part) {
		if err := readable(p); err != nil {
			t.Errorf("%s:%d: %v", page, p.Line, err)
		}
		if p.notRun != "" {
			t.Logf("not run: %s:%d: %s", page, p.Line, p.notRun)
		}
		count[playedAs(p)]++
	})
	if count["run"] == 0 {
		t.Error("the documents show nothing that can be played")
	}
	table := "| Blocks of commands and manifests here | |\n| --- | --- |\n"
	for _, row := range [][2]string{
		{"run", "Run on a real Kubernetes by `TestDocuments`"},
		{"asked", "The same, with `--dry-run=server`"},
		{"read", "Parts of manifests: their fields are checked"},
		{"elsewhere", "Done by another test, which the page's source names"},
		{"never", "Run by no test; the page's source says why"},
	} {
		table += fmt.Sprintf("| %s | %d |\n", row[1], count[row[0]])
	}
	if err := Keep(filepath.Join(root, "docs/README.md"), "generated: begin blocks", "generated: end", table); err != nil {
		t.Error(err)
	}
}

// instead is how a reason names what runs a block elsewhere.
var instead = regexp.MustCompile(`Test\w+|the story |^the same|\x60make |test/`)

// playedAs says what becomes of a part: see TestDocuments in test/real/e2e.
func playedAs(p Part) string {
	manifest := p.Language == "yaml"
	switch {
	case instead.MatchString(p.notRun):
		return "elsewhere"
	case p.notRun != "":
		return "never"
	case !p.Runs():
		return "" // a comment, or a block of another language
	case manifest && !strings.Contains(p.Text, "apiVersion: "):
		return "read"
	case p.DryRun != "", manifest && !p.Apply:
		return "asked"
	}
	return "run"
}

// placeholder stands for something that only the reader knows.
var placeholder = regexp.MustCompile(`<[a-z][a-z ]*>`)

// readable looks at one part without running it.
func readable(p Part) error {
	switch {
	case p.Setup != "":
		return scripts(p.Setup)
	case p.Language == "yaml":
		return manifest(p)
	case p.Language == "json":
		var tree any
		return yaml.Unmarshal([]byte(p.Text), &tree)
	case p.Language != "sh" && p.Language != "console":
		if p.notRun+p.DryRun != "" || p.Apply {
			return fmt.Errorf("a block of %s is not run anyway", p.Language)
		}
		return nil
	}
	commands, err := p.Commands()
	for _, c := range commands {
		err = errors.Join(err, scripts(placeholder.ReplaceAllString(c.Text, "PLACEHOLDER")))
		if p.Runs() && placeholder.MatchString(c.Text) {
			return fmt.Errorf("line %d: it has a placeholder such as <name>; say `<!-- not run: ... -->`", c.Line)
		}
	}
	return err
}

// verbs of kubectl, with its plugin. What is new is added here when a document uses it.
var verbs = strings.Fields("annotate api-resources apply auth config cordon create debug delete describe drain edit " +
	"exec explain get kustomize label logs patch port-forward quorate replace rollout scale top uncordon version wait")

// kubectl finds its verb, behind flags such as -n NAMESPACE.
var kubectl = regexp.MustCompile(`(?m)(?:^|[|;(&] *|\$\()kubectl((?: -\S+(?: [a-z0-9-]+)?)*) ([a-z-]+)`)

// scripts asks a shell whether it can read this.
func scripts(text string) error {
	cmd := exec.Command("bash", "-n")
	cmd.Stdin = strings.NewReader(text)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, errs.String())
	}
	for _, m := range kubectl.FindAllStringSubmatch(text, -1) {
		words := append(strings.Fields(m[1]), m[2])
		if !slices.ContainsFunc(words, func(w string) bool { return slices.Contains(verbs, w) }) {
			return fmt.Errorf("kubectl%s %s: kubectl has no such command", m[1], m[2])
		}
	}
	return nil
}

// kinds are ours, each with room for one object, and for its spec alone.
func kinds() map[string][2]any {
	return map[string][2]any{
		"EtcdCluster":          {&v1beta1.EtcdCluster{}, &v1beta1.EtcdClusterSpec{}},
		"EtcdSnapshot":         {&v1beta1.EtcdSnapshot{}, &v1beta1.EtcdSnapshotSpec{}},
		"EtcdSnapshotSchedule": {&v1beta1.EtcdSnapshotSchedule{}, &v1beta1.EtcdSnapshotScheduleSpec{}},
		"EtcdOperation":        {&v1beta1.EtcdOperation{}, &v1beta1.EtcdOperationSpec{}},
		"EtcdMirror":           {&v1beta1.EtcdMirror{}, &v1beta1.EtcdMirrorSpec{}},
	}
}

// manifest reads YAML: whole objects, or a part of one of ours, which can't be applied.
func manifest(p Part) error {
	for _, document := range strings.Split(p.Text, "\n---\n") {
		raw, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			return err
		}
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return err
		}
		if kind, ours := kinds()[head.Kind]; ours {
			err = strict(raw, kind[0])
		} else if head.Kind == "" && p.notRun == "" {
			err = fragment(raw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fragment reads a part of an object of ours: its spec, or some fields of that.
func fragment(raw []byte) error {
	var all []error
	for name, kind := range kinds() {
		whole, spec := strict(raw, kind[0]), strict(raw, kind[1])
		if whole == nil || spec == nil {
			return nil
		}
		all = append(all, fmt.Errorf("of an %s: %w", name, errors.Join(whole, spec)))
	}
	return fmt.Errorf("it is no part of an object of ours: %w", errors.Join(all...))
}

func strict(raw []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(raw, into)
	return errors.Join(append(unknown, err)...)
}

// TestPagesAreRead: what a page may look like, and what is refused.
func TestPagesAreRead(t *testing.T) {
	page, err := readPage("page.md", "# A page\n\n<!-- setup: touch a -->\n<!-- varies: demo-[0-9] "+
		"-->\n```console\n$ kubectl get pods\nNAME     AGE\n...\ndemo-0   5s\n\n$ echo \\\n  two\n```\n\n- In a list:\n\n "+
		" <!-- not run: no disk -->\n  ```sh\n  if true; then\n    echo\n  fi\n  ```\n")
	if err != nil || len(page.Parts) != 3 {
		t.Fatalf("%+v, %v", page.Parts, err)
	}
	if page.Parts[0].Setup != "touch a" || page.Parts[2].notRun != "no disk" ||
		page.Parts[2].Text != "if true; then\n  echo\nfi\n" {
		t.Errorf("%+v", page.Parts)
	}
	console := page.Parts[1]
	commands, err := console.Commands()
	if err != nil || len(commands) != 2 || commands[1].Text != "echo \\\n  two\n" || len(commands[0].Output) != 3 {
		t.Fatalf("%+v, %v", commands, err)
	}
	for printed, want := range map[string]string{
		"NAME   AGE\ndemo-2 1m20s\n":      "",
		"NAME AGE\na\nb\ndemo-0 3h":       "",
		"AGE":                             `"AGE" where the page has "NAME     AGE"`,
		"NAME   AGE\ndemo-2 1m20s\nmore.": `nothing follows "..." as the page has it`,
	} {
		if got := console.Differs(commands[0].Output, strings.Split(printed, "\n")); got != want {
			t.Errorf("%q: %s, want %s", printed, got, want)
		}
	}
	for text, says := range map[string]string{
		"a\n\n    indented\n":                          "page.md:3: a block that is indented",
		"```\nx\n```\n":                                `a block of ""`,
		"```sh\nx\n":                                   "has no end",
		"<!-- not run: x -->\n\nNo block.":             "there is none behind it",
		"<!-- not run: x -->\n":                        "there is none behind it",
		"<!-- wait: demo -->\n":                        "an unknown comment",
		"```sh\nif true\n```\n":                        "syntax error",
		"```sh\nkubectl -n a gett pods\n```\n":         "no such command",
		"```sh\nkubectl drain <node>\n```\n":           "placeholder",
		"```yaml\nkind: EtcdCluster\nx: {}\n```\n":     "unknown field",
		"```yaml\ncolour: red\n```\n":                  "no part of",
		"```console\nNAME\n```\n":                      "begins with a",
		"<!-- not run: it is text -->\n```text\n```\n": "is not run anyway",
	} {
		page, err := readPage("page.md", text)
		if err == nil {
			err = readable(page.Parts[0])
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// TestReasonsAreTrue: a story that is said to run a block instead exists. Of tests docs/docs_test.go asks that.
func TestReasonsAreTrue(t *testing.T) {
	known := map[string]bool{}
	stories := filepath.Join(root, "test/simulated/scenario/testdata/clusters")
	err := filepath.WalkDir(stories, func(_ string, d fs.DirEntry, err error) error {
		if err == nil {
			known["the story "+strings.TrimSuffix(d.Name(), ".txt")] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`the story \w+`)
	parts(t, func(page string, p Part) {
		for _, name := range named.FindAllString(p.notRun+" "+p.DryRun, -1) {
			if !known[name] {
				t.Errorf("%s:%d: there is no %s", page, p.Line, name)
			}
		}
	})
}

// TestEverySampleHasAStory: a file of manifests/samples is in the table beside it and is applied by TestSamples, or
// the table says why not.
func TestEverySampleHasAStory(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "manifests/samples/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no samples", err)
	}
	table := read(t, "manifests/samples/README.md")
	stories := read(t, "test/real/e2e/samples_test.go") + read(t, "test/real/e2e/selfhosted_test.go")
	for _, file := range files {
		name := filepath.Base(file)
		row := regexp.MustCompile(`(?m)^\| \[` + regexp.QuoteMeta(name) + `\].*\| ([^|]+) \|$`).FindStringSubmatch(table)
		if row == nil {
			t.Errorf("manifests/samples/README.md has no line about %s", name)
			continue
		}
		story := append(strings.SplitN(row[1], "`", 3), "", "")[1]
		told := strings.Contains(stories, `"`+story+`":`) || strings.Contains(stories, `fitted("`+story+`"`)
		applied := told && strings.Contains(stories, `"`+name+`"`)
		if !applied && !strings.HasPrefix(row[1], "not applied: ") {
			t.Errorf("manifests/samples/README.md, %s: TestSamples plays no %s", name, row[1])
		}
	}
}

// TestControlPlanes: the Secrets that other software is given are those that docs/how-to/certificates.md lists.
func TestControlPlanes(t *testing.T) {
	secrets := read(t, "docs/how-to/certificates.md")
	named := regexp.MustCompile(`(?:name|secretName): (demo-[\w-]+)`)
	found := 0
	parts(t, func(page string, p Part) {
		if page != "docs/how-to/control-planes.md" || p.Language != "yaml" {
			return
		}
		for _, m := range named.FindAllStringSubmatch(p.Text, -1) {
			if found++; !strings.Contains(secrets, "\n| `"+m[1]+"` ") {
				t.Errorf("%s:%d: there is no Secret %s", page, p.Line, m[1])
			}
		}
	})
	if found < 5 {
		t.Errorf("only %d Secrets are named", found)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
