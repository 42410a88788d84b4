//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// meetsMirror waits until the EtcdMirror standby has a condition that is True.
func (c *cluster) meetsMirror(condition string) (m *v1alpha1.EtcdMirror, took time.Duration) {
	c.t.Helper()
	took = eventually(c.t, "the mirror is "+condition, func() string {
		m, _ = get[v1alpha1.EtcdMirror](c.t, c.ns, "etcdmirror", "standby")
		if m.Status.ObservedGeneration == m.Generation && meta.IsStatusConditionTrue(m.Status.Conditions, condition) {
			return ""
		}
		return "it says: " + m.Status.Message // nothing, before there is a status
	})
	return m, took
}

// TestMirror: a cluster in another namespace has a copy of all keys and of each change, as in another region. The pod
// is killed, and goes on. It is promoted under a writer, which then moves: what was acknowledged before is there,
// everything up to the revision that the promotion names, and nothing later.
func TestMirror(t *testing.T) {
	beside(t)
	const one = "  replicas: 1\n  version: 3.6.16\n"
	former := newCluster(t, one)
	standby := namespaced(t, former.ns+"-standby")
	standby.apply(one)
	former.converges(1)
	standby.converges(1)
	end := former.putsUntil()

	operator := former.secretOf(name + "-operator-tls")
	standby.putsFor("elsewhere", "source-etcd", operator["tls.crt"], operator["tls.key"], operator["ca.crt"])
	standby.addsOurs("EtcdMirror", "standby", fmt.Sprintf("clusterRef: {name: %s}, source: {external: {"+
		"endpoints: ['https://%s'], serverName: %s.%s.svc, authoritySecretRef: {name: source-etcd}, "+
		"clientSecretRef: {name: source-etcd}}}", name,
		objects.HostPort(former.pods()[0].Status.PodIP, objects.ClientPort), name, former.ns))
	m, took := standby.meetsMirror(v1alpha1.Mirroring)
	t.Logf("mirroring after %.1f s", took.Seconds())
	assert.False(t, m.Status.CopiedTime.IsZero())

	was, _ := get[corev1.Pod](t, standby.ns, "pods", m.Status.Pod)
	standby.kills(m.Status.Pod)
	eventually(t, "another pod mirrors", func() string {
		pod, found := get[corev1.Pod](t, standby.ns, "pods", was.Name)
		return while(!found || pod.UID == was.UID || !ready(pod), "none yet")
	})

	asked := time.Now()
	require.NoError(t, standby.merges("etcdmirror", "standby", `{"spec":{"promote":{}}}`))
	m, took = standby.meetsMirror(v1alpha1.Promoted)
	all, revision := end(), m.Status.PromotedRevision
	t.Logf("promoted at revision %d after %.1f s", revision, took.Seconds())
	require.NotZero(t, revision)
	standby.hasUntil(revision, all, asked)
	before := 0
	for _, w := range all {
		if w.at.Before(asked) {
			before++
			assert.LessOrEqual(t, w.revision, revision, "%s was acknowledged before the promotion", w.key)
		}
	}
	t.Logf("%d writes were acknowledged before the promotion, and none is lost", before)
	assert.NotZero(t, before)

	standby.writesWith(standby.client(), "moved").losesNothing()
	eventually(t, "no pod mirrors any more", func() string {
		for _, pod := range list[corev1.Pod](t, standby.ns, "pods") {
			if pod.Labels[objects.LabelMirror] != "" {
				return pod.Name + " is there"
			}
		}
		return ""
	})
	standby.kube("delete", "etcdmirror", "standby", "--timeout="+patience.String())
}

// TestMirrorOfStored: a cluster has a copy of another one of which it sees only what a stream has stored. That one is
// lost, under a writer; a promotion ends at the last revision that is stored.
func TestMirrorOfStored(t *testing.T) {
	beside(t)
	const one = "  replicas: 1\n  version: 3.6.16\n"
	bucket := store(t)
	former := newCluster(t, one)
	standby := namespaced(t, former.ns+"-standby")
	standby.apply(one)
	bucket.credentials(former)
	bucket.credentials(standby)
	former.converges(1)
	standby.converges(1)
	former.schedules("yearly", yearly, "store: "+bucket.yaml(former.ns))
	standby.addsOurs("EtcdMirror", "standby", fmt.Sprintf("clusterRef: {name: %[1]s}, source: {stored: {"+
		"folder: %[2]s/%[1]s, store: %[3]s}}", name, former.ns, bucket.yaml(former.ns)))
	former.streams("yearly", "")
	begins := former.revision()
	end := former.putsUntil()
	_, took := standby.meetsMirror(v1alpha1.Mirroring)
	t.Logf("mirroring after %.1f s", took.Seconds())
	eventually(t, "something that was written is at the destination", func() string {
		return while(len(standby.present(standby.word())) == 0, "nothing")
	})
	stored := bucket.storedAfter(former, begins)
	lost := time.Now()
	former.kube("delete", "etcdcluster", name, "--wait=false")
	all := end()
	require.NoError(t, standby.merges("etcdmirror", "standby", `{"spec":{"promote":{}}}`))
	m, took := standby.meetsMirror(v1alpha1.Promoted)
	revision := m.Status.PromotedRevision
	t.Logf("promoted at revision %d after %.1f s", revision, took.Seconds())
	standby.hasUntil(revision, all, lost)
	assert.GreaterOrEqual(t, revision, stored, "what was stored is there")
}
