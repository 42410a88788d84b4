//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
)

// hosted is the API server of another Kubernetes, with its data in a cluster of ours: as control planes run that are
// hosted in one. It is a process of node 1.
type hosted struct {
	*apiServer
	c     *cluster
	dir   string // with the Secret's files
	trust []byte // that it was started with
}

const (
	hostedProcess = "hosted-apiserver"
	hostedPort    = 7443
	creators      = 2 // more would fill the small quota
)

// TestAPIServer: an API server has its data in an EtcdCluster, with the Secret that Quorate makes, and writes all the
// time. The etcd is restored beneath it, and it need not be restarted.
func TestAPIServer(t *testing.T) {
	beside(t)
	bucket := store(t)
	c := newCluster(t, "  replicas: 3\n  version: 3.5.35\n  storage: {size: 1Gi}\n")
	bucket.credentials(c)
	c.converges(3)
	h := c.hosts()
	require.NoError(t, h.namespace("load"))
	w := loads(t, h.apiServer, creators)
	w.updates()

	stories := []struct {
		name  string
		tells func(*cluster)
	}{
		{"LeaderKilled", (*cluster).survivesItsLeader},
		{"Defragmented", (*cluster).defragmentsOnRequest},
		{"NoSpaceIsCleared", func(c *cluster) {
			c.clearsNoSpace()
			c.edit(`{"options":{"quotaBackendBytes":null}}`)
			c.converges(3)
		}},
		{"ClaimLost", (*cluster).replacesALostClaim},
		{"Upgraded", (*cluster).upgradesTo37},
		{"AuthoritySucceeded", h.trustsTheNextAuthority},
		{"ATenantByPrefix", (*cluster).hostsATenant},
		{"RestoredInPlace", func(c *cluster) { h.noticesARestore(c, bucket, w) }},
		{"FromSurvivor", func(c *cluster) { w.losesWhatASurvivorLacks(c) }},
		{"MovedToAnotherClass", (*cluster).leavesItsClass},
	}
	for _, story := range stories {
		c.tell(story.name, func(c *cluster) {
			story.tells(c)
			w.t = c.t
			w.longest(story.name)
			h.counts(c.t)
		})
	}
	w.t = t
	there := w.losesNothing()
	assert.Empty(t, differ(c.registry(), there), "etcd and what the API server says")
	assert.Empty(t, differ(h.cached(w.collections()...), there), "its cache and what it says")
}

// hosts starts an API server that is given what every client is given: the client Service and a Secret.
func (c *cluster) hosts() *hosted {
	c.t.Helper()
	// in the lab's own folder, which its nodes see
	dir, err := os.MkdirTemp(filepath.Dir(os.Getenv("KUBECONFIG")), "hosted-")
	require.NoError(c.t, err)
	h := &hosted{c: c, dir: dir}
	h.mounts()
	c.service()
	h.trust = c.secretOf(name + "-client-tls")["ca.crt"]
	h.apiServer = c.startsAPIServer(hostedProcess, hostedPort, dir)
	return h
}

// startsAPIServer starts one on node 1, with the certificate in a folder.
func (c *cluster) startsAPIServer(process string, port int, dir string, further ...string) *apiServer {
	c.t.Helper()
	file := func(key string) string { return filepath.Join(dir, key) }
	inLab(c.t, append([]string{"start", "1", process, "kube-apiserver",
		"--etcd-servers=https://" + name + "." + c.ns + ".svc:2379", "--etcd-cafile=" + file("ca.crt"),
		"--etcd-certfile=" + file("tls.crt"), "--etcd-keyfile=" + file("tls.key"),
		"--bind-address=" + ofFamily("0.0.0.0", "::"), "--secure-port=" + strconv.Itoa(port),
		"--advertise-address=" + addressOf(1),
		"--service-cluster-ip-range=" + ofFamily("10.97.0.0/16", "fd00:97::/112"),
		"--authorization-mode=RBAC", "--client-ca-file=" + pki("ca.crt"), "--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"), "--service-account-issuer=https://hosted.lab.internal",
		"--service-account-key-file=" + pki("sa.pub"), "--service-account-signing-key-file=" + pki("sa.key"),
	}, further...)...)
	c.t.Cleanup(func() { inLab(c.t, "stop", "1", process, "KILL") })
	return apiServerAt(c.t, 1, port)
}

// mounts keeps the Secret's files as it is, as a kubelet does.
func (h *hosted) mounts() {
	writes := func() error {
		data, err := secretData(h.c.ns, name+"-client-tls")
		for key, text := range data {
			file := filepath.Join(h.dir, key)
			if before, _ := os.ReadFile(file); err == nil && !bytes.Equal(before, text) {
				if err = os.WriteFile(file+".new", text, 0o600); err == nil {
					err = os.Rename(file+".new", file)
				}
			}
		}
		return err
	}
	eventually(h.c.t, "the client's Secret is there", func() string {
		err := writes()
		return failure(err)
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			select {
			case <-time.After(time.Second):
				_ = writes()
			case <-ctx.Done():
			}
		}
	}()
	h.c.t.Cleanup(func() { stop(); <-ended })
}

// updates adds clients that write a ConfigMap and a Lease again and again, one that creates Events, which end by a
// lease of etcd's, and others that watch these.
func (w *load) updates() {
	const leases, events = "/apis/coordination.k8s.io/v1/namespaces/load/leases", "/api/v1/namespaces/load/events"
	w.watches(leases)
	w.watches(events)
	w.writes(creators, func(n int) (method, path, body string) {
		return http.MethodPatch, loadPath + "/counter", fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"counter"},"data":{"n":"%d"}}`, n)
	})
	w.writes(creators+1, func(n int) (method, path, body string) {
		return http.MethodPatch, leases + "/holder", fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1",`+
			`"kind":"Lease","metadata":{"name":"holder"},"spec":{"leaseTransitions":%d}}`, n)
	})
	w.writes(creators+2, func(n int) (method, path, body string) {
		event := fmt.Sprintf("event-%06d", n)
		return http.MethodPost, events + "/" + event, eventOf(event)
	})
}

func eventOf(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":%q},`+
		`"involvedObject":{"namespace":"load"}}`, name)
}

func (c *cluster) upgradesTo37() {
	ids := c.ids()
	c.edit(`{"version":"3.7.3","upgradePolicy":"Step"}`)
	c.converges(3)
	assert.Equal(c.t, ids, c.ids(), "restarted, not replaced")
}

// suffers what every application outlives: its etcd loses its leader and a claim, and is upgraded. After each it tells
// what was done.
func (c *cluster) suffers(told func(what string)) {
	c.t.Helper()
	// as the status has it: without certificates for clients, etcdctl in a pod is no user
	leader := c.observed(c.object().Status.Leader)
	c.kills(leader.Name)
	c.another(*leader)
	c.converges(3)
	told("the leader was killed")
	member, _ := c.follower()
	c.deletes("pvc", member)
	c.deletes("pods", member)
	c.succeeds(member, func() {})
	told("a claim was lost")
	c.upgradesTo37()
	told("upgraded from 3.6 to 3.7")
}

// trustsTheNextAuthority: the API server reads its certificate at every handshake, and the authorities at its start. So
// it is restarted when the Secret has both authorities, before members show certificates of the next one.
func (h *hosted) trustsTheNextAuthority(c *cluster) {
	server, ca := certificateIn(c.t, c.secretOf(name+"-server-tls")), certificateIn(c.t, c.secretOf(name+"-ca"))
	c.kube("delete", "secret", name+"-ca")
	eventually(c.t, "the mounted Secret has both authorities", func() string {
		text, err := os.ReadFile(filepath.Join(h.dir, "ca.crt"))
		return while(err != nil || bytes.Equal(text, h.trust) || !bytes.Contains(text, bytes.TrimSpace(h.trust)),
			fmt.Sprintf("%d bytes, as before: %t", len(text), bytes.Equal(text, h.trust)))
	})
	inLab(c.t, "stop", "1", hostedProcess, "KILL") // else it waits for its watchers
	inLab(c.t, "again", "1", hostedProcess)
	eventually(c.t, "every member shows a certificate of the next authority", func() string {
		return c.shows(server, func(old, now *x509.Certificate) bool {
			return !old.Equal(now) && now.CheckSignatureFrom(ca) != nil
		})
	})
	c.converges(3)
}

// hostsATenant as Kamaji does, which makes users of etcd by root's certificate, each with a role for a prefix, and
// signs their certificates with the cluster's authority.
func (c *cluster) hostsATenant() {
	c.edit(`{"auth":{"enabled":true,"roles":[{"name":"all","permissions":[{"access":"ReadWrite","prefix":""}]}],` +
		`"users":[{"name":"client","roles":["all"]}]}}`)
	eventually(c.t, "users and roles are applied", func() string { return c.authorized("Enabled") })
	root, ctx := c.clientAs(name+"-operator-tls"), c.t.Context()
	makesUser(c.t, root, "tenant", "/tenant/", clientv3.GetPrefixRangeEnd("/tenant/"))

	dir, err := os.MkdirTemp(filepath.Dir(os.Getenv("KUBECONFIG")), "tenant-")
	require.NoError(c.t, err)
	authority := c.secretOf(name + "-ca")
	cert, key := forgerWith(c.t, authority).issue("tenant", time.Now().Add(time.Hour))
	for file, text := range map[string][]byte{"ca.crt": authority["ca.crt"], "tls.crt": cert, "tls.key": key} {
		require.NoError(c.t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	tenant := c.startsAPIServer("tenant-apiserver", hostedPort+1, dir, "--etcd-prefix=/tenant",
		"--etcd-compaction-interval=0")
	require.NoError(c.t, tenant.namespace("theirs"))
	assert.Contains(c.t, c.present("/tenant/namespaces/"), "/tenant/namespaces/theirs")
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(c.t, err)
	config := rereading(c.ns, name+"-client-tls")
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	_, err = c.clientWith(config, c.service()).Get(ctx, "/registry/namespaces/load")
	require.ErrorIs(c.t, err, rpctypes.ErrPermissionDenied)

	c.edit(`{"auth":{"users":[{"name":"client","roles":["all"]},{"name":"another","roles":["all"]}]}}`)
	c.converges(3)
	user, err := root.UserGet(ctx, "tenant")
	require.NoError(c.t, err, "what Quorate did not declare stays")
	assert.Equal(c.t, []string{"tenant"}, user.Roles)
}

// noticesARestore: what was written after the snapshot is gone, and the API server knows, without a restart.
func (h *hosted) noticesARestore(c *cluster, bucket *s3, w *load) {
	const secrets = "/api/v1/namespaces/load/secrets"
	creates := func(secret string) {
		require.NoError(c.t, h.send(http.MethodPatch, secrets+"/"+secret+"?fieldManager=load", applied,
			"{apiVersion: v1, kind: Secret, metadata: {name: "+secret+"}}"))
	}
	creates("before")
	epoch, taken := c.object().Status.Epoch, c.snapshots("tuesday", bucket.yaml(c.ns))
	creates("later")
	w.t = c.t
	w.longest("the snapshot is taken")
	eventually(c.t, "the API server has cached what the restore takes away", func() string {
		all := h.cached(secrets)
		return while(all[secrets+"/later"] == 0, fmt.Sprint(all))
	})

	c.operates("undo", "type: Restore, restore: {snapshot: {snapshotRef: {name: tuesday}}}")
	c.afterEpoch(epoch)
	w.forgives(taken.Status.Revision, taken.Status.Revision+500_000_000)
	took := eventually(c.t, "the API server's cache has no object that the restore took away", func() string {
		all := h.cached(secrets)
		return while(all[secrets+"/later"] != 0 || all[secrets+"/before"] == 0, fmt.Sprint(all))
	})
	c.t.Logf("a kind that is not written to is read again %.1f s after etcd served", took.Seconds())
	c.converges(3)
	events := time.Now()
	eventually(c.t, "events are taken again", func() string {
		_, said := h.asked(c.t.Context(), http.MethodPost, "/api/v1/namespaces/load/events/after", eventOf("after"))
		return said
	})
	c.t.Logf("events are taken %.1f s after it has converged", time.Since(events).Seconds())
}

// losesWhatASurvivorLacks: the quorum is lost, and the cluster begins again with what one member has.
func (w *load) losesWhatASurvivorLacks(c *cluster) {
	from := c.revision()
	c.comesBackFromASurvivor()
	w.forgives(from, from+500_000_000)
}

// leavesItsClass while claims of former epochs stay.
func (c *cluster) leavesItsClass() {
	c.edit(`{"storage":{"storageClassName":"expandable","migration":"Replace"}}`)
	c.converges(3)
	for _, pod := range c.pods() {
		claim, found := get[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc", pod.Name)
		require.True(c.t, found, pod.Name)
		assert.Equal(c.t, "expandable", *claim.Spec.StorageClassName, pod.Name)
	}
}

// cached are the objects that the API server has in its memory, with their resourceVersions, by path; none while it
// does not answer.
func (h *hosted) cached(collections ...string) map[string]int64 {
	all := map[string]int64{}
	for _, collection := range collections {
		some, _, _ := h.listed(collection + "?resourceVersion=0")
		maps.Copy(all, some)
	}
	return all
}

// registry are the objects of the load that etcd has, with the revisions that changed them last, by path.
func (c *cluster) registry() map[string]int64 {
	c.t.Helper()
	client, all := c.client(), map[string]int64{}
	for kind, collection := range map[string]string{"configmaps": loadPath,
		"leases": "/apis/coordination.k8s.io/v1/namespaces/load/leases", "events": "/api/v1/namespaces/load/events"} {
		prefix := "/registry/" + kind + "/load/"
		r, err := client.Get(c.t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		require.NoError(c.t, err)
		for _, kv := range r.Kvs {
			all[collection+"/"+strings.TrimPrefix(string(kv.Key), prefix)] = kv.ModRevision
		}
	}
	return all
}

// counted are errors that the API server counts, and how often it has read a kind from etcd from the start.
var counted = regexp.MustCompile(`(?m)^(etcd_request_errors_total|apiserver_watch_cache_initializations_total|` +
	`apiserver_request_total\{code="5)[^\n]*`)

// counts tells what the API server has counted so far.
func (h *hosted) counts(t *testing.T) {
	t.Helper()
	_, text, err := page(h.client, h.server+"/metrics")
	require.NoError(t, err)
	sums := map[string]int{}
	for _, line := range counted.FindAllString(text, -1) {
		family, _, _ := strings.Cut(line, "{")
		value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		require.NoError(t, err, line)
		sums[family] += int(value)
	}
	t.Logf("the API server has counted %v", sums)
}
