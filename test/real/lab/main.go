// lab builds a real Kubernetes out of Go modules and runs it on this one
// machine, in namespaces, without a container registry. See README.md.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// labCommand is one command; those without a description are internal.
type labCommand struct {
	name, args, does string
	run              func(l *lab, args []string) error
}

// commands are those of every system; commands_linux.go adds the rest.
var commands = []labCommand{
	{"build", "[COMPONENT...]", "build what a lab needs, or these components (etcd: all its releases)",
		func(l *lab, args []string) error { return l.build(args) }},
	{"download", "", "fetch the modules of what `up` builds, while something else is compiled", (*lab).downloadNeeded},
	{"image", "-o TAR -ref NAME ...", "write a container image tar (`lab image` tells the rest)", imageCommand},
}

const ownCluster = "Without the lab, use a cluster of your own (kind will do): make build && bin/quorate install --apply"

var errNotLinux = errors.New("a lab runs on Linux alone, as root.\n" + ownCluster)

// exitCode ends the program with the code of a command it ran for the caller.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	err := dispatch(os.Args[1:])
	var code exitCode
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func dispatch(args []string) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		help(os.Stdout)
		return nil
	}
	for _, c := range commands {
		if c.name == args[0] {
			l, err := newLab()
			if err != nil {
				return err
			}
			return c.run(l, args[1:])
		}
	}
	help(os.Stderr)
	return fmt.Errorf("there is no command %q", args[0])
}

func help(to io.Writer) {
	fmt.Fprint(to, "lab runs a real Kubernetes on this machine.\n\n")
	for _, c := range commands {
		if c.does != "" {
			fmt.Fprintf(to, "  lab %-28s %s\n", strings.TrimSpace(c.name+" "+c.args), c.does)
		}
	}
	fmt.Fprint(to, `
Environment: QUORATE_LAB (folder of all that is built), QUORATE_LAB_RUN (folder
of the running lab), QUORATE_LAB_NAME, QUORATE_LAB_API_PORT, QUORATE_LAB_IP (v4,
v6 or dual), NODES, KEEP.
`)
}
