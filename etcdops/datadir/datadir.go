// Package datadir says whether a member's data directory holds what etcd would resume from: what a member starts
// from, and what a restore must not overwrite, hang on the same answer.
package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// HasData reports whether etcd would resume from this directory. etcd looks for a file *.wal in member/wal, or in the
// directory that is set for its log (wal.Exist), and starts from nothing without one, whatever else is there;
// member/snap is made before the first *.wal, so a log without it is not etcd's work. WALDir is empty where the log is
// in the data directory.
func HasData(dataDir, walDir string) (bool, error) {
	log, err := HasLog(dataDir, walDir)
	if !log || err != nil {
		return false, err
	}
	return Exists(filepath.Join(dataDir, "member", "snap"))
}

// HasLog reports whether there is a write-ahead log, whatever else there is.
func HasLog(dataDir, walDir string) (bool, error) {
	entries, err := os.ReadDir(LogDir(dataDir, walDir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return filepath.Ext(e.Name()) == ".wal" }), nil
}

// LogDir is the directory of the log, in the data directory unless walDir names another one.
func LogDir(dataDir, walDir string) string {
	if walDir == "" {
		return filepath.Join(dataDir, "member", "wal")
	}
	return walDir
}

// Exists reports whether there is a file or directory of this name.
func Exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
