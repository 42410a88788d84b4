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
	"slices"
	"time"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/defaults"
)

// Exit codes.
const (
	exitTrouble = 1
	exitUsage   = 2
)

const usage = `kubectl quorate looks at etcd clusters that Quorate runs, with the rights that you have.

Usage:
  kubectl quorate status [NAME]               one screen: members, certificates, what is being done and what is in its way
  kubectl quorate explain [NAME]              what Quorate would do now, and why; nothing is carried out
  kubectl quorate defrag [NAME]               defragment the members' databases, one at a time
  kubectl quorate move-leader [NAME] MEMBER   let another member lead
  kubectl quorate fence [NAME] MEMBER         stop a member for --duration, or until the EtcdOperation is deleted
  kubectl quorate restore [NAME] [flags]      move to the data of --snapshot, or back to that of --epoch
  kubectl quorate recover [NAME] POLICY       begin again without quorum: FromSurvivor, FromSnapshot or Recreate
  kubectl quorate adopt NAME CLAIM... --dry-run
                                              the EtcdCluster that would begin with claims of an etcd that runs no more
  kubectl quorate size --keys=N --writes=N [--value=BYTES] [--history=5m]
                                              the EtcdCluster that is large enough for such a load, and why
  kubectl quorate report [NAME] [-o FILE]     a support bundle without secrets, as a .tar.gz
  kubectl quorate version [--client]          the version of this plugin, and which Quorate runs
  kubectl quorate check [-o json]             whether Kubernetes, Metacontroller and Quorate fit together, and what to do
  kubectl quorate install [--apply]           install Quorate, or upgrade it; "kubectl quorate install -h" lists its flags

defrag, move-leader, fence, restore and recover create an EtcdOperation; with --wait they show how it goes.
Without NAME it is the one EtcdCluster of the namespace. All commands take kubectl's own flags -n/--namespace, --context,
--kubeconfig, --cluster, --user, --as, --as-group and --request-timeout. "kubectl quorate COMMAND -h" lists the others.

Exit codes: 0 done, 1 trouble (the message says what and where; for check, a finding is FAIL or unknown), 2 the command line is wrong.
`

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
}

type dialer = func(ctx context.Context, address string) (net.Conn, error)

// New is the plugin of this version.
func New(version string, out, err io.Writer) *Program {
	return &Program{
		Version: version, Out: &plain{to: out}, Err: &plain{to: err}, read: unread, now: time.Now, pause: pause,
		kubectl: func(passed []string) access { return &executable{name: "kubectl", passed: passed} },
		etcd: func(own etcdops.Own, dial dialer) hooks.Etcd {
			return (&etcdops.Etcd{Dial: dial, Timeout: 5 * time.Second, StepTimeout: 10 * time.Second}).With(own)
		},
	}
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

// errTold is a misuse that the flag package has explained already.
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
		fmt.Fprint(p.Err, usage)
		return errTold
	}
	switch name, rest := args[0], args[1:]; name {
	case "status", "explain", "defrag", "move-leader", "fence", "restore", "recover", "report", "version", "check", "adopt",
		"size":
		a, err := p.parse(name, rest)
		if err != nil {
			return err
		}
		return a.do(ctx)
	case "help", "-h", "--help":
		fmt.Fprint(p.Out, usage)
		return nil
	default:
		return misused("unknown command %q; `kubectl quorate help` lists them", name)
	}
}

// ask is one command with what its line says.
type ask struct {
	*Program
	command   string
	kube      access
	namespace string // empty: that of kubectl's context
	name      string // of the EtcdCluster; empty: the only one
	operand   string // what the command takes after NAME, such as a member

	quorate, metacontroller string // their namespaces
	wait, client            bool
	timeout, duration       time.Duration
	snapshot                string // of restore, and the epoch
	epoch                   int64
	stopFirst               bool
	adopting                adopting
	load                    defaults.Load // that size is asked about
	file                    string
	format                  string // of what check prints: text or json
}

// Passed are kubectl's own flags that are handed on as they are.
var Passed = []string{"context", "kubeconfig", "cluster", "user", "as", "as-group", "request-timeout"}

// parse reads the command line. kubectl takes flags before and after names, and so does this.
func (p *Program) parse(command string, args []string) (*ask, error) {
	a := &ask{Program: p, command: command}
	flags := flag.NewFlagSet("kubectl quorate "+command, flag.ContinueOnError)
	flags.SetOutput(p.Err)
	var hand []string
	for _, name := range Passed {
		flags.Func(name, "kubectl's own `value`", func(value string) error {
			hand = append(hand, "--"+name+"="+value)
			return nil
		})
	}
	usual := ""
	where := "`namespace` of the EtcdCluster; empty for that of kubectl's context"
	if command == "check" {
		usual = "quorate-system"
		where = "`namespace` of Quorate itself"
	}
	flags.StringVar(&a.namespace, "namespace", usual, where)
	flags.StringVar(&a.namespace, "n", usual, "short for --namespace")
	a.ownFlags(flags)
	var names []string
	for {
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, errTold
		}
		if flags.NArg() == 0 {
			break
		}
		names = append(names, flags.Arg(0))
		args = flags.Args()[1:]
	}
	a.kube = p.kubectl(hand)
	return a, a.take(names)
}

// ownFlags are those of the command.
func (a *ask) ownFlags(flags *flag.FlagSet) {
	if a.command == "explain" || a.command == "report" || a.command == "version" {
		flags.StringVar(&a.quorate, "quorate-namespace", "quorate-system", "`namespace` of Quorate itself")
	}
	if a.command == "check" || a.command == "report" {
		flags.StringVar(&a.metacontroller, "metacontroller-namespace", "", "`namespace` of Metacontroller; empty for "+
			"Quorate's if that has its own, and otherwise metacontroller")
	}
	switch a.command {
	case "check":
		flags.StringVar(&a.format, "o", "text", "`format`: text or json")
	case "adopt":
		d := &a.adopting
		flags.BoolVar(&d.dryRun, "dry-run", false, "print the EtcdCluster and change nothing")
		flags.StringVar(&d.selector, "l", "", "`selector` of the claims' labels, in place of their names")
		flags.StringVar(&d.path, "path", "", "`path` of etcd's data directory in each volume; empty for data")
		flags.StringVar(&d.version, "etcd-version", "", "`version` of etcd that should run, such as 3.6.16")
	case "size":
		loadFlags(flags, &a.load)
	case "report":
		flags.StringVar(&a.file, "o", "", "`file` to write; empty for one named after the cluster and the time")
	case "version":
		flags.BoolVar(&a.client, "client", false, "only the version of this plugin")
	case "fence":
		flags.DurationVar(&a.duration, "duration", 0, "how `long` the member stays stopped; 0 for until the "+
			"EtcdOperation is deleted")
	case "restore":
		flags.StringVar(&a.snapshot, "snapshot", "", "`name` of the EtcdSnapshot to restore")
		flags.Int64Var(&a.epoch, "epoch", 0, "`number` of the epoch to go back to, while its volumes are kept")
		flags.BoolVar(&a.stopFirst, "stop-first", false, "stop the members before the new ones are made ready, where "+
			"there is no room for both")
	}
	if acts[a.command] != "" {
		flags.BoolVar(&a.wait, "wait", false, "show how it goes until it has ended")
		flags.DurationVar(&a.timeout, "timeout", time.Hour, "how `long` to wait at most")
	}
}

// take reads what is not a flag: NAME, and for some commands one more word.
func (a *ask) take(names []string) error {
	names = slices.Clone(names)
	if a.command == "adopt" {
		if err := a.adopting.valid(names); err != nil {
			return err
		}
		a.name = names[0]
		a.adopting.claims = names[1:]
		return nil
	}
	switch a.command {
	case "check":
		return validCheck(a.format, names)
	case "size":
		return validLoad(a.load, names)
	}
	if what := operandOf[a.command]; what != "" {
		if len(names) == 0 {
			return misused("%s needs %s", a.command, what)
		}
		a.operand = names[len(names)-1]
		names = names[:len(names)-1]
	}
	if a.command == "restore" && (a.snapshot == "") == (a.epoch == 0) {
		return misused("restore needs either --snapshot, the name of an EtcdSnapshot, or --epoch")
	}
	if a.command == "version" && len(names) > 0 {
		return misused("version takes no NAME: there is one Quorate for all clusters")
	}
	if len(names) > 1 {
		return misused("%s takes one NAME, not also %q", a.command, names[1])
	}
	if len(names) == 1 {
		a.name = names[0]
	}
	return nil
}

func validCheck(format string, names []string) error {
	switch {
	case len(names) > 0:
		return misused("check takes no NAME such as %q: it is about the whole installation", names[0])
	case format != "text" && format != "json":
		return misused("-o must be text or json, not %q", format)
	}
	return nil
}

func (a *ask) do(ctx context.Context) error {
	switch a.command {
	case "version":
		return a.versions(ctx)
	case "status":
		return a.status(ctx)
	case "explain":
		return a.explain(ctx)
	case "defrag", "move-leader", "fence", "restore", "recover":
		return a.operate(ctx)
	case "check":
		return a.check(ctx)
	case "adopt":
		return a.adopt(ctx)
	case "size":
		return a.size()
	default:
		return a.report(ctx)
	}
}
