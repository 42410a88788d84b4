package prepare

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/etcdops/datadir"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Run is the command quorate prepare; the result is its exit code.
func Run(ctx context.Context, args []string, stderr io.Writer) int {
	var c Command
	flags := flag.NewFlagSet("quorate prepare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	c.Flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return command.ExitCode("quorate", err, stderr)
	}
	err := c.Run(ctx)
	if err == nil {
		command.TerminationMessage(c.found())
		return 0
	}
	fmt.Fprintf(stderr, "quorate prepare: %v\n", err)
	command.TerminationMessage(err.Error())
	if errors.Is(err, ErrDataLost) {
		return objects.ExitDataLost
	}
	return command.Failed
}

// Command is what the flags of quorate prepare say.
type Command struct {
	dataDir, walDir, marker, start, await string
}

// Flags adds those of the command.
func (c *Command) Flags(flags *flag.FlagSet) {
	flags.StringVar(&c.dataDir, "data-dir", objects.DataDir, "etcd's data `directory`")
	flags.StringVar(&c.walDir, "wal-dir", "",
		"`directory` of etcd's write-ahead log, where it is not in the data directory")
	flags.StringVar(&c.marker, "marker", objects.MarkerFile, "`file` that shows that this pod has started before")
	starts := strings.Join([]string{objects.StartBootstrap, objects.StartJoin, objects.StartResume}, ", ")
	flags.StringVar(&c.start, "start", "", "how the member starts: "+starts+"; required")
	flags.StringVar(&c.await, "await", "", "`file` to wait for until it holds something, before anything else is done")
}

// Run waits until the member may start, and says whether it may. The error wraps [ErrDataLost] when its data is lost;
// any other means that it is not known.
func (c *Command) Run(ctx context.Context) error {
	if err := await(ctx, c.await); err != nil {
		return err
	}
	return check(c.dataDir, c.walDir, c.startOf(), c.marker)
}

// found is what there is where etcd will have its data, for who reads how the pod's container has ended: before a
// cluster's first quorum, Quorate must know that no etcd has run there.
func (c *Command) found() string {
	if log, err := datadir.HasLog(c.dataDir, c.walDir); err != nil || log {
		return ""
	}
	return objects.NothingFound
}

// startOf is how the member starts. Where the variable [volumes.EnvBegins] names no cluster, it has
// begun before, whatever --start says.
func (c *Command) startOf() string {
	begins, set := os.LookupEnv(facts.EnvBegins)
	if set && (begins == "" || begins == objects.InitialClusterBegun) {
		return objects.StartResume
	}
	return c.start
}
