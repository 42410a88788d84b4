// Package trim keeps a member's write-ahead log short while etcd runs: the command quorate trim, in a container beside
// etcd.
//
// etcd itself looks only every 30 seconds which files of its log it needs no more (purgeFileInterval in its
// etcdserver/server.go), so that what is written in half a minute, and compacted again, fills a volume of any size,
// with a database that is small. With this, the log is never longer than what no snapshot covers: see the account in
// hooks/spec/room.go.
package trim

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/objects"
)

const (
	// every is how often the log is looked at.
	every = 200 * time.Millisecond
	// held is how long a file that was removed stays locked, and atOnce how old what was seen of the locks may be.
	held   = 10 * time.Second
	atOnce = 100 * time.Millisecond
)

// Run is the command quorate trim; the result is its exit code. It goes on until ctx ends.
func Run(ctx context.Context, args []string, stderr io.Writer) int {
	var data, log string
	flags := flag.NewFlagSet("quorate trim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&data, "data-dir", objects.DataDir, "etcd's data `directory`")
	flags.StringVar(&log, "wal-dir", "", "`directory` of etcd's write-ahead log, where it is not in the data directory")
	if err := command.Parse(flags, args); err != nil {
		return command.ExitCode("quorate", err, stderr)
	}
	t := Of(data, log)
	look := time.NewTicker(every)
	defer look.Stop()
	said := ""
	for {
		removed, err := t.Once()
		for _, name := range removed {
			fmt.Fprintf(stderr, "removed %s, which a snapshot covers\n", name)
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			fmt.Fprintf(stderr, "quorate trim: %v\n", err)
		}
		select {
		case <-ctx.Done():
			return 0
		case <-look.C:
		}
	}
}

// Trimmer removes files of one log.
type Trimmer struct {
	log, snapshots string
}

// Of is the one for a data directory, with the log in a directory of its own unless that is empty.
func Of(data, log string) *Trimmer {
	if log == "" {
		log = filepath.Join(data, "member", "wal")
	}
	return &Trimmer{log: log, snapshots: filepath.Join(data, "member", "snap")}
}

// Once removes the files that etcd needs no more, and tells their names. Which those are, two things say that do not
// know of each other: etcd holds no lock on them, while it holds those of all that follow; and a snapshot covers all
// that is in them. Where no etcd runs there are no locks, and nothing is removed.
func (t *Trimmer) Once() ([]string, error) {
	began := time.Now()
	files := entries(t.log, ".wal")
	covered := covers(files, t.newest())
	if covered == 0 || !t.appends() {
		return nil, nil
	}
	free := 0
	for free < covered && !locked(filepath.Join(t.log, files[free])) {
		free++
	}
	// It closes the file that comes next before all others: while that is locked, so is all that it needs.
	if !locked(filepath.Join(t.log, files[free])) || !t.appends() || time.Since(began) > atOnce {
		return nil, nil
	}
	for i, name := range files[:free] {
		if err := remove(filepath.Join(t.log, name)); err != nil {
			return files[:i], fmt.Errorf("the file %s of etcd's log can't be removed: %w", name, err)
		}
	}
	return files[:free], nil
}

// appends reports whether an etcd has the log open to write to it: it holds the file that comes next.
func (t *Trimmer) appends() bool {
	return slices.ContainsFunc(entries(t.log, ".tmp"), func(name string) bool {
		return locked(filepath.Join(t.log, name))
	})
}

// newest is the index of the newest snapshot on disk.
func (t *Trimmer) newest() uint64 {
	var newest uint64
	for _, name := range entries(t.snapshots, ".snap") {
		newest = max(newest, indexOf(name))
	}
	return newest
}

// covers is how many of the files, from the first, hold nothing after this index, as etcd counts it itself
// (ReleaseLockTo in its storage/wal/wal.go): never the last.
func covers(files []string, index uint64) int {
	n := 0
	for n+1 < len(files) && indexOf(files[n+1]) < index {
		n++
	}
	return n
}

// indexOf is the index in a name: of the first entry in a file of the log (its number, then the index), of the last
// that a snapshot covers (the term, then the index).
func indexOf(name string) uint64 {
	_, after, _ := strings.Cut(strings.TrimSuffix(name, filepath.Ext(name)), "-")
	index, err := strconv.ParseUint(after, 16, 64)
	if err != nil {
		return 0
	}
	return index
}

// entries are the names in the directory that end so, in order; none while it is not there.
func entries(dir, suffix string) []string {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range all {
		if strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	return names
}
