package safety

import (
	"slices"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// A spare is a learner that is not about to vote. Members come and go beside it as they would without it, as long as it
// serves: then it votes whenever it is needed.

// sparesWanted is how many learners are to stay.
func sparesWanted(j *judgement) int {
	if besideExternal(j) || j.f.Replicas == 0 {
		return 0
	}
	return int(j.o.Cluster.Spec.Spares)
}

// joining is the learner that is on its way to be a voter or a spare; nil for none.
func joining(j *judgement) *facts.Member {
	l := j.f.Learner()
	lead := leads(j)
	switch {
	case l == nil || sparesWanted(j) == 0 || l.PodName == "":
	case votersLeft(j) < j.f.Replicas, !l.Serving(), l.Pod == nil || l.Pod.DeletionTimestamp != nil:
	case l.Health.RaftIndex*10 >= lead.RaftIndex*9 && l.Health.RaftIndex+facts.MostBehind >= lead.RaftIndex:
		return nil
	}
	return l
}

// votersLeft are those that there are without the ones whose data is lost.
func votersLeft(j *judgement) int {
	return len(objects.Filter(j.f.Voters, func(m *facts.Member) bool {
		_, lost := j.f.DataLost(m)
		return !lost || m.Serving()
	}))
}

// spareMayVote reports whether there are fewer voters than wanted, or another must succeed one of them.
func spareMayVote(j *judgement) bool {
	leaves := slices.ContainsFunc(j.f.Voters, func(m *facts.Member) bool {
		succeeded := unlike(j, m) && (!j.f.Restartable() || volumeUnlike(j, m))
		return succeeded || claimBeingDeleted(j, m.PodName)
	})
	left := votersLeft(j)
	return left < j.f.Replicas || left == j.f.Replicas && leaves
}

// unlikeVoters reports whether a spare can't be made as the voters are: it speaks in plain text, or its database is full
// and the leader's is not.
func unlikeVoters(j *judgement, m *facts.Member) bool {
	plain := objects.Encrypted(j.o.Cluster) && j.f.EveryoneDials() && !facts.ByTLS(m.PeerURLs...)
	lead := j.f.Leader()
	full := lead != nil && !m.BelowQuota(m.Health.DBSize) && lead.BelowQuota(lead.Health.DBSize)
	return plain || full
}
