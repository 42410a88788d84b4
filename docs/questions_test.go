package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// clicks is how far from the front page an answer may be.
const clicks = 2

// questions are those that a user has, each with the page and the words that answer it.
var questions = []struct{ asks, page, anchor, answer string }{
	{"How do I try it?", "docs/tutorial.md", "get-a-kubernetes", "make demo"},
	{"How do I install it?", "docs/how-to/install.md", "with-helm", "helm install quorate"},
	{"How does my application connect?", "docs/how-to/connect.md", "connect-from-go", "demo-client-tls"},
	{"How do I reach it from outside?", "docs/how-to/expose.md", "choose-a-service", "extraSANs"},
	{"How do I take backups?", "docs/how-to/back-up.md", "schedule-backups", "kind: EtcdSnapshotSchedule"},
	{"How do I restore?", "docs/how-to/restore.md", "restore-in-place", `type: Restore`},
	{"I lost two of three members. What now?", "docs/how-to/recover-quorum.md", "three-questions", "policy: FromSurvivor"},
	{"How do I upgrade?", "docs/how-to/upgrade.md", "upgrade-etcd", `{"spec":{"version":`},
	{"How do I move my etcd in?", "docs/how-to/migrate.md", "move-step-by-step", "retireForeign"},
	{"How large should it be?", "docs/how-to/size.md", "size-a-cluster-by-its-load", "| Keys |"},
	{"What does this STATUS or alert mean?", "docs/troubleshooting.md", "by-alert", "## By STATUS"},
	{"How do I remove it and keep the data?", "docs/how-to/uninstall.md", "remove-quorate", "helm uninstall"},
}

// TestTwelveQuestions: each question is answered on a page that is at most two clicks from the front page.
func TestTwelveQuestions(t *testing.T) {
	if len(questions) != 12 {
		t.Errorf("%d questions, want twelve", len(questions))
	}
	far := map[string]int{"README.md": 0}
	for at := []string{"README.md"}; len(at) > 0; at = at[1:] {
		if far[at[0]] == clicks || !strings.HasSuffix(at[0], ".md") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(readAll(t, at[0]), ""), -1) {
			file, _, _ := strings.Cut(m[1], "#")
			to := filepath.Join(filepath.Dir(at[0]), file)
			if info, err := os.Stat(filepath.Join(root, to)); file == "" || err != nil || info.IsDir() {
				continue
			}
			if _, known := far[to]; !known {
				far[to] = far[at[0]] + 1
				at = append(at, to)
			}
		}
	}
	for _, q := range questions {
		if n, found := far[q.page]; !found || n > clicks {
			t.Errorf("%s %s can't be reached from README.md with %d clicks", q.asks, q.page, clicks)
		}
		if !slices.Contains(anchors(t, filepath.Join(root, q.page)), q.anchor) {
			t.Errorf("%s %s has no part %s", q.asks, q.page, q.anchor)
		}
		if !strings.Contains(readAll(t, q.page), q.answer) {
			t.Errorf("%s %s does not say %q", q.asks, q.page, q.answer)
		}
	}
}

// TestPathsThatOthersName: a document that is named in code, manifests or scripts is there, with its heading.
func TestPathsThatOthersName(t *testing.T) {
	named := regexp.MustCompile(`(?:^|[^/\w.-]|blob/main/|blob/%s/|\.\./)(docs/[A-Za-z0-9/._-]+\.(?:md|txt|png|svg))(#[A-Za-z0-9-]+)?`)
	places := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "bin" || name == "docs" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(name, ".md"): // links of Markdown are for TestLinks
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil || len(raw) > 4<<20 {
			return err
		}
		for i, line := range strings.Split(string(raw), "\n") {
			for _, m := range named.FindAllStringSubmatch(line, -1) {
				places++
				to := filepath.Join(root, m[1])
				if _, err := os.Stat(to); err != nil {
					t.Errorf("%s:%d: there is no %s", name, i+1, m[1])
				} else if m[2] != "" && !slices.Contains(anchors(t, to), m[2][1:]) {
					t.Errorf("%s:%d: %s has no heading %s", name, i+1, m[1], m[2])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if places < 50 {
		t.Errorf("only %d places name a document", places)
	}
}
