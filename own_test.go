package main

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
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/objects"
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
	assert.ErrorContains(t, own(filepath.Join(dir, "link"), user), "no directory", "nobody leads it elsewhere")
	assert.Equal(t, command.Failed, runOwn(nil, io.Discard))
	assert.Equal(t, 0, runOwn([]string{"--dir=" + dir, "--user=" + strconv.Itoa(user)}, io.Discard))
}

// TestPrepareIsToldThatTheMemberHasBegun: the node was set up anew, so that the data and the marker are gone, and the pod is the one that began.
func TestPrepareIsToldThatTheMemberHasBegun(t *testing.T) {
	at := func(begins string) int {
		dir := t.TempDir()
		t.Setenv(hooks.EnvBegins, begins)
		return runPrepare(t.Context(), []string{"--data-dir=" + filepath.Join(dir, "data"), "--marker=" + filepath.Join(dir, "started"), "--start=bootstrap"}, io.Discard)
	}
	assert.Equal(t, 0, at("demo-0=https://demo-0"))
	assert.Equal(t, objects.ExitDataLost, at(""))
}
