package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
}

// testLog is written to by a step. It counts tests, and keeps what each said until it is known whether it failed.
type testLog struct {
	command string
	verbose bool
	to      io.Writer
	partial []byte
	tests   bool              // some line was of go test -json
	said    map[string]string // by package and test; "" is what did not come from go test
	ended   map[string]string // how each test ended
	broken  []string          // packages that failed outside of a test
	failing map[string]bool   // packages with a failed test
	failed  []failure
}

func newTestLog(command string, verbose bool) *testLog {
	return &testLog{command: command, verbose: verbose, to: os.Stdout, said: map[string]string{},
		ended: map[string]string{}, failing: map[string]bool{}}
}

// Write takes whole lines out of what the step prints.
func (l *testLog) Write(text []byte) (int, error) {
	l.partial = append(l.partial, text...)
	for {
		i := bytes.IndexByte(l.partial, '\n')
		if i < 0 {
			return len(text), nil
		}
		l.line(string(l.partial[:i+1]))
		l.partial = l.partial[i+1:]
	}
}

func (l *testLog) line(text string) {
	var e event
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &e) != nil || e.Action == "" {
		e = event{Action: "output", Output: text}
	} else {
		l.tests = true
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		l.say(key, e.Output)
	case "build-output":
		l.say(e.ImportPath+" ", e.Output)
	case "pass", "fail", "skip":
		l.end(key, e)
	}
}

func (l *testLog) say(key, text string) {
	l.said[key] += text
	if l.verbose {
		show(l.to, text)
	}
}

func (l *testLog) end(key string, e event) {
	if e.Test != "" {
		l.ended[key] = e.Action
		if e.Action == "fail" {
			l.failing[e.Package] = true
			if !l.hasFailed(key) { // what it said is its subtests' failure
				l.fails(e.Test, key, e.Package, e.Test)
			}
			l.reveal(key)
		}
		return
	}
	if e.Action == "fail" && !l.failing[e.Package] { // it did not build, or panicked, or ran out of time
		l.broken = append(l.broken, e.Package)
		if e.FailedBuild != "" {
			l.fails(e.Package+" does not build", e.FailedBuild+" ", e.Package, "")
			l.reveal(e.FailedBuild + " ")
		} else {
			l.fails(e.Package, key, e.Package, "")
		}
		l.reveal(key)
		for test := range l.said {
			if strings.HasPrefix(test, key) && test != key && l.ended[test] == "" {
				name := strings.TrimPrefix(test, key)
				l.fails(name+" did not end", test, e.Package, name)
				l.reveal(test)
			}
		}
	}
}

// fails notes a failure of a test, of a package, or of the command, and what was said under this key.
func (l *testLog) fails(what, key, pkg, test string) {
	l.failed = append(l.failed, failure{what: what, said: l.said[key], again: again(l.command, pkg, test)})
}

func (l *testLog) reveal(key string) {
	if !l.verbose {
		show(l.to, l.said[key])
	}
	delete(l.said, key)
}

// finish counts; err is how the step's command ended.
func (l *testLog) finish(err error) result {
	if len(l.partial) > 0 {
		l.line(string(l.partial) + "\n")
	}
	var r result
	for key, how := range l.ended {
		switch {
		case l.hasChildren(key): // its subtests count
		case how == "pass":
			r.passed++
		case how == "fail":
			r.failed++
		default:
			r.skipped++
			if strings.Contains(l.said[key], "left out: ") {
				_, name, _ := strings.Cut(key, " ")
				r.leftOut = append(r.leftOut, name)
			}
		}
	}
	r.failed += len(l.broken)
	switch {
	case !l.tests && err == nil:
		r.passed++
	case err != nil && r.failed == 0: // the command itself failed
		r.failed++
		l.fails("the command", " ", "", "")
		l.reveal(" ")
		if err.Error() != "exit status 1" {
			show(l.to, err.Error()+"\n")
		}
	}
	r.failures = l.failed
	slices.Sort(r.leftOut)
	return r
}

// hasChildren says whether a test has subtests. A failed one with subtests that all passed counts itself.
func (l *testLog) hasChildren(key string) bool {
	return l.hasFailed(key) || l.ended[key] != "fail" && l.has(key, func(string) bool { return true })
}

// hasFailed says whether a subtest failed.
func (l *testLog) hasFailed(key string) bool {
	return l.has(key, func(how string) bool { return how == "fail" })
}

func (l *testLog) has(key string, ended func(how string) bool) bool {
	for other, how := range l.ended {
		if strings.HasPrefix(other, key+"/") && ended(how) {
			return true
		}
	}
	return false
}
