package journal

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// observed is an [observation.Observation] as entries have it.
type observed struct {
	Cluster            *v1beta1.EtcdCluster // without its status, and with the times of managedFields alone
	Written            []*metav1.Time       `json:",omitempty"`
	Status             *v1beta1.EtcdClusterStatus
	Children           observation.Children
	Etcd               *observation.Membership
	Health             map[string]observation.Health
	Related            observation.Related
	WithoutLastApplied []string          `json:",omitempty"`
	Unsealed, Fresh    []string          `json:",omitempty"`
	Taken              *decision.Outcome `json:",omitempty"`
	Now                time.Time
	Resync             time.Duration
	Recent             *history `json:",omitempty"`
	Settings           *observation.Settings
	Zones              []string `json:",omitempty"`
}

// history is an object: it is the same from record to entry.
type history struct{ Entries []v1beta1.HistoryEntry }

func observedOf(o observation.Observation) observed {
	cluster := *o.Cluster
	cluster.Status = v1beta1.EtcdClusterStatus{}
	cluster.ManagedFields = nil
	var times []*metav1.Time
	for _, f := range o.Cluster.ManagedFields {
		times = append(times, f.Time)
	}
	var recent *history
	if len(o.Recent) > 0 {
		recent = &history{o.Recent}
	}
	return observed{Cluster: &cluster, Recent: recent, Written: times, Status: &o.Cluster.Status,
		Children: o.Children, Etcd: o.Etcd, Health: o.Health, Related: o.Related,
		WithoutLastApplied: o.WithoutLastApplied, Unsealed: o.Unsealed, Fresh: o.Fresh, Taken: o.Taken, Now: o.Now, Resync: o.Resync, Settings: &o.Settings,
		Zones: slices.Sorted(maps.Keys(o.Zones))}
}

func (r *observed) observation() (observation.Observation, error) {
	r.Cluster.Status = *r.Status
	for _, t := range r.Written {
		r.Cluster.ManagedFields = append(r.Cluster.ManagedFields, metav1.ManagedFieldsEntry{Time: t})
	}
	o := observation.Observation{Cluster: r.Cluster, Children: r.Children, Etcd: r.Etcd, Health: r.Health,
		Related: r.Related, WithoutLastApplied: r.WithoutLastApplied, Unsealed: r.Unsealed, Fresh: r.Fresh,
		Taken: r.Taken, Now: r.Now, Resync: r.Resync, Settings: *r.Settings}
	if r.Recent != nil {
		o.Recent = r.Recent.Entries
	}
	for _, name := range r.Zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			return o, fmt.Errorf("a time zone of a maintenance window: %w", err)
		}
		if o.Zones == nil {
			o.Zones = map[string]*time.Location{}
		}
		o.Zones[name] = zone
	}
	return o, nil
}
