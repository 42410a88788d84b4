// Package datadir says whether a member's data directory holds what etcd would resume from: what a member starts from, and what a restore must
// not overwrite, hang on the same answer.
package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// HasData reports whether etcd would resume from this directory. etcd looks for a file *.wal in member/wal, or where else its log is to
// be (wal.Exist), and starts from nothing without one, whatever else is there; member/snap is made before the first *.wal, so a log without it is
// not etcd's work. WALDir is empty where the log is in the data directory.
func HasData(dataDir, walDir string) (bool, error) {
	if walDir == "" {
		walDir = filepath.Join(dataDir, "member", "wal")
	}
	entries, err := os.ReadDir(walDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".wal" {
			return Exists(filepath.Join(dataDir, "member", "snap"))
		}
	}
	return false, nil
}

// Exists reports whether there is a file or directory of this name.
func Exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
