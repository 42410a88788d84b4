package facts

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// What time it is. Quorate's own clock may be wrong, for one call or always, and what it decides by a wrong time may
// not be had back: a volume that must be kept, a member that was given up, a certificate that begins next year. So the
// time of a decision is the API server's. That one writes it wherever it stores something, and is asked for it by
// writing a status. In between, our clock only measures how much time has passed.
//
//	the API server wrote not long ago, by our clock   our clock is right
//	it was asked not long ago, by our clock           the time is what it wrote then, and what has passed since
//	else                                              the time is not known: see decide.go

// clockTrusted is for how long our clock is good after the API server has told the time.
const clockTrusted = 5 * time.Minute

// clockBehind is how far our clock may be behind the API server's.
const clockBehind = time.Minute

// aheadOf reports whether a time is later than now by more than clocks may differ that are right.
func aheadOf(now time.Time, t *metav1.Time) bool { return t.After(now.Add(clockTrusted + clockBehind)) }

// Clock is what is known of the time.
type Clock struct {
	// Now is the time; Sure reports whether it is known. Where it is not, it is the latest that the API server wrote,
	// and no more time than that has passed for sure.
	Now  time.Time
	Sure bool
	// Until is the last moment, by our own clock, at which it is known so without asking; zero for always.
	Until time.Time
	// Ahead is by how much our own clock is; negative when it is behind. 0 while it is right.
	Ahead time.Duration
}

// ReadClock says what is known of the time, by the clock of the observation and by what the API server wrote. Where
// nothing of that is known, our clock has to do.
func ReadClock(o observation.Observation) Clock {
	ours := o.Now
	told := toldBy(o.Cluster)
	asked := o.Cluster.Status.Internal.ClockTime
	latest := latestWrite(o)
	switch since := ours.Sub(asked.Time); {
	case told.IsZero():
		return Clock{Now: ours, Sure: true}
	case !ours.Before(latest.Add(-clockBehind)) && !ours.After(latest.Add(clockTrusted)):
		return Clock{Now: ours, Sure: true, Until: latest.Add(clockTrusted)}
	case !asked.IsZero() && since >= 0 && since <= clockTrusted:
		now := told.Add(since)
		return Clock{Now: now, Sure: true, Until: asked.Add(clockTrusted), Ahead: ours.Sub(now)}
	}
	return Clock{Now: latest, Ahead: wrongBefore(ours, latest, asked.Time)}
}

// wrongBefore is by how much our clock is known to be wrong while the time is not known, and 0 while it may be right.
// It was ahead when it asked, if the API server wrote that, or anything later, long before.
func wrongBefore(ours, latest, asked time.Time) time.Duration {
	switch ahead := asked.Sub(latest); {
	case ours.Before(latest):
		return ours.Sub(latest)
	case ahead > clockTrusted && !ours.Before(asked):
		return ahead
	}
	return 0
}

// toldBy is when the API server last wrote the cluster; zero when that is not seen.
func toldBy(c *v1beta1.EtcdCluster) time.Time {
	var last time.Time
	for _, f := range c.ManagedFields {
		if f.Time != nil {
			last = Later(last, f.Time.Time)
		}
	}
	return last
}

// latestWrite is the latest time at which the API server is known to have written anything of the cluster.
func latestWrite(o observation.Observation) time.Time {
	last := Later(toldBy(o.Cluster), o.Cluster.CreationTimestamp.Time)
	for _, k := range observation.Kinds {
		if !k.LookedAt(&o.Children) {
			continue
		}
		for child := range k.Observed(&o.Children) {
			last = Later(last, child.GetCreationTimestamp().Time)
		}
	}
	return last
}

// WithTimesUntil is the cluster without the times in its status that are still to come, as they are where a clock was
// put back: what is counted from such a time would not end for as long. What began then begins now. Clocks that may be
// right differ by less.
func WithTimesUntil(c *v1beta1.EtcdCluster, now time.Time) *v1beta1.EtcdCluster {
	tooLate := func(t *metav1.Time) bool { return aheadOf(now, t) }
	if !slices.ContainsFunc(timesOf(&c.Status), tooLate) {
		return c
	}
	c = c.DeepCopy()
	for _, t := range timesOf(&c.Status) {
		if tooLate(t) {
			*t = metav1.NewTime(now.Truncate(time.Second))
		}
	}
	return c
}

// timesOf are the times in a status at which something was so.
func timesOf(s *v1beta1.EtcdClusterStatus) []*metav1.Time {
	list := []*metav1.Time{&s.Internal.Defragmentation.LastMemberTime, &s.SnapshotWanted}
	for i := range s.Members {
		m := &s.Members[i]
		list = append(list, &m.JoinTime, &m.LastTransitionTime)
		for _, volume := range []*v1beta1.VolumeStatus{m.Volume, m.WALVolume} {
			if volume != nil {
				list = append(list, &volume.RequestTime)
			}
		}
	}
	for i := range s.Conditions {
		list = append(list, &s.Conditions[i].LastTransitionTime)
	}
	for i := range s.History {
		list = append(list, &s.History[i].Time)
	}
	for i := range s.Internal.Awaited {
		list = append(list, &s.Internal.Awaited[i].RequestTime)
	}
	for i := range s.Internal.Leadership.SlowDisks {
		list = append(list, &s.Internal.Leadership.SlowDisks[i].StartTime)
	}
	if r := s.Internal.Replacement; r != nil {
		list = append(list, &r.CutOffTime)
	}
	if d := s.Defragmentation; d != nil {
		list = append(list, &d.StartTime, &d.CompletionTime)
	}
	return list
}
