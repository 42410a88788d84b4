package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/spec"
)

// notAllowed says which of the spec's endpoints the installation does not allow, before anything is joined there; nil
// for none. Beside those that were joined the members run on whatever becomes of the list: what is not allowed any
// more is not asked.
func notAllowed(v *View) error {
	joined := spec.Existing(v.Cluster)
	if joined == nil {
		return nil
	}
	e := v.Epoch
	if e == nil && (v.Cluster.Status.ClusterID != "" || !spec.Joins(v.Cluster)) || e != nil &&
		(!e.Existing() || e.HadQuorum()) {
		return nil
	}
	for i, endpoint := range joined.Endpoints {
		if why := v.Settings.AllowedEndpoints.Refuses(endpoint, v.Cluster.Namespace); why != "" {
			return fmt.Errorf("spec.bootstrap.existing.endpoints[%d] is not asked: %s (quorate install "+
				"--existing-endpoints)", i, why)
		}
	}
	return nil
}

// Existing reports whether the members of the epoch joined a running etcd.
func (e *Epoch) Existing() bool { return e != nil && e.Source == record.SourceExisting }

// noRoom says that volumes are too small to begin with. Members that run on such ones are looked after: see Advice.
func noRoom(v *View) error {
	if v.Epoch != nil || v.Cluster.Status.ClusterID != "" {
		return nil
	}
	return spec.ValidateRoom(&v.Cluster.Spec)
}

// targetReplicas is the number of voters to have: none of ours while they leave.
func targetReplicas(o observation.Observation, current *Epoch) int {
	if leaving(o, current) {
		return 0
	}
	return spec.Replicas(o.Cluster)
}

// Leaving reports whether members of ours must leave the etcd that they have joined, because the EtcdCluster is being
// deleted. It might not have a quorum without them, so they are removed before their pods go. A user who does not want
// to wait for that takes spec.bootstrap.existing out.
func Leaving(o observation.Observation) bool {
	recorded, _ := readRecords(o)
	current, _ := epochs(recorded)
	return leaving(o, current)
}

func leaving(o observation.Observation, e *Epoch) bool {
	c := o.Cluster
	if c.DeletionTimestamp == nil || spec.Protected(c) || spec.Existing(c) == nil || !e.Existing() || len(e.Foreign) == 0 {
		return false
	}
	ours := func(name string) bool { _, is := objects.Ordinal(c.Name, name); return is }
	return slices.ContainsFunc(slices.Collect(maps.Keys(o.Children.Pods)), ours) ||
		slices.ContainsFunc(c.Status.Members, func(m v1alpha1.MemberStatus) bool { return !m.Foreign })
}

// Unsupported says why the cluster can't be run as its spec says: for the spec alone, or for what this installation
// does not let a cluster begin with.
func (v *View) Unsupported() error {
	return cmp.Or(spec.Validate(&v.Cluster.Spec, v.Settings), noRoom(v), notAllowed(v), spec.RefuseIssuer(v.Observation))
}
