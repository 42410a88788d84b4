// quorate-snapshot takes snapshots of etcd clusters and fills data directories from them, for Jobs and init
// containers that Quorate makes. It is a program of its own because it links the SDKs of clouds and parts of etcd's
// server, which nothing else of Quorate needs (docs/decisions/0031-two-programs.md).
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/quorate-dev/quorate/etcdops/backup/rescue"
	"github.com/quorate-dev/quorate/etcdops/backup/snapshot"
	"github.com/quorate-dev/quorate/etcdops/command"
)

const usage = `quorate-snapshot takes snapshots of etcd clusters, and fills data directories. Quorate makes the
containers that run it; rescue is for people.

Usage:
  quorate-snapshot snapshot [flags]      take a snapshot of a cluster, store it and verify it (the Job of an EtcdSnapshot)
  quorate-snapshot stream [flags]        store all changes of a cluster behind a snapshot, until it is told to end
  quorate-snapshot mirror [flags]        copy the keys of an etcd to another one, and go on with each change of them;
                                         "mirror check" compares both, "mirror promote" ends it
  quorate-snapshot inspect [flags]       say what is stored of a snapshot, or of a stream
  quorate-snapshot delete [flags]        delete a stored snapshot
  quorate-snapshot copy-self [flags]     put this program where another image can run it (an init container)
  quorate-snapshot restore [flags]       fill a data directory from a snapshot, or from that of another member (an init
                                         container, in etcd's image)
  quorate-snapshot inspect-data [flags]  say how much the data directory of a member that does not run holds
  quorate-snapshot rescue COMMAND        start members on their nodes without Kubernetes
  quorate-snapshot version               print the version, the commit, and what it was built with

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
		return snapshot.Take(ctx, args, stderr)
	case "stream":
		return snapshot.Stream(ctx, args, stdout, stderr)
	case "mirror":
		return snapshot.Mirror(ctx, args, stdout, stderr)
	case "inspect":
		return snapshot.Inspect(ctx, args, stdout, stderr)
	case "delete":
		return snapshot.Delete(ctx, args, stderr)
	case "copy-self":
		return snapshot.CopySelf(args, stderr)
	case "restore":
		return snapshot.Restore(ctx, args, getenv, stdout, stderr)
	case "inspect-data":
		return snapshot.InspectData(args, stdout, stderr)
	case "rescue":
		return rescue.Run(ctx, args, stdout, stderr)
	case "version":
		fmt.Fprint(stdout, command.Built(version, commit).Line("quorate-snapshot"))
		return 0
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	default:
		fmt.Fprintf(stderr, "quorate-snapshot: unknown command\n\n%s", usage)
		return command.Usage
	}
}
