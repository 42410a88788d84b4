package safety

import (
	"maps"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

// What Verify says of clusters that have joined an external etcd.

// besideExternal reports whether etcd lists members that are none of ours, in an epoch that joined an external etcd
// and has not seen the last of them.
func besideExternal(j *judgement) bool {
	e := j.f.Epoch
	if e == nil || e.Source != record.SourceExternal {
		return false
	}
	noted := len(e.External) > 0
	if j.o.Etcd == nil || j.f.Etcd == nil {
		return noted || e.ClusterID == 0
	}
	return (noted || e.ClusterID == 0) && slices.ContainsFunc(j.o.Etcd.Members, func(m observation.Member) bool {
		_, ours := objects.MemberAt(j.o.Cluster, m.PeerURLs)
		return !ours
	})
}

// joins: a record is never written for an etcd that lists none of ours, while one of ours has left a pod or a claim.
func joins(j *judgement, old, now *facts.Epoch) {
	if old.HadQuorum() || !now.HadQuorum() {
		return
	}
	traces := slices.Concat(slices.Collect(maps.Keys(j.o.Children.Pods)),
		slices.Collect(maps.Keys(j.o.Children.Claims)))
	left := slices.ContainsFunc(traces, func(name string) bool {
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		return ours
	})
	listed := j.o.Etcd != nil && slices.ContainsFunc(j.o.Etcd.Members, func(m observation.Member) bool {
		_, ours := objects.MemberAt(j.o.Cluster, m.PeerURLs)
		return ours
	})
	j.require(!left || listed, "S8", "cluster %x is recorded, which lists none of ours that have run", now.ClusterID)
}

// stepBeside: beside external members nothing is changed but who is a member, and nothing at all before it is recorded
// which cluster it is.
func stepBeside(j *judgement) {
	if !besideExternal(j) {
		return
	}
	j.require(j.f.Epoch.ClusterID != 0, "S8", "%s before it is recorded which cluster is joined", j.d.Step)
	switch j.d.Step.(type) {
	case decision.AddLearner, decision.Promote, decision.Remove, decision.MoveLeader:
	default:
		j.require(false, "S6", "%s beside members that are not ours", j.d.Step)
	}
}

// suits: no member joins external ones that run another minor version or speak otherwise with their peers.
func suits(j *judgement, s decision.AddLearner) {
	if !besideExternal(j) {
		return
	}
	for _, m := range j.f.Members {
		if m.PodName != "" {
			continue
		}
		has, err := defaults.ParseRelease(m.Health.Version)
		wanted, err2 := defaults.ParseRelease(j.f.Epoch.Version)
		j.require(m.Serving() && err == nil && err2 == nil && has.Minor() == wanted.Minor(), "S18",
			"%s beside %s, which runs %q", s, m.Alias, m.Health.Version)
		j.require(strings.HasPrefix(m.PeerURLs[0], "https:") == strings.HasPrefix(s.PeerURL, "https:"), "S4",
			"%s beside %s, which can't speak with it", s, m.Alias)
	}
}

// removeBeside: an external voter goes only when the spec says so and all that are wanted of ours vote and serve; one
// of ours as always, but that ours alone are held against the wanted number.
func removeBeside(j *judgement, s decision.Remove, m *facts.Member, lost bool) {
	ours := objects.Filter(j.f.Voters, func(o *facts.Member) bool { return o.PodName != "" })
	if m.PodName != "" {
		j.require(lost || len(ours) > j.f.Replicas, "S6", "%s, which is neither lost, nor above the wanted number, "+
			"nor dead for long enough", s)
		return
	}
	b := j.o.Cluster.Spec.Bootstrap
	j.require(b != nil && b.External != nil && j.o.Cluster.Spec.RemoveExternalMembers, "S6",
		"%s, which is not ours, and its removal was not asked for", s)
	j.require(len(ours) >= j.f.Replicas && len(ours) > 0 && facts.Serving(ours) == len(ours), "S6",
		"%s, which is not ours, before all of ours vote and serve", s)
}

// checkExternal: the record forgets that there are external members only when a list in hand has none.
func checkExternal(j *judgement, old, now *facts.Epoch) {
	had := len(old.External) > 0
	has := len(now.External) > 0
	j.require(!had || has || j.f.Etcd != nil && !besideExternal(j), "S8",
		"the record forgets external members that may be there")
	j.require(!has || had || !old.HadQuorum(), "S8", "the record makes external members of unmanaged members")
}
