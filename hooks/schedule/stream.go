package schedule

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// A schedule with spec.stream has one pod that stores what changes after a base: the newest verified snapshot of the
// etcd that the cluster is now. The pod stays as it is while newer snapshots are taken; it goes on where what is stored
// ends. It is made again when what it is made of has changed, when it failed, when its node is lost, and after another
// base.
//
// Where what follows the base can't be stored any more, another base is taken at once: after a compaction that was
// faster than the stream, after users or roles have changed, which no change of a key tells, and for another etcd. That
// is decided from the pod's last words and the base that it was made for, so a call that is repeated, or sees an old
// status, decides the same.

const (
	// basePause is from a run of the timetable, or a snapshot of another etcd, to a base that is taken at once,
	// baseAgain from one such base to the next, and baseRetry after a snapshot that came to nothing.
	basePause, baseAgain, baseRetry = time.Minute, 5 * time.Minute, 30 * time.Minute
	// podLost is how long a pod may take to end after its time, before its node is taken to be lost.
	podLost = 5 * time.Minute
)

// noBase is why nothing that the stream stores can be restored.
const noBase = "no snapshot of this etcd is verified yet"

// streams reports whether changes are stored.
func (a *agenda) streams() bool { return a.Schedule.Spec.Stream != nil && !a.Schedule.Spec.Suspend }

// findBase sets the base of the stream, and its pod.
func (a *agenda) findBase() {
	spec := &a.Schedule.Spec.Template.Spec
	cluster := a.Clusters[spec.ClusterRef.Name]
	a.base = newestOf(a.all, func(s *taken) bool {
		if !s.verified() || s.Status.Revision <= 0 || s.Status.ClusterID == "" {
			return false
		}
		ofCluster := cluster != nil && cluster.Status.ClusterID == s.Status.ClusterID
		return s.Spec.SourceName() == spec.SourceName() && (spec.External != nil || ofCluster)
	})
	for _, name := range slices.Sorted(maps.Keys(a.Pods)) {
		if pod := a.Pods[name]; pod.DeletionTimestamp == nil {
			a.pod = pod
		}
	}
}

// wanted is the pod of the stream as it should be now, or why there is none.
func (a *agenda) wanted() (*corev1.Pod, string) {
	if a.base == nil {
		return nil, noBase
	}
	of := a.base.DeepCopy()
	number := 1
	of.Spec.Job = a.Schedule.Spec.Template.Spec.Job
	for name, pod := range a.Pods {
		if ends := pod.DeletionTimestamp; ends != nil && a.Now.Sub(ends.Time) > podLost {
			number = max(number, snapshot.StreamPodNumber(a.Schedule, name)+1)
		}
	}
	return snapshot.StreamPod(snapshot.Observation{Snapshot: of, Clusters: a.Clusters, Now: a.Now, Images: a.Images,
		AllowedEndpoints: a.AllowedEndpoints, Labelled: a.Labelled}, snapshot.Streams{Schedule: a.Schedule, Number: number,
		Signed: a.Keyed})
}

// pods are those of the answer.
func (a *agenda) pods() []*corev1.Pod {
	var all []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(a.Pods)) {
		if pod := a.Pods[name]; pod != a.pod || a.stays(pod) {
			all = append(all, pod) // one that is being deleted, too
		}
	}
	if a.pod != nil || !a.streams() || a.timetable == nil {
		return all
	}
	if pod, _ := a.wanted(); pod != nil && a.Pods[pod.Name] == nil {
		all = append(all, pod)
	}
	return all
}

// secrets are those of the answer: with spec.stream, that of its keys. One that is there stays, as mirrors may name it.
func (a *agenda) secrets() []*Secret {
	name := objects.StreamSecret(a.Schedule.Name)
	kept := a.Secrets[name]
	if kept == nil && (a.Schedule.Spec.Stream == nil || !a.Keyed) {
		return nil
	}
	s := &Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.Schedule.Namespace,
		Labels: map[string]string{objects.LabelSchedule: a.Schedule.Name}}}
	if kept != nil {
		s.Sum = kept.Sum
	}
	return []*Secret{s}
}

// stays reports whether the pod of the stream goes on. While it is not known what it should be, it does.
func (a *agenda) stays(pod *corev1.Pod) bool {
	if a.Schedule.Spec.Stream == nil || a.Schedule.Spec.Suspend {
		return false
	}
	if a.timetable == nil {
		return true
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	want, _ := a.wanted()
	return want == nil || pod.Annotations[objects.AnnotationTemplate] == want.Annotations[objects.AnnotationTemplate] &&
		(a.needs() == "" || pod.Annotations[objects.AnnotationBase] == a.base.Name)
}

// needs is why the pod of the stream needs another base than the one that it began after; empty when it does not.
func (a *agenda) needs() string {
	if a.pod == nil {
		return ""
	}
	end := snapshot.StreamEnd(a.pod)
	if end == nil || !end.NeedsSnapshot() && end.Reason != stores.StreamOtherCluster {
		return ""
	}
	return end.Reason
}

// lacksBase is why a snapshot is wanted at once, as a base; empty when none is.
func (a *agenda) lacksBase() string {
	if !a.streams() || !a.reachable() {
		return ""
	}
	if a.base == nil {
		return noBase
	}
	if why := a.needs(); why != "" && a.pod.Annotations[objects.AnnotationBase] == a.base.Name {
		return fmt.Sprintf("the stream after %s ended (%s)", a.base.Name, why)
	}
	return ""
}

// reachable reports whether a snapshot would begin now.
func (a *agenda) reachable() bool {
	spec := &a.Schedule.Spec.Template.Spec
	if spec.External != nil {
		return true
	}
	cluster := a.Clusters[spec.ClusterRef.Name]
	return cluster != nil && cluster.DeletionTimestamp == nil && cluster.Status.ClusterID != "" &&
		meta.IsStatusConditionTrue(cluster.Status.Conditions, v1beta1.Available)
}

// baseAt is when a base may be taken, as the time of its run; zero for not before something else happens.
func (a *agenda) baseAt() time.Time {
	if a.lacksBase() == "" || len(a.active) > 0 || !a.due.IsZero() {
		return time.Time{}
	}
	at := a.Now.Truncate(time.Minute) // that of the schedule's creation, too
	if made := a.Schedule.CreationTimestamp.Truncate(time.Minute); made.After(at) {
		at = made
	}
	if !at.After(a.last) {
		at = a.last.Truncate(time.Minute).Add(time.Minute)
	}
	if len(a.all) > 0 {
		if next := a.all[0].at.Add(a.pauseAfter(a.all[0])); next.After(at) {
			at = next.Add(time.Minute - 1).Truncate(time.Minute)
		}
	}
	return at
}

// pauseAfter is how long after the newest snapshot a base may be taken.
func (a *agenda) pauseAfter(s *taken) time.Duration {
	switch {
	case !s.succeeded():
		return baseRetry
	case a.base == nil: // it is of another etcd
		return basePause
	case a.timetable == nil || !a.timetable.Next(s.run.Add(-time.Second)).Equal(s.run):
		return baseAgain
	}
	return basePause
}

// takeBase takes a snapshot at once.
func (a *agenda) takeBase() string {
	at := a.baseAt()
	if at.IsZero() || at.After(a.Now) || a.Snapshots[snapshotName(a.Schedule.Name, at)] != nil {
		return ""
	}
	return fmt.Sprintf("taking %s at once, as a base for the stream: %s", snapshotName(a.Schedule.Name, at),
		a.lacksBase())
}

// streaming is the condition Streaming; nil without spec.stream.
func (a *agenda) streaming() *metav1.Condition {
	no := func(reason, message string) *metav1.Condition {
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	switch {
	case a.Schedule.Spec.Stream == nil:
		return nil
	case a.Schedule.Spec.Suspend:
		return no(ruleHeld, "SUSPENDED: no change is stored until spec.suspend is false")
	case a.pod == nil:
		pod, why := a.wanted()
		switch {
		case pod != nil:
			return no("Starting", "the pod of the stream is created after "+a.base.Name)
		case a.base == nil:
			return no("NoBase", why+a.nextBase())
		}
		return no("Waiting", why)
	case a.needs() != "": // it may have begun again, behind a gap
		return no(a.needs(), "changes can't be restored: "+snapshot.StreamEnd(a.pod).Error+a.nextBase())
	case objects.Ready(a.pod) && a.base == nil: // the etcd was restored, and the pod stores what changes in the new one
		return no("NoBase", noBase+a.nextBase())
	case objects.Ready(a.pod):
		return &metav1.Condition{Status: metav1.ConditionTrue, Reason: "Stored", Message: fmt.Sprintf(
			"pod %s stores what changes after %s", a.pod.Name, a.pod.Annotations[objects.AnnotationBase])}
	}
	reason := "NotStored"
	if end := snapshot.StreamEnd(a.pod); end != nil {
		reason = end.Reason
	}
	return no(reason, "changes are not stored: "+snapshot.StreamWaits(a.pod, a.Now))
}

// nextBase says when another base is taken, where that is known; empty where it is not.
func (a *agenda) nextBase() string {
	at := a.baseAt()
	switch {
	case at.IsZero():
		return ""
	case at.After(a.Now):
		return at.UTC().Format("; a snapshot is taken for that at 15:04 UTC")
	}
	return "; a snapshot is taken for that now"
}

// streamStatus is what the status says of the pod; nil without one.
func (a *agenda) streamStatus() *v1beta1.StreamStatus {
	if a.Schedule.Spec.Stream == nil || a.pod == nil {
		return nil
	}
	s := &v1beta1.StreamStatus{Pod: a.pod.Name, Base: a.pod.Annotations[objects.AnnotationBase]}
	if base := a.Snapshots[s.Base]; base != nil {
		s.ClusterID = base.Status.ClusterID
	} else if old := a.Schedule.Status.Stream; old != nil && old.Base == s.Base {
		s.ClusterID = old.ClusterID
	}
	return s
}
