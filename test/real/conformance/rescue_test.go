//go:build unix && releases

package conformance

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/etcdops/rescue"
	"github.com/quorate-dev/quorate/etcdops/seed"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestRescueBegins: of three members one directory is left, or a snapshot. The etcd that is begun with it has all that
// this held, is another cluster, and begins above all revisions that were seen. What can't be begun with changes nothing.
func TestRescueBegins(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it gives files to etcd's user, which needs root")
	}
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 3, lazy...)
		client := old.Members[0].Client()
		revision := put(t, client, "key", 200)
		snapshot := snapshotOf(t, version, old.Members[0])
		dir := filepath.Join(t.TempDir(), "demo-0")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Symlink(old.Members[0].DataDir(), filepath.Join(dir, "data")))

		b := beginning{t: t, version: version, ca: etcdproc.NewAuthority(t)}
		require.Contains(t, b.refused("--dir="+dir), "in use")
		killAll(old)
		before := tree(t, old.Members[0].DataDir())
		found, err := seed.Survey(old.Members[0].DataDir(), "")
		require.NoError(t, err)
		require.Contains(t, b.refused(), "one of --dir and --snapshot is required")
		require.Contains(t, b.refused("--dir="+dir, "--image=etcd:v3.4.0"), "both must be the same release")
		damaged := filepath.Join(t.TempDir(), "damaged.db")
		raw, err := os.ReadFile(snapshot)
		require.NoError(t, err)
		raw[len(raw)/2] ^= 1
		require.NoError(t, os.WriteFile(damaged, raw, 0o600))
		require.Contains(t, b.refused("--snapshot="+damaged), "nothing was begun")

		clusters := map[uint64]string{}
		for _, source := range []string{"--dir=" + dir, "--dir=" + dir, "--snapshot=" + snapshot} {
			served, end := b.serves(source)
			require.EqualValues(t, 200, count(t, served, "key"), source)
			r, err := served.Get(t.Context(), "key-199")
			require.NoError(t, err)
			require.Greater(t, r.Header.Revision, revision+seed.BeginGap-1)
			require.NotContains(t, clusters, r.Header.ClusterId, "each is a cluster of its own")
			require.NotEqual(t, found.ClusterID, fmt.Sprintf("%x", r.Header.ClusterId))
			clusters[r.Header.ClusterId] = source
			end()
		}
		require.Equal(t, before, tree(t, old.Members[0].DataDir()), "the directory is as it was")
	})
}

// beginning is what all tries have in common.
type beginning struct {
	t       *testing.T
	version string
	ca      *etcdproc.Authority
}

func (b *beginning) run(to, manifests string, port int, args ...string) (said string, code int) {
	var out bytes.Buffer
	code = rescue.Run(b.t.Context(), append([]string{"begin", "--to=" + to, "--manifests=" + manifests,
		"--programs=" + filepath.Dir(etcdproc.Program(b.t, b.version, "etcd")), "--image=etcd:v" + b.version,
		"--address=127.0.0.1", fmt.Sprint("--client-port=", port), fmt.Sprint("--peer-port=", etcdproc.Port(b.t)),
		"--ca-cert=" + b.ca.File("ca.crt"), "--ca-key=" + b.ca.File("ca.key")}, args...), &out, &out)
	return out.String(), code
}

// refused is why nothing was begun.
func (b *beginning) refused(args ...string) string {
	b.t.Helper()
	to, manifests := filepath.Join(b.t.TempDir(), "begun"), b.t.TempDir()
	said, code := b.run(to, manifests, 1, args...)
	require.NotZero(b.t, code, said)
	require.NoDirExists(b.t, to)
	files, err := os.ReadDir(manifests)
	require.NoError(b.t, err)
	require.Empty(b.t, files)
	return said
}

// serves begins, and starts etcd as the static pod says.
func (b *beginning) serves(args ...string) (client *clientv3.Client, end func()) {
	b.t.Helper()
	to, manifests, port := filepath.Join(b.t.TempDir(), "begun"), b.t.TempDir(), etcdproc.Port(b.t)
	said, code := b.run(to, manifests, port, args...)
	require.Zero(b.t, code, said)
	require.Contains(b.t, said, fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", port))
	text, err := os.ReadFile(filepath.Join(manifests, "rescue-begun.yaml"))
	require.NoError(b.t, err)
	var pod corev1.Pod
	require.NoError(b.t, yaml.Unmarshal(text, &pod))
	container := pod.Spec.Containers[0]
	var flags []string
	for _, flag := range container.Command[1:] {
		flags = append(flags, strings.ReplaceAll(flag, container.VolumeMounts[0].MountPath,
			pod.Spec.Volumes[0].HostPath.Path))
	}
	etcd := exec.Command(etcdproc.Program(b.t, b.version, "etcd"), flags...)
	var log bytes.Buffer
	etcd.Stdout, etcd.Stderr = &log, &log
	require.NoError(b.t, etcd.Start())
	client, err = clientv3.New(clientv3.Config{Endpoints: []string{fmt.Sprintf("https://127.0.0.1:%d", port)},
		TLS: b.ca.Client("root")})
	require.NoError(b.t, err)
	return client, func() {
		require.NoError(b.t, client.Close())
		_ = etcd.Process.Kill()
		_ = etcd.Wait()
		if b.t.Failed() {
			b.t.Log(log.String())
		}
	}
}
