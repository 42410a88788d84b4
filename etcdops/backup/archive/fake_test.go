//go:build unix

package archive

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/lone"
)

// envPrograms makes this test program etcd when it is run. Its value says how it behaves.
const envPrograms = "QUORATE_TEST_PROGRAMS"

func TestMain(m *testing.M) {
	behaviour := os.Getenv(envPrograms)
	client := os.Getenv(asClient)
	switch {
	case client != "":
		os.Exit(useStore(client))
	case behaviour == "" || len(os.Args) < 2:
	case strings.HasPrefix(os.Args[1], "--name="):
		etcd(behaviour, flagsOf(os.Args))
	}
	os.Exit(m.Run())
}

func flagsOf(args []string) map[string]string {
	flags := map[string]string{}
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		flags[name] = value
	}
	return flags
}

func die(words string) {
	fmt.Fprintln(os.Stderr, words)
	os.Exit(2)
}

// restores moves a database into a data directory, as behaviour says.
func restores(behaviour string) func(context.Context, string, string, *Contents) error {
	return func(_ context.Context, database, dataDir string, _ *Contents) error {
		said := &lone.Words{}
		switch behaviour {
		case "etcdutl panics":
			_, _ = said.Write([]byte("panic: page 17 already freed\n\ngoroutine 1 [running]:"))
			return Failure(Failed, &lone.Ended{Said: said, Err: errors.New("exit status 2")}, "no restore")
		case "the disk forgets":
			_, _ = said.Write([]byte("panic: unexpected fault address 0x7f0000002000\nfatal error: fault"))
			return Failure(Failed, &lone.Ended{Said: said, Err: errors.New("exit status 2")}, "no restore")
		case "the restore can't read it":
			return Failure(Damaged, nil, "the database is damaged")
		case "the disk is full":
			return Failure(NoSpace, nil, "no room")
		}
		to := filepath.Join(dataDir, "member", "snap", "db")
		err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.Rename(database, to))
		if behaviour == "the disk loses a part" {
			err = errors.Join(err, os.Truncate(to, 8192))
		}
		return err
	}
}

// etcd serves what its database holds.
func etcd(behaviour string, flags map[string]string) {
	switch behaviour {
	case "etcd panics":
		die("panic: proto: wrong wireType = 5 for field ID\n\ngoroutine 1 [running]:")
	case "etcd can't start":
		die(`{"level":"fatal","msg":"discovery failed","error":"listen unix: permission denied"}`)
	case "etcd has no room":
		die("panic: write wal: no space left on device")
	case "etcd is killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "etcd hangs":
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		<-stop
		os.Exit(0)
	}
	contents, err := Examine(context.Background(), filepath.Join(flags["data-dir"], "member", "snap", "db"))
	if err != nil {
		die(err.Error())
	}
	f := &fake{keys: contents.Keys, revision: contents.Revision, compacted: contents.CompactRevision, name: "trial"}
	_, _ = fmt.Sscanf(contents.Hash, "%x", &f.hash)
	if behaviour == "etcd counts otherwise" {
		f.keys++
	}
	options := []grpc.ServerOption{}
	if flags["cert-file"] != "" {
		own, err := tls.LoadX509KeyPair(flags["cert-file"], flags["key-file"])
		if err != nil {
			die(err.Error())
		}
		options = append(options, grpc.Creds(credentials.NewServerTLSFromCert(&own)))
	}
	_, socket, _ := strings.Cut(flags["listen-client-urls"], "://")
	l, err := net.Listen("unix", socket)
	if err != nil {
		die(err.Error())
	}
	go f.serve(l, options...)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	os.Exit(0)
}

// fakeCluster is a cluster of members that answer what the test says.
type fakeCluster struct {
	mu           sync.Mutex
	id           uint64
	members      []*fake
	revision     int64 // of a linearizable read
	authRevision uint64
	// asked is called before each answer of a member, with the question.
	asked func(f *fake, question string)
}

// fake is one of them. The first is the leader.
type fake struct {
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedKVServer
	pb.UnimplementedAuthServer

	cluster  *fakeCluster // nil for an etcd on trial
	id       uint64
	name     string
	url      string
	database []byte // sealed
	// revision that it has applied, and what it says of its keys at any.
	revision, compacted, keys int64
	hash                      uint32
	past                      map[int64]said
	applied                   uint64 // entry of the log, where it is not the revision
	silent                    bool   // about hashes and keys
	stop                      func()
	taken                     int // snapshots
}

// said is what a member says of a revision.
type said struct {
	keys int64
	hash uint32
}

// says is what the member says of a revision.
func (f *fake) says(revision int64) (said, error) {
	switch past, has := f.past[revision]; {
	case f.silent:
		return said{}, rpctypes.ErrGRPCCompacted
	case revision == f.revision || revision == 0:
		return said{f.keys, f.hash}, nil
	case revision > f.revision:
		return said{}, rpctypes.ErrGRPCFutureRev
	case has:
		return past, nil
	case revision == 1 && f.compacted <= 1:
		return said{}, nil
	}
	return said{}, rpctypes.ErrGRPCCompacted
}

// fakes starts a cluster of n voters with one database, of this many keys.
func fakes(t *testing.T, n, keys int) *fakeCluster {
	t.Helper()
	c := &fakeCluster{id: 0xC1, authRevision: 1, asked: func(*fake, string) {}}
	for i := range n {
		f := &fake{cluster: c, id: uint64(i + 1), name: fmt.Sprintf("demo-%d", i)}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		f.url = "http://" + l.Addr().String()
		f.stop = f.serve(l)
		t.Cleanup(f.stop)
		c.members = append(c.members, f)
	}
	c.holds(t, keys, c.members...)
	return c
}

// holds gives members a database of so many keys, each written once, and all that follows from it. The last one tells
// the cluster's revision.
func (c *fakeCluster) holds(t *testing.T, keys int, members ...*fake) {
	t.Helper()
	c.hold(t, keys, 0, members...)
}

// hold is the same, with values of such bytes.
func (c *fakeCluster) hold(t *testing.T, keys int, value byte, members ...*fake) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	makeDatabase(t, file, keys, c.authRevision, value)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	contents, err := Examine(context.Background(), file)
	require.NoError(t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range members {
		if f.past == nil {
			f.past = map[int64]said{}
		}
		f.past[f.revision] = said{f.keys, f.hash}
		f.database, f.revision, f.keys = sealed(raw), contents.Revision, contents.Keys
		_, err = fmt.Sscanf(contents.Hash, "%x", &f.hash)
		require.NoError(t, err)
		c.revision = max(c.revision, f.revision)
	}
}

// makeDatabase writes one as etcd does, as far as it is looked at here.
func makeDatabase(t *testing.T, file string, keys int, authRevision uint64, fill byte) {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{"key", "meta", "auth", "lease"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		if err := tx.Bucket([]byte("auth")).Put([]byte("authRevision"),
			binary.BigEndian.AppendUint64(nil, authRevision)); err != nil {
			return err
		}
		for i := range keys {
			revision := uint64(i + 2)
			value, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte("key-" + strconv.Itoa(i)),
				CreateRevision: int64(revision), ModRevision: int64(revision), Version: 1,
				Value: bytes.Repeat([]byte{fill}, 100)})
			if err != nil {
				return err
			}
			name := binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint64(nil, revision), '_'), 0)
			if err := tx.Bucket([]byte("key")).Put(name, value); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (f *fake) serve(l net.Listener, options ...grpc.ServerOption) (stop func()) {
	s := grpc.NewServer(options...)
	pb.RegisterClusterServer(s, f)
	pb.RegisterMaintenanceServer(s, f)
	pb.RegisterKVServer(s, f)
	pb.RegisterAuthServer(s, f)
	go func() { _ = s.Serve(l) }()
	return s.Stop
}

func (f *fake) answers(question string) func() {
	if f.cluster == nil {
		return func() {}
	}
	f.cluster.mu.Lock()
	f.cluster.asked(f, question)
	return f.cluster.mu.Unlock
}

func (f *fake) header() *pb.ResponseHeader {
	h := &pb.ResponseHeader{MemberId: f.id, Revision: f.revision}
	if f.cluster != nil {
		h.ClusterId = f.cluster.id
	}
	return h
}

func (f *fake) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	defer f.answers("members")()
	list := &pb.MemberListResponse{Header: f.header()}
	for _, m := range f.cluster.members {
		list.Members = append(list.Members, &pb.Member{ID: m.id, Name: m.name, ClientURLs: []string{m.url}})
	}
	return list, nil
}

func (f *fake) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	defer f.answers("status")()
	return &pb.StatusResponse{Header: f.header(), Version: "3.6.16", Leader: 1,
		RaftAppliedIndex: max(uint64(f.revision), f.applied)}, nil
}

func (f *fake) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	defer f.answers("auth")()
	return &pb.AuthStatusResponse{Header: f.header(), AuthRevision: f.cluster.authRevision}, nil
}

// Range answers linearizable reads with the cluster's revision, and counts at any revision that it has.
func (f *fake) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	defer f.answers("range")()
	h := f.header()
	if f.cluster != nil && !r.GetSerializable() {
		h.Revision = f.cluster.revision
		return &pb.RangeResponse{Header: h}, nil
	}
	says, err := f.says(r.GetRevision())
	return &pb.RangeResponse{Header: h, Count: says.keys}, err
}

func (f *fake) HashKV(_ context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	defer f.answers("hash")()
	says, err := f.says(r.GetRevision())
	return &pb.HashKVResponse{Header: f.header(), Hash: says.hash, CompactRevision: f.compacted,
		HashRevision: r.GetRevision()}, err
}

func (f *fake) Snapshot(_ *pb.SnapshotRequest, to pb.Maintenance_SnapshotServer) error {
	done := f.answers("snapshot")
	f.taken++
	database := f.database
	done()
	for len(database) > 0 {
		n := min(len(database), 32<<10)
		if err := to.Send(&pb.SnapshotResponse{Blob: database[:n],
			RemainingBytes: uint64(len(database) - n)}); err != nil {
			return err
		}
		database = database[n:]
	}
	return nil
}

// taken is how many snapshots the members have given.
func (c *fakeCluster) taken() int {
	n := 0
	for _, f := range c.members {
		n += f.taken
	}
	return n
}

// order takes a snapshot of the cluster, with programs that behave so.
func (c *fakeCluster) order(t *testing.T, behaviour string) Order {
	t.Helper()
	t.Setenv(envPrograms, behaviour)
	o := Order{
		Place: Place{URL: "file:///folder", Dir: t.TempDir()}, Key: "shop/demo/nightly.db", Verify: true,
		Etcd: os.Args[0], Restore: restores(behaviour),
		Scratch: shortDir(t), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, f := range c.members {
		o.Cluster.Endpoints = append(o.Cluster.Endpoints, f.url)
	}
	o.Cluster.patience = 300 * time.Millisecond
	return o
}

// shortDir is a folder whose path leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "q")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// soon is a context that ends before a test hangs.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(stop)
	return ctx
}
