// Package scenario tells stories about clusters: each file in testdata/told is one, and each in testdata/open is one of a known
// bug. The first line says what it is about.
// Run with -rewrite to write down what happens now, and read the difference.
package scenario

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/quorate-dev/quorate/test/docs"
)

func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/told", func(t *testing.T, path string) {
		if breaches := run(t, path); breaches != "" {
			t.Errorf("%s: VIOLATION\n%s", path, breaches)
		}
	})
}

// TestOpen runs the stories of known bugs, which end in a violation. One that no longer does belongs to the others.
func TestOpen(t *testing.T) {
	datadriven.Walk(t, "testdata/open", func(t *testing.T, path string) {
		if run(t, path) == "" {
			t.Errorf("%s: nothing is violated any more: move it to testdata/told", path)
		}
	})
}

// run tells one story, and returns the rules that it broke.
func run(t *testing.T, path string) (breaches string) {
	title(t, path)
	s := newStory()
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		out := s.tell(t, d)
		if c := s.w.Cluster(); c != nil {
			record(t, d, recorded{Kind: "EtcdCluster", Object: c, Lacks: s.w.Lacked})
		}
		for _, breach := range s.breaches() {
			out += "VIOLATION " + breach + "\n"
			breaches += d.Pos + ": " + breach + "\n"
		}
		if out == "" {
			return "ok\n"
		}
		return out
	})
	return breaches
}

// TestTheExampleInContributing: whoever writes a story as CONTRIBUTING.md says gets what it shows.
func TestTheExampleInContributing(t *testing.T) {
	pages, err := docs.ReadPages("../..")
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, page := range pages {
		for _, part := range page.Parts {
			if part.Language != "story" {
				continue
			}
			told++
			s := newStory()
			datadriven.RunTestFromString(t, part.Text, func(t *testing.T, d *datadriven.TestData) string {
				return cmp.Or(s.tell(t, d), "ok\n")
			})
			for _, breach := range s.breaches() {
				t.Errorf("%s:%d: VIOLATION %s", page.Path, part.Line, breach)
			}
		}
	}
	if told == 0 {
		t.Error("the documents tell no story")
	}
}

// TestMutantsStories lives through what breaks the mutants of test/model, with the shipped rules: none of it breaks them.
func TestMutantsStories(t *testing.T) {
	paths, err := filepath.Glob("../model/testdata/mutants/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no stories", err)
	}
	for _, path := range paths {
		title(t, path)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := newStory()
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "----") || strings.TrimSpace(line) == "" {
				continue
			}
			cmd, words, err := datadriven.ParseLine(line)
			if err != nil {
				t.Fatal(err)
			}
			s.tell(t, &datadriven.TestData{Pos: path, Cmd: cmd, CmdArgs: words})
			for _, breach := range s.breaches() {
				t.Errorf("%s: %s: VIOLATION %s", path, strings.TrimSpace(line), breach)
			}
		}
	}
}

// title insists that a story begins with a sentence about itself.
func title(t *testing.T, path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	if !strings.HasPrefix(first, "# ") || !strings.HasSuffix(first, ".") {
		t.Errorf("%s: the first line must be one sentence after a #, and is %q", path, first)
	}
}
