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

func retained(v *view) *plan {
	switch {
	case v.Snapshot.Annotations[objects.AnnotationAbandon] == "true":
		return &plan{message: "the stored artifact stays: the annotation " + objects.AnnotationAbandon +
			" asks for that", jobs: v.all(), finalized: true, stays: true}
	case v.Snapshot.Spec.DeletionPolicy != v1alpha1.DeletionDelete:
		return &plan{message: "the stored artifact stays", jobs: v.all(), finalized: true, stays: true}
	}
	return nil
}

func nothing(v *view) *plan {
	if v.Snapshot.Status.Phase != v1alpha1.SnapshotSkipped && validate(&v.Snapshot.Spec) == nil {
		return nil
	}
	return &plan{message: "nothing was stored", jobs: v.all(), finalized: true, stays: true}
}

func inUse(v *view) *plan {
	users := v.users()
	stored := v.Snapshot.Status.Phase == v1alpha1.SnapshotSucceeded ||
		v.Snapshot.Status.Phase == v1alpha1.SnapshotStored
	if len(users) == 0 || !stored || len(v.discarding) > 0 {
		return nil
	}
	message := fmt.Sprintf("EtcdCluster %s restores it, or is about to: the stored artifact is deleted after that; "+
		"the annotation %s=true keeps it", strings.Join(users, ", "),
		objects.AnnotationAbandon)
	return &plan{message: message, jobs: v.all(), stays: true, tells: true}
}

// The Job that deletes begins when none takes the snapshot any more. One that began before, on a view that did not show
// which takes it, goes too, and another one follows.
func stopping(v *view) *plan {
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

func discarded(v *view) *plan {
	if job := lastJob(v.discarding); job == nil || ended(job, batchv1.JobComplete) == nil {
		return nil
	}
	p := v.deleting("the stored artifact is deleted", v.discarding, 0)
	p.finalized = true
	return p
}

func letGo(v *view) *plan {
	job := lastJob(v.discarding)
	message := ""
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
	p := v.deleting(message, v.discarding, 0)
	p.finalized = true
	return p
}

func locked(v *view) *plan {
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
	p := v.deleting(message, v.discarding, left)
	p.finalized = left <= 0
	return p
}

func undiscarded(v *view) *plan {
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
		p := v.deleting(message, v.discarding, left)
		p.progress = v.Snapshot.Status.Progress
		return p
	}
	return v.discards(v.discardJob(n + 1))
}

func discarding(v *view) *plan {
	job := lastJob(v.discarding)
	if job == nil {
		return nil
	}
	_, progress, resync := v.progress(job)
	p := v.deleting("deleting the stored artifact: "+progress, v.discarding, resync)
	p.progress = progress
	return p
}

func discard(v *view) *plan { return v.discards(v.discardJob(1)) }

// discards makes a Job that deletes.
func (v *view) discards(job *batchv1.Job) *plan {
	if why := v.storeUnagreed(); why != "" {
		return v.deleting("the stored artifact can't be deleted: "+why, v.discarding, resyncLater)
	}
	p := v.deleting("the stored artifact is deleted by Job "+job.Name, []*batchv1.Job{job}, resyncLater)
	p.progress = isMade(job)
	return p
}

// deleting is a plan on the way to the end.
func (v *view) deleting(message string, jobs []*batchv1.Job, resync time.Duration) *plan {
	return &plan{phase: v1alpha1.SnapshotDeleting, message: message, jobs: jobs, resync: resync}
}
