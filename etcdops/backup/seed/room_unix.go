//go:build unix

package seed

import (
	"golang.org/x/sys/unix"
)

// room is how many bytes a process without privileges may still write to the volume of a directory, and which volume
// that is.
func room(dir string) (id uint64, free int64, err error) {
	var volume unix.Statfs_t
	var info unix.Stat_t
	if err := unix.Statfs(dir, &volume); err != nil {
		return 0, 0, err
	}
	if err := unix.Stat(dir, &info); err != nil {
		return 0, 0, err
	}
	return uint64(info.Dev), int64(volume.Bavail) * int64(volume.Bsize), nil //nolint:unconvert // the types differ between systems
}
