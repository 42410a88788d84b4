// Package scenario tells stories about clusters: each file in testdata is one, and its first line says what it is about.
// Run with -rewrite to write down what happens now, and read the difference.
package scenario

import (
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		title(t, path)
		s := newStory()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.tell(t, d)
			for _, breach := range s.breaches() {
				t.Errorf("%s: %s: VIOLATION %s", d.Pos, d.Cmd, breach)
				out += "VIOLATION " + breach + "\n"
			}
			if out == "" {
				return "ok\n"
			}
			return out
		})
	})
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
