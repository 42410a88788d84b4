package kubectl

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// access is the way to the API server.
type access interface {
	// run is what kubectl prints when it is called so.
	run(ctx context.Context, args ...string) ([]byte, error)
	// apply has kubectl apply objects, which may hold secrets, and is what it prints.
	apply(ctx context.Context, objects []byte) ([]byte, error)
	// create has kubectl create one object of this kind in a namespace, and fails when it is there.
	create(ctx context.Context, resource, namespace string, object []byte) error
	// forward opens a way to a port of a pod, at an address of this machine, until stop is called.
	forward(ctx context.Context, namespace, pod string, port int) (address string, stop func(), err error)
}

// Reach is another way to the API server than kubectl, for looking only.
type Reach struct {
	// Run is what kubectl would print when it is called so. The error of what is not there ends in (NotFound).
	Run func(ctx context.Context, args ...string) ([]byte, error)
	// Forward is the address of this machine at which a port of a pod is reached.
	Forward func(ctx context.Context, namespace, pod string, port int) (address string, err error)
}

// Through lets the plugin take this way.
func (p *Program) Through(r Reach) { p.kubectl = func([]string) access { return through{r} } }

type through struct{ Reach }

func (t through) run(ctx context.Context, args ...string) ([]byte, error) {
	out, err := t.Run(ctx, args...)
	if err != nil {
		return nil, &refusal{args, err.Error(), err}
	}
	return out, nil
}

func (t through) apply(context.Context, []byte) ([]byte, error) {
	return nil, errors.New("nothing can be applied this way")
}

func (t through) create(context.Context, string, string, []byte) error {
	return errors.New("nothing can be created this way")
}

func (t through) forward(ctx context.Context, namespace, pod string, port int) (string, func(), error) {
	address, err := t.Forward(ctx, namespace, pod, port)
	return address, func() {}, err
}

// executable is the person's own kubectl.
type executable struct {
	name   string
	passed []string
	warned io.Writer // by a program in a pod that succeeds, once
	said   sync.Map
}

// refusal is a call of kubectl that failed, with what it said.
type refusal struct {
	args []string
	said string
	err  error
}

func (r *refusal) Error() string {
	said := r.said
	if said == "" {
		said = r.err.Error()
	}
	return fmt.Sprintf("`kubectl %s`: %s%s", strings.Join(r.args, " "), said, r.advice())
}

func (r *refusal) Unwrap() error { return r.err }

// advice is what to do about it, where that can be told.
func (r *refusal) advice() string {
	switch {
	case errors.Is(r.err, exec.ErrNotFound):
		return "; install kubectl and put it on the PATH"
	case r.is("Forbidden"):
		return "; ask your Kubernetes administrator for that right (" + v1beta1.Docs +
			"reference/cli.md lists what each command needs)"
	case strings.Contains(r.said, "the server doesn't have a resource type"),
		strings.Contains(r.said, "could not find the requested resource"):
		return "; Quorate is not installed in this Kubernetes cluster, or kubectl points to another one: see `kubectl " +
			"config current-context`"
	case strings.Contains(r.said, "connection refused"), strings.Contains(r.said, "Unable to connect"):
		return "; see `kubectl config current-context` and --context, --kubeconfig"
	}
	return ""
}

// is reports whether the API server gave this reason, such as NotFound.
func (r *refusal) is(reason string) bool { return strings.Contains(r.said, "("+reason+")") }

// refused reports whether an error is the API server's, for this reason.
func refused(err error, reason string) bool {
	r := (*refusal)(nil)
	return errors.As(err, &r) && r.is(reason)
}

func (e *executable) run(ctx context.Context, args ...string) ([]byte, error) {
	return e.reading(ctx, nil, args...)
}

func (e *executable) apply(ctx context.Context, objects []byte) ([]byte, error) {
	return e.reading(ctx, objects, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (e *executable) create(ctx context.Context, _, namespace string, object []byte) error {
	_, err := e.reading(ctx, object, "create", "-n", namespace, "-f", "-")
	return err
}

// reading calls kubectl, which may read what it is given.
func (e *executable) reading(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, e.name, e.with(args)...)
	var out, errs bytes.Buffer
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Stdout = &out
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		return nil, &refusal{args, strings.TrimSpace(errs.String()), err}
	}
	if args[0] == "exec" {
		e.warn(errs.Bytes()) // the answer is there all the same
	}
	return out.Bytes(), nil
}

// warn passes on what was not said before.
func (e *executable) warn(words []byte) {
	if _, before := e.said.LoadOrStore(string(words), true); !before {
		_, _ = e.warned.Write(words)
	}
}

func (e *executable) with(args []string) []string {
	return append(append([]string{}, args...), e.passed...)
}

// openWithin is how long kubectl port-forward may take until it listens.
const openWithin = 10 * time.Second

func (e *executable) forward(ctx context.Context, namespace, pod string, port int) (string, func(), error) {
	args := []string{"port-forward", "-n", namespace, "--address=127.0.0.1", "pod/" + pod, fmt.Sprintf(":%d", port)}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, e.name, e.with(args)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return "", nil, &refusal{args, "", err}
	}
	late := time.AfterFunc(openWithin, cancel)
	address := listening(out)
	late.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, out) // it prints a line for each connection
		err = cmd.Wait()
	}()
	stop := func() {
		cancel()
		<-ended
	}
	if address != "" {
		return address, stop, nil
	}
	stop()
	said := cmp.Or(strings.TrimSpace(errs.String()), fmt.Sprintf("it did not say within %s where it listens",
		openWithin))
	return "", nil, &refusal{args, said, err}
}

// listening reads where kubectl port-forward listens: "Forwarding from 127.0.0.1:41234 -> 2379". Empty when it ends
// before.
func listening(out io.Reader) string {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		_, rest, found := strings.Cut(lines.Text(), "Forwarding from ")
		address, _, arrow := strings.Cut(rest, " -> ")
		if _, _, err := net.SplitHostPort(address); found && arrow && err == nil {
			return address
		}
	}
	return ""
}
