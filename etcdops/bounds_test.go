package etcdops

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// TestAnswersOfNoEtcd: one process asks the members of all tenants, and a tenant may choose what answers. An answer
// that no etcd gives is none: it costs little, and its text goes nowhere.
func TestAnswersOfNoEtcd(t *testing.T) {
	t.Parallel()
	members := func(n int, change func(*pb.Member)) []*pb.Member {
		var list []*pb.Member
		for i := range n {
			m := &pb.Member{ID: uint64(i + 1), Name: name(i), PeerURLs: []string{peerURL(i)}}
			change(m)
			list = append(list, m)
		}
		return list
	}
	same := func(*pb.Member) {}
	one := func(change func(*pb.Member)) func(*fake) {
		return func(f *fake) { f.members = members(1, change) }
	}
	long := strings.Repeat("x", 8<<20)
	for words, lie := range map[string]func(*fake){
		"it lists 65 members":                                        func(f *fake) { f.members = members(65, same) },
		"member 1 with more than 16 URLs":                            one(func(m *pb.Member) { m.PeerURLs = make([]string, 17) }),
		"member 1 is longer than 1024 bytes":                         one(func(m *pb.Member) { m.Name = long[:1025] }),
		"another etcd answers at this address: its answer is longer": one(func(m *pb.Member) { m.Name = long }),
		"or can't be printed":                                        one(func(m *pb.Member) { m.ClientURLs = []string{"http://a\x1b[2J"} }),
		"its status has 195 errors":                                  func(f *fake) { f.status.Errors = make([]string, 195) },
		"an error in its status is longer":                           func(f *fake) { f.status.Errors = []string{long[:1025]} },
		"a version in its status is longer":                          func(f *fake) { f.status.Version = long[:65] },
		"its answer is longer than an etcd's can be":                 func(f *fake) { f.status.Errors = []string{long} },
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			f := fakes(t, 1)[0]
			lie(f)
			membership, health := new(Etcd).Observe(t.Context(), []observation.Endpoint{f.endpoint})
			require.Nil(t, membership)
			require.Contains(t, health[f.endpoint.Name].Err, words)
			require.Less(t, len(health[f.endpoint.Name].Err), 300)
			require.Empty(t, health[f.endpoint.Name].Version)
		})
	}
}

// TestALargeListIsNotRead: what a list of 64 MiB costs, the etcd that sends it among it, is less than reading it once.
func TestALargeListIsNotRead(t *testing.T) {
	f := fakes(t, 1)[0]
	f.members[0].Name = strings.Repeat("x", 64<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	membership, _ := new(Etcd).Observe(t.Context(), []observation.Endpoint{f.endpoint})
	runtime.ReadMemStats(&after)
	require.Nil(t, membership)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20), "64 MiB to send it, and little to refuse it")
}

// TestManySmallAnswersThatBecomeLarge: nine members of a tenant answer with lists of members of two bytes each, as long
// as they may be. No such answer is decoded, and what all take together is little.
func TestManySmallAnswersThatBecomeLarge(t *testing.T) {
	for name, length := range map[string]int{"4 MiB": 4 << 20, "as long as it may be": largestAnswer - 64} {
		t.Run(name, func(t *testing.T) {
			answer := bytes.Repeat([]byte{2<<3 | 2, 0}, length/2)
			var endpoints []observation.Endpoint
			for range 9 {
				f := fakes(t, 1)[0]
				f.serveWith(t, plainly, grpc.ForceServerCodecV2(verbatim{}), always(answer))
				endpoints = append(endpoints, f.endpoint)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for _, endpoint := range endpoints {
				client, err := new(Etcd).open(t.Context(), endpoint)
				require.NoError(t, err)
				_, err = new(Etcd).memberList(t.Context(), client.ActiveConnection())
				require.ErrorIs(t, err, ErrOtherEtcd)
				require.NoError(t, client.Close())
			}
			membership, health := new(Etcd).Observe(t.Context(), endpoints)
			runtime.ReadMemStats(&after)
			require.Nil(t, membership)
			require.Contains(t, health[endpoints[0].Name].Err, "another etcd answers at this address: its answer ")
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), "18 answers were 330 MiB each")
		})
	}
}

// TestTheLongestAnswers: what a large etcd of many users says is taken.
func TestTheLongestAnswers(t *testing.T) {
	t.Parallel()
	room := func(of int) *int { room := 4 * max(of, window); return &room }
	for name, answer := range map[string]proto.Message{
		"members": &pb.MemberListResponse{Members: longList(mostMembers)},
		"alarms":  &pb.StatusResponse{Errors: slices.Repeat([]string{"memberID:16045690984503098046 alarm:NOSPACE "}, mostErrors)},
		"users":   &pb.AuthUserListResponse{Users: slices.Repeat([]string{"team-of-many-words:reader"}, 8000)},
		"role": &pb.AuthRoleGetResponse{Perm: slices.Repeat([]*authpb.Permission{{Key: []byte("/teams/one/"),
			RangeEnd: []byte("/teams/one0"), PermType: authpb.Permission_READWRITE}}, 500)},
	} {
		text, err := proto.Marshal(answer)
		require.NoError(t, err)
		require.LessOrEqual(t, len(text), largestList, name)
		require.NoError(t, weigh(text, answer.ProtoReflect().Descriptor(), room(len(text)), 0), name)
	}
}

func longList(n int) []*pb.Member {
	var list []*pb.Member
	for i := range n {
		url := fmt.Sprintf("https://orders-%d.orders-peers.a-namespace-of-some-length.svc.cluster.local:2380", i)
		list = append(list, &pb.Member{ID: 1<<63 + uint64(i), Name: name(i), PeerURLs: []string{url, url},
			ClientURLs: []string{url, url, url}})
	}
	return list
}

// TestFewBringMuchAtOnce: of connections that bring much, a few are read at a time, and one that brings little waits
// for none of them.
func TestFewBringMuchAtOnce(t *testing.T) {
	near := make([]net.Conn, 2*largeTalks)
	e := &Etcd{Dial: func(context.Context, string) (net.Conn, error) { return fulsome{}, nil }}
	var brought atomic.Int64
	var wg sync.WaitGroup
	for i := range near {
		conn, err := e.connect(t.Context(), "", nil)
		require.NoError(t, err)
		near[i] = conn
		wg.Go(func() {
			for range 100 {
				n, err := conn.Read(make([]byte, connBuffer))
				if err != nil {
					return
				}
				brought.Add(int64(n))
			}
		})
	}
	const all = largeTalks*100*connBuffer + largeTalks*smallTalk
	require.Eventually(t, func() bool { return brought.Load() == all }, 5*time.Second, time.Millisecond)
	small, err := e.connect(t.Context(), "", nil)
	require.NoError(t, err)
	_, err = small.Read(make([]byte, connBuffer))
	require.NoError(t, err, "it waits for no one")
	for _, conn := range near {
		require.NoError(t, conn.Close())
		require.NoError(t, conn.Close(), "twice, as clients do")
	}
	wg.Wait()
	require.Empty(t, slots, "all are given back")
}

// fulsome always has something to say.
type fulsome struct{ net.Conn }

func (fulsome) Read(p []byte) (int, error) { return len(p), nil }
func (fulsome) Close() error               { return nil }

// always answers with these bytes.
func always(answer []byte) grpc.ServerOption {
	return grpc.UnaryInterceptor(func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return answer, nil
	})
}

// verbatim has a server send what it was given.
type verbatim struct{}

func (verbatim) Marshal(v any) (mem.BufferSlice, error) {
	text, _ := v.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(text)}, nil
}
func (verbatim) Unmarshal(mem.BufferSlice, any) error { return nil }
func (verbatim) Name() string                         { return "proto" }
