//go:build e2e

package e2e

import (
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestSamples: each file of manifests/samples is applied as it lies there and does what its first lines say. What the
// lab lacks is put in by the smallest of patches, in testdata/samples. (A test in test/static/docs finds samples
// without a story.)
func TestSamples(t *testing.T) {
	t.Parallel()
	for story, play := range map[string]func(*cluster){
		"backups":     (*cluster).playBackups,
		"production":  (*cluster).playProduction,
		"memory":      (*cluster).playMemory,
		"hostpath":    (*cluster).playHostPath,
		"secrets":     (*cluster).playSecrets,
		"certmanager": (*cluster).playCertManager,
		"users":       (*cluster).playUsers,
		"external":    (*cluster).playExternal,
	} {
		t.Run(story, func(t *testing.T) {
			beside(t)
			play(inNamespace(t))
		})
	}
}

// sample applies a file as it is.
func (c *cluster) sample(file string) {
	c.t.Helper()
	c.kube("apply", "-f", filepath.Join("../../../manifests/samples", file))
}

// unchanged insists that nothing differs between a file and what is stored: neither Flux nor Argo CD would have
// anything to do. (kubectl diff would also tell of a status that was written between its two looks, and of the
// annotation in which kubectl remembers the file.)
func (c *cluster) unchanged(file string) {
	c.t.Helper()
	path := filepath.Join("../../../manifests/samples", file)
	const wanted = "{.metadata.name}{.metadata.generation}{.metadata.labels}{.spec}\n"
	objects := func(args ...string) string {
		return kube(c.t, append(args, "-n", c.ns, "-f", path, "-o",
			"jsonpath={range .items[*]}"+wanted+"{end}"+wanted)...)
	}
	stored := objects("get")
	assert.Equal(c.t, stored, objects("apply", "--dry-run=server"))
	assert.Equal(c.t, stored, objects("apply", "--server-side", "--force-conflicts"))
	assert.Equal(c.t, stored, objects("apply", "--server-side", "--force-conflicts", "--dry-run=server"))
}

// fitted applies a file with the patch in this folder.
func (c *cluster) fitted(folder, file string) {
	c.t.Helper()
	overlay, err := os.ReadFile(filepath.Join("testdata/samples", folder, "kustomization.yaml"))
	require.NoError(c.t, err)
	require.Contains(c.t, string(overlay), "/manifests/samples/"+file+"]")
	built := kube(c.t, "kustomize", "--load-restrictor=LoadRestrictionsNone", filepath.Join("testdata/samples", folder))
	c.adds(built)
}

// arrives waits until an EtcdCluster is as its spec wants.
func (c *cluster) arrives(object string) {
	c.t.Helper()
	eventually(c.t, object+" converges", func() string { return notYet(c.t, c.ns, object, "Converged") })
}

// meets waits until an object has a condition, or a value somewhere.
func (c *cluster) meets(object, condition string) {
	c.t.Helper()
	if !strings.HasPrefix(condition, "jsonpath=") {
		condition = "condition=" + condition
	}
	kube(c.t, append([]string{"-n", c.ns, "wait", "--for=" + condition, "--timeout=" + patience.String()},
		strings.Fields(object)...)...)
}

// playBackups: the smallest cluster, a snapshot of it, a schedule, a standby, and a new cluster that begins with the
// snapshot and has the key.
func (c *cluster) playBackups() {
	c.sample("etcdcluster.yaml")
	c.meets("etcdcluster/demo", "Ready")
	c.arrives(name)
	c.unchanged("etcdcluster.yaml")
	c.asked("demo-0", "put", "greeting", "hello")
	c.sample("snapshot.yaml")
	c.meets("etcdsnapshot/demo-first", "Complete")
	c.meets("etcdsnapshot/demo-first", "Ready")
	c.sample("schedule.yaml")
	c.meets("etcdsnapshotschedule/demo-hourly", "Ready")
	c.sample("mirror.yaml")
	c.meets("etcdmirror/standby", "Mirroring")
	assert.Equal(c.t, "greeting\nhello\n", c.asked("standby-0", "get", "greeting"))
	c.kube("delete", "etcdmirror/standby", "etcdcluster/standby")
	c.movesOutByASnapshot()
	c.sample("restore.yaml")
	c.arrives("restored")
	out := c.asked("restored-0", "get", "greeting")
	assert.Equal(c.t, "greeting\nhello\n", out)
	c.asked("demo-0", "del", "greeting")
	c.sample("operation.yaml")
	c.meets("etcdoperation/demo-undo", "Complete")
	c.meets("etcdoperation/demo-undo", "Ready")
	c.arrives(name)
	assert.Equal(c.t, "greeting\nhello\n", c.asked("demo-3", "get", "greeting"))
}

// movesOutByASnapshot: a plain StatefulSet begins with a snapshot, by etcd's own tools, and runs on without it.
func (c *cluster) movesOutByASnapshot() {
	c.sample("out.yaml")
	c.meets("etcdsnapshot/demo-out", "Complete")
	s, _ := c.snapshot("demo-out")
	c.kube("create", "configmap", "plain", "--from-literal=file="+s.Status.Artifact)
	c.kube("rollout", "status", "statefulset/plain")
	c.kube("patch", "statefulset", "plain", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/template/spec/initContainers"},{"op":"remove","path":"/spec/template/spec/volumes"}]`)
	c.kube("rollout", "status", "statefulset/plain")
	assert.Equal(c.t, "greeting\nhello\n", c.asked("plain-0", "get", "greeting"))
	assert.Equal(c.t, 3, strings.Count(c.asked("plain-0", "member", "list"), "started"))
	c.kube("delete", "statefulset/plain")
}

func (c *cluster) playProduction() {
	unprotect := func() error {
		_, err := kubectl("", "-n", c.ns, "patch", "etcdcluster", "production", "--type=merge", "-p",
			`{"spec":{"deletionProtection":false}}`)
		return err
	}
	c.t.Cleanup(func() { _ = unprotect() }) // the namespace could not be deleted
	c.fitted("production", "production.yaml")
	c.arrives("production")
	on := map[string]int{}
	for _, pod := range c.pods() {
		on[pod.Spec.NodeName]++
	}
	assert.Len(c.t, on, 3, "members are spread over all nodes: %v", on)
	_, err := kubectl("", "-n", c.ns, "delete", "etcdcluster", "production", "--dry-run=server")
	require.ErrorContains(c.t, err, "deletionProtection")
	require.NoError(c.t, unprotect())
}

func (c *cluster) playMemory() {
	c.sample("memory.yaml")
	c.arrives("cache")
	c.unchanged("memory.yaml")
	assert.Empty(c.t, list[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc"))
}

func (c *cluster) playHostPath() {
	c.t.Cleanup(func() { // the lab's nodes share this machine's disk
		if !*keep || !c.t.Failed() {
			_ = os.RemoveAll("/var/tmp/quorate-samples")
		}
	})
	c.fitted("hostpath", "hostpath.yaml")
	c.arrives("pinned")
}

func (c *cluster) playSecrets() {
	ours := stranger(c.t, pkix.Name{CommonName: "ours"})
	peers := "*.orders-peers." + c.ns + ".svc"
	c.putsThree("orders", "orders-", ours, []string{peers, "orders." + c.ns + ".svc", "localhost"}, []string{peers})
	c.sample("tls-secrets.yaml")
	c.arrives("orders")
	c.meets("etcdcluster/orders", "Secured")
}

func (c *cluster) playCertManager() {
	c.sample("tls-certmanager.yaml")
	c.arrives("orders")
	c.meets("etcdcluster/orders", "Secured")
}

func (c *cluster) playUsers() {
	c.sample("users.yaml")
	c.arrives("shop")
	c.meets("etcdcluster/shop", "Authorized")
	for _, secret := range []string{"shop-client.checkout", "shop-user.reporter", "shop-user.root"} {
		c.secretOf(secret)
	}
}

// playExternal: as the file says, the authority is there before any member joins; when the former members trust it,
// ours join them.
func (c *cluster) playExternal() {
	f := newExternalEtcd(c.t, "3.6.16", 23190, true)
	cert, key := f.ca.issue("no-user", time.Now().Add(time.Hour))
	c.putsFor("orders", "former", cert, key, bundle(*f.ca))
	c.fitted("external", "external.yaml")
	c.meets("etcdcluster/orders", "Secured")
	assert.Empty(c.t, c.pods())
	ours := c.secretOf("orders-ca")["ca.crt"]
	require.NoError(c.t, os.WriteFile(f.dir+"/peer-ca.crt", append(bundle(*f.ca), ours...), 0o600))
	f.restart()
	c.kube("scale", "etcdcluster", "orders", "--replicas=3")
	c.meets("etcdcluster/orders", `jsonpath={.status.conditions[?(@.type=="ExternalMembers")].reason}=ExternalMembers`)
	assert.Len(c.t, membersOf(c.t, f.client("root")), 6)
}
