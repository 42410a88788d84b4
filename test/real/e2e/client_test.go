//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
)

// client of the cluster with the certificate for applications.
func (c *cluster) client() *clientv3.Client {
	c.t.Helper()
	return c.clientAs(name + "-client-tls")
}

// clientAs is a client with the certificate in this Secret of the cluster's namespace, through the client Service.
func (c *cluster) clientAs(secret string) *clientv3.Client {
	c.t.Helper()
	return c.clientWith(rereading(c.ns, secret), c.service())
}

// clientWith is a client that talks to an address inside the lab as to the client Service, with this TLS; nil is
// plain text.
func (c *cluster) clientWith(config *tls.Config, address string) *clientv3.Client {
	c.t.Helper()
	client, err := c.open(config, address, "", "")
	require.NoError(c.t, err)
	return client
}

// login is a client with a user's name and password. Its certificate names no user: it is that of the servers.
func (c *cluster) login(user, password string) (*clientv3.Client, error) {
	c.t.Helper()
	return c.open(rereading(c.ns, name+"-server-tls"), c.service(), user, password)
}

// open is a client; with a user it has logged in.
func (c *cluster) open(config *tls.Config, address, user, password string,
	further ...func(*clientv3.Config)) (*clientv3.Client, error) {
	c.t.Helper()
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	settings := clientv3.Config{
		Endpoints: []string{fmt.Sprintf("%s://%s.%s.svc:2379", scheme, name, c.ns)}, TLS: config,
		Username: user, Password: password,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return lab.dialContext(ctx, address)
		})},
	}
	return newClient(c.t, settings, further...)
}

// newClient is a client that notices soon when a member does not answer. It ends with the test.
func newClient(t *testing.T, settings clientv3.Config, further ...func(*clientv3.Config)) (*clientv3.Client, error) {
	t.Helper()
	settings.DialTimeout = 5 * time.Second
	settings.DialKeepAliveTime, settings.DialKeepAliveTimeout = 2*time.Second, 2*time.Second
	settings.Logger = zap.NewNop()
	for _, set := range further {
		set(&settings)
	}
	client, err := clientv3.New(settings)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, nil
}

// labClient is a client at URLs inside the lab, of which the hosts of some are looked up here.
func labClient(t *testing.T, config *tls.Config, hosts map[string]string, urls ...string) *clientv3.Client {
	t.Helper()
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		address = strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://")
		return lab.dialContext(ctx, cmp.Or(hosts[address], address))
	}
	client, err := newClient(t, clientv3.Config{Endpoints: urls, TLS: config,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)}})
	require.NoError(t, err)
	return client
}

// rereading is TLS with the certificate in a Secret, which is read again at every handshake: as an application does
// that has it mounted and watches its files.
func rereading(ns, secret string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			data, err := secretData(ns, secret)
			if err != nil {
				return nil, err
			}
			pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
			return &pair, err
		},
		InsecureSkipVerify: true, // verified below, by what the Secret says now
		VerifyConnection: func(state tls.ConnectionState) error {
			data, err := secretData(ns, secret)
			if err != nil {
				return err
			}
			roots, between := x509.NewCertPool(), x509.NewCertPool()
			roots.AppendCertsFromPEM(data["ca.crt"])
			for _, c := range state.PeerCertificates[1:] {
				between.AddCert(c)
			}
			_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between,
				DNSName: state.ServerName})
			return err
		},
	}
}

// secretData reads a Secret.
func secretData(ns, secret string) (map[string][]byte, error) {
	var s corev1.Secret
	found, err := api.read(fmt.Sprintf(paths["secrets"], ns)+"/"+secret, &s)
	if err == nil && !found {
		err = fmt.Errorf("no such Secret: %s", secret)
	}
	return s.Data, err
}

// secretOf reads a Secret that must be there.
func (c *cluster) secretOf(secret string) map[string][]byte {
	c.t.Helper()
	data, err := secretData(c.ns, secret)
	require.NoError(c.t, err)
	return data
}

// network is a network namespace with threads in it. What they open there (sockets, processes) works and stays in it.
type network struct{ work chan func() }

// newNetwork starts threads in the network namespace of this file; they live as long as the process.
func newNetwork(file string, threads int) (*network, error) {
	ns, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	n := &network{work: make(chan func())}
	ready := make(chan error)
	for range threads {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread must not serve anything else
			ready <- unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			for f := range n.work {
				f()
			}
		}()
	}
	for range threads {
		err = errors.Join(err, <-ready)
	}
	return n, errors.Join(err, ns.Close())
}

// newIsland makes a network namespace in which every address is local: a connection to 10.244.1.7:2379 in there
// reaches what listens on port 2379, and tells it the address that was meant. It goes with the process.
func newIsland(threads int) (*network, error) {
	file := make(chan string)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- fmt.Errorf("a network namespace: %w", err)
			return
		}
		file <- fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		select {} // the namespace lives as long as this thread
	}()
	var n *network
	select {
	case f := <-file:
		var err error
		if n, err = newNetwork(f, threads); err != nil {
			return nil, err
		}
	case err := <-failed:
		return nil, err
	}
	return n, n.do(func() error {
		for _, args := range []string{"link set lo up", "route add local default dev lo"} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", args, err, out)
			}
		}
		return nil
	})
}

// do runs f on a thread in there.
func (n *network) do(f func() error) error {
	done := make(chan error, 1)
	n.work <- func() { done <- f() }
	return <-done
}

func (n *network) listen(address string) (l net.Listener, err error) {
	err = n.do(func() error {
		l, err = net.Listen("tcp4", address)
		return err
	})
	return l, err
}

// DialContext dials an address with a literal IP.
func (n *network) dialContext(ctx context.Context, address string) (conn net.Conn, err error) {
	err = n.do(func() error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // a thread is not held for long
		defer cancel()
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, "tcp", address)
		return err
	})
	return conn, err
}

// ofFamily chooses the address of the version that is the lab's first.
func ofFamily(four, six string) string {
	if os.Getenv("QUORATE_LAB_IP") == "v6" {
		return six
	}
	return four
}

// addressOf a node of the lab.
func addressOf(node int) string {
	return ofFamily(fmt.Sprintf("172.30.0.%d", node), fmt.Sprintf("fd00:172:30::%d", node))
}

func (n *network) httpClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return n.dialContext(ctx, address)
		},
	}}
}
