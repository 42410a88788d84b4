package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const twoTests = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: one voter after 2.0 s\n"}
{"Action":"output","Package":"p","Test":"TestA/b","Output":"    a_test.go:4: epoch 2: not within 1m30s\n"}
{"Action":"output","Package":"p","Test":"TestA/b","Output":"    a_test.go:5: --- describe pods\n"}
{"Action":"output","Package":"p","Test":"TestA/b","Output":"        1\n        2\n        3\n        4\n        5\n        6\n"}
{"Action":"output","Package":"p","Test":"TestA/b","Output":"--- FAIL: TestA/b (0.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestA/b"}
{"Action":"pass","Package":"p","Test":"TestA/c"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"fail","Package":"p"}
`

// The end of a run names what failed, and why, in a few lines.
func TestAFailureInBrief(t *testing.T) {
	log := newTestLog("go test -json ./...", false)
	log.to = &bytes.Buffer{}
	_, err := log.Write([]byte(twoTests))
	require.NoError(t, err)
	r := log.finish(errors.New("exit status 1"))
	require.Equal(t, "1 passed, 1 failed in 0.0 s", r.String())
	require.Equal(t, `FAIL TestA/b
  again: go test p -run '^TestA$/^b$' -count=1
  a_test.go:4: epoch 2: not within 1m30s
  a_test.go:5: --- describe pods (and 6 lines more)
`, briefly(r.failures, 0))
}

// What an assertion expected is shown, and the assertion also when much was said after it.
func TestAnAssertionInBrief(t *testing.T) {
	said := `    a_test.go:3: begun
    a_test.go:4: ` + `
        	Error Trace:	/a/a_test.go:4
        	Error:      	Not equal:` + ` ` + `
        	            	expected: []string{"old-0"}
        	            	actual  : []string{""}
        	            	` + `
        	            	Diff:
        	            	--- Expected
        	            	+++ Actual
        	Test:       	TestA
` + strings.Repeat("    a_test.go:5: and so on\n", entriesShown)
	require.Equal(t, `FAIL TestA
  again: go test
  a_test.go:4:
  Error:      	Not equal:
  expected: []string{"old-0"}
  actual  : []string{""}
  Diff:
  --- Expected (and 2 lines more)
`+strings.Repeat("  a_test.go:5: and so on\n", entriesShown), failure{"TestA", said, "go test"}.brief())
}

func TestACommandThatFails(t *testing.T) {
	log := newTestLog("go test -json ./...", false)
	log.to = &bytes.Buffer{}
	_, err := log.Write([]byte(strings.Repeat("fine\n", 20) + "hooks/x.go:3:1: wrong\n" + strings.Repeat("x", 300)))
	require.NoError(t, err)
	r := log.finish(errors.New("exit status 2"))
	text := briefly(r.failures, 0)
	require.Contains(t, text, "FAIL the command\n  again: go test -json ./...\n  fine\n")
	require.Contains(t, text, "\n  hooks/x.go:3:1: wrong\n  "+strings.Repeat("x", widthShown)+"…\n")
	require.Equal(t, 2+entriesShown, strings.Count(text, "\n"))
}

// A package that runs out of time, or panics, names the test in which it did.
func TestATestThatDoesNotEnd(t *testing.T) {
	log := newTestLog("go test -json ./...", false)
	log.to = &bytes.Buffer{}
	_, err := log.Write([]byte(`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: waits\n"}
{"Action":"output","Package":"p","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}
`))
	require.NoError(t, err)
	require.Equal(t, "FAIL p\n  again: go test p -count=1\n  panic: test timed out\n"+
		"FAIL TestA did not end\n  again: go test p -run '^TestA$' -count=1\n  a_test.go:3: waits\n",
		briefly(log.finish(errors.New("exit status 1")).failures, 0))
}

// A story for which there was no time is named; one that is for another day is only counted.
func TestLeftOut(t *testing.T) {
	log := newTestLog("go test -json ./...", false)
	_, err := log.Write([]byte(`{"Action":"output","Package":"p","Test":"TestA","Output":"    a.go:3: left out: late\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}
`))
	require.NoError(t, err)
	r := log.finish(nil)
	require.Equal(t, 2, r.skipped)
	require.Equal(t, []string{"TestA"}, r.leftOut)
}

func TestRecord(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, record(folder, result{passed: 3, skipped: 1}))
	of := func(test string) failure { return failure{test, "    a_test.go:3: said", "go test"} }
	require.NoError(t, record(folder, result{passed: 2, failed: 2, failures: []failure{of("TestA"), of("TestB")}}))
	require.NoError(t, record(folder, result{failed: 2, failures: []failure{of("TestC"), of("TestD")}}))
	counts, err := os.ReadFile(filepath.Join(folder, "counts"))
	require.NoError(t, err)
	require.Equal(t, "3 0 1\n2 2 0\n0 2 0\n", string(counts))
	failures, err := os.ReadFile(filepath.Join(folder, "failures"))
	require.NoError(t, err)
	said := "  again: go test\n  a_test.go:3: said\n"
	require.Equal(t, "FAIL TestA\n"+said+"FAIL TestB\n"+said+"FAIL TestC\n"+said+"FAIL TestD\n  again: go test\n",
		string(failures))
}

// Each failure is told with the one command that repeats it.
func TestAgain(t *testing.T) {
	for _, c := range []struct{ command, pkg, test, again string }{
		{"QUORATE_VERIFY=1 go test -json $(go list ./...)", product + "/test/simulated/scenario",
			"TestStories/a_pod.txt", `QUORATE_VERIFY=1 go test ./test/simulated/scenario -run '^TestStories$/^a_pod\.txt$' -count=1`},
		{"go test -tags releases -json ./test/real/conformance", product + "/test/real/conformance",
			"TestFlags/3.5.35/defaults",
			`go test ./test/real/conformance -tags releases -run '^TestFlags$/^3\.5\.35$' -count=1`},
		{"go test -C test/tools/manifests -json -short ./...", product + "/test/tools/manifests", "TestChart",
			"go test -C test/tools/manifests . -short -run '^TestChart$' -count=1"},
		{"go test -json ./...", product, "TestA/it's", `go test . -run '^TestA$/^it'\''s$' -count=1`},
		{"go test -json ./test/simulated/scenario -run 'Wander' -wanderings 60", product + "/test/simulated/scenario",
			"TestWander/45", `go test ./test/simulated/scenario -wanderings 60 -run '^TestWander$/^45$' -count=1`},
		{"packages=$(go list ./... | grep -vE '/seed') && go test -json $packages", product + "/hooks", "",
			"go test ./hooks -count=1"},
		{"make -s lint", "", "", "make -s lint"},
	} {
		require.Equal(t, c.again, again(c.command, c.pkg, c.test))
	}
	t.Setenv("STEPS_AGAIN", "make story RUN=TEST")
	require.Equal(t, "make story RUN='^TestGrow$'", again("go test -json ./test/real/e2e", product+"/test/real/e2e",
		"TestGrow/more"))
	require.Equal(t, "make story RUN='.*'", again("go test -json ./test/real/e2e", product+"/test/real/e2e", ""),
		"no test failed, but the package")
}
