package stream

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// Monitor knows how a stream is, and tells it over HTTP:
//
//	GET /health   200 while what is written is stored within three times Options.FlushAfter, else 503, and why
//	GET /status   a reports.Stream in JSON
//	GET /metrics  the same for Prometheus
type Monitor struct {
	// Writes counts who writes.
	Writes *Writes

	late time.Duration

	mu     sync.Mutex
	report stores.Stream
	lag    Lag
	// users is the revision of users and roles when it was looked last.
	users int64
}

// NewMonitor is one of a stream with this Options.FlushAfter.
func NewMonitor(flushAfter time.Duration) *Monitor {
	return &Monitor{Writes: NewWrites(), late: 3 * flushAfter, lag: NewLag()}
}

func (m *Monitor) begin(clusterID string, reach int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.ClusterID = clusterID
	m.report.StoredRevision = reach
	m.report.SeenRevision = reach
}

// saw tells that revisions up to this one have arrived; latest, that the cluster had no others at this time.
func (m *Monitor) saw(revision int64, at time.Time, latest bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.SeenRevision = max(m.report.SeenRevision, revision)
	if latest {
		m.lag.Saw(revision, at)
	}
	m.lag.Copied(m.report.StoredRevision)
}

func (m *Monitor) stored(revision, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.StoredRevision = max(m.report.StoredRevision, revision)
	m.report.Segments++
	m.report.Bytes += size
	m.lag.Copied(m.report.StoredRevision)
}

// looked tells the revision of users and roles.
func (m *Monitor) looked(users int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users = users
}

// head is what is stored now.
func (m *Monitor) head() Head {
	report := m.Report()
	m.mu.Lock()
	defer m.mu.Unlock()
	return Head{ClusterID: report.ClusterID, Revision: report.StoredRevision, At: report.StoredTime, AuthRevision: m.users}
}

// Report is how the stream is now.
func (m *Monitor) Report() stores.Stream {
	m.mu.Lock()
	defer m.mu.Unlock()
	report := m.report
	report.StoredTime, report.LagSeconds = m.lag.Now()
	return report
}

// ServeHTTP implements [http.Handler].
func (m *Monitor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	report := m.Report()
	unwell := ""
	if lag := time.Duration(report.LagSeconds * float64(time.Second)); lag > m.late {
		unwell = fmt.Sprintf("what was written in the last %s is not stored; revision %d is, and %d has arrived",
			lag.Round(time.Second), report.StoredRevision, report.SeenRevision)
	}
	metric := func(name, kind, help string, value float64) Metric {
		return Metric{Name: "quorate_stream_" + name, Kind: kind, Help: help, Value: value}
	}
	Tell(w, r, unwell, report, []Metric{
		metric("lag_seconds", "gauge", "Since when what is written is not stored.", report.LagSeconds),
		metric("stored_revision", "gauge", "Last revision of etcd that is stored.", float64(report.StoredRevision)),
		metric("seen_revision", "gauge", "Last revision of etcd that has arrived.", float64(report.SeenRevision)),
		metric("segments_total", "counter", "Segments that were stored.", float64(report.Segments)),
		metric("bytes_total", "counter", "Bytes that were stored.", float64(report.Bytes)),
	})
}

// Metric is one of Prometheus, of kind gauge or counter.
type Metric struct {
	Name, Kind, Help string
	Value            float64
}

// Tell answers at /health with 200, or with 503 and why it is unwell; at /status with the report in JSON, and at
// /metrics with the metrics.
func Tell(w http.ResponseWriter, r *http.Request, unwell string, report any, metrics []Metric) {
	if r.Method != http.MethodGet {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case "/health":
		if unwell != "" {
			http.Error(w, unwell, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	case "/status":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(report) // the reader is gone when it fails
	case "/metrics":
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		for _, m := range metrics {
			fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", m.Name, m.Help, m.Name, m.Kind, m.Name, m.Value)
		}
	default:
		http.NotFound(w, r)
	}
}
