package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The network of the pods, on loopback alone. Each pod has an address and ports of its own in Kubernetes. Here its
// etcd listens on free ports of 127.0.0.1, which every Unix has. etcd dials its peers over a proxy when the
// environment names one, and this is it: it knows by the names of the members' Services, and by the pods' addresses,
// which ports are meant. So flags, URLs and certificates are those of production, and etcd of any release can be run.

// network leads to the pods. It may be used by many at once.
type network struct {
	lock sync.Mutex
	// ports of 127.0.0.1 by host and port, such as demo-0.demo-peers.default.svc:2380 and 10.0.0.1:2379.
	ports map[string]int
	// ready are the client ports behind the clients' Service.
	ready []int
	turn  int

	proxy, service net.Listener
}

// newNetwork listens for etcds, and for clients where etcd's clients look first, if that is free.
func newNetwork() (*network, error) {
	n := &network{ports: map[string]int{}}
	var err error
	if n.proxy, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if n.service, err = net.Listen("tcp", "127.0.0.1:2379"); err != nil {
		n.service, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, err
	}
	go func() { _ = http.Serve(n.proxy, n) }()
	go n.serve()
	return n, nil
}

func (n *network) close() {
	_ = n.proxy.Close()
	_ = n.service.Close()
}

// set replaces what is known.
func (n *network) set(ports map[string]int, ready []int) {
	n.lock.Lock()
	defer n.lock.Unlock()
	n.ports, n.ready = ports, ready
}

// dial connects to a pod as one in Kubernetes would, by name or address.
func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	n.lock.Lock()
	port, known := n.ports[address]
	n.lock.Unlock()
	if !known {
		return nil, fmt.Errorf("dial tcp %s: no such host", address)
	}
	return dialLocal(ctx, port)
}

func dialLocal(ctx context.Context, port int) (net.Conn, error) {
	d := net.Dialer{Timeout: time.Second}
	return d.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

// ServeHTTP is the proxy: a tunnel for TLS, and plain requests for those who speak plain text.
func (n *network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		plain := httputil.ReverseProxy{
			Rewrite:       func(*httputil.ProxyRequest) {},
			FlushInterval: -1,
			Transport: &http.Transport{DisableKeepAlives: true,
				DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
					return n.dial(ctx, address)
				}},
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, err.Error(), http.StatusBadGateway)
			},
		}
		plain.ServeHTTP(w, r)
		return
	}
	there, err := n.dial(r.Context(), r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = there.Close()
		return
	}
	_, _ = io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n")
	join(here, there)
}

// serve is the Service for clients: each connection goes to the next member that is ready.
func (n *network) serve() {
	for {
		here, err := n.service.Accept()
		if err != nil {
			return
		}
		go func() {
			there, err := n.next()
			if err != nil {
				_ = here.Close()
				return
			}
			join(here, there)
		}()
	}
}

func (n *network) next() (net.Conn, error) {
	n.lock.Lock()
	ready := n.ready
	n.turn++
	turn := n.turn
	n.lock.Unlock()
	err := fmt.Errorf("no member is ready")
	for i := range ready {
		var there net.Conn
		if there, err = dialLocal(context.Background(), ready[(turn+i)%len(ready)]); err == nil {
			return there, nil
		}
	}
	return nil, err
}

// join hands on what either side says, until one of them ends.
func join(a, b net.Conn) {
	var once sync.Once
	end := func() { once.Do(func() { _ = a.Close(); _ = b.Close() }) }
	go func() { _, _ = io.Copy(a, b); end() }()
	_, _ = io.Copy(b, a)
	end()
}

// freePort is free, below those that the kernel gives to outgoing connections.
func freePort() (int, error) {
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("there is no free port on 127.0.0.1")
}

// hostOf is the name of a pod in the network.
func hostOf(name, subdomain, namespace string) string {
	return strings.Join([]string{name, subdomain, namespace, "svc"}, ".")
}

// resolveNames lets every name of a pod resolve, in the etcd that is linked in. A member that joins looks the names
// of all members up, to tell whether two URLs are the same one. The addresses are compared and never dialed, since
// etcd dials over the network's proxy: so any will do that differ.
func resolveNames() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer func() { _ = there.Close() }()
			answerNames(there)
		}()
		return here, nil
	}}
}

// answerNames answers one question as a name server does over TCP.
func answerNames(conn io.ReadWriter) {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	raw := make([]byte, binary.BigEndian.Uint16(size[:]))
	var asked dnsmessage.Message
	if _, err := io.ReadFull(conn, raw); err != nil || asked.Unpack(raw) != nil || len(asked.Questions) != 1 {
		return
	}
	q := asked.Questions[0]
	said := dnsmessage.Message{Header: dnsmessage.Header{ID: asked.ID, Response: true, RecursionAvailable: true},
		Questions: asked.Questions}
	switch {
	case !strings.HasSuffix(q.Name.String(), ".svc."):
		said.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		said.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
			Body:   &dnsmessage.AResource{A: addressOf(q.Name.String())},
		}}
	}
	if raw, err := said.Pack(); err == nil {
		_, _ = conn.Write(binary.BigEndian.AppendUint16(nil, uint16(len(raw))))
		_, _ = conn.Write(raw)
	}
}

// addressOf a name is one of 10.0.0.0/8.
func addressOf(name string) [4]byte {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name)
	sum := h.Sum32()
	return [4]byte{10, byte(sum >> 16), byte(sum >> 8), byte(sum)}
}
