package etcdops

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// FuzzAnswer: whatever a member answers, in the place of each answer that is asked for, what is made of it takes no
// more memory than its room, and what comes with it.
func FuzzAnswer(f *testing.F) {
	kinds := []func() proto.Message{
		func() proto.Message { return &pb.MemberListResponse{} },
		func() proto.Message { return &pb.StatusResponse{} },
		func() proto.Message { return &pb.HashKVResponse{} },
		func() proto.Message { return &pb.AlarmResponse{} },
		func() proto.Message { return &pb.AuthStatusResponse{} },
		func() proto.Message { return &pb.AuthUserListResponse{} },
		func() proto.Message { return &pb.AuthUserGetResponse{} },
		func() proto.Message { return &pb.AuthRoleListResponse{} },
		func() proto.Message { return &pb.AuthRoleGetResponse{} },
		func() proto.Message { return &pb.RangeResponse{} },
	}
	for kind, text := range []proto.Message{
		&pb.MemberListResponse{Members: []*pb.Member{{ID: 1, Name: "demo-0", PeerURLs: []string{"https://demo-0:2380"}}}},
		&pb.StatusResponse{Version: "3.6.16", Errors: []string{"alarm"}}, &pb.HashKVResponse{Hash: 7},
		&pb.AlarmResponse{Alarms: []*pb.AlarmMember{{MemberID: 1}}}, &pb.AuthStatusResponse{Enabled: true},
		&pb.AuthUserListResponse{Users: []string{"root"}},
	} {
		raw, err := proto.Marshal(text)
		require.NoError(f, err)
		for times := 1; times <= 1<<12; times <<= 6 { // a field may come as often as it likes
			repeated := make([]byte, 0, times*len(raw))
			for range times {
				repeated = append(repeated, raw...)
			}
			f.Add(uint8(kind), repeated)
		}
	}
	f.Add(uint8(0), []byte{0x12, 0x00, 0x12, 0x00})
	f.Fuzz(func(t *testing.T, kind uint8, text []byte) {
		into := kinds[int(kind)%len(kinds)]()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, into)
		runtime.ReadMemStats(&after)
		// as it came, once more where it lies in pieces, and what is made of it
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(6*max(len(text), window)))
		if err != nil {
			require.NotEmpty(t, noAnswer(undecoded+": "+err.Error()), "%v", err) // as gRPC has it
		}
	})
}
