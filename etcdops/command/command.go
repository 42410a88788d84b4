// Package command holds what the commands of both programs, quorate and quorate-snapshot, have in common: flags, exit codes, what is left for
// Kubernetes to read, and the version.
package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// Exit codes, besides hooks.ExitDataLost of prepare.
const (
	Failed = 1
	Usage  = 2
)

// ErrUsage is a mistake in the flags that the flag package has already explained.
var ErrUsage = errors.New("usage")

// ExitCode is the exit code of a program after this error, which it prints unless that was done.
func ExitCode(program string, err error, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, ErrUsage):
		return Usage
	}
	fmt.Fprintf(stderr, "%s: %v\n", program, err)
	return Failed
}

// Parse reads flags from the arguments alone.
func Parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return ErrUsage
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s takes no argument %q", flags.Name(), flags.Arg(0))
	}
	return nil
}

// ParseWithEnv is Parse for flags that the environment may set, too: --call-timeout is QUORATE_CALL_TIMEOUT. Arguments win.
func ParseWithEnv(flags *flag.FlagSet, args []string, getenv func(string) string) error {
	var err error
	flags.VisitAll(func(f *flag.Flag) {
		name := "QUORATE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v := getenv(name); v != "" && err == nil {
			if e := f.Value.Set(v); e != nil {
				err = fmt.Errorf("%s: %q is not a value for --%s: %w", name, v, f.Name, e)
			}
		}
	})
	if err != nil {
		return err
	}
	return Parse(flags, args)
}

// TerminationMessage leaves words where Kubernetes looks for them, if it does.
func TerminationMessage(words string) {
	f, err := os.OpenFile("/dev/termination-log", os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(words)
}
