// Package trim keeps a member's write-ahead log short while etcd runs: the program quorate-trim, in a container beside
// etcd.
//
// etcd itself looks only every 30 seconds which files of its log it needs no more (purgeFileInterval in its
// etcdserver/server.go), so that what is written in half a minute, and compacted again, fills a volume of any size,
// with a database that is small. With this, the log is never longer than what no snapshot covers: see the account in
// hooks/defaults/room.go, and why it is safe in docs/decisions/0043-log.md.
package trim

import (
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/etcdops/command"
)

const (
	// every is how often the log is looked at.
	every = 200 * time.Millisecond
	// held is how long a file that was removed stays locked.
	held = 10 * time.Second
)

// Run is the program; the result is its exit code. It goes on until ctx ends.
func Run(ctx context.Context, args []string, stderr io.Writer) int {
	var data, log string
	flags := flag.NewFlagSet("quorate-trim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&data, "data-dir", "/var/lib/etcd", "etcd's data `directory`")
	flags.StringVar(&log, "wal-dir", "", "`directory` of etcd's write-ahead log, where it is not in the data directory")
	if err := command.Parse(flags, args); err != nil {
		return command.ExitCode("quorate-trim", err, stderr)
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
			fmt.Fprintf(stderr, "quorate-trim: %v\n", err)
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
	// free are the files that were seen to be let go, and end how the log ended after that.
	free []string
	end  end
}

// end is how far etcd has written.
type end struct {
	name    string
	written time.Time
}

// Of is the one for a data directory, with the log in a directory of its own unless that is empty.
func Of(data, log string) *Trimmer {
	if log == "" {
		log = filepath.Join(data, "member", "wal")
	}
	return &Trimmer{log: log, snapshots: filepath.Join(data, "member", "snap")}
}

// Once removes the files that etcd has let go for good, and tells their names. An etcd that ends lets go of its files
// one after the other, too; so these are removed only when it has written to its log after that.
func (t *Trimmer) Once() ([]string, error) {
	files := entries(t.log, ".wal")
	now := t.letGo(files)
	if len(now) == 0 {
		t.free = nil
		return nil, nil
	}
	end := t.ends(files)
	free := t.free
	if len(free) == 0 || len(now) < len(free) || now[0] != free[0] {
		t.free = now
		t.end = end
		return nil, nil
	}
	if end == t.end {
		return nil, nil
	}
	for i, name := range free {
		if err := remove(filepath.Join(t.log, name)); err != nil {
			return free[:i], fmt.Errorf("the file %s of etcd's log can't be removed: %w", name, err)
		}
	}
	t.free = now[len(free):]
	t.end = end
	return free, nil
}

// letGo are the files before the first that etcd holds, where it has the log open to write to it, as far as a snapshot
// covers them. Where no etcd runs there are none.
func (t *Trimmer) letGo(files []string) []string {
	covered := covers(files, t.newest(files))
	n := 0
	for n < covered && !locked(filepath.Join(t.log, files[n])) {
		n++
	}
	if n == 0 || !locked(filepath.Join(t.log, files[n])) || !t.appends() {
		return nil
	}
	return files[:n]
}

// appends reports whether an etcd has the log open to write to it: it holds the file that comes next. One that mends
// the last file before that holds that one alone.
func (t *Trimmer) appends() bool {
	return slices.ContainsFunc(entries(t.log, ".tmp"), func(name string) bool {
		return locked(filepath.Join(t.log, name))
	})
}

// ends is how far etcd has written now.
func (t *Trimmer) ends(files []string) end {
	last := files[len(files)-1]
	info, err := os.Stat(filepath.Join(t.log, last))
	if err != nil {
		return end{}
	}
	return end{last, info.ModTime()}
}

// newest is the index of the newest snapshot on disk that is whole; 0 where it would cover no file.
func (t *Trimmer) newest(files []string) uint64 {
	names := entries(t.snapshots, ".snap")
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(indexOf(b), indexOf(a)) })
	for _, name := range names {
		index := indexOf(name)
		if covers(files, index) == 0 {
			return 0
		}
		if whole(filepath.Join(t.snapshots, name)) {
			return index
		}
	}
	return 0
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

// whole reports whether all of a snapshot is in its file, by the sum in it, as etcd looks itself (Read in its
// etcdserver/api/snap/snapshotter.go): two fields of protobuf, the sum and the data.
func whole(path string) bool {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 || b[0] != 1<<3 {
		return false
	}
	sum, n := binary.Uvarint(b[1:])
	if n <= 0 || len(b) < n+2 || b[n+1] != 2<<3|2 {
		return false
	}
	b = b[n+2:]
	size, n := binary.Uvarint(b)
	if n <= 0 || size != uint64(len(b)-n) {
		return false
	}
	return sum != 0 && sum == uint64(crc32.Checksum(b[n:], crc32.MakeTable(crc32.Castagnoli)))
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
