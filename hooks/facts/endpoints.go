package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

// notAllowed says which of the spec's endpoints the installation does not allow, before anything is joined there; nil
// for none. Beside those that were joined the members run on whatever becomes of the list: what is not allowed any
// more is not asked.
func (f *Facts) notAllowed() error {
	joined := defaults.External(f.Cluster)
	if joined == nil {
		return nil
	}
	e := f.Epoch
	joins := f.Cluster.Status.ClusterID == "" && defaults.Joins(f.Cluster)
	if e != nil {
		joins = e.Joined() && !e.HadQuorum()
	}
	if !joins {
		return nil
	}
	for i, endpoint := range joined.Endpoints {
		if why := f.Settings.AllowedEndpoints.Refuses(endpoint, f.Cluster.Namespace); why != "" {
			return fmt.Errorf("spec.bootstrap.external.endpoints[%d] is not asked: %s (quorate install "+
				"--allowed-etcd-endpoints)", i, why)
		}
	}
	return nil
}

// Joined reports whether the members of the epoch joined a running etcd.
func (e *Epoch) Joined() bool { return e != nil && e.Source == record.SourceExternal }

// noRoom says that volumes are too small to begin with. Members that run on such ones are looked after: see Advice.
func (f *Facts) noRoom() error {
	if f.Epoch != nil || f.Cluster.Status.ClusterID != "" {
		return nil
	}
	return defaults.ValidateRoom(&f.Cluster.Spec)
}

// targetReplicas is the number of voters to have: none of ours while they leave.
func targetReplicas(o observation.Observation, current *Epoch) int {
	if leaving(o, current) {
		return 0
	}
	return defaults.Replicas(o.Cluster)
}

// Leaving reports whether members of ours must leave the etcd that they have joined, because the EtcdCluster is being
// deleted. It might not have a quorum without them, so they are removed before their pods go. A user who does not want
// to wait for that takes spec.bootstrap.external out.
func Leaving(o observation.Observation) bool {
	recorded, _ := readRecords(o)
	current, _ := epochs(recorded)
	return leaving(o, current)
}

func leaving(o observation.Observation, e *Epoch) bool {
	c := o.Cluster
	if c.DeletionTimestamp == nil || defaults.Protected(c) || defaults.External(c) == nil {
		return false
	}
	if !e.Joined() || len(e.External) == 0 {
		return false
	}
	ours := func(name string) bool { _, is := objects.Ordinal(c.Name, name); return is }
	return slices.ContainsFunc(slices.Collect(maps.Keys(o.Children.Pods)), ours) ||
		slices.ContainsFunc(c.Status.Members, func(m v1beta1.MemberStatus) bool { return !m.External })
}

// Unsupported says why the cluster can't be run as its spec says: for the spec alone, or for what this installation
// does not let a cluster begin with.
func (f *Facts) Unsupported() error {
	return cmp.Or(defaults.Validate(&f.Cluster.Spec, f.Settings), f.noRoom(), f.notAllowed(), defaults.RefuseIssuer(f.Observation))
}
