//go:build unix

// Package etcdproc runs clusters of real etcd processes on loopback for tests. A process is started, killed, paused and
// wiped one by one; nothing here talks to Kubernetes. All waiting is polling of a condition.
package etcdproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Patience is how long Eventually waits: far longer than anything takes on an idle machine.
const Patience = time.Minute

// A Cluster is a set of members in folders of one test. It ends with the test.
type Cluster struct {
	// Members in the order in which they came; those that were killed or removed stay in it.
	Members []*Member

	t       testing.TB
	version string
	dir     string
	token   string
	extra   []string
	ca      *Authority
}

// Start bootstraps n members named <name>-<i> and waits until all of them serve. Extra are more flags for each of them.
func Start(t testing.TB, version, name string, n int, extra ...string) *Cluster {
	t.Helper()
	return StartTLS(t, version, name, n, nil, extra...)
}

// StartTLS is Start for members that ask clients for a certificate of this authority; without one, they serve in
// plain text.
func StartTLS(t testing.TB, version, name string, n int, ca *Authority, extra ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, version: version, dir: t.TempDir(), token: name, extra: extra, ca: ca}
	for i := range n {
		c.Members = append(c.Members, newMember(t, version, c.dir, fmt.Sprintf("%s-%d", name, i), ca, extra))
	}
	for _, m := range c.Members {
		m.start("new", c.token, initialCluster(c.Members))
	}
	c.WaitServing(c.Members...)
	for _, m := range c.Members {
		c.waitVersion(m)
	}
	return c
}

// waitVersion waits until a member knows which version the cluster agreed on. Until then etcd 3.5 refuses to start as
// one that joins (etcdserver/cluster_util.go, isCompatibleWithVers); in a pod its kubelet would start it again.
func (c *Cluster) waitVersion(m *Member) {
	c.t.Helper()
	transport := &http.Transport{}
	if c.ca != nil {
		transport.TLSClientConfig = c.ca.Client("root")
	}
	defer transport.CloseIdleConnections()
	Eventually(c.t, "the cluster has a version", func(ctx context.Context) error {
		var said struct{ Etcdcluster string }
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.ClientURL+"/version", nil)
		if err != nil {
			return err
		}
		answer, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
			return err
		}
		if said.Etcdcluster == "not_decided" {
			return errors.New(said.Etcdcluster)
		}
		return nil
	})
}

// StartSeeded bootstraps n members whose data directories fill makes first: it gets the member, its initial cluster and
// token. They may not serve yet.
func StartSeeded(t testing.TB, version, name string, n int, fill func(m *Member, initialCluster, token string),
	extra ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, version: version, dir: t.TempDir(), token: name + "-seeded", extra: extra}
	for i := range n {
		c.Members = append(c.Members, newMember(t, version, c.dir, fmt.Sprintf("%s-%d", name, i), nil, extra))
	}
	for _, m := range c.Members {
		fill(m, initialCluster(c.Members), c.token)
	}
	for _, m := range c.Members {
		m.start("new", c.token, initialCluster(c.Members))
	}
	return c
}

// NewMember makes one more member, without starting it or telling etcd.
func (c *Cluster) NewMember(name string) *Member {
	c.t.Helper()
	m := newMember(c.t, c.version, c.dir, name, c.ca, c.extra)
	c.Members = append(c.Members, m)
	return m
}

// Join starts a member that was added to the member list. Others are the members of that list besides it.
func (c *Cluster) Join(m *Member, others ...*Member) {
	c.t.Helper()
	m.start("existing", c.token, initialCluster(append([]*Member{m}, others...)))
}

// Bootstrap starts a member as the first members are started, told that those are its initial cluster.
func (c *Cluster) Bootstrap(m *Member, initial ...*Member) {
	c.t.Helper()
	m.start("new", c.token, initialCluster(initial))
}

// BootstrapAgain starts a member as the first members are started, in a pod that has been told that it has begun.
func (c *Cluster) BootstrapAgain(m *Member) {
	c.t.Helper()
	m.start("new", c.token, objects.InitialClusterBegun)
}

func initialCluster(members []*Member) string {
	var entries []string
	for _, m := range members {
		entries = append(entries, m.Name+"="+m.PeerURL)
	}
	return strings.Join(entries, ",")
}

// Endpoints of the given members, or of all.
func (c *Cluster) Endpoints(of ...*Member) []observation.Endpoint {
	if len(of) == 0 {
		of = c.Members
	}
	var endpoints []observation.Endpoint
	for _, m := range of {
		endpoints = append(endpoints, m.Endpoint())
	}
	return endpoints
}

// WaitServing waits until each of these members answers its status and follows a leader.
func (c *Cluster) WaitServing(members ...*Member) {
	c.t.Helper()
	for _, m := range members {
		Eventually(c.t, m.Name+" serves", func(ctx context.Context) error {
			if !m.Running() {
				return fmt.Errorf("its process has ended")
			}
			client := m.Client()
			defer func() { _ = client.Close() }()
			s, err := client.Status(ctx, m.ClientURL)
			if err == nil && s.Leader == 0 {
				err = fmt.Errorf("it has no leader")
			}
			return err
		})
	}
}

// Put writes n small keys through one member.
func (m *Member) Put(n int) {
	m.t.Helper()
	client := m.Client()
	defer func() { _ = client.Close() }()
	for i := range n {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		_, err := client.Put(ctx, fmt.Sprintf("key-%d", i), "value")
		cancel()
		if err != nil {
			m.t.Fatalf("writing through %s: %v", m.Name, err)
		}
	}
}

// Client is etcd's own client to this member alone; with a certificate in the name root when the member asks for one.
// It is closed with the test.
func (m *Member) Client() *clientv3.Client {
	m.t.Helper()
	return m.ClientOf(clientv3.Config{}, "root")
}

// ClientOf is etcd's own client to this member alone, as configured, with a certificate in this name when the member
// asks for one.
func (m *Member) ClientOf(config clientv3.Config, name string) *clientv3.Client {
	m.t.Helper()
	config.Endpoints, config.Logger = []string{m.ClientURL}, zap.NewNop()
	if m.ca != nil {
		config.TLS = m.ca.Client(name)
	}
	client, err := clientv3.New(config)
	must(m.t, err)
	m.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Eventually polls a condition until it has no error. Each try has two seconds.
func Eventually(t testing.TB, what string, try func(context.Context) error) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < Patience; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err = try(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatalf("not within %s: %s: %v", Patience, what, err)
}
