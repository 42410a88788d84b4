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
	// DefaultFragmentation is how many percent of a database are free when a run defragments it.
	DefaultFragmentation = int32(50)
)

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
