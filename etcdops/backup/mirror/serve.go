package mirror

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// late is how long what was written may be missing at the destination before the mirror is not healthy.
const late = 30 * time.Second

// Monitor knows how a mirror is, and tells it over HTTP:
//
//	GET /health   200 while the destination has what was written 30 seconds ago, else 503, and why
//	GET /status   a reports.Mirror in JSON
//	GET /metrics  the same for Prometheus
type Monitor struct {
	mu     sync.Mutex
	report stores.Mirror
	lag    stream.Lag
}

// NewMonitor is one of a mirror that begins now.
func NewMonitor() *Monitor { return &Monitor{lag: stream.NewLag()} }

// does tells what is being done, and which revision the destination has.
func (m *Monitor) does(doing, clusterID string, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.Doing = doing
	m.report.SourceClusterID = clusterID
	m.report.Revision = revision
	m.report.SeenRevision = max(m.report.SeenRevision, revision)
}

// ended tells that the mirror was ended, at a revision.
func (m *Monitor) ended(clusterID string, revision int64) {
	m.does("", clusterID, revision)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.Ended = true
}

// saw tells that revisions up to this one have arrived; latest, that the member has no others.
func (m *Monitor) saw(revision int64, at time.Time, latest bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.SeenRevision = max(m.report.SeenRevision, revision)
	if latest {
		m.lag.Saw(revision, at)
	}
	m.lag.Copied(m.report.Revision)
}

// wrote tells that the destination has a revision.
func (m *Monitor) wrote(revision int64, operations int, transaction bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.Doing = ""
	m.report.Revision = max(m.report.Revision, revision)
	m.report.Operations += int64(operations)
	if transaction {
		m.report.Transactions++
	}
	m.lag.Copied(m.report.Revision)
}

// Report is how the mirror is now.
func (m *Monitor) Report() stores.Mirror {
	m.mu.Lock()
	defer m.mu.Unlock()
	report := m.report
	report.WrittenTime, report.LagSeconds = m.lag.Now()
	return report
}

// ServeHTTP implements [http.Handler].
func (m *Monitor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	report := m.Report()
	unwell := ""
	whole := 1.0
	if report.Doing != "" || report.SourceClusterID == "" {
		whole = 0
	}
	lag := time.Duration(report.LagSeconds * float64(time.Second))
	switch {
	case whole == 0:
		unwell = fmt.Sprintf("the destination is not whole yet; it had revision %d", report.Revision)
	case lag > late || report.WrittenTime.IsZero():
		unwell = fmt.Sprintf("what was written in the last %s is not at the destination; revision %d is, and %d has "+
			"arrived", lag.Round(time.Second), report.Revision, report.SeenRevision)
	}
	stream.Tell(w, r, unwell, report, []stream.Metric{
		metric("lag_seconds", "gauge", "Since when what is written is not at the destination.", report.LagSeconds),
		metric("whole", "gauge", "1 while the destination has all keys of one revision.", whole),
		metric("revision", "gauge", "Revision of the source that the destination has.", float64(report.Revision)),
		metric("seen_revision", "gauge", "Last revision of the source that has arrived.", float64(report.SeenRevision)),
		metric("transactions_total", "counter", "Transactions that were written.", float64(report.Transactions)),
		metric("operations_total", "counter", "Keys that were put or deleted.", float64(report.Operations)),
	})
}

func metric(name, kind, help string, value float64) stream.Metric {
	return stream.Metric{Name: "quorate_mirror_" + name, Kind: kind, Help: help, Value: value}
}
