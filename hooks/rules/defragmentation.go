package rules

import (
	"fmt"
	"slices"

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

// dueRun is what a run is to begin for now; empty for nothing.
func dueRun(f *facts.Facts) v1beta1.DefragmentationTrigger {
	asked := f.Asked.Defragment
	switch {
	case asked != "" && (f.DefragRun == nil || f.DefragRun.Request != asked):
		return v1beta1.TriggerRequest
	case slices.ContainsFunc(f.Voters, (*facts.Member).FillsUp) &&
		!ranLately(f, v1beta1.TriggerNearQuota, v1beta1.TriggerNoSpace):
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
	if f.DefragmentationWaits() {
		return nil
	}
	if !f.UnderWay() {
		return beginDue(f)
	}
	if plan := defragmentNext(f, f.ToDefragment(), "defragmenting"); plan != nil {
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

// defragmentNext takes the next of these members, after a pause; nil when there is none. All members serve, and none
// joins or is restarted: the rules before this one see to that, and to it that its clients have left.
func defragmentNext(f *facts.Facts, left []*facts.Member, why string) *decision.Plan {
	if len(left) == 0 {
		return nil
	}
	m := left[0]
	if wait := f.DefragmentPause(); wait > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("%s: %s is next, after a pause", why, m.PodName),
			Resync:  decision.ResyncLater,
			Due:     wait,
		}
	}
	return change(f, decision.Defragment{ID: m.ID, Name: m.PodName, DBSize: m.Health.DBSize},
		fmt.Sprintf("%s: %s now", why, m.PodName))
}
