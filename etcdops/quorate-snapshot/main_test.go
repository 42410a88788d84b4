package main

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/etcdops/command"
)

func TestCommands(t *testing.T) {
	for name, want := range map[string]int{"version": 0, "help": 0, "serve": 2, "snapshot": 1, "inspect": 1, "delete": 1,
		"copy-self": 1, "restore": 1, "stream": 1, "mirror": 1} {
		assert.Equal(t, want, run(t.Context(), []string{name}, os.Getenv, io.Discard, io.Discard), name)
	}
	var out, said bytes.Buffer
	assert.Equal(t, 2, run(t.Context(), nil, os.Getenv, &out, &said))
	assert.Contains(t, said.String(), "Usage:")
	assert.Zero(t, run(t.Context(), []string{"version"}, os.Getenv, &out, &said))
	assert.Equal(t, command.Built(version, commit).Line("quorate-snapshot"), out.String())
}
