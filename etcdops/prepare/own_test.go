package prepare

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/command"
)

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
