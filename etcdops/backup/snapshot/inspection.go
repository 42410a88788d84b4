package snapshot

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// InspectData is the command quorate-snapshot inspect-data; the result is its exit code.
func InspectData(args []string, stdout, stderr io.Writer) int {
	var dataDir, walDir string
	flags := flag.NewFlagSet("quorate-snapshot inspect-data", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&dataDir, "data-dir", objects.DataDir, "etcd's data `directory`; nothing in it is changed")
	flags.StringVar(&walDir, "wal-dir", "",
		"`directory` of etcd's write-ahead log, where it is not in the data directory")
	if err := command.Parse(flags, args); err != nil {
		return exitCode(err, stderr)
	}
	found, err := seed.Inspection(dataDir, walDir)
	if err != nil {
		found.Reason = archive.ReasonOf(err)
		found.Error = told(err)
	}
	tell(found, stdout)
	return exitCode(err, stderr)
}

// tell leaves a report where the hooks look for it, and in the log.
func tell(report any, stdout io.Writer) {
	text, err := json.Marshal(report)
	if err != nil { // plain data always encodes
		text = []byte(err.Error())
	}
	command.TerminationMessage(string(text))
	fmt.Fprintf(stdout, "%s\n", text)
}
