package prepare

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/quorate-dev/quorate/etcdops/command"
)

// own gives a directory on a node, which the kubelet makes as root's, to etcd's user. What is in it is etcd's already.
func own(dir string, user int) error {
	if user <= 0 {
		return errors.New("--user is required")
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	return os.Chown(dir, user, user)
}

// Own is the command quorate own; the result is its exit code.
func Own(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("quorate own", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "", "`directory` to give away; required")
	user := flags.Int("user", 0, "`id` of the user and the group that get it; required")
	if err := command.Parse(flags, args); err != nil {
		return command.ExitCode("quorate", err, stderr)
	}
	err := own(*dir, *user)
	if err != nil {
		command.TerminationMessage(err.Error())
	}
	return command.ExitCode("quorate", err, stderr)
}
