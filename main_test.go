package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/etcdops/command"
)

// TestPluginByName: kubectl finds the plugin by the name of its file, and people find it under quorate kubectl.
func TestPluginByName(t *testing.T) {
	for line, want := range map[[3]string][]string{
		{"/usr/bin/quorate", "kubectl", "help"}:        {"kubectl", "help"},
		{"./kubectl-quorate", "status", "orders"}:      {"kubectl", "status", "orders"},
		{"/opt/kubectl-quorate.exe", "help", "status"}: {"kubectl", "help", "status"},
		{"quorate", "check", "-h"}:                     {"kubectl", "check", "-h"},
		{"kubectl-quorate", "check", "-h"}:             {"kubectl", "check", "-h"},
		{"quorate", "serve", "-h"}:                     {"serve", "-h"},
	} {
		assert.Equal(t, want, arguments(line[:]))
	}
	var out, errs bytes.Buffer
	assert.Zero(t, run(t.Context(), []string{"kubectl", "help"}, os.Getenv, &out, &errs))
	assert.Contains(t, out.String(), "kubectl quorate explain [NAME]")
	assert.Equal(t, command.Usage, run(t.Context(), []string{"kubectl", "bogus"}, os.Getenv, &out, &errs))
}
