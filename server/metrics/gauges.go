package metrics

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// forgetAfter is how long a parent that is not asked about any more is told of.
	forgetAfter = 15 * time.Minute
	// sweepEvery is how often it is looked for such ones, besides when Prometheus asks.
	sweepEvery = time.Minute
)

// gauges are metrics of what was last decided about each parent of a kind, T, with their names among the labels: an
// alert must say which one it is about. One that was not asked about for 15 minutes is dropped.
type gauges[T any] struct {
	descs []*prometheus.Desc
	// tell sends what there is to tell of all that have gauges, one of each name.
	tell func(g *gauges[T], all []*seen[T], to chan<- prometheus.Metric)
	// most is how many have gauges at most: those that were noted first. 0 is no limit, and negative is none.
	most int
	now  func() time.Time

	mu    sync.Mutex
	all   map[types.UID]*seen[T]
	swept time.Time
}

// seen is what was last decided about a parent.
type seen[T any] struct {
	namespace, name string
	first, last     time.Time
	told            T
}

// note keeps what was decided about a parent.
func (g *gauges[T]) note(o metav1.Object, told T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if now.Sub(g.swept) >= sweepEvery {
		g.sweep(now)
	}
	if g.all == nil {
		g.all = map[types.UID]*seen[T]{}
	}
	s := g.all[o.GetUID()]
	if s == nil {
		s = &seen[T]{namespace: o.GetNamespace(), name: o.GetName(), first: now}
		g.all[o.GetUID()] = s
	}
	s.last = now
	s.told = told
}

// again says that what was decided about a parent holds now.
func (g *gauges[T]) again(parent types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.all[parent]; s != nil {
		s.last = g.now()
	}
}

// forget drops a parent that is gone, or has nothing to tell.
func (g *gauges[T]) forget(parent types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, parent)
}

func (g *gauges[T]) sweep(now time.Time) {
	g.swept = now
	for uid, s := range g.all {
		if now.Sub(s.last) > forgetAfter {
			delete(g.all, uid)
		}
	}
}

// Describe implements prometheus.Collector.
func (g *gauges[T]) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range g.descs {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (g *gauges[T]) Collect(to chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweep(g.now())
	g.tell(g, g.newest(), to)
}

// newest are those that have gauges: a parent and its successor of the same name may both be known for a while, and
// Prometheus takes no series twice.
func (g *gauges[T]) newest() []*seen[T] {
	var all []*seen[T]
	for _, s := range g.all {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *seen[T]) int {
		return cmp.Or(a.first.Compare(b.first), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	all = all[:len(all)-g.omitted()]
	newest := map[[2]string]*seen[T]{}
	for _, s := range all {
		key := [2]string{s.namespace, s.name}
		if other := newest[key]; other == nil || s.last.After(other.last) {
			newest[key] = s
		}
	}
	return slices.DeleteFunc(all, func(s *seen[T]) bool { return newest[[2]string{s.namespace, s.name}] != s })
}

// omitted is how many have no gauges.
func (g *gauges[T]) omitted() int {
	if g.most == 0 {
		return 0
	}
	return max(0, len(g.all)-max(0, g.most))
}

// gauge is one number of it.
func gauge(to chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// one is 1 for what is true.
func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
