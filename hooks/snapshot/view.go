package snapshot

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Pods select the pods of a snapshot's Jobs. They depend on the name alone: Metacontroller 1.5.20 keeps the answer of
// the hook customize by the parent's name and generation, for all namespaces together. (4.17.2 keeps it by UID and
// generation.)
func Pods(name string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{objects.LabelSnapshot: labelValue(name)}}
}

// labelValue is the name where it fits into a label, else a beginning of it that is told apart by a hash. The word job.
func labelValue(name string) string { return objects.Shortened(name, 63) }

// view is an observation put together.
type view struct {
	Observation
	cluster *v1beta1.EtcdCluster
	// taking, looking and deleting are the Jobs that take the snapshot, that look what is stored, and that delete it,
	// the newest last.
	taking, inspecting, deleting []*batchv1.Job
}

func newView(o Observation) *view {
	v := &view{Observation: o, cluster: o.Clusters[o.Snapshot.Spec.ClusterRef.Name]}
	for _, job := range o.Jobs {
		switch objects.Purpose(&job.Spec.Template.Spec) {
		case objects.ContainerSnapshot:
			v.taking = append(v.taking, job)
		case objects.ContainerInspect:
			v.inspecting = append(v.inspecting, job)
		case objects.ContainerDelete:
			v.deleting = append(v.deleting, job)
		}
	}
	byNumber := func(a, b *batchv1.Job) int {
		return cmp.Or(cmp.Compare(jobNumber(a), jobNumber(b)), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(v.taking, byNumber)
	slices.SortFunc(v.inspecting, byNumber)
	slices.SortFunc(v.deleting, byNumber)
	return v
}

// all are the Jobs as they are.
func (v *view) all() []*batchv1.Job { return slices.Concat(v.deleting, v.inspecting, v.taking) }

func lastJob(jobs []*batchv1.Job) *batchv1.Job {
	if len(jobs) == 0 {
		return nil
	}
	return jobs[len(jobs)-1]
}

// ended is the condition by which a Job is over, of one of the two types; nil while it is not.
func ended(job *batchv1.Job, how batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == how && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

func over(job *batchv1.Job) bool {
	return ended(job, batchv1.JobComplete) != nil || ended(job, batchv1.JobFailed) != nil
}

// podsOf are the pods of a Job, the newest last.
func (v *view) podsOf(job *batchv1.Job) []*corev1.Pod {
	var list []*corev1.Pod
	for _, pod := range v.Pods {
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.UID == job.UID {
			list = append(list, pod)
		}
	}
	slices.SortFunc(list, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// reportOf is what a pod has reported of the snapshot; nil while it has not.
func reportOf(pod *corev1.Pod) *stores.Snapshot {
	t := terminated(pod, objects.Purpose(&pod.Spec))
	if t == nil {
		return nil
	}
	report, err := stores.Read[stores.Snapshot](t.Message)
	if err != nil || report.Error == "" && t.ExitCode != 0 {
		return nil
	}
	return report
}

// report is the newest of those that pods have left and that will do; nil for none.
func (v *view) report(does func(*stores.Snapshot) bool) *stores.Snapshot {
	jobs := slices.Concat(v.taking, v.inspecting)
	slices.SortStableFunc(jobs, func(a,
		b *batchv1.Job) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, job := range slices.Backward(jobs) {
		for _, pod := range slices.Backward(v.podsOf(job)) {
			if report := reportOf(pod); report != nil && does(report) {
				return report
			}
		}
	}
	return nil
}

// told is the last report that says what is stored, verified or not, or that nothing is; nil while there is none.
func (v *view) told() *stores.Snapshot {
	return v.report(func(r *stores.Snapshot) bool { return r.URI != "" || r.Absent })
}

// endedAt is when a Job that is over ended.
func endedAt(job *batchv1.Job) time.Time {
	for _, how := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if c := ended(job, how); c != nil {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// gone reports whether a pod does nothing more.
func (v *view) gone(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.DeletionTimestamp != nil && v.Now.Sub(pod.DeletionTimestamp.Time) > lostAfter
}

// heard reports whether a Job that failed has told all that it did: its last pod has left a report, and none was taken
// away at the deadline before it was seen.
func (v *view) heard(job *batchv1.Job, how *batchv1.JobCondition) bool {
	pods := v.podsOf(job)
	if len(pods) == 0 || reportOf(pods[len(pods)-1]) == nil {
		return false
	}
	return how.Reason != batchv1.JobReasonDeadlineExceeded || pods[len(pods)-1].DeletionTimestamp != nil
}

// inspection is the Job that has looked what is stored since the last one that took the snapshot was over; nil for
// none.
func (v *view) inspection() *batchv1.Job {
	inspection := lastJob(v.inspecting)
	job := lastJob(v.taking)
	if inspection == nil || job != nil && inspection.CreationTimestamp.Time.Before(endedAt(job)) {
		return nil
	}
	return inspection
}

// hasInspected reports whether a Job has told what is stored.
func (v *view) hasInspected(inspection *batchv1.Job) bool {
	return slices.ContainsFunc(v.podsOf(inspection), func(pod *corev1.Pod) bool {
		report := reportOf(pod)
		return report != nil && report.Error == ""
	})
}

// isMade is what is known of a Job that has not been seen yet.
func isMade(job *batchv1.Job) string { return "Job " + job.Name + " is created" }
