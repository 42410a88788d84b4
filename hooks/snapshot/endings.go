package hooks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

func snapshotRetained(v *snapshotView) *snapshotVerdict {
	switch {
	case v.Snapshot.Annotations[AnnotationAbandon] == "true":
		return &snapshotVerdict{message: "what is stored is left where it is: the annotation " + AnnotationAbandon + " asks for that", jobs: v.all(), finalized: true, stays: true}
	case v.Snapshot.Spec.DeletionPolicy != v1alpha1.DeletionDelete:
		return &snapshotVerdict{message: "what is stored stays", jobs: v.all(), finalized: true, stays: true}
	}
	return nil
}

func snapshotNothing(v *snapshotView) *snapshotVerdict {
	if v.Snapshot.Status.Phase != v1alpha1.SnapshotSkipped && validateSnapshot(&v.Snapshot.Spec) == nil {
		return nil
	}
	return &snapshotVerdict{message: "nothing was stored", jobs: v.all(), finalized: true, stays: true}
}

func snapshotInUse(v *snapshotView) *snapshotVerdict {
	users := v.users()
	stored := v.Snapshot.Status.Phase == v1alpha1.SnapshotSucceeded || v.Snapshot.Status.Phase == v1alpha1.SnapshotStored
	if len(users) == 0 || !stored || len(v.discarding) > 0 {
		return nil
	}
	message := fmt.Sprintf("EtcdCluster %s restores it, or is about to: what is stored is deleted when that is done, or no longer asked for; the annotation %s=true leaves it", strings.Join(users, ", "), AnnotationAbandon)
	return &snapshotVerdict{message: message, jobs: v.all(), stays: true, tells: true}
}

// Whoever deletes begins when nobody takes any more. A Job that began before, on a view that did not show who takes, goes too, and another one
// follows.
func snapshotStopping(v *snapshotView) *snapshotVerdict {
	for _, job := range v.taking {
		if !over(job) {
			return v.deleting("the Job that takes the snapshot is stopped first", nil, Patience)
		}
		if discard := lastJob(v.discarding); discard != nil && !endedAt(job).Before(discard.CreationTimestamp.Time) {
			return v.deleting("what is stored is deleted once more: the Job that took it ended later than thought", nil, Patience)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Pods)) {
		if pod := v.Pods[name]; purpose(&pod.Spec) == ContainerSnapshot && v.oursByName(pod) && !v.gone(pod) {
			return v.deleting(fmt.Sprintf("pod %s still takes the snapshot, and is stopped first", name), nil, Patience)
		}
	}
	return nil
}

func snapshotDiscarded(v *snapshotView) *snapshotVerdict {
	if job := lastJob(v.discarding); job == nil || ended(job, batchv1.JobComplete) == nil {
		return nil
	}
	said := v.deleting("what was stored is deleted", v.discarding, 0)
	said.finalized = true
	return said
}

func snapshotLetGo(v *snapshotView) *snapshotVerdict {
	job, message := lastJob(v.discarding), ""
	switch {
	case job == nil:
		since := meta.FindStatusCondition(v.Snapshot.Status.Conditions, v1alpha1.Discarded)
		if since == nil || v.Now.Sub(since.LastTransitionTime.Time) < unmadeAfter {
			return nil
		}
		message = fmt.Sprintf("what is stored is left: no Job to delete it could be made for %s", duration(unmadeAfter))
	case v.Snapshot.Status.URI == "":
		how := ended(job, batchv1.JobFailed)
		if how == nil {
			return nil
		}
		message = "nothing whole was stored; the store was asked in vain: " + v.whyFailed(job, how)
	default:
		return nil
	}
	said := v.deleting(message, v.discarding, 0)
	said.finalized = true
	return said
}

func snapshotUndiscarded(v *snapshotView) *snapshotVerdict {
	job := lastJob(v.discarding)
	if job == nil {
		return nil
	}
	how := ended(job, batchv1.JobFailed)
	if how == nil {
		return nil
	}
	n := jobNumber(job)
	again := how.LastTransitionTime.Add(min(shortestRetry<<min(n-1, 8), longestRetry))
	if left := again.Sub(v.Now); left > 0 {
		message := fmt.Sprintf("what is stored could not be deleted: %s. It is tried again at %s; the annotation %s=true leaves it",
			v.whyFailed(job, how), again.UTC().Format(time.TimeOnly+" MST"), AnnotationAbandon)
		said := v.deleting(message, v.discarding, left)
		said.progress = v.Snapshot.Status.Progress
		return said
	}
	return v.discards(v.discardJob(n + 1))
}

func snapshotDiscarding(v *snapshotView) *snapshotVerdict {
	job := lastJob(v.discarding)
	if job == nil {
		return nil
	}
	_, progress, resync := v.progress(job)
	said := v.deleting("what is stored is being deleted: "+progress, v.discarding, resync)
	said.progress = progress
	return said
}

func snapshotDiscard(v *snapshotView) *snapshotVerdict { return v.discards(v.discardJob(1)) }

// discards makes a Job that deletes.
func (v *snapshotView) discards(job *batchv1.Job) *snapshotVerdict {
	said := v.deleting("what is stored is deleted by Job "+job.Name, []*batchv1.Job{job}, Patience)
	said.progress = isMade(job)
	return said
}

// deleting is a verdict on the way to the end.
func (v *snapshotView) deleting(message string, jobs []*batchv1.Job, resync time.Duration) *snapshotVerdict {
	return &snapshotVerdict{phase: v1alpha1.SnapshotDeleting, message: message, jobs: jobs, resync: resync}
}
