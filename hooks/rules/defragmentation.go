package rules

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Defragmentation goes in runs: by a schedule, when a user asks, before a database fills its quota, or to make room
// once it has (alarms.go). A run takes one
// member at a time, the leader last, and a member at most once. What it has come to is in status.defragmentation and
// nowhere else, and it begins only when that is written: a status that is lost or old repeats a member, or a run, and
// nothing worse.

const (
	// Between two members of a run: the first has caught up by then, and clients have settled.
	pauseSchedule  = 30 * time.Second
	pauseRequest   = 5 * time.Second
	defaultReclaim = 100 << 20
)

// dueRun is what a run is to begin for now; empty for nothing.
func dueRun(f *facts.Facts) v1beta1.DefragmentationTrigger {
	asked := f.Asked.Defragment
	switch {
	case asked != "" && (f.DefragRun == nil || f.DefragRun.Request != asked):
		return v1beta1.TriggerRequest
	case slices.ContainsFunc(f.Voters, fillsUp) && !ranLately(f, v1beta1.TriggerNearQuota, v1beta1.TriggerNoSpace):
		return v1beta1.TriggerNearQuota
	case f.DefragRun != nil && !f.DefragRun.NextScheduleTime.IsZero() &&
		!f.Now.Before(f.DefragRun.NextScheduleTime.Time):
		return v1beta1.TriggerSchedule
	}
	return ""
}

// beginRun writes down that a run begins; the next call takes its first member.
func beginRun(f *facts.Facts, trigger v1beta1.DefragmentationTrigger, message string) *decision.Plan {
	run := &decision.DefragmentationRun{}
	run.Trigger = trigger
	run.StartTime = f.NowInSeconds()
	if f.DefragRun != nil {
		run.Request = f.DefragRun.Request
		run.NextScheduleTime = f.DefragRun.NextScheduleTime
	}
	if f.UnderWay() && f.DefragRun.Trigger == v1beta1.TriggerRequest {
		run.Request = "" // what was asked for is cut short, and begins again after this one
	}
	if trigger == v1beta1.TriggerRequest {
		run.Request = f.Asked.Defragment
	}
	if trigger == v1beta1.TriggerSchedule {
		run.NextScheduleTime = f.NextRun(metav1.Time{})
	}
	return &decision.Plan{Message: message, Defragmentation: run, Resync: decision.ResyncSoon}
}

// finishRun writes down that the run is over.
func finishRun(f *facts.Facts, what string) *decision.Plan {
	run := *f.DefragRun
	run.CompletionTime = f.NowInSeconds()
	reclaimed := "nothing"
	if run.Reclaimed != nil && !run.Reclaimed.IsZero() {
		reclaimed = run.Reclaimed.String()
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s: %s defragmented, %s reclaimed", what,
			objects.Count(len(run.Done), "member"), reclaimed),
		Defragmentation: &run,
		Resync:          decision.ResyncSoon,
	}
}

func defragment(f *facts.Facts) *decision.Plan {
	if len(f.Etcd.Alarms) > 0 || len(f.Hops()) > 0 && !f.Refuses(f.Hops()) &&
		!f.HopWaits() && !f.SnapshotFirst() {
		return nil // what these ask for comes first
	}
	if !f.UnderWay() {
		return beginDue(f)
	}
	need := func(m *facts.Member) bool { return wasteful(f, m) }
	switch f.DefragRun.Trigger {
	case v1beta1.TriggerRequest:
		need = func(*facts.Member) bool { return true }
	case v1beta1.TriggerNearQuota:
		need = fillsUp
	case v1beta1.TriggerSchedule, v1beta1.TriggerNoSpace: // the latter's alarm is gone
	}
	if plan := defragmentNext(f, need, "defragmenting"); plan != nil {
		return plan
	}
	return finishRun(f, "defragmentation is complete")
}

// beginDue begins the run that is due; nil for none.
func beginDue(f *facts.Facts) *decision.Plan {
	due := dueRun(f)
	words := map[v1beta1.DefragmentationTrigger]string{
		v1beta1.TriggerRequest:   "defragmenting every member on request",
		v1beta1.TriggerNearQuota: "defragmenting members with a database at 90 % of its quota",
		v1beta1.TriggerSchedule:  "defragmenting members with enough free space, on schedule",
	}
	if due == "" || due == v1beta1.TriggerSchedule && f.Windows.Closed() {
		return nil
	}
	return beginRun(f, due, words[due])
}

// defragmentNext takes the next member that needs it, after a pause; nil when there is none. All members serve,
// and none joins or is restarted: the rules before this one see to that.
func defragmentNext(f *facts.Facts, need func(*facts.Member) bool, why string) *decision.Plan {
	left := objects.Filter(f.Voters, func(m *facts.Member) bool {
		return m.PodName != "" && !slices.Contains(f.DefragRun.Done, m.PodName) &&
			need(m)
	})
	if len(left) == 0 {
		return nil
	}
	slices.SortStableFunc(left, func(a, b *facts.Member) int { return f.Leads(a) - f.Leads(b) })
	m := left[0]
	pause := pauseRequest
	if f.DefragRun.Trigger == v1beta1.TriggerSchedule {
		pause = pauseSchedule
	}
	if wait := f.DefragRun.LastMemberTime.Add(pause).Sub(f.Now); len(f.DefragRun.Done) > 0 && wait > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("%s: %s is next, after a pause", why, m.PodName),
			Resync:  decision.ResyncLater,
			Due:     wait,
		}
	}
	return change(f, decision.Defragment{ID: m.ID, Name: m.PodName, DBSize: m.Health.DBSize},
		fmt.Sprintf("%s: %s now", why, m.PodName))
}

// fillsUp reports whether the member's database comes near its quota by space that nothing is in: etcd counts all of
// the file, and its alarm NOSPACE would refuse writes. Where Metacontroller's own API server writes to this etcd, no
// one could be asked to clear that alarm.
func fillsUp(m *facts.Member) bool { return m.PodName != "" && nearQuota(m) && facts.Fragmented(m) }

// wasteful reports whether the schedule is to defragment the member.
func wasteful(f *facts.Facts, m *facts.Member) bool {
	d := f.Cluster.Spec.Maintenance.Defragmentation
	if d == nil {
		return false
	}
	percent := facts.DefaultFragmentation
	least := int64(defaultReclaim)
	if d.FragmentationPercent != nil {
		percent = *d.FragmentationPercent
	}
	if d.MinReclaim != nil {
		least = d.MinReclaim.Value()
	}
	return m.FreeBytes()*100 >= int64(percent)*m.Health.DBSize && m.FreeBytes() >= least
}
