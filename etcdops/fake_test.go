package etcdops

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// A fake is one member of a made-up cluster that answers what the test says. Its fields are set before it is asked.
type fake struct {
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedKVServer

	endpoint observation.Endpoint
	header   *pb.ResponseHeader
	status   *pb.StatusResponse
	members  []*pb.Member
	listErr  error
	// step is the answer to every change; hang makes it wait for the caller's deadline.
	step error
	hang bool
	hash *pb.HashKVResponse // nil is no answer

	mu    sync.Mutex
	asked []string
}

const testCluster, testTerm = 0xC1, 7

// fakes starts a cluster of n voters with IDs from 1, led by the first.
func fakes(t *testing.T, n int) []*fake {
	t.Helper()
	var list []*pb.Member
	for i := range n {
		list = append(list, &pb.Member{ID: uint64(i + 1), Name: name(i), PeerURLs: []string{peerURL(i)},
			ClientURLs: []string{"http://" + name(i)}})
	}
	var all []*fake
	for i := range n {
		f := &fake{
			header:  &pb.ResponseHeader{ClusterId: testCluster, MemberId: uint64(i + 1), RaftTerm: testTerm},
			members: list,
		}
		f.status = &pb.StatusResponse{
			Header: f.header, Version: "3.6.16", Leader: 1, RaftTerm: testTerm, RaftIndex: 100, RaftAppliedIndex: 100,
			DbSize: 20, DbSizeInUse: 10,
		}
		f.endpoint = observation.Endpoint{Name: name(i), ClientURL: "http://" + f.serve(t), PeerURL: peerURL(i)}
		all = append(all, f)
	}
	return all
}

func name(i int) string    { return fmt.Sprintf("demo-%d", i) }
func peerURL(i int) string { return fmt.Sprintf("http://demo-%d.demo-peers:2380", i) }

func (f *fake) serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	pb.RegisterClusterServer(s, f)
	pb.RegisterMaintenanceServer(s, f)
	pb.RegisterKVServer(s, f)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func (f *fake) note(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, call)
}

func (f *fake) calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fake) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	f.note("Status")
	return f.status, nil
}

// Alarm is etcd's question for the list of alarms, which it answers through the log, and the end of an alarm.
func (f *fake) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	if r.GetAction() == pb.AlarmRequest_GET {
		f.note("Alarm")
		return &pb.AlarmResponse{}, nil
	}
	return &pb.AlarmResponse{},
		f.change(ctx, fmt.Sprintf("Alarm %s %s %d", r.GetAction(), r.GetAlarm(), r.GetMemberID()))
}

func (f *fake) HashKV(_ context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	f.note(fmt.Sprintf("HashKV %d", r.GetRevision()))
	if f.hash == nil {
		return nil, fmt.Errorf("no hash")
	}
	return f.hash, nil
}

func (f *fake) Downgrade(ctx context.Context, r *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	return &pb.DowngradeResponse{},
		f.change(ctx, strings.TrimSpace(fmt.Sprintf("Downgrade %s %s", r.GetAction(), r.GetVersion())))
}

func (f *fake) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return &pb.CompactionResponse{}, f.change(ctx, fmt.Sprintf("Compact %d", r.GetRevision()))
}

func (f *fake) Defragment(ctx context.Context, _ *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return &pb.DefragmentResponse{}, f.change(ctx, "Defragment")
}

func (f *fake) MemberList(_ context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	f.note("MemberList")
	if !r.GetLinearizable() {
		return nil, fmt.Errorf("not linearizable")
	}
	if f.listErr != nil {
		return nil, f.listErr
	}
	return &pb.MemberListResponse{Header: f.header, Members: f.members}, nil
}

func (f *fake) change(ctx context.Context, call string) error {
	f.note(call)
	if f.hang {
		<-ctx.Done()
	}
	return f.step
}

func (f *fake) MemberAdd(ctx context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	return &pb.MemberAddResponse{},
		f.change(ctx, fmt.Sprintf("MemberAdd %v learner=%v", r.GetPeerURLs(), r.GetIsLearner()))
}

func (f *fake) MemberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	return &pb.MemberRemoveResponse{}, f.change(ctx, fmt.Sprintf("MemberRemove %d", r.GetID()))
}

func (f *fake) MemberPromote(ctx context.Context, r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	return &pb.MemberPromoteResponse{}, f.change(ctx, fmt.Sprintf("MemberPromote %d", r.GetID()))
}

func (f *fake) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	return &pb.MoveLeaderResponse{}, f.change(ctx, fmt.Sprintf("MoveLeader %d", r.GetTargetID()))
}

func endpointsOf(all []*fake) []observation.Endpoint {
	var endpoints []observation.Endpoint
	for _, f := range all {
		endpoints = append(endpoints, f.endpoint)
	}
	return endpoints
}

// refused is an address where nothing listens.
func refused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return "http://" + l.Addr().String()
}

// silent is an address that takes connections and says nothing, as an etcd does until it has a leader.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String()
}

func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}
