// Package journal has the commands `quorate journal` and `quorate replay`.
package journal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/server"
)

// Print is quorate journal: what the quorate serve of this pod has written down.
func Print(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	var asked server.JournalAsked
	flags := flag.NewFlagSet("quorate journal", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", cmp.Or(getenv("QUORATE_LISTEN"), ":8080"), "`address` of the hooks of that server")
	flags.StringVar(&asked.Namespace, "namespace", "", "`namespace` of the clusters; empty for all")
	flags.StringVar(&asked.Name, "name", "", "`name` of the cluster; empty for all")
	dir := flags.String("journal-dir", getenv("QUORATE_JOURNAL_DIR"), "`folder` of that server on a volume; its files "+
		"are printed first")
	if err := command.Parse(flags, args); err != nil { // QUORATE_NAMESPACE is that of Quorate
		return err
	}
	socket, err := server.JournalSocket(*listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if *dir != "" {
		if err := copyFiles(*dir, asked, stdout, stderr); err != nil {
			return err
		}
	}
	return server.AskJournal(ctx, socket, asked, stdout)
}

// copyFiles copies what files on a volume have of these clusters. No more than one file is in memory: that is the
// server's own.
func copyFiles(dir string, asked server.JournalAsked, out, warnings io.Writer) error {
	names, err := filepath.Glob(filepath.Join(dir, server.JournalFiles)) // the oldest first
	if err != nil {
		return err
	}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) { // its time has come
			continue
		}
		if err != nil {
			return err
		}
		entries, objects, err := journal.Read(lines(name, file, warnings))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		entries = slices.DeleteFunc(entries, func(r *journal.Entry) bool {
			return asked.Namespace != "" && r.Namespace != asked.Namespace || asked.Name != "" && r.Name != asked.Name
		})
		if err := journal.Write(out, entries, objects); err != nil {
			return err
		}
	}
	return nil
}

// lines are those of a file. It says so if the last one is not whole.
func lines(name string, file []byte, warnings io.Writer) io.Reader {
	text, whole := journal.Unpack(file)
	if !whole {
		fmt.Fprintf(warnings, "%s is not whole: the last entry in it is missing. Its server was killed, or its volume "+
			"was full\n", name)
	}
	return bytes.NewReader(text)
}

// Replay is quorate replay: the files of a journal are decided about once more, by this release. The result is whether
// all decisions are the same.
func Replay(version string, args []string, stdin io.Reader, stdout, stderr io.Writer) (bool, error) {
	flags := flag.NewFlagSet("quorate replay", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, "Usage: quorate replay [--as-story [--at=TIME]] FILE...\n\n"+
			"This release decides once more about what `quorate journal` has printed into FILE; - is the input.\n")
		flags.PrintDefaults()
	}
	story := flags.Bool("as-story", false, "print a story of test/simulated/scenario, which decides once more")
	var at time.Time
	flags.TextVar(&at, "at", at, "a `moment`: a story of what was decided last before it alone")
	if err := flags.Parse(args); err != nil {
		return false, command.ErrUsage
	}
	if flags.NArg() == 0 {
		flags.Usage()
		return false, command.ErrUsage
	}
	var files []io.Reader
	for _, name := range flags.Args() {
		if name == "-" {
			files = append(files, stdin)
			continue
		}
		file, err := os.ReadFile(name)
		if err != nil {
			return false, err
		}
		files = append(files, lines(name, file, stderr))
	}
	read, objects, err := journal.Read(files...)
	if err != nil {
		return false, err
	}
	if *story {
		return true, journal.Story(stdout, journal.Before(read, at), objects)
	}
	others, err := journal.Replay(stdout, version, hooks.Decide, read, objects)
	return others == 0, err
}
