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
	require.NoError(t, own(dir, user))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.EqualValues(t, user, info.Sys().(*syscall.Stat_t).Uid)

	assert.Error(t, own(filepath.Join(dir, "missing"), user))
	assert.Error(t, own(dir, 0))
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "link")))
	assert.ErrorContains(t, own(filepath.Join(dir, "link"), user), "not a directory", "a link does not lead it elsewhere")
	assert.Equal(t, command.Failed, Own(nil, io.Discard))
	assert.Equal(t, 0, Own([]string{"--dir=" + dir, "--user=" + strconv.Itoa(user)}, io.Discard))
}
