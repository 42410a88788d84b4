package snapshot

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/stores"
)

func TestSnapshotOrder(t *testing.T) {
	args := []string{"--endpoint=http://a:2379", "--store-url=file:///backups", "--key=a.db"}
	o, err := snapshotOrder(args, io.Discard)
	require.NoError(t, err)
	assert.Nil(t, o.Unless)
	o, err = snapshotOrder(append(args, "--unless-revision=7", "--unless-cluster=c1", "--unless-auth-revision=2"),
		io.Discard)
	require.NoError(t, err)
	assert.Equal(t, &archive.Unless{Revision: 7, ClusterID: "c1", AuthRevision: 2}, o.Unless)
	for _, one := range []string{"--unless-revision=7", "--unless-cluster=c1", "--unless-auth-revision=2"} {
		_, err = snapshotOrder(append(args, one), io.Discard)
		assert.ErrorContains(t, err, "belong together")
	}
}

func TestLook(t *testing.T) {
	dir := t.TempDir()
	look := func() (report stores.Snapshot) {
		var out bytes.Buffer
		require.Zero(t, Inspect(t.Context(),
			[]string{"--store-url=file:///backups", "--store-dir=" + dir, "--key=demo/a.db"}, &out, io.Discard))
		require.NoError(t, json.Unmarshal(out.Bytes(), &report))
		return report
	}
	assert.Equal(t, stores.Snapshot{Absent: true}, look(), "nothing")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "backups", "demo"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "backups", "demo", "a.db"), []byte("whole"), 0o600))
	assert.Equal(t, stores.Snapshot{Absent: true}, look(), "without a record it is not whole")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "backups", "demo", "a.db.json"),
		[]byte(`{"uri":"u","storedSize":5,"sha256":"00"}`), 0o600))
	assert.Equal(t, "u", look().URI)
	assert.Equal(t, command.Failed,
		Inspect(t.Context(), []string{"--store-url=file:///backups", "--store-dir=" + filepath.Join(dir, "none"),
			"--key=../a.db"}, io.Discard, io.Discard))
}
