//go:build unix

package seed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// stubborn makes this test program an etcd that has applied 7 entries, and does not end when it is told to.
const stubborn = "QUORATE_STUBBORN_ETCD"

func TestMain(m *testing.M) {
	if os.Getenv(stubborn) == "" {
		os.Exit(m.Run())
	}
	signal.Ignore(syscall.SIGTERM)
	for _, arg := range os.Args {
		if socket, is := strings.CutPrefix(arg, "--listen-client-urls=unix://"); is {
			serveMetrics(socket)
		}
	}
}

func serveMetrics(socket string) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, appliedMetric+"7")
	})))
}

func TestAnEtcdThatDoesNotEnd(t *testing.T) {
	t.Setenv(stubborn, "1")
	p := Programs{Etcd: os.Args[0], endsWithin: 10 * time.Millisecond}
	t.Run("is killed when it has done what it was started for", func(t *testing.T) {
		require.NoError(t, p.replay(t.Context(), staged{dataDir: t.TempDir()}, t.TempDir(), 7))
	})
	t.Run("and when the caller waits no longer", func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer stop()
		assert.ErrorContains(t, p.replay(ctx, staged{dataDir: t.TempDir()}, t.TempDir(), 8),
			"ended while etcd took up the survivor's log")
	})
}

// TestNoRoom: nothing is fetched when it will not fit, and what is there stays.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	o := Options{
		DataDir: filepath.Join(dir, "data"), WALDir: filepath.Join(dir, "log", "wal"), Size: 1 << 60,
		Fetch: func(context.Context, string) (*stores.Artifact, error) { t.Fatal("fetched"); return nil, nil },
	}
	_, err := Restore(t.Context(), o)
	require.Equal(t, noSpace, archive.ReasonOf(err), "%v", err)
	require.ErrorContains(t, err, "1152921504606.8 MB is needed (the database)")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)

	_, free, err := room(dir)
	require.NoError(t, err)
	require.NoError(t, checkRoom(needs{dir, free / 2, "one"}))
	err = checkRoom(needs{dir, free/2 + free/4, "one"}, needs{filepath.Join(dir, "not", "there"), free / 2, "another"})
	require.ErrorContains(t, err, "(one, another)", "what is on one volume adds up")
}
