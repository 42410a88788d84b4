package prepare

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/quorate-dev/quorate/etcdops/datadir"
)

// A pod may start twice before its etcd does: the node reboots while the image can't be pulled. Its marker then says
// that it has started, and its data directory is empty, as one is that has lost its data. So prepare leaves a mark in
// the directory where etcd will have its log, with the word that is in the marker too. When etcd makes its log, it
// first removes that directory with all that is in it, and puts the new one in its place (renameWAL in etcd's
// server/storage/wal/wal.go; TestEtcdTakesTheMarkAway). It acknowledges nothing before that, and the mark is never
// written where a log is. So where the mark is and no log, this pod's etcd has never begun; where neither is, the
// directory was emptied.
//
// It is not elsewhere in the data directory: a person who deletes the folder member in there would leave
// it.

// markFile is the name of the mark. Of the files in there etcd reads only those that end in .wal.
const markFile = "quorate-not-begun"

// mayHaveBegun reports whether etcd may have begun in this directory since the marker with this word was written.
func mayHaveBegun(dataDir, walDir, word string) (bool, error) {
	log, err := datadir.HasLog(dataDir, walDir)
	if err != nil {
		return true, err
	}
	mark, there, err := read(filepath.Join(datadir.LogDir(dataDir, walDir), markFile))
	if err != nil {
		return true, err
	}
	return log || !there || word == "" || mark != word, nil
}

// leaveMark notes that the pod has started, and where no log is that etcd has not begun. The mark comes first: a
// marker without it says that data is lost.
func leaveMark(dataDir, walDir, marker string) error {
	word := rand.Text()
	log, err := datadir.HasLog(dataDir, walDir)
	if err != nil {
		return fmt.Errorf("the data directory can't be read: %w", err)
	}
	if !log {
		dir := datadir.LogDir(dataDir, walDir)
		if err := errors.Join(makeDir(dir), put(filepath.Join(dir, markFile), word)); err != nil {
			return fmt.Errorf("the mark can't be written where the write-ahead log will be: %w", err)
		}
	}
	if err := put(marker, word); err != nil {
		return fmt.Errorf("the marker can't be written: %w", err)
	}
	return nil
}

// read is what the file holds; false when there is none.
func read(path string) (string, bool, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return string(raw), err == nil, err
}

// makeDir makes a directory, and those above it that are missing, for etcd's user alone, on the disk when it returns.
func makeDir(path string) error {
	var missing []string
	for dir := path; ; dir = filepath.Dir(dir) {
		there, err := datadir.Exists(dir)
		if err != nil {
			return err
		}
		if there || dir == filepath.Dir(dir) {
			break
		}
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := sync(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// put makes a file whole, on the disk when it returns.
func put(path, content string) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return sync(filepath.Dir(path))
}

func sync(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
