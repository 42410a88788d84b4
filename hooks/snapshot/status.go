package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// slowPod is how long a pod may take to be created before its message says what it could be waiting for.
const slowPod = 20 * time.Second

// status is what people see of a snapshot.
func (v *view) status(p *plan) v1beta1.EtcdSnapshotStatus {
	s := *v1beta1.Copy(&v.Snapshot.Status)
	s.ObservedGeneration = v.Snapshot.Generation
	s.UsedBy = v.users()
	if p.tells {
		s.Message = objects.Clipped(p.message)
	}
	if p.stays {
		for i := range s.Conditions { // kubectl wait compares each condition's own
			s.Conditions[i].ObservedGeneration = s.ObservedGeneration
		}
		return s
	}
	s.Phase = p.phase
	s.Message = objects.Clipped(p.message)
	s.Progress = objects.Clipped(p.progress)
	s.Failure = objects.Clipped(p.failure)
	if p.report != nil {
		fill(&s, &v.Snapshot.Spec.Store, p.report)
	}
	v.setConditions(&s, p.report)
	return s
}

// fill writes down what is stored, or no longer is; of one that was skipped, what is still so.
func fill(s *v1beta1.EtcdSnapshotStatus, store *v1beta1.Store, r *stores.Snapshot) {
	whole := func(t time.Time) metav1.Time {
		if t.IsZero() {
			return metav1.Time{}
		}
		return metav1.NewTime(t.Truncate(time.Second))
	}
	s.URI = r.URI
	s.SHA256 = r.SHA256
	s.Hash = r.Hash
	s.Artifact = stores.ArtifactIn(store, r.URI)
	s.Size = nil
	s.StoredSize = nil
	s.Duration = nil
	if r.URI != "" {
		s.Size = legible(r.Size)
		s.StoredSize = legible(r.StoredSize)
	}
	s.Revision = r.Revision
	s.AuthRevision = r.AuthRevision
	s.Keys = r.Keys
	s.EtcdVersion = r.EtcdVersion
	s.ClusterID = r.ClusterID
	s.Member = r.Member
	s.StartTime = whole(r.Started)
	s.CompletionTime = whole(r.Completed)
	s.VerificationTime = whole(r.VerifiedAt)
	s.Contents = r.Contents
	if took := r.Completed.Sub(r.Started); !r.Started.IsZero() && took > 0 {
		s.Duration = &metav1.Duration{Duration: took.Round(10 * time.Millisecond)}
	}
}

// legible is a size rounded up to a whole number of units, at least ten of them, so that a table shows 21Mi and not
// 20971552. The record of the artifact has it exactly.
func legible(n int64) *resource.Quantity {
	unit := int64(1)
	for n/unit >= 10<<10 {
		unit <<= 10
	}
	return resource.NewQuantity((n+unit-1)/unit*unit, resource.BinarySI)
}

func (v *view) setConditions(s *v1beta1.EtcdSnapshotStatus, r *stores.Snapshot) {
	to := decision.Conditions{List: &s.Conditions, Generation: v.Snapshot.Generation, Now: v.Now}
	set := to.Set
	if s.Phase == v1beta1.SnapshotDeleting {
		set(v1beta1.Deleted, false, "Deleting", s.Message)
		return
	}
	is := func(phases ...v1beta1.SnapshotPhase) bool { return slices.Contains(phases, s.Phase) }
	outlook := decision.Works
	switch {
	case is(v1beta1.SnapshotSucceeded, v1beta1.SnapshotSkipped):
		outlook = decision.Rests
	case is(v1beta1.SnapshotFailed, v1beta1.SnapshotUnverified):
		outlook = decision.Waits
	}
	to.Expect(outlook, string(s.Phase), s.Message)
	set(v1beta1.Complete, is(v1beta1.SnapshotSucceeded), string(s.Phase), s.Message)
	set(v1beta1.Failed, is(v1beta1.SnapshotFailed, v1beta1.SnapshotUnverified), string(s.Phase), s.Message)
	switch {
	case !s.VerificationTime.IsZero():
		set(v1beta1.Verified, true, "Restored", objects.Clipped(fmt.Sprintf(
			"restored on trial: %s at revision %d%s", objects.Count(int(s.Keys), "key"), s.Revision, compared(r))))
	case is(v1beta1.SnapshotUnverified):
		set(v1beta1.Verified, false, "NotVerified", s.Message)
	case !verifies(v.Snapshot):
		set(v1beta1.Verified, false, "NotWanted", "spec.verify is false: nothing has checked that it restores")
	default:
		set(v1beta1.Verified, false, string(s.Phase), "not restored on trial")
	}
}

// compared says with what a snapshot was compared.
func compared(r *stores.Snapshot) string {
	words := ", not compared with another member: none could answer"
	switch {
	case r == nil:
		return ""
	case r.HashOf != "":
		words = ", with the hash of the cluster (" + r.HashOf + " has the same)"
	case r.KeysOf != "":
		words = ", as many as " + r.KeysOf + " has; no other member's hash was compared"
	}
	if r.Warning != "" {
		words += "; WARNING: " + r.Warning
	}
	return words
}

// terminated is how a container ended; nil while it has not.
func terminated(pod *corev1.Pod, container string) *corev1.ContainerStateTerminated {
	return objects.StatusOf(pod, container).State.Terminated
}

// lastWords say why a pod failed; empty when it did not.
func lastWords(pod *corev1.Pod) string {
	for _, by := range []bool{false, true} { // an injected container has the last word only where ours say nothing
		for _, s := range objects.Statuses(pod) {
			if t := s.State.Terminated; t != nil && t.ExitCode != 0 && objects.Injected(s.Name) == by {
				return containerWords(s.Name, t, pod)
			}
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		return podWords(pod)
	}
	return ""
}

func containerWords(name string, t *corev1.ContainerStateTerminated, pod *corev1.Pod) string {
	if report, err := stores.Read[stores.Snapshot](t.Message); err == nil && report.Error != "" {
		return report.Error
	}
	switch message := stores.LastLine(t.Message); {
	case t.Reason == "OOMKilled":
		field := "spec.job.resources"
		if name == objects.ContainerMirror || name == objects.ContainerPromote {
			field = "spec.resources"
		}
		return fmt.Sprintf("container %s was killed because it ran out of memory: raise %s.limits.memory", name, field)
	case pod.Status.Reason != "":
		return podWords(pod)
	case message != "":
		return message
	}
	return fmt.Sprintf("container %s ended with code %d without a message", name, t.ExitCode)
}

// podWords are Kubernetes' own about a pod that it ended, such as "Evicted: ...".
func podWords(pod *corev1.Pod) string {
	words := cmp.Or(pod.Status.Reason, "its pod failed")
	if m := strings.TrimSpace(pod.Status.Message); m != "" {
		words += ": " + m
	}
	return words
}

// whyFailed says why a Job failed.
func (v *view) whyFailed(job *batchv1.Job, how *batchv1.JobCondition) string {
	words := ""
	for _, pod := range v.podsOf(job) {
		words = cmp.Or(lastWords(pod), words)
	}
	switch how.Reason {
	case batchv1.JobReasonDeadlineExceeded:
		seconds := int64(0)
		if d := job.Spec.ActiveDeadlineSeconds; d != nil {
			seconds = *d
		}
		late := fmt.Sprintf("it was not finished within %s", duration(time.Duration(seconds)*time.Second))
		if last := cmp.Or(words, v.Snapshot.Status.Progress); last != "" {
			late += "; the last known state: " + last
		}
		return late
	case batchv1.JobReasonBackoffLimitExceeded:
		return cmp.Or(words, "its pods failed, and their messages are gone with them")
	}
	return cmp.Or(words, strings.TrimSpace(how.Reason+": "+how.Message))
}

// progress says what a Job that is not over does or waits for. Of one that is about to fail the pod is gone already;
// what was known of it stays.
func (v *view) progress(job *batchv1.Job) (phase v1beta1.SnapshotPhase, message string, resync time.Duration) {
	if old := v.Snapshot.Status; ended(job, batchv1.JobFailureTarget) != nil && old.Progress != "" && old.Phase != "" {
		return old.Phase, old.Progress, 0
	}
	phase = v1beta1.SnapshotPending
	message = fmt.Sprintf("Job %s has not created its pod yet", job.Name)
	var current *corev1.Pod
	failures := 0
	words := ""
	for _, pod := range v.podsOf(job) {
		if pod.Status.Phase == corev1.PodFailed {
			failures = failures + 1
			words = lastWords(pod)
			continue
		}
		current = pod
	}
	if current != nil {
		phase, message, resync = v.podProgress(current)
	} else if failures > 0 {
		phase = v1beta1.SnapshotRunning
		message = "the next attempt follows after a pause"
	}
	if failures > 0 {
		message = fmt.Sprintf("attempt %d failed: %s; %s", failures, words, message)
	}
	return phase, message, resync
}

func (v *view) podProgress(pod *corev1.Pod) (phase v1beta1.SnapshotPhase, message string, resync time.Duration) {
	for _, s := range objects.Statuses(pod) {
		if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return v1beta1.SnapshotPending, fmt.Sprintf("container %s of pod %s can't start: %s", s.Name, pod.Name,
				w.Reason+objects.Colon(objects.Kubelet(w.Message))), 0
		}
		if s.Name == objects.Purpose(&pod.Spec) && s.State.Running != nil {
			return v1beta1.SnapshotRunning, fmt.Sprintf("pod %s is running", pod.Name), 0
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return v1beta1.SnapshotPending, fmt.Sprintf("no node accepts pod %s: %s", pod.Name, c.Message), 0
		}
	}
	if left := pod.CreationTimestamp.Add(slowPod).Sub(v.Now); left > 0 {
		return v1beta1.SnapshotPending, fmt.Sprintf("pod %s is starting", pod.Name), left
	}
	return v1beta1.SnapshotPending, fmt.Sprintf("pod %s has not started; it mounts %s: kubectl describe pod %s "+
		"shows what is missing", pod.Name, mounts(pod), pod.Name), 0
}

// mounts names what a pod can't start without.
func mounts(pod *corev1.Pod) string {
	var list []string
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.Secret != nil:
			list = append(list, "Secret "+volume.Secret.SecretName)
		case volume.PersistentVolumeClaim != nil:
			list = append(list, "claim "+volume.PersistentVolumeClaim.ClaimName)
		}
	}
	if len(list) == 0 {
		return "no Secret and no claim"
	}
	return strings.Join(list, ", ")
}

// whatIsStored says what a snapshot holds.
func whatIsStored(r *stores.Snapshot) string {
	stored := fmt.Sprintf("%s stored as %s", bytesText(r.Size), bytesText(r.StoredSize))
	if r.VerifiedAt.IsZero() {
		return fmt.Sprintf("revision %d or later, %s; not restored on trial (spec.verify is false)", r.Revision, stored)
	}
	message := fmt.Sprintf("revision %d, %s, %s; restored on trial", r.Revision, objects.Count(int(r.Keys), "key"),
		stored)
	if r.Warning != "" {
		message += "; WARNING: " + r.Warning
	}
	return message
}

// bytesText is a size for people.
func bytesText(n int64) string {
	unit := "bytes"
	value := float64(n)
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		unit = next
		value = value / 1024
	}
	if unit == "bytes" {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// duration is how long for people: 1h and not 1h0m0s.
func duration(d time.Duration) string {
	s := d.String()
	s = strings.TrimSuffix(s, "m0s")
	if s != d.String() {
		s += "m"
	}
	if h, whole := strings.CutSuffix(s, "h0m"); whole {
		s = h + "h"
	}
	return s
}
