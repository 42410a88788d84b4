package chaos

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// fakeEtcd removes a member once.
type fakeEtcd struct {
	pb.UnimplementedClusterServer
	calls atomic.Int64
}

func (f *fakeEtcd) MemberRemove(context.Context, *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	if f.calls.Add(1) > 1 {
		return nil, status.Error(codes.NotFound, "etcdserver: member not found")
	}
	return &pb.MemberRemoveResponse{Members: []*pb.Member{{ID: 7}}}, nil
}

func serve(t *testing.T, s *grpc.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// TestTransparent: through the proxy, a call is what it would be without; the address that the caller meant is asked.
func TestTransparent(t *testing.T) {
	etcd := grpc.NewServer()
	fake := &fakeEtcd{}
	pb.RegisterClusterServer(etcd, fake)
	behind := serve(t, etcd)
	var saw []string
	proxy := &Etcd{
		Schedule: &Schedule{},
		Dial:     func(ctx context.Context, _ string) (net.Conn, error) { return dialTCP(ctx, behind) },
		Saw: func(method string, request, answer []byte) {
			var in pb.MemberRemoveRequest
			var out pb.MemberRemoveResponse
			assert.NoError(t, proto.Unmarshal(request, &in))
			assert.NoError(t, proto.Unmarshal(answer, &out))
			assert.Equal(t, uint64(3), in.ID)
			saw = append(saw, method)
		},
	}
	conn, err := grpc.NewClient(serve(t, proxy.Server()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client := pb.NewClusterClient(conn)
	answer, err := client.MemberRemove(t.Context(), &pb.MemberRemoveRequest{ID: 3})
	require.NoError(t, err)
	assert.Equal(t, uint64(7), answer.Members[0].ID)
	_, err = client.MemberRemove(t.Context(), &pb.MemberRemoveRequest{ID: 3})
	assert.Equal(t, "etcdserver: member not found", status.Convert(err).Message())
	assert.Equal(t, codes.NotFound, status.Code(err))
	_, err = client.MemberList(t.Context(), &pb.MemberListRequest{})
	assert.Equal(t, codes.Unimplemented, status.Code(err))
	assert.Equal(t, []string{"MemberRemove"}, saw)
}

func TestEtcdFaults(t *testing.T) {
	for fault, want := range map[faultKind]struct {
		calls int64
		code  codes.Code // of a caller that waits for 2 s
	}{
		calm: {1, codes.OK}, etcdRefused: {0, codes.Unavailable}, etcdDropped: {0, codes.DeadlineExceeded},
		etcdBroken: {1, codes.Unavailable}, etcdUnanswered: {1, codes.DeadlineExceeded},
		etcdOverdue: {1, codes.DeadlineExceeded},
		etcdSlow:    {1, codes.OK}, etcdAgain: {2, codes.NotFound},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			etcd := grpc.NewServer()
			fake := &fakeEtcd{}
			pb.RegisterClusterServer(etcd, fake)
			e := &Etcd{Schedule: &Schedule{}, Dial: dialTCP}
			request, err := proto.Marshal(&pb.MemberRemoveRequest{ID: 3})
			require.NoError(t, err)
			c := &rpc{e: e, address: serve(t, etcd), member: insecure.NewCredentials(),
				full: "/etcdserverpb.Cluster/MemberRemove", request: message{request}}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err = c.meet(ctx, fault, Dice(2, "test", 1))
			assert.Equal(t, want.code, status.Code(err), "%v", err)
			e.Wait()
			assert.Equal(t, want.calls, fake.calls.Load())
		})
	}
}
