//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

func (c *cluster) losesTheAPIServersLeader(w *load) {
	require.NoError(c.t, syscall.Kill(c.processOf(c.leader()), syscall.SIGKILL))
	w.wrote(100)
	c.converges(3)
	w.longest("the leader's etcd was killed")
}

func (c *cluster) losesADisk(w *load) {
	lost := c.awayFromAPIServer()
	c.spoil(lost, emptied)
	c.deletes("pods", lost)
	c.succeeds(lost, func() {})
	w.longest("a member's disk was lost, and the member replaced")
}

// awayFromAPIServer is a member that does not lead, and whose node has no API server.
func (c *cluster) awayFromAPIServer() (member string) {
	for leader := c.leader(); ; {
		for _, pod := range c.pods() {
			if pod.Name != leader && pod.Spec.NodeName != "node1" {
				return pod.Name
			}
		}
	}
}

// change is an edit of the cluster beneath the API server, after which it has so many members.
type change struct {
	edit    string
	members int
	told    string
}

// beneath makes changes one after the other.
func beneath(changes ...change) func(*cluster, *load) {
	return func(c *cluster, w *load) {
		for _, one := range changes {
			c.edit(one.edit)
			c.converges(one.members)
			w.longest(one.told)
		}
	}
}

// fillsUp: the database grows to its quota by objects that are deleted again, and Quorate defragments it before etcd
// refuses writes. Then objects fill the quota that stay. Metacontroller can't keep its lease, so a person makes room,
// as the page says.
func (c *cluster) fillsUp(w *load) {
	const quota = 128 << 20
	c.edit(fmt.Sprintf(`{"options":{"quotaBackendBytes":%d}}`, quota))
	c.converges(3)
	kube(c.t, "create", "namespace", "large")
	var members []string
	for _, pod := range c.pods() {
		members = append(members, "https://"+objects.HostPort(pod.Status.HostIP, int(c.object().Spec.HostNetwork.ClientPort)))
	}
	etcd := labClient(c.t, shownToAPIServersEtcd(c.t), nil, members...)
	compact := func() {
		last, err := etcd.Get(c.t.Context(), "any")
		require.NoError(c.t, err)
		compacts(c.t, etcd, last.Header.Revision, clientv3.WithCompactPhysical())
	}
	n := 0
	for largest := int64(0); largest < quota/100*93; n++ {
		require.NoError(c.t, createsLarge(n))
		require.NoError(c.t, deletesLarge(n))
		for _, member := range members {
			answer, err := etcd.Status(c.t.Context(), member)
			require.NoError(c.t, err)
			largest = max(largest, answer.DbSize)
		}
	}
	compact()
	eventually(c.t, "room is made below the quota", func() string {
		run := c.object().Status.Defragmentation
		return while(run == nil || run.Trigger != v1beta1.TriggerNearQuota || run.CompletionTime.IsZero(),
			fmt.Sprintf("%+v", run))
	})
	c.converges(3)
	w.longest("the database came near its quota, and members were defragmented")

	from := n
	var refused error
	for ; refused == nil; n++ {
		refused = createsLarge(n)
	}
	require.ErrorContains(c.t, refused, "database space exceeded")
	for ; from < n-1; from++ {
		require.NoError(c.t, deletesLarge(from))
	}
	compact()
	for _, member := range members {
		_, err := etcd.Defragment(c.t.Context(), member)
		require.NoError(c.t, err)
	}
	_, err := etcd.AlarmDisarm(c.t.Context(), &clientv3.AlarmMember{})
	require.NoError(c.t, err)
	w.wrote(100)
	w.longest("objects filled the quota, and a person made room")
	c.edit(`{"options":{"quotaBackendBytes":null}}`)
	c.converges(3)
}

// createsLarge makes a ConfigMap of almost a MiB, and deletesLarge deletes it.
func createsLarge(n int) error {
	_, err := kubectl(fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large-%d","namespace":"large"},`+
		`"data":{"large":%q}}`, n, strings.Repeat("x", 1000<<10)), "create", "-f", "-")
	return err
}

func deletesLarge(n int) error {
	_, err := kubectl("", "-n", "large", "delete", "configmap", fmt.Sprintf("large-%d", n))
	return err
}

// succeedsTheAuthority in the order of the page: first everyone trusts both, the API server too; then certificates are
// of the new one; then the former one is forgotten.
func (c *cluster) succeedsTheAuthority(w *load) {
	former, next := apiServersAuthority(c.t), stranger(c.t, pkix.Name{CommonName: "the next authority"})
	restart := func(trusted ...forger) {
		require.NoError(c.t, os.WriteFile(pki("etcd-ca.crt"), bundle(trusted...), 0o600))
		inLab(c.t, append([]string{"etcd-servers"}, c.everyNode()...)...)
	}
	c.putsTheirs(former, former, next)
	c.trust(2)
	w.longest("members trust two authorities")
	restart(former, next)
	before := certificateIn(c.t, c.secretOf("server"))
	c.putsTheirs(next, former, next)
	eventually(c.t, "every member shows a certificate of the new authority", func() string {
		return c.shows(before, func(_, now *x509.Certificate) bool { return now.CheckSignatureFrom(next.Certificate) == nil })
	})
	certificate, private := next.issue("kube-apiserver-etcd-client", time.Now().Add(24*time.Hour))
	require.NoError(c.t, os.WriteFile(pki("apiserver-etcd-client.crt"), certificate, 0o600))
	require.NoError(c.t, os.WriteFile(pki("apiserver-etcd-client.key"), private, 0o600))
	key, err := x509.MarshalPKCS8PrivateKey(next.Key)
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(pki("etcd-ca.key"),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	restart(next)
	w.longest("the API server was restarted twice, the second time with a certificate of the new authority")
	c.putsTheirs(next, next)
	c.trust(1)
	w.longest("the former authority was forgotten")
}

// drainsANode: a member's pod is evicted and waits for its node, which has its data.
func (c *cluster) drainsANode(w *load) {
	member := c.awayFromAPIServer()
	pod := c.observed(member)
	kube(c.t, "drain", pod.Spec.NodeName, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=10m")
	w.wrote(100)
	kube(c.t, "uncordon", pod.Spec.NodeName)
	c.another(*pod)
	c.converges(3)
	w.longest("a node was drained, and is back")
	assert.Contains(c.t, c.ids(), member)
}

// losesANode has the plug of a node pulled that has a member and no API server.
func (c *cluster) losesANode(w *load) {
	node := c.nodeOf(c.awayFromAPIServer())
	inLab(c.t, "poweroff", node)
	w.wrote(100)
	inLab(c.t, "poweron", node)
	c.converges(3)
	w.longest("a node was powered off and on")
}

// nodeOf is the number of a member's node.
func (c *cluster) nodeOf(member string) string {
	return strings.TrimPrefix(c.observed(member).Spec.NodeName, "node")
}

// replacesQuorate rolls its Deployment, as an upgrade of Quorate does, while a change is under way.
func (c *cluster) replacesQuorate(w *load) {
	c.edit(`{"options":{"extraArgs":{"max-txn-ops":"300"}}}`)
	kube(c.t, "-n", "quorate-system", "rollout", "restart", "deployment/quorate")
	kube(c.t, "-n", "quorate-system", "rollout", "status", "deployment/quorate", "--timeout=10m")
	c.converges(3)
	w.longest("Quorate was replaced during a rolling change")
}

// membersNeedNothing: cluster DNS, kube-proxy, Metacontroller and Quorate are stopped, and then the API server. Every
// member's etcd is killed, and comes back by its kubelet; one node is booted. The API server finds the members as they
// were.
func (c *cluster) membersNeedNothing(w *load) {
	inLab(c.t, "stop", "1", "coredns")
	for n := range labNodes {
		inLab(c.t, "stop", strconv.Itoa(n+1), "kube-proxy")
	}
	booted := c.nodeOf(c.awayFromAPIServer()) // while Quorate can say who leads
	kube(c.t, "-n", "quorate-system", "scale", "deployment", "--all", "--replicas=0")
	eventually(c.t, "Quorate and Metacontroller are gone", func() string {
		return strings.Join(namesIn(list[corev1.Pod](c.t, "quorate-system", "pods")), ", ")
	})
	w.wrote(100)
	w.longest("DNS, kube-proxy, Metacontroller and Quorate were stopped")
	members, endpoints := namesIn(c.pods()), c.everyNode()
	client := labClient(c.t, shownToAPIServersEtcd(c.t), nil, endpoints...)
	inLab(c.t, "stop", "1", "kube-apiserver", "KILL")
	began := time.Now()

	c.areKilled(members...) // all at once
	writer := c.writesWith(client, "outage")
	for n := 0; n < len(members) || time.Since(began) < *outageFlag; n++ {
		c.areKilled(members[n%len(members)])
		writer.wrote(50)
		if *outageFlag > 0 {
			<-time.After(time.Until(began.Add(time.Duration(n+1) * time.Minute)))
		}
	}
	inLab(c.t, "poweroff", booted)
	writer.wrote(50)
	inLab(c.t, "poweron", booted)
	writer.wrote(50)
	writer.losesNothing()
	c.t.Logf("no API server for %.0f s", time.Since(began).Seconds())

	inLab(c.t, "again", "1", "kube-apiserver")
	w.wrote(100)
	w.longest("no API server, every member killed at once and one by one, and a node booted")
	kube(c.t, "-n", "quorate-system", "scale", "deployment", "--all", "--replicas=1")
	inLab(c.t, "again", "1", "coredns")
	for n := range labNodes {
		inLab(c.t, "again", strconv.Itoa(n+1), "kube-proxy")
	}
	c.converges(3)
}

// areKilled kills the etcds of members at once, and waits until their kubelets have started them again.
func (c *cluster) areKilled(members ...string) {
	c.t.Helper()
	before := map[string]int{}
	for _, member := range members {
		before[member] = c.processOf(member)
	}
	for _, pid := range before {
		require.NoError(c.t, syscall.Kill(pid, syscall.SIGKILL))
	}
	for member, pid := range before {
		eventually(c.t, member+" is restarted by its kubelet, without an API server", func() string {
			now := c.processOf(member)
			return while(now == pid, "it is not")
		})
	}
}

// shownToAPIServersEtcd is what a client of that shows and trusts.
func shownToAPIServersEtcd(t *testing.T) *tls.Config {
	t.Helper()
	theirs := apiServersAuthority(t)
	return (&externalEtcd{t: t, ca: &theirs}).shown("client")
}

// areRescued: all nodes lose power at once. Without an API server kubelets are given no pods but static ones, and those
// that `quorate-snapshot rescue` writes bring it back; then the members' own pods take over, one after the other.
func (c *cluster) areRescued(w *load) {
	nodes := map[string]string{} // by member
	for _, pod := range c.pods() {
		nodes[pod.Name] = strings.TrimPrefix(pod.Spec.NodeName, "node")
	}
	ids, image := c.ids(), c.pods()[0].Spec.Containers[0].Image
	dir := fmt.Sprintf("/var/tmp/quorate-selfhosted/%s-%s-%s", c.ns, name, c.object().UID)
	before := map[string]string{}
	for member := range nodes {
		before[member] = c.etcdOf(member).ContainerID
	}
	for n := range labNodes {
		inLab(c.t, "poweroff", strconv.Itoa(n+1))
	}
	for n := range labNodes {
		inLab(c.t, "poweron", strconv.Itoa(n+1))
	}
	c.findsTheLab()
	binary, err := filepath.Abs("../../../bin/quorate-snapshot")
	require.NoError(c.t, err)
	c.t.Log(inLab(c.t, "exec", "1", binary, "rescue", "list", "--path=/var/tmp/quorate-selfhosted"))
	for member, node := range nodes {
		c.t.Log(inLab(c.t, "exec", node, binary, "rescue", "start", "--dir="+filepath.Join(dir, member),
			"--image="+image, "--ca-cert="+pki("etcd-ca.crt"), "--ca-key="+pki("etcd-ca.key")))
	}
	eventually(c.t, "the API server answers", func() string {
		if ended.MatchString(inLab(c.t, "ps")) { // as it does without etcd
			inLab(c.t, "again", "1", "kube-apiserver")
		}
		_, err := kubectl("", "get", "--raw", "/readyz")
		return failure(err)
	})
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "coredns", "local-path-provisioner"} {
		inLab(c.t, "again", "1", name)
	}
	w.wrote(100)
	w.longest("all nodes lost their power, and the members were rescued")
	for member, node := range nodes {
		inLab(c.t, "exec", node, "rm", "/etc/kubernetes/manifests/rescue-"+member+".yaml")
		eventually(c.t, member+" runs in its own pod", func() string { // it may still be called ready, of before
			pod, found := get[corev1.Pod](c.t, c.ns, "pods", member)
			return while(!found || !ready(pod) || c.etcdOf(member).ContainerID == before[member], "not yet")
		})
	}
	c.converges(3)
	w.longest("the members' own pods took over")
	assert.Equal(c.t, ids, c.ids(), "they are the same members")
}

// findsTheLab looks up node 1 again, whose network is another one since it was powered on.
func (c *cluster) findsTheLab() {
	c.t.Helper()
	found := regexp.MustCompile(`QUORATE_LAB_NETNS='(.+)'`).FindStringSubmatch(inLab(c.t, "env"))
	require.NotNil(c.t, found)
	c.t.Setenv("QUORATE_LAB_NETNS", found[1])
	var err error
	lab, err = newLab()
	require.NoError(c.t, err)
}

// ended is an API server that has, in the lab's list of processes.
var ended = regexp.MustCompile(`node1 +kube-apiserver +ended`)

func namesIn(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		names = append(names, pods[i].Name)
	}
	return names
}
