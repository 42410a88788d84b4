package safety

import (
	"slices"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/record"
)

// founded: a cluster that has not run is recorded beside nothing of an earlier one of its name, unless the spec says
// which data is meant, and not with a claim that Kubernetes is about to delete; none of its members has the number of a
// claim that is there (S8, S9).
func founded(j *judgement) {
	if j.f.Epoch != nil || j.f.RanBefore() || len(j.d.Children.ConfigMaps) == 0 {
		return
	}
	e := answered(j, j.d.Children.ConfigMaps[0])
	if e == nil {
		return
	}
	b := j.o.Cluster.Spec.Bootstrap
	for _, r := range j.o.Related.Remains {
		member, _ := facts.MemberOfClaim(j.o.Cluster.Name, r.Name)
		_, taken := e.Initial[member]
		j.require(r.Kind != "ConfigMap", "S8", "the cluster is founded beside the record %s of an earlier one", r.Name)
		j.require(b != nil, "S8", "the cluster is founded beside %s of an earlier one, and the spec says of no data",
			r.Name)
		j.require(!taken, "S9", "%s has the number of a claim of an earlier cluster", member)
		named := b != nil && b.Claims != nil && slices.Contains(b.Claims.Names, r.Name)
		j.require(e.Source != record.SourceClaims || !named || !r.Going, "S8",
			"the cluster begins with the claim %s, which Kubernetes deletes", r.Name)
	}
	seen := j.o.Cluster.Status.Internal.EarlierLife
	j.require(b != nil || len(seen) == 0, "S8",
		"the cluster is founded after %v of a backup were deleted, and the spec says of no data", seen)
}
