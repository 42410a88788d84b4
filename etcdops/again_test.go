package etcdops

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// TestAgainTellsWhatObserveTells: the same answers, over connections that stay.
func TestAgainTellsWhatObserveTells(t *testing.T) {
	all := fakes(t, 3)
	var told []string
	e := &Etcd{Timeout: 5 * time.Second, Observer: func(call string, _ time.Duration, err error) {
		told = append(told, fmt.Sprint(call, " ", err))
	}}
	m, health := e.Observe(t.Context(), endpointsOf(all))
	again := e.Again(endpointsOf(all))
	defer again.Close()
	for range 3 {
		ours, theirs := again.Observe(t.Context())
		assert.Equal(t, m, ours)
		assert.Equal(t, health, theirs)
	}
	first := again.kept[0]
	_, _ = again.Observe(t.Context())
	assert.Same(t, first, again.kept[0])
	assert.Len(t, told, 5*4, "its calls are counted as others are")

	all[1].status.RaftAppliedIndex = 200
	all[0].members = append(all[0].members, &pb.Member{ID: 9, PeerURLs: []string{"http://nine:2380"}})
	ours, theirs := again.Observe(t.Context())
	m, health = e.Observe(t.Context(), endpointsOf(all))
	assert.Equal(t, m, ours)
	assert.Equal(t, health, theirs)
}

// TestAgainLetsGoOfWhatFails: an error is told as Observe tells it, and the next call connects again.
func TestAgainLetsGoOfWhatFails(t *testing.T) {
	for name, breaks := range map[string]func(all []*fake){
		"no list": func(all []*fake) {
			for _, f := range all {
				f.listErr = rpctypes.ErrGRPCNoLeader
			}
		},
		"another etcd":   func(all []*fake) { all[2].header.ClusterId = 7 },
		"a long version": func(all []*fake) { all[1].status.Version = fmt.Sprintf("%0100d", 3) },
		"a long answer":  func(all []*fake) { all[1].status.Version = fmt.Sprintf("%0100000d", 3) },
	} {
		t.Run(name, func(t *testing.T) {
			all := fakes(t, 3)
			e := &Etcd{Timeout: 5 * time.Second}
			again := e.Again(endpointsOf(all))
			_, _ = again.Observe(t.Context())
			require.NotNil(t, again.kept)
			breaks(all)
			ours, theirs := again.Observe(t.Context())
			m, health := e.Observe(t.Context(), endpointsOf(all))
			assert.Equal(t, m, ours)
			assert.Equal(t, health, theirs)
			assert.Nil(t, again.kept)
		})
	}
}

// TestAgainWhereNobodyListens: as Observe tells it.
func TestAgainWhereNobodyListens(t *testing.T) {
	all := fakes(t, 3)
	all[2].endpoint.ClientURL = refused(t)
	e := &Etcd{Timeout: 5 * time.Second}
	m, health := e.Observe(t.Context(), endpointsOf(all))
	ours, theirs := e.Again(endpointsOf(all)).Observe(t.Context())
	assert.Equal(t, m, ours)
	assert.Equal(t, health, theirs)

	all[2].endpoint.ClientURL = silent(t)
	quick := &Etcd{Timeout: 300 * time.Millisecond}
	_, health = quick.Again(endpointsOf(all)).Observe(t.Context())
	assert.Equal(t, observation.Health{Err: "no answer in time"}, health["demo-2"])
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, health = (&Etcd{Timeout: time.Hour}).Again(endpointsOf(all)).Observe(ctx)
	assert.Equal(t, observation.Health{Err: "no answer in time"}, health["demo-2"])
}

// TestAgainAsksNothingElse: what a kept connection can't tell is asked in another way.
func TestAgainAsksNothingElse(t *testing.T) {
	for name, endpoint := range map[string]observation.Endpoint{
		"an external member":   {External: true},
		"whether auth is on":   {AsksAuth: true},
		"whom its peers trust": {PeerAddress: "10.0.0.1:2380"},
	} {
		assert.Nil(t, new(Etcd).Again([]observation.Endpoint{{Name: "demo-0"}, endpoint}), name)
	}
}

// TestAKeptConnectionTakesNoSlot: one that has brought much is closed before it needs one.
func TestAKeptConnectionTakesNoSlot(t *testing.T) {
	all := fakes(t, 1)
	again := (&Etcd{Timeout: 5 * time.Second}).Again(endpointsOf(all))
	connections := map[*kept]bool{}
	for range 300 {
		_, _ = again.Observe(t.Context())
		if again.kept != nil {
			connections[again.kept[0]] = true
			assert.Less(t, again.kept[0].talk.brought.Load(), int64(smallTalk))
		}
	}
	assert.Greater(t, len(connections), 1)
	assert.Empty(t, slots)
}
