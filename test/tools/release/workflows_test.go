package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rhysd/actionlint"
)

// TestWorkflows: what runs at GitHub is of the form that GitHub takes, and runs nothing of others but at a commit
// that can't change.
func TestWorkflows(t *testing.T) {
	files, _ := filepath.Glob("../../../.github/workflows/*.yml")
	if len(files) < 2 {
		t.Fatalf("only %v", files)
	}
	linter, err := actionlint.NewLinter(os.Stderr, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := linter.LintFiles(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range wrong {
		t.Error(e)
	}
	pinned := regexp.MustCompile(`^[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)uses: (.*)$`).FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s is not pinned to a commit, with its version behind it", file, m[1])
			}
		}
	}
}
