package prepare

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// write makes files, with their directories, below dir.
func write(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("x"), 0o644))
	}
}

func TestPrepare(t *testing.T) {
	var (
		data = []string{"data/member/wal/0000000000000000-0000000000000000.wal", "data/member/snap/db"}
		half = []string{"data/member/snap/db", "data/member/wal/0.tmp",
			"data/member/wal.tmp/0000000000000000-0000000000000000.wal"}
	)
	cases := []struct {
		name, reason string
		start        string
		files        []string
		marker       bool
		lost         bool
	}{
		{"bootstrap, new", "an initial member's first start", objects.StartBootstrap, nil, false, false},
		{"join, new", "a learner's first start", objects.StartJoin, nil, false, false},
		{"resume, new pod on its volume", "the ordinary replacement of a pod", objects.StartResume, data, false, false},
		{"bootstrap, pod made again", "the pod was deleted before its start was known",
			objects.StartBootstrap, data, false, false},
		{"join, pod made again", "the same for a learner", objects.StartJoin, data, false, false},
		{"resume, empty", "the volume was lost", objects.StartResume, nil, false, true},
		{"resume, half-written", "etcd would start from nothing on it", objects.StartResume, half, false, true},
		{"bootstrap, half-written", "the first start was cut off before the log was there: nothing was acknowledged",
			objects.StartBootstrap, half, false, false},
		{"join, half-written", "the same for a learner", objects.StartJoin, half, false, false},
		{"bootstrap, node rebooted", "a tmpfs is empty after a reboot and the pod is still there",
			objects.StartBootstrap, nil, true, true},
		{"join, node rebooted", "the same for a learner", objects.StartJoin, nil, true, true},
		{"resume, node rebooted", "the same for any", objects.StartResume, nil, true, true},
		{"bootstrap, half-written after a start", "what this pod had is not there any more", objects.StartBootstrap,
			half, true, true},
		{"bootstrap, rebooted with its volume", "disks survive reboots", objects.StartBootstrap, data, true, false},
		{"join, rebooted with its volume", "disks survive reboots", objects.StartJoin, data, true, false},
		{"resume, rebooted with its volume", "disks survive reboots", objects.StartResume, data, true, false},
		{"resume, log without snapshots", "etcd makes member/snap first: this is not its directory",
			objects.StartResume, data[:1], false, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			marker := filepath.Join(dir, "state", "started")
			write(t, dir, append(c.files, "state/other")...)
			if c.marker {
				write(t, dir, "state/started")
			}
			err := check(filepath.Join(dir, "data"), "", c.start, marker)
			if c.lost {
				require.ErrorIs(t, err, ErrDataLost, c.reason)
				require.NotContains(t, err.Error(), "\n")
				_, statErr := os.Stat(marker)
				require.Equal(t, c.marker, statErr == nil, "a refusal changes nothing")
				return
			}
			require.NoError(t, err, c.reason)
			require.FileExists(t, marker)
			if c.files == nil {
				require.NoError(t, check(filepath.Join(dir, "data"), "", c.start, marker), "etcd has not begun")
				require.NoError(t, os.RemoveAll(filepath.Join(dir, "data")))
				require.ErrorIs(t, check(filepath.Join(dir, "data"), "", c.start, marker), ErrDataLost,
					"the second time the data must be there, or the mark")
			}
		})
	}
}

// TestPrepareLooksAtBothVolumes: with a log on a volume of its own, either half is nothing without the other.
func TestPrepareLooksAtBothVolumes(t *testing.T) {
	const (
		wal    = "wal/0000000000000000-0000000000000000.wal"
		snap   = "data/member/snap/db"
		within = "data/member/wal/0000000000000000-0000000000000000.wal"
	)
	cases := []struct {
		name   string
		start  string
		files  []string
		marker bool
		lost   bool
	}{
		{"resume, both there", objects.StartResume, []string{wal, snap}, true, false},
		{"resume, log empty", objects.StartResume, []string{snap}, false, true},
		{"resume, data empty", objects.StartResume, []string{wal}, false, true},
		{"resume, log where it was before", objects.StartResume, []string{within, snap}, false, true},
		{"resume, log half-written", objects.StartResume, []string{"wal.tmp/0.wal", "wal/0.tmp", snap}, false, true},
		{"started before, log empty", objects.StartBootstrap, []string{snap}, true, true},
		{"started before, data empty", objects.StartJoin, []string{wal}, true, true},
		{"new", objects.StartJoin, nil, false, false},
		{"cut off before the log was there", objects.StartBootstrap, []string{snap}, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, append(c.files, "state/other")...)
			if c.marker {
				write(t, dir, "state/started")
			}
			err := check(filepath.Join(dir, "data"), filepath.Join(dir, "wal"), c.start,
				filepath.Join(dir, "state", "started"))
			if c.lost {
				require.ErrorIs(t, err, ErrDataLost)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// TestPrepareDoesNotGuess: what can't be read is not empty, and what can't be noted must not start.
func TestPrepareDoesNotGuess(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "data/member/wal") // a file where a directory should be
	err := check(filepath.Join(dir, "data"), "", objects.StartBootstrap, filepath.Join(dir, "started"))
	require.ErrorContains(t, err, "can't be read")
	require.NotErrorIs(t, err, ErrDataLost)

	err = check(filepath.Join(dir, "none"), "", objects.StartBootstrap,
		filepath.Join(dir, "no-such-directory", "started"))
	require.ErrorContains(t, err, "can't be written")
	require.NotErrorIs(t, err, ErrDataLost)

	require.ErrorContains(t, check(dir, "", "again", filepath.Join(dir, "started")), "--start must be")
}

// TestPrepareWaitsUntilItIsTold: nothing is looked at or noted before, since what is found then is what etcd starts on.
func TestPrepareWaitsUntilItIsTold(t *testing.T) {
	dir := t.TempDir()
	told, marker := filepath.Join(dir, "told"), filepath.Join(dir, "started")
	c := Command{dataDir: filepath.Join(dir, "data"), marker: marker, start: objects.StartBootstrap, await: told}
	ended := make(chan error)
	prepares := func(ctx context.Context) { go func() { ended <- c.Run(ctx) }() }
	waits := func(why string) {
		select {
		case err := <-ended:
			t.Fatal(why, err)
		case <-time.After(500 * time.Millisecond):
		}
		require.NoFileExists(t, marker, why)
	}

	ctx, terminate := context.WithCancel(t.Context())
	prepares(ctx)
	waits("there is no file")
	require.NoError(t, os.WriteFile(told, []byte("\n"), 0o600))
	waits("it holds nothing")
	terminate()
	require.ErrorContains(t, <-ended, "ended while it waited", "SIGTERM ends it, and the member does not start")
	require.NoFileExists(t, marker)

	prepares(t.Context())
	waits("it still holds nothing")
	// The kubelet exchanges a link.
	require.NoError(t, os.WriteFile(told+".new", []byte("2"), 0o600))
	require.NoError(t, os.Rename(told+".new", told))
	require.NoError(t, <-ended)
	require.FileExists(t, marker)

	require.ErrorContains(t, await(t.Context(), dir), "can't be read", "a folder is not a file that may still come")
	require.NoError(t, await(t.Context(), ""))
}

// TestPrepareIsToldThatTheMemberHasBegun: the node was set up again, so that the data and the marker are gone, and the
// pod is the one that began.
func TestPrepareIsToldThatTheMemberHasBegun(t *testing.T) {
	at := func(begins string) int {
		dir := t.TempDir()
		t.Setenv(facts.EnvBegins, begins)
		return Run(t.Context(), []string{"--data-dir=" + filepath.Join(dir, "data"),
			"--marker=" + filepath.Join(dir, "started"), "--start=bootstrap"}, io.Discard)
	}
	assert.Equal(t, 0, at("demo-0=https://demo-0"))
	assert.Equal(t, objects.ExitDataLost, at(""))
	assert.Equal(t, objects.ExitDataLost, at(objects.InitialClusterBegun))
}

// TestPrepareSaysThatNothingHasRun: before a cluster's first quorum nothing else proves it.
func TestPrepareSaysThatNothingHasRun(t *testing.T) {
	dir := t.TempDir()
	c := Command{dataDir: filepath.Join(dir, "data"), start: objects.StartBootstrap, marker: filepath.Join(dir, "started")}
	require.NoError(t, c.Run(t.Context()))
	assert.Equal(t, objects.NothingFound, c.found())
	log := filepath.Join(dir, "data", "member", "wal")
	require.NoError(t, os.MkdirAll(log, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(log, "0.wal"), nil, 0o600))
	assert.Empty(t, c.found())
}

func TestOwn(t *testing.T) {
	dir := t.TempDir()
	user := os.Getuid()
	if user == 0 {
		user = 10001
	}
	const named = "shop-orders-1f/orders-0"
	led := func(root string) string {
		file := filepath.Join(t.TempDir(), "mountinfo")
		text := "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n36 22 8:1 " + root + " " + dir + " rw,nosuid - ext4 /dev/sda1 rw\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	for _, root := range []string{"/etc", "/", "/data/shop-orders-1f", "/data/xshop-orders-1f/orders-0",
		"/data/shop-orders-1f/orders-0/within"} {
		assert.ErrorContains(t, own(dir, user, named, led(root)), "a link is in its place", root)
	}
	assert.Error(t, own(dir, user, named, "/proc/self/mountinfo"), "nothing is mounted there")
	before, err := os.Stat(dir)
	require.NoError(t, err)
	assert.EqualValues(t, os.Getuid(), before.Sys().(*syscall.Stat_t).Uid)
	right := led("/subvolume/data/" + named)
	require.NoError(t, own(dir, user, named, right))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.EqualValues(t, user, info.Sys().(*syscall.Stat_t).Uid)

	assert.Error(t, own(filepath.Join(dir, "missing"), user, named, right))
	assert.Error(t, own(dir, 0, named, right))
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "link")))
	assert.ErrorContains(t, own(filepath.Join(dir, "link"), user, named, right), "not a directory", "a link does not lead it elsewhere")
	assert.Equal(t, command.Failed, Own(nil, io.Discard))
	assert.Equal(t, command.Failed, Own([]string{"--dir=" + dir, "--user=" + strconv.Itoa(user),
		"--named=" + named}, io.Discard), "nothing is mounted there")
}
