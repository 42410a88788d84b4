package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"
)

const (
	// mostUnauthenticated is how many connections there are at once that have not shown a token yet: each takes some 40
	// KiB.
	mostUnauthenticated = 256
	// mostCallers is how many there are that have.
	mostCallers = 512
)

// A door is a listener that keeps few connections. When there are too many of unauthenticated ones, the one that has
// been one for longest is closed: a caller shows its token with its first request, within milliseconds. Those of
// callers are counted apart.
type door struct {
	net.Listener

	mu                       sync.Mutex
	unauthenticated, callers list.List // of *guest, the oldest first
}

// A guest is a connection.
type guest struct {
	net.Conn

	door *door
	in   *list.List // nil when it is closed; door.mu guards it, and the element
	at   *list.Element
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: conn, door: d}
	g.enter(&d.unauthenticated, mostUnauthenticated)
	return g, nil
}

// enter puts the guest into a list of so many, and closes the one that has been there for longest where they are more.
func (g *guest) enter(in *list.List, most int) {
	g.door.mu.Lock()
	g.leave()
	g.in = in
	g.at = in.PushBack(g)
	var oldest *guest
	if in.Len() > most {
		oldest, _ = in.Front().Value.(*guest)
		oldest.leave()
	}
	g.door.mu.Unlock()
	if oldest != nil {
		_ = oldest.Conn.Close()
	}
}

// leave takes the guest out of its list. The lock is held.
func (g *guest) leave() {
	if g.in != nil {
		g.in.Remove(g.at)
		g.in = nil
	}
}

// Close implements net.Conn.
func (g *guest) Close() error {
	g.door.mu.Lock()
	g.leave()
	g.door.mu.Unlock()
	return g.Conn.Close()
}

type guestKey struct{}

// withGuest notes whose connection it is that a request comes by.
func withGuest(ctx context.Context, conn net.Conn) context.Context {
	if secure, is := conn.(*tls.Conn); is {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, guestKey{}, conn)
}

// welcome makes the connection of a request that of a caller.
func welcome(ctx context.Context) {
	g, is := ctx.Value(guestKey{}).(*guest)
	if !is {
		return
	}
	g.door.mu.Lock()
	unauthenticated := g.in == &g.door.unauthenticated
	g.door.mu.Unlock()
	if unauthenticated {
		g.enter(&g.door.callers, mostCallers)
	}
}
