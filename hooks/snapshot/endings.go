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

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

func retained(v *view) *plan {
	switch {
	case v.Snapshot.Annotations[objects.AnnotationAbandon] == "true":
		return &plan{message: "the stored artifact stays: the annotation " + objects.AnnotationAbandon +
			" asks for that", jobs: v.all(), finalized: true, stays: true}
	case v.Snapshot.Spec.DeletionPolicy != v1beta1.DeletionDelete:
		return &plan{message: "the stored artifact stays", jobs: v.all(), finalized: true, stays: true}
	}
	return nil
}

func nothingStored(v *view) *plan {
	if v.Snapshot.Status.Phase != v1beta1.SnapshotSkipped && validate(&v.Snapshot.Spec) == nil {
		return nil
	}
	return &plan{message: "nothing was stored", jobs: v.all(), finalized: true, stays: true}
}

func inUse(v *view) *plan {
	users := v.users()
	stored := v.Snapshot.Status.Phase == v1beta1.SnapshotSucceeded ||
		v.Snapshot.Status.Phase == v1beta1.SnapshotUnverified
	if len(users) == 0 || !stored || len(v.deleting) > 0 {
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
			return v.waitsForDeletion("stopping the Job that takes the snapshot first", nil, resyncLater)
		}
		if deletion := lastJob(v.deleting); deletion != nil && !endedAt(job).Before(deletion.CreationTimestamp.Time) {
			return v.waitsForDeletion("deleting the stored artifact once more: the Job that took it ended late", nil,
				resyncLater)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Pods)) {
		if pod := v.Pods[name]; objects.Purpose(&pod.Spec) == objects.ContainerSnapshot && v.oursByName(pod) &&
			!v.gone(pod) {
			return v.waitsForDeletion(fmt.Sprintf("stopping pod %s first, which still takes the snapshot", name), nil,
				resyncLater)
		}
	}
	return nil
}

func deleted(v *view) *plan {
	if job := lastJob(v.deleting); job == nil || ended(job, batchv1.JobComplete) == nil {
		return nil
	}
	p := v.waitsForDeletion("the stored artifact is deleted", v.deleting, 0)
	p.finalized = true
	return p
}

func abandoned(v *view) *plan {
	job := lastJob(v.deleting)
	message := ""
	switch {
	case job == nil:
		why := cmp.Or(v.storeUnagreed(), "no Job to delete it could be created")
		since := meta.FindStatusCondition(v.Snapshot.Status.Conditions, v1beta1.Deleted)
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
	p := v.waitsForDeletion(message, v.deleting, 0)
	p.finalized = true
	return p
}

func locked(v *view) *plan {
	job := lastJob(v.deleting)
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
	message := fmt.Sprintf("the stored artifact stays: %s; this EtcdSnapshot goes without it after %s; remove the "+
		"artifact later, or by a lifecycle rule of the bucket", v.whyFailed(job, how), duration(lockedShown))
	left := how.LastTransitionTime.Add(lockedShown).Sub(v.Now)
	p := v.waitsForDeletion(message, v.deleting, left)
	p.finalized = left <= 0
	return p
}

func deleteFailed(v *view) *plan {
	job := lastJob(v.deleting)
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
		p := v.waitsForDeletion(message, v.deleting, left)
		p.progress = v.Snapshot.Status.Progress
		return p
	}
	return v.deletes(v.deleteJob(n + 1))
}

func deleting(v *view) *plan {
	job := lastJob(v.deleting)
	if job == nil {
		return nil
	}
	_, progress, resync := v.progress(job)
	p := v.waitsForDeletion("deleting the stored artifact: "+progress, v.deleting, resync)
	p.progress = progress
	return p
}

func deleteStored(v *view) *plan { return v.deletes(v.deleteJob(1)) }

// deletes makes a Job that deletes.
func (v *view) deletes(job *batchv1.Job) *plan {
	if why := v.storeUnagreed(); why != "" {
		return v.waitsForDeletion("the stored artifact can't be deleted: "+why, v.deleting, resyncLater)
	}
	p := v.waitsForDeletion("the stored artifact is deleted by Job "+job.Name, []*batchv1.Job{job}, resyncLater)
	p.progress = isMade(job)
	return p
}

// waitsForDeletion is a plan on the way to the end.
func (v *view) waitsForDeletion(message string, jobs []*batchv1.Job, resync time.Duration) *plan {
	return &plan{phase: v1beta1.SnapshotDeleting, message: message, jobs: jobs, resync: resync}
}
