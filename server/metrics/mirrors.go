package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// mirrorStates are whether mirrors mirror, with their names among the labels: an alert must say which one stands. One
// that was promoted is not told of; one that was not asked about for 15 minutes is dropped.
type mirrorStates struct {
	mu      sync.Mutex
	mirrors map[types.UID]mirrorState
	now     func() time.Time
}

type mirrorState struct {
	labels  [3]string // namespace, name, cluster
	mirrors float64
	seen    time.Time
}

var mirroring = prometheus.NewDesc("quorate_mirror_mirroring",
	"1 while what was written at the source 30 seconds ago is at the destination of an EtcdMirror, else 0.",
	[]string{"namespace", "mirror", "cluster"}, nil)

// Mirror notes what was decided about an EtcdMirror.
func (m *Metrics) Mirror(o *v1alpha1.EtcdMirror, s *v1alpha1.EtcdMirrorStatus) { m.mirrors.note(o, s) }

// ForgetMirror drops an EtcdMirror that is gone.
func (m *Metrics) ForgetMirror(mirror types.UID) { m.mirrors.forget(mirror) }

func (t *mirrorStates) note(o *v1alpha1.EtcdMirror, s *v1alpha1.EtcdMirrorStatus) {
	if meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Promoted) {
		t.forget(o.UID)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mirrors == nil {
		t.mirrors = map[types.UID]mirrorState{}
	}
	state := mirrorState{labels: [3]string{o.Namespace, o.Name, o.Spec.ClusterRef.Name}, seen: t.now()}
	if meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Mirroring) {
		state.mirrors = 1
	}
	t.mirrors[o.UID] = state
}

func (t *mirrorStates) forget(mirror types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mirrors, mirror)
}

// Describe implements prometheus.Collector.
func (t *mirrorStates) Describe(to chan<- *prometheus.Desc) { to <- mirroring }

// Collect implements prometheus.Collector.
func (t *mirrorStates) Collect(to chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := map[[3]string]bool{} // one and its successor of the same name may both be known for a while
	for uid, s := range t.mirrors {
		if t.now().Sub(s.seen) > forgetAfter {
			delete(t.mirrors, uid)
			continue
		}
		if !told[s.labels] {
			told[s.labels] = true
			to <- prometheus.MustNewConstMetric(mirroring, prometheus.GaugeValue, s.mirrors, s.labels[:]...)
		}
	}
}
