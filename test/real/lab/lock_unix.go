//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock keeps a second lab command from doing the same work at the same time
// (test packages run in parallel, and each asks for etcd). It is held until it
// is unlocked or this process ends, whatever ends it.
func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		fmt.Fprintf(os.Stderr, "waiting for another lab command (it holds %s)\n", path)
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
	}
	return func() { file.Close() }, nil
}
