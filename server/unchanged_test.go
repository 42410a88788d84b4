package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// members are those of healthy, each behind a socket.
type members struct {
	lock   sync.Mutex
	told   *observation.Membership
	health map[string]observation.Health
	asked  int
	dialed int
	at     map[string]string // where a pod's address leads to
}

// member is one of them.
type member struct {
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedAuthServer

	*members

	name string
}

func (m *member) header() *pb.ResponseHeader {
	h := m.health[m.name]
	return &pb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID, RaftTerm: h.RaftTerm}
}

func (m *member) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.asked++
	h := m.health[m.name]
	return &pb.StatusResponse{Header: m.header(), Version: h.Version, Leader: h.Leader, RaftTerm: h.RaftTerm,
		RaftAppliedIndex: h.RaftIndex, DbSize: h.DBSize, DbSizeInUse: h.DBSizeInUse}, nil
}

func (m *member) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	list := &pb.MemberListResponse{Header: m.header()}
	for _, one := range m.told.Members {
		list.Members = append(list.Members, &pb.Member{ID: one.ID, Name: one.Name, PeerURLs: one.PeerURLs,
			ClientURLs: one.ClientURLs})
	}
	return list, nil
}

func (m *members) dial(ctx context.Context, address string) (net.Conn, error) {
	m.lock.Lock()
	m.dialed++
	to := m.at[address]
	m.lock.Unlock()
	return new(net.Dialer).DialContext(ctx, "tcp", to)
}

// calm is a server whose etcd is that, a call that settled it, and how many decisions it made.
func calm(t *testing.T) (s *Server, m *members, request map[string]any, decided *int) {
	t.Helper()
	m = &members{at: map[string]string{}}
	m.told, m.health = healthy{}.Observe(t.Context(), nil)
	m.edit(func(h *observation.Health) { h.DBSize-- }) // and not at the end of what is rounded alike
	require.NoError(t, json.Unmarshal(steady(t), &request))
	for name, pod := range at(request, "children", groupPods) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		g := grpc.NewServer()
		one := &member{members: m, name: name}
		pb.RegisterClusterServer(g, one)
		pb.RegisterMaintenanceServer(g, one)
		pb.RegisterAuthServer(g, one)
		go func() { _ = g.Serve(l) }()
		t.Cleanup(g.Stop)
		ip, _ := at(pod, "status")["podIP"].(string)
		m.at[ip+":2379"] = l.Addr().String()
	}
	s, _ = testServer(Options{Etcd: &etcdops.Etcd{Dial: m.dial, Timeout: 5 * time.Second}})
	s.unchanged.room = 1 << 30
	decided = new(int)
	s.syncFn = func(ctx context.Context, o observation.Observation, etcd hooks.Etcd) (decision.Decision, *decision.Outcome) {
		*decided++
		return hooks.Sync(ctx, o, etcd)
	}
	request = settled(t, s.Handler())
	*decided = 0
	return s, m, request, decided
}

// uidOf is the cluster that a call is about.
func uidOf(request map[string]any) types.UID {
	uid, _ := at(request, "parent", "metadata")["uid"].(string)
	return types.UID(uid)
}

func called(t *testing.T, s *Server, request map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(request)
	require.NoError(t, err)
	w := post(s.Handler(), "/sync", raw)
	require.Equal(t, 200, w.Code, w.Body.String())
	return w.Body.String()
}

// TestAnUnchangedCallIsAnsweredAsBefore: with no decision, and no new connection, while clients write.
func TestAnUnchangedCallIsAnsweredAsBefore(t *testing.T) {
	s, m, request, decided := calm(t)
	first := called(t, s, request)
	once := *decided
	for n := range 10 {
		assert.Equal(t, first, called(t, s, request))
		m.lock.Lock()
		for name, h := range m.health {
			h.RaftIndex += 10
			h.Revision += 10
			m.health[name] = h
		}
		m.lock.Unlock()
		if n == 0 {
			m.dialed = 0
		}
	}
	assert.Equal(t, once, *decided)
	assert.Zero(t, m.dialed)
	assert.Regexp(t, `(?m)^quorate_answers_repeated_total 1[01]$`, scraped(t, s))
	before := decidedAt(t, s)
	time.Sleep(5 * time.Millisecond)
	called(t, s, request)
	assert.Greater(t, decidedAt(t, s), before, "the newest replica counts")
}

// scraped is what Prometheus is told.
func scraped(t *testing.T, s *Server) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.pages().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return w.Body.String()
}

func decidedAt(t *testing.T, s *Server) float64 {
	t.Helper()
	line := regexp.MustCompile(`(?m)^quorate_cluster_decided_timestamp_seconds\{.*\} (.*)$`).FindStringSubmatch(scraped(t, s))
	require.NotNil(t, line)
	at, err := strconv.ParseFloat(line[1], 64) // as text, ...405323 comes before ...4053
	require.NoError(t, err)
	return at
}

// TestAChangedCallIsDecided: by what is in it, by what a member tells, and by the time.
func TestAChangedCallIsDecided(t *testing.T) {
	for name, change := range map[string]func(s *Server, m *members, request map[string]any){
		"an object": func(_ *Server, _ *members, request map[string]any) {
			at(request, "parent", "metadata")["resourceVersion"] = "999999"
		},
		"a member's term": func(_ *Server, m *members, _ map[string]any) { m.edit(func(h *observation.Health) { h.RaftTerm++ }) },
		"its leader":      func(_ *Server, m *members, _ map[string]any) { m.edit(func(h *observation.Health) { h.Leader++ }) },
		"its size": func(_ *Server, m *members, _ map[string]any) {
			m.edit(func(h *observation.Health) { h.DBSize += 100 << 20 })
		},
		"the list": func(_ *Server, m *members, _ map[string]any) {
			m.told.Members = append(m.told.Members, observation.Member{ID: 9, PeerURLs: []string{"http://other:2380"}})
		},
		"the time": func(s *Server, _ *members, _ map[string]any) {
			s.now = func() time.Time { return time.Now().Add(hooks.LongestRest) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, m, request, decided := calm(t)
			called(t, s, request)
			called(t, s, request)
			before := *decided
			m.lock.Lock()
			change(s, m, request)
			m.lock.Unlock()
			called(t, s, request)
			assert.Equal(t, before+1, *decided)
		})
	}
}

func (m *members) edit(change func(h *observation.Health)) {
	for name, h := range m.health {
		change(&h)
		m.health[name] = h
	}
}

// TestACallThatSaysNoPeriod: what does not rest is not kept, however often it comes.
func TestACallThatSaysNoPeriod(t *testing.T) {
	s, _, request, decided := calm(t)
	delete(at(request, "controller", "spec"), "resyncPeriodSeconds")
	at(request, "parent", "spec")["replicas"] = 5
	called(t, s, request)
	called(t, s, request)
	assert.Equal(t, 2, *decided)
}

// TestAMemberThatFailsIsAskedAsAlways: the call is decided, with what a new connection tells.
func TestAMemberThatFailsIsAskedAsAlways(t *testing.T) {
	s, m, request, decided := calm(t)
	called(t, s, request)
	called(t, s, request)
	before := *decided
	m.lock.Lock()
	for address := range m.at {
		m.at[address] = "127.0.0.1:1"
		break
	}
	m.lock.Unlock()
	assert.Equal(t, before, *decided)
	s.unchanged.forget(uidOf(request))
	assert.Contains(t, called(t, s, request), "WaitForMembers")
	assert.Equal(t, before+1, *decided)
}

// TestWhatIsKeptHasRoom: what there is no room for is not kept, and one namespace does not keep it all.
func TestWhatIsKeptHasRoom(t *testing.T) {
	again := new(etcdops.Etcd).Again(make([]observation.Endpoint, 3))
	one := func(namespace string) *resting {
		return &resting{namespace: namespace, again: again, answer: make([]byte, 1000), until: time.Now().Add(time.Minute)}
	}
	each := one("a").bytes()
	u := &unchanged{room: 4 * each}
	for n := range 5 {
		u.keep(types.UID(fmt.Sprint("a", n)), one("a"), time.Now())
	}
	assert.Len(t, u.clusters, 2, "half of the room")
	for n := range 5 {
		u.keep(types.UID(fmt.Sprint(strings.Repeat("b", n))), one(strings.Repeat("b", n)), time.Now())
	}
	assert.Len(t, u.clusters, 4)
	u.keep("a0", one("a"), time.Now())
	assert.Len(t, u.clusters, 4, "in the place of its own")
	for uid := range u.clusters {
		u.forget(uid)
	}
	assert.Zero(t, u.held)
	assert.Empty(t, u.namespaces)

	u.keep("0", one("0"), time.Now())
	u.keep("1", one("1"), time.Now())
	assert.Nil(t, u.of("0", [32]byte{}, time.Now().Add(time.Hour)))
	u.keep("later", one("later"), time.Now().Add(time.Hour))
	assert.Len(t, u.clusters, 1, "what is over makes room")
	long := one("long")
	long.told = 4 * each
	u.keep("long", long, time.Now())
	assert.Len(t, u.clusters, 1, "members that tell much")

	room := roomForUnchanged()
	assert.LessOrEqual(t, room/perConnection, mostOpenFiles()/partOfFiles, "a connection is a file")
}

// TestWhenAnAnswerIsOver: by the time that has passed, and where the clock stands for less or for more.
func TestWhenAnAnswerIsOver(t *testing.T) {
	from := time.Now()
	r := &resting{from: from, until: from.Add(time.Minute)}
	assert.False(t, r.over(from.Add(time.Second)))
	assert.True(t, r.over(from.Add(2*time.Minute)))
	assert.True(t, r.over(from.Round(0).Add(2*time.Minute)))
	assert.True(t, r.over(from.Round(0).Add(-time.Second)), "a clock that was put back")
}

// TestACallWithAStepIsNotKept: what is decided after a step is another decision than the next call's.
func TestACallWithAStepIsNotKept(t *testing.T) {
	s, _, request, decided := calm(t)
	syncs := s.syncFn
	s.syncFn = func(ctx context.Context, o observation.Observation, etcd hooks.Etcd) (decision.Decision, *decision.Outcome) {
		d, _ := syncs(ctx, o, etcd)
		return d, &decision.Outcome{Step: decision.Authorize{}}
	}
	s.unchanged.forget(uidOf(request))
	called(t, s, request)
	s.syncFn = syncs
	called(t, s, request)
	assert.Equal(t, 2, *decided)
}

// TestALargeCallIsNotGivenAgain: others wait while it is in memory, and its members may take their time.
func TestALargeCallIsNotGivenAgain(t *testing.T) {
	s, _, request, decided := calm(t)
	raw, err := json.Marshal(request)
	require.NoError(t, err)
	raw = append(bytes.Repeat([]byte(" "), largeBody), raw...)
	for range 2 {
		require.Equal(t, 200, post(s.Handler(), "/sync", raw).Code)
	}
	assert.Equal(t, 2, *decided)
}

// TestAChangeIsDecidedInTheSameTurn: to wait for another one could take all of the call's time.
func TestAChangeIsDecidedInTheSameTurn(t *testing.T) {
	s, m, request, decided := calm(t)
	called(t, s, request)
	called(t, s, request)
	before := *decided
	m.lock.Lock() // so its members do not answer
	m.edit(func(h *observation.Health) { h.RaftTerm++ })
	var both sync.WaitGroup
	both.Go(func() { called(t, s, request) })
	waits := func(calls int) func() bool {
		return func() bool {
			s.locks.mu.Lock()
			defer s.locks.mu.Unlock()
			q := s.locks.queues[uidOf(request)]
			return q != nil && q.calls == calls
		}
	}
	require.Eventually(t, waits(1), 5*time.Second, time.Millisecond)
	both.Go(func() {
		end, err := s.turn(t.Context(), uidOf(request))
		if assert.NoError(t, err) {
			assert.Equal(t, before+1, *decided)
			end()
		}
	})
	require.Eventually(t, waits(2), 5*time.Second, time.Millisecond)
	m.lock.Unlock()
	both.Wait()
}

// TestSlowMembersLeaveTimeToDecide: half of a call's time, as its turn does.
func TestSlowMembersLeaveTimeToDecide(t *testing.T) {
	s, m, request, decided := calm(t)
	s.options.CallTimeout = 4 * time.Second
	called(t, s, request)
	called(t, s, request)
	before := *decided
	m.lock.Lock()
	time.AfterFunc(s.options.CallTimeout/2+200*time.Millisecond, m.lock.Unlock)
	assert.Contains(t, called(t, s, request), `"Converged"`)
	assert.Equal(t, before+1, *decided)
}
