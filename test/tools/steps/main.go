// steps runs the steps of a make target one after the other, all of them even if one fails, and ends with a table and
// a line "N passed, N failed". Each argument is a step: "NAME: COMMAND", for a shell. A command that prints `go test
// -json` counts with its tests, any other as one. Only failures are shown in full; with V=1 everything is, as it
// happens. Each failure is named again at the end, with the command that repeats it.
//
// With STEPS_RESULTS set to a folder, the counts and the failures are added to files in it, for the end of a run over
// several targets.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// result is what came out of a step.
type result struct {
	name                    string
	passed, failed, skipped int
	took                    time.Duration
	failures                []failure
	leftOut                 []string // tests that say that they had no time
}

func main() {
	var results []result
	for _, step := range os.Args[1:] {
		name, command, ok := strings.Cut(step, ": ")
		if !ok {
			fmt.Fprintf(os.Stderr, "a step is \"NAME: COMMAND\", not %q\n", step)
			os.Exit(2)
		}
		fmt.Printf("=== %s\n", name)
		r := run(name, command)
		fmt.Printf("    %s\n", r)
		results = append(results, r)
	}
	if failed := report(results); failed {
		os.Exit(1)
	}
}

// run runs one step.
func run(name, command string) result {
	began := time.Now()
	log := newTestLog(command, os.Getenv("V") != "")
	cmd := exec.Command("bash", "-o", "pipefail", "-c", command)
	cmd.Stdout, cmd.Stderr = log, log
	err := cmd.Run()
	r := log.finish(err)
	r.name, r.took = name, time.Since(began)
	return r
}

// report prints the table and says whether anything failed.
func report(results []result) bool {
	var sum result
	fmt.Println()
	for _, r := range results {
		mark := "ok  "
		if r.failed > 0 {
			mark = "FAIL"
		}
		fmt.Printf("%s  %-28s %s\n", mark, r.name, r)
		if len(r.leftOut) > 0 {
			fmt.Printf("      left out: %s\n", strings.Join(r.leftOut, ", "))
		}
		sum.passed, sum.failed, sum.skipped = sum.passed+r.passed, sum.failed+r.failed, sum.skipped+r.skipped
		sum.took += r.took
		for _, f := range r.failures {
			sum.failures = append(sum.failures, failure{r.name + ": " + f.what, f.said, f.again})
		}
	}
	fmt.Println()
	for _, f := range sum.failures {
		fmt.Print(f.named())
	}
	fmt.Println(sum)
	if folder := os.Getenv("STEPS_RESULTS"); folder != "" {
		if err := record(folder, sum); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return true
		}
	}
	return sum.failed > 0
}

func (r result) String() string {
	text := fmt.Sprintf("%d passed, %d failed", r.passed, r.failed)
	if r.skipped > 0 {
		text += fmt.Sprintf(", %d skipped", r.skipped)
	}
	return fmt.Sprintf("%s in %.1f s", text, r.took.Seconds())
}

// show prints what a failure said, a little to the right.
func show(to io.Writer, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprint(to, "    ", line)
	}
}
