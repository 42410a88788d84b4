//go:build e2e

package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// asksFor applies an EtcdSnapshot with this spec besides the cluster, in one line of YAML.
func (c *cluster) asksFor(object, spec string) {
	c.t.Helper()
	c.addsOurs("EtcdSnapshot", object, fmt.Sprintf("clusterRef: {name: %s}, %s", name, spec))
}

// snapshot as it is; false when it is gone.
func (c *cluster) snapshot(object string) (*v1beta1.EtcdSnapshot, bool) {
	c.t.Helper()
	return get[v1beta1.EtcdSnapshot](c.t, c.ns, "etcdsnapshot", object)
}

// ends waits until a snapshot is finished in this way.
func (c *cluster) ends(object string, phase v1beta1.SnapshotPhase) *v1beta1.EtcdSnapshot {
	c.t.Helper()
	var s *v1beta1.EtcdSnapshot
	eventually(c.t, fmt.Sprintf("the snapshot %s is %s", object, phase), func() string {
		s, _ = c.snapshot(object)
		switch s.Status.Phase {
		case phase:
			return ""
		case v1beta1.SnapshotSucceeded, v1beta1.SnapshotUnverified, v1beta1.SnapshotFailed, v1beta1.SnapshotSkipped:
			c.t.Fatalf("the snapshot %s is %s: %s", object, s.Status.Phase, s.Status.Message)
		default:
		}
		return fmt.Sprintf("%s: %s", s.Status.Phase, s.Status.Message)
	})
	return s
}

// discards deletes a snapshot and waits until it is gone, and what was stored of it.
func (c *cluster) discards(object string) {
	c.t.Helper()
	c.kube("delete", "etcdsnapshot", object, "--wait=false")
	eventually(c.t, "the snapshot "+object+" is gone", func() string {
		s, there := c.snapshot(object)
		return while(there, "it says: "+s.Status.Message)
	})
}

// holds writes this many MiB that don't compress.
func (c *cluster) holds(mebibytes int) {
	c.t.Helper()
	client := c.client()
	for i := range mebibytes {
		value := make([]byte, 1<<20)
		_, _ = rand.Read(value)
		// a request has at most 1.5 MiB
		require.NoError(c.t, putting(c.t, client, fmt.Sprintf("ballast-%04d", i), string(value[:1<<20-1024])))
	}
}

// path of an object in the folder of the cluster's namespace, as the store's server keeps it.
func (bucket *s3) path(c *cluster, key string) string {
	return filepath.Join(bucket.dir, "buckets", "backups", c.ns, key)
}

// stored are the files below the folder of the cluster's namespace in the bucket.
func (bucket *s3) stored(c *cluster) []string {
	c.t.Helper()
	root := bucket.path(c, "")
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) || err == nil && d.IsDir() {
			return nil
		}
		all = append(all, strings.TrimPrefix(path, root+"/"))
		return err
	})
	require.NoError(c.t, err)
	return all
}

// whole insists that what is stored is this snapshot alone, and that its record describes it.
func (bucket *s3) whole(c *cluster, s *v1beta1.EtcdSnapshot) []byte {
	c.t.Helper()
	key := snapshot.Key(s)
	all := []string{key, key + stores.ContentsSuffix, key + ".json"}
	if s.Status.VerificationTime.IsZero() {
		all = []string{key, key + ".json"}
	}
	require.Equal(c.t, all, bucket.stored(c))
	object, err := os.ReadFile(bucket.path(c, key))
	require.NoError(c.t, err)
	raw, err := os.ReadFile(bucket.path(c, key+".json"))
	require.NoError(c.t, err)
	var record stores.Snapshot
	require.NoError(c.t, json.Unmarshal(raw, &record))
	sum := sha256.Sum256(object)
	require.Equal(c.t, record.StoredSHA256, hex.EncodeToString(sum[:]))
	require.Equal(c.t, s.Status.SHA256, record.SHA256)
	return object
}

// isStoredOnAClaim: a snapshot on a claim is taken over TLS, restored on trial, and deleted with its object.
func (c *cluster) isStoredOnAClaim() {
	c.adds("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: backups, namespace: " + c.ns +
		"}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n")
	w := c.writes()
	w.wrote(30)
	leader := c.object().Status.Leader
	c.asksFor("first", "deletionPolicy: Delete, store: {claim: {name: backups, path: etcd}}")
	s := c.ends("first", v1beta1.SnapshotSucceeded)
	assert.True(c.t, meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.Complete))
	assert.True(c.t, meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.Verified))
	assert.GreaterOrEqual(c.t, s.Status.Keys, int64(30))
	assert.Greater(c.t, s.Status.Revision, s.Status.Keys)
	assert.Equal(c.t, "3.6.16", s.Status.EtcdVersion)
	assert.Equal(c.t, c.object().Status.ClusterID, s.Status.ClusterID)
	if c.object().Status.Leader == leader {
		assert.NotEqual(c.t, leader, s.Status.Member, "the leader has enough to do")
	}
	key := "etcd/" + snapshot.Key(s)
	assert.Equal(c.t, []string{key, key + stores.ContentsSuffix, key + ".json"}, c.onClaim("backups"))
	c.tellsWhoFillsIt(s)
	c.discards("first")
	assert.Empty(c.t, c.onClaim("backups"))
}

// tellsWhoFillsIt: kubectl quorate top names the heaviest prefix of a verified snapshot, and asks a member.
func (c *cluster) tellsWhoFillsIt(first *v1beta1.EtcdSnapshot) {
	client := c.client()
	for i := range 200 {
		require.NoError(c.t, putting(c.t, client, fmt.Sprintf("heavy/weight/%d", i), strings.Repeat("x", 10_000)))
	}
	c.asksFor("second", "deletionPolicy: Delete, store: {claim: {name: backups, path: etcd}}")
	s := c.ends("second", v1beta1.SnapshotSucceeded)
	require.NotNil(c.t, s.Status.Contents)
	assert.Equal(c.t, s.Status.Keys, s.Status.Contents.Total.Keys)
	assert.Greater(c.t, s.Status.Contents.InUse, first.Status.Contents.InUse)
	does := c.doing()
	assert.Contains(c.t, lineWith(does("top", name, "--depth=2"), "heavy/weight/"), " 200 ")
	assert.NotContains(c.t, does("top", name, "--snapshot=first", "-o", "json"), "heavy/weight/")
	assert.Contains(c.t, lineWith(does("top", name, "--live", "--for=10s", "--depth=2"), "heavy/weight/"), " 200 ")
	c.discards("second")
}

// TestSnapshots: what becomes of snapshots in a bucket, told on one cluster of one member.
func TestSnapshots(t *testing.T) {
	beside(t)
	bucket := store(t)
	c := newCluster(t, "  version: 3.6.16\n  replicas: 1\n  storage: {size: 1Gi}")
	bucket.credentials(c)
	c.tell("SnapshotS3", bucket.storesSealed)
	c.tell("SnapshotKilled", bucket.staysWhole)
	c.tell("KilledWhileVerified", bucket.isStoredUnverified)
	c.tell("TheStoreIsGoneForAWhile", (*cluster).waitsForItsStore)
}

// onClaim are the files on a claim, as a pod sees them.
func (c *cluster) onClaim(claim string) []string {
	c.t.Helper()
	c.kills("look")
	c.adds(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: look, namespace: %s}
spec:
  restartPolicy: Never
  containers:
  - {name: look, image: busybox:1.35, command: [sh, -c, "cd /store && find . -type f | sort"], volumeMounts: [{name: store, mountPath: /store}]}
  volumes: [{name: store, persistentVolumeClaim: {claimName: %s}}]
`, c.ns, claim))
	eventually(c.t, "a pod has looked", func() string {
		pod, _ := get[corev1.Pod](c.t, c.ns, "pods", "look")
		return while(pod.Status.Phase != corev1.PodSucceeded, string(pod.Status.Phase))
	})
	var files []string
	for line := range strings.Lines(c.kube("logs", "look")) {
		files = append(files, strings.TrimPrefix(strings.TrimSpace(line), "./"))
	}
	return files
}

// storesSealed: in a bucket it lies compressed, and encrypted for those who may read it; with wrong credentials
// nothing is stored, and the message says why.
func (bucket *s3) storesSealed(c *cluster) {
	c.holds(2)
	reader, err := age.GenerateX25519Identity()
	require.NoError(c.t, err)
	c.asksFor("sealed", fmt.Sprintf("deletionPolicy: Delete, encryption: {recipients: [%s]}, store: %s",
		reader.Recipient(), bucket.yaml(c.ns)))
	s := c.ends("sealed", v1beta1.SnapshotSucceeded)
	assert.False(c.t, s.Status.VerificationTime.IsZero())
	object := bucket.whole(c, s)
	assert.NotContains(c.t, string(object), "ballast-0001")
	plain, err := age.Decrypt(bytes.NewReader(object), reader)
	require.NoError(c.t, err)
	magic := make([]byte, 4)
	_, err = plain.Read(magic)
	require.NoError(c.t, err)
	assert.Equal(c.t, []byte{0x28, 0xb5, 0x2f, 0xfd}, magic, "Zstandard")

	c.discards("sealed")
	assert.Empty(c.t, bucket.stored(c))

	c.kube("create", "secret", "generic", "wrong", "--from-literal=AWS_ACCESS_KEY_ID="+s3Key,
		"--from-literal=AWS_SECRET_ACCESS_KEY=wrong")
	c.asksFor("refused", "deletionPolicy: Delete, job: {retries: 0}, store: "+bucket.yamlWith(c.ns, "wrong"))
	eventually(c.t, "the owner of the credentials is asked", func() string {
		pending, _ := c.snapshot("refused")
		return while(!strings.Contains(pending.Status.Message, "lacks the label that lets pods have it"), "it is not asked")
	})
	c.kube("label", "secret", "wrong", objects.LabelExternal+"=")
	s = c.ends("refused", v1beta1.SnapshotFailed)
	assert.Contains(c.t, s.Status.Message, "check the credentials of the store")
	assert.Empty(c.t, bucket.stored(c))
	c.discards("refused") // nothing was stored: a store that refuses everyone does not stand in the way
}

// runs is the pod that runs for a snapshot; empty for none.
func (c *cluster) runs(snapshot string) string {
	c.t.Helper()
	for _, p := range list[corev1.Pod](c.t, c.ns, "pods") {
		if p.Labels[objects.LabelSnapshot] == snapshot && p.Status.Phase == corev1.PodRunning {
			return p.Name
		}
	}
	return ""
}

// staysWhole: whenever the Job's pod is killed, the snapshot ends whole, once; and one that is deleted leaves nothing.
func (bucket *s3) staysWhole(c *cluster) {
	c.holds(48)
	for round := range 4 {
		object := fmt.Sprintf("killed-%d", round)
		c.asksFor(object, "deletionPolicy: Delete, store: "+bucket.yaml(c.ns))
		var running string
		eventually(c.t, "its pod runs, or has run", func() string {
			if running = c.runs(object); running != "" {
				return ""
			}
			s, _ := c.snapshot(object)
			if s.Status.Phase == v1beta1.SnapshotSucceeded {
				return "" // before we looked: there is nothing to kill
			}
			return "not yet"
		})
		moment := time.Duration(mathrand.IntN(3000)) * time.Millisecond
		<-time.After(moment)
		if running != "" {
			c.kills(running)
		}
		took := eventually(c.t, "its processes are gone",
			func() string { return strings.Join(processesOf(c.t, running), ", ") })
		c.t.Logf("%s was killed %s after it began, and ended %.1f s later", running, moment, took.Seconds())
		if round%2 == 0 {
			s := c.ends(object, v1beta1.SnapshotSucceeded)
			bucket.whole(c, s)
		}
		c.discards(object)
		require.Empty(c.t, bucket.stored(c), "round %d", round)
	}
}

// isStoredUnverified: the only Job is killed when all is stored and not verified yet. A second Job looks what there
// is, which is neither lost nor said to be good.
func (bucket *s3) isStoredUnverified(c *cluster) {
	c.asksFor("unverified", "deletionPolicy: Delete, job: {retries: 0}, store: "+bucket.yaml(c.ns))
	var pod string
	eventually(c.t, "its pod runs", func() string {
		pod = c.runs("unverified")
		return while(pod == "", "not yet")
	})
	// The record is there from when all is stored. Then the Job fetches it, and starts an etcd on it: that takes a
	// second or more.
	asked, _ := c.snapshot("unverified")
	record := bucket.path(c, snapshot.Key(asked)+".json")
	require.Eventually(c.t, func() bool { _, err := os.Stat(record); return err == nil }, patience, 5*time.Millisecond)
	for _, environ := range processesOf(c.t, pod) {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(environ)))
		require.NoError(c.t, err)
		_ = syscall.Kill(pid, syscall.SIGKILL) // one of them ends with the other
	}
	s := c.ends("unverified", v1beta1.SnapshotUnverified)
	assert.Contains(c.t, s.Status.Message, "the stored artifact stays")
	assert.True(c.t, s.Status.VerificationTime.IsZero())
	bucket.whole(c, s)
	c.discards("unverified")
	assert.Empty(c.t, bucket.stored(c))
}

// processesOf are what still runs in a pod, as this machine sees it. The API server forgets a pod that is deleted by
// force at once, its node ends it after that; until then it may store what nothing will discard.
func processesOf(t *testing.T, pod string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	var list []string
	for _, path := range all {
		if environ, err := os.ReadFile(path); err == nil && slices.Contains(strings.Split(string(environ), "\x00"),
			"HOSTNAME="+pod) {
			list = append(list, path)
		}
	}
	return list
}

// waitsForItsStore: what can't be stored is tried again, and says why meanwhile.
func (c *cluster) waitsForItsStore() {
	s, err := newS3(s3Port + 1)
	require.NoError(c.t, err)
	c.t.Cleanup(s.stop)
	s.answers(c.t)
	s.stop()
	c.asksFor("patient", "store: "+s.yaml(c.ns))
	eventually(c.t, "the message says that the store can't be reached", func() string {
		o, _ := c.snapshot("patient")
		require.NotEqual(c.t, v1beta1.SnapshotFailed, o.Status.Phase, o.Status.Message)
		return while(!strings.Contains(o.Status.Message, "can't be reached"), "it says: "+o.Status.Message)
	})
	require.NoError(c.t, s.start())
	c.ends("patient", v1beta1.SnapshotSucceeded)
}

// s3 is an S3 server on node 1, whose buckets are folders.
type s3 struct {
	dir, address string
	port         int
	process      *exec.Cmd
}

const (
	s3Port = 7070
	s3Key  = "quorate"
	s3Pass = "quorate-secret"
)

// startS3 starts the server that all stories share, once.
var startS3 = sync.OnceValues(func() (*s3, error) { return newS3(s3Port) })

// newS3 starts a server on this port.
func newS3(port int) (*s3, error) {
	// In the lab's own folder: what stories store there, more than 1 GB, goes with the lab.
	dir, err := os.MkdirTemp(filepath.Dir(os.Getenv("KUBECONFIG")), "s3-")
	if err != nil {
		return nil, err
	}
	s := &s3{dir: dir, port: port}
	for _, folder := range []string{"buckets/backups", "attributes"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			return nil, err
		}
	}
	return s, s.start()
}

// start has it listen on node 1's address, and ends it with this process.
func (bucket *s3) start() error {
	bucket.process = exec.Command("versitygw", "--access", s3Key, "--secret", s3Pass, "--port",
		fmt.Sprintf(":%d", bucket.port), "posix", "--sidecar", filepath.Join(bucket.dir, "attributes"),
		filepath.Join(bucket.dir, "buckets"))
	bucket.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	bucket.process.Stderr = os.Stderr
	return lab.do(bucket.process.Start)
}

// store is the server, when it answers, with its address.
func store(t *testing.T) *s3 {
	t.Helper()
	s, err := startS3()
	require.NoError(t, err, "versitygw: build it with `go run -C test/real/lab . build s3`")
	s.answers(t)
	return s
}

// stop ends the server; start brings it back with all that it holds.
func (bucket *s3) stop() {
	_ = bucket.process.Process.Kill()
	_ = bucket.process.Wait()
}

// answers waits until the server does.
func (bucket *s3) answers(t *testing.T) {
	t.Helper()
	var node corev1.Node
	require.True(t, read(t, "/api/v1/nodes/node1", &node))
	bucket.address = "http://" + objects.HostPort(node.Status.Addresses[0].Address, bucket.port)
	client := lab.httpClient()
	eventually(t, "the S3 server answers", func() string {
		code, said, err := page(client, bucket.address)
		return while(err != nil || code >= http.StatusInternalServerError, code, said, err)
	})
}

// fields of a store in this folder, without its credentials, in one line.
func (bucket *s3) fields(folder string) string {
	return fmt.Sprintf("bucket: backups, prefix: %s, region: us-east-1, forcePathStyle: true, endpoint: %q", folder,
		bucket.address)
}

// credentials makes the Secret that stores in the cluster's namespace name.
func (bucket *s3) credentials(c *cluster) {
	c.t.Helper()
	c.kube("create", "secret", "generic", "s3", "--from-literal=AWS_ACCESS_KEY_ID="+s3Key,
		"--from-literal=AWS_SECRET_ACCESS_KEY="+s3Pass)
	c.kube("label", "secret", "s3", objects.LabelExternal+"=")
}

// yaml of a store in this folder, in one line.
func (bucket *s3) yaml(folder string) string {
	return bucket.yamlWith(folder, "s3")
}

// yamlWith is the same with the credentials of another Secret.
func (bucket *s3) yamlWith(folder, secret string) string {
	return fmt.Sprintf("{s3: {%s, credentialsSecretRef: {name: %s}}}", bucket.fields(folder), secret)
}

// snapshots takes an EtcdSnapshot and waits until it is stored.
func (c *cluster) snapshots(object, store string) *v1beta1.EtcdSnapshot {
	c.t.Helper()
	c.addsOurs("EtcdSnapshot", object+", labels: {etcd.quorate.dev/cluster: "+name+"}",
		fmt.Sprintf("clusterRef: {name: %s}, store: %s", name, store))
	return c.ends(object, v1beta1.SnapshotSucceeded)
}

// revision of the keys now.
func (c *cluster) revision() int64 {
	c.t.Helper()
	return c.reads("none").Header.Revision
}

// reads a key, and the revision that it is of.
func (c *cluster) reads(key string) *clientv3.GetResponse {
	c.t.Helper()
	r, err := getting(c.t, c.client(), key)
	require.NoError(c.t, err)
	return r
}
