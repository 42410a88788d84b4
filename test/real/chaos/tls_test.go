package chaos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks/decision"
)

const memberName = "demo-0.demo-peers.space.svc"

// cluster are the Secrets of a cluster with two authorities in ca.crt, one of which signs.
type cluster map[string]map[string][]byte

func newCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{}
	begins, ends := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	do := func(name string, r decision.Recipe) {
		data, err := pki.Make(name, r, c)
		require.NoError(t, err)
		c[name] = data
	}
	do("ca", decision.Authority{CommonName: "one", NotBefore: begins, NotAfter: ends})
	do("ca", decision.Authority{CommonName: "two", Previous: true, NotBefore: begins, NotAfter: ends})
	do("server", decision.Leaf{Signer: "ca", Names: []string{"*.demo-peers.space.svc"}, Server: true, Client: true,
		NotBefore: begins, NotAfter: ends})
	do("operator", decision.Leaf{Signer: "ca", CommonName: "root", Client: true, NotBefore: begins, NotAfter: ends})
	return c
}

func (c cluster) authorities(t *testing.T) []*x509.Certificate {
	t.Helper()
	_, authorities, err := Keys(c["server"]).parse()
	require.NoError(t, err)
	return authorities
}

// guarded is a member that asks clients for certificates.
type guarded struct {
	fakeEtcd
	users chan string
}

func (g *guarded) MemberList(ctx context.Context, _ *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	p, _ := peer.FromContext(ctx)
	g.users <- p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].Subject.CommonName
	return &pb.MemberListResponse{}, nil
}

// member serves a member that has begun with this trust, and the proxy before it. It returns the address that Quorate
// dials, and the common names of the clients that the member sees.
func (c cluster) member(t *testing.T, trust []*x509.Certificate) (proxied string, users <-chan string) {
	t.Helper()
	own, _, err := Keys(c["server"]).parse()
	require.NoError(t, err)
	g := &guarded{users: make(chan string, 1)}
	etcd := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{own},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool(trust)})))
	pb.RegisterClusterServer(etcd, g)
	behind := serve(t, etcd)
	return c.proxy(t, func(ctx context.Context, _ string) (net.Conn, error) { return dialTCP(ctx, behind) }), g.users
}

func (c cluster) proxy(t *testing.T, dial func(ctx context.Context, address string) (net.Conn, error)) string {
	t.Helper()
	e := &Etcd{Schedule: &Schedule{}, Dial: dial, TLS: func(member string) (server, operator Keys, err error) {
		if member != memberName {
			return nil, nil, errors.New("no cluster of this name")
		}
		return c["server"], c["operator"], nil
	}}
	return serve(t, e.Server())
}

// ask asks for the member list as Quorate does, and is also told which authorities the member trusts.
func (c cluster) ask(t *testing.T, address, member string) (subjects [][]byte, err error) {
	t.Helper()
	config, err := pki.Client(c["operator"])
	require.NoError(t, err)
	config.ServerName = member
	config.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		subjects = r.AcceptableCAs
		return &config.Certificates[0], nil
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{})
	return subjects, err
}

// TestEncrypted: the proxy stands for the member before Quorate, and for Quorate before the member; Quorate
// hears which authorities the member trusts.
func TestEncrypted(t *testing.T) {
	c := newCluster(t)
	both := c.authorities(t)
	require.Len(t, both, 2)
	own, _, err := Keys(c["operator"]).parse()
	require.NoError(t, err)
	signs := slices.IndexFunc(both, func(a *x509.Certificate) bool { return own.Leaf.CheckSignatureFrom(a) == nil })
	for _, trust := range [][]*x509.Certificate{both, both[signs : signs+1]} {
		address, users := c.member(t, trust)
		told, err := c.ask(t, address, memberName)
		require.NoError(t, err)
		assert.Equal(t, "root", <-users)
		var want [][]byte
		for _, a := range trust {
			want = append(want, a.RawSubject)
		}
		assert.ElementsMatch(t, want, told)
	}
}

// TestNoMemberBehind: Quorate can't connect when the member is not there, or is not the one that Quorate means.
func TestNoMemberBehind(t *testing.T) {
	c, others := newCluster(t), newCluster(t)
	unreachable := c.proxy(t, func(context.Context, string) (net.Conn, error) {
		return nil, errors.New("connection refused")
	})
	unknown, _ := c.member(t, c.authorities(t))
	stranger, _ := others.member(t, others.authorities(t))
	strangerHere := c.proxy(t, func(ctx context.Context, _ string) (net.Conn, error) { return dialTCP(ctx, stranger) })
	for address, member := range map[string]string{unreachable: memberName, unknown: "demo-0.demo-peers.elsewhere.svc",
		strangerHere: memberName} {
		told, err := c.ask(t, address, member)
		assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		assert.NotContains(t, err.Error(), "tls: ")
		assert.Empty(t, told)
	}
}
