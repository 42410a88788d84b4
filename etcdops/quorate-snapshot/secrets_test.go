package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/command"
)

// mark is in every secret that these tests give to the program.
const mark = "MARKED"

// secrets that could come into an argument: what is in a file of a Secret, and in a variable.
var secrets = []string{
	mark, mark + "\n", "\n" + mark + "\n", "AGE-SECRET-KEY-1" + mark, "sv=2024-11-04&sig=" + mark + "%3D",
	string(pem.EncodeToMemory(&pem.Block{Type: mark, Bytes: []byte(mark)})),
	`{"private_key":"` + mark + `"}`, "\x00" + mark, "%" + mark, mark + "@" + mark,
}

// around are what an argument has besides: parts of URLs and of names.
var around = []string{
	"s3://", "s3://b/", "s3://b?region=", "s3://b?endpoint=https://", "gs://", "gs://b/",
	"azblob://b/", "azblob://b?domain=", "azblob://b?storage_account=", "file:///", "file://",
	"/x.db", ".db", ".json", "?", "&", "#", "@", ":", "=", "/..", "", "", "age1", "1", "-", "zstd",
}

func hiding(r *rand.Rand) string {
	var all strings.Builder
	for range 1 + r.IntN(3) {
		all.WriteString(around[r.IntN(len(around))])
	}
	all.WriteString(secrets[r.IntN(len(secrets))])
	all.WriteString(around[r.IntN(len(around))])
	return all.String()
}

// FuzzNothingIsToldOfAnArgument: though a secret had come into an argument that says where a
// snapshot is, in what form, or how much, neither log nor termination message tells it.
func FuzzNothingIsToldOfAnArgument(f *testing.F) {
	for seed := range uint64(400) {
		f.Add(seed)
	}
	stopped, stop := context.WithCancel(context.Background())
	stop() // no store is asked
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		command.TerminationLog = filepath.Join(dir, "termination-log")
		require.NoError(t, os.WriteFile(command.TerminationLog, nil, 0o600))
		file := filepath.Join(dir, "secret")
		require.NoError(t, os.WriteFile(file, []byte(secrets[r.IntN(len(secrets))]), 0o600))
		for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
			"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"} {
			t.Setenv(name, mark+strings.ReplaceAll(secrets[r.IntN(len(secrets))], "\x00", ""))
		}
		t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
		flags := map[string][]string{
			"restore":      {"url", "store-url", "sha256", "begin-after", "tail-url", "until-revision"},
			"stream":       {"store-url", "tail", "cluster-id", "from-revision", "compression", "recipient", "max-size"},
			"inspect":      {"store-url", "tail", "cluster-id", "from-revision", "until-time"},
			"mirror":       {"prefix", "to-prefix", "exclude", "name", "to-max-txn-ops", "compare-on-start", "store-url", "tail"},
			"snapshot":     {"store-url", "key", "compression", "recipient", "verify", "unless-revision"},
			"delete":       {"store-url", "key"},
			"inspect-data": {},
			"fly":          {},
		}
		// In the order of their names, so that a seed repeats.
		for _, name := range []string{"delete", "fly", "inspect", "mirror", "restore", "snapshot", "stream", "inspect-data"} {
			args := map[string][]string{
				"restore": {"--data-dir=" + dir + "/data", "--marker=" + dir + "/started", "--name=a",
					"--peer-url=http://a:2380", "--etcd-version=3.6.16", "--url=s3://b/x.db", "--store-dir=" + dir},
				"snapshot": {"--endpoint=http://127.0.0.1:1", "--store-url=s3://b", "--key=x.db", "--store-dir=" + dir},
				"stream": {"--endpoint=http://127.0.0.1:1", "--store-url=s3://b", "--tail=x", "--from-revision=1",
					"--store-dir=" + dir, "--listen="},
				"mirror":       {"--endpoint=http://127.0.0.1:1", "--to-endpoint=http://127.0.0.1:1", "--listen="},
				"inspect":      {"--store-url=file:///x", "--tail=x", "--store-dir=" + dir},
				"delete":       {"--store-url=file:///x", "--key=x.db", "--store-dir=" + dir},
				"inspect-data": {"--data-dir=" + dir},
			}[name]
			for _, flag := range flags[name] {
				if r.IntN(2) == 0 {
					args = append(args, "--"+flag+"="+hiding(r))
				}
			}
			for _, flag := range map[string][]string{"restore": {"identity"}, "snapshot": {"ca", "cert", "cert-key"},
				"stream": {"ca", "cert", "cert-key"}, "mirror": {"to-ca", "to-cert", "to-cert-key", "to-token-key"},
				"inspect": {"identity"}, "delete": {"store-ca"}}[name] {
				if r.IntN(3) == 0 {
					args = append(args, "--"+flag+"="+file)
				}
			}
			if r.IntN(8) == 0 {
				args = append(args, hiding(r))
			}
			var said bytes.Buffer
			env := func(string) string { return "a=http://a:2380" }
			run(stopped, append([]string{name}, args...), env, &said, &said)
			left, err := os.ReadFile(command.TerminationLog)
			require.NoError(t, err)
			assert.NotContains(t, said.String(), mark, "%s %q", name, args)
			assert.NotContains(t, said.String(), "not defined",
				"%s %q: a flag that is gone stops it before it reads the others", name, args)
			assert.NotContains(t, string(left), mark, "%s %q", name, args)
		}
	})
}
