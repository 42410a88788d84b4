// Quorate runs etcd clusters on Kubernetes. This is the program quorate: the hook server, the small jobs before etcd
// in the members' pods, and what people run. What comes near stores of snapshots, and etcd's own files, is the
// program quorate-snapshot in etcdops/quorate-snapshot.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	_ "time/tzdata" // the zones of schedules: the image has no files

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/etcdops/prepare"
	"github.com/quorate-dev/quorate/internal/install"
	"github.com/quorate-dev/quorate/internal/journal"
	"github.com/quorate-dev/quorate/internal/kubectl"
	"github.com/quorate-dev/quorate/server/wire"
)

const usage = `Quorate runs etcd clusters on Kubernetes.

Usage:
  quorate install [flags]   print all that Quorate needs in a Kubernetes, or apply it (--apply)
  quorate check [flags]     say whether Kubernetes, Metacontroller and Quorate fit together, and what to do; nothing is
                            changed (docs/reference/check.md)
  quorate images [flags]    print the images that an installation pulls, for those who mirror them
  quorate serve [flags]     answer Metacontroller's hooks
  quorate journal [flags]   print what the server in this pod has decided, and what of (docs/how-to/see-why.md)
  quorate replay FILE...    decide about a journal once more by this release, and say whom it would restart, and what
                            else differs
  quorate prepare [flags]   guard a member's data directory before etcd starts (an init container)
  quorate chown-data [flags]       give a directory on a node to etcd's user (an init container, on the medium HostPath)
  quorate kubectl COMMAND   look at clusters with kubectl, as the plugin kubectl-quorate does (docs/reference/cli.md)
  quorate version           print the version, the commit, and what it was built with

"quorate <command> -h" lists the flags. A flag of serve may also be set in the environment: --call-timeout is
QUORATE_CALL_TIMEOUT.
`

// Set by the linker: -X main.version=v1.2.3 -X main.commit=0123abc456de.
var version, commit string

var build = command.Built(version, commit)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	os.Exit(run(ctx, arguments(os.Args), os.Getenv, os.Stdout, os.Stderr))
}

// arguments are those of a command line. Under the name kubectl-quorate, by which kubectl finds it, the binary is the
// plugin, and under kubectl_complete-quorate what completes its lines; quorate check is one of the plugin's commands,
// too, for those who have not put that name on their PATH.
func arguments(line []string) []string {
	name := strings.TrimSuffix(filepath.Base(line[0]), ".exe")
	if name == "kubectl_complete-quorate" {
		return append([]string{"kubectl", kubectl.Completing}, line[1:]...)
	}
	if name == "kubectl-quorate" || len(line) > 1 && line[1] == "check" {
		return append([]string{"kubectl"}, line[1:]...)
	}
	return line[1:]
}

// commandOf is the command of these arguments, and what follows it. kubectl quorate install is quorate install.
func commandOf(args []string) (string, []string) {
	if len(args) > 1 && args[0] == "kubectl" && args[1] == "install" {
		args = args[1:]
	}
	if len(args) == 0 {
		return "", nil
	}
	return args[0], args[1:]
}

// run is the whole program; the result is its exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	name, args := commandOf(args)
	switch name {
	case "install":
		return exitCode(install.Run(ctx, kubectl.New(build.String(), stdout, stderr), args, os.Stdin), stderr)
	case "images":
		return exitCode(install.ListImages(args, stdout, stderr), stderr)
	case "serve":
		return exitCode(serve(ctx, args, getenv, stderr), stderr)
	case "journal":
		return exitCode(journal.Print(ctx, args, getenv, stdout, stderr), stderr)
	case "replay":
		same, err := journal.Replay(build.String(), args, os.Stdin, stdout, stderr)
		if err == nil && !same {
			return command.Failed
		}
		return exitCode(err, stderr)
	case "prepare":
		return prepare.Run(ctx, args, stderr)
	case "chown-data":
		return prepare.Own(args, stderr)
	case "kubectl":
		return kubectl.Explaining(kubectl.New(build.String(), stdout, stderr), wire.ReadCluster).Run(ctx, args)
	case "version":
		fmt.Fprint(stdout, build.Line("quorate"))
		return 0
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	case "":
		fmt.Fprint(stderr, usage)
	default:
		fmt.Fprintf(stderr, "quorate: there is no command %q\n\n%s", name, usage)
	}
	return command.Usage
}

func exitCode(err error, stderr io.Writer) int {
	if errors.Is(err, kubectl.ErrUnfit) { // what is wrong has been printed
		return command.Failed
	}
	return command.ExitCode("quorate", err, stderr)
}
