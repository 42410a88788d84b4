// Package kubectl is the plugin `kubectl quorate`: what a person asks about a cluster, and the few things that they may
// want done.
//
// It runs with that person's own kubectl and rights, and needs no Quorate that runs: what hooks decide is asked of the
// hooks themselves, and etcd is reached through kubectl port-forward.
package kubectl

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/internal/ui"
)

// Exit codes.
const (
	exitTrouble = 1
	exitUsage   = 2
)

// Program is the plugin with what it reaches the world by.
type Program struct {
	// Version of this binary, for people.
	Version string
	Out     io.Writer
	Err     io.Writer

	read func(ctx context.Context, body io.Reader) (Call, error)

	// Tests put others in the place of these.
	kubectl func(passed []string) access
	etcd    func(own etcdops.Own, dial dialer) hooks.Etcd
	now     func() time.Time
	pause   func(context.Context, time.Duration)
	serve   func(ctx context.Context, port int, source ui.Source, told func(url string)) error
}

type dialer = func(ctx context.Context, address string) (net.Conn, error)

// New is the plugin of this version.
func New(version string, out, err io.Writer) *Program {
	p := &Program{
		Version: version, Out: &plain{to: out}, Err: &plain{to: err}, read: unread, now: time.Now, pause: pause,
		serve: ui.Serve,
		etcd: func(own etcdops.Own, dial dialer) hooks.Etcd {
			return (&etcdops.Etcd{Dial: dial, Timeout: 5 * time.Second, StepTimeout: 10 * time.Second}).With(own)
		},
	}
	p.kubectl = func(passed []string) access { return &executable{name: "kubectl", passed: passed, warned: p.Err} }
	return p
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// misuse is an error in the command line.
type misuse struct{ error }

func misused(format string, args ...any) error { return misuse{fmt.Errorf(format, args...)} }

// errTold is a misuse that was answered with the list of commands.
var errTold = misuse{errors.New("usage")}

// Run is the whole plugin; the result is its exit code.
func (p *Program) Run(ctx context.Context, args []string) int {
	err := p.run(ctx, args)
	switch wrong := (misuse{}); {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, ErrUnfit):
		return exitTrouble
	case errors.As(err, &wrong):
		if wrong != errTold {
			fmt.Fprintf(p.Err, "kubectl quorate: %v\n", err)
		}
		return exitUsage
	}
	fmt.Fprintf(p.Err, "kubectl quorate: %v\n", err)
	return exitTrouble
}

func (p *Program) run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(p.Err, usage())
		return errTold
	}
	switch args[0] {
	case "help", "-h", "--help":
		if len(args) > 1 {
			return p.run(ctx, []string{args[1], "-h"})
		}
		fmt.Fprint(p.Out, usage())
		return nil
	case "--version":
		args = []string{"version", "--client"}
	case Completing:
		p.complete(ctx, args[1:])
		return nil
	}
	c := commandNamed(args[0])
	if c == nil {
		return misused("unknown command %q; `kubectl quorate help` lists them", args[0])
	}
	a, err := p.parse(c, args[1:])
	if err != nil {
		return err
	}
	return a.do(a, ctx)
}

// commandNamed is the command of this name; nil for none.
func commandNamed(name string) *command {
	for i := range commands {
		if commands[i].name == name {
			return &commands[i]
		}
	}
	return nil
}

// invocation is one command with what its line says.
type invocation struct {
	*Program
	*command
	kube      access
	passed    []string // to kubectl
	namespace string   // empty: that of kubectl's context
	cluster   string   // NAME; empty: the only one
	word      string   // what the command takes after NAME, such as a member

	quorate, metacontroller string // their namespaces
	wait, dryRun, yes, raw  bool
	at                      time.Time
	client                  bool
	everywhere              bool // in all namespaces
	timeout, duration       time.Duration
	restoring               restoring
	schedule                string // EtcdSnapshotSchedule
	user, dir               string // of env
	adopting                adopting
	load                    defaults.Load // that size is asked about
	topping                 topping
	file                    string
	port                    int
	format                  string // of what is printed
}

// Passed are kubectl's own flags that are handed on as they are.
var Passed = []string{"context", "kubeconfig", "cluster", "user", "as", "as-group", "request-timeout"}

// parse reads the command line.
func (p *Program) parse(c *command, args []string) (*invocation, error) {
	a, flags := p.begin(c)
	words, err := a.line(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(p.Out, c.explains())
		flags.SetOutput(p.Out)
		flags.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, misused("%s; `kubectl quorate %s -h` lists the flags", err, c.name)
	}
	return a, a.take(words)
}

// begin is a command of which nothing is read yet, and its flags.
func (p *Program) begin(c *command) (*invocation, *flag.FlagSet) {
	a := &invocation{Program: p, command: c}
	flags := flag.NewFlagSet("kubectl quorate "+c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // what is wrong is in the error
	flags.Usage = func() {}
	for _, name := range Passed {
		flags.Func(name, "kubectl's own `value`", func(value string) error {
			a.passed = append(a.passed, "--"+name+"="+value)
			return nil
		})
	}
	a.allFlags(flags)
	return a, flags
}

// line sets the flags, and returns what is none. kubectl takes flags before and after names, and so does this.
func (a *invocation) line(flags *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err = flags.Parse(args); err != nil || flags.NArg() == 0 {
			a.kube = a.kubectl(a.passed)
			return rest, err
		}
		rest = append(rest, flags.Arg(0))
		args = flags.Args()[1:]
	}
}
