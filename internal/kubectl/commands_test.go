package kubectl

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/test/static/docs"
)

// TestWrongLines: what can be known to be wrong is refused before Kubernetes is asked anything, in one line.
func TestWrongLines(t *testing.T) {
	for line, says := range map[string]string{
		"status Orders":                             `"Orders" is not NAME, that of an EtcdCluster, such as demo`,
		"status orders/x":                           `"orders/x" is not NAME`,
		"status orders -A":                          "-A is about all EtcdClusters: leave out \"orders\"",
		"status -o xml":                             "it must be a format: text, wide, json or yaml",
		"status -n Shop":                            "it must be the name of a namespace",
		"snapshot --from-schedule=a/b":              "it must be the name of an EtcdSnapshotSchedule",
		"snapshot --timeout=0s":                     "it must be at least 1s",
		"restore":                                   "restore needs one of --until, a time such as -5m",
		"restore --snapshot=a --epoch=2":            "restore needs one of",
		"restore --until=-5m --epoch=2":             "restore needs one of",
		"restore --snapshot=A":                      "it must be the name of an EtcdSnapshot",
		"restore --epoch=0":                         "it must be from 1 to",
		"restore --epoch=-1":                        "it must be from 1 to",
		"restore --until=yesterday":                 "it must be a time such as 2026-11-22T13:59:00Z, or -5m, or latest",
		"restore --until=5m":                        "it must be before now; -5m is five minutes ago",
		"restore --until=2026-03-01T14:00:00+01:00": "it must be before now",
		"recover":                                   "recover needs a POLICY: FromSurvivor, FromSnapshot or Recreate",
		"recover orders":                            `"orders" is not a POLICY: FromSurvivor, FromSnapshot or Recreate`,
		"recover orders Manual":                     `"Manual" is not a POLICY`,
		"recover orders Recreate":                   "Recreate begins without any data: say --yes",
		"fence":                                     "fence needs a MEMBER",
		"fence orders-1 --duration=-1h":             "it must be at least 10s",
		"fence orders-1 --duration=1s":              "it must be at least 10s",
		"fence orders-1 --duration=soon":            "it must be a time span such as 90s",
		"move-leader orders orders-1 more":          `move-leader does not take "more"`,
		"move-leader orders_1":                      `"orders_1" is not a MEMBER`,
		"fence orders-1 --timeout=5m":               "--timeout is how long to --wait",
		"report -o /dev/null":                       "/dev/null is there already: choose another file with -o",
		"help bogus":                                `unknown command "bogus"`,
		"defrag --wait --timeout=-1h":               "it must be at least 1s",
		"suspend orders --schedule=nightly":         "suspend takes either NAME, of an EtcdCluster, or --schedule",
		"env --etcd-user=A":                         "it must be the name of a user in etcd",

		"adopt taken data-former-0":                "changes nothing, and needs --dry-run",
		"adopt taken data-former-0 --dry-run":      "needs --etcd-version",
		"adopt --dry-run --etcd-version=3.6.16":    "adopt needs NAME",
		"adopt taken a --dry-run --etcd-version=4": "it must be a version of etcd, such as 3.6.16",
		"history -A": "-A prints the journal of all EtcdClusters",
		"adopt taken A --dry-run --etcd-version=3.6.16":      `"A" is not the name of a claim`,
		"adopt taken --dry-run --etcd-version=3.6.16":        "either names of claims",
		"adopt taken a -l b --dry-run --etcd-version=3.6.16": "either names of claims",

		"completion":      "completion needs a SHELL: bash, zsh or fish",
		"completion tcsh": `"tcsh" is not a SHELL`,
	} {
		k := steady(t)
		code, out, errs := k.runs(healthy(), strings.Fields(line)...)
		assert.Equal(t, exitUsage, code, line)
		assert.Empty(t, k.calls, line)
		assert.Empty(t, out, line)
		assert.Contains(t, errs, says, line)
		assert.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
}

// TestEveryCommand: the exit codes of each are those of the usage page. Its example works, and ends with 1 where
// kubectl does not.
func TestEveryCommand(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	for _, c := range commands {
		name, _, _ := strings.Cut(c.example, " ")
		assert.Equal(t, c.name, name, "the example is of the command")
		run := func(k *kube, args ...string) (int, string) {
			code, out, errs := k.runs(healthy(), args...)
			return code, out + errs
		}
		code, said := run(everything(t)[0], strings.Fields(c.example)...)
		if c.name == "check" { // there is much to find
			assert.Equal(t, exitTrouble, code, said)
		} else {
			assert.Zero(t, code, "%s: %s", c.example, said)
		}
		code, said = run(steady(t), c.name, "-h")
		assert.Zero(t, code)
		assert.Contains(t, said, "kubectl quorate "+c.name+" "+c.args+"\n")
		assert.Contains(t, said, "Example:\n  kubectl quorate "+c.example+"\n")
		_, helped := run(steady(t), "help", c.name)
		assert.Equal(t, said, helped)
		code, said = run(steady(t), c.name, "--no-such-flag")
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, said, "`kubectl quorate "+c.name+" -h` lists the flags")
		code, _ = run(steady(t), c.name, "one", "too", "many", "words")
		assert.Equal(t, exitUsage, code, c.name)

		t.Chdir(t.TempDir()) // a report is there now
		k := everything(t)[0]
		k.fails[""] = "nothing works today"
		code, said = run(k, append(strings.Fields(c.example), "--request-timeout=1s")...)
		if len(k.calls) == 0 {
			assert.Zero(t, code, said)
			continue
		}
		assert.Equal(t, exitTrouble, code, c.name)
		assert.Contains(t, said, "nothing works today", c.name)
	}
	for _, line := range strings.Split(usage(), "\n") {
		assert.LessOrEqual(t, len(line), 120, line)
	}
}

// TestNameIsNeeded: which of several is meant is asked for, with the code of a wrong line.
func TestNameIsNeeded(t *testing.T) {
	for _, c := range commands {
		if len(c.takes) == 0 || !c.takes[0].optional || c.name == "status" {
			continue
		}
		k := everything(t)[0]
		k.says["get "+clusters] = `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`
		line := strings.Replace(c.example+" ", " orders ", " ", 1)
		code, _, errs := k.runs(healthy(), strings.Fields(line)...)
		assert.Equal(t, exitUsage, code, line)
		require.Contains(t, errs, "there are 2 EtcdClusters", line)
	}
}

// TestTheCommandsInTheDocument: docs/reference/cli.md has the lines of the usage page, and an example of each.
func TestTheCommandsInTheDocument(t *testing.T) {
	table := "| Command | What it does | Example |\n| --- | --- | --- |\n"
	for _, c := range commands {
		table += "| `" + c.name + " " + c.args + "` | " + c.does + " | `" + c.example + "` |\n"
	}
	require.NoError(t, docs.Keep("../../docs/reference/cli.md", "generated: begin commands", "generated: end", table))
}

// TestCommandsThatOthersName: documents and messages name commands that there are, with flags that these have.
func TestCommandsThatOthersName(t *testing.T) {
	line := regexp.MustCompile("kubectl quorate ([a-z-]+)([^`\n\"]*)")
	flags := regexp.MustCompile(`(?:^| )--([a-z-]+)`)
	named := 0
	look := func(path string, _ fs.DirEntry, err error) error {
		require.NoError(t, err)
		if !strings.HasSuffix(path, ".md") && (!strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go")) {
			return nil
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			c := commandNamed(m[1])
			if m[1] == install.name || m[1] == "help" {
				continue
			}
			if !assert.NotNil(t, c, "%s: %s", path, m[0]) {
				continue
			}
			named++
			_, has := New("devel", io.Discard, io.Discard).begin(c)
			for _, f := range flags.FindAllStringSubmatch(m[2], -1) {
				assert.NotNil(t, has.Lookup(f[1]), "%s: %s", path, m[0])
			}
		}
		return nil
	}
	for _, folder := range []string{"docs", "hooks", "server", "manifests", "README.md", "SECURITY.md"} {
		require.NoError(t, filepath.WalkDir("../../"+folder, look))
	}
	assert.Greater(t, named, 20)
}
