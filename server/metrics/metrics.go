// Package metrics is what Prometheus is told of the hook server.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"
)

// Metrics of one server, in a registry of their own. Labels are of small closed sets, except the names of namespaces,
// clusters, schedules and mirrors.
type Metrics struct {
	registry     *prometheus.Registry
	decisions    *prometheus.CounterVec
	steps        *prometheus.CounterVec
	hookDuration *prometheus.HistogramVec
	etcdDuration *prometheus.HistogramVec
	etcdErrors   *prometheus.CounterVec
	violations   prometheus.Counter
	putOff       *prometheus.CounterVec
	repeated     prometheus.Counter
	clusters     *gauges[clusterTold]
	snapshots    *gauges[snapshotTold]
	schedules    *gauges[scheduleTold]
	mirrors      *gauges[mirrorTold]
	// snapshotsEnded are counted when a decision first says so.
	snapshotsEnded *prometheus.CounterVec
}

// New registers the metrics of a server. Version and commit are those of the binary.
func New(version, commit string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_decisions_total", Help: "Decisions that were answered, by the rule that fired.",
		}, []string{"rule"}),
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_steps_total", Help: "Membership steps that were tried, by kind and outcome (done or " +
				"failed).",
		}, []string{"step", "outcome"}),
		hookDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "quorate_hook_duration_seconds",
			Help:    "Time from a hook's request to its answer, by hook and HTTP status code.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"hook", "code"}),
		etcdDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "quorate_etcd_call_duration_seconds", Help: "Time of single calls to etcd, by kind of call.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"call"}),
		etcdErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_etcd_call_errors_total", Help: "Calls to etcd that failed, by kind of call.",
		}, []string{"call"}),
		clusters:  clusterGauges(),
		snapshots: snapshotGauges(),
		schedules: scheduleGauges(),
		mirrors:   mirrorGauges(),
		snapshotsEnded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_snapshots_total", Help: "Snapshots that came to an end, by how: Succeeded, Unverified, Skipped or " +
				"Failed.",
		}, []string{"phase"}),
		violations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_violations_total",
			Help: "Decisions that were withheld because they broke a rule of safety. Any is a bug; only counted with " +
				"verification on.",
		}),
		putOff: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_calls_put_off_total",
			Help: "Calls that were answered with \"ask again\" because their namespace has its part already (slow), " +
				"or because there was no memory for them (memory).",
		}, []string{"namespace", "reason"}),
	}
	m.repeated = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "quorate_answers_repeated_total",
		Help: "Calls about clusters at rest in which nothing had changed, and that were answered as the one before.",
	})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "quorate_build_info", Help: "Always 1; the labels say what runs.",
	}, []string{"version", "commit"})
	build.WithLabelValues(version, commit).Set(1)
	m.registry.MustRegister(m.decisions, m.steps, m.hookDuration, m.etcdDuration, m.etcdErrors, m.clusters,
		m.violations,
		m.putOff, m.repeated, m.snapshots, m.snapshotsEnded, m.schedules, m.mirrors, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// EtcdCall counts one call to etcd. Call is its kind, such as status or member-list.
func (m *Metrics) EtcdCall(call string, took time.Duration, err error) {
	m.etcdDuration.WithLabelValues(call).Observe(took.Seconds())
	if err != nil {
		m.etcdErrors.WithLabelValues(call).Inc()
	}
}

// Hook counts and times one call to a hook, such as snapshots/sync, which was answered with this HTTP status.
func (m *Metrics) Hook(name string, code int, took time.Duration) {
	m.hookDuration.WithLabelValues(name, strconv.Itoa(code)).Observe(took.Seconds())
}

// Decided counts a decision that was answered, by the rule that fired.
func (m *Metrics) Decided(rule string) { m.decisions.WithLabelValues(rule).Inc() }

// Stepped counts a step in etcd that was tried, such as promote.
func (m *Metrics) Stepped(step string, failed bool) {
	outcome := "done"
	if failed {
		outcome = "failed"
	}
	m.steps.WithLabelValues(step, outcome).Inc()
}

// Violated counts a decision that was withheld because it broke a rule of safety.
func (m *Metrics) Violated() { m.violations.Inc() }

// Repeated counts a call about a cluster that was answered as the one before, by the rule that fired then.
func (m *Metrics) Repeated(cluster types.UID, rule string) {
	m.Decided(rule)
	m.repeated.Inc()
	m.clusters.again(cluster)
}

// PutOff counts a call that was answered with "ask again". The reason is slow or memory.
func (m *Metrics) PutOff(namespace, reason string) {
	m.putOff.WithLabelValues(namespace, reason).Inc()
}

// Handler is the page for Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Forget drops a parent of any kind that is gone.
func (m *Metrics) Forget(parent types.UID) {
	m.clusters.forget(parent)
	m.snapshots.forget(parent)
	m.schedules.forget(parent)
	m.mirrors.forget(parent)
}
