package etcdops

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/credentials"

	"github.com/quorate-dev/quorate/etcdops/token"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Members that ask clients for no certificate (spec.tls.clientAuth None) know us by a token. It is sent to no other
// member: there etcd would look at it first, and at our certificate not at all (AuthInfoFromCtx in its
// etcdserver/v3_server.go).

// A visit is how one client comes to one member.
type visit struct {
	e      *Etcd
	member string
	told   *handshake
}

var _ credentials.PerRPCCredentials = (*visit)(nil)

// withToken has a call carry our token, whatever the member asks for.
type withToken struct{}

// GetRequestMetadata implements [credentials.PerRPCCredentials]. The handshake of the connection has ended by then.
func (v *visit) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	asked := ctx.Value(withToken{}) != nil
	if !asked && !v.told.anonymous() || v.e.tokenKey() == nil {
		return nil, nil
	}
	if given := v.e.logins.of(v.member); given != "" && !asked {
		return token.Metadata(given), nil
	}
	signed, err := v.e.tokenKey().Sign(token.AnyRevision, time.Now())
	return token.Metadata(signed), err
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (v *visit) RequireTransportSecurity() bool { return true }

// logins are tokens that members gave for root's password, by member.
type logins struct {
	lock  sync.Mutex
	given map[string]string
}

func (l *logins) of(member string) string {
	if l == nil {
		return ""
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.given[member]
}

func (l *logins) note(member, given string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.given == nil {
		l.given = map[string]string{}
	}
	l.given[member] = given
}

// logIn comes with root's password to a member that does not take our tokens. That needs a quorum.
func (e *Etcd) logIn(ctx context.Context, c *contact) bool {
	if e.root == nil || e.logins == nil {
		return false
	}
	password, err := e.password(*e.root)
	if err != nil {
		return false
	}
	return e.call(ctx, callLogin, e.timeout(), func(ctx context.Context) error {
		answer, err := c.client.Authenticate(ctx, users.Root, password)
		if err == nil {
			e.logins.note(c.endpoint.Name, answer.Token)
		}
		return err
	}) == nil
}

// askAuth asks a member whether it asks every client who it is, and whether it takes our tokens. It answers from memory
// and needs no quorum: with auth on, it refuses to read a key with a token of a revision that it does not have, and
// with auth off it does not look at tokens.
func (e *Etcd) askAuth(ctx context.Context, c *contact) {
	if c.endpoint.External {
		e.askExternalAuth(ctx, c)
		return
	}
	if e.tokenKey() == nil || c.endpoint.ServerName == "" {
		return
	}
	err := e.call(context.WithValue(ctx, withToken{}, true), callAuth, e.timeout(), func(ctx context.Context) error {
		_, err := c.client.Get(ctx, "\x00", clientv3.WithSerializable(), clientv3.WithCountOnly())
		if on := errors.Is(explain(err), errTokenRevision); on || err == nil {
			c.auth = &on
			return nil
		}
		return err
	})
	c.tokenRefused = c.tokenRefused || errors.Is(err, errToken)
}

// askExternalAuth asks the same of a member that is not ours, and has another key for tokens. Its answer is that of a
// quorum: it goes through raft (AuthStatus in etcd's etcdserver/v3_server.go), as a login does, and is for root alone.
func (e *Etcd) askExternalAuth(ctx context.Context, c *contact) {
	_ = e.call(ctx, callAuth, e.timeout(), func(ctx context.Context) error {
		answer, err := c.client.AuthStatus(ctx)
		if err == nil {
			c.auth = &answer.Enabled
		}
		return err
	})
}

// hearPeer notes whose certificates a member takes from its peers. We come as one of them and say nothing: so etcd's
// log says nothing, either.
func (e *Etcd) hearPeer(ctx context.Context, endpoint observation.Endpoint, told *handshake) {
	config := e.peerTLS()
	if config == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout())
	defer cancel()
	conn, err := e.connect(ctx, endpoint.PeerAddress, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	config = config.Clone()
	config.ServerName = endpoint.ServerName
	config.ClientSessionCache = nil
	own := config.Certificates
	config.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		told.trusts(request.AcceptableCAs)
		if len(own) == 0 {
			return &tls.Certificate{}, nil
		}
		return &own[0], nil
	}
	_ = tls.Client(conn, config).HandshakeContext(ctx) // what it tells is told before that ends
}
