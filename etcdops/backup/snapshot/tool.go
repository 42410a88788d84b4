package snapshot

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/command"
)

// CopySelf is the command quorate-snapshot copy-self; the result is its exit code.
func CopySelf(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("quorate-snapshot copy-self", flag.ContinueOnError)
	flags.SetOutput(stderr)
	to := flags.String("to", "", "`file` that the binary is copied to; required")
	if err := command.Parse(flags, args); err != nil {
		return exitCode(err, stderr)
	}
	err := command.Errorf("--to is required")
	if *to != "" {
		if err = copySelf(*to); err != nil {
			err = command.Errorf("this program can't be copied to %s: %s", *to, archive.Words(err))
		}
	}
	if err != nil {
		command.TerminationMessage(told(err))
	}
	return exitCode(err, stderr)
}

// copySelf copies this binary to a file that every user may run, whole or not at all: neither its own image nor the
// one that runs it next has a cp.
func copySelf(to string) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(own)
	if err != nil {
		return err
	}
	defer from.Close()
	half, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	_, err = io.Copy(half, from)
	if err = errors.Join(err, half.Chmod(0o755), half.Close()); err == nil {
		err = os.Rename(half.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(half.Name()))
	}
	return nil
}
