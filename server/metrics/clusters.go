package metrics

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/spec"
)

// clusterGauges are what was last decided about each cluster, as metrics with the names of clusters among their labels:
// an alert must say which cluster it is about. A cluster has some 25 series, and no more than most clusters have any.
// One that was not asked about for 15 minutes is dropped.
//
// Any replica may answer any call, so several may tell of one cluster, and all but one of what was.
// quorate_cluster_decided_timestamp_seconds says which is the newest (docs/reference/metrics.md).
type clusterGauges struct {
	mu       sync.Mutex
	clusters map[types.UID]*clusterSeen
	telling  int // how many of them have gauges
	most     int
	swept    time.Time
	now      func() time.Time
}

type clusterSeen struct {
	at   time.Time
	told *clusterTold // nil for one too many
}

// clusterTold is what is told of a cluster.
type clusterTold struct {
	namespace, name string
	version, medium string
	rule            string
	decided         time.Time
	changed         time.Time
	conditions      []clusterCondition
	alarms          map[string]int // how many members have raised it
	wanted, made    int
	voters          int
	ready, learners int
	failures        int32
	epoch           int64
	certificates    []v1alpha1.CertificateStatus
}

type clusterCondition struct {
	kind, reason string
	is           bool
}

// defaultClusterMetrics is how many clusters have gauges unless LimitClusters is called: 25,000 series or so.
const defaultClusterMetrics = 1000

// clusterNumbers are the gauges that are one number for each cluster.
var clusterNumbers = []struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(c *clusterTold) float64
}{
	{clusterMetric("quorate_cluster_decided_timestamp_seconds",
		"When this process last decided about a cluster, in seconds since 1970. With several replicas, the newest "+
			"one counts."),
		prometheus.GaugeValue, func(c *clusterTold) float64 { return seconds(c.decided) }},
	{clusterMetric("quorate_cluster_changed_timestamp_seconds",
		"When the rule that decides about a cluster last was another one, or etcd was changed, in seconds since 1970."),
		prometheus.GaugeValue, func(c *clusterTold) float64 { return seconds(c.changed) }},
	{clusterMetric("quorate_cluster_members_wanted", "Voters that the spec of a cluster asks for; 0 while it is "+
		"paused."),
		prometheus.GaugeValue, func(c *clusterTold) float64 { return float64(c.wanted) }},
	{clusterMetric("quorate_cluster_members_made_total", "Members that a cluster has had, those that it has among "+
		"them."),
		prometheus.CounterValue, func(c *clusterTold) float64 { return float64(c.made) }},
	{clusterMetric("quorate_cluster_voters", "Voters that etcd lists, as far as known."),
		prometheus.GaugeValue, func(c *clusterTold) float64 { return float64(c.voters) }},
	{clusterMetric("quorate_cluster_voters_ready", "Voters that answered and know a leader."),
		prometheus.GaugeValue, func(c *clusterTold) float64 { return float64(c.ready) }},
	{clusterMetric("quorate_cluster_learners", "Learners that etcd lists, as far as known."),
		prometheus.GaugeValue, func(c *clusterTold) float64 { return float64(c.learners) }},
	{clusterMetric("quorate_cluster_learner_failures", "Learners in a row that did not catch up in time."),
		prometheus.GaugeValue, func(c *clusterTold) float64 { return float64(c.failures) }},
	{clusterMetric("quorate_cluster_epoch", "The epoch of a cluster: 1 until it is restored or recovered."),
		prometheus.GaugeValue, func(c *clusterTold) float64 { return float64(c.epoch) }},
}

var (
	clustersMetric = prometheus.NewDesc("quorate_clusters",
		"Clusters that this process answered for in the last 15 minutes.", nil, nil)
	omittedMetric = prometheus.NewDesc("quorate_clusters_omitted",
		"Those of them that have no gauges, because there are more than --cluster-metrics.", nil, nil)

	infoMetric = clusterMetric("quorate_cluster_info",
		"Always 1, with the version of etcd that the members run and the medium that holds their data.", "version",
		"medium")
	ruleMetric = clusterMetric("quorate_cluster_rule",
		"Always 1, with the rule that decided last: what the column STATUS shows.", "rule")
	conditionMetric = clusterMetric("quorate_cluster_condition",
		"1 for a condition of a cluster that is True, else 0, with its reason.", "condition", "reason")
	alarmsMetric = clusterMetric("quorate_cluster_alarms",
		"Members that have raised an alarm, such as NOSPACE; nothing for none.", "alarm")
	expiryMetric = clusterMetric("quorate_certificate_expiry_timestamp_seconds",
		"When a certificate of a cluster expires, in seconds since 1970, by what it is for.", "certificate")
)

func clusterMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"namespace", "cluster"}, labels...), nil)
}

// seconds since 1970, to the millisecond; 0 for a time that is unset.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// LimitClusters sets how many clusters have gauges of their own at most.
func (m *Metrics) LimitClusters(most int) { m.clusters.most = most }

// Cluster notes what was decided about a cluster, by which rule, and with which status and children it was answered.
func (m *Metrics) Cluster(
	c *v1alpha1.EtcdCluster, rule string, status *v1alpha1.EtcdClusterStatus, children decision.Desired,
) {
	m.clusters.note(c, rule, status, children)
}

// ForgetCluster drops a cluster that is gone.
func (m *Metrics) ForgetCluster(cluster types.UID) { m.clusters.forget(cluster) }

// note keeps what was decided about a cluster.
func (g *clusterGauges) note(
	c *v1alpha1.EtcdCluster, rule string, status *v1alpha1.EtcdClusterStatus, children decision.Desired,
) {
	told := tell(c, rule, status)
	told.made = membersMade(c, children)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if now.Sub(g.swept) >= sweepEvery {
		g.sweep(now)
	}
	if g.clusters == nil {
		g.clusters = map[types.UID]*clusterSeen{}
	}
	seen := g.clusters[c.UID]
	if seen == nil {
		seen = &clusterSeen{}
		g.clusters[c.UID] = seen
	}
	seen.at = now
	if seen.told == nil && g.telling >= g.most {
		return
	}
	if seen.told == nil {
		g.telling++
	}
	told.decided, seen.told = now, told
}

func (g *clusterGauges) forget(cluster types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(cluster)
}

func (g *clusterGauges) drop(cluster types.UID) {
	if seen := g.clusters[cluster]; seen != nil && seen.told != nil {
		g.telling--
	}
	delete(g.clusters, cluster)
}

// sweep drops the clusters that are not asked about any more.
func (g *clusterGauges) sweep(now time.Time) {
	g.swept = now
	for uid, seen := range g.clusters {
		if now.Sub(seen.at) > forgetAfter {
			g.drop(uid)
		}
	}
}

// tell is what there is to tell of a cluster, by its status.
func tell(c *v1alpha1.EtcdCluster, rule string, status *v1alpha1.EtcdClusterStatus) *clusterTold {
	running, _, _ := strings.Cut(status.Running, " ") // without the version that is wanted
	told := &clusterTold{
		namespace: c.Namespace, name: c.Name, version: running, medium: string(c.Spec.Storage.Medium), rule: rule,
		wanted: spec.Replicas(c), epoch: status.Epoch, certificates: status.TLS.Certificates, alarms: map[string]int{},
	}
	if told.medium == "" {
		told.medium = string(v1alpha1.Persistent)
	}
	if n := len(status.History); n > 0 {
		told.changed = status.History[n-1].Time.Time
	}
	if status.Internal.Replacement != nil {
		told.failures = status.Internal.Replacement.Failures
	}
	for _, condition := range status.Conditions {
		is := condition.Status == metav1.ConditionTrue
		told.conditions = append(told.conditions, clusterCondition{condition.Type, condition.Reason, is})
	}
	for _, m := range status.Members {
		switch {
		case m.Role == v1alpha1.Learner:
			told.learners++
		case m.Ready:
			told.voters++
			told.ready++
		default:
			told.voters++
		}
		for _, alarm := range m.Alarms {
			told.alarms[alarm]++
		}
	}
	return told
}

// membersMade is how many members a cluster has had: numbers are never used twice (S9), and the peers' Service has the
// next one.
func membersMade(c *v1alpha1.EtcdCluster, children decision.Desired) int {
	for _, service := range children.Services {
		if service.Name == objects.PeerService(c.Name) {
			next, _ := strconv.Atoi(service.Annotations[objects.AnnotationNextMember])
			return next
		}
	}
	return 0
}

// Describe implements prometheus.Collector.
func (g *clusterGauges) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		clustersMetric, omittedMetric, infoMetric, ruleMetric, conditionMetric, alarmsMetric, expiryMetric,
	} {
		to <- desc
	}
	for _, number := range clusterNumbers {
		to <- number.desc
	}
}

// Collect implements prometheus.Collector.
func (g *clusterGauges) Collect(to chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweep(g.now())
	to <- prometheus.MustNewConstMetric(clustersMetric, prometheus.GaugeValue, float64(len(g.clusters)))
	to <- prometheus.MustNewConstMetric(omittedMetric, prometheus.GaugeValue, float64(len(g.clusters)-g.telling))
	newest := map[[2]string]*clusterTold{} // a cluster and its successor of the same name may both be known for a while
	for _, seen := range g.clusters {
		if seen.told == nil {
			continue
		}
		key := [2]string{seen.told.namespace, seen.told.name}
		if other := newest[key]; other == nil || seen.told.decided.After(other.decided) {
			newest[key] = seen.told
		}
	}
	for _, told := range newest {
		told.collect(to)
	}
}

func (c *clusterTold) collect(to chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{c.namespace, c.name}, labels...)...)
	}
	send(infoMetric, prometheus.GaugeValue, 1, c.version, c.medium)
	send(ruleMetric, prometheus.GaugeValue, 1, c.rule)
	for _, condition := range c.conditions {
		value := 0.0
		if condition.is {
			value = 1
		}
		send(conditionMetric, prometheus.GaugeValue, value, condition.kind, condition.reason)
	}
	for alarm, members := range c.alarms {
		send(alarmsMetric, prometheus.GaugeValue, float64(members), alarm)
	}
	for _, number := range clusterNumbers {
		send(number.desc, number.kind, number.of(c))
	}
	for _, certificate := range c.certificates {
		send(expiryMetric, prometheus.GaugeValue, float64(certificate.NotAfter.Unix()), certificate.Name)
	}
}
