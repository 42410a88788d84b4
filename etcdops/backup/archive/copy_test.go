package archive

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// sender is a member that answers a request for a snapshot with these bytes, and then breaks off if
// it is told to.
type sender struct {
	pb.UnimplementedMaintenanceServer
	sends  []byte
	breaks error
}

func (s *sender) Snapshot(_ *pb.SnapshotRequest, to pb.Maintenance_SnapshotServer) error {
	for sent := s.sends; len(sent) > 0; {
		n := min(len(sent), 32<<10)
		if err := to.Send(&pb.SnapshotResponse{Blob: sent[:n], RemainingBytes: uint64(len(sent) - n)}); err != nil {
			return err
		}
		sent = sent[n:]
	}
	return s.breaks
}

func (s *sender) serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	pb.RegisterMaintenanceServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return "http://" + l.Addr().String()
}

// TestCopyIsKnownToBeWhole: what a member sends counts only when it ends with etcd's own hash of
// it.
func TestCopyIsKnownToBeWhole(t *testing.T) {
	whole := database(300 << 10)
	for name, c := range map[string]struct {
		sends  []byte
		breaks error
		says   string
	}{
		"whole":                {whole, nil, ""},
		"nothing":              {nil, nil, "did not arrive as it was sent"},
		"cut off by a byte":    {whole[:len(whole)-1], nil, "did not arrive as it was sent"},
		"without its hash":     {whole[:len(whole)-32], nil, "did not arrive as it was sent"},
		"a flipped bit":        {flipped(whole, 1000), nil, "did not arrive as it was sent"},
		"a flipped bit behind": {flipped(whole, len(whole)-1), nil, "did not arrive as it was sent"},
		"broken off":           {whole[:100<<10], errors.New("the member ends"), "broke off"},
	} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "db")
			member := Cluster{Endpoints: []string{(&sender{sends: c.sends, breaks: c.breaks}).serve(t)}}
			found, err := member.Copy(t.Context(), to)
			if c.says == "" {
				require.NoError(t, err)
				copied, err := os.ReadFile(to)
				require.NoError(t, err)
				assert.Equal(t, c.sends, copied)
				assert.EqualValues(t, len(whole), found.Size)
				return
			}
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, Unreachable, ReasonOf(err), "it is worth another try")
			assert.NoFileExists(t, to)
		})
	}
}
