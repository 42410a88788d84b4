// Package reach connects to an etcd that a spec names and Quorate does not run, at the addresses that the installation
// allows. Every program that dials such an endpoint does so by this package: what a name leads to is known when a
// connection is made, and at no other time.
package reach

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// ErrForbidden is what is said instead of dialing.
var ErrForbidden = errors.New("this installation of Quorate does not allow its address")

// Within is where may be connected to for a spec of this namespace.
type Within struct {
	Allowed   *objects.AllowedEndpoints
	Namespace string
}

// Control looks at an address when it is known and before anything is sent there, as [net.Dialer] asks for.
type Control func(ctx context.Context, network, address string, conn syscall.RawConn) error

// To says where to dial for a host and port, and what has to look at each of its addresses.
func (w Within) To(address string) (target string, control Control, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || w.Allowed.Refuses("https://"+address, w.Namespace) != "" {
		return "", nil, ErrForbidden
	}
	control = func(_ context.Context, _, found string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(found)
		if err != nil || !w.Allowed.Takes(host, at.Addr()) {
			return ErrForbidden
		}
		return nil
	}
	return net.JoinHostPort(objects.Absolute(host), port), control, nil
}

// Dial connects to a host and port.
func (w Within) Dial(ctx context.Context, address string) (net.Conn, error) {
	target, control, err := w.To(address)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{ControlContext: control}
	return dialer.DialContext(ctx, "tcp", target)
}
