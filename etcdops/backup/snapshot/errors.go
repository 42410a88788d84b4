// Package snapshot holds the commands of the program quorate-snapshot, for Jobs and init containers that Quorate makes.
// It links the SDKs of clouds and parts of etcd's server, so the program quorate does not link it
// (docs/decisions/0031-two-programs.md).
package snapshot

import (
	"errors"
	"flag"
	"io"
	"strings"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/command"
)

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

// told is all that we tell of an error, in logs and in termination messages: words of our
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
