package server

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// sameUser refuses the other end of a unix socket that is not ours: an abstract one has no mode.
func sameUser(conn net.Conn) error {
	local, is := conn.(*net.UnixConn)
	if !is {
		return fmt.Errorf("%T is no unix socket", conn)
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		peer, asked = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	switch {
	case err != nil:
		return err
	case asked != nil:
		return asked
	case int(peer.Uid) != os.Geteuid():
		return fmt.Errorf("user %d asked for entries, and they are for %d alone", peer.Uid, os.Geteuid())
	}
	return nil
}
