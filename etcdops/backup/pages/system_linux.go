package pages

import (
	"os"

	"golang.org/x/sys/unix"
)

// atOnce is what a kernel reads of a file for one such request, at the least (force_page_cache_ra in mm/readahead.c).
const atOnce = 128 << 10

// WriteOut has the kernel begin to write a part of a file to the disk, so that little is left to be waited for when it
// is synced. It need not.
func WriteOut(file *os.File, from, length int64) {
	if raw, err := file.SyscallConn(); err == nil && length > 0 {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SyncFileRange(int(fd), from, length, unix.SYNC_FILE_RANGE_WRITE)
		})
	}
}

// willNeed has the kernel begin to read a part of a file. It need not.
func willNeed(file *os.File, from, length int64) {
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for ; length > 0; length -= atOnce {
			_ = unix.Fadvise(int(fd), from, min(length, atOnce), unix.FADV_WILLNEED)
			from += atOnce
		}
	})
}
