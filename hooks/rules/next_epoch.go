package rules

import (
	"maps"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// RecordNextEpoch asks for the record of the next epoch.
func RecordNextEpoch(f *facts.Facts, from record.Origin, message string) *decision.Plan {
	size := f.Replicas
	if from.Source == record.SourceSurvivor && from.Member == "" {
		size = 1 // a volume can be copied by one pod
	}
	first := f.NextOrdinal()
	if f.OnNamedNodes() || untold(f) {
		// a call from before may be about to give the next number away, with another address, and what is left in a
		// directory stays there (S9)
		first++
	}
	n := f.NextEpochNumber()
	r := f.NewRecord(first, size)
	r.Origin = from
	r.Version = f.Planned()
	r.After = f.Epoch.N
	r.FormerFirst = f.Epoch.First
	recordPast(f, &r, n)
	if from.Member != "" {
		r.Chosen(f.Answering())
	}
	if from.SurvivorsOf == f.Epoch.N && from.Member == "" || f.Ending() {
		r.Phase = record.PhaseStopping // what will be copied must not change
	}
	return &decision.Plan{Message: message, NextEpoch: record.New(f.Cluster, n, r), Resync: decision.ResyncSoon}
}

// untold reports whether a member may have been added of which nothing tells: the call was cut off before it noted the
// number, and there is no quorum any more that lists it. One more can't be: each is noted before the next is added.
func untold(f *facts.Facts) bool { return f.Etcd == nil && f.Next == nil && f.Epoch.HadQuorum() }

// recordPast writes on the record of the next epoch, the nth, what must be known of those before.
func recordPast(f *facts.Facts, r *record.Record, n int) {
	before := f.Epoch.Past
	r.Floor = f.HighestRevision()
	if f.Next != nil { // which takes this one's place
		r.Floor = max(r.Floor, f.Next.Epoch.Floor)
		before = f.Next.Epoch.Past
	}
	r.Highest = facts.Noted(r.Floor + facts.RevisionGap)
	r.Past = maps.Clone(before)
	if f.Epoch.Record != nil {
		now := record.Past{ClusterID: f.Epoch.ClusterID, Voters: before[f.Epoch.N].Voters}
		if f.Etcd != nil {
			now = record.Past{ClusterID: f.Etcd.ClusterID, Voters: numbers(f, f.Voters)}
		}
		if r.Past == nil {
			r.Past = map[int]record.Past{}
		}
		r.Past[f.Epoch.N] = now
	}
	r.Answered = f.AnsweredWith(r.Origin, n)
}

// numbers are those of members; nil when one is not ours.
func numbers(f *facts.Facts, of []*facts.Member) []int {
	var all []int
	for _, m := range of {
		n, ours := objects.Ordinal(f.Cluster.Name, m.PodName)
		if !ours {
			return nil
		}
		all = append(all, n)
	}
	return all
}
