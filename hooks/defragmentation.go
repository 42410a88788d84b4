package hooks

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/timetable"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Defragmentation goes in runs: by a schedule, when somebody asks, or to make room (alarms.go). A run takes one
// member at a time, the leader last, and a member at most once. What it has come to is in status.defragmentation and
// nowhere else, and it begins only when that is written: a status that is lost or old repeats a member, or a run, and
// nothing worse.

const (
	// Between two members of a run: the first has caught up by then, and clients have settled.
	pauseSchedule = 30 * time.Second
	pauseRequest  = 5 * time.Second

	defaultFragmentation = 0.5
	defaultReclaim       = 100 << 20
)

// ---- the account

// defragmentationRun is the status of the run under way, or of the last, with what this call has learned; nil for none.
func (v *view) defragmentationRun() *v1alpha1.DefragmentationStatus {
	s := &v1alpha1.DefragmentationStatus{}
	if old := v.Cluster.Status.Defragmentation; old != nil {
		s = old.DeepCopy()
	}
	v.noteReclaimed(s)
	v.noteStep(s)
	v.noteReclaimed(s)
	s.Next = v.nextRun(s.Next)
	if reflect.ValueOf(*s).IsZero() {
		return nil
	}
	return s
}

// noteStep notes what the step of this call has done. A member that was asked and does not answer now is at it: it
// counts as done, and so does one that has nothing to reclaim any more. Only what was refused is tried again.
func (v *view) noteStep(s *v1alpha1.DefragmentationStatus) {
	if v.Taken == nil || !underWay(s) {
		return
	}
	switch step := v.Taken.Step.(type) {
	case Compact:
		s.Last = v.nowInSeconds() // also when the answer was lost
		if v.Taken.Err == "" {
			s.Compacted = step.Revision
		}
	case Defragment:
		m := v.find(step.Name)
		refused := v.Taken.Err != "" && m != nil && m.serving() && fragmented(m)
		if !refused && !slices.Contains(s.Done, step.Name) {
			s.Done, s.Last = append(s.Done, step.Name), v.nowInSeconds()
			s.Before = resource.NewQuantity(step.DBSize, resource.BinarySI)
		}
	}
}

// noteReclaimed adds what the last member has given back, when it tells.
func (v *view) noteReclaimed(s *v1alpha1.DefragmentationStatus) {
	if s.Before == nil || len(s.Done) == 0 || v.Etcd == nil {
		return
	}
	m := v.find(s.Done[len(s.Done)-1])
	if m != nil && !m.serving() {
		return
	}
	if m != nil {
		freed := max(0, s.Before.Value()-m.health.DBSize)
		if s.Reclaimed != nil {
			freed += s.Reclaimed.Value()
		}
		s.Reclaimed, s.Last = resource.NewQuantity(freed, resource.BinarySI), v.nowInSeconds()
	}
	s.Before = nil
}

// nowInSeconds is now, as a status can hold it.
func (v *view) nowInSeconds() metav1.Time { return metav1.NewTime(v.Now.Truncate(time.Second)) }

func underWay(s *v1alpha1.DefragmentationStatus) bool {
	return s != nil && !s.Started.IsZero() && s.Finished.IsZero()
}

func (v *view) underWay() bool { return underWay(v.defragRun) }

// ---- when

var errZone = errors.New("it is in UTC and names no time zone")

// schedule of the spec; nil for none.
func schedule(c *v1alpha1.EtcdCluster) (cron.Schedule, error) {
	d := c.Spec.Maintenance.Defragmentation
	switch {
	case d == nil || d.Schedule == "":
		return nil, nil
	case strings.Contains(d.Schedule, "="):
		return nil, errZone // to look a zone up is to read files
	}
	return timetable.Parse(d.Schedule)
}

// nextRun is when the schedule begins the next run: a time that it has once named stays until the run has begun, be
// it late.
func (v *view) nextRun(named metav1.Time) metav1.Time {
	s, err := schedule(v.Cluster)
	if s == nil || err != nil {
		return metav1.Time{}
	}
	if !named.IsZero() && s.Next(named.UTC().Add(-time.Second)).Equal(named.Time) {
		return named
	}
	return metav1.NewTime(s.Next(v.Now.UTC()))
}

// scheduleAdvice is what is wrong with a schedule; empty for nothing.
func (v *view) scheduleAdvice() string {
	s, err := schedule(v.Cluster)
	switch {
	case err != nil:
		return fmt.Sprintf("spec.maintenance.defragmentation.schedule can't be read, and begins nothing: %s", err)
	case s != nil && s.Next(v.Now.UTC()).IsZero():
		return "spec.maintenance.defragmentation.schedule names a time that never comes"
	}
	return ""
}

// dueRun is what a run is to begin for now; empty for nothing.
func (v *view) dueRun() v1alpha1.DefragmentationTrigger {
	asked := v.Cluster.Annotations[objects.AnnotationDefragment]
	switch {
	case asked != "" && (v.defragRun == nil || v.defragRun.Request != asked):
		return v1alpha1.TriggerRequest
	case v.defragRun != nil && !v.defragRun.Next.IsZero() && !v.Now.Before(v.defragRun.Next.Time):
		return v1alpha1.TriggerSchedule
	}
	return ""
}

// beginRun writes down that a run begins; the next call takes its first member.
func (v *view) beginRun(trigger v1alpha1.DefragmentationTrigger, message string) *verdict {
	run := &v1alpha1.DefragmentationStatus{Trigger: trigger, Started: v.nowInSeconds()}
	if v.defragRun != nil {
		run.Request, run.Next = v.defragRun.Request, v.defragRun.Next
	}
	if trigger == v1alpha1.TriggerRequest {
		run.Request = v.Cluster.Annotations[objects.AnnotationDefragment]
	}
	if trigger == v1alpha1.TriggerSchedule {
		run.Next = v.nextRun(metav1.Time{})
	}
	return &verdict{message: message, defragRun: run, resync: rule.ResyncSoon}
}

// finishRun writes down that the run is over.
func (v *view) finishRun(what string) *verdict {
	run := v.defragRun.DeepCopy()
	run.Finished = v.nowInSeconds()
	reclaimed := "nothing"
	if run.Reclaimed != nil && !run.Reclaimed.IsZero() {
		reclaimed = run.Reclaimed.String()
	}
	return &verdict{message: fmt.Sprintf("%s: %s defragmented, %s reclaimed", what,
		wording.Count(len(run.Done), "member"), reclaimed), defragRun: run, resync: rule.ResyncSoon}
}

// ---- who

func defragment(v *view) *verdict {
	if len(v.Etcd.Alarms) > 0 || len(v.hops()) > 0 && !v.refuses(v.hops()) && !v.hopWaits() {
		return nil // what these ask for comes first
	}
	if !v.underWay() {
		return v.beginDue()
	}
	need := v.wasteful
	if v.defragRun.Trigger == v1alpha1.TriggerRequest {
		need = func(*member) bool { return true }
	}
	if decision := v.defragmentNext(need, "giving free space back to the file system"); decision != nil {
		return decision
	}
	return v.finishRun("defragmentation is done")
}

// beginDue begins the run that is due; nil for none.
func (v *view) beginDue() *verdict {
	due := v.dueRun()
	words := map[v1alpha1.DefragmentationTrigger]string{
		v1alpha1.TriggerRequest:  "defragmenting every member, as the annotation asks",
		v1alpha1.TriggerSchedule: "defragmenting where it is worth it, by the schedule",
	}
	if due == "" || due == v1alpha1.TriggerSchedule && v.windows.closed() {
		return nil
	}
	return v.beginRun(due, words[due])
}

// defragmentNext takes the next member that needs it, after a pause; nil when there is none. All members serve,
// nobody joins and nobody is restarted: the rules before this one see to that.
func (v *view) defragmentNext(need func(*member) bool, why string) *verdict {
	left := filter(v.voters, func(m *member) bool {
		return m.name != "" && !slices.Contains(v.defragRun.Done, m.name) &&
			need(m)
	})
	if len(left) == 0 {
		return nil
	}
	slices.SortStableFunc(left, func(a, b *member) int { return v.leads(a) - v.leads(b) })
	m, pause := left[0], pauseRequest
	if v.defragRun.Trigger == v1alpha1.TriggerSchedule {
		pause = pauseSchedule
	}
	if wait := v.defragRun.Last.Add(pause).Sub(v.Now); len(v.defragRun.Done) > 0 && wait > 0 {
		return &verdict{message: fmt.Sprintf("%s: %s is defragmented next, after a pause", why, m.name),
			resync: min(wait, rule.ResyncLater)}
	}
	return v.change(Defragment{ID: m.ID, Name: m.name, DBSize: m.health.DBSize},
		fmt.Sprintf("%s: defragmenting %s", why, m.name))
}

// wasteful reports whether the schedule is to defragment the member.
func (v *view) wasteful(m *member) bool {
	d := v.Cluster.Spec.Maintenance.Defragmentation
	if d == nil {
		return false
	}
	ratio, least := defaultFragmentation, int64(defaultReclaim)
	if d.FragmentationRatio != nil {
		ratio = *d.FragmentationRatio
	}
	if d.MinReclaim != nil {
		least = d.MinReclaim.Value()
	}
	return float64(m.freeBytes()) >= ratio*float64(m.health.DBSize) && m.freeBytes() >= least
}

// freeBytes is how much of the member's database nothing is in.
func (m *member) freeBytes() int64 { return m.health.DBSize - m.health.DBSizeInUse }

// fragmented reports whether a defragmentation would give back more than the little that is always free.
func fragmented(m *member) bool { return m.freeBytes() > m.health.DBSize/10 }
