package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// failure is a test that failed, or a step's command, and what it said.
type failure struct{ what, said string }

// Of a CI run that failed, the last lines may be all that one gets to see: a failure is told in at most so many entries, each of
// at most so many lines of so many characters, and only the first failures at all.
const (
	entriesShown  = 8
	linesShown    = 6
	widthShown    = 240
	failuresShown = 3
)

// entryBegins matches the first line of what a test logs at once; its further lines are indented. Go's own lines about a test
// (=== RUN and --- FAIL) are none of its entries.
var (
	entryBegins = regexp.MustCompile(`^ *[\w-]+\.go:\d+: `)
	goSays      = regexp.MustCompile(`^ *(=== |--- (PASS|FAIL|SKIP)|PASS$|FAIL$|FAIL\t)`)
)

// brief is the failure in a few lines: the last of what was said, with long entries (the state of a cluster, a log) cut to their
// beginning.
func (f failure) brief() string {
	var entries [][]string
	for line := range strings.Lines(f.said) {
		line = strings.TrimRight(line, "\n")
		switch {
		case goSays.MatchString(line) || strings.TrimSpace(line) == "":
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
	var b strings.Builder
	fmt.Fprintln(&b, "FAIL", f.what)
	for _, entry := range entries[max(0, len(entries)-entriesShown):] {
		if n := len(entry); n > linesShown {
			entry = []string{fmt.Sprintf("%s (and %d lines more)", entry[0], n-1)}
		}
		for _, line := range entry {
			fmt.Fprintln(&b, "  "+line)
		}
	}
	return b.String()
}

// briefly tells the first failures, and names the others.
func briefly(failures []failure) string {
	var b strings.Builder
	for i, f := range failures {
		if i < failuresShown {
			b.WriteString(f.brief())
		} else {
			fmt.Fprintln(&b, "FAIL", f.what)
		}
	}
	return b.String()
}

// record adds to the files `counts` and `failures` in a folder, from which the end of a run over several targets is made.
func record(folder string, sum result) error {
	for name, text := range map[string]string{
		"counts":   fmt.Sprintln(sum.passed, sum.failed, sum.skipped),
		"failures": briefly(sum.failures),
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
