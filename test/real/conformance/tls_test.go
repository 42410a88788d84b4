//go:build unix

package conformance

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestHandshake: what a member tells in the TLS handshake is what the rotation of authorities goes by, so that it
// must be what etcd really does: its certificate is read again each time, its authorities are those that it started
// with.
func TestHandshake(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		ca, other := etcdproc.NewAuthority(t), etcdproc.NewAuthority(t)
		c := etcdproc.StartTLS(t, version, "demo", 1, ca)
		endpoints := c.Endpoints()
		endpoints[0].ServerName = "127.0.0.1" // the members of these tests have no names
		observe := func(config *tls.Config) observation.Health {
			_, health := (&etcdops.Etcd{TLS: config}).Observe(t.Context(), endpoints)
			return health["demo-0"]
		}
		root := ca.Client("root")
		var first observation.Health
		chapter(t, "a member tells its certificate, and which authorities it trusts", func(t *testing.T) {
			first = observe(root)
			require.Empty(t, first.Err)
			assert.NotEmpty(t, first.Certificate)
			assert.Equal(t, []string{pki.Subject(ca.RawSubject)}, first.Trusts)
		})
		chapter(t, "also to a client that it does not let in", func(t *testing.T) {
			stranger := other.Client("root")
			stranger.RootCAs = root.RootCAs
			h := observe(stranger)
			require.Contains(t, h.Err, "TLS handshake failed")
			assert.Equal(t, first.Trusts, h.Trusts)
		})
		chapter(t, "a client that does not trust it says so, in words that stay the same", func(t *testing.T) {
			doubting := ca.Client("root")
			doubting.RootCAs = other.Client("root").RootCAs
			h := observe(doubting)
			require.True(t, strings.HasPrefix(h.Err, "TLS handshake failed: "), h.Err)
			require.Equal(t, h.Err, observe(doubting).Err)
		})
		chapter(t, "a new certificate is shown without a restart", func(t *testing.T) {
			ca.Renew()
			h := observe(root)
			require.Empty(t, h.Err)
			assert.NotEqual(t, first.Certificate, h.Certificate)
			assert.Equal(t, first.Trusts, h.Trusts)
		})
	})
}

// TestRevokedClients: a member reads the list of revoked clients at each handshake, as DER on every release, and lets
// no one in while it can't: that is why it gets a copy of ours.
func TestRevokedClients(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		ca := etcdproc.NewAuthority(t)
		file := ca.File("ca.crl")
		lists := func(list []byte) { require.NoError(t, os.WriteFile(file, list, 0o600)) }
		lists(ca.CRL(t))
		c := etcdproc.StartTLS(t, version, "demo", 1, ca, objects.FlagCRL+"="+file)
		endpoints := c.Endpoints()
		endpoints[0].ServerName = "127.0.0.1"
		comes := func(config *tls.Config) string {
			_, health := (&etcdops.Etcd{TLS: config}).Observe(t.Context(), endpoints)
			return health["demo-0"].Err
		}
		root, web := ca.Client("root"), ca.Client("web")
		of, err := x509.ParseCertificate(web.Certificates[0].Certificate[0])
		require.NoError(t, err)
		assert.Empty(t, comes(web))
		lists(ca.CRL(t, of))
		assert.NotEmpty(t, comes(web), "it is revoked")
		assert.Empty(t, comes(root))
		lists([]byte("no list"))
		assert.NotEmpty(t, comes(root))
		lists(ca.CRL(t))
		assert.Empty(t, comes(web))
		assert.Empty(t, comes(root))
	})
}

// TestUpdatePeerURL: a member that is listed with a URL that no peer can dial goes on, because it dials the
// others. That is what every member goes through on the way from plain text to TLS, and why it is one at a time.
func TestUpdatePeerURL(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 3, etcdproc.NewAuthority(t).PeerFlags()...)
		_, followers := leaderAndFollowers(t, c)
		before, _ := look(t, c.Endpoints())
		follower := followers[0]
		step := decision.UpdatePeerURL{ID: idOf(t, before, follower), Name: follower.Name,
			PeerURL: strings.Replace(follower.PeerURL, "http:", "https:", 1)}
		chapter(t, "it is listed with https, and no other member is", func(t *testing.T) {
			require.NoError(t, do(t, c, step))
			after, _ := look(t, c.Endpoints())
			for i, m := range after.Members {
				assert.Equal(t, before.Members[i].ID, m.ID)
				assert.Equal(t, m.ID == step.ID, m.PeerURLs[0] == step.PeerURL)
			}
		})
		chapter(t, "twice is once", func(t *testing.T) { require.NoError(t, do(t, c, step)) })
		chapter(t, "it is no stranger, and takes writes as all do, also after it was started again",
			func(t *testing.T) {
				follower.Kill()
				follower.Restart()
				c.WaitServing(c.Members...)
				_, health := look(t, c.Endpoints())
				for _, m := range c.Members {
					require.Empty(t, health[m.Name].Err)
					m.Put(1)
				}
			})
		chapter(t, "a member that does not exist is told so", func(t *testing.T) {
			require.ErrorIs(t, do(t, c, decision.UpdatePeerURL{ID: 1, Name: "demo-9", PeerURL: "https://127.0.0.1:1"}),
				etcdops.ErrMemberGone)
		})
	})
}
