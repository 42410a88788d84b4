package facts

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Who should lead (spec.leadership). A leader syncs its log before it goes on to the next entries, so all clients wait
// for its disk; a follower's disk holds no one up while others are a quorum with the leader. So a disk is slow only
// beside others: what counts is how long a quorum would take without it.

const (
	// DiskLook is how often the disks are looked at, where that is asked for.
	DiskLook = 5 * time.Second
	// leaderStays is how long there is no other move of the leadership after one, and triedAgain how long after one
	// that failed: each stops writes for a moment. After one that follows soon it is twice as long, up to leaderStaysMost:
	// a disk that is slow every other time is better left alone.
	leaderStays     = 10 * time.Minute
	leaderStaysMost = time.Hour
	triedAgain      = time.Minute
	// slowTimes is how many times as long as others a slow disk takes.
	slowTimes = 4
	// SlowLeast is how long it takes at least. etcd's guide has 99 of 100 syncs below 10 ms.
	SlowLeast = 40 * time.Millisecond
	// FewSyncs are too few to know a disk by, and to call it slow.
	FewSyncs = 10
)

// Rules after whose moves the leadership stays where it is for a while.
const (
	RuleMoveLeader    = "MoveLeader"
	RuleLeaveSlowDisk = "LeaveSlowDisk"
	RulePreferZone    = "PreferZone"
)

// WatchesDisks reports whether the leadership is to leave slow disks.
func (f *Facts) WatchesDisks() bool { return f.Cluster.Spec.Leadership.AvoidSlowDisks }

// Disk is what is known of a member's disk; nil for too little.
func (m *Member) Disk() *observation.Disk {
	d := m.Health.Disk
	if d == nil || d.Syncs < FewSyncs || !m.Serving() {
		return nil
	}
	return d
}

// OthersSync is how long a quorum takes to sync without this voter; the longest time where that is not known, or there
// is none.
func (f *Facts) OthersSync(m *Member) time.Duration {
	var others []time.Duration
	for _, o := range f.Voters {
		if d := o.Disk(); o != m && d != nil {
			others = append(others, d.Mean)
		}
	}
	needed := Quorum(len(f.Voters))
	if len(others) < needed {
		return math.MaxInt64
	}
	slices.Sort(others)
	return others[needed-1]
}

// Slow reports whether the voter's disk is slow: on average, and half of the time or more. A few long pauses are none
// of that.
func (f *Facts) Slow(m *Member) bool {
	d := m.Disk()
	if d == nil || d.Mean < SlowLeast || d.Slow < max(FewSyncs, d.Syncs/2) {
		return false
	}
	return d.Mean/slowTimes >= f.OthersSync(m)
}

// recovered reports whether a disk that was slow is so no more: it is known to be well below the bounds.
func (f *Facts) recovered(m *Member) bool {
	d := m.Disk()
	others := f.OthersSync(m)
	if d == nil || others == math.MaxInt64 {
		return false
	}
	return d.Mean < SlowLeast/2 || d.Mean/(slowTimes/2) < others
}

// SlowDisks are the voters with a slow disk: those that have one now, and for a while those that had. So what is said
// of them seldom changes.
func (f *Facts) SlowDisks() []v1beta1.SlowDisk {
	old := f.Cluster.Status.Internal.Leadership.SlowDisks
	switch {
	case !f.WatchesDisks():
		return nil
	case f.Etcd == nil:
		return old
	}
	var list []v1beta1.SlowDisk
	for _, m := range f.Voters {
		was := objects.Find(old, func(s *v1beta1.SlowDisk) bool { return s.Name == m.PodName })
		switch {
		case m.PodName == "":
		case was != nil && (!f.recovered(m) || f.Now.Sub(was.StartTime.Time) < leaderStays):
			list = append(list, *was)
		case f.Slow(m):
			list = append(list, v1beta1.SlowDisk{Name: m.PodName, StartTime: f.NowInSeconds(),
				Sync: inMillis(m.Health.Disk.Mean), OthersSync: inMillis(f.OthersSync(m))})
		}
	}
	return list
}

func inMillis(d time.Duration) metav1.Duration {
	return metav1.Duration{Duration: max(time.Millisecond, d.Round(time.Millisecond))}
}

// HasSlowDisk reports whether the voter is one of [Facts.SlowDisks].
func (f *Facts) HasSlowDisk(m *Member) bool {
	return slices.ContainsFunc(f.SlowDisks(), func(s v1beta1.SlowDisk) bool { return s.Name == m.PodName })
}

// LeaderMayMove reports whether the leadership may move for spec.leadership: a person has not asked for another one,
// and the last move is long ago.
func (f *Facts) LeaderMayMove() bool { return f.Asked.MoveLeader == nil && f.UntilLeaderMoves() <= 0 }

// UntilLeaderMoves is in how long it may move again. One that is further away was noted by a clock that was ahead.
func (f *Facts) UntilLeaderMoves() time.Duration {
	next := f.Cluster.Status.Internal.Leadership.NextMoveTime
	if next.IsZero() {
		return 0
	}
	if left := next.Sub(f.Now); left <= leaderStaysMost {
		return left
	}
	return 0
}

// LeadershipMemory is what is remembered of it: written when the leadership was moved, or a disk becomes slow.
func (f *Facts) LeadershipMemory() v1beta1.LeadershipMemory {
	s := v1beta1.LeadershipMemory{SlowDisks: f.SlowDisks()}
	if !f.WatchesDisks() && len(f.PreferredZones()) == 0 {
		return s
	}
	old := f.Cluster.Status.Internal.Leadership
	s.NextMoveTime = old.NextMoveTime
	s.Pause = old.Pause
	t := f.Taken
	switch {
	case t == nil || !slices.Contains([]string{RuleMoveLeader, RuleLeaveSlowDisk, RulePreferZone}, t.Rule):
		return s
	case t.Err != "":
		s.NextMoveTime = metav1.NewTime(f.NowInSeconds().Add(triedAgain))
		return s
	}
	s.Pause.Duration = leaderStays
	soon := f.Now.Before(old.NextMoveTime.Add(old.Pause.Duration))
	if soon && t.Rule == RuleLeaveSlowDisk {
		s.Pause.Duration = min(2*old.Pause.Duration, leaderStaysMost)
	}
	s.NextMoveTime = metav1.NewTime(f.NowInSeconds().Add(s.Pause.Duration))
	return s
}

// PreferredZones are those in which the leader should be.
func (f *Facts) PreferredZones() []string { return f.Cluster.Spec.Leadership.PreferredZones }

// Zone is where the member's pod runs; empty where Kubernetes does not say so.
func (m *Member) Zone() string {
	if m.Pod == nil {
		return ""
	}
	return m.Pod.Labels[corev1.LabelTopologyZone]
}

// Preference is the place of the member's zone among the preferred ones; behind all of them for another one.
func (f *Facts) Preference(m *Member) int {
	zones := f.PreferredZones()
	if at := slices.Index(zones, m.Zone()); at >= 0 {
		return at
	}
	return len(zones)
}

// Preferred reports whether the member is in a preferred zone.
func (f *Facts) Preferred(m *Member) bool { return f.Preference(m) < len(f.PreferredZones()) }

// FasterLeader is the voter to which the leadership goes from one with a slow disk: in a zone that is preferred, and of
// those the fastest. Nil for none.
func (f *Facts) FasterLeader(from *Member) *Member {
	fast := objects.Filter(f.Voters, func(m *Member) bool {
		if m.PodName == "" || m == from || !f.Stays(m) {
			return false
		}
		return m.Disk() != nil && m.Health.Disk.Mean <= from.Health.Disk.Mean/slowTimes && !f.HasSlowDisk(m)
	})
	return f.best(fast, func(m *Member) int64 { return int64(m.Health.Disk.Mean) })
}

// PreferredLeader is the voter in a preferred zone that should lead; nil for none that could.
func (f *Facts) PreferredLeader() *Member {
	able := objects.Filter(f.Voters, func(m *Member) bool {
		return m.PodName != "" && f.Preferred(m) && f.Stays(m) && !f.HasSlowDisk(m)
	})
	return f.best(able, func(m *Member) int64 { return -int64(m.Health.RaftIndex) })
}

// best is the first by preference, and then by this.
func (f *Facts) best(list []*Member, by func(*Member) int64) *Member {
	if len(list) == 0 {
		return nil
	}
	return slices.MinFunc(list, func(a, b *Member) int {
		return cmp.Or(cmp.Compare(f.Preference(a), f.Preference(b)), cmp.Compare(by(a), by(b)))
	})
}

// LeadershipAdvice says which voters have a slow disk, and why no zone is preferred although one should be.
func (f *Facts) LeadershipAdvice() (all []string) {
	for _, s := range f.SlowDisks() {
		all = append(all, fmt.Sprintf("the disk of %s was found slow at %s: to sync etcd's log took it %s on average, and "+
			"the others %s; look at its volume and its node", s.Name, s.StartTime.UTC().Format(time.RFC3339),
			s.Sync.Duration, s.OthersSync.Duration))
	}
	if len(f.PreferredZones()) == 0 || f.Etcd == nil || slices.ContainsFunc(f.Voters, f.Preferred) {
		return all
	}
	if slices.ContainsFunc(f.Voters, func(m *Member) bool { return m.Zone() != "" }) {
		return append(all, "no voter is in one of spec.leadership.preferredZones")
	}
	return append(all, "spec.leadership.preferredZones has no effect: no pod has the label "+corev1.LabelTopologyZone+
		", which Kubernetes copies from the node from 1.35 on")
}
