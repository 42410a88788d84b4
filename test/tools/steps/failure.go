package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// failure is a test that failed, or a step's command, what it said, and the command that repeats it.
type failure struct{ what, said, again string }

// Of a CI run that failed, the last lines may be all that one gets to see: a failure is told in at most so many
// entries, each of at most so many lines of so many characters, and only the first failures at all.
const (
	entriesShown  = 8
	linesShown    = 6
	widthShown    = 240
	failuresShown = 3
)

// entryBegins matches the first line of what a test logs at once; its further lines are indented. An assertion's
// first line is but where it stands, and what it expected follows. Go's own lines about a test (=== RUN and --- FAIL)
// are none of its entries.
var (
	entryBegins = regexp.MustCompile(`^ *[\w-]+\.go:\d+: `)
	asserts     = regexp.MustCompile(`^[\w-]+\.go:\d+:$`)
	goSays      = regexp.MustCompile(`^ *(=== |--- (PASS|FAIL|SKIP)|PASS$|FAIL$|FAIL\t)`)
)

// brief is the failure in a few lines: the assertions that did not hold, and the last of what was said, with long
// entries (the state of a cluster, a log) cut to their beginning.
func (f failure) brief() string {
	var b strings.Builder
	b.WriteString(f.named())
	entries := f.entries()
	for i, entry := range entries {
		if i < len(entries)-entriesShown && !asserts.MatchString(entry[0]) {
			continue
		}
		for _, line := range beginning(entry) {
			fmt.Fprintln(&b, "  "+line)
		}
	}
	return b.String()
}

// named is what failed and how to repeat it.
func (f failure) named() string {
	return fmt.Sprintf("FAIL %s\n  again: %s\n", f.what, f.again)
}

// beginning is an entry without what is too much of it. The first line of a long one says what the rest is; that of
// an assertion does not.
func beginning(entry []string) []string {
	n, shown := len(entry), 1
	if asserts.MatchString(entry[0]) {
		shown = linesShown
	}
	if n <= linesShown {
		return entry
	}
	return append(entry[:shown-1:shown-1], fmt.Sprintf("%s (and %d lines more)", entry[shown-1], n-shown))
}

// entries are what the failed test, or the command, logged, each in its lines.
func (f failure) entries() [][]string {
	var entries [][]string
	for line := range strings.Lines(f.said) {
		line = strings.TrimRight(line, "\n")
		switch {
		case goSays.MatchString(line) || strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line),
			"Error Trace:"):
			continue
		case len(entries) == 0 || entryBegins.MatchString(line) || !strings.HasPrefix(line, " "):
			entries = append(entries, nil)
		}
		line = strings.TrimSpace(line)
		if runes := []rune(line); len(runes) > widthShown {
			line = string(runes[:widthShown]) + "…"
		}
		entries[len(entries)-1] = append(entries[len(entries)-1], line)
	}
	return entries
}

// briefly tells the first failures, and names the others. So many were told before.
func briefly(failures []failure, before int) string {
	var b strings.Builder
	for i, f := range failures {
		if before+i < failuresShown {
			b.WriteString(f.brief())
		} else {
			b.WriteString(f.named())
		}
	}
	return b.String()
}

// record adds to the files `counts` and `failures` in a folder, from which the end of a run over several targets is
// made.
func record(folder string, sum result) error {
	told, err := os.ReadFile(filepath.Join(folder, "failures"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for name, text := range map[string]string{
		"counts":   fmt.Sprintln(sum.passed, sum.failed, sum.skipped),
		"failures": briefly(sum.failures, strings.Count("\n"+string(told), "\nFAIL ")),
	} {
		file, err := os.OpenFile(filepath.Join(folder, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		if _, err = file.WriteString(text); err != nil {
			file.Close()
			return err
		}
		if err = file.Close(); err != nil {
			return err
		}
	}
	return nil
}
