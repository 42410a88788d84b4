//go:build unix && !linux

package etcdproc

import "syscall"

// attributes are none: only Linux can tie a process to its parent.
func attributes() *syscall.SysProcAttr { return nil }
