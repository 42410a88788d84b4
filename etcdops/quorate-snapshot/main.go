// quorate-snapshot takes snapshots of etcd clusters and fills data directories from them, for Jobs and init containers that Quorate makes. It
// is a program of its own because it links the SDKs of clouds and parts of etcd's server, which nothing else of Quorate needs
// (docs/decisions/0031-two-programs.md).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/etcdops/command"
)

const usage = `quorate-snapshot takes snapshots of etcd clusters, and fills data directories. Quorate makes the containers that run it.

Usage:
  quorate-snapshot snapshot [flags]  take a snapshot of a cluster, store it and verify it (the Job of an EtcdSnapshot)
  quorate-snapshot look [flags]      say what is stored of a snapshot
  quorate-snapshot discard [flags]   delete a stored snapshot
  quorate-snapshot tool [flags]      put this program where another image can run it (an init container)
  quorate-snapshot restore [flags]   fill a data directory from a snapshot, or from that of another member (an init container, in etcd's image)
  quorate-snapshot survey [flags]    say how much the data directory of a member that does not run holds
  quorate-snapshot version           print the version, the commit, and what it was built with

"quorate-snapshot <command> -h" lists the flags.
`

// Set by the linker, as in the program quorate.
var version, commit string

func main() {
	log.SetOutput(io.Discard) // where net/http prints what a server sends unasked
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the whole program; the result is its exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return command.Usage
	}
	switch name, args := args[0], args[1:]; name {
	case "snapshot":
		return runSnapshot(ctx, args, stderr)
	case "look":
		return runLook(ctx, args, stdout, stderr)
	case "discard":
		return runDiscard(ctx, args, stderr)
	case "tool":
		return runTool(args, stderr)
	case "restore":
		return runRestore(ctx, args, getenv, stdout, stderr)
	case "survey":
		return runSurvey(args, stdout, stderr)
	case "version":
		fmt.Fprint(stdout, command.Built(version, commit).Line("quorate-snapshot"))
		return 0
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	default:
		fmt.Fprintf(stderr, "quorate-snapshot: there is no such command\n\n%s", usage)
		return command.Usage
	}
}

// exitCode is that of a command that ended so.
func exitCode(err error, stderr io.Writer) int {
	if err != nil && !explained(err) {
		err = errors.New(told(err))
	}
	return command.ExitCode("quorate-snapshot", err, stderr)
}

// explained reports whether the package flag has said what there is to say.
func explained(err error) bool {
	return errors.Is(err, command.ErrUsage) || errors.Is(err, flag.ErrHelp)
}

// told is all that anybody is told of an error, in logs and in termination messages: words of our
// own, and never those of an SDK or a parser, which may hold a credential. It leaves a report
// within the 4096 bytes of a termination message.
func told(err error) string {
	words := archive.Words(err)
	if words == "" {
		words = "it failed, for a reason that is not known"
	}
	const longest = 2000
	if len(words) > longest {
		words = strings.ToValidUTF8(words[:longest], "") + "..."
	}
	return words
}
