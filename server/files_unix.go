//go:build unix

package server

import (
	"math"
	"syscall"
)

// mostOpenFiles is how many files the process may have open, connections among them.
func mostOpenFiles() int64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int64(min(limit.Cur, math.MaxInt64))
}
