package trim

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Commands of fcntl(2) about locks of open files.
const getLock, setLock = 36, 37

// all is a lock of a whole file, as etcd takes it (lock_linux.go in its client/pkg/fileutil): it belongs to the open
// file, so that other programs see it in all namespaces.
func all() syscall.Flock_t { return syscall.Flock_t{Type: syscall.F_WRLCK} }

// locked reports whether another holds a lock on the file. It takes none itself: etcd does not wait for one.
func locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	lock := all()
	err = syscall.FcntlFlock(f.Fd(), getLock, &lock)
	return err == nil && lock.Type != syscall.F_UNLCK
}

// remove takes the file away, and its room with it. etcd removes such files too, and ends when one that it has opened
// is gone before it is locked; so it stays locked for a while, and etcd leaves it alone.
func remove(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lock := all()
	if syscall.FcntlFlock(f.Fd(), setLock, &lock) != nil {
		return f.Close() // etcd is at it
	}
	time.AfterFunc(held, func() { _ = f.Close() })
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.Truncate(0)
}
