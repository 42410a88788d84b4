package prepare

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/quorate-dev/quorate/etcdops/datadir"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// started is a member whose pod has started on empty volumes, with a log of its own or without, and whose etcd has
// not.
type started struct{ data, wal, marker string }

func start(t *testing.T, apart bool) started {
	dir := t.TempDir()
	write(t, dir, "state/other")
	s := started{data: filepath.Join(dir, "volume", "data"), marker: filepath.Join(dir, "state", "started")}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "volume"), 0o755))
	if apart {
		s.wal = filepath.Join(dir, "volume-wal", "wal")
		require.NoError(t, os.Mkdir(filepath.Join(dir, "volume-wal"), 0o755))
	}
	require.NoError(t, s.again(objects.StartBootstrap))
	return s
}

func (s started) again(start string) error { return check(s.data, s.wal, start, s.marker) }

func (s started) log() string { return datadir.LogDir(s.data, s.wal) }

// etcdBegins does to the directory what etcd does, by etcd's own code.
func (s started) etcdBegins(t *testing.T) {
	require.False(t, wal.Exist(s.log()), "etcd takes the mark for no log")
	require.NoError(t, os.MkdirAll(filepath.Join(s.data, "member", "snap"), 0o700))
	w, err := wal.Create(zap.NewNop(), s.log(), []byte("member"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
}

// TestAMemberThatNeverBeganMayBegin: the node rebooted while etcd's image could not be pulled.
func TestAMemberThatNeverBeganMayBegin(t *testing.T) {
	for _, apart := range []bool{false, true} {
		s := start(t, apart)
		for range 3 {
			require.NoError(t, s.again(objects.StartBootstrap))
			require.NoError(t, s.again(objects.StartJoin))
		}
		require.ErrorIs(t, s.again(objects.StartResume), ErrDataLost,
			"who has begun elsewhere is not told otherwise by a mark")
	}
}

// TestEtcdTakesTheMarkAway: from then on an empty directory is one that was emptied, however that was done.
func TestEtcdTakesTheMarkAway(t *testing.T) {
	for name, empties := range map[string]func(s started) string{
		"the data directory": func(s started) string { return s.data },
		"the folder member":  func(s started) string { return filepath.Join(s.data, "member") },
		"the log":            func(s started) string { return s.log() },
		"the volume":         func(s started) string { return filepath.Dir(s.data) },
	} {
		for _, apart := range []bool{false, true} {
			s := start(t, apart)
			s.etcdBegins(t)
			require.NoFileExists(t, filepath.Join(s.log(), markFile))
			require.NoError(t, s.again(objects.StartBootstrap), "it has its data")
			require.NoError(t, os.RemoveAll(empties(s)), name)
			require.ErrorIs(t, s.again(objects.StartBootstrap), ErrDataLost, name)
			require.ErrorIs(t, s.again(objects.StartJoin), ErrDataLost, name)
		}
	}
}

// TestOnlyItsOwnMarkCounts: another pod began there meanwhile, or this one's marker is of a release without marks.
func TestOnlyItsOwnMarkCounts(t *testing.T) {
	s := start(t, false)
	other := s
	other.marker += "-of-another-pod"
	require.NoError(t, other.again(objects.StartBootstrap), "it has not started before")
	require.ErrorIs(t, s.again(objects.StartBootstrap), ErrDataLost)
	require.NoError(t, other.again(objects.StartBootstrap))
	require.NoError(t, os.WriteFile(other.marker, nil, 0o600))
	require.ErrorIs(t, other.again(objects.StartBootstrap), ErrDataLost)
}

// TestAMarkIsNeverWhereALogIs: half of the data is no place for it, for etcd would go on there and leave it.
func TestAMarkIsNeverWhereALogIs(t *testing.T) {
	s := start(t, false)
	s.etcdBegins(t)
	require.NoError(t, os.RemoveAll(filepath.Join(s.data, "member", "snap")))
	other := s
	other.marker += "-of-another-pod"
	require.NoError(t, other.again(objects.StartBootstrap))
	require.NoFileExists(t, filepath.Join(s.log(), markFile))
	require.ErrorIs(t, other.again(objects.StartBootstrap), ErrDataLost)
	write(t, s.log(), markFile) // by another hand
	word, _, err := read(other.marker)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.log(), markFile), []byte(word), 0o600))
	require.ErrorIs(t, other.again(objects.StartBootstrap), ErrDataLost)
}

// TestAMarkThatCannotBeLeft: the member does not start, and is not taken for one that has.
func TestAMarkThatCannotBeLeft(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "data")
	marker := filepath.Join(dir, "started")
	err := check(filepath.Join(dir, "data", "x"), "", objects.StartBootstrap, marker)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrDataLost)
	require.NoFileExists(t, marker)
}
