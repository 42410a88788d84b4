//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

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
func (c *cluster) snapshots(object, store string) *v1alpha1.EtcdSnapshot {
	c.t.Helper()
	c.addsOurs("EtcdSnapshot", object+", labels: {etcd.quorate.dev/cluster: "+name+"}",
		fmt.Sprintf("clusterRef: {name: %s}, store: %s", name, store))
	return c.ends(object, v1alpha1.SnapshotSucceeded)
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
