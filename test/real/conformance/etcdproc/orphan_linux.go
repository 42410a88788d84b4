package etcdproc

import "syscall"

// attributes make a process die with the test, even when that is killed itself.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
