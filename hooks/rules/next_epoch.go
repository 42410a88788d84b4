package rules

import (
	"maps"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// RecordNextEpoch asks for the record of the next epoch.
func RecordNextEpoch(v *facts.Facts, from record.Origin, message string) *decision.Plan {
	size := v.Replicas
	if from.Source == record.SourceSurvivor && from.Member == "" {
		size = 1 // a volume can be copied by one pod
	}
	first := v.NextOrdinal()
	if v.OnNamedNodes() || untold(v) {
		// a call from before may be about to give the next number away, with another address, and what is left in a
		// directory stays there (S9)
		first++
	}
	n := v.NextEpochNumber()
	r := v.NewRecord(first, size)
	r.Origin = from
	r.Version = v.Planned()
	r.After = v.Epoch.N
	r.FormerFirst = v.Epoch.First
	recordPast(v, &r, n)
	if from.Member != "" {
		r.Chosen(v.Answering())
	}
	if from.SurvivorsOf == v.Epoch.N && from.Member == "" || v.Ending() {
		r.Phase = record.PhaseStopping // what will be copied must not change
	}
	return &decision.Plan{Message: message, NextEpoch: record.New(v.Cluster, n, r), Resync: decision.ResyncSoon}
}

// untold reports whether a member may have been added of which nothing tells: the call was cut off before it noted the
// number, and there is no quorum any more that lists it. One more can't be: each is noted before the next is added.
func untold(v *facts.Facts) bool { return v.Etcd == nil && v.Next == nil && v.Epoch.HadQuorum() }

// recordPast writes on the record of the next epoch, the nth, what must be known of those before.
func recordPast(v *facts.Facts, r *record.Record, n int) {
	before := v.Epoch.Past
	r.Floor = v.HighestRevision()
	if v.Next != nil { // which takes this one's place
		r.Floor = max(r.Floor, v.Next.Epoch.Floor)
		before = v.Next.Epoch.Past
	}
	r.Highest = max(r.Floor, int64(n-1)*facts.RevisionGap)
	if r.Bump == nil {
		r.Highest = facts.Noted(r.Floor + facts.RevisionGap)
	}
	r.Past = maps.Clone(before)
	if v.Epoch.Record != nil {
		now := record.Past{ClusterID: v.Epoch.ClusterID, Voters: before[v.Epoch.N].Voters}
		if v.Etcd != nil {
			now = record.Past{ClusterID: v.Etcd.ClusterID, Voters: numbers(v, v.Voters)}
		}
		if r.Past == nil {
			r.Past = map[int]record.Past{}
		}
		r.Past[v.Epoch.N] = now
	}
	r.Answered = v.AnsweredWith(r.Origin, n)
}

// numbers are those of members; nil when one is not ours.
func numbers(v *facts.Facts, of []*facts.Member) []int {
	var all []int
	for _, m := range of {
		n, ours := objects.Ordinal(v.Cluster.Name, m.PodName)
		if !ours {
			return nil
		}
		all = append(all, n)
	}
	return all
}
