package facts

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// A spare is a learner that stays one while there are as many voters as wanted. It has the data, so that it can vote in
// the moment in which a voter is gone. Until it has caught up, and while it does not serve, it is a learner as any
// other: nothing is taken away beside it. It is in no quorum, and the PodDisruptionBudget counts it only when it is to
// vote.

// Spares is how many learners are to stay: none while members leave, or stand beside an external etcd.
func (f *Facts) Spares() int {
	if f.Replicas == 0 || f.BesideExternal() {
		return 0
	}
	return int(f.Cluster.Spec.Spares)
}

// Short reports whether there are fewer voters than wanted. One whose data is lost counts for none: it is replaced, and
// the learner is its successor.
func (f *Facts) Short() bool {
	there := objects.Filter(f.ReplicaVoters(), func(m *Member) bool { return !f.lost(m) || m.Serving() })
	return len(there) < f.Wanted()
}

// Spare is the learner that has caught up and stays a learner; nil for none.
func (f *Facts) Spare() *Member {
	l := f.Learner()
	if l == nil || l.PodName == "" || f.Spares() == 0 {
		return nil
	}
	if f.Short() || f.lost(l) || !f.CaughtUp(l) {
		return nil
	}
	return l
}

// Joining is the learner that is to vote, or to be a spare and is not yet; nil for none.
func (f *Facts) Joining() *Member {
	if f.Spare() != nil {
		return nil
	}
	return f.Learner()
}

// LacksSpare reports whether all voters are there, and a spare is to join.
func (f *Facts) LacksSpare() bool { return f.Spares() > 0 && !f.Short() && f.Learner() == nil }

// VotersAndSpare are all members but a learner that joins, the spare first.
func (f *Facts) VotersAndSpare() []*Member {
	if s := f.Spare(); s != nil {
		return append([]*Member{s}, f.Voters...)
	}
	return f.Voters
}

// RoleIn is what the status is to say of a learner. A spare that does not serve for a while stays one.
func (f *Facts) RoleIn(l *Member) v1beta1.Role {
	if l == f.Spare() || f.Spares() > 0 && f.wasSpare(l) {
		return v1beta1.Spare
	}
	return v1beta1.Learner
}

func (f *Facts) wasSpare(l *Member) bool {
	s := f.LastStatus(l)
	return s != nil && s.Role == v1beta1.Spare
}

// CatchesUpSince is since when a learner is waited for: since it was added, and one that was a spare since it does not
// serve. Zero for one that is not waited for.
func (f *Facts) CatchesUpSince(l *Member) metav1.Time {
	s := f.LastStatus(l)
	switch {
	case s == nil || l == f.Spare():
		return metav1.Time{}
	case f.wasSpare(l) && s.Ready:
		return metav1.Time{} // it is behind for a while
	case f.wasSpare(l):
		return s.LastTransitionTime
	}
	return s.JoinTime
}

// CaughtUp reports whether the learner itself answered in this call as a learner, with a volume and not about to stop,
// so near to the others that it serves as a voter, and at 90 % of the leader's index or more. (etcd refuses a promotion
// below 90 % of the leader's match index, but asks only the leader: server.go, isLearnerReady.)
func (f *Facts) CaughtUp(l *Member) bool {
	lead := f.Leader()
	hasVolume := f.Memory() || f.StorageUsable(l.PodName)
	if lead == nil || !lead.Serving() || !hasVolume {
		return false
	}
	if !l.Serving() || !l.Health.Learner || l.Restarting() || l.Lags {
		return false
	}
	return l.Health.RaftIndex*10 >= lead.Health.RaftIndex*9
}

// SpareUnfit says why another spare must take this one's place; empty for no reason. Its peer URL is not changed, and
// etcd defragments no learner (isRPCSupportedForLearner in api/v3rpc/interceptor.go): the next one begins with a
// copy of the leader's database.
func (f *Facts) SpareUnfit() string {
	s := f.Spare()
	if s == nil {
		return ""
	}
	if objects.Encrypted(f.Cluster) && f.EveryoneDials() && !ByTLS(s.PeerURLs...) {
		return "its peer URL is plain text"
	}
	lead := f.Leader()
	if !s.BelowQuota(s.Health.DBSize) && lead.BelowQuota(lead.Health.DBSize) {
		return "its database is at 90 % of its quota, and the leader's is not"
	}
	return ""
}
