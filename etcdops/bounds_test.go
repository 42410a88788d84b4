package etcdops

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

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
		"it lists 65 members":                                  func(f *fake) { f.members = members(65, same) },
		"member 1 with more than 16 URLs":                      one(func(m *pb.Member) { m.PeerURLs = make([]string, 17) }),
		"member 1 is longer than 1024 bytes":                   one(func(m *pb.Member) { m.Name = long[:1025] }),
		"another etcd answers at this address: its answer has": one(func(m *pb.Member) { m.Name = long }),
		"or can't be printed":                                  one(func(m *pb.Member) { m.ClientURLs = []string{"http://a\x1b[2J"} }),
		"its status has 195 errors":                            func(f *fake) { f.status.Errors = make([]string, 195) },
		"an error in its status is longer":                     func(f *fake) { f.status.Errors = []string{long[:1025]} },
		"a version in its status is longer":                    func(f *fake) { f.status.Version = long[:65] },
		"its answer has more than 4 MiB":                       func(f *fake) { f.status.Errors = []string{long} },
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
