package hooks

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// What becomes of an EtcdSnapshot: one Job takes it, and says what it did in its pod's termination message. Nobody talks to etcd or to the
// store here.
//
// That a snapshot is not taken twice does not hang on the status, which can be lost (S14): the Job that took it stays for an hour, which
// is longer than any cache lags, and whoever runs later finds the file that says what is stored under the snapshot's one key, and reports
// that. So a Job may be repeated at any time; it then reads instead of writing.
//
// What is stored whole is not given up because it could not be verified: it is then Stored, which is neither Succeeded nor Failed. A Job that ended
// without a word, as at its deadline, may have stored something, so another one looks before anything is said.

// SnapshotObservation is everything that a decision about an EtcdSnapshot may depend on.
type SnapshotObservation struct {
	// Snapshot is the parent as Metacontroller sent it. Its cache may lag behind the API server.
	Snapshot *v1alpha1.EtcdSnapshot
	// Jobs are the parent's children, by name.
	Jobs map[string]*batchv1.Job
	// Pods that carry the snapshot's name in LabelSnapshot, and EtcdClusters of the namespace, by name, its own among them: see [SnapshotPods].
	Pods     map[string]*corev1.Pod
	Clusters map[string]*v1alpha1.EtcdCluster
	// Now is the time of the call.
	Now time.Time
	// Settings of the installation.
	Settings Settings
}

// SnapshotDecision is the answer to an observation.
type SnapshotDecision struct {
	// Jobs are complete: an observed Job that is not among them will be deleted. One that was observed carries its UID.
	Jobs []*batchv1.Job
	// Status replaces the parent's status whole.
	Status v1alpha1.EtcdSnapshotStatus
	// ResyncAfter is when to ask again at the latest; 0 leaves it to the controller's resync period.
	ResyncAfter time.Duration
	// Because is the rule that fired.
	Because Because
	// Finalized lets a snapshot that is being deleted go.
	Finalized bool
}

// SnapshotRule is one line of the decision, as [Rule] is for clusters.
type SnapshotRule struct {
	Name string
	Why  string
	// applies returns what to do, or nil when the next rule is to be asked.
	applies func(v *snapshotView) *snapshotVerdict
}

// snapshotVerdict is what a rule says.
type snapshotVerdict struct {
	phase   v1alpha1.SnapshotPhase
	message string
	// progress and failure are remembered in the status, and forgotten by a verdict that has none.
	progress, failure string
	// jobs that should exist from now on.
	jobs []*batchv1.Job
	// report of the Job, when it has told what it did.
	report *SnapshotReport
	// stays: the status is as it was; tells: but for the message.
	stays, tells bool
	finalized    bool
	resync       time.Duration
}

// SnapshotRules are the rules for a snapshot that nobody deletes, in order.
var SnapshotRules = []SnapshotRule{
	{"Finished", "A snapshot that is finished stays so; a Job that went well goes an hour later, one that failed stays for whoever reads its log.", snapshotFinished},
	{"Succeeded", "What the Job reports to have stored, and verified if that was asked for, is written down.", snapshotSucceeded},
	{"Skipped", "Nothing had changed since what spec.unless tells of: nothing was stored.", snapshotSkipped},
	{"Read", "A Job that is done, and whose report is gone with its pod, is run again: it reads what is stored.", snapshotRead},
	{"Taking", "The Job runs, or waits for what its pod needs.", snapshotTaking},
	{"Unsupported", "A spec that the API server would refuse makes no Job.", snapshotUnsupported},
	{"Look", "Before a snapshot is given up, whose Job may have stored something without a word, one more Job looks, and takes nothing.", snapshotLook},
	{"Stored", "A snapshot that is given up and stored whole is kept, and not verified; the message says why.", snapshotStored},
	{"Failed", "The Job has used up its retries or its time, or could not begin within spec.job.deadline, and nothing is stored.", snapshotFailed},
	{"Pending", "A snapshot waits for its cluster to be there and to have a quorum.", snapshotPending},
	{"Take", "One Job takes the snapshot, with the etcd image of the cluster.", snapshotTake},
}

// SnapshotEndings are the rules for one that is being deleted, in order.
var SnapshotEndings = []SnapshotRule{
	{"Retained", "With deletionPolicy Retain, or with the annotation etcd.quorate.dev/abandon-artifact, what is stored stays, and nobody is waited for.", snapshotRetained},
	{"Nothing", "A snapshot that was skipped, or whose spec is one that the API server refuses, has stored nothing.", snapshotNothing},
	{"InUse", "What an EtcdCluster restores, or is about to, is not deleted before that is done, or given up.", snapshotInUse},
	{"Stopping", "Who still takes the snapshot is stopped first: it could store after the deletion.", snapshotStopping},
	{"Discarded", "What was stored is deleted.", snapshotDiscarded},
	{"LetGo", "A snapshot that never stored anything does not wait for a store that can't be reached, and none waits for a Job that can't be made.", snapshotLetGo},
	{"Undiscarded", "A deletion that failed is tried again, after a pause that grows to half an hour.", snapshotUndiscarded},
	{"Discarding", "The Job that deletes what is stored runs.", snapshotDiscarding},
	{"Discard", "One Job deletes what is stored.", snapshotDiscard},
}

// Times of snapshots.
const (
	// jobKept is how long a Job that went well is kept: for its log, and so that no cache that lags shows neither it nor what it did.
	jobKept = time.Hour
	// reportLag is how long the pod of a Job that is done is waited for.
	reportLag = 30 * time.Second
	// mostReads is how often a report that is lost is asked for again.
	mostReads = 3
	// lostAfter is how long a pod may take to end after its time, before its node is taken to be lost.
	lostAfter = 5 * time.Minute
	// unmadeAfter is how long a Job that can't be made is waited for, as in a namespace that is being deleted. Nothing is lost by
	// going: what is stored stays.
	unmadeAfter = 5 * time.Minute
	// shortestRetry and longestRetry are between Jobs that delete.
	shortestRetry, longestRetry = time.Minute, 30 * time.Minute
)

// DecideSnapshot decides what becomes of an EtcdSnapshot. Like [Decide] it is pure, total and deterministic.
func DecideSnapshot(o SnapshotObservation) SnapshotDecision {
	v := newSnapshotView(o)
	rules := SnapshotRules
	if o.Snapshot.DeletionTimestamp != nil {
		rules = SnapshotEndings
	}
	for _, r := range rules {
		said := r.applies(v)
		if said == nil {
			continue
		}
		d := SnapshotDecision{
			Jobs: said.jobs, ResyncAfter: max(0, said.resync), Finalized: said.finalized,
			Because: Because{Rule: r.Name, Message: said.message},
		}
		d.Status = v.status(said)
		return d
	}
	panic("the last rule always applies")
}

// SnapshotPods select the pods of a snapshot's Jobs. They depend on the name alone: Metacontroller 1.5.20 keeps the answer of the hook
// customize by the parent's name and generation, for all namespaces together. (4.17.2 keeps it by UID and generation.)
func SnapshotPods(name string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{LabelSnapshot: labelValue(name)}}
}

// labelValue is the name where it fits into a label, else a beginning of it that is told apart by a hash. The word job.
func labelValue(name string) string { return shortened(name, 63) }

// shortened is a name of at most so many characters.
func shortened(name string, most int) string {
	if len(name) <= most {
		return name
	}
	sum := digest(name)
	return strings.TrimRight(name[:most-len(sum)-1], "-.") + "-" + sum
}

// snapshotView is an observation put together.
type snapshotView struct {
	SnapshotObservation
	cluster *v1alpha1.EtcdCluster
	// taking, looking and discarding are the Jobs that take the snapshot, that look what is stored, and that delete it, the newest last.
	taking, looking, discarding []*batchv1.Job
}

func newSnapshotView(o SnapshotObservation) *snapshotView {
	v := &snapshotView{SnapshotObservation: o, cluster: o.Clusters[o.Snapshot.Spec.Cluster]}
	for _, job := range o.Jobs {
		switch purpose(&job.Spec.Template.Spec) {
		case ContainerSnapshot:
			v.taking = append(v.taking, job)
		case ContainerLook:
			v.looking = append(v.looking, job)
		case ContainerDiscard:
			v.discarding = append(v.discarding, job)
		}
	}
	byNumber := func(a, b *batchv1.Job) int {
		return cmp.Or(cmp.Compare(jobNumber(a), jobNumber(b)), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(v.taking, byNumber)
	slices.SortFunc(v.looking, byNumber)
	slices.SortFunc(v.discarding, byNumber)
	return v
}

// all are the Jobs as they are.
func (v *snapshotView) all() []*batchv1.Job { return slices.Concat(v.discarding, v.looking, v.taking) }

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
func (v *snapshotView) podsOf(job *batchv1.Job) []*corev1.Pod {
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
func reportOf(pod *corev1.Pod) *SnapshotReport {
	t := terminated(pod, purpose(&pod.Spec))
	if t == nil {
		return nil
	}
	report, err := readReport[SnapshotReport](t.Message)
	if err != nil || report.Error == "" && t.ExitCode != 0 {
		return nil
	}
	return report
}

// report is the newest of those that pods have left and that will do; nil for none.
func (v *snapshotView) report(does func(*SnapshotReport) bool) *SnapshotReport {
	jobs := slices.Concat(v.taking, v.looking)
	slices.SortStableFunc(jobs, func(a, b *batchv1.Job) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, job := range slices.Backward(jobs) {
		for _, pod := range slices.Backward(v.podsOf(job)) {
			if report := reportOf(pod); report != nil && does(report) {
				return report
			}
		}
	}
	return nil
}

// told is what was last told to be stored, verified or not, or not to be; nil while nobody has.
func (v *snapshotView) told() *SnapshotReport {
	return v.report(func(r *SnapshotReport) bool { return r.URI != "" || r.Absent })
}

// ---- rules of a snapshot that nobody deletes

func snapshotFinished(v *snapshotView) *snapshotVerdict {
	said := &snapshotVerdict{message: v.Snapshot.Status.Message, stays: true, jobs: v.all()}
	switch v.Snapshot.Status.Phase {
	default:
		return nil
	case v1alpha1.SnapshotFailed, v1alpha1.SnapshotStored:
		return said
	case v1alpha1.SnapshotSucceeded, v1alpha1.SnapshotSkipped:
	}
	said.jobs = nil
	for _, job := range v.all() {
		if job.Status.CompletionTime == nil && !over(job) {
			said.jobs = append(said.jobs, job) // a moment more
			continue
		}
		left := jobKept
		if at := job.Status.CompletionTime; at != nil {
			left = at.Add(jobKept).Sub(v.Now)
		}
		if left > 0 {
			said.jobs, said.resync = append(said.jobs, job), left
		}
	}
	return said
}

func snapshotSucceeded(v *snapshotView) *snapshotVerdict {
	report := v.report(func(r *SnapshotReport) bool {
		return r.URI != "" && r.Error == "" && (!r.VerifiedAt.IsZero() || !verifies(v.Snapshot))
	})
	if report == nil {
		return nil
	}
	return &snapshotVerdict{phase: v1alpha1.SnapshotSucceeded, message: whatIsStored(report), report: report, jobs: v.all(), resync: patience}
}

// whatIsStored says what a snapshot holds.
func whatIsStored(r *SnapshotReport) string {
	stored := fmt.Sprintf("%s stored as %s", bytesText(r.Size), bytesText(r.StoredSize))
	if r.VerifiedAt.IsZero() {
		return fmt.Sprintf("revision %d or later, %s; it was not restored on trial (spec.verify is false)", r.Revision, stored)
	}
	message := fmt.Sprintf("revision %d, %s, %s; restored on trial", r.Revision, count(int(r.Keys), "key"), stored)
	if r.Warning != "" {
		message += "; WARNING: " + r.Warning
	}
	return message
}

// bytesText is a size for people.
func bytesText(n int64) string {
	unit, value := "bytes", float64(n)
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		unit, value = next, value/1024
	}
	if unit == "bytes" {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

func snapshotSkipped(v *snapshotView) *snapshotVerdict {
	report := v.report(func(r *SnapshotReport) bool { return r.Skipped })
	if report == nil {
		return nil
	}
	message := fmt.Sprintf("no snapshot was needed: the keys still have revision %d, and users and roles %d", report.Revision, report.AuthRevision)
	return &snapshotVerdict{phase: v1alpha1.SnapshotSkipped, message: message, report: report, jobs: v.all(), resync: patience}
}

// givenUp says why no Job goes on to take the snapshot, and whether the last one has told what came of it; empty while one may.
func (v *snapshotView) givenUp() (why string, told bool) {
	job := lastJob(v.taking)
	if job != nil {
		if how := ended(job, batchv1.JobFailed); how != nil {
			return v.whyFailed(job, how), v.heard(job, how)
		}
		if jobNumber(job) >= mostReads {
			return fmt.Sprintf("Job %s is done, but nothing can be read of its report, %s in a row; its log may say more", job.Name, count(mostReads, "time")), false
		}
	}
	if blocked := v.blocked(); blocked != "" && v.leftToBegin() <= 0 {
		return fmt.Sprintf("it could not begin within %s (spec.job.deadline): %s", duration(v.deadline()), blocked), false
	}
	return "", false
}

// heard reports whether a Job that failed has told all that it did: its last pod has left a report, and none was taken away at the deadline before
// it was seen.
func (v *snapshotView) heard(job *batchv1.Job, how *batchv1.JobCondition) bool {
	pods := v.podsOf(job)
	if len(pods) == 0 || reportOf(pods[len(pods)-1]) == nil {
		return false
	}
	return how.Reason != batchv1.JobReasonDeadlineExceeded || pods[len(pods)-1].DeletionTimestamp != nil
}

// notVerified are the words with which quorate-snapshot begins when it gives up on what is stored (etcdops/archive/take.go).
const notVerified = "it is stored, but not verified"

// look is the Job that has looked what is stored since the last one that took the snapshot was over; nil for none.
func (v *snapshotView) look() *batchv1.Job {
	look, job := lastJob(v.looking), lastJob(v.taking)
	if look == nil || job != nil && look.CreationTimestamp.Time.Before(endedAt(job)) {
		return nil
	}
	return look
}

// why a snapshot is given up. While it is looked up what is stored, the status has it: the last words of the Job may be
// gone.
func (v *snapshotView) why(now string) string { return cmp.Or(v.Snapshot.Status.Failure, now) }

func snapshotLook(v *snapshotView) *snapshotVerdict {
	why, told := v.givenUp()
	if why == "" || told {
		return nil
	}
	why = v.why(why)
	said := &snapshotVerdict{
		phase: v1alpha1.SnapshotRunning, failure: why, message: why + "; whether anything is stored is looked up: ",
		report: v.told(), jobs: v.all(), resync: patience,
	}
	look := v.look()
	if look != nil && !over(look) {
		_, said.progress, said.resync = v.progress(look)
		said.message += said.progress
		return said
	}
	if look != nil {
		done := ended(look, batchv1.JobComplete)
		switch {
		case done == nil || v.hasLooked(look):
			return nil
		case v.Now.Sub(done.LastTransitionTime.Time) < reportLag:
			said.message += "its report is waited for"
			return said
		case jobNumber(look) >= mostReads:
			return nil
		}
	}
	next := v.lookJob()
	said.progress, said.jobs = isMade(next), slices.Concat(v.discarding, v.taking, []*batchv1.Job{next})
	said.message += said.progress
	return said
}

// isMade is what is known of a Job that has not been seen yet.
func isMade(job *batchv1.Job) string { return "Job " + job.Name + " is made" }

// hasLooked reports whether a Job has told what is stored.
func (v *snapshotView) hasLooked(look *batchv1.Job) bool {
	return slices.ContainsFunc(v.podsOf(look), func(pod *corev1.Pod) bool {
		report := reportOf(pod)
		return report != nil && report.Error == ""
	})
}

func snapshotStored(v *snapshotView) *snapshotVerdict {
	why, _ := v.givenUp()
	if why == "" {
		return nil
	}
	report, s := v.told(), v.Snapshot.Status
	if report != nil {
		fill(&s, report)
	}
	if s.URI == "" {
		return nil
	}
	why = v.why(why)
	if cause, told := strings.CutPrefix(why, notVerified+" ("); told {
		why = strings.TrimSuffix(cause, ")")
	}
	message := fmt.Sprintf("not verified: %s; what is stored is kept: revision %d or later, %s stored as %s", why, s.Revision, s.Size, s.StoredSize)
	return &snapshotVerdict{phase: v1alpha1.SnapshotStored, message: message, report: report, jobs: v.all()}
}

func snapshotFailed(v *snapshotView) *snapshotVerdict {
	why, _ := v.givenUp()
	if why == "" {
		return nil
	}
	message := v.why(why)
	if look := v.look(); look != nil && !v.hasLooked(look) {
		lost := "its report is lost"
		if vain := ended(look, batchv1.JobFailed); vain != nil {
			lost = v.whyFailed(look, vain)
		}
		message += "; whether anything is stored could not be looked up: " + lost
	}
	return &snapshotVerdict{phase: v1alpha1.SnapshotFailed, message: message, report: v.told(), jobs: v.all()}
}

func snapshotRead(v *snapshotView) *snapshotVerdict {
	job := lastJob(v.taking)
	if job == nil {
		return nil
	}
	how := ended(job, batchv1.JobComplete)
	switch {
	case how == nil:
		return nil
	case v.Now.Sub(how.LastTransitionTime.Time) < reportLag:
		return &snapshotVerdict{phase: v1alpha1.SnapshotRunning, message: "the Job is done; its report is waited for", jobs: v.all(), resync: patience}
	case jobNumber(job) >= mostReads, v.blocked() != "", validateSnapshot(&v.Snapshot.Spec) != nil:
		return nil
	}
	next := v.takingJob(jobNumber(job) + 1)
	return &snapshotVerdict{
		phase: v1alpha1.SnapshotRunning, message: "the Job is done, but its report is gone with its pod: what is stored is read again",
		progress: isMade(next), jobs: append(v.discarding, next), resync: patience,
	}
}

func snapshotTaking(v *snapshotView) *snapshotVerdict {
	job := lastJob(v.taking)
	if job == nil || over(job) {
		return nil
	}
	phase, message, resync := v.progress(job)
	return &snapshotVerdict{phase: phase, message: message, progress: message, report: v.told(), jobs: v.all(), resync: resync}
}

// blocked says what the Job that takes the snapshot can't begin without; empty for nothing.
func (v *snapshotView) blocked() string {
	c, name := v.cluster, v.Snapshot.Spec.Cluster
	switch {
	case c == nil:
		return fmt.Sprintf("there is no EtcdCluster %s in this namespace", name)
	case c.DeletionTimestamp != nil:
		return fmt.Sprintf("EtcdCluster %s is being deleted", name)
	}
	if err := v.Settings.validateImage(&c.Spec); err != nil { // the Job runs in that image
		return fmt.Sprintf("EtcdCluster %s can't be used: %s", name, err)
	}
	if available := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Available); available == nil {
		return fmt.Sprintf("EtcdCluster %s has just been made", name)
	} else if available.Status != metav1.ConditionTrue {
		return fmt.Sprintf("EtcdCluster %s is not available: %s", name, available.Message)
	}
	if len(clientEndpoints(c)) == 0 {
		return fmt.Sprintf("EtcdCluster %s has no voter that could be asked", name)
	}
	return ""
}

func snapshotUnsupported(v *snapshotView) *snapshotVerdict {
	if err := validateSnapshot(&v.Snapshot.Spec); err != nil {
		return &snapshotVerdict{phase: v1alpha1.SnapshotFailed, message: err.Error(), jobs: v.all()}
	}
	return nil
}

func (v *snapshotView) leftToBegin() time.Duration {
	return v.Snapshot.CreationTimestamp.Add(v.deadline()).Sub(v.Now)
}

func (v *snapshotView) deadline() time.Duration {
	return cmp.Or(v.Snapshot.Spec.Job.Deadline.Duration, time.Hour)
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

func snapshotPending(v *snapshotView) *snapshotVerdict {
	why := v.blocked()
	if why == "" {
		return nil
	}
	return &snapshotVerdict{phase: v1alpha1.SnapshotPending, message: why, jobs: v.all(), resync: v.leftToBegin()}
}

func snapshotTake(v *snapshotView) *snapshotVerdict {
	job := v.takingJob(1)
	return &snapshotVerdict{phase: v1alpha1.SnapshotPending, message: isMade(job), progress: isMade(job), jobs: append(v.discarding, job), resync: patience}
}

// ---- rules of one that is being deleted

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
			return v.deleting("the Job that takes the snapshot is stopped first", nil, patience)
		}
		if discard := lastJob(v.discarding); discard != nil && !endedAt(job).Before(discard.CreationTimestamp.Time) {
			return v.deleting("what is stored is deleted once more: the Job that took it ended later than thought", nil, patience)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Pods)) {
		if pod := v.Pods[name]; purpose(&pod.Spec) == ContainerSnapshot && v.oursByName(pod) && !v.gone(pod) {
			return v.deleting(fmt.Sprintf("pod %s still takes the snapshot, and is stopped first", name), nil, patience)
		}
	}
	return nil
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
func (v *snapshotView) gone(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.DeletionTimestamp != nil && v.Now.Sub(pod.DeletionTimestamp.Time) > lostAfter
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
	said := v.deleting("what is stored is deleted by Job "+job.Name, []*batchv1.Job{job}, patience)
	said.progress = isMade(job)
	return said
}

// deleting is a verdict on the way to the end.
func (v *snapshotView) deleting(message string, jobs []*batchv1.Job, resync time.Duration) *snapshotVerdict {
	return &snapshotVerdict{phase: v1alpha1.SnapshotDeleting, message: message, jobs: jobs, resync: resync}
}
