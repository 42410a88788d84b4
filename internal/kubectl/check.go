package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/internal/kubectl/check"
)

// ErrUnfit is what is returned by a check that did not find everything well; its findings have been printed.
var ErrUnfit = errors.New("something is wrong")

const (
	// readWithin is how long one call of kubectl may take, so that an API server that does not answer is told from one
	// that is slow.
	readWithin = 30 * time.Second
	// atOnce is how many run beside each other: each is a process of some 60 MB.
	atOnce = 6
)

// check says whether Kubernetes, Metacontroller and Quorate fit together. It only reads.
func (a *invocation) check(ctx context.Context) error {
	own, _, _ := strings.Cut(a.Version, " ")
	o := check.Options{Namespace: a.namespace, Metacontroller: a.metacontroller, Version: own, Now: a.now()}
	findings := a.findings(ctx, &o)
	if a.format == "json" {
		text, err := json.MarshalIndent(map[string]any{"version": own, "fine": check.Fine(findings),
			"checks": findings}, "",
			"  ")
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "%s\n", text)
	} else {
		fmt.Fprintf(a.Out, "Quorate in %s, Metacontroller in %s, judged by quorate %s\n\n", o.Namespace,
			o.Metacontroller,
			own)
		printFindings(a.Out, findings)
	}
	if !check.Fine(findings) {
		return ErrUnfit
	}
	return nil
}

// findings reads what there is to read, and judges it. It finds Metacontroller where its namespace was not said.
func (a *invocation) findings(ctx context.Context, o *check.Options) []check.Finding {
	answers := map[string]check.Answer{}
	first := o.First()
	answers[first.Name] = a.answer(ctx, first)
	if answers[first.Name].Err != "" {
		return check.Judge(check.See(*o, answers))
	}
	if o.Metacontroller == "" {
		*o = o.Found(a.answer(ctx, o.Own()))
	}
	a.readAll(ctx, o.Readings(), answers)
	a.readAll(ctx, check.See(*o, answers).Later(), answers)
	return check.Judge(check.See(*o, answers))
}

// readAll reads beside each other.
func (a *invocation) readAll(ctx context.Context, readings []check.Reading, answers map[string]check.Answer) {
	var all sync.WaitGroup
	var lock sync.Mutex
	turns := make(chan struct{}, atOnce)
	for _, r := range readings {
		all.Go(func() {
			turns <- struct{}{}
			said := a.answer(ctx, r)
			<-turns
			lock.Lock()
			defer lock.Unlock()
			answers[r.Name] = said
		})
	}
	all.Wait()
}

// answer is what kubectl says to a reading.
func (a *invocation) answer(ctx context.Context, r check.Reading) check.Answer {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	out, err := a.kube.run(ctx, r.Args...)
	if err == nil && r.Args[0] == "logs" {
		out = []byte((&redactor{}).text(string(out))) // a log may hold the token of a URL
	}
	if err == nil {
		return check.Answer{Out: out}
	}
	words := (&redactor{}).text(strings.Join(strings.Fields(err.Error()), " "))
	if ctx.Err() != nil {
		words = fmt.Sprintf("`kubectl %s` did not end within %s", strings.Join(r.Args, " "), readWithin)
	}
	return check.Answer{Err: words, Forbidden: refused(err, "Forbidden"), NoKind: noKind(err)}
}

// noKind reports whether the API server does not know a kind that was asked for.
func noKind(err error) bool {
	return strings.Contains(err.Error(), "the server doesn't have a resource type") ||
		strings.Contains(err.Error(), "could not find the requested resource")
}

// printFindings prints one line for each that is well. What to do is a line of its own, unbroken: there are commands in
// it to be copied.
func printFindings(w io.Writer, all []check.Finding) {
	count := map[check.State]int{}
	const found = 34 // where the words begin
	for _, f := range all {
		count[f.State]++
		state := string(f.State)
		if f.State == check.Fail {
			state = "FAIL"
		}
		for i, line := range wrapped(f.Found, width-found) {
			if i == 0 {
				fmt.Fprintf(w, "  %-7s  %-21s  %s\n", state, f.Name, line)
			} else {
				fmt.Fprintf(w, "%*s%s\n", found, "", line)
			}
		}
		if f.Do != "" {
			fmt.Fprintf(w, "           => %s\n", f.Do)
		}
	}
	fmt.Fprintf(w, "\n%d ok, %s, %d failed, %d unknown; nothing was changed\n", count[check.OK],
		objects.Count(count[check.Warn], "warning"), count[check.Fail], count[check.Unknown])
}
