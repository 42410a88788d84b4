package prepare

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/quorate-dev/quorate/etcdops/command"
)

// own gives a directory on a node, which the kubelet makes as root's, to etcd's user. What is in it is etcd's already.
//
// Named is how its path on the node ends. The kubelet follows links on the node: where a tenant made one in the place
// of the directory, what is mounted here is any other, such as /etc. Mounts is the kernel's list that says so.
func own(dir string, user int, named, mounts string) error {
	if user <= 0 {
		return errors.New("--user is required")
	}
	if named == "" {
		return errors.New("--named is required")
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	list, err := os.ReadFile(mounts)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(rootOf(string(list), dir), "/"+named) {
		return fmt.Errorf("%s is another directory of the node than the one that ends in %s: a link is in its place; "+
			"remove that link on the node", dir, named)
	}
	return os.Chown(dir, user, user)
}

// rootOf is the path, within its file system, of what is mounted at dir; empty for none (proc_pid_mountinfo(5)).
func rootOf(mounts, dir string) (root string) {
	for line := range strings.Lines(mounts) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == dir {
			root = fields[3] // the last one lies on top
		}
	}
	return root
}

// Own is the command quorate chown-data; the result is its exit code.
func Own(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("quorate chown-data", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "", "`directory` to give away; required")
	user := flags.Int("user", 0, "`id` of the user and the group that get it; required")
	named := flags.String("named", "", "`end` of its path on the node; required")
	if err := command.Parse(flags, args); err != nil {
		return command.ExitCode("quorate", err, stderr)
	}
	err := own(*dir, *user, *named, "/proc/self/mountinfo")
	if err != nil {
		command.TerminationMessage(err.Error())
	}
	return command.ExitCode("quorate", err, stderr)
}
