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
	// waits: what the command creates can be waited for, and be printed instead.
	waits bool
	// takes are the words that follow, in their order.
	takes []words
	// flags are the command's own, and valid says what is wrong with them together.
	flags func(a *invocation, flags *flag.FlagSet)
	valid func(a *invocation) error
	do    func(a *invocation, ctx context.Context) error
}

// commands are all but install, which is a program of its own.
var commands = []command{
	{
		name: "status", args: "[NAME] [-A] [-o FORMAT]", example: "status orders -n shop",
		does:  "members, certificates, what is done and what is in its way; of several a table",
		takes: []words{clusterName},
		flags: (*invocation).statusFlags,
		valid: (*invocation).validStatus,
		do:    (*invocation).status,
	},
	{
		name: "explain", args: "[NAME]", example: "explain orders -n shop",
		does:  "what Quorate would do now, and why; nothing is carried out",
		takes: []words{clusterName},
		flags: (*invocation).quorateFlags,
		do:    (*invocation).explain,
	},
	{
		name: "history", args: "[NAME] [--at=TIME]", example: "history orders --at=2027-03-04T05:06:07Z",
		does:  "what was decided, when and why, and what the status was at any moment",
		takes: []words{clusterName},
		flags: (*invocation).historyFlags,
		valid: (*invocation).validHistory,
		do:    (*invocation).history,
	},
	{
		name: "ui", args: "[--port=PORT]", example: "ui -n shop",
		does:  "a page on this machine: members as they are and were, why, and what is stored",
		flags: (*invocation).uiFlags,
		do:    (*invocation).ui,
	},
	{
		name: "top", args: "[NAME] [--by=MEASURE] [--live]", example: "top orders --depth=2 --by=keys",
		does:  "who fills etcd, by prefix: of its newest snapshot and stream, or of a member now",
		takes: []words{clusterName},
		flags: (*invocation).topFlags,
		valid: (*invocation).validTop,
		do:    (*invocation).top,
	},
	{
		name: "snapshot", args: "[NAME]", example: "snapshot orders --wait",
		does:  "take a snapshot now, as an EtcdSnapshotSchedule of the cluster does",
		takes: []words{clusterName},
		waits: true,
		flags: func(a *invocation, flags *flag.FlagSet) {
			scheduleName.flag(flags, &a.schedule, "from-schedule", "`name` of the EtcdSnapshotSchedule that says where "+
				"it is stored; unset, the only one of the cluster")
		},
		do: (*invocation).takeSnapshot,
	},
	{
		name: "restore", args: "[NAME] --until=TIME", example: "restore orders --until=-5m --wait",
		does:    "move back to the data of a moment (--until), of a --snapshot, or of an --epoch",
		creates: v1beta1.OperationRestore,
		takes:   []words{clusterName},
		waits:   true,
		flags:   (*invocation).restoreFlags,
		valid:   (*invocation).validRestore,
		do:      (*invocation).operate,
	},
	{
		name: "recover", args: "[NAME] POLICY", example: "recover orders FromSurvivor --dry-run",
		does:    "begin again without quorum: FromSurvivor, FromSnapshot or Recreate",
		creates: v1beta1.OperationRecover,
		takes:   []words{clusterName, policy},
		waits:   true,
		flags: func(a *invocation, flags *flag.FlagSet) {
			flags.BoolVar(&a.yes, "yes", false, "begin without any data, as Recreate does")
		},
		valid: (*invocation).validRecover,
		do:    (*invocation).operate,
	},
	{
		name: "defrag", args: "[NAME]", example: "defrag orders --wait",
		does:    "defragment the members' databases, one at a time",
		creates: v1beta1.OperationDefragment,
		takes:   []words{clusterName},
		waits:   true,
		do:      (*invocation).operate,
	},
	{
		name: "move-leader", args: "[NAME] MEMBER", example: "move-leader orders orders-1",
		does:    "let another member lead",
		creates: v1beta1.OperationMoveLeader,
		takes:   []words{clusterName, memberName},
		waits:   true,
		do:      (*invocation).operate,
	},
	{
		name: "fence", args: "[NAME] MEMBER", example: "fence orders orders-1 --duration=1h",
		does:    "stop a member for --duration, or until the EtcdOperation is deleted",
		creates: v1beta1.OperationFence,
		takes:   []words{clusterName, memberName},
		waits:   true,
		flags: func(a *invocation, flags *flag.FlagSet) {
			atLeast(10*time.Second, flags, &a.duration, "duration", "how `long` the member stays stopped; unset, until "+
				"the EtcdOperation is deleted")
		},
		do: (*invocation).operate,
	},
	{
		name: "suspend", args: "[NAME]", example: "suspend orders",
		does:  "hold every change back until resume; members run on",
		takes: []words{clusterName},
		flags: (*invocation).suspendFlags,
		valid: (*invocation).validSuspend,
		do:    func(a *invocation, ctx context.Context) error { return a.suspend(ctx, true) },
	},
	{
		name: "resume", args: "[NAME]", example: "resume orders",
		does:  "end what suspend began",
		takes: []words{clusterName},
		flags: (*invocation).suspendFlags,
		valid: (*invocation).validSuspend,
		do:    func(a *invocation, ctx context.Context) error { return a.suspend(ctx, false) },
	},
	{
		name: "env", args: "[NAME] [--etcd-user=USER]", example: "env orders -n shop",
		does:  "what etcdctl needs, as a shell reads it: eval \"$(kubectl quorate env)\"",
		takes: []words{clusterName},
		flags: (*invocation).envFlags,
		do:    (*invocation).env,
	},
	{
		name: "adopt", args: "NAME CLAIM... --dry-run", example: "adopt orders data-etcd-0 --etcd-version=3.6.16 --dry-run",
		does:  "the EtcdCluster that would begin with claims of an etcd that runs no more",
		takes: []words{newName, claimNames},
		flags: (*invocation).adoptFlags,
		valid: (*invocation).validAdopt,
		do:    (*invocation).adopt,
	},
	{
		name: "size", args: "--keys=N --writes=N [flags]", example: "size --keys=1M --value=1Ki --writes=500 --history=5m",
		does:  "the EtcdCluster that is large enough for such a load, and why",
		flags: func(a *invocation, flags *flag.FlagSet) { loadFlags(flags, &a.load) },
		valid: func(a *invocation) error { return validLoad(a.load) },
		do:    func(a *invocation, _ context.Context) error { return a.size() },
	},
	{
		name: "report", args: "[NAME] [-o FILE]", example: "report orders -o orders.tar.gz",
		does:  "a support bundle without secrets, as a .tar.gz",
		takes: []words{clusterName},
		flags: func(a *invocation, flags *flag.FlagSet) {
			a.quorateFlags(flags)
			a.metacontrollerFlags(flags)
			flags.StringVar(&a.file, "o", "", "`file` to write; empty for one named after the cluster and the time")
		},
		valid: (*invocation).validReport,
		do:    (*invocation).report,
	},
	{
		name: "check", args: "[-o json]", example: "check",
		does: "whether Kubernetes, Metacontroller and Quorate fit together, and what to do",
		flags: func(a *invocation, flags *flag.FlagSet) {
			a.metacontrollerFlags(flags)
			a.format = "text"
			oneOf("a format", "text", "json").flag(flags, &a.format, "o", "`format`: text or json")
		},
		do: (*invocation).check,
	},
	{
		name: "version", args: "[--client]", example: "version",
		does: "the version of this plugin, and which Quorate runs; --version: the first alone",
		flags: func(a *invocation, flags *flag.FlagSet) {
			a.quorateFlags(flags)
			flags.BoolVar(&a.client, "client", false, "only the version of this plugin")
		},
		do: (*invocation).versions,
	},
	{
		name: "completion", args: "SHELL", example: "completion bash",
		does:  "what has bash, zsh or fish complete the name kubectl-quorate",
		takes: []words{shell},
		do:    func(a *invocation, _ context.Context) error { return a.completion() },
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
	b.WriteString("kubectl quorate looks at etcd clusters that Quorate runs, with the rights that you have.\n\n" +
		"Usage: kubectl quorate COMMAND\n\n")
	for _, c := range append(slices.Clone(commands), install) {
		fmt.Fprintf(&b, "  %-33s  %s\n", c.name+" "+c.args, c.does)
	}
	b.WriteString(`
restore, recover, defrag, move-leader and fence create an EtcdOperation, snapshot an EtcdSnapshot; with --wait they show
how it goes, and with --dry-run they print it and create nothing. Without NAME it is the one EtcdCluster of the
namespace. All commands take kubectl's own flags -n/--namespace, --context, --kubeconfig, --cluster, --user, --as,
--as-group and --request-timeout. "kubectl quorate COMMAND -h" lists the others, with an example.

Exit codes: 0 done, 1 trouble (the message says what and where; for check, a finding is FAIL or unknown), 2 the command
line is wrong, and nothing was changed.
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
	where := "`namespace` of the EtcdCluster; unset, that of kubectl's context"
	if a.name == "check" {
		a.namespace = "quorate-system"
		where = "`namespace` of Quorate itself"
	}
	inNamespace.flag(flags, &a.namespace, "namespace", where)
	inNamespace.flag(flags, &a.namespace, "n", "`namespace`, short for --namespace")
	if a.flags != nil {
		a.flags(a, flags)
	}
	if a.waits {
		flags.BoolVar(&a.wait, "wait", false, "show how it goes until it has ended")
		atLeast(time.Second, flags, &a.timeout, "timeout", "how `long` to wait at most; unset, 1h")
		flags.BoolVar(&a.dryRun, "dry-run", false, "print what would be created, and create nothing")
	}
}

func (a *invocation) quorateFlags(flags *flag.FlagSet) {
	flags.StringVar(&a.quorate, "quorate-namespace", "quorate-system", "`namespace` of Quorate itself")
}

func (a *invocation) metacontrollerFlags(flags *flag.FlagSet) {
	flags.StringVar(&a.metacontroller, "metacontroller-namespace", "", "`namespace` of Metacontroller; empty for "+
		"Quorate's if that has its own, and otherwise metacontroller")
}

// take reads what is not a flag: the words that the command takes, of which NAME may be left out.
func (a *invocation) take(line []string) error {
	takes := a.takes
	if len(takes) > len(line) && takes[0].optional {
		takes = takes[1:]
	}
	for i, word := range line {
		if i >= len(takes) && (len(takes) == 0 || !takes[len(takes)-1].many) {
			return misused("%s does not take %q: the line is kubectl quorate %s %s", a.name, word, a.name, a.args)
		}
		w := takes[min(i, len(takes)-1)]
		if !w.are(word) {
			return misused("%q is not %s", word, w.what)
		}
		w.put(a, word)
	}
	if len(line) < len(takes) && !takes[len(line)].many {
		return misused("%s needs %s", a.name, takes[len(line)].what)
	}
	if a.timeout != 0 && !a.wait {
		return misused("--timeout is how long to --wait")
	}
	if a.valid == nil {
		return nil
	}
	return a.valid(a)
}

func (a *invocation) validRecover() error {
	if a.word == string(v1beta1.RecoverRecreate) && !a.yes && !a.dryRun {
		return misused("Recreate begins without any data: say --yes for that; --dry-run prints what would be created")
	}
	return nil
}
