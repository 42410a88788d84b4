package facts

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Hash of the member's keys, as it told in this call; nil for none.
func (m *Member) Hash() *observation.Hash {
	if !m.Serving() {
		return nil
	}
	return m.Health.Hash
}

// BelowQuota reports whether so much is below 90 % of the member's quota, of which its pod's flags tell.
func (m *Member) BelowQuota(size int64) bool { return size < defaults.Quota(m.Pod)/10*9 }

const (
	// DefaultFragmentation is how many percent of a database are free when a run defragments it, and defaultReclaim how
	// many bytes at least.
	DefaultFragmentation = int32(50)
	defaultReclaim       = 100 << 20
	// Between two members of a run: the first has caught up by then, and clients have settled.
	pauseSchedule = 30 * time.Second
	// PauseRequest is the pause in a run that does not wait for a schedule.
	PauseRequest = 5 * time.Second
	// FeltFrom is how many bytes in use a database has when clients would feel it: etcd writes them to another file, and
	// the member answers nothing for a second for each 100 MB.
	FeltFrom = 256 << 20
)

// ToDefragment are the members that the run under way is still to take, in their order: first one whose clients have
// been led away for it, the leader last. A run because of the alarm NOSPACE takes others, see rules/alarms.go.
func (f *Facts) ToDefragment() []*Member {
	need := f.wasteful
	switch f.DefragRun.Trigger {
	case v1beta1.TriggerRequest:
		need = func(*Member) bool { return true }
	case v1beta1.TriggerNearQuota:
		need = (*Member).FillsUp
	case v1beta1.TriggerSchedule, v1beta1.TriggerNoSpace: // the latter's alarm is gone
	}
	return f.LeftToDefragment(need)
}

// LeftToDefragment are the voters of ours that need it and have not been taken by the run under way, in their order.
func (f *Facts) LeftToDefragment(need func(*Member) bool) []*Member {
	left := objects.Filter(f.Voters, func(m *Member) bool {
		return m.PodName != "" && !slices.Contains(f.DefragRun.Done, m.PodName) && need(m)
	})
	place := func(m *Member) int {
		if f.clientsLeft(m) {
			return -1 // no leader
		}
		return f.Leads(m)
	}
	slices.SortStableFunc(left, func(a, b *Member) int { return place(a) - place(b) })
	return left
}

// DefragmentPause is how long the run under way waits before its next member; 0 for no longer.
func (f *Facts) DefragmentPause() time.Duration {
	if len(f.DefragRun.Done) == 0 {
		return 0
	}
	pause := PauseRequest
	if f.DefragRun.Trigger == v1beta1.TriggerSchedule {
		pause = pauseSchedule
	}
	return max(0, f.DefragRun.LastMemberTime.Add(pause).Sub(f.Now))
}

// FillsUp reports whether the member's database comes near its quota by space that nothing is in: etcd counts all of
// the file, and its alarm NOSPACE would refuse writes. Where Metacontroller's own API server writes to this etcd, no
// one could be asked to clear that alarm.
func (m *Member) FillsUp() bool {
	return m.PodName != "" && !m.BelowQuota(m.Health.DBSize) && Fragmented(m)
}

// wasteful reports whether the schedule is to defragment the member.
func (f *Facts) wasteful(m *Member) bool {
	d := f.Cluster.Spec.Maintenance.Defragmentation
	if d == nil {
		return false
	}
	percent := DefaultFragmentation
	least := int64(defaultReclaim)
	if d.FragmentationPercent != nil {
		percent = *d.FragmentationPercent
	}
	if d.MinReclaim != nil {
		least = d.MinReclaim.Value()
	}
	return m.FreeBytes()*100 >= int64(percent)*m.Health.DBSize && m.FreeBytes() >= least
}

// A client whose member is defragmented waits until that is over, for its connection stays: neither etcd nor Kubernetes
// can end it. So where that takes long, and others can do without the member, it is restarted first, which moves its
// clients within a tenth of a second, and gets none before it is done. While it defragments, its raft goes on: it
// misses no entry, as one would that did so before it starts (--bootstrap-defrag-threshold-megabytes).

// clientsFeel reports whether they would have to wait for long when the run under way takes the member, and can be led
// to others.
func (f *Facts) clientsFeel(m *Member) bool {
	if !f.UnderWay() || f.DefragRun.Trigger == v1beta1.TriggerNoSpace || f.Etcd == nil || f.DefragmentationWaits() {
		return false
	}
	if f.Suspended() || Serving(f.Voters) < len(f.Voters) {
		return false
	}
	return f.Restartable() && !f.BesideExternal() && !m.Learner && m.Health.DBSizeInUse >= FeltFrom
}

// DefragmentationWaits reports whether something comes before it: an alarm, or another version.
func (f *Facts) DefragmentationWaits() bool {
	hops := f.Hops()
	return len(f.Etcd.Alarms) > 0 || len(hops) > 0 && !f.Refuses(hops) && !f.HopWaits() && !f.SnapshotFirst()
}

// clientsLeaveFirst reports whether the member is restarted before the run under way takes it next.
func (f *Facts) clientsLeaveFirst(m *Member) (string, bool) {
	if !f.clientsFeel(m) || f.clientsLeft(m) || f.DefragmentPause() > 0 {
		return "", false
	}
	return "its clients move to others before it is defragmented", f.nextToDefragment() == m
}

func (f *Facts) nextToDefragment() *Member {
	if left := f.ToDefragment(); len(left) > 0 {
		return left[0]
	}
	return nil
}

// clientsLeft reports whether the member's pod was made in the run under way. A leader has all clients' writes.
func (f *Facts) clientsLeft(m *Member) bool {
	return m.Pod != nil && f.Leads(m) == 0 && m.Pod.Annotations[objects.AnnotationDefragmentation] == f.RunBegan()
}

// RunBegan is when the run under way began, as pods that are made in it have it.
func (f *Facts) RunBegan() string { return f.DefragRun.StartTime.UTC().Format(time.RFC3339) }

// WithoutClients reports whether the member is to have no clients for the sake of the run under way: from its restart
// on. It gets them back once it serves after its turn, and after a while where that does not come.
func (f *Facts) WithoutClients(m *Member) bool {
	return f.clientsFeel(m) && f.clientsLeft(m) && f.nextToDefragment() == m &&
		f.Now.Before(m.Pod.CreationTimestamp.Add(busyFor))
}

// defragmentationRun is the status of the run under way, or of the last, with what this call has learned; nil for none.
func (f *Facts) defragmentationRun() *decision.DefragmentationRun {
	s := &decision.DefragmentationRun{DefragmentationMemory: f.Cluster.Status.Internal.Defragmentation}
	if old := f.Cluster.Status.Defragmentation; old != nil {
		s.DefragmentationStatus = *v1beta1.Copy(old)
	}
	f.noteReclaimed(s)
	f.noteStep(s)
	f.noteReclaimed(s)
	s.NextScheduleTime = f.NextRun(s.NextScheduleTime)
	if reflect.ValueOf(*s).IsZero() {
		return nil
	}
	return s
}

// noteStep notes what the step of this call has done. A member that was asked and does not answer now is at it: it
// counts as done, and so does one that has nothing to reclaim any more. Only what was refused is tried again.
func (f *Facts) noteStep(s *decision.DefragmentationRun) {
	if f.Taken == nil || !underWay(s) {
		return
	}
	switch step := f.Taken.Step.(type) {
	case decision.Compact:
		s.LastMemberTime = f.NowInSeconds() // also when the answer was lost
		if f.Taken.Err == "" {
			s.Compacted = step.Revision
		}
	case decision.Defragment:
		m := f.Find(step.Name)
		refused := f.Taken.Err != "" && m != nil && m.Serving() && Fragmented(m)
		if !refused && !slices.Contains(s.Done, step.Name) {
			s.Done = append(s.Done, step.Name)
			s.LastMemberTime = f.NowInSeconds()
			s.Before = resource.NewQuantity(step.DBSize, resource.BinarySI)
		}
	}
}

// noteReclaimed adds what the last member has given back, when it tells.
func (f *Facts) noteReclaimed(s *decision.DefragmentationRun) {
	if s.Before == nil || len(s.Done) == 0 || f.Etcd == nil {
		return
	}
	m := f.Find(s.Done[len(s.Done)-1])
	if m != nil && !m.Serving() {
		return
	}
	if m != nil {
		freed := max(0, s.Before.Value()-m.Health.DBSize)
		if s.Reclaimed != nil {
			freed += s.Reclaimed.Value()
		}
		s.Reclaimed = resource.NewQuantity(freed, resource.BinarySI)
		s.LastMemberTime = f.NowInSeconds()
	}
	s.Before = nil
}

// WithRun is the view once this has become of the run of defragmentation; nil for nothing.
func (f *Facts) WithRun(run *decision.DefragmentationRun) *Facts {
	if run == nil {
		return f
	}
	w := *f
	w.DefragRun = run
	return &w
}

// NowInSeconds is now, as a status can hold it.
func (f *Facts) NowInSeconds() metav1.Time { return metav1.NewTime(f.Now.Truncate(time.Second)) }

func underWay(s *decision.DefragmentationRun) bool {
	return s != nil && !s.StartTime.IsZero() && s.CompletionTime.IsZero()
}

// UnderWay reports whether a run of defragmentations has begun and not ended.
func (f *Facts) UnderWay() bool { return underWay(f.DefragRun) }

// NextRun is when the schedule begins the next run: a time that it has once named stays until the run has begun, be
// it late.
func (f *Facts) NextRun(named metav1.Time) metav1.Time {
	s, err := defaults.Schedule(f.Cluster)
	if s == nil || err != nil {
		return metav1.Time{}
	}
	next := s.Next(f.Now.UTC())
	if !named.IsZero() && !named.After(next) && s.Next(named.UTC().Add(-time.Second)).Equal(named.Time) {
		return named
	}
	return metav1.NewTime(next)
}

// FreeBytes is how much of the member's database nothing is in.
func (m *Member) FreeBytes() int64 { return m.Health.DBSize - m.Health.DBSizeInUse }

// Fragmented reports whether a defragmentation would give back more than the little that is always free.
func Fragmented(m *Member) bool { return m.FreeBytes() > m.Health.DBSize/10 }
