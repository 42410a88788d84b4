package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/internal/kubectl"
	"github.com/quorate-dev/quorate/test/static/docs"
)

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	cases := []struct {
		args string
		env  map[string]string
		code int
		says string
	}{
		{"", nil, 2, "Usage:"},
		{"help", nil, 0, "quorate serve"},
		{"version", nil, 0, "quorate devel (commit unknown, go"},
		{"fly", nil, 2, `no command "fly"`},
		{"install --kinds --no-kinds", nil, 1, "quorate: --kinds and --no-kinds leave nothing"},
		{"kubectl install --kinds --no-kinds", nil, 1, "quorate: --kinds and --no-kinds leave nothing"},
		{"images --registry=a/", nil, 1, "quorate: --registry must be"},
		{"serve", nil, 1, "pass --image or QUORATE_IMAGE"},
		{"serve -h", nil, 0, "-call-timeout"},
		{"serve --no-such-flag", nil, 2, "no-such-flag"},
		{"serve extra", nil, 1, "takes flags, and no other arguments"},
		{"serve", map[string]string{"QUORATE_CALL_TIMEOUT": "soon"}, 1, "QUORATE_CALL_TIMEOUT"},
		{"serve --image=i --image-pull-policy=Sometimes", nil, 1, "--image-pull-policy must be"},
		{"serve --image=i --call-timeout=0s", nil, 1, "more than 0"},
		{"serve --image=i --call-timeout=11s", nil, 1, "10s at most"},
		{"serve --listen=nowhere", map[string]string{"QUORATE_IMAGE": "i"}, 1, "nowhere"},
		{"chown-data", nil, 1, "quorate: --user is required"},
		{"prepare", nil, 1, "--start must be"},
		{"prepare --start=resume --data-dir=" + dir + " --marker=" + dir + "/m", nil, objects.ExitDataLost,
			"the member's data is lost"},
		{"prepare --start=join --data-dir=" + dir + " --marker=" + dir + "/m", nil, 0, ""},
	}
	for _, c := range cases {
		var out bytes.Buffer
		code := run(t.Context(), strings.Fields(c.args), func(k string) string { return c.env[k] }, &out, &out)
		require.Equal(t, c.code, code, "%s: %s", c.args, out.String())
		require.Contains(t, out.String(), c.says, c.args)
	}
	var out bytes.Buffer
	require.Equal(t, command.Failed, exitCode(kubectl.ErrUnfit, &out))
	require.Empty(t, out.String(), "what is wrong has been printed")
}

// TestPluginByName: kubectl finds the plugin by the name of its file, and people find it under quorate kubectl.
func TestPluginByName(t *testing.T) {
	for line, want := range map[[3]string][]string{
		{"/usr/bin/quorate", "kubectl", "help"}:        {"kubectl", "help"},
		{"./kubectl-quorate", "status", "orders"}:      {"kubectl", "status", "orders"},
		{"/opt/kubectl-quorate.exe", "help", "status"}: {"kubectl", "help", "status"},
		{"quorate", "check", "-h"}:                     {"kubectl", "check", "-h"},
		{"kubectl-quorate", "check", "-h"}:             {"kubectl", "check", "-h"},
		{"quorate", "serve", "-h"}:                     {"serve", "-h"},
		{"/bin/kubectl_complete-quorate", "fence", ""}: {"kubectl", "__complete", "fence", ""},
	} {
		assert.Equal(t, want, arguments(line[:]))
	}
	var out, errs bytes.Buffer
	assert.Zero(t, run(t.Context(), []string{"kubectl", "help"}, os.Getenv, &out, &errs))
	assert.Contains(t, out.String(), "  explain [NAME] ")
	assert.Equal(t, command.Usage, run(t.Context(), []string{"kubectl", "bogus"}, os.Getenv, &out, &errs))
	out.Reset()
	assert.Zero(t, run(t.Context(), []string{"version"}, os.Getenv, &out, &errs))
	assert.Equal(t, build.Line("quorate"), out.String())
}

// TestLinksWhatItNeeds: the program that every node pulls, that a server keeps in memory, and that is kubectl's
// plugin too, links no SDK of a cloud and nothing of etcd's server. Those are quorate-snapshot's.
func TestLinksWhatItNeeds(t *testing.T) {
	const ours = "github.com/quorate-dev/quorate/"
	linked, snapshots := dependencies(t, "."), dependencies(t, "./etcdops/quorate-snapshot")
	for _, needed := range []string{ours + "server", ours + "internal/kubectl", ours + "etcdops/prepare",
		"go.etcd.io/etcd/client/v3"} {
		assert.Contains(t, linked, needed)
	}
	assert.Less(t, len(linked), 610, "packages, those of Go among them: what has come, and is it needed here?")
	forOthers := []string{
		"gocloud.dev/", "cloud.google.com/", "google.golang.org/api/", "github.com/aws/", "github.com/Azure/",
		"go.etcd.io/etcd/server/", "go.etcd.io/raft/", "go.etcd.io/bbolt",
		ours + "etcdops/backup/archive", ours + "etcdops/backup/seed", ours + "etcdops/backup/snapshot",
	}
	for _, prefix := range forOthers {
		links := func(path string) bool { return strings.HasPrefix(path, prefix) }
		assert.False(t, slices.ContainsFunc(linked, links), "%s is for quorate-snapshot", prefix)
		assert.True(t, slices.ContainsFunc(snapshots, links), "%s is not even there", prefix)
	}
}

// dependencies are the packages that a program links.
func dependencies(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", program).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// TestFlagsAreDocumented: docs/reference/lists.md has what -h prints.
func TestFlagsAreDocumented(t *testing.T) {
	flag := regexp.MustCompile(`(?m)^  -([a-z-]+)(?: (\S+))?\n    \t(.*)$`)
	for _, name := range []string{"serve", "install"} {
		var out bytes.Buffer
		require.Zero(t, run(t.Context(), []string{name, "-h"}, os.Getenv, &out, &out))
		table := "| Flag | Meaning |\n| --- | --- |\n"
		for _, m := range flag.FindAllStringSubmatch(out.String(), -1) {
			table += "| `" + strings.TrimSpace("--"+m[1]+" "+m[2]) + "` | " + m[3] + " |\n"
		}
		require.Greater(t, strings.Count(table, "\n"), 15)
		require.NoError(t, docs.Keep("docs/reference/lists.md", "generated: begin "+name, "generated: end", table))
	}
}
