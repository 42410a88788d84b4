//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClaims: a cluster is deleted under a writer and leaves its claims. One of the same name begins with them: not
// with one alone, and with a quorum's it has all that was acknowledged. The old claims stay as they are.
func TestClaims(t *testing.T) {
	beside(t)
	spec := three + "  storage: {size: 128Mi}\n  deletionPolicy: Retain\n"
	c := newCluster(t, spec)
	c.converges(3)
	former := c.object().Status.ClusterID
	w := c.writes()
	w.wrote(30)
	c.kube("delete", "etcdcluster", name)
	w.ends()
	uids := map[string]string{}
	for _, claim := range c.claims(3) {
		uids[claim.Name] = string(claim.UID)
	}
	eventually(t, "all but the claims is gone", func() string {
		left := c.left()
		if len(left) == 3 && strings.Count(strings.Join(left, " "), "pvc/") == 3 {
			return ""
		}
		return strings.Join(left, " ")
	})

	c.apply(spec + "  bootstrap: {claims: {names: [demo-1]}}\n")
	said := c.decides("Record", "which is no quorum")
	assert.Contains(t, said, "the claims are of 1 of the 3 former members")
	assert.Contains(t, said, "those of demo-0, demo-2 are missing")
	assert.Empty(t, c.pods())

	c.edit(`{"bootstrap":{"claims":{"names":["demo-0","demo-1","demo-2"]}}}`)
	took := c.converges(3)
	assert.Empty(t, missing(w.acked, c.present(w.word)))
	t.Logf("three members served what three claims had, %d writes, after %.1f s", len(w.acked), took.Seconds())
	s := c.object().Status
	require.NotNil(t, s.Origin)
	assert.Equal(t, "Claims", s.Origin.Source)
	assert.Contains(t, s.Origin.Evidence, "of etcd cluster "+former)
	assert.NotEqual(t, former, s.ClusterID)
	for _, claim := range c.claims(6) {
		if uid := uids[claim.Name]; uid != "" {
			assert.Equal(t, uid, string(claim.UID))
			assert.Empty(t, claim.OwnerReferences)
			delete(uids, claim.Name)
		}
	}
	assert.Empty(t, uids, "claims that are gone")
	c.writesWith(c.client(), "after").losesNothing()
}
