package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// TestLatest: the newest snapshot is that of the etcd whose snapshot came last, with the highest revision. What may have
// been a snapshot is not nothing, and what can't be read is an error.
func TestLatest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place := Place{URL: "file:///backups/prod", Dir: dir}
	latest := func() (stores.Latest, error) { return Latest(t.Context(), place, "shop/demo") }
	folder := filepath.Join(dir, "backups", "prod", "shop", "demo")
	put := func(name, content string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	day := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	takes := func(name, cluster string, revision, at int) {
		t.Helper()
		put(name, "x")
		put(name+".json", fmt.Sprintf(`{"sha256":"%s","clusterID":%q,"revision":%d,"completed":%q}`, name, cluster,
			revision, day.AddDate(0, 0, at).Format(time.RFC3339)))
	}
	none := func(why string) {
		t.Helper()
		found, err := latest()
		require.NoError(t, err, why)
		assert.Equal(t, stores.Latest{None: true}, found, why)
	}
	none("not even the store's folder")
	put("tail/c1/0.seg", "x")
	put("other/b.db", "x")
	put("notes.txt", "x")
	none("nothing that is a snapshot")

	put("a.db.zst.age", "x")
	_, err := latest()
	require.ErrorContains(t, err, "no snapshot with a record beside it, and 1 without")
	assert.Equal(t, NotFound, ReasonOf(err))
	put("gone.db.json", `{"sha256":"00","completed":"2027-01-01T00:00:00Z"}`)
	_, err = latest()
	require.ErrorContains(t, err, "and 1 without", "a record alone is no snapshot")

	require.NoError(t, os.Remove(filepath.Join(folder, "a.db.zst.age")))
	require.NoError(t, os.Symlink("elsewhere.db", filepath.Join(folder, "linked.db")))
	_, err = latest()
	require.ErrorContains(t, err, "and 1 without", "where it leads may be a snapshot")
	require.NoError(t, os.Remove(filepath.Join(folder, "linked.db")))

	takes("old.db", "c0", 900, 1)
	takes("first.db.zst", "c1", 10, 2)
	takes("ahead.db.zst", "c1", 30, 3)
	takes("behind.db.zst", "c1", 20, 4) // by a clock that is ahead
	found, err := latest()
	require.NoError(t, err)
	assert.Equal(t, stores.Latest{Artifact: "shop/demo/ahead.db.zst", SHA256: "ahead.db.zst", ClusterID: "c1", Revision: 30,
		Completed: day.AddDate(0, 0, 3), Snapshots: 4}, found)

	put("ahead.db.zst.json", "{")
	_, err = latest()
	assert.Equal(t, Damaged, ReasonOf(err), "it may be the newest")
	_, err = Latest(t.Context(), Place{URL: place.URL, Dir: filepath.Join(dir, "unmounted")}, "shop/demo")
	assert.Error(t, err, "without its volume nothing is known")
}
