package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/etcdops/prepare"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// runPrepare is the command prepare; the result is the exit code.
func runPrepare(ctx context.Context, args []string, stderr io.Writer) int {
	var c prepare.Command
	flags := flag.NewFlagSet("quorate prepare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	c.Flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return exitCode(err, stderr)
	}
	err := c.Run(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "quorate prepare: %v\n", err)
	command.TerminationMessage(err.Error())
	if errors.Is(err, prepare.ErrDataLost) {
		return objects.ExitDataLost
	}
	return command.Failed
}
