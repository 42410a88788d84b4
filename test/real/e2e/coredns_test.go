//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestCoreDNS: a CoreDNS answers with what its user of etcd may read below one prefix. Questions come all the time,
// while etcd loses its leader and a claim, and is upgraded. What is written in between is answered next, and no name
// that is there is denied.
func TestCoreDNS(t *testing.T) {
	nightly(t)
	beside(t)
	c := newCluster(t, `  replicas: 3
  version: 3.6.16
  auth:
    enabled: true
    roles: [{name: dns, permissions: [{access: Read, prefix: /skydns/}]}]
    users: [{name: dns, roles: [dns], credential: Certificate}]
`)
	c.converges(3)
	dns := c.startsCoreDNS()
	dns.learns("first")
	ends, hosts := dns.asked("first"), 0
	c.suffers(func(what string) {
		ends(what)
		hosts++
		host := fmt.Sprintf("host-%d", hosts)
		dns.learns(host)
		ends = dns.asked(host)
	})
}

// nameServer is a CoreDNS on node 1 that has no cache.
type nameServer struct {
	t       *testing.T
	records *clientv3.Client
	net.Resolver
}

// startsCoreDNS with the Secret of its user.
func (c *cluster) startsCoreDNS() *nameServer {
	c.t.Helper()
	const address, process = "127.0.0.1:1053", "coredns-etcd"
	dir := c.t.TempDir()
	for key, content := range c.secretOf(name + "-client.dns") {
		require.NoError(c.t, os.WriteFile(filepath.Join(dir, key), content, 0o600))
	}
	config := filepath.Join(dir, "Corefile")
	require.NoError(c.t, os.WriteFile(config, fmt.Appendf(nil, `demo.test:1053 {
  bind 127.0.0.1
  errors
  etcd {
    endpoint https://%[1]s.%[2]s.svc:2379
    tls %[3]s/tls.crt %[3]s/tls.key %[3]s/ca.crt
  }
}
`, name, c.ns, dir), 0o600))
	inLab(c.t, "start", "1", process, "coredns", "-conf", config)
	c.t.Cleanup(func() { inLab(c.t, "stop", "1", process, "KILL") })
	return &nameServer{c.t, c.clientAs(name + "-operator-tls"), net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return lab.dialContext(ctx, address)
		},
	}}
}

const recorded = "192.0.2.7"

// learns a name, in the form of SkyDNS, and is asked until it knows it.
func (s *nameServer) learns(host string) {
	s.t.Helper()
	require.NoError(s.t, putting(s.t, s.records, "/skydns/test/demo/"+host, `{"host":"`+recorded+`"}`))
	eventually(s.t, host+" is answered", func() string {
		_, err := s.asks(host)
		return failure(err)
	})
}

// asks once. It reports whether the name is said not to be there.
func (s *nameServer) asks(host string) (denied bool, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	addresses, err := s.LookupHost(ctx, host+".demo.test.")
	if said := new(net.DNSError); errors.As(err, &said) && said.IsNotFound {
		return true, err
	}
	if err == nil && !slices.Equal(addresses, []string{recorded}) {
		err = fmt.Errorf("%s has the addresses %v", host, addresses)
	}
	return false, err
}

// asked for a name all the time, until what it returns is called, which tells of the longest time without an answer.
func (s *nameServer) asked(host string) (ends func(what string)) {
	ctx, stop := context.WithCancel(s.t.Context())
	var asking sync.WaitGroup
	var answers int
	var longest time.Duration
	var denial error
	asking.Go(func() {
		for last := time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			denied, err := s.asks(host)
			if denied {
				denial = err
			}
			longest = max(longest, time.Since(last))
			if err == nil {
				last = time.Now()
				answers++
			}
		}
	})
	s.t.Cleanup(asking.Wait)
	return func(what string) {
		s.t.Helper()
		stop()
		asking.Wait()
		require.NoError(s.t, denial, "a name that is there was denied")
		require.Positive(s.t, answers)
		s.t.Logf("%s: %d answers, the longest time without one was %.1f s", what, answers, longest.Seconds())
	}
}
