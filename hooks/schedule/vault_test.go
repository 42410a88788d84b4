package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// vault is a Kubernetes with one schedule in it, as Metacontroller shows and changes it.
type vault struct {
	testing.TB
	o        Observation // what is true, except the time; Now is the clock of Quorate
	true     time.Time   // the clock of the API server
	revision int64
	uids     int
	all      map[string]time.Time // every snapshot that was ever made, by name, and when
	rules    map[string]int
	streamed int // pods that were made
	// judged: decisions are checked. It takes as long as some hundred decisions.
	judged bool
}

func newVault(t testing.TB, spec func(*v1beta1.EtcdSnapshotScheduleSpec), from time.Time) *vault {
	o := everyHour()
	o.Schedule.CreationTimestamp = metav1.NewTime(from)
	spec(&o.Schedule.Spec)
	if o.Schedule.Spec.TimeZone != "" {
		o.Zone = zoneOf(t, o.Schedule.Spec.TimeZone)
	}
	return &vault{TB: t, o: o, true: from, all: map[string]time.Time{}, rules: map[string]int{}, judged: true}
}

// pass lets time go by, on both clocks.
func (w *vault) pass(d time.Duration) {
	w.true = w.true.Add(d)
	w.o.Now = w.true
}

// view is what Metacontroller's caches show now.
func (w *vault) view() Observation {
	o := w.o
	o.Schedule = o.Schedule.DeepCopy()
	// decisions do not change snapshots: decided checks that, and so does the vault below
	o.Snapshots, o.Pods = maps.Clone(o.Snapshots), maps.Clone(o.Pods)
	return o
}

// call asks for a decision about a view, and carries it out on what is true.
func (w *vault) call(o Observation) Decision {
	w.Helper()
	d := Decide(o)
	w.rules[d.Reason.Rule]++
	stays := map[string]bool{}
	for _, s := range d.Snapshots {
		stays[s.Name] = true
	}
	if w.judged {
		w.judge(o, d, stays)
	}
	for name, seen := range o.Snapshots {
		if s := w.o.Snapshots[name]; !stays[name] && s != nil && s.UID == seen.UID {
			delete(w.o.Snapshots, name)
		}
	}
	for _, s := range d.Snapshots {
		if s.UID == "" && w.o.Snapshots[s.Name] == nil { // else AlreadyExists
			s = s.DeepCopy()
			w.uids++
			s.UID, s.CreationTimestamp = types.UID(fmt.Sprint("uid-", w.uids)),
				metav1.NewTime(w.true.Truncate(time.Second))
			w.o.Snapshots[s.Name] = s
			if before, again := w.all[s.Name]; again {
				w.Logf("%s is made at %s, and was at %s", s.Name, w.true, before)
			}
			w.all[s.Name] = w.true
		}
	}
	w.pods(o, d)
	w.o.Schedule.Status = d.Status
	return d
}

// pods carries out what a decision says of the pods of the stream. One that is let go may end at once, or not.
func (w *vault) pods(o Observation, d Decision) {
	stays := map[string]bool{}
	for _, pod := range d.Pods {
		stays[pod.Name] = true
		if pod.UID == "" && w.o.Pods[pod.Name] == nil {
			pod = pod.DeepCopy()
			w.uids++
			pod.UID, pod.CreationTimestamp = types.UID(fmt.Sprint("uid-", w.uids)), metav1.NewTime(w.true)
			w.o.Pods[pod.Name] = pod
			w.streamed++
		}
	}
	for name, seen := range o.Pods {
		if pod := w.o.Pods[name]; !stays[name] && pod != nil && pod.UID == seen.UID {
			if delete(w.o.Pods, name); w.uids%2 == 0 {
				pod = pod.DeepCopy()
				pod.DeletionTimestamp = &metav1.Time{Time: w.true}
				w.o.Pods[name] = pod
			}
		}
	}
}

// happens is something that befalls the pod of the stream.
func (w *vault) happens(what int) {
	for name, pod := range w.o.Pods {
		pod = pod.DeepCopy()
		ended := func(reason string) {
			pod.Status.Conditions = nil
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "stream",
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1,
					Message: `{"segments":0,"bytes":0,"lagSeconds":0,"reason":"` + reason + `","error":"` + reason + `"}`}}}}
		}
		switch w.o.Pods[name] = pod; what {
		case 0:
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		case 1:
			ended("Compacted")
		case 2:
			ended("UsersChanged")
		case 3:
			ended("Unreachable")
		case 4:
			pod.Status.Phase = corev1.PodFailed
		default: // its time is over, and its node tells so or not
			if pod.DeletionTimestamp != nil {
				delete(w.o.Pods, name)
			}
		}
	}
}

// judge checks a decision: by what it saw, and what it lets go by what is true. What it saw and is gone counts as
// well: a person may have deleted it a moment ago, and until then it stood for others.
func (w *vault) judge(o Observation, d Decision, stays map[string]bool) {
	w.Helper()
	if wrong := wrongWith(o, d); wrong != "" {
		w.Fatalf("%s\nat %s, rule %s: %s\nchanges: %s", wrong, o.Now.Format(time.RFC3339), d.Reason.Rule,
			d.Reason.Message, changes(o, d))
	}
	w.judgePods(o, d)
	if len(d.Snapshots) >= len(o.Snapshots) {
		return
	}
	all := w.o
	all.Snapshots = maps.Clone(o.Snapshots)
	maps.Copy(all.Snapshots, w.o.Snapshots)
	must := mustBeKept(all)
	for name := range o.Snapshots {
		if s := w.o.Snapshots[name]; !stays[name] && s != nil && inStore(s) && must[name] != "" &&
			(must[name] != beingRestored || len(o.Snapshots[name].Status.UsedBy) > 0) { // the snapshot waits for that itself
			w.Fatalf("at %s %s is let go: %s\nof %s", w.o.Now.Format(time.RFC3339), name, must[name],
				slices.Sorted(maps.Keys(must)))
		}
	}
}

// judgePods checks that no pod of the stream goes without a reason: nothing changes here that it is made of.
func (w *vault) judgePods(o Observation, d Decision) {
	w.Helper()
	newest, answered := "", map[string]bool{}
	for name, s := range o.Snapshots {
		if inStore(s) && !s.Status.VerificationTime.IsZero() && (newest == "" ||
			cmp.Or(takenFor(s).Compare(takenFor(o.Snapshots[newest])), cmp.Compare(name, newest)) > 0) {
			newest = name
		}
	}
	for _, pod := range d.Pods {
		answered[pod.Name] = true
	}
	for name, pod := range o.Pods {
		base := pod.Annotations[objects.AnnotationBase]
		if !answered[name] && o.Schedule.Spec.Stream != nil && !o.Schedule.Spec.Suspend &&
			pod.Status.Phase != corev1.PodFailed && (newest == "" || newest == base) {
			w.Fatalf("at %s %s is let go, and there is no other base than %s", w.o.Now.Format(time.RFC3339), name, base)
		}
	}
}

// finish lets the snapshots that are under way end so.
func (w *vault) finish(phase v1beta1.SnapshotPhase) {
	for name, s := range w.o.Snapshots {
		if s.Status.Phase != "" && s.Status.Phase != v1beta1.SnapshotRunning {
			continue
		}
		s = s.DeepCopy()
		end := phase
		u := snapshot.UnlessOf(s)
		if phase == v1beta1.SnapshotSucceeded && u != nil && u.Revision == w.revision {
			end = v1beta1.SnapshotSkipped
		}
		finish(s, end, w.revision, w.true)
		w.o.Snapshots[name] = s
	}
}

// mustBeKept are the snapshots that the rules keep, with the reason: the rules of retention one snapshot at a time,
// in other words.
func mustBeKept(o Observation) map[string]string {
	must := map[string]string{}
	r := &o.Schedule.Spec.Retention
	spans := []struct {
		what string
		most *int32
		of   func(time.Time) string
	}{
		{"last", r.Last, func(t time.Time) string { return t.String() }},
		{"hourly", r.Hourly, func(t time.Time) string { return t.Format("2006-01-02 15 MST") }},
		{"daily", r.Daily, func(t time.Time) string { return t.Format(time.DateOnly) }},
		// its Monday
		{"weekly", r.Weekly, func(t time.Time) string {
			return t.AddDate(0, 0, -(int(t.Weekday())+6)%7).Format(time.DateOnly)
		}},
		{"monthly", r.Monthly, func(t time.Time) string { return t.Format("2006-01") }},
		{"yearly", r.Yearly, func(t time.Time) string { return t.Format("2006") }},
	}
	var stored []*v1beta1.EtcdSnapshot
	newestOf := time.Time{}
	for _, s := range o.Snapshots {
		if inStore(s) {
			stored = append(stored, s)
			if takenFor(s).After(newestOf) {
				newestOf = takenFor(s)
			}
		}
	}
	for _, s := range stored {
		if why := mustStay(o, s); why != "" {
			must[s.Name] = why
		}
		if r.MaxAge != nil && newestOf.Sub(takenFor(s)) < r.MaxAge.Duration {
			must[s.Name] = "maxAge"
		}
		for _, span := range spans {
			mine, later, newest := span.of(takenFor(s).In(o.Zone)), map[string]bool{}, true
			for _, other := range stored {
				if theirs := span.of(takenFor(other).In(o.Zone)); cmp.Or(takenFor(other).Compare(takenFor(s)),
					cmp.Compare(other.Name, s.Name)) > 0 {
					later[theirs] = true
					newest = newest && theirs != mine
				}
			}
			if span.most != nil && newest && len(later) < int(*span.most) {
				must[s.Name] = span.what
			}
		}
	}
	return must
}

// exact checks that what is there is what the rules keep, no less and no more.
func (w *vault) exact() {
	w.Helper()
	must := mustBeKept(w.o)
	for name := range w.o.Snapshots {
		if must[name] == "" {
			w.Fatalf("at %s %s is kept, and no rule says so", w.o.Now, name)
		}
	}
}
