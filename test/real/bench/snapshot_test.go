//go:build linux && releases

package bench

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

var (
	snapshotMiB = flag.Int("snapshot.mib", 0, "measure snapshots of so many MiB; 0 measures none")
	snapshotOf  = flag.String("snapshot.quorate", "", "bin/quorate-snapshot, as `make build` makes it")
	snapshotRun = flag.Int("snapshot.runs", 3, "how often each is run; the median is told")
)

// TestSnapshots measures `quorate-snapshot snapshot` beside `etcdctl snapshot save` and `etcdutl snapshot restore`,
// on the same data and disk:
//
//	make bench-snapshots
//
// Half of each value is random, as what was compressed or encrypted already is; the rest is text that repeats. With
// root's rights caches are cold, and verification is measured within the memory that a Job has by default, too.
func TestSnapshots(t *testing.T) {
	if *snapshotMiB == 0 {
		t.Skip("-snapshot.mib says how much")
	}
	version := etcdproc.Versions[len(etcdproc.Versions)-1]
	c := etcdproc.Start(t, version, "bench", 1, "--quota-backend-bytes=8589934592")
	m := c.Members[0]
	fillMiB(t, m, *snapshotMiB)
	dir := t.TempDir()
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	etcdctl, etcdutl := etcdproc.Program(t, version, "etcdctl"), etcdproc.Program(t, version, "etcdutl")
	saved := filepath.Join(dir, "saved.db")
	take := func(args ...string) []string {
		return append([]string{*snapshotOf, "snapshot", "--endpoint=" + m.ClientURL, "--store-url=file:///store",
			"--store-dir=" + dir, "--key=one.db", "--etcd=" + etcdproc.Program(t, version, "etcd"),
			"--etcdutl=" + etcdutl, "--scratch=" + dir}, args...)
	}
	verified := take("--recipient=" + identity.Recipient().String())
	rows := []struct {
		name string
		line []string
	}{
		{"etcdctl snapshot save", []string{etcdctl, "--endpoints=" + m.ClientURL, "snapshot", "save", saved}},
		{"quorate-snapshot snapshot, as it is", take("--compression=none", "--verify=false")},
		{"quorate-snapshot snapshot, zstd", take("--verify=false")},
		{"quorate-snapshot snapshot, age",
			take("--compression=none", "--verify=false", "--recipient="+identity.Recipient().String())},
		{"quorate-snapshot snapshot, zstd and age",
			take("--verify=false", "--recipient="+identity.Recipient().String())},
		{"quorate-snapshot snapshot, zstd and age, verified", verified},
		{"etcdutl snapshot restore",
			[]string{etcdutl, "snapshot", "restore", saved, "--data-dir=" + filepath.Join(dir, "restored")}},
	}
	if mib := snapshot.JobMemory>>20 + *snapshotMiB/4; os.Getuid() == 0 {
		rows = append(rows, struct {
			name string
			line []string
		}{fmt.Sprintf("the same within %d MiB", mib), within(t, mib, verified)})
	}
	for _, what := range rows {
		// what is there would be reported, and not be taken again
		took, used := runs(t, dir, what.line, "restored", "store")
		size := int64(0)
		if info, err := os.Stat(filepath.Join(dir, "store", "one.db")); err == nil {
			size = info.Size()
		}
		fmt.Printf("| %s | %s | %s | %d MiB stored |\n", what.name, took, used, size>>20)
	}
}

// within is a line that runs in a control group of so much memory, pages of files among it, as in a container.
func within(t *testing.T, mib int, line []string) []string {
	t.Helper()
	group, most := "/sys/fs/cgroup/quorate-bench", "memory.max"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil { // cgroup v1
		group, most = "/sys/fs/cgroup/memory/quorate-bench", "memory.limit_in_bytes"
	}
	require.NoError(t, os.MkdirAll(group, 0o755))
	t.Cleanup(func() { _ = os.Remove(group) })
	require.NoError(t, os.WriteFile(filepath.Join(group, most), fmt.Append(nil, mib<<20), 0o600))
	return append([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && export GOMEMLIMIT=$1 && shift && exec "$@"`,
		group, fmt.Sprint(mib << 20 / 10 * 9)}, line...)
}

func fillMiB(t *testing.T, m *etcdproc.Member, mib int) {
	t.Helper()
	client := m.Client()
	random := rand.NewChaCha8([32]byte{1})
	value := make([]byte, 64<<10)
	for i := range len(value) {
		value[i] = "apiVersion: v1, kind: ConfigMap "[i%32]
	}
	for i := range mib * 16 {
		_, _ = random.Read(value[:len(value)/2])
		_, err := client.Put(context.Background(), fmt.Sprintf("key-%07d", i), string(value))
		require.NoError(t, err)
	}
}
