package facts

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Volumes that grow by themselves (spec.storage.autoGrow). How far they have grown is told by the claims, so nothing
// else remembers it: the wanted size is that of the spec, or of the largest claim, and more once the data needs it.
// All that asks for the wanted size finds it in the spec of the facts.

const (
	// GrowAt is how many percent of its quota a database may use before the volumes grow: enough for a volume that
	// takes its time, and for a restart of each member, before writes are refused.
	GrowAt = 80
	gib    = 1 << 30
)

// withGrownStorage is the cluster with the size in its spec that its volumes have grown to, or are to grow to.
func withGrownStorage(o observation.Observation) *v1beta1.EtcdCluster {
	if o.Cluster.Spec.Storage.AutoGrow == nil {
		return o.Cluster
	}
	c := *o.Cluster
	has := defaults.StorageSize(&c.Spec)
	most := c.Spec.Storage.AutoGrow.Max
	for _, claim := range o.Children.Claims {
		asks := requestedBy(claim)
		if asks.Cmp(most) > 0 { // made larger by others
			asks = most
		}
		if asks.Cmp(has) > 0 {
			has = asks
		}
	}
	c.Spec.Storage.Size = has
	used := mostInUse(o)
	for needsMore(&c.Spec, used) {
		more, _ := nextSize(&c.Spec)
		if more.IsZero() {
			break
		}
		c.Spec.Storage.Size = more
	}
	return &c
}

// requestedBy is what a claim for data asks for; zero for one that is for a log.
func requestedBy(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	if strings.HasSuffix(claim.Name, defaults.WALSuffix) {
		return resource.Quantity{}
	}
	return *claim.Spec.Resources.Requests.Storage()
}

// mostInUse is how many bytes the fullest database that was seen in this call uses.
func mostInUse(o observation.Observation) (most int64) {
	for _, h := range o.Health {
		most = max(most, h.DBSizeInUse)
	}
	return most
}

func needsMore(s *v1beta1.EtcdClusterSpec, used int64) bool {
	quota := defaults.QuotaOn(s.Options, defaults.RoomFor(s))
	return used >= quota/100*GrowAt
}

// nextSize is the size after the one of the spec, half as large again in whole GiB; zero, and why, for none.
func nextSize(s *v1beta1.EtcdClusterSpec) (more resource.Quantity, why string) {
	has := defaults.StorageSize(s)
	most := s.Storage.AutoGrow.Max
	next := (has.Value()*3/2 + gib - 1) / gib * gib
	more = *resource.NewQuantity(min(next, most.Value()), resource.BinarySI)
	if more.Cmp(has) <= 0 {
		return resource.Quantity{}, "spec.storage.autoGrow.max is " + most.String()
	}
	w := *s
	w.Storage.Size = more
	was := defaults.QuotaOn(s.Options, defaults.RoomFor(s))
	will := defaults.QuotaOn(w.Options, defaults.RoomFor(&w))
	memory := s.Resources.Limits[corev1.ResourceMemory]
	switch {
	case will <= was:
		return resource.Quantity{}, "etcd's quota is " + Mebibytes(was) + " whatever the volume"
	case !memory.IsZero() && will > memory.Value():
		return resource.Quantity{}, "a quota of " + Mebibytes(will) + " is more than spec.resources.limits.memory " +
			memory.String()
	}
	return more, ""
}

// GrownTo is the size that the volumes have grown to, or are to, beyond the spec's, and the most that they may; false
// for none.
func (f *Facts) GrownTo() (size, most resource.Quantity, grown bool) {
	auto := f.Cluster.Spec.Storage.AutoGrow
	size = defaults.StorageSize(&f.Cluster.Spec)
	if auto == nil || size.Cmp(f.specSize) <= 0 {
		return size, size, false
	}
	return size, auto.Max, true
}

// GrowsNoMore says why volumes that should grow by themselves don't; empty while they need not, or can.
func (f *Facts) GrowsNoMore() string {
	s := &f.Cluster.Spec
	if s.Storage.AutoGrow == nil || !needsMore(s, mostInUse(f.Observation)) {
		return ""
	}
	_, why := nextSize(s)
	return why
}
