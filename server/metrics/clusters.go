package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// clusterTold is what is told of a cluster, in some 25 series.
//
// Any replica may answer any call, so several may tell of one cluster, and all but one of what was.
// quorate_cluster_decided_timestamp_seconds says which is the newest (docs/reference/metrics.md).
type clusterTold struct {
	version, medium string
	rule            string
	changed         time.Time
	conditions      []clusterCondition
	alarms          map[string]int // how many members have raised it
	wanted, made    int
	voters          int
	ready, learners int
	failures        int32
	epoch           int64
	certificates    []v1beta1.CertificateStatus
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
	of   func(c *seen[clusterTold]) float64
}{
	{clusterMetric("quorate_cluster_decided_timestamp_seconds",
		"When this process last decided about a cluster, in seconds since 1970. With several replicas, the newest "+
			"one counts."),
		prometheus.GaugeValue, func(c *seen[clusterTold]) float64 { return seconds(c.last) }},
	{clusterMetric("quorate_cluster_changed_timestamp_seconds",
		"When the rule that decides about a cluster last was another one, or etcd was changed, in seconds since 1970."),
		prometheus.GaugeValue, func(c *seen[clusterTold]) float64 { return seconds(c.told.changed) }},
	{clusterMetric("quorate_cluster_members_wanted", "Voters that the spec of a cluster asks for; 0 while it is "+
		"paused."),
		prometheus.GaugeValue, func(c *seen[clusterTold]) float64 { return float64(c.told.wanted) }},
	{clusterMetric("quorate_cluster_members_made_total", "Members that a cluster has had, those that it has among "+
		"them."),
		prometheus.CounterValue, func(c *seen[clusterTold]) float64 { return float64(c.told.made) }},
	{clusterMetric("quorate_cluster_voters", "Voters that etcd lists, as far as known."),
		prometheus.GaugeValue, func(c *seen[clusterTold]) float64 { return float64(c.told.voters) }},
	{clusterMetric("quorate_cluster_voters_ready", "Voters that answered and know a leader."),
		prometheus.GaugeValue, func(c *seen[clusterTold]) float64 { return float64(c.told.ready) }},
	{clusterMetric("quorate_cluster_learners", "Learners that etcd lists, as far as known."),
		prometheus.GaugeValue, func(c *seen[clusterTold]) float64 { return float64(c.told.learners) }},
	{clusterMetric("quorate_cluster_learner_failures", "Learners in a row that did not catch up in time."),
		prometheus.GaugeValue, func(c *seen[clusterTold]) float64 { return float64(c.told.failures) }},
	{clusterMetric("quorate_cluster_epoch", "The epoch of a cluster: 1 until it is restored or recovered."),
		prometheus.GaugeValue, func(c *seen[clusterTold]) float64 { return float64(c.told.epoch) }},
}

var (
	clustersMetric = prometheus.NewDesc("quorate_clusters",
		"Clusters that this process answered for in the last 15 minutes.", nil, nil)
	omittedMetric = prometheus.NewDesc("quorate_clusters_omitted",
		"Those of them that have no gauges, because there are more than --cluster-metrics.", nil, nil)

	infoMetric = clusterMetric("quorate_cluster_info",
		"Always 1, with the version of etcd that members are started with and the medium that holds their data.", "version",
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

func clusterGauges() *gauges[clusterTold] {
	g := &gauges[clusterTold]{now: time.Now, most: defaultClusterMetrics, tell: tellOfClusters,
		descs: []*prometheus.Desc{
			clustersMetric, omittedMetric, infoMetric, ruleMetric, conditionMetric, alarmsMetric, expiryMetric,
		}}
	for _, number := range clusterNumbers {
		g.descs = append(g.descs, number.desc)
	}
	return g
}

// LimitClusters sets how many clusters have gauges of their own at most; negative for none.
func (m *Metrics) LimitClusters(most int) { m.clusters.most = most }

// Cluster notes what was decided about a cluster, by which rule, and with which status and children it was answered.
func (m *Metrics) Cluster(
	c *v1beta1.EtcdCluster, rule string, status *v1beta1.EtcdClusterStatus, children decision.Desired,
) {
	told := tell(c, rule, status)
	told.made = membersMade(c, children)
	m.clusters.note(c, told)
}

// tell is what there is to tell of a cluster, by its status.
func tell(c *v1beta1.EtcdCluster, rule string, status *v1beta1.EtcdClusterStatus) clusterTold {
	told := clusterTold{
		version: status.Version, medium: string(c.Spec.Storage.Medium), rule: rule,
		wanted: defaults.Replicas(c), epoch: status.Epoch, certificates: status.TLS.Certificates, alarms: map[string]int{},
	}
	if told.medium == "" {
		told.medium = string(v1beta1.Persistent)
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
		case m.Role != v1beta1.Voter:
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
func membersMade(c *v1beta1.EtcdCluster, children decision.Desired) int {
	for _, service := range children.Services {
		if service.Name == objects.PeerService(c.Name) {
			next, _ := strconv.Atoi(service.Annotations[objects.AnnotationNextMember])
			return next
		}
	}
	return 0
}

func tellOfClusters(g *gauges[clusterTold], all []*seen[clusterTold], to chan<- prometheus.Metric) {
	gauge(to, clustersMetric, float64(len(g.all)))
	gauge(to, omittedMetric, float64(g.omitted()))
	for _, s := range all {
		tellOfCluster(s, to)
	}
}

func tellOfCluster(s *seen[clusterTold], to chan<- prometheus.Metric) {
	c := &s.told
	gauge(to, infoMetric, 1, s.namespace, s.name, c.version, c.medium)
	gauge(to, ruleMetric, 1, s.namespace, s.name, c.rule)
	for _, condition := range c.conditions {
		gauge(to, conditionMetric, one(condition.is), s.namespace, s.name, condition.kind, condition.reason)
	}
	for alarm, members := range c.alarms {
		gauge(to, alarmsMetric, float64(members), s.namespace, s.name, alarm)
	}
	for _, number := range clusterNumbers {
		to <- prometheus.MustNewConstMetric(number.desc, number.kind, number.of(s), s.namespace, s.name)
	}
	for _, certificate := range c.certificates {
		gauge(to, expiryMetric, float64(certificate.NotAfter.Unix()), s.namespace, s.name, certificate.Name)
	}
}
