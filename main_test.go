package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	out.Reset()
	assert.Zero(t, run(t.Context(), []string{"version"}, os.Getenv, &out, &errs))
	assert.Equal(t, build.Line("quorate"), out.String())
}

// TestLinksWhatItNeeds: the program that every node pulls, and that a server keeps in memory, links no SDK of a cloud and nothing of etcd's
// server. Those are quorate-snapshot's.
func TestLinksWhatItNeeds(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	linked := strings.Fields(string(out))
	assert.Contains(t, linked, "go.etcd.io/etcd/client/v3")
	assert.Less(t, len(linked), 600, "packages, those of Go among them: what has come, and is it needed here?")
	for _, path := range linked {
		for _, others := range []string{
			"gocloud.dev/", "cloud.google.com/", "google.golang.org/api/", "github.com/aws/", "github.com/Azure/",
			"go.etcd.io/etcd/server/", "go.etcd.io/raft/", "go.etcd.io/bbolt",
		} {
			assert.False(t, strings.HasPrefix(path, others), "%s is for quorate-snapshot", path)
		}
	}
}
