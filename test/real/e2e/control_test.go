//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestOneMember: stories for which one member is enough, told on one cluster.
func TestOneMember(t *testing.T) {
	beside(t)
	c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n")
	c.tell("NoOneWithoutTheRightCertificate", (*cluster).letsNoOneElseIn)
	c.tell("ItIsReachedFromOutside", (*cluster).isReachedFromOutside)
	c.tell("EverythingIsDistrustedAtOnce", (*cluster).distrustsEverything)
	c.tell("ASingleMemberIsSucceededWithoutAPause", (*cluster).succeedsItsOnlyMember)
	c.tell("AProtectedClusterIsNotDeleted", (*cluster).isNotDeleted)
}

// isReachedFromOutside: the Service for clients becomes one with a port on every node, and no member restarts. What
// Kubernetes has filled in stays. The port of a node and the address of a load balancer lead to the members, and
// their certificate is for both; a name with the domain of the lab leads there from within, too.
func (c *cluster) isReachedFromOutside() {
	pods := c.pods()
	c.edit(`{"clientService":{"type":"LoadBalancer","annotations":{"a.example/b":"c"},` +
		`"trafficDistribution":"PreferSameZone"},"tls":{"extraSANs":["` + addressOf(2) + `"]}}`)
	address := ofFamily("192.0.2.9", "2001:db8::9")
	c.meets("svc/"+name, "jsonpath={.spec.type}=LoadBalancer")
	c.kube("patch", "svc", name, "--subresource=status", "--type=merge", "-p",
		`{"status":{"loadBalancer":{"ingress":[{"ip":"`+address+`"}]}}}`)
	external := "https://" + objects.HostPort(address, 2379)
	eventually(c.t, "the status names the load balancer", func() string {
		s := c.object().Status.Connection
		return while(s == nil || !slices.Equal(s.External, []string{external}), fmt.Sprint(s))
	})
	before, _ := get[corev1.Service](c.t, c.ns, "svc", name)
	port := before.Spec.Ports[0].NodePort
	require.NotZero(c.t, port)
	outside := objects.HostPort(addressOf(2), int(port))
	inside := "https://" + name + "." + c.ns + ".svc.lab.internal:2379"
	for url, at := range map[string]string{"https://" + outside: outside, external: outside, inside: c.service()} {
		app := labClient(c.t, rereading(c.ns, name+"-client-tls"), map[string]string{
			strings.TrimPrefix(url, "https://"): at}, url)
		eventually(c.t, url+" leads to etcd", func() string {
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			defer cancel()
			_, err := app.Get(ctx, "key")
			return failure(err)
		})
	}
	assert.Equal(c.t, "c", before.Annotations["a.example/b"])
	require.NotNil(c.t, before.Spec.TrafficDistribution)
	assert.Equal(c.t, "PreferSameZone", *before.Spec.TrafficDistribution)

	c.edit(`{"clientService":{"type":"NodePort"}}`)
	eventually(c.t, "the status names the port of the nodes", func() string {
		s := c.object().Status.Connection
		return while(s.NodePort != port, fmt.Sprint(s))
	})
	c.edit(`{"clientService":{"type":null,"annotations":null,"trafficDistribution":null}}`)
	c.meets("svc/"+name, "jsonpath={.spec.type}=ClusterIP")
	after, _ := get[corev1.Service](c.t, c.ns, "svc", name)
	assert.Equal(c.t, before.Spec.ClusterIP, after.Spec.ClusterIP)
	assert.NotContains(c.t, after.Annotations, "a.example/b")
	assert.Zero(c.t, after.Spec.Ports[0].NodePort)
	assert.Nil(c.t, after.Spec.TrafficDistribution)
	assert.Equal(c.t, pods[0].UID, c.pods()[0].UID, "no member restarts for its Service")
}

// reachesEveryMember: each member gets a Service with a port on every node, and says its name outside in etcd's list. A
// client in no pod that takes its endpoints from that list reaches every member by its own name and certificate, while
// the names within Kubernetes lead it nowhere.
func (c *cluster) reachesEveryMember() {
	w := c.writes()
	ids, before := c.ids(), c.uids()
	c.edit(`{"memberService":{"type":"NodePort","domain":"etcd.example.com"}}`)
	hosts, external := map[string]string{}, map[string]string{}
	eventually(c.t, "every member has a port on the nodes, and the status names it", func() string {
		for member := range ids {
			s, found := get[corev1.Service](c.t, c.ns, "svc", member+"-external")
			if !found || s.Spec.Ports[0].NodePort == 0 {
				return member + " has none"
			}
			at := fmt.Sprintf("%s.etcd.example.com:%d", member, s.Spec.Ports[0].NodePort)
			hosts[at], external[member] = fmt.Sprintf("172.30.0.2:%d", s.Spec.Ports[0].NodePort), "https://"+at
		}
		has := slices.Sorted(slices.Values(c.object().Status.Connection.External))
		return while(!slices.Equal(has, slices.Sorted(maps.Values(external))), fmt.Sprint(has))
	})
	eventually(c.t, "every member was restarted", func() string {
		for member, uid := range c.uids() {
			if before[member] == uid {
				return member + " was not"
			}
		}
		return ""
	})
	c.converges(3)
	assert.Equal(c.t, ids, c.ids(), "restarted, not replaced")

	one := external[c.pods()[0].Name]
	app := labClient(c.t, rereading(c.ns, name+"-client-tls"), hosts, one)
	listed := c.syncs(app)
	assert.Subset(c.t, listed, slices.Collect(maps.Values(external)), "etcd's own list has them")
	assert.Len(c.t, listed, 6, "each beside the member's URL within Kubernetes")
	for member, url := range external {
		// a node may not know yet where its port leads to
		status, err := answered(c.t, func(ctx context.Context) (*clientv3.StatusResponse, error) {
			return app.Status(ctx, url)
		})
		require.NoError(c.t, err, url)
		assert.Equal(c.t, ids[member], strconv.FormatUint(status.Header.MemberId, 16), "%s leads to its member", url)
	}
	for range 20 { // beside endpoints that lead nowhere
		require.NoError(c.t, putting(c.t, app, c.word()+"-outside", "x"))
	}
	w.losesNothing()
	c.t.Logf("three members were restarted; longest stall of a writer: %d ms", w.stalled().Milliseconds())

	c.edit(`{"memberService":null}`)
	inside := c.client()
	eventually(c.t, "etcd's list has the names within Kubernetes alone", func() string {
		listed := c.syncs(inside)
		return while(len(listed) != 3 || strings.Contains(strings.Join(listed, " "), "example.com"), fmt.Sprint(listed))
	})
	c.converges(3)
	assert.Len(c.t, list[corev1.Service](c.t, c.ns, "svc"), 2)
	assert.Empty(c.t, c.object().Status.Connection.External)
	assert.Equal(c.t, ids, c.ids())
}

// syncs are the endpoints that a client takes from etcd's member list.
func (c *cluster) syncs(client *clientv3.Client) []string {
	c.t.Helper()
	_, err := answered(c.t, func(ctx context.Context) (any, error) { return nil, client.Sync(ctx) })
	require.NoError(c.t, err)
	return client.Endpoints()
}

func (c *cluster) fencesAMember() {
	w := c.writes()
	ids, leader := c.ids(), c.leader()

	c.operates("fence", "type: Fence, fence: {members: ["+leader+"]}")
	c.decides("WaitForMembers", "an EtcdOperation of type Fence keeps "+leader+" stopped")
	require.Equal(c.t, leader+" is stopped; until this EtcdOperation is deleted",
		c.hasOperation("fence", v1beta1.OperationRunning))
	c.hasPods(2)
	assert.Len(c.t, list[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc"), 3)
	assert.Equal(c.t, ids, c.ids())

	c.withdraws("fence")
	c.converges(3)
	assert.Equal(c.t, ids, c.ids(), "the same members")
	w.losesNothing()

	history := c.object().Status.History
	assert.LessOrEqual(c.t, len(history), 20)
	steps := ""
	for _, entry := range history {
		steps += entry.Rule + " " + entry.Step + "; "
	}
	assert.Regexp(c.t, "WaitForMembers .*; Converged ;", steps, "the status remembers what was done, and by which rule")
}

func (c *cluster) isNotDeleted() {
	c.edit(`{"deletionProtection":true,"deletionPolicy":"Retain"}`)
	c.converges(1)
	w := c.writes()
	out, err := kubectl("", "-n", c.ns, "delete", "etcdcluster", name, "--wait=false")
	require.Error(c.t, err)
	assert.Contains(c.t, out+err.Error(), "is protected against deletion; set spec.deletionProtection to false first")
	w.losesNothing()

	c.edit(`{"deletionProtection":false}`)
	c.kube("delete", "etcdcluster", name)
	c.hasPods(0)
	claims := list[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc")
	require.Len(c.t, claims, 1, "deletionPolicy Retain")
	assert.Empty(c.t, claims[0].OwnerReferences)
	assert.Equal(c.t, corev1.ClaimBound, claims[0].Status.Phase)
	assert.Equal(c.t, name, claims[0].Annotations["etcd.quorate.dev/retained-of"])
}

// TestIPFamilies: a cluster lives where Kubernetes has IPv6 addresses alone, or those of both versions. It needs a lab
// with such addresses (`make part PART=ipv6`), which TestOnTheHostsNetwork and TestJoinByTLSAndStay are told in as
// well.
func TestIPFamilies(t *testing.T) {
	if both := os.Getenv("QUORATE_LAB_IP") == "dual"; both {
		t.Parallel()
		c := newCluster(t, three+"  ip: {policy: SingleStack, families: [IPv6]}\n")
		c.tell("MembersMeetByTheOtherFamily", (*cluster).meetsByIPv6)
		c.tell("ServicesGetASecondFamily", (*cluster).hasBothFamilies)
		c.tells("LeaderKilledUnderLoad", "ScaleUpAndDown", "SnapshotS3", "ItIsReachedFromOutside")
		return
	}
	if os.Getenv("QUORATE_LAB_IP") != "v6" {
		t.Skip("it needs a lab with IPv6: make part PART=ipv6")
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
func (c *cluster) hasIPv6Alone() { c.isAskedByIPv6(1, netip.Addr.Is6) }

// isAskedByIPv6: Services have such an address alone, pods so many, the first of this kind.
func (c *cluster) isAskedByIPv6(addresses int, first func(netip.Addr) bool) {
	for _, pod := range c.pods() {
		require.Len(c.t, pod.Status.PodIPs, addresses)
		assert.True(c.t, first(netip.MustParseAddr(pod.Status.PodIP)), pod.Status.PodIP)
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
func (c *cluster) meetsByIPv6() { c.isAskedByIPv6(2, netip.Addr.Is4) }

// hasBothFamilies: each address of the Service leads to the members, none of which restarts for that.
func (c *cluster) hasBothFamilies() {
	before := c.pods()
	c.edit(`{"ip":{"policy":"RequireDualStack","families":["IPv6","IPv4"]}}`)
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
