package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

func retained(v *view) *verdict {
	switch {
	case v.Snapshot.Annotations[objects.AnnotationAbandon] == "true":
		return &verdict{message: "the stored artifact stays: the annotation " + objects.AnnotationAbandon +
			" asks for that", jobs: v.all(), finalized: true, stays: true}
	case v.Snapshot.Spec.DeletionPolicy != v1alpha1.DeletionDelete:
		return &verdict{message: "the stored artifact stays", jobs: v.all(), finalized: true, stays: true}
	}
	return nil
}

func nothing(v *view) *verdict {
	if v.Snapshot.Status.Phase != v1alpha1.SnapshotSkipped && validate(&v.Snapshot.Spec) == nil {
		return nil
	}
	return &verdict{message: "nothing was stored", jobs: v.all(), finalized: true, stays: true}
}

func inUse(v *view) *verdict {
	users := v.users()
	stored := v.Snapshot.Status.Phase == v1alpha1.SnapshotSucceeded ||
		v.Snapshot.Status.Phase == v1alpha1.SnapshotStored
	if len(users) == 0 || !stored || len(v.discarding) > 0 {
		return nil
	}
	message := fmt.Sprintf("EtcdCluster %s restores it, or is about to: the stored artifact is deleted after that; "+
		"the annotation %s=true keeps it", strings.Join(users, ", "),
		objects.AnnotationAbandon)
	return &verdict{message: message, jobs: v.all(), stays: true, tells: true}
}

// The Job that deletes begins when none takes the snapshot any more. One that began before, on a view that did not show
// which takes it, goes too, and another one follows.
func stopping(v *view) *verdict {
	for _, job := range v.taking {
		if !over(job) {
			return v.deleting("stopping the Job that takes the snapshot first", nil, resyncLater)
		}
		if discard := lastJob(v.discarding); discard != nil && !endedAt(job).Before(discard.CreationTimestamp.Time) {
			return v.deleting("deleting the stored artifact once more: the Job that took it ended late", nil,
				resyncLater)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Pods)) {
		if pod := v.Pods[name]; objects.Purpose(&pod.Spec) == objects.ContainerSnapshot && v.oursByName(pod) &&
			!v.gone(pod) {
			return v.deleting(fmt.Sprintf("stopping pod %s first, which still takes the snapshot", name), nil,
				resyncLater)
		}
	}
	return nil
}

func discarded(v *view) *verdict {
	if job := lastJob(v.discarding); job == nil || ended(job, batchv1.JobComplete) == nil {
		return nil
	}
	decision := v.deleting("the stored artifact is deleted", v.discarding, 0)
	decision.finalized = true
	return decision
}

func letGo(v *view) *verdict {
	job, message := lastJob(v.discarding), ""
	switch {
	case job == nil:
		why := cmp.Or(v.storeUnagreed(), "no Job to delete it could be created")
		since := meta.FindStatusCondition(v.Snapshot.Status.Conditions, v1alpha1.Discarded)
		if since == nil || v.Now.Sub(since.LastTransitionTime.Time) < unmadeAfter {
			return nil
		}
		message = fmt.Sprintf("the stored artifact stays: for %s %s", duration(unmadeAfter), why)
	case v.Snapshot.Status.URI == "":
		how := ended(job, batchv1.JobFailed)
		if how == nil {
			return nil
		}
		message = "no whole artifact was stored; the check of the store failed: " + v.whyFailed(job, how)
	default:
		return nil
	}
	decision := v.deleting(message, v.discarding, 0)
	decision.finalized = true
	return decision
}

func locked(v *view) *verdict {
	job := lastJob(v.discarding)
	if job == nil {
		return nil
	}
	how := ended(job, batchv1.JobFailed)
	refused := func(pod *corev1.Pod) bool {
		report := reportOf(pod)
		return report != nil && report.Locked
	}
	if how == nil || !slices.ContainsFunc(v.podsOf(job), refused) {
		return nil
	}
	message := fmt.Sprintf("the stored artifact stays: %s; this EtcdSnapshot goes without it after %s; later remove it "+
		"yourself, or by a lifecycle rule of the bucket", v.whyFailed(job, how), duration(lockedShown))
	left := how.LastTransitionTime.Add(lockedShown).Sub(v.Now)
	decision := v.deleting(message, v.discarding, left)
	decision.finalized = left <= 0
	return decision
}

func undiscarded(v *view) *verdict {
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
		message := fmt.Sprintf("the stored artifact could not be deleted: %s; Quorate tries again at %s; the "+
			"annotation %s=true keeps it",
			v.whyFailed(job, how), again.UTC().Format(time.TimeOnly+" MST"), objects.AnnotationAbandon)
		decision := v.deleting(message, v.discarding, left)
		decision.progress = v.Snapshot.Status.Progress
		return decision
	}
	return v.discards(v.discardJob(n + 1))
}

func discarding(v *view) *verdict {
	job := lastJob(v.discarding)
	if job == nil {
		return nil
	}
	_, progress, resync := v.progress(job)
	decision := v.deleting("deleting the stored artifact: "+progress, v.discarding, resync)
	decision.progress = progress
	return decision
}

func discard(v *view) *verdict { return v.discards(v.discardJob(1)) }

// discards makes a Job that deletes.
func (v *view) discards(job *batchv1.Job) *verdict {
	if why := v.storeUnagreed(); why != "" {
		return v.deleting("the stored artifact can't be deleted: "+why, v.discarding, resyncLater)
	}
	decision := v.deleting("the stored artifact is deleted by Job "+job.Name, []*batchv1.Job{job}, resyncLater)
	decision.progress = isMade(job)
	return decision
}

// deleting is a verdict on the way to the end.
func (v *view) deleting(message string, jobs []*batchv1.Job, resync time.Duration) *verdict {
	return &verdict{phase: v1alpha1.SnapshotDeleting, message: message, jobs: jobs, resync: resync}
}
