//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
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

// TestRollBesideByHand alternates an upgrade by Quorate with one by hand, each under two applications that write: one
// has the Service as its one endpoint, the other has an endpoint for each member. It runs on demand: `make bench`.
func TestRollBesideByHand(t *testing.T) {
	measurement(t)
	const rounds = 10
	quorates, hands := &rolls{}, &rolls{}
	for i := range rounds {
		t.Run(fmt.Sprintf("quorate-%d", i), func(t *testing.T) {
			c := newCluster(t, three)
			c.converges(3)
			c.settles()
			quorates.measure(c, rereading(c.ns, name+"-client-tls"), func() {
				c.edit(`{"version":"3.7.3"}`)
				c.converges(3)
			})
		})
		t.Run(fmt.Sprintf("by-hand-%d", i), func(t *testing.T) {
			h := byHand(inNamespace(t), false)
			h.settles()
			hands.measure(h.cluster, nil, func() { h.upgrades("3.7.3") })
		})
	}
	fmt.Printf("\n| 3.6.16 to 3.7.3, three members: median (min-max) of %d, s | Quorate | by hand | ratio |\n"+
		"|---|---|---|---|\n", rounds)
	inNineOfTen := func(all []time.Duration) float64 { return slices.Sorted(slices.Values(all))[rounds*9/10-1].Seconds() }
	ratio("from the edit to Converged (by hand: all pods Ready)", quorates.took, hands.took)
	stalls := func(what string, a, b []time.Duration) {
		ratio("longest stall of a client of "+what, a, b)
		fmt.Printf("| at most, in nine of ten rolls | %.2f | %.2f | %.2f |\n", inNineOfTen(a), inNineOfTen(b),
			inNineOfTen(a)/inNineOfTen(b))
	}
	stalls("the Service", quorates.one, hands.one)
	stalls("three endpoints", quorates.three, hands.three)
}

// settles waits until every member has run its version for as long as etcd needs before the next one.
func (c *cluster) settles() {
	eventually(c.t, "every member has settled", func() string {
		for _, pod := range c.pods() {
			if since := time.Since(facts.RunningSince(&pod)); since < facts.Settling {
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

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

func spanOf(d []time.Duration) string {
	return fmt.Sprintf("%.1f (%.1f-%.1f)", median(d).Seconds(), slices.Min(d).Seconds(), slices.Max(d).Seconds())
}

// TestFleet makes as many clusters of one member as QUORATE_FLEET says, in memory (two files of 64 MB that etcd makes
// for its log before it writes, so 512Mi), every other one in plain text, ten to a namespace, and lets them rest:
// what they cost then, and that nothing is written. It runs on demand: `make bench-fleet CLUSTERS=100`.
func TestFleet(t *testing.T) {
	clusters, err := strconv.Atoi(os.Getenv("QUORATE_FLEET"))
	if err != nil {
		t.Skip("QUORATE_FLEET says how many clusters: a measurement, for `make bench-fleet`")
	}
	var namespaces []string
	for i := 0; i*10 < clusters; i++ {
		namespaces = append(namespaces, namespaced(t, fmt.Sprintf("fleet-%03d", i)).ns)
	}
	rest := costsOf(t, 10*time.Second)
	fmt.Printf("before: %s\n", rest)
	began := time.Now()
	_, err = kubectl(fleetManifest(namespaces, clusters), "apply", "-f", "-")
	require.NoError(t, err)
	applied := time.Since(began)
	took := eventually(t, "all are Available and at rest", func() string { return fleetWaits(t, namespaces, clusters) })
	fmt.Printf("%d clusters: applied in %.0f s, all Available and Converged %.0f s after that\n", clusters,
		applied.Seconds(), took.Seconds())

	var before map[string]string
	eventually(t, "the last write of ours is over", func() string {
		last := before
		before = writesIn(t, namespaces...)
		if fmt.Sprint(last) != fmt.Sprint(before) {
			<-time.After(5 * time.Second)
			return "objects still change"
		}
		return ""
	})
	assert.GreaterOrEqual(t, len(before), 5*clusters, "Metacontroller's writes are not recognised")
	for _, c := range processes(t) {
		if c.writes > 0 {
			fmt.Printf("until then %s made %.0f writes\n", c.pod, c.writes)
		}
	}
	requests := requestsOfMetacontroller(t)
	spent := costsOf(t, 2*time.Minute)
	fmt.Printf("at rest, over two minutes, with Metacontroller %s: %s\n", os.Getenv("QUORATE_METACONTROLLER_VERSION"), spent)
	for right, before := range requests {
		requests[right] = -before
	}
	for right, now := range requestsOfMetacontroller(t) {
		requests[right] += now
	}
	maps.DeleteFunc(requests, func(_ string, n int) bool { return n == 0 })
	fmt.Printf("its requests in that time: %v\n", requests)
	assert.Equal(t, before, writesIn(t, namespaces...), "something of ours was written although nothing has changed")
}

// fleetManifest is the YAML of all clusters.
func fleetManifest(namespaces []string, clusters int) string {
	var b strings.Builder
	for i := range clusters {
		tls := ""
		if i%2 == 1 {
			tls = "  tls: {mode: Disabled}\n"
		}
		fmt.Fprintf(&b, "---\napiVersion: etcd.quorate.dev/v1beta1\nkind: EtcdCluster\nmetadata: {name: fleet-%d, "+
			"namespace: %s}\nspec:\n"+
			"  replicas: 1\n  version: 3.6.16\n  storage: {medium: Memory, size: 512Mi}\n  resources: {requests: "+
			"{cpu: 1m, memory: 32Mi}}\n%s", i, namespaces[i/10], tls)
	}
	return b.String()
}

// fleetWaits says what the fleet waits for.
func fleetWaits(t *testing.T, namespaces []string, clusters int) string {
	t.Helper()
	phases, ready := map[string]int{}, 0
	for _, ns := range namespaces {
		for _, c := range list[v1beta1.EtcdCluster](t, ns, "etcdcluster") {
			phases[c.Status.Rule]++
			if c.Status.Rule == "Converged" && meta.IsStatusConditionTrue(c.Status.Conditions, v1beta1.Available) {
				ready++
			}
		}
	}
	if ready == clusters {
		return ""
	}
	<-time.After(time.Second)
	return fmt.Sprintf("%d of %d: %v", ready, clusters, phases)
}

// writesIn are the last writes of Metacontroller in these namespaces, by the field managers that the API server keeps
// with each object. Pods become Ready and budgets count them, and a loaded machine makes kubelets write now and then:
// that is Kubernetes' writing.
func writesIn(t *testing.T, namespaces ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, ns := range namespaces {
		for _, kind := range []string{"etcdcluster", "pods", "pvc", "svc", "pdb", "cm", "secrets", "netpol"} {
			for _, o := range list[metav1.PartialObjectMetadata](t, ns, kind) {
				for _, f := range o.ManagedFields {
					if strings.HasPrefix(f.Manager, "metacontroller") {
						all[ns+" "+kind+"/"+o.Name+" "+f.Subresource] = f.Time.String()
					}
				}
			}
		}
	}
	return all
}

// costs of one process over a while.
type costs struct {
	pod            string
	cpu, resident  float64 // seconds of processor time in the while, MiB at its end
	calls, answers float64 // of the hook sync
	writes         float64 // of Metacontroller, as its own client counts them
}

// costsOf are those of Metacontroller and of every replica of Quorate over this time.
func costsOf(t *testing.T, during time.Duration) string {
	t.Helper()
	before := processes(t)
	<-time.After(during)
	var all []string
	for i, c := range processes(t) {
		line := fmt.Sprintf("%s: %.1f MiB resident, %.2f %% of a core", c.pod, c.resident,
			100*(c.cpu-before[i].cpu)/during.Seconds())
		if calls := c.calls - before[i].calls; calls > 0 {
			line += fmt.Sprintf(", %.1f calls in a second, %.2f ms of CPU each, %.1f ms from request to answer",
				calls/during.Seconds(), 1000*(c.cpu-before[i].cpu)/calls, 1000*(c.answers-before[i].answers)/calls)
		}
		if strings.HasPrefix(c.pod, "metacontroller-") {
			line += fmt.Sprintf(", %.0f writes", c.writes-before[i].writes)
		}
		all = append(all, line)
	}
	return strings.Join(all, "; ")
}

func processes(t *testing.T) []costs {
	t.Helper()
	var all []costs
	for port, pods := range map[int][]corev1.Pod{9999: metacontrollerPods(t), 8081: quoratePods(t)} {
		for _, pod := range pods {
			text := pageOf(t, "http://"+objects.HostPort(pod.Status.PodIP, port)+"/metrics")
			all = append(all, costs{
				pod: pod.Name, cpu: sample(text, "process_cpu_seconds_total"),
				resident: sample(text, "process_resident_memory_bytes") / (1 << 20),
				calls:    sample(text, `quorate_hook_duration_seconds_count{code="200",hook="sync"}`),
				answers:  sample(text, `quorate_hook_duration_seconds_sum{code="200",hook="sync"}`),
				writes:   written(text),
			})
		}
	}
	slices.SortFunc(all, func(a, b costs) int { return strings.Compare(a.pod, b.pod) })
	return all
}

// written are all requests that change something, as a client of Kubernetes' counts them.
func written(text string) float64 {
	sum := 0.0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "rest_client_requests_total{") && !strings.Contains(line, `method="GET"`) {
			sum += sample(line, line[:strings.LastIndexByte(strings.TrimSpace(line), ' ')])
		}
	}
	return sum
}

// pageOf reads a page in the lab's network.
func pageOf(t *testing.T, url string) string {
	t.Helper()
	code, text, err := page(lab.httpClient(), url)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, url)
	return text
}

// sample is the value of a metric with these labels; 0 without one.
func sample(text, metric string) float64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, metric+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}
