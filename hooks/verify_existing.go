package hooks

import (
	"maps"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// What Verify says of clusters that have joined an existing etcd.

// besideForeign reports whether etcd lists members that are none of ours, in an epoch that joined an existing etcd
// and has not seen the last of them.
func (j *judgement) besideForeign() bool {
	e := j.v.epoch
	if e == nil || e.record == nil || e.record.Data["source"] != "Existing" {
		return false
	}
	noted := e.record.Annotations["etcd.quorate.dev/foreign"] != ""
	if j.o.Etcd == nil || j.v.Etcd == nil {
		return noted || e.clusterID == 0
	}
	return (noted || e.clusterID == 0) && slices.ContainsFunc(j.o.Etcd.Members, func(m Member) bool {
		_, ours := objects.MemberAt(j.o.Cluster, m.PeerURLs)
		return !ours
	})
}

// joins: a record is never written for an etcd that lists none of ours, while one of ours has left a pod or a claim.
func (j *judgement) joins(old, now *epoch) {
	if old.hadQuorum() || !now.hadQuorum() {
		return
	}
	traces := slices.Concat(slices.Collect(maps.Keys(j.o.Children.Pods)),
		slices.Collect(maps.Keys(j.o.Children.Claims)))
	left := slices.ContainsFunc(traces, func(name string) bool {
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		return ours
	})
	listed := j.o.Etcd != nil && slices.ContainsFunc(j.o.Etcd.Members, func(m Member) bool {
		_, ours := objects.MemberAt(j.o.Cluster, m.PeerURLs)
		return ours
	})
	j.require(!left || listed, "S8", "cluster %x is recorded, which lists none of ours that have run", now.clusterID)
}

// stepBeside: beside foreign members nothing is changed but who is a member, and nothing at all before it is recorded
// which cluster it is.
func (j *judgement) stepBeside() {
	if !j.besideForeign() {
		return
	}
	j.require(j.v.epoch.clusterID != 0, "S8", "%s before it is recorded which cluster is joined", j.d.Step)
	switch j.d.Step.(type) {
	case AddLearner, Promote, Remove, MoveLeader:
	default:
		j.require(false, "S6", "%s beside members that are not ours", j.d.Step)
	}
}

// suits: nobody joins foreign members of another minor version, or that speak otherwise with their peers.
func (j *judgement) suits(s AddLearner) {
	if !j.besideForeign() {
		return
	}
	for _, m := range j.v.members {
		if m.name != "" {
			continue
		}
		has, err := parseRelease(m.health.Version)
		wanted, err2 := parseRelease(j.v.epoch.version)
		j.require(m.serving() && err == nil && err2 == nil && has.minor == wanted.minor, "S18",
			"%s beside %s, which runs %q", s, m.alias, m.health.Version)
		j.require(strings.HasPrefix(m.PeerURLs[0], "https:") == strings.HasPrefix(s.PeerURL, "https:"), "S4",
			"%s beside %s, which can't speak with it", s, m.alias)
	}
}

// removeBeside: a foreign voter goes only when the spec says so and all that are wanted of ours vote and serve; one
// of ours as always, but that ours alone are held against the wanted number.
func (j *judgement) removeBeside(s Remove, m *member, lost bool) {
	ours := filter(j.v.voters, func(o *member) bool { return o.name != "" })
	if m.name != "" {
		j.require(lost || len(ours) > j.v.replicas, "S6", "%s, which is neither lost, nor above the wanted number, "+
			"nor dead for long enough", s)
		return
	}
	b := j.o.Cluster.Spec.Bootstrap
	j.require(b != nil && b.Existing != nil && b.Existing.RetireForeign, "S6",
		"%s, which is not ours, and nobody has said that it is to go", s)
	j.require(len(ours) >= j.v.replicas && len(ours) > 0 && serving(ours) == len(ours), "S6",
		"%s, which is not ours, before all of ours vote and serve", s)
}

// foreign: the record forgets that there are foreign members only when a list in hand has none.
func (j *judgement) foreign(old, now *epoch) {
	was, is := old.record.Annotations["etcd.quorate.dev/foreign"], now.record.Annotations["etcd.quorate.dev/foreign"]
	j.require(was == "" || is != "" || j.v.Etcd != nil && !j.besideForeign(), "S8",
		"the record forgets foreign members that may be there")
	j.require(is == "" || was != "" || !old.hadQuorum(), "S8", "the record makes foreign members of strangers")
}
