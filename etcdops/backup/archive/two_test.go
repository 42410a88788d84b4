//go:build unix

package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Two runs write under one name when the node of a Job's pod is cut off: the pod is given up, and writes on.

// otherRun stores another database under the name at once, as a run does that is done, and returns its report.
func otherRun(t *testing.T, dir, name string, size int) *stores.Snapshot {
	t.Helper()
	s, err := openStore(context.Background(), Place{URL: "file:///folder", Dir: dir}, true)
	require.NoError(t, err)
	defer s.Close()
	stored, _, err := s.put(context.Background(), name, bytes.NewReader(database(size)),
		Form{Compression: v1beta1.CompressNone}, true)
	require.NoError(t, err)
	report := &stores.Snapshot{Artifact: *stored}
	require.NoError(t, s.finish(context.Background(), name, report))
	return report
}

// whole fails unless what another run has stored is there as it was.
func whole(t *testing.T, dir, name string, theirs *stores.Snapshot) {
	t.Helper()
	var record stores.Snapshot
	text, err := os.ReadFile(filepath.Join(dir, "folder", name+".json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &record))
	assert.Equal(t, theirs.StoredSHA256, record.StoredSHA256)
	sum, err := sumOf(filepath.Join(dir, "folder", name))
	require.NoError(t, err)
	assert.Equal(t, theirs.StoredSHA256, sum)
}

// during is the end of a source, where something is done once.
type during struct{ do func() }

func (d *during) Read(p []byte) (int, error) {
	if d.do != nil {
		d.do()
		d.do = nil
	}
	return 0, io.EOF
}

func TestTwoRuns(t *testing.T) {
	form := Form{Compression: v1beta1.CompressNone}
	for name, then := range map[string]io.Reader{"and it goes well": bytes.NewReader(nil), "and it fails": breaking{}} {
		t.Run("another is done while one uploads, "+name, func(t *testing.T) {
			s, dir := newFolder(t)
			var theirs *stores.Snapshot
			other := &during{do: func() { theirs = otherRun(t, dir, key, 5<<20) }}
			_, _, err := s.put(context.Background(), key, io.MultiReader(bytes.NewReader(database(3<<20)), other, then),
				form, false)
			require.Error(t, err)
			whole(t, dir, key, theirs)
		})
	}
	t.Run("another is done before one writes its record", func(t *testing.T) {
		s, dir := newFolder(t)
		stored, _, err := s.put(context.Background(), key, bytes.NewReader(database(3<<20)), form, false)
		require.NoError(t, err)
		theirs := otherRun(t, dir, key, 5<<20)
		require.ErrorIs(t, s.finish(context.Background(), key, &stores.Snapshot{Artifact: *stored}), errReplaced)
		whole(t, dir, key, theirs)
	})
	t.Run("another has removed it before one writes its record", func(t *testing.T) {
		s, dir := newFolder(t)
		stored, _, err := s.put(context.Background(), key, bytes.NewReader(database(3<<20)), form, false)
		require.NoError(t, err)
		require.NoError(t, s.clear(context.Background(), key))
		require.ErrorIs(t, s.finish(context.Background(), key, &stores.Snapshot{Artifact: *stored}), errReplaced)
		assert.Empty(t, files(t, dir))
	})
	t.Run("the record of another lies beside what one has stored since", func(t *testing.T) {
		s, dir := newFolder(t)
		otherRun(t, dir, key, 5<<20)
		stored, _, err := s.put(context.Background(), key, bytes.NewReader(database(3<<20)), form, true)
		require.NoError(t, err)
		ours := &stores.Snapshot{Artifact: *stored}
		require.NoError(t, s.finish(context.Background(), key, ours))
		whole(t, dir, key, ours)
	})
	t.Run("another is done before one removes what it has disproved", func(t *testing.T) {
		cluster := fakes(t, 3, 20)
		o := cluster.order(t, "the check fails")
		var theirs *stores.Snapshot
		o.Log = slog.New(slog.NewTextHandler(writes(func(line string) {
			if strings.Contains(line, "msg=examined") && theirs == nil {
				theirs = otherRun(t, o.Place.Dir, o.Key, len(cluster.members[0].database)-sha256.Size)
			}
		}), nil))
		report, err := Take(soon(t), o)
		require.ErrorIs(t, err, errReplaced)
		assert.Equal(t, theirs.StoredSHA256, report.StoredSHA256)
		whole(t, o.Place.Dir, o.Key, theirs)
	})
	for name, c := range map[string]struct {
		question string
		verify   bool
	}{
		"another is done while one chooses a member": {"status", true},
		"the same, without verification":             {"status", false},
		"another is done while one verifies":         {"hash", true},
		"another is done before one begins":          {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := fakes(t, 3, 20)
			o := cluster.order(t, "well")
			o.Verify = c.verify
			var theirs *stores.Snapshot
			do := func() { theirs = otherRun(t, o.Place.Dir, o.Key, len(cluster.members[0].database)-sha256.Size) }
			cluster.asked = func(_ *fake, question string) {
				if question == c.question && theirs == nil {
					do()
				}
			}
			if c.question == "" {
				do()
			}
			report, err := Take(soon(t), o)
			if c.question == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errReplaced)
				assert.Contains(t, report.Error, "another run has stored it meanwhile")
			}
			assert.Equal(t, theirs.StoredSHA256, report.StoredSHA256, "what is reported is what is there")
			whole(t, o.Place.Dir, o.Key, theirs)
		})
	}
}

// writes is a writer of lines.
type writes func(line string)

func (w writes) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}

// breaking is a source that breaks off.
type breaking struct{}

func (breaking) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A Job that runs again, when its pod or its report was lost, reports what is stored: etcd is not asked.
func TestDoneIsNotTakenAgain(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	order := Order{Place: Place{URL: "file:///folder", Dir: dir}, Key: "shop/demo/nightly.db.zst", Verify: true,
		Log: slog.New(slog.DiscardHandler)}
	store, err := openStore(ctx, order.Place, true)
	require.NoError(t, err)
	defer store.Close()
	object := filepath.Join(dir, "folder", order.Key)

	stored, _, err := store.put(ctx, order.Key, bytes.NewReader(sealed(make([]byte, 1<<20))),
		Form{Compression: v1beta1.CompressZstd}, false)
	require.NoError(t, err)
	asked := func() bool {
		_, err := Take(ctx, order)
		return err != nil // there is no cluster that could be asked
	}
	assert.True(t, asked(), "without a record")

	require.NoError(t, store.finish(ctx, order.Key, stored))
	order.Verify = false
	assert.False(t, asked(), "with one that is not verified, when no verification is asked for")

	order.Verify = true
	written := stores.Snapshot{Artifact: *stored, VerifiedAt: time.Now().UTC().Truncate(time.Second)}
	require.NoError(t, store.finish(ctx, order.Key, &written))
	report, err := Take(ctx, order)
	require.NoError(t, err)
	assert.Equal(t, written, report)

	require.NoError(t, os.Truncate(object, stored.StoredSize-1))
	assert.True(t, asked(), "what is stored is not whole")
	require.NoError(t, os.WriteFile(object+recordSuffix, []byte("nonsense"), 0o600))
	assert.True(t, asked(), "what the record says can't be read")
}
