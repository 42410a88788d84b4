// Package command holds what the commands of the programs quorate, quorate-snapshot and quorate-trim have in common:
// flags, exit codes, what is left for Kubernetes to read, and the version.
package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
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

// Parse reads flags from the arguments alone. What it says of a mistake names the flag, and repeats
// no value.
func Parse(flags *flag.FlagSet, args []string) error {
	out := flags.Output()
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	flags.SetOutput(out)
	switch {
	case err == nil && flags.NArg() == 0:
		return nil
	case err == nil:
		return Errorf("%s takes flags, and no other arguments", flags.Name())
	case errors.Is(err, flag.ErrHelp):
		flags.Usage()
		return err
	}
	fmt.Fprintf(out, "%s: %s\n", flags.Name(), mistake(flags, err.Error()))
	flags.Usage()
	return ErrUsage
}

// How the package flag says what is wrong.
var (
	badValue = regexp.MustCompile(`^invalid (?:boolean )?value "(?:[^"\\]|\\.)*" for (?:flag )?-([-0-9A-Za-z]+): `)
	badFlag  = regexp.MustCompile(`^flag (provided but not defined|needs an argument): (-[-0-9a-z]+)$`)
)

// mistake is what is wrong with flags, without any value of them.
func mistake(flags *flag.FlagSet, words string) string {
	if m := badValue.FindStringSubmatch(words); m != nil && flags.Lookup(m[1]) != nil {
		return "the value of --" + m[1] + " can't be read"
	}
	if m := badFlag.FindStringSubmatch(words); m != nil {
		return "flag " + m[1] + ": " + m[2]
	}
	return "a flag can't be read"
}

// ownError is an error whose words are ours, and may be passed on: no value of a flag is among them,
// and nothing that a parser quotes.
type ownError string

func (e ownError) Error() string { return string(e) }

// Words are what it says.
func (e ownError) Words() string { return string(e) }

// Errorf is an error that says this.
func Errorf(format string, args ...any) error { return ownError(fmt.Sprintf(format, args...)) }

// ParseWithEnv is Parse for flags that the environment may set, too: --call-timeout is QUORATE_CALL_TIMEOUT.
// Arguments win.
func ParseWithEnv(flags *flag.FlagSet, args []string, getenv func(string) string) error {
	var err error
	flags.VisitAll(func(f *flag.Flag) {
		name := "QUORATE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v := getenv(name); v != "" && err == nil {
			if f.Value.Set(v) != nil {
				err = Errorf("%s: its value can't be read as one of --%s", name, f.Name)
			}
		}
	})
	if err != nil {
		return err
	}
	return Parse(flags, args)
}

// TerminationLog is where Kubernetes looks for a termination message.
var TerminationLog = "/dev/termination-log"

// TerminationMessage leaves words where Kubernetes looks for them, if it does.
func TerminationMessage(words string) {
	f, err := os.OpenFile(TerminationLog, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(words)
}
