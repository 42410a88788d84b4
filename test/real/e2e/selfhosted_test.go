//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestSelfHosted: a Kubernetes moves its own data into an EtcdCluster that it runs itself, while its API server writes
// all the time, and lives with that: members are killed, replaced, restarted and upgraded, and all that the API server
// depends on is stopped but the members. It needs a lab of its own with four nodes (`make e2e-selfhosted`): the lab's
// API server has its data in the EtcdCluster afterwards.
func TestSelfHosted(t *testing.T) {
	alone(t)
	c := &cluster{t: t, ns: "etcd"}
	t.Cleanup(func() {
		if t.Failed() {
			c.dump()
		}
	})
	kube(t, "create", "namespace", c.ns)
	kube(t, "create", "namespace", "load")
	w := loads(t)

	c.putsTheirs()
	c.fitted("selfhosted", "selfhosted.yaml")
	t.Cleanup(func() { _ = os.RemoveAll("/var/tmp/quorate-selfhosted") })
	c.stage("ForeignMembers")
	w.longest("three members joined")

	endpoints := c.object().Status.Connection.Endpoints[1:]
	require.Len(t, endpoints, 3)
	inLab(t, append([]string{"etcd-servers"}, endpoints...)...)
	w.longest("the API server was restarted, with its data at the members")
	c.edit(`{"bootstrap":{"existing":{"retireForeign":true}}}`)
	c.stage("Retired")
	w.longest("the former member was retired")
	inLab(t, "stop", "1", "etcd")
	c.edit(`{"bootstrap":null,"selfHosted":true}`)
	c.converges(3)
	w.longest("the former etcd was stopped")
	for patch, why := range map[string]string{
		`{"replicas":0}`: "selfHosted needs replicas of 3 or more", `{"replicas":2}`: "selfHosted needs replicas",
		`{"restore":{"id":"a","epoch":1}}`:                   "selfHosted forbids restore",
		`{"recovery":{"quorumLoss":"Recreate"}}`:             "selfHosted needs recovery.quorumLoss Manual",
		`{"tls":{"mode":"Auto"}}`:                            "selfHosted needs tls.mode Secrets",
		`{"deletionProtection":false}`:                       "selfHosted needs deletionProtection",
		`{"selfHosted":false,"deletionProtection":false}`:    "can't be taken off in one edit",
		`{"hostNetwork":null,"storage":{"medium":"Memory"}}`: "can't be",
	} {
		require.ErrorContains(t, c.edits(patch), why, patch)
	}
	_, err := kubectl("", "-n", c.ns, "delete", "etcdcluster", name, "--wait=false")
	require.ErrorContains(t, err, "is protected against deletion")

	for _, story := range []struct {
		name  string
		tells func(*cluster, *load)
	}{
		{"LeaderKilled", (*cluster).losesTheAPIServersLeader},
		{"ADiskIsLost", (*cluster).losesADisk},
		{"ARollingChange", (*cluster).rollsBeneath},
		{"AnUpgrade", (*cluster).upgradesBeneath},
		{"ANodeIsPoweredOff", (*cluster).losesANode},
		{"MembersNeedNothing", (*cluster).membersNeedNothing},
		{"AllNodesAreOff", (*cluster).areRescued},
	} {
		if !t.Run(story.name, func(t *testing.T) {
			told := &cluster{t: t, ns: c.ns}
			told.converges(3)
			w.t = t
			story.tells(told, w)
		}) {
			break
		}
	}
	w.t = t
	w.losesNothing()
}

// putsTheirs puts certificates of the authority of the etcd that the Kubernetes began with: its API server trusts that,
// and goes on showing its own certificate.
func (c *cluster) putsTheirs() {
	c.t.Helper()
	dir := filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), "pki")
	block := func(file string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(c.t, err)
		first, _ := pem.Decode(text)
		return first.Bytes
	}
	ca, err := x509.ParseCertificate(block("etcd-ca.crt"))
	require.NoError(c.t, err)
	key, err := x509.ParsePKCS8PrivateKey(block("etcd-ca.key"))
	require.NoError(c.t, err)
	f := forger{c.t, ca, key.(*ecdsa.PrivateKey)}
	names := append(c.names(), "127.0.0.1") // for etcdctl in the pods
	for n := range 4 {
		names = append(names, fmt.Sprintf("172.30.0.%d", n+1))
	}
	until := time.Now().Add(24 * time.Hour)
	for secret, pair := range map[string][2][]byte{
		"server":   pairOf(f.issue("", until, names...)),
		"peer":     pairOf(f.issue(name+":peers", until, names...)),
		"operator": pairOf(f.issue("root", until)),
	} {
		c.puts(secret, pair[0], pair[1], bundle(f))
	}
}

// inLab runs a command of the lab's program.
func inLab(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("../../../bin/lab", args...).CombinedOutput()
	require.NoError(t, err, "lab %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// processOf is the process of a member.
func (c *cluster) processOf(member string) int {
	c.t.Helper()
	pid := 0
	eventually(c.t, "etcd of "+member+" runs", func() string {
		if pid, _ = c.dataOf(member); pid == 0 {
			return "it does not"
		}
		return ""
	})
	return pid
}

func (c *cluster) losesTheAPIServersLeader(w *load) {
	require.NoError(c.t, syscall.Kill(c.processOf(c.leader()), syscall.SIGKILL))
	w.wrote(100)
	c.converges(3)
	w.longest("the leader's etcd was killed")
}

func (c *cluster) losesADisk(w *load) {
	lost := ""
	for _, pod := range c.pods() {
		if pod.Name != c.leader() {
			lost = pod.Name
		}
	}
	c.spoil(lost, emptied)
	c.deletes("pods", lost)
	c.succeeds(lost, func() {})
	w.longest("a member's disk was lost, and the member replaced")
}

func (c *cluster) rollsBeneath(w *load) {
	c.edit(`{"options":{"snapshotCount":20000}}`)
	c.converges(3)
	w.longest("all members were restarted")
}

func (c *cluster) upgradesBeneath(w *load) {
	c.edit(`{"version":"3.7.3"}`)
	c.converges(3)
	w.longest("all members were upgraded from 3.6 to 3.7")
}

// losesANode has the plug of a node pulled that has a member and no API server.
func (c *cluster) losesANode(w *load) {
	node := ""
	for _, pod := range c.pods() {
		if pod.Spec.NodeName != "node1" {
			node = strings.TrimPrefix(pod.Spec.NodeName, "node")
		}
	}
	inLab(c.t, "poweroff", node)
	w.wrote(100)
	inLab(c.t, "poweron", node)
	c.converges(3)
	w.longest("a node was powered off and on")
}

// membersNeedNothing: cluster DNS, kube-proxy, Metacontroller and Quorate are stopped, and then the API server. Every
// member's etcd is killed, and comes back by its kubelet; the API server finds them.
func (c *cluster) membersNeedNothing(w *load) {
	inLab(c.t, "stop", "1", "coredns")
	for n := range 4 {
		inLab(c.t, "stop", strconv.Itoa(n+1), "kube-proxy")
	}
	kube(c.t, "-n", "quorate-system", "scale", "deployment", "--all", "--replicas=0")
	eventually(c.t, "Quorate and Metacontroller are gone", func() string {
		return strings.Join(namesIn(list[corev1.Pod](c.t, "quorate-system", "pods")), ", ")
	})
	w.wrote(100)
	w.longest("DNS, kube-proxy, Metacontroller and Quorate were stopped")
	pods := c.pods()
	inLab(c.t, "stop", "1", "kube-apiserver", "KILL")
	before := map[string]int{}
	for _, pod := range pods {
		before[pod.Name] = c.processOf(pod.Name)
	}
	for _, pid := range before {
		require.NoError(c.t, syscall.Kill(pid, syscall.SIGKILL))
	}
	for member, pid := range before {
		eventually(c.t, member+" is restarted by its kubelet, without an API server", func() string {
			if now := c.processOf(member); now == pid {
				return "it is not"
			}
			return ""
		})
	}
	inLab(c.t, "again", "1", "kube-apiserver")
	w.wrote(100)
	w.longest("no API server, and every member killed at once")
	kube(c.t, "-n", "quorate-system", "scale", "deployment", "--all", "--replicas=1")
	inLab(c.t, "again", "1", "coredns")
	for n := range 4 {
		inLab(c.t, "again", strconv.Itoa(n+1), "kube-proxy")
	}
	c.converges(3)
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
	for n := range 4 {
		inLab(c.t, "poweroff", strconv.Itoa(n+1))
	}
	for n := range 4 {
		inLab(c.t, "poweron", strconv.Itoa(n+1))
	}
	c.findsTheLab()
	binary, err := filepath.Abs("../../../bin/quorate-snapshot")
	require.NoError(c.t, err)
	pki := filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), "pki")
	c.t.Log(inLab(c.t, "exec", "1", binary, "rescue", "list", "--path=/var/tmp/quorate-selfhosted"))
	for member, node := range nodes {
		c.t.Log(inLab(c.t, "exec", node, binary, "rescue", "start", "--dir="+filepath.Join(dir, member),
			"--image="+image, "--ca-cert="+pki+"/etcd-ca.crt", "--ca-key="+pki+"/etcd-ca.key"))
	}
	eventually(c.t, "the API server answers", func() string {
		if ended.MatchString(inLab(c.t, "ps")) { // as it does without etcd
			inLab(c.t, "again", "1", "kube-apiserver")
		}
		if _, err := kubectl("", "get", "--raw", "/readyz"); err != nil {
			return err.Error()
		}
		return ""
	})
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "coredns", "local-path-provisioner"} {
		inLab(c.t, "again", "1", name)
	}
	w.wrote(100)
	w.longest("all nodes lost their power, and the members were rescued")
	for member, node := range nodes {
		inLab(c.t, "exec", node, "rm", "/etc/kubernetes/manifests/rescue-"+member+".yaml")
		c.meets("pod/"+member, "Ready")
	}
	c.converges(3)
	w.longest("the members' own pods took over")
	assert.Equal(c.t, ids, c.ids(), "they are the same members")
}

// findsTheLab looks up node 1 again, whose network is another one since it was powered on.
func (c *cluster) findsTheLab() {
	c.t.Helper()
	found := regexp.MustCompile(`QUORATE_LAB_NETNS=(\S+)`).FindStringSubmatch(inLab(c.t, "env"))
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

// load is what an API server has to write all the time: five clients that create ConfigMaps, some fifty a second.
type load struct {
	t    *testing.T
	stop context.CancelFunc
	done sync.WaitGroup

	lock     sync.Mutex
	created  []string        // names that were acknowledged
	versions []int64         // highest resourceVersion that each client has seen
	watched  map[string]bool // names that were told as added
	last     time.Time
	gap      time.Duration // longest time without an acknowledged write
	count    atomic.Int64
}

const loadPath = "/api/v1/namespaces/load/configmaps"

func loads(t *testing.T) *load {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w := &load{t: t, stop: stop, versions: make([]int64, 5), last: time.Now(), watched: map[string]bool{}}
	w.done.Go(func() {
		for from := ""; ctx.Err() == nil; <-time.After(100 * time.Millisecond) {
			from = w.watch(ctx, from)
		}
	})
	for client := range w.versions {
		w.done.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				w.create(ctx, client, fmt.Sprintf("load-%d-%06d", client, n))
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	t.Cleanup(func() { stop(); w.done.Wait() })
	return w
}

// create makes one ConfigMap, until the API server has acknowledged it or says that it is there.
func (w *load) create(ctx context.Context, client int, object string) {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, object)
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		version, code := posted(attempt, body)
		cancel()
		switch code {
		case http.StatusCreated, http.StatusConflict:
			w.acknowledged(client, object, version)
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// watch is told of ConfigMaps from a resourceVersion on, until it is cut off, and returns the last one.
func (w *load) watch(ctx context.Context, from string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		api.server+loadPath+"?watch=1&resourceVersion="+from, http.NoBody)
	if err != nil {
		return from
	}
	client := *api.client
	client.Timeout = 0 // a watch has no end
	r, err := client.Do(request)
	if err != nil {
		return from
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		return from
	}
	for events := json.NewDecoder(r.Body); ; {
		var event struct {
			Type   string
			Object corev1.ConfigMap
		}
		switch err := events.Decode(&event); {
		case err != nil:
			return from
		case event.Type == "ERROR": // an API server that has just started knows no older version: a client looks again
			return w.look(from)
		}
		from = event.Object.ResourceVersion
		w.lock.Lock()
		w.watched[event.Object.Name] = true
		w.lock.Unlock()
	}
}

// look lists what there is, and returns its resourceVersion, or the old one when there is no answer.
func (w *load) look(from string) string {
	r, err := api.client.Get(api.server + loadPath)
	if err != nil {
		return from
	}
	defer func() { _ = r.Body.Close() }()
	var all corev1.ConfigMapList
	if r.StatusCode != http.StatusOK || json.NewDecoder(r.Body).Decode(&all) != nil {
		return from
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	for i := range all.Items {
		w.watched[all.Items[i].Name] = true
	}
	return all.ResourceVersion
}

func posted(ctx context.Context, body string) (version int64, code int) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, api.server+loadPath, strings.NewReader(body))
	if err != nil {
		return 0, 0
	}
	request.Header.Set("Content-Type", "application/json")
	r, err := api.client.Do(request)
	if err != nil {
		return 0, 0
	}
	defer func() { _ = r.Body.Close() }()
	var made corev1.ConfigMap
	if r.StatusCode == http.StatusCreated && json.NewDecoder(r.Body).Decode(&made) != nil {
		return 0, 0 // it is there, and says so when it is asked for again
	}
	version, _ = strconv.ParseInt(made.ResourceVersion, 10, 64)
	return version, r.StatusCode
}

func (w *load) acknowledged(client int, object string, version int64) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.gap, w.last = max(w.gap, time.Since(w.last)), time.Now()
	w.created = append(w.created, object)
	if version != 0 && version <= w.versions[client] {
		w.t.Errorf("the resourceVersion %d comes after %d", version, w.versions[client])
	}
	w.versions[client] = max(w.versions[client], version)
	w.count.Add(1)
}

// longest tells of the longest time without an acknowledged write since it was asked last. How fast the machine is must
// not decide: docs/how-to/self-hosted.md has the times of a machine that did nothing else.
func (w *load) longest(what string) {
	w.t.Helper()
	w.wrote(20)
	w.lock.Lock()
	defer w.lock.Unlock()
	w.t.Logf("%s: the API server wrote nothing for %d ms at most", what, w.gap.Milliseconds())
	w.gap = 0
}

// wrote waits until n more writes are acknowledged.
func (w *load) wrote(n int64) {
	w.t.Helper()
	goal := w.count.Load() + n
	eventually(w.t, fmt.Sprintf("%d writes of the API server's", n), func() string {
		if left := goal - w.count.Load(); left > 0 {
			return fmt.Sprintf("%d are missing", left)
		}
		return ""
	})
}

// losesNothing ends the load: all that was acknowledged is there, and what watches is told the same as what lists.
func (w *load) losesNothing() {
	w.t.Helper()
	last := w.count.Load()
	w.wrote(20)
	eventually(w.t, "the watch has caught up", func() string {
		w.lock.Lock()
		defer w.lock.Unlock()
		for _, object := range w.created[:last] {
			if !w.watched[object] {
				return object + " was not told"
			}
		}
		return ""
	})
	w.stop()
	w.done.Wait()
	w.created = w.created[:last]
	found := map[string]bool{}
	for _, object := range list[corev1.ConfigMap](w.t, "load", "cm") {
		found[object.Name] = true
	}
	for _, object := range w.created {
		assert.True(w.t, found[object], "%s was acknowledged, and is lost", object)
		assert.True(w.t, w.watched[object], "%s was acknowledged, and the watch was not told", object)
	}
	w.t.Logf("%d objects acknowledged, none lost", len(w.created))
}
