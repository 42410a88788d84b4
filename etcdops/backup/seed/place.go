package seed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// place is where a data directory goes. The directory is made beside it, and comes there whole or not at all.
type place struct {
	dataDir, walDir string
}

// Names beside and in the directories.
const (
	// madeSuffix is that of a directory that is being made.
	madeSuffix = ".restoring"
	// unfinished is a file in a data directory whose log, on another volume, is not in place yet.
	unfinished = "unfinished-restore"
)

// staged are the directories in which it is made.
type staged struct {
	// dataDir; walDir is that of the log, and empty when that has no volume of its own.
	dataDir, walDir string
}

func (s staged) database() string { return databaseOf(s.dataDir) }

// log is where the log is made.
func (s staged) log() string {
	if s.walDir != "" {
		return s.walDir
	}
	return filepath.Join(s.dataDir, "member", "wal")
}

func (s staged) dirs() []string {
	if s.walDir == "" {
		return []string{s.dataDir}
	}
	return []string{s.dataDir, s.walDir}
}

func (p place) staged() staged {
	s := staged{dataDir: p.dataDir + madeSuffix}
	if p.walDir != "" {
		s.walDir = p.walDir + madeSuffix
	}
	return s
}

// logsOn is the directory whose volume has the log.
func (p place) logsOn() string {
	if p.walDir != "" {
		return p.walDir
	}
	return p.dataDir
}

// unstage removes the directories in which it was being made.
func (p place) unstage() error {
	for _, dir := range p.staged().dirs() {
		// etcd makes a log in a directory of this name and renames it.
		if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(dir+".tmp")); err != nil {
			return failure(failed, err, "what an earlier try has left can't be removed")
		}
	}
	return nil
}

// clear removes what earlier tries have left. What is not of our making stays, and is an error: there is no log in
// it, or this would not have been asked for, but it may be worth something. A directory that is empty is removed:
// nothing is moved over one that is there.
func (p place) clear() error {
	if err := p.unstage(); err != nil {
		return err
	}
	_, marked := os.Stat(filepath.Join(p.dataDir, unfinished))
	_, log := os.Stat(p.walDir)
	switch {
	case marked == nil && log == nil:
		if err := Finish(p.dataDir); err != nil {
			return err
		}
	case marked == nil && errors.Is(log, fs.ErrNotExist):
		// Under the other name first: what is left of it without its mark could not be told from data.
		if err := errors.Join(os.Rename(p.dataDir, p.staged().dataDir), p.unstage()); err != nil {
			return failure(failed, err, "what an earlier try has left can't be removed")
		}
	}
	for _, dir := range []string{p.dataDir, p.walDir} {
		entries, err := os.ReadDir(dir)
		if dir == "" || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && len(entries) == 0 {
			err = os.Remove(dir)
		}
		if err != nil {
			return failure(failed, err, "the directory to restore into can't be read, or is empty and can't be "+
				"removed")
		}
		if len(entries) > 0 {
			return failure(failed, nil, "%s holds %s and other files that are not etcd data, or only part of it: "+
				"nothing was changed; look at it, and empty it if you don't need it", dir, entries[0].Name())
		}
	}
	return nil
}

// commit moves what was made into place. With the log on another volume there are two moves: the log comes last,
// because a member without one has no data (HasData in etcdops/datadir), and until then the directory is marked, so
// that a later try may remove it.
func (p place) commit() error {
	s := p.staged()
	if s.walDir != "" {
		if err := os.WriteFile(filepath.Join(s.dataDir, unfinished), nil, 0o600); err != nil {
			return written(err, s.dataDir)
		}
	}
	for _, dir := range s.dirs() {
		if err := syncTree(dir); err != nil {
			return written(err, dir)
		}
	}
	err := move(s.dataDir, p.dataDir)
	if err == nil && s.walDir != "" {
		err = errors.Join(move(s.walDir, p.walDir), Finish(p.dataDir))
	}
	if err != nil {
		return failure(failed, err, "the new data directory can't be moved into its place")
	}
	return nil
}

// Finish removes the mark of a data directory whose log is in place: a restore may have been stopped after its last
// move. If the mark stayed, and the log were lost one day, the member's data would be taken for a restore that was
// never finished, and be made once more from the snapshot, under the old identity (S10).
func Finish(dataDir string) error {
	err := os.Remove(filepath.Join(dataDir, unfinished))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failure(failed, err, "the mark of a restore that is finished can't be removed")
	}
	return nil
}

// move renames a directory; its name is on the disk when it returns.
func move(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncFile(filepath.Dir(to))
}

// syncTree has a directory with all that is in it on the disk when it returns.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, syncFile(path))
	})
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// needs is how many bytes will be written where.
type needs struct {
	dir   string
	bytes int64
	what  string
}

// logSize is what a log takes from the beginning: etcd reserves its first file, and sometimes a second
// (wal.SegmentSizeBytes).
const logSize = 2 * 64 << 20

// checkRoom refuses to begin what will not fit. Needs on one volume add up.
func checkRoom(list ...needs) error {
	type volume struct {
		free, needed int64
		dir, what    string
	}
	volumes := map[uint64]*volume{}
	for _, n := range list {
		dir := existing(n.dir)
		id, free, err := room(dir)
		if err != nil {
			return failure(failed, err, "the free space in %s can't be read", dir)
		}
		v := volumes[id]
		if v == nil {
			v = &volume{free: free, dir: n.dir}
			volumes[id] = v
		}
		v.needed += n.bytes
		if v.what += n.what; v.needed > v.free {
			return failure(noSpace, nil, "the volume of %s has room for %s, but %s is needed (%s); make it larger",
				v.dir, megabytes(v.free), megabytes(v.needed), v.what)
		}
		v.what += ", "
	}
	return nil
}

// existing is the directory itself, or the nearest one above it that is there.
func existing(dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
