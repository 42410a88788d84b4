//go:build unix

package pages

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// shared takes the lock by which bbolt keeps away those who write.
func shared(file *os.File, wait time.Duration) error {
	begun := time.Now()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Since(begun) > wait {
			return ErrInUse
		}
		time.Sleep(50 * time.Millisecond)
	}
}
