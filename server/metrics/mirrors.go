package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// mirrorTold is whether a mirror mirrors. One that was promoted is not told of.
type mirrorTold struct {
	cluster string
	mirrors bool
}

var mirroring = prometheus.NewDesc("quorate_mirror_mirroring",
	"1 while what was written at the source 30 seconds ago is at the destination of an EtcdMirror, else 0.",
	[]string{"namespace", "mirror", "cluster"}, nil)

func mirrorGauges() *gauges[mirrorTold] {
	return &gauges[mirrorTold]{now: time.Now, descs: []*prometheus.Desc{mirroring},
		tell: func(_ *gauges[mirrorTold], all []*seen[mirrorTold], to chan<- prometheus.Metric) {
			for _, s := range all {
				gauge(to, mirroring, one(s.told.mirrors), s.namespace, s.name, s.told.cluster)
			}
		}}
}

// Mirror notes what was decided about an EtcdMirror.
func (m *Metrics) Mirror(o *v1beta1.EtcdMirror, s *v1beta1.EtcdMirrorStatus) {
	if meta.IsStatusConditionTrue(s.Conditions, v1beta1.Promoted) {
		m.mirrors.forget(o.UID)
		return
	}
	m.mirrors.note(o, mirrorTold{cluster: o.Spec.ClusterRef.Name,
		mirrors: meta.IsStatusConditionTrue(s.Conditions, v1beta1.Mirroring)})
}
