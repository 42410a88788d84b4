//go:build unix

// Package conformance checks what Quorate believes about etcd against real etcd processes of every supported minor
// version: package etcdops is driven as the hooks drive it. Differences between the versions are in README.md.
package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// atOnce is how many clusters run at the same time unless -parallel says otherwise. They mostly wait for etcd's timers.
const atOnce = "10"

func TestMain(m *testing.M) {
	etcdproc.Main()
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// while is the error of a wait as long as something holds: what it still sees.
func while(holds bool, sees string, args ...any) error {
	if !holds {
		return nil
	}
	return fmt.Errorf(sees, args...)
}

// done insists that etcd has done what it was asked.
func done(t *testing.T) func(answer any, err error) {
	return func(_ any, err error) {
		t.Helper()
		require.NoError(t, err)
	}
}

// page is what is said to a GET.
func page(ctx context.Context, transport http.RoundTripper, url string) (code int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// eachVersion tells a story once per version of etcd. Its chapters build on each other.
func eachVersion(t *testing.T, story func(t *testing.T, version string)) {
	t.Parallel()
	for _, version := range etcdproc.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			story(t, version)
		})
	}
}

// chapter is one case of a story. The story ends when it fails.
func chapter(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	if !t.Run(name, f) {
		t.FailNow()
	}
}

// look observes until a quorum answers.
func look(t *testing.T, endpoints []observation.Endpoint) (*observation.Membership, map[string]observation.Health) {
	t.Helper()
	var m *observation.Membership
	var health map[string]observation.Health
	etcdproc.Eventually(t, "a quorum answers, with a leader that is known", func(ctx context.Context) error {
		m, health = new(etcdops.Etcd).Observe(ctx, endpoints)
		return while(m == nil || m.Leader == 0, "%+v", health)
	})
	return m, health
}

// do carries out a step on the membership of the moment.
func do(t *testing.T, c *etcdproc.Cluster, step decision.Step) error {
	t.Helper()
	m, _ := look(t, c.Endpoints())
	return new(etcdops.Etcd).Do(t.Context(), step, m, c.Endpoints())
}

// settle does a step again while etcd asks to wait, and returns how long that took.
func settle(t *testing.T, c *etcdproc.Cluster, step decision.Step) time.Duration {
	t.Helper()
	began := time.Now()
	etcdproc.Eventually(t, step.String(), func(context.Context) error {
		err := do(t, c, step)
		if err != nil && !waits(err) {
			require.NoError(t, err)
		}
		return err
	})
	return time.Since(began)
}

// waits reports whether nothing was done yet: etcd asks to wait, or was not asked, as on a machine that is busy with
// other things.
func waits(err error) bool {
	return errors.Is(err, etcdops.ErrUnhealthy) || errors.Is(err, etcdops.ErrLearnerNotReady) ||
		errors.Is(err, etcdops.ErrNoQuorum) || errors.Is(err, etcdops.ErrLearnerCutOff)
}

// repeat does a step that may be done twice until etcd says that it is done.
func repeat(t *testing.T, c *etcdproc.Cluster, step decision.Step) {
	t.Helper()
	etcdproc.Eventually(t, step.String(), func(context.Context) error {
		err := do(t, c, step)
		if err != nil && !waits(err) && !errors.Is(err, etcdops.ErrNoAnswer) {
			require.NoError(t, err)
		}
		return err
	})
}

// idOf is the member's ID in the member list; the test fails when it is not in it.
func idOf(t *testing.T, m *observation.Membership, member *etcdproc.Member) uint64 {
	t.Helper()
	for _, entry := range m.Members {
		if entry.PeerURLs[0] == member.PeerURL {
			return entry.ID
		}
	}
	t.Fatalf("%s is not in the member list", member.Name)
	return 0
}

// leaderAndFollowers tells the running members apart.
func leaderAndFollowers(t *testing.T, c *etcdproc.Cluster) (leader *etcdproc.Member, followers []*etcdproc.Member) {
	t.Helper()
	m, _ := look(t, c.Endpoints())
	for _, member := range c.Members {
		switch {
		case !member.Running():
		case idOf(t, m, member) == m.Leader:
			leader = member
		default:
			followers = append(followers, member)
		}
	}
	require.NotNil(t, leader, "the leader is one of ours")
	return leader, followers
}

func add(m *etcdproc.Member) decision.Step {
	return decision.AddLearner{Name: m.Name, PeerURL: m.PeerURL}
}

func killAll(c *etcdproc.Cluster) {
	for _, m := range c.Members {
		m.Kill()
	}
}
