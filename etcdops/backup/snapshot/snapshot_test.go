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
	"github.com/quorate-dev/quorate/etcdops/backup/mirror"
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

// TestLookForLatest: that there is none is success, unless a snapshot is waited for.
func TestLookForLatest(t *testing.T) {
	dir := t.TempDir()
	look := func(more ...string) (report stores.Latest, code int) {
		var out bytes.Buffer
		code = Inspect(t.Context(), append([]string{"--store-url=file:///backups", "--store-dir=" + dir}, more...), &out,
			io.Discard)
		if out.Len() > 0 {
			require.NoError(t, json.Unmarshal(out.Bytes(), &report))
		}
		return report, code
	}
	none, code := look("--latest=shop/demo")
	assert.Equal(t, stores.Latest{None: true}, none)
	assert.Zero(t, code)
	waits, code := look("--latest=shop/demo", "--wait")
	assert.True(t, waits.None)
	assert.Equal(t, "the folder shop/demo has no snapshot", waits.Error)
	assert.Equal(t, command.Failed, code)
	_, code = look("--latest=shop/demo", "--key=a.db")
	assert.Equal(t, command.Failed, code)
	dir = filepath.Join(dir, "none")
	unknown, code := look("--latest=shop/demo")
	assert.Equal(t, "NotFound", unknown.Reason)
	assert.False(t, unknown.None)
	assert.Equal(t, command.Failed, code)
}

func TestMirrorFlags(t *testing.T) {
	both := []string{"--endpoint=http://a:2379", "--to-endpoint=http://b:2379"}
	read := func(act string, args ...string) (*mirroring, error) {
		return readMirroring(act, append(append([]string{}, both...), args...), io.Discard)
	}
	m, err := read("mirror", "--prefix=/a/", "--exclude=/a/x", "--exclude=/a/y")
	require.NoError(t, err)
	assert.Equal(t, mirror.Scope{Prefix: "/a/", ToPrefix: "/a/", Exclude: []string{"/a/x", "/a/y"}}, m.Scope)
	assert.Equal(t, []string{"http://a:2379"}, m.Source.Endpoints)
	assert.Equal(t, []string{"http://b:2379"}, m.Destination.Endpoints)
	assert.Equal(t, mirror.DefaultOps, m.MostOps)
	m, err = read("mirror", "--to-prefix=", "--prefix=/a/")
	require.NoError(t, err)
	assert.Equal(t, mirror.Scope{Prefix: "/a/"}, m.Scope)

	for _, wrong := range [][]string{
		{"mirror", "--exclude=/b/", "--prefix=/a/"}, {"mirror", "--name=a/b"}, {"mirror", "--name="},
		{"mirror", "--to-max-txn-ops=1"}, {"mirror", "--to-prefix=" + mirror.Reserved}, {"mirror", "--to-ca=/none"},
		{"mirror", "--to-username-file=/none"}, {"promote", "--revision=-1"}, {"promote", "--force", "--revision=7"},
		{"promote", "--prefix=/a/"}, {"check", "--force"},
	} {
		_, err := read(wrong[0], wrong[1:]...)
		assert.Error(t, err, "%q", wrong)
	}
	_, err = readMirroring("mirror", both[:1], io.Discard)
	assert.ErrorContains(t, err, "--endpoint and --to-endpoint are required")
	for _, alone := range []string{"--force", "--revision=7"} {
		_, err = readMirroring("promote", []string{both[1], alone}, io.Discard)
		assert.NoError(t, err, "the source may be lost")
	}
	_, err = readMirroring("promote", both[1:], io.Discard)
	assert.Error(t, err)
	kept := []string{both[1], "--store-url=s3://b/etcd", "--tail=a/tail"}
	m, err = readMirroring("promote", kept, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "a/tail", m.Stored.Tail)
	for _, wrong := range [][]string{append(kept, both[0]), kept[:2], {both[0], both[1], kept[2]},
		append(kept, "--cluster-id=x")} {
		_, err = readMirroring("mirror", wrong, io.Discard)
		assert.Error(t, err, "%q", wrong)
	}
	_, err = read("mirror", "--to-ca=/none")
	assert.ErrorContains(t, err, "--to-ca: the file /none")
}
