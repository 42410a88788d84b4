package rules

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
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
func dueRun(v *facts.Facts) v1alpha1.DefragmentationTrigger {
	asked := v.Asked.Defragment
	switch {
	case asked != "" && (v.DefragRun == nil || v.DefragRun.Request != asked):
		return v1alpha1.TriggerRequest
	case slices.ContainsFunc(v.Voters, fillsUp) && !ranLately(v, v1alpha1.TriggerNearQuota, v1alpha1.TriggerNoSpace):
		return v1alpha1.TriggerNearQuota
	case v.DefragRun != nil && !v.DefragRun.NextScheduleTime.IsZero() &&
		!v.Now.Before(v.DefragRun.NextScheduleTime.Time):
		return v1alpha1.TriggerSchedule
	}
	return ""
}

// beginRun writes down that a run begins; the next call takes its first member.
func beginRun(v *facts.Facts, trigger v1alpha1.DefragmentationTrigger, message string) *decision.Plan {
	run := &decision.DefragmentationRun{}
	run.Trigger, run.StartTime = trigger, v.NowInSeconds()
	if v.DefragRun != nil {
		run.Request, run.NextScheduleTime = v.DefragRun.Request, v.DefragRun.NextScheduleTime
	}
	if v.UnderWay() && v.DefragRun.Trigger == v1alpha1.TriggerRequest {
		run.Request = "" // what was asked for is cut short, and begins again after this one
	}
	if trigger == v1alpha1.TriggerRequest {
		run.Request = v.Asked.Defragment
	}
	if trigger == v1alpha1.TriggerSchedule {
		run.NextScheduleTime = v.NextRun(metav1.Time{})
	}
	return &decision.Plan{Message: message, Defragmentation: run, Resync: decision.ResyncSoon}
}

// finishRun writes down that the run is over.
func finishRun(v *facts.Facts, what string) *decision.Plan {
	run := *v.DefragRun
	run.CompletionTime = v.NowInSeconds()
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

func defragment(v *facts.Facts) *decision.Plan {
	if len(v.Etcd.Alarms) > 0 || len(v.Hops()) > 0 && !v.Refuses(v.Hops()) &&
		!v.HopWaits() {
		return nil // what these ask for comes first
	}
	if !v.UnderWay() {
		return beginDue(v)
	}
	need := func(m *facts.Member) bool { return wasteful(v, m) }
	switch v.DefragRun.Trigger {
	case v1alpha1.TriggerRequest:
		need = func(*facts.Member) bool { return true }
	case v1alpha1.TriggerNearQuota:
		need = fillsUp
	case v1alpha1.TriggerSchedule, v1alpha1.TriggerNoSpace: // the latter's alarm is gone
	}
	if plan := defragmentNext(v, need, "defragmenting"); plan != nil {
		return plan
	}
	return finishRun(v, "defragmentation is complete")
}

// beginDue begins the run that is due; nil for none.
func beginDue(v *facts.Facts) *decision.Plan {
	due := dueRun(v)
	words := map[v1alpha1.DefragmentationTrigger]string{
		v1alpha1.TriggerRequest:   "defragmenting every member on request",
		v1alpha1.TriggerNearQuota: "defragmenting members with a database at 90 % of its quota",
		v1alpha1.TriggerSchedule:  "defragmenting members with enough free space, on schedule",
	}
	if due == "" || due == v1alpha1.TriggerSchedule && v.Windows.Closed() {
		return nil
	}
	return beginRun(v, due, words[due])
}

// defragmentNext takes the next member that needs it, after a pause; nil when there is none. All members serve,
// and none joins or is restarted: the rules before this one see to that.
func defragmentNext(v *facts.Facts, need func(*facts.Member) bool, why string) *decision.Plan {
	left := objects.Filter(v.Voters, func(m *facts.Member) bool {
		return m.PodName != "" && !slices.Contains(v.DefragRun.Done, m.PodName) &&
			need(m)
	})
	if len(left) == 0 {
		return nil
	}
	slices.SortStableFunc(left, func(a, b *facts.Member) int { return v.Leads(a) - v.Leads(b) })
	m, pause := left[0], pauseRequest
	if v.DefragRun.Trigger == v1alpha1.TriggerSchedule {
		pause = pauseSchedule
	}
	if wait := v.DefragRun.LastMemberTime.Add(pause).Sub(v.Now); len(v.DefragRun.Done) > 0 && wait > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("%s: %s is next, after a pause", why, m.PodName),
			Resync:  decision.ResyncLater,
			Due:     wait,
		}
	}
	return change(v, decision.Defragment{ID: m.ID, Name: m.PodName, DBSize: m.Health.DBSize},
		fmt.Sprintf("%s: %s now", why, m.PodName))
}

// fillsUp reports whether the member's database comes near its quota by space that nothing is in: etcd counts all of
// the file, and its alarm NOSPACE would refuse writes. Where Metacontroller's own API server writes to this etcd, no
// one could be asked to clear that alarm.
func fillsUp(m *facts.Member) bool { return m.PodName != "" && nearQuota(m) && facts.Fragmented(m) }

// wasteful reports whether the schedule is to defragment the member.
func wasteful(v *facts.Facts, m *facts.Member) bool {
	d := v.Cluster.Spec.Maintenance.Defragmentation
	if d == nil {
		return false
	}
	percent, least := facts.DefaultFragmentation, int64(defaultReclaim)
	if d.FragmentationPercent != nil {
		percent = *d.FragmentationPercent
	}
	if d.MinReclaim != nil {
		least = d.MinReclaim.Value()
	}
	return m.FreeBytes()*100 >= int64(percent)*m.Health.DBSize && m.FreeBytes() >= least
}
