//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestIPFamilies: a cluster lives where Kubernetes has IPv6 addresses alone, or those of both versions. It needs a lab
// with such addresses (`make e2e-ipv6`), which TestOnTheHostsNetwork and TestJoinByTLSAndStay are told in as well.
func TestIPFamilies(t *testing.T) {
	if both := os.Getenv("QUORATE_LAB_IP") == "dual"; both {
		t.Parallel()
		c := newCluster(t, three+"  clientService: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv6]}\n")
		c.tell("MembersMeetByTheOtherFamily", (*cluster).meetsByIPv6)
		c.tell("ServicesGetASecondFamily", (*cluster).hasBothFamilies)
		c.tells("LeaderKilledUnderLoad", "ScaleUpAndDown", "SnapshotS3", "ItIsReachedFromOutside")
		return
	}
	if os.Getenv("QUORATE_LAB_IP") != "v6" {
		t.Skip("it needs a lab with IPv6: make e2e-ipv6")
	}
	t.Parallel()
	c := newCluster(t, three)
	c.tell("NothingHasAnIPv4Address", (*cluster).hasIPv6Alone)
	c.tells("Create", "LeaderKilledUnderLoad", "ScaleUpAndDown", "SnapshotS3", "ItIsReachedFromOutside")
}

// tells those of a cluster's stories that addresses have a part in.
func (c *cluster) tells(stories ...string) {
	c.t.Helper()
	for _, story := range stories {
		c.tell(story, map[string]func(*cluster){
			"Create": (*cluster).isCreated, "LeaderKilledUnderLoad": (*cluster).survivesItsLeader,
			"ScaleUpAndDown": (*cluster).growsAndShrinks, "SnapshotS3": (*cluster).isStoredInABucket,
			"ItIsReachedFromOutside": (*cluster).isReachedFromOutside,
		}[story])
	}
}

// hasIPv6Alone: pods and Services have no other address, and an application in a pod writes by the Service's name.
func (c *cluster) hasIPv6Alone() {
	for _, pod := range c.pods() {
		require.Len(c.t, pod.Status.PodIPs, 1)
		assert.True(c.t, netip.MustParseAddr(pod.Status.PodIP).Is6(), pod.Status.PodIP)
	}
	for _, service := range list[corev1.Service](c.t, c.ns, "svc") {
		assert.Equal(c.t, []corev1.IPFamily{corev1.IPv6Protocol}, service.Spec.IPFamilies, service.Name)
	}
	c.writesInAPod()
}

// writesInAPod: an application in a pod writes by the name of the Service.
func (c *cluster) writesInAPod() {
	c.t.Helper()
	c.adds(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: app, namespace: %[2]s}
spec:
  restartPolicy: OnFailure
  containers:
  - name: app
    image: gcr.io/etcd-development/etcd:v3.6.16
    command: [etcdctl, "--endpoints=https://%[1]s.%[2]s.svc:2379", --cacert=/tls/ca.crt, --cert=/tls/tls.crt, --key=/tls/tls.key, put, key, value]
    volumeMounts: [{name: tls, mountPath: /tls}]
  volumes: [{name: tls, secret: {secretName: %[1]s-client-tls}}]
`, name, c.ns))
	eventually(c.t, "the application has written", func() string {
		pod, _ := get[corev1.Pod](c.t, c.ns, "pods", "app")
		return while(pod.Status.Phase != corev1.PodSucceeded, string(pod.Status.Phase))
	})
	assert.Equal(c.t, "value", string(c.reads("key").Kvs[0].Value))
}

// meetsByIPv6: the names of members lead to IPv6 addresses alone, and Quorate and the kubelet reach them at those of
// IPv4, which pods have first.
func (c *cluster) meetsByIPv6() {
	for _, pod := range c.pods() {
		require.Len(c.t, pod.Status.PodIPs, 2)
		assert.True(c.t, netip.MustParseAddr(pod.Status.PodIP).Is4(), pod.Status.PodIP)
	}
	for _, service := range list[corev1.Service](c.t, c.ns, "svc") {
		assert.Equal(c.t, []corev1.IPFamily{corev1.IPv6Protocol}, service.Spec.IPFamilies, service.Name)
	}
	c.writesInAPod()
}

// hasBothFamilies: each address of the Service leads to the members, none of which restarts for that.
func (c *cluster) hasBothFamilies() {
	before := c.pods()
	c.edit(`{"clientService":{"ipFamilyPolicy":"RequireDualStack","ipFamilies":["IPv6","IPv4"]}}`)
	var addresses []string
	eventually(c.t, "the Service has two addresses", func() string {
		s, _ := get[corev1.Service](c.t, c.ns, "svc", name)
		addresses = s.Spec.ClusterIPs
		return while(len(addresses) != 2, strings.Join(addresses, " "))
	})
	for _, address := range addresses {
		app := c.clientWith(rereading(c.ns, name+"-client-tls"), objects.HostPort(address, objects.ClientPort))
		eventually(c.t, address+" leads to etcd", func() string {
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			defer cancel()
			_, err := app.Get(ctx, c.word())
			return failure(err)
		})
	}
	c.converges(3)
	for i, pod := range c.pods() {
		assert.Equal(c.t, before[i].UID, pod.UID)
	}
}

// growsAndShrinks to four members and back.
func (c *cluster) growsAndShrinks() {
	w := c.writes()
	for _, to := range []int{4, 3} {
		c.edit(fmt.Sprintf(`{"replicas":%d}`, to))
		c.converges(to)
	}
	w.losesNothing()
}

// isStoredInABucket: the snapshot's Job asks a member, and an S3 server at an address of the lab.
func (c *cluster) isStoredInABucket() {
	bucket := store(c.t)
	bucket.credentials(c)
	c.writes().losesNothing()
	c.snapshots("first", bucket.yaml(c.ns))
}
