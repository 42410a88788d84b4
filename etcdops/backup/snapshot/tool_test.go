package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/stores"
)

func TestTool(t *testing.T) {
	to := filepath.Join(t.TempDir(), "quorate")
	for range 2 { // the second time in the place of the first
		require.Equal(t, 0, CopySelf([]string{"--to=" + to}, io.Discard))
	}
	info, err := os.Stat(to)
	require.NoError(t, err)
	assert.EqualValues(t, 0o755, info.Mode().Perm())
	said, err := exec.Command(to, "-test.list=TestTool").Output()
	require.NoError(t, err, "it runs")
	assert.Contains(t, string(said), "TestTool")
	left, err := os.ReadDir(filepath.Dir(to))
	require.NoError(t, err)
	assert.Len(t, left, 1)

	assert.Equal(t, command.Failed, CopySelf(nil, io.Discard))
	assert.Equal(t, command.Failed, CopySelf([]string{"--to=" + filepath.Join(to, "below-a-file")}, io.Discard))
}

func TestInspectReports(t *testing.T) {
	var out bytes.Buffer
	require.Equal(t, command.Failed, InspectData([]string{"--data-dir=" + t.TempDir()}, &out, io.Discard))
	var report stores.Inspection
	require.NoError(t, json.Unmarshal(out.Bytes(), &report))
	assert.Contains(t, report.Error, "no etcd has run there")
	assert.Equal(t, "NotFound", report.Reason)
}

func TestRestoreIsForAMemberWithoutData(t *testing.T) {
	env := func(name string) string {
		return map[string]string{"ETCD_INITIAL_CLUSTER": "a=http://a:2380", "ETCD_INITIAL_CLUSTER_TOKEN": "t"}[name]
	}
	const wal, snap = "data/member/wal/0000000000000000-0000000000000000.wal", "data/member/snap/db"
	cases := []struct {
		name   string
		files  []string
		code   int
		reason string
	}{
		{"a member with data", []string{wal, snap}, 0, ""},
		{"a pod that has started before: prepare says what follows", []string{"started"}, 0, ""},
		{"nothing, and no survivor", nil, command.Failed, "NotFound"},
		{"half a directory of another's", []string{snap}, command.Failed, "Failed"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.files...)
			mark := filepath.Join(dir, "data", "unfinished-restore")
			if slices.Contains(c.files, wal) { // it was stopped after its last move
				require.NoError(t, os.WriteFile(mark, nil, 0o600))
			}
			args := []string{
				"--data-dir=" + filepath.Join(dir, "data"), "--marker=" + filepath.Join(dir, "started"),
				"--name=a", "--peer-url=http://a:2380", "--etcd-version=3.6.16",
				"--from-data=" + filepath.Join(dir, "survivor"),
			}
			var out bytes.Buffer
			require.Equal(t, c.code, Restore(t.Context(), args, env, &out, io.Discard))
			var report stores.Restore
			require.NoError(t, json.Unmarshal(out.Bytes(), &report))
			assert.Equal(t, c.reason, report.Reason, report.Error)
			assert.Equal(t, c.code != 0, report.Error != "")
			for _, file := range c.files {
				assert.FileExists(t, filepath.Join(dir, file))
			}
			assert.NoFileExists(t, filepath.Join(dir, "data.restored"))
			assert.NoFileExists(t, mark, "a log that is lost one day would bring the snapshot back (S10)")
		})
	}
	var said bytes.Buffer
	for _, args := range [][]string{
		{"--name=a"},
		{"--name=a", "--peer-url=p", "--etcd-version=3.6.16"},
		{"--name=a", "--peer-url=p", "--etcd-version=3.6.16", "--url=file:///x", "--from-data=/y"},
		{"--name=a", "--peer-url=p", "--etcd-version=3.6.16", "--url=file:///x", "--begin-after=-1"},
		{"--name=a", "--peer-url=p", "--etcd-version=3.6.16", "--empty", "--url=file:///x"},
		{"--name=a", "--peer-url=p", "--etcd-version=3.6.16", "--url=file:///x", "--until-time=2026-11-22T13:59:00Z"},
		{"--name=a", "--peer-url=p", "--etcd-version=3.6.16", "--url=file:///x", "--as-far-as-possible"},
	} {
		assert.Equal(t, command.Failed, Restore(context.Background(), args, env, io.Discard, &said))
	}
	assert.Contains(t, said.String(), "--peer-url is required")
	assert.Contains(t, said.String(), "one of --url, --from-data, --from-member and --empty is required")
	assert.Contains(t, said.String(), "must not be negative")
	assert.Contains(t, said.String(), "--tail-url goes with --url")
	assert.Contains(t, said.String(), "--stream-keys with --tail-url")
}

// TestAStreamThatCanNotBeListed: a recovery goes on without it, and says why; a restore that names its end does not.
func TestAStreamThatCanNotBeListed(t *testing.T) {
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer store.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	for _, asFar := range []bool{true, false} {
		r := &restoring{tailURL: "s3://bucket/shop/demo/tail/c1?region=a&use_path_style=true&endpoint=" + store.URL}
		r.AsFarAsPossible = asFar
		err := r.openTail(t.Context())
		assert.Equal(t, asFar, err == nil)
		if asFar {
			assert.Contains(t, r.TailFlaw, "access was refused")
			assert.Equal(t, int64(7), r.Tail.Reach(7), "nothing of it is known")
		} else {
			assert.Equal(t, "Denied", archive.ReasonOf(err))
		}
	}
}

// TestAStreamThatIsNotThere: on a claim a folder is there once something is in it, and a recovery asks for a stream
// whether or not there is one. The volume itself has to be there.
func TestAStreamThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "backups/shop/demo/a.db")
	for _, asFar := range []bool{true, false} {
		r := &restoring{tailURL: "file:///backups/shop/demo/tail/c1"}
		r.AsFarAsPossible, r.source.StoreDir = asFar, dir
		require.NoError(t, r.openTail(t.Context()))
		assert.Equal(t, int64(7), r.Tail.Reach(7), "nothing follows")
		require.NoError(t, r.Tail.Close())
		left, err := os.ReadDir(filepath.Join(dir, "backups/shop/demo"))
		require.NoError(t, err)
		assert.Len(t, left, 1, "nothing is made")
		r.source.StoreDir = filepath.Join(dir, "not mounted")
		assert.Equal(t, "NotFound", archive.ReasonOf(r.openTail(t.Context())))
	}
}

// TestAStreamBehindALink: what a claim can't list is not nothing. As far as possible goes no further than that it
// knows.
func TestAStreamBehindALink(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "backups/a.db", "elsewhere/5-9.seg")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "backups/tail"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "backups/tail/c1")))
	r := &restoring{tailURL: "file:///backups/tail/c1"}
	r.AsFarAsPossible, r.source.StoreDir = true, dir
	assert.ErrorContains(t, r.openTail(t.Context()), "c1 is a link")
}

// write makes empty files.
func write(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
}
