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
	log := newTestLog(false)
	log.to = &bytes.Buffer{}
	_, err := log.Write([]byte(twoTests))
	require.NoError(t, err)
	r := log.finish(errors.New("exit status 1"))
	require.Equal(t, "1 passed, 1 failed in 0.0 s", r.String())
	require.Equal(t, `FAIL TestA/b
  a_test.go:4: epoch 2: not within 1m30s
  a_test.go:5: --- describe pods (and 6 lines more)
`, briefly(r.failures))
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
  a_test.go:4:
  Error:      	Not equal:
  expected: []string{"old-0"}
  actual  : []string{""}
  Diff:
  --- Expected (and 2 lines more)
`+strings.Repeat("  a_test.go:5: and so on\n", entriesShown), failure{"TestA", said}.brief())
}

func TestACommandThatFails(t *testing.T) {
	log := newTestLog(false)
	log.to = &bytes.Buffer{}
	_, err := log.Write([]byte(strings.Repeat("fine\n", 20) + "hooks/x.go:3:1: wrong\n" + strings.Repeat("x", 300)))
	require.NoError(t, err)
	r := log.finish(errors.New("exit status 2"))
	text := briefly(r.failures)
	require.Contains(t, text, "FAIL the command\n  fine\n")
	require.Contains(t, text, "\n  hooks/x.go:3:1: wrong\n  "+strings.Repeat("x", widthShown)+"…\n")
	require.Equal(t, 1+entriesShown, strings.Count(text, "\n"))
}

// A package that runs out of time, or panics, names the test in which it did.
func TestATestThatDoesNotEnd(t *testing.T) {
	log := newTestLog(false)
	log.to = &bytes.Buffer{}
	_, err := log.Write([]byte(`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: waits\n"}
{"Action":"output","Package":"p","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}
`))
	require.NoError(t, err)
	require.Equal(t, "FAIL p\n  panic: test timed out\nFAIL TestA did not end\n  a_test.go:3: waits\n", briefly(log.finish(errors.New("exit status 1")).failures))
}

func TestRecord(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, record(folder, result{passed: 3, skipped: 1}))
	require.NoError(t, record(folder, result{passed: 2, failed: 5, failures: []failure{{"TestA", ""}, {"TestB", ""}, {"TestC", ""}, {"TestD", "said"}}}))
	counts, err := os.ReadFile(filepath.Join(folder, "counts"))
	require.NoError(t, err)
	require.Equal(t, "3 0 1\n2 5 0\n", string(counts))
	failures, err := os.ReadFile(filepath.Join(folder, "failures"))
	require.NoError(t, err)
	require.Equal(t, "FAIL TestA\nFAIL TestB\nFAIL TestC\nFAIL TestD\n", string(failures))
}
