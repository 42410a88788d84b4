//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
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
