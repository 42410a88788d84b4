//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/wire"
)

// TestFleet: the calls about two clusters can be read, and share nothing that tells clusters apart.
func TestFleet(t *testing.T) {
	f, err := newFleet("testdata/call.json", 2)
	require.NoError(t, err)
	var bodies []string
	seen := map[string]bool{}
	for i, c := range f.clusters {
		var body bytes.Buffer
		f.fill(&body, c)
		bodies = append(bodies, body.String())
		asked, err := wire.ReadCluster(t.Context(), &body)
		require.NoError(t, err)
		o := asked.Observation(time.Now(), observation.Settings{})
		require.Len(t, o.Children.Pods, 3)
		for _, e := range facts.Endpoints(o) {
			assert.False(t, seen[e.ClientURL], "two members are at %s", e.ClientURL)
			seen[e.ClientURL] = true
		}
		for name, s := range o.Children.Secrets {
			assert.Empty(t, s.Flaw, "Secret %s of cluster %d", name, i)
		}
		for _, c := range o.Cluster.Status.TLS.Certificates {
			shown := o.Children.Secrets[c.SecretRef.Name].Certificate
			assert.True(t, shown.NotAfter.Equal(c.NotAfter.Time), "else a call changes the status: %s", c.Name)
		}
		assert.False(t, seen[string(o.Cluster.UID)])
		seen[string(o.Cluster.UID)] = true
		own := c.values["secret/demo-server-tls/tls.crt"]
		assert.Equal(t, 1, strings.Count(bodies[i], own), "the certificate is in the Secret alone")
	}
	assert.NotContains(t, bodies[1], f.clusters[0].values["secret/demo-server-tls/tls.crt"])
}

func TestQueue(t *testing.T) {
	q := newQueue()
	for _, n := range []int{1, 2, 1} {
		q.add(n)
	}
	first, _, _ := q.get()
	assert.Equal(t, 1, first)
	q.add(1) // comes back when it is done, and not before
	second, _, _ := q.get()
	assert.Equal(t, 2, second)
	assert.Equal(t, 2, q.left())
	q.done(1)
	again, _, _ := q.get()
	assert.Equal(t, 1, again)
	q.close()
	_, _, ok := q.get()
	assert.False(t, ok)
}
