package kubectl

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// A command is what a person may type after kubectl quorate.
type command struct {
	name string
	// args is what follows the name, does what the command is for, and example is a whole line.
	args, does, example string
	// creates is the type of the EtcdOperation that the command creates; empty for none.
	creates v1beta1.OperationType
	// operand says what the command takes after NAME; empty for nothing.
	operand string
	// flags are the command's own.
	flags func(a *invocation, flags *flag.FlagSet)
	// names are valid where the command does not take one NAME, and its flags where any is required.
	valid func(a *invocation, names []string) error
	do    func(a *invocation, ctx context.Context) error
}

// commands are all but install, which is a program of its own.
var commands = []command{
	{
		name: "status", args: "[NAME]", example: "status orders -n shop",
		does: "one screen: members, certificates, what is being done and what is in its way",
		do:   (*invocation).status,
	},
	{
		name: "explain", args: "[NAME]", example: "explain orders -n shop",
		does:  "what Quorate would do now, and why; nothing is carried out",
		flags: (*invocation).quorateFlags,
		do:    (*invocation).explain,
	},
	{
		name: "defrag", args: "[NAME]", example: "defrag orders --wait",
		does:    "defragment the members' databases, one at a time",
		creates: v1beta1.OperationDefragment,
		do:      (*invocation).operate,
	},
	{
		name: "move-leader", args: "[NAME] MEMBER", example: "move-leader orders orders-1",
		does:    "let another member lead",
		creates: v1beta1.OperationMoveLeader,
		do:      (*invocation).operate,
		operand: "the MEMBER that should lead, such as demo-1; `kubectl quorate status` lists them",
	},
	{
		name: "fence", args: "[NAME] MEMBER", example: "fence orders orders-1 --duration=1h",
		does:    "stop a member for --duration, or until the EtcdOperation is deleted",
		creates: v1beta1.OperationFence,
		do:      (*invocation).operate,
		operand: "the MEMBER that should stop, such as demo-1; `kubectl quorate status` lists them",
		flags: func(a *invocation, flags *flag.FlagSet) {
			flags.DurationVar(&a.duration, "duration", 0, "how `long` the member stays stopped; 0 for until the "+
				"EtcdOperation is deleted")
		},
	},
	{
		name: "restore", args: "[NAME] [flags]", example: "restore orders --snapshot=orders-nightly-1 --wait",
		does:    "move to the data of --snapshot, or back to that of --epoch",
		creates: v1beta1.OperationRestore,
		do:      (*invocation).operate,
		flags: func(a *invocation, flags *flag.FlagSet) {
			flags.StringVar(&a.snapshot, "snapshot", "", "`name` of the EtcdSnapshot to restore")
			flags.Int64Var(&a.epoch, "epoch", 0, "`number` of the epoch to go back to, while its volumes are kept")
			flags.BoolVar(&a.stopFirst, "stop-first", false, "stop the members before the new ones are made ready, "+
				"where there is no room for both")
		},
		valid: (*invocation).validRestore,
	},
	{
		name: "recover", args: "[NAME] POLICY", example: "recover orders FromSurvivor --dry-run",
		does:    "begin again without quorum: FromSurvivor, FromSnapshot or Recreate",
		creates: v1beta1.OperationRecover,
		do:      (*invocation).operate,
		operand: "a POLICY: FromSurvivor, FromSnapshot or Recreate",
		flags: func(a *invocation, flags *flag.FlagSet) {
			flags.BoolVar(&a.yes, "yes", false, "begin without any data, as Recreate does")
		},
		valid: (*invocation).validRecover,
	},
	{
		name: "adopt", args: "NAME CLAIM... --dry-run", example: "adopt orders data-etcd-0 --etcd-version=3.6.16 --dry-run",
		does:  "the EtcdCluster that would begin with claims of an etcd that runs no more",
		flags: (*invocation).adoptFlags,
		valid: (*invocation).validAdopt,
		do:    (*invocation).adopt,
	},
	{
		name: "size", args: "--keys=N --writes=N [flags]", example: "size --keys=1M --value=1Ki --writes=500 --history=5m",
		does:  "the EtcdCluster that is large enough for such a load, and why",
		flags: func(a *invocation, flags *flag.FlagSet) { loadFlags(flags, &a.load) },
		valid: func(a *invocation, names []string) error { return validLoad(a.load, names) },
		do:    func(a *invocation, _ context.Context) error { return a.size() },
	},
	{
		name: "report", args: "[NAME] [-o FILE]", example: "report orders -o orders.tar.gz",
		does: "a support bundle without secrets, as a .tar.gz",
		flags: func(a *invocation, flags *flag.FlagSet) {
			a.quorateFlags(flags)
			a.metacontrollerFlags(flags)
			flags.StringVar(&a.file, "o", "", "`file` to write; empty for one named after the cluster and the time")
		},
		do: (*invocation).report,
	},
	{
		name: "version", args: "[--client]", example: "version",
		does: "the version of this plugin, and which Quorate runs",
		flags: func(a *invocation, flags *flag.FlagSet) {
			a.quorateFlags(flags)
			flags.BoolVar(&a.client, "client", false, "only the version of this plugin")
		},
		valid: (*invocation).validVersion,
		do:    (*invocation).versions,
	},
	{
		name: "check", args: "[-o json]", example: "check",
		does: "whether Kubernetes, Metacontroller and Quorate fit together, and what to do",
		flags: func(a *invocation, flags *flag.FlagSet) {
			a.metacontrollerFlags(flags)
			flags.StringVar(&a.format, "o", "text", "`format`: text or json")
		},
		valid: func(a *invocation, names []string) error { return validCheck(a.format, names) },
		do:    (*invocation).check,
	},
}

// install is in the list that people read, and nowhere else: its line is read by internal/install.
var install = command{
	name: "install", args: "[--apply]",
	does: "install Quorate, or upgrade it; `kubectl quorate install -h` lists its flags",
}

// usage lists the commands.
func usage() string {
	var b strings.Builder
	b.WriteString("kubectl quorate looks at etcd clusters that Quorate runs, with the rights that you have.\n\nUsage:\n")
	for _, c := range append(slices.Clone(commands), install) {
		fmt.Fprintf(&b, "  kubectl quorate %-39s %s\n", c.name+" "+c.args, c.does)
	}
	b.WriteString(`
defrag, move-leader, fence, restore and recover create an EtcdOperation; with --wait they show how it goes, and with
--dry-run they print it and create nothing. Without NAME it is the one EtcdCluster of the namespace. All commands take
kubectl's own flags -n/--namespace, --context, --kubeconfig, --cluster, --user, --as, --as-group and --request-timeout.
"kubectl quorate COMMAND -h" lists the others.

Exit codes: 0 done, 1 trouble (the message says what and where; for check, a finding is FAIL or unknown), 2 the command line is wrong.
`)
	return b.String()
}

// explains is the page of one command, before its flags.
func (c *command) explains() string {
	return fmt.Sprintf("kubectl quorate %s %s\n\n%s.\n\nExample:\n  kubectl quorate %s\n\nFlags:\n", c.name, c.args,
		strings.ToUpper(c.does[:1])+c.does[1:], c.example)
}

// allFlags are those of a command: kubectl's that are handed on are the caller's.
func (a *invocation) allFlags(flags *flag.FlagSet) {
	namespace := ""
	where := "`namespace` of the EtcdCluster; empty for that of kubectl's context"
	if a.name == "check" {
		namespace = "quorate-system"
		where = "`namespace` of Quorate itself"
	}
	flags.StringVar(&a.namespace, "namespace", namespace, where)
	flags.StringVar(&a.namespace, "n", namespace, "short for --namespace")
	if a.flags != nil {
		a.flags(a, flags)
	}
	if a.creates != "" {
		flags.BoolVar(&a.wait, "wait", false, "show how it goes until it has ended")
		flags.DurationVar(&a.timeout, "timeout", time.Hour, "how `long` to wait at most")
		flags.BoolVar(&a.dryRun, "dry-run", false, "print the EtcdOperation and create nothing")
	}
}

func (a *invocation) quorateFlags(flags *flag.FlagSet) {
	flags.StringVar(&a.quorate, "quorate-namespace", "quorate-system", "`namespace` of Quorate itself")
}

func (a *invocation) metacontrollerFlags(flags *flag.FlagSet) {
	flags.StringVar(&a.metacontroller, "metacontroller-namespace", "", "`namespace` of Metacontroller; empty for "+
		"Quorate's if that has its own, and otherwise metacontroller")
}

// take reads what is not a flag: NAME, and for some commands one more word.
func (a *invocation) take(names []string) error {
	names = slices.Clone(names)
	if a.operand != "" {
		if len(names) == 0 {
			return misused("%s needs %s", a.name, a.operand)
		}
		a.word = names[len(names)-1]
		names = names[:len(names)-1]
	}
	if a.valid != nil {
		if err := a.valid(a, names); err != nil {
			return err
		}
	} else if err := a.oneName(names); err != nil {
		return err
	}
	if len(names) > 0 {
		a.cluster = names[0]
	}
	return nil
}

func (a *invocation) oneName(names []string) error {
	if len(names) > 1 {
		return misused("%s takes one NAME, not also %q", a.name, names[1])
	}
	return nil
}

func (a *invocation) validRestore(names []string) error {
	if (a.snapshot == "") == (a.epoch == 0) {
		return misused("restore needs either --snapshot, the name of an EtcdSnapshot, or --epoch")
	}
	return a.oneName(names)
}

func (a *invocation) validRecover(names []string) error {
	if a.word == string(v1beta1.RecoverRecreate) && !a.yes && !a.dryRun {
		return misused("Recreate begins without any data: say --yes for that; --dry-run prints what would be created")
	}
	return a.oneName(names)
}

func (a *invocation) validVersion(names []string) error {
	if len(names) > 0 {
		return misused("version takes no NAME: there is one Quorate for all clusters")
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
