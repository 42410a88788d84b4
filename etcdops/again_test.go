package etcdops

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
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
	var lock sync.Mutex // members are asked at the same time
	var told []string
	e := &Etcd{Timeout: 5 * time.Second, Observer: func(call string, _ time.Duration, err error) {
		lock.Lock()
		defer lock.Unlock()
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

// TestAMemberThatTalksUnasked: what a member sends between two calls, or in a long answer, ends its connection. A slot
// would be taken from all clusters until the next call.
func TestAMemberThatTalksUnasked(t *testing.T) {
	all := fakes(t, 1)
	l := &chatty{}
	all[0].serveWith(t, func(inner net.Listener) net.Listener { l.Listener = inner; return l })
	again := (&Etcd{Timeout: 5 * time.Second}).Again(endpointsOf(all))
	defer again.Close()
	_, health := again.Observe(t.Context())
	require.Empty(t, health["demo-0"].Err)
	l.pings(t)
	assert.Eventually(t, func() bool { return again.kept[0].conn.Err() != nil }, 5*time.Second, time.Millisecond)
	assert.Empty(t, slots)
	_, health = again.Observe(t.Context())
	assert.NotEmpty(t, health["demo-0"].Err)

	all[0].status.Version = fmt.Sprintf("%0100000d", 3)
	_, health = again.Observe(t.Context())
	assert.NotEmpty(t, health["demo-0"].Err)
	assert.Empty(t, slots)
	assert.Nil(t, again.kept)
}

// chatty is a listener whose first connection can say more than its server does.
type chatty struct {
	net.Listener

	first *chattyConn
}

type chattyConn struct {
	net.Conn

	lock sync.Mutex
}

func (l *chatty) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &chattyConn{Conn: c}
	if l.first == nil {
		l.first = conn
	}
	return conn, nil
}

func (c *chattyConn) Write(p []byte) (int, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.Conn.Write(p)
}

// pings are as many as bring more than a connection may without a slot (PING, RFC 9113, section 6.7).
func (l *chatty) pings(t *testing.T) {
	t.Helper()
	ping := append([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0}, "12345678"...)
	_, _ = l.first.Write(bytes.Repeat(ping, 4*smallTalk/len(ping))) // it may be closed meanwhile
}
