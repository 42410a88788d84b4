//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestFleet makes as many clusters of one member as QUORATE_FLEET says, in memory (two files of 64 MB that etcd makes
// for its log before it writes, so 192Mi), every other one in plain text, ten to a namespace, and lets them rest:
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
	fmt.Printf("at rest, over two minutes, with Metacontroller %s: %s\n", os.Getenv("QUORATE_METACONTROLLER"), spent)
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
		fmt.Fprintf(&b, "---\napiVersion: etcd.quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: fleet-%d, "+
			"namespace: %s}\nspec:\n"+
			"  replicas: 1\n  version: 3.6.16\n  storage: {medium: Memory, size: 192Mi}\n  resources: {requests: "+
			"{cpu: 1m, memory: 32Mi}}\n%s", i, namespaces[i/10], tls)
	}
	return b.String()
}

// fleetWaits says what the fleet waits for.
func fleetWaits(t *testing.T, namespaces []string, clusters int) string {
	t.Helper()
	phases, ready := map[string]int{}, 0
	for _, ns := range namespaces {
		for _, c := range list[v1alpha1.EtcdCluster](t, ns, "etcdcluster") {
			phases[c.Status.Rule]++
			if c.Status.Rule == "Converged" && meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.Available) {
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
