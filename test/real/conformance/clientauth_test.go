//go:build unix && releases

package conformance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/etcdops/token"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// noClientAuth undo those flags of a member that make it ask clients for certificates.
func noClientAuth() []string { return []string{"--trusted-ca-file=", "--client-cert-auth=false"} }

func (s *secured) key(t *testing.T) *token.Key {
	t.Helper()
	read := func(name string) []byte {
		raw, err := os.ReadFile(s.ca.File(name))
		require.NoError(t, err)
		return raw
	}
	key, err := token.Read(read("jwt.key"), read("jwt.pub"))
	require.NoError(t, err)
	return key
}

// visitor is how Quorate comes to members that may ask for no certificate, with these keys for tokens.
func (s *secured) visitor(key *token.Key) *etcdops.Etcd {
	own := s.quorate()
	return own.With(etcdops.Own{TLS: own.TLS, Peer: func() *tls.Config { return s.ca.Client("demo:peers") },
		Token: func() *token.Key { return key }, Root: password("root", "1"), Password: own.Password}).(*etcdops.Etcd)
}

// asked are the endpoints, asked for all that they can tell.
func (s *secured) asked() []observation.Endpoint {
	list := s.Endpoints()
	for i := range list {
		list[i].AsksAuth = true
	}
	return list
}

// trusting is how a client comes that has the authority alone.
func (s *secured) trusting() *tls.Config {
	config := s.ca.Client("")
	config.Certificates = nil
	return config
}

func (s *secured) anonymous(t *testing.T, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Endpoints, config.TLS, config.MaxUnaryRetries = []string{s.Members[0].ClientURL}, s.trusting(), 1
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestClientAuth: members that ask clients for no certificate, and Quorate among their clients.
func TestClientAuth(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		s := startSecured(t, version, "demo", 3, (*etcdproc.Authority).JWT)
		key := s.key(t)
		want := wantOf([]users.RoleWant{everythingOn("app")},
			users.UserWant{Name: "web", Roles: []string{"app"}, Password: password("web", "1")})
		look := func() (*observation.Membership, map[string]observation.Health) {
			return s.visitor(key).Observe(t.Context(), s.asked())
		}

		chapter(t, "each member tells whether auth is on, asked with a token", func(t *testing.T) {
			_, health := look()
			for name, h := range health {
				require.NotNil(t, h.Auth, "%s: %+v", name, h)
				assert.False(t, *h.Auth, name)
				assert.False(t, h.Anonymous || h.TokenRefused, name)
			}
			s.apply(t, want)
			etcdproc.Eventually(t, "on at all members", func(context.Context) error {
				_, health := look()
				for name, h := range health {
					if h.Auth == nil || !*h.Auth || h.TokenRefused {
						return fmt.Errorf("%s: %+v", name, h)
					}
				}
				return nil
			})
			for _, m := range s.Members {
				assert.False(t, m.Said("token"), "etcd logs nothing about it")
			}
		})

		chapter(t, "members of both kinds are reached, through the whole roll", func(t *testing.T) {
			for i, m := range s.Members {
				m.Become(version, append(noClientAuth(), s.ca.JWT())...)
				m.Stop()
				m.Restart()
				etcdproc.Eventually(t, "all are seen", func(context.Context) error {
					list, health := look()
					if list == nil || list.Leader == 0 {
						return fmt.Errorf("no list: %+v", health)
					}
					for j, other := range s.Members {
						if h := health[other.Name]; !h.Serving() || h.Anonymous != (j <= i) {
							return fmt.Errorf("%s: %+v", other.Name, h)
						}
					}
					return nil
				})
			}
		})

		chapter(t, "who comes without a certificate", func(t *testing.T) {
			none := s.anonymous(t, clientv3.Config{})
			_, err := none.Get(shortly(t), "/app/x")
			require.ErrorIs(t, err, rpctypes.ErrUserEmpty)
			web := s.anonymous(t, clientv3.Config{Username: "web", Password: "web-1"})
			require.NoError(t, readsAndWrites(web, "/app/x")(shortly(t)))
			app := s.client(clientv3.Config{}, "root")
			_, err = app.Get(shortly(t), "/app/x")
			require.ErrorIs(t, err, rpctypes.ErrUserEmpty, "a certificate says nothing any more")
		})

		chapter(t, "etcdctl, with the authority and a password", func(t *testing.T) {
			ctl := exec.CommandContext(t.Context(), etcdproc.Program(t, version, "etcdctl"),
				"--endpoints="+s.Members[0].ClientURL, "--cacert="+s.ca.File("ca.crt"), "--user=web:web-1", "get", "/app/x")
			ctl.Env = append(os.Environ(), "ETCDCTL_API=3")
			out, err := ctl.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "/app/x\nv")
		})

		chapter(t, "what Quorate does, it may do", func(t *testing.T) { whatATokenMay(t, s, version, want) })

		chapter(t, "Quorate comes without a quorum, and where root's password is another one", func(t *testing.T) {
			s.mu.Lock()
			s.secrets["root"] = "another"
			s.mu.Unlock()
			list, _ := look()
			require.NotNil(t, list)
			for _, m := range s.Members[1:] {
				m.Kill()
			}
			etcdproc.Eventually(t, "the last one answers, without a leader", func(context.Context) error {
				list, health := look()
				h := health[s.Members[0].Name]
				return while(h.Err != "" || h.Leader != 0 || list != nil || h.Auth == nil || !*h.Auth, "%+v", h)
			})
			_, err := s.anonymous(t, clientv3.Config{}).Authenticate(shortly(t), "web", "web-1")
			require.Error(t, err, "a password needs a quorum")
			for _, m := range s.Members[1:] {
				m.Restart()
			}
			s.mu.Lock()
			s.secrets["root"] = "root-1"
			s.mu.Unlock()
		})

		chapter(t, "the Secret for tokens was replaced: Quorate comes with root's password", func(t *testing.T) {
			other := &secured{ca: etcdproc.NewAuthority(t)}
			visitor := s.visitor(other.key(t))
			var list *observation.Membership
			etcdproc.Eventually(t, "all are seen", func(context.Context) error {
				var health map[string]observation.Health
				list, health = visitor.Observe(t.Context(), s.asked())
				for name, h := range health {
					if list == nil || !h.Serving() || !h.TokenRefused || h.Auth != nil {
						return fmt.Errorf("%s: %+v", name, h)
					}
				}
				return nil
			})
			require.NoError(t, visitor.Do(t.Context(), decision.Authorize{Want: want}, list, s.asked()))
		})
	})
}

// whatATokenMay goes through all calls that Quorate makes.
func whatATokenMay(t *testing.T, s *secured, version string, want users.Want) {
	key := s.key(t)
	e := s.visitor(key)
	list, health := e.Observe(t.Context(), s.asked())
	require.NotNil(t, list, "%+v", health)
	do := func(step decision.Step) {
		t.Helper()
		etcdproc.Eventually(t, step.String(), func(context.Context) error {
			list, _ = e.Observe(t.Context(), s.asked())
			err := e.Do(t.Context(), step, list, s.asked())
			if errors.Is(err, etcdops.ErrPeerURLExists) {
				return nil
			}
			return err
		})
	}
	do(decision.Authorize{Want: want})
	want.Roles = append(want.Roles, role("one-more"))
	do(decision.Authorize{Want: want})
	do(decision.Compact{Revision: 1})
	do(decision.Defragment{ID: list.Members[0].ID, Name: list.Members[0].Name})
	do(decision.Disarm{ID: list.Members[0].ID, Kind: observation.AlarmNoSpace})
	other := list.Members[0]
	if other.ID == list.Leader {
		other = list.Members[1]
	}
	do(decision.MoveLeader{To: other.ID, Name: other.Name})
	m := s.NewMember("demo-3")
	m.Become(version, append(noClientAuth(), s.ca.JWT())...)
	do(decision.AddLearner{Name: m.Name, PeerURL: m.PeerURL})
	s.Join(m, s.Members[:3]...)
	list, _ = e.Observe(t.Context(), s.asked())
	do(decision.Promote{ID: idOf(t, list, m), Name: m.Name})
	do(decision.Remove{ID: idOf(t, list, m), Name: m.Name})
	s.Members = s.Members[:3]

	visitor := token.NewVisitor(key)
	once, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Members[0].ClientURL}, TLS: s.trusting(),
		DialOptions: visitor.Options(), MaxUnaryRetries: 1})
	require.NoError(t, err)
	defer func() { _ = once.Close() }()
	_, err = pb.NewMaintenanceClient(once.ActiveConnection()).HashKV(shortly(t), &pb.HashKVRequest{})
	require.NoError(t, err)
	stream, err := once.Snapshot(shortly(t))
	require.NoError(t, err)
	_ = stream.Close()
	_, err = once.Get(shortly(t), "\x00")
	require.ErrorIs(t, err, rpctypes.ErrAuthOldRevision, "keys take the very revision")
	status, err := once.AuthStatus(shortly(t))
	require.NoError(t, err)
	visitor.Knows(status.AuthRevision)
	_, err = once.Get(shortly(t), "\x00")
	require.NoError(t, err)
}
