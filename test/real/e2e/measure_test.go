//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
)

// measurement skips what only `make bench` asks for.
func measurement(t *testing.T) {
	t.Helper()
	if os.Getenv("QUORATE_BENCH") == "" {
		t.Skip("a measurement, for `make bench`")
	}
}

// ratio prints a row: how long it takes by Quorate and by hand.
func ratio(what string, a, b []time.Duration) float64 {
	r := median(a).Seconds() / median(b).Seconds()
	fmt.Printf("| %s | %s | %s | %.2f |\n", what, spanOf(a), spanOf(b), r)
	return r
}

// TestTimeToAvailable alternates a cluster of Quorate's with the same three pods written by hand, so that the
// machine's mood is the same for both. It runs on demand: `make bench`.
func TestTimeToAvailable(t *testing.T) {
	measurement(t)
	const rounds = 5
	var ours, oursReady, byHand, returns, returnsByHand []time.Duration
	for i := range rounds {
		t.Run(fmt.Sprintf("quorate-%d", i), func(t *testing.T) {
			c := inNamespace(t)
			begin := time.Now()
			c.apply(three)
			c.meets("etcdcluster/demo", "Available")
			ours = append(ours, time.Since(begin))
			c.meets("pod --all", "Ready")
			oursReady = append(oursReady, time.Since(begin))
			returns = append(returns, c.returns("demo-1"))
		})
		t.Run(fmt.Sprintf("by-hand-%d", i), func(t *testing.T) {
			c := inNamespace(t)
			begin := time.Now()
			c.adds(byHandManifest(c.ns))
			c.meets("pod --all", "Ready")
			byHand = append(byHand, time.Since(begin))
			returnsByHand = append(returnsByHand, c.replacedByHand("demo-1"))
		})
	}
	fmt.Printf("\n| seconds: median (min-max) of %d | Quorate | by hand | ratio |\n|---|---|---|---|\n", rounds)
	// By hand there is no Available: all pods Ready is the nearest that one can wait for, and it waits for the probes
	// too.
	bound := ratio("apply to Available (by hand: all pods Ready), 3 members on claims", ours, byHand)
	ratio("apply to all pods Ready, 3 members on claims", oursReady, byHand)
	ratio("deleted pod Ready again", returns, returnsByHand)
	assert.LessOrEqual(t, bound, 1.7, "the bound of the project, with TLS")
}

// TestRollBesideByHand alternates an upgrade by Quorate with one by hand, each under two applications that write: one
// has the Service as its one endpoint, the other has an endpoint for each member. It runs on demand: `make bench`.
func TestRollBesideByHand(t *testing.T) {
	measurement(t)
	const rounds = 10
	ours, byHand := &rolls{}, &rolls{}
	for i := range rounds {
		t.Run(fmt.Sprintf("quorate-%d", i), func(t *testing.T) {
			c := newCluster(t, three)
			c.converges(3)
			c.settles()
			ours.measure(c, rereading(c.ns, name+"-client-tls"), func() {
				c.edit(`{"version":"3.7.3"}`)
				c.converges(3)
			})
		})
		t.Run(fmt.Sprintf("by-hand-%d", i), func(t *testing.T) {
			c := inNamespace(t)
			c.adds(byHandManifest(c.ns))
			c.meets("pod --all", "Ready")
			c.settles()
			byHand.measure(c, nil, func() {
				for _, pod := range []string{"demo-0", "demo-1", "demo-2"} {
					c.upgradedByHand(pod)
				}
			})
		})
	}
	fmt.Printf("\n| 3.6.16 to 3.7.3, three members: median (min-max) of %d, s | Quorate | by hand | ratio |\n"+
		"|---|---|---|---|\n", rounds)
	inNineOfTen := func(all []time.Duration) float64 { return slices.Sorted(slices.Values(all))[rounds*9/10-1].Seconds() }
	ratio("from the edit to Converged (by hand: all pods Ready)", ours.took, byHand.took)
	stalls := func(what string, a, b []time.Duration) {
		ratio("longest stall of a client of "+what, a, b)
		fmt.Printf("| at most, in nine of ten rolls | %.2f | %.2f | %.2f |\n", inNineOfTen(a), inNineOfTen(b),
			inNineOfTen(a)/inNineOfTen(b))
	}
	stalls("the Service", ours.one, byHand.one)
	stalls("three endpoints", ours.three, byHand.three)
}

// settles waits until every member has run its version for as long as etcd needs before the next one.
func (c *cluster) settles() {
	eventually(c.t, "every member has settled", func() string {
		for _, pod := range c.pods() {
			if since := time.Since(versions.RunningSince(&pod)); since < versions.Settling {
				return fmt.Sprintf("%s has run for %s", pod.Name, since)
			}
		}
		return ""
	})
}

// rolls are how long upgrades took, and the longest stalls of clients of one and of three endpoints in each.
type rolls struct{ took, one, three []time.Duration }

func (r *rolls) measure(c *cluster, config *tls.Config, upgrade func()) {
	members := func(settings *clientv3.Config) {
		scheme, _, _ := strings.Cut(settings.Endpoints[0], ":")
		settings.Endpoints = nil
		for _, pod := range []string{"demo-0", "demo-1", "demo-2"} {
			settings.Endpoints = append(settings.Endpoints,
				fmt.Sprintf("%s://%s.demo-peers.%s.svc:2379", scheme, pod, c.ns))
		}
		settings.DialOptions = []grpc.DialOption{grpc.WithContextDialer(c.dialMember)}
	}
	several, err := c.open(config, "", "", "", members)
	require.NoError(c.t, err)
	one, three := c.writesWith(c.clientWith(config, c.service()), "one"), c.writesWith(several, "three")
	begin := time.Now()
	upgrade()
	r.took = append(r.took, time.Since(begin))
	one.losesNothing()
	three.losesNothing()
	r.one, r.three = append(r.one, one.stalled()), append(r.three, three.stalled())
}

// dialMember connects to the pod that an address names first.
func (c *cluster) dialMember(ctx context.Context, address string) (net.Conn, error) {
	member, _, _ := strings.Cut(address, ".")
	var pod corev1.Pod
	if found, err := api.read(fmt.Sprintf(paths["pods"], c.ns)+"/"+member, &pod); err != nil || !found ||
		pod.Status.PodIP == "" {
		return nil, fmt.Errorf("%s has no address: %w", member, err)
	}
	return lab.dialContext(ctx, pod.Status.PodIP+":2379")
}

// upgradedByHand gives the pod the new image and waits until it runs that and is Ready.
func (c *cluster) upgradedByHand(pod string) {
	c.t.Helper()
	before := state.ContainerOf(c.observed(pod))
	c.kube("set", "image", "pod/"+pod, "etcd=gcr.io/etcd-development/etcd:v3.7.3")
	eventually(c.t, pod+" serves with its new image", func() string {
		p := c.observed(pod)
		return while(state.ContainerOf(p) == before || !ready(p), "not yet")
	})
}

// returns deletes a member's pod and measures until its successor is Ready.
func (c *cluster) returns(pod string) time.Duration {
	c.t.Helper()
	begin := time.Now()
	c.kube("delete", "pod", pod, "--wait=true")
	eventually(c.t, pod+" exists again", func() string {
		_, found := get[corev1.Pod](c.t, c.ns, "pods", pod)
		return while(!found, "no pod")
	})
	c.meets("pod/"+pod, "Ready")
	return time.Since(begin)
}

// replacedByHand does the same with pods that no controller watches: the person applies the pod again.
func (c *cluster) replacedByHand(pod string) time.Duration {
	c.t.Helper()
	begin := time.Now()
	c.kube("delete", "pod", pod, "--wait=true")
	c.adds(byHandManifest(c.ns))
	c.meets("pod/"+pod, "Ready")
	return time.Since(begin)
}

// byHandManifest is what an engineer writes without an operator: Services, three claims, three pods, a static
// bootstrap.
func byHandManifest(ns string) string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(`
apiVersion: v1
kind: Service
metadata: {name: demo, namespace: NS}
spec: {selector: {app: etcd}, ports: [{name: client, port: 2379}]}
---
apiVersion: v1
kind: Service
metadata: {name: demo-peers, namespace: NS}
spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: etcd}, ports: [{name: client, port: 2379}, {name: peer, port: 2380}]}
`, "NS", ns))
	for i := range 3 {
		b.WriteString(memberByHand(ns, i, []int{0, 1, 2}, "new"))
	}
	return b.String()
}

// urlByHand is where a member by hand listens.
func urlByHand(ns string, i, port int) string {
	return fmt.Sprintf("http://demo-%d.demo-peers.%s.svc:%d", i, ns, port)
}

// memberByHand is the claim and the pod of one of these members.
func memberByHand(ns string, i int, members []int, state string) string {
	var initial []string
	for _, m := range members {
		initial = append(initial, fmt.Sprintf("demo-%d=%s", m, urlByHand(ns, m, 2380)))
	}
	return fmt.Sprintf(`---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: demo-%[1]d, namespace: %[2]s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: demo-%[1]d, namespace: %[2]s, labels: {app: etcd}}
spec:
  hostname: demo-%[1]d
  subdomain: demo-peers
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 10001, fsGroup: 10001}
  containers:
  - name: etcd
    image: gcr.io/etcd-development/etcd:v3.6.16
    command: [/usr/local/bin/etcd, --name=demo-%[1]d, --data-dir=/var/lib/etcd/data, --listen-client-urls=http://0.0.0.0:2379, --listen-peer-urls=http://0.0.0.0:2380,
      --listen-metrics-urls=http://0.0.0.0:2381, --advertise-client-urls=%[3]s, --initial-advertise-peer-urls=%[4]s, "--initial-cluster=%[5]s", --initial-cluster-state=%[6]s]
    resources: {requests: {cpu: 100m, memory: 256Mi}}
    readinessProbe: {httpGet: {path: /readyz, port: 2381}, periodSeconds: 2}
    volumeMounts: [{name: data, mountPath: /var/lib/etcd}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: demo-%[1]d}}]
`, i, ns, urlByHand(ns, i, 2379), urlByHand(ns, i, 2380), strings.Join(initial, ","), state)
}

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

func spanOf(d []time.Duration) string {
	return fmt.Sprintf("%.1f (%.1f-%.1f)", median(d).Seconds(), slices.Min(d).Seconds(), slices.Max(d).Seconds())
}
