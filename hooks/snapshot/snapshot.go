// Package snapshot decides what becomes of an EtcdSnapshot: one Job takes it, and says what it did in its pod's
// termination message. Nothing here talks to etcd or to the store.
//
// That a snapshot is not taken twice does not hang on the status, which can be lost (S14): the Job that took it stays
// for an hour, which is longer than any cache lags, and a Job that runs later finds the file that says what is stored
// under the snapshot's one key, and reports that. So a Job may be repeated at any time; it then reads instead of
// writing.
//
// What is stored whole is not given up because it could not be verified: it is then Unverified, which is neither
// Succeeded nor Failed. A Job that ended without a word, as at its deadline, may have stored something, so another one
// looks before anything is said.
package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Observation is everything that a decision about an EtcdSnapshot may depend on.
type Observation struct {
	// Snapshot is the parent as Metacontroller sent it. Its cache may lag behind the API server.
	Snapshot *v1beta1.EtcdSnapshot
	// Jobs are the parent's children, by name.
	Jobs map[string]*batchv1.Job
	// Pods that carry the snapshot's name in LabelSnapshot, and EtcdClusters of the namespace, by name, its own among
	// them: see [Pods].
	Pods     map[string]*corev1.Pod
	Clusters map[string]*v1beta1.EtcdCluster
	// Now is the time of the call.
	Now time.Time
	// Images are where the installation has them from.
	Images objects.Images
	// AllowedEndpoints are where an etcd may be that Quorate does not run. Nil allows none.
	AllowedEndpoints *objects.AllowedEndpoints
	// Labelled are the Secrets of the namespace that have objects.LabelExternal.
	Labelled map[string]bool
}

// Decision is the answer to an observation.
type Decision struct {
	// Jobs are complete: an observed Job that is not among them will be deleted. One that was observed carries its UID.
	Jobs []*batchv1.Job
	// Status replaces the parent's status whole.
	Status v1beta1.EtcdSnapshotStatus
	// ResyncAfter is when to ask again at the latest; 0 leaves it to the controller's resync period.
	ResyncAfter time.Duration
	// Reason is the rule that fired.
	Reason decision.Reason
	// Finalized lets a snapshot that is being deleted go.
	Finalized bool
}

// plan is what a rule says.
type plan struct {
	phase   v1beta1.SnapshotPhase
	message string
	// progress and failure are remembered in the status, and forgotten by a plan that has none.
	progress, failure string
	// jobs that should exist from now on.
	jobs []*batchv1.Job
	// report of the Job, when it has told what it did.
	report *stores.Snapshot
	// stays: the status is as it was; tells: except the message.
	stays, tells bool
	finalized    bool
	resync       time.Duration
}

// takingRules are the rules for a snapshot that is not being deleted, in order.
var takingRules = decision.Rules[*view, *plan]{
	decision.NewRule("Finished",
		"A snapshot that is finished stays so; a Job that went well goes an hour later, one that failed stays, so "+
			"that its log can be read.", finished),
	decision.NewRule("Succeeded",
		"What the Job reports to have stored, and verified if that was asked for, is written down.", succeeded),
	decision.NewRule("Skipped", "Nothing had changed since what spec.unless tells of: nothing was stored.", skipped),
	decision.NewRule("ReadAgain",
		"A Job that is done, and whose report is gone with its pod, is run again: it reads what is stored.", readAgain),
	decision.NewRule("Taking", "The Job runs, or waits for what its pod needs.", taking),
	decision.NewRule("Unsupported", "A spec that the API server would refuse makes no Job.", unsupported),
	decision.NewRule("Inspect",
		"Before a snapshot is given up, whose Job may have stored something without a word, one more Job looks, and "+
			"takes nothing.", inspect),
	decision.NewRule("Unverified",
		"A snapshot that is given up and stored whole is kept, and not verified; the message says why.", stored),
	decision.NewRule("Failed",
		"The Job has used up its retries or its time, or could not begin within spec.job.deadline, and nothing is "+
			"stored.", failed),
	decision.NewRule("Pending",
		"A snapshot waits for its cluster to be there and to have a quorum; one of another etcd, for the installation "+
			"to allow its endpoints.", pending),
	decision.NewRule("Take",
		"One Job takes the snapshot, with the etcd image of the cluster, or of the version in spec.external.", take),
}

// endingRules are the rules for one that is being deleted, in order.
var endingRules = decision.Rules[*view, *plan]{
	decision.NewRule("Retained",
		"With deletionPolicy Retain, or with the annotation etcd.quorate.dev/abandon-artifact, the stored artifact "+
			"stays, and nothing is waited for.", retained),
	decision.NewRule("NothingStored",
		"A snapshot that was skipped, or whose spec is one that the API server refuses, has stored nothing.", nothingStored),
	decision.NewRule("InUse",
		"What an EtcdCluster restores, or is about to, is not deleted before that is done, or given up.", inUse),
	decision.NewRule("Stopping", "Who still takes the snapshot is stopped first: it could store after the deletion.", stopping),
	decision.NewRule("Deleted", "What was stored is deleted.", deleted),
	decision.NewRule("Abandoned",
		"A snapshot that never stored anything does not wait for a store that can't be reached, and none waits for "+
			"a Job that can't be made.", abandoned),
	decision.NewRule("Locked",
		"A store that keeps the artifact by a retention of its own is not waited for: the status says until when, and "+
			"five minutes later the snapshot goes without it.", locked),
	decision.NewRule("DeleteFailed",
		"A deletion that failed is tried again, after a pause that grows to half an hour.", deleteFailed),
	decision.NewRule("Deleting", "The Job that deletes what is stored runs.", deleting),
	decision.NewRule("Delete", "One Job deletes what is stored.", deleteStored),
}

// Times of snapshots.
const (
	// resyncLater is how soon to ask again while something must happen that we can't see. A deadline ends all of that.
	resyncLater = time.Duration(decision.ResyncLater)
	// jobKept is how long a Job that went well is kept: for its log, and so that no cache that lags shows neither it
	// nor what it did.
	jobKept = time.Hour
	// reportLag is how long the pod of a Job that is done is waited for.
	reportLag = 30 * time.Second
	// mostReads is how often a report that is lost is asked for again.
	mostReads = 3
	// lostAfter is how long a pod may take to end after its time, before its node is taken to be lost.
	lostAfter = 5 * time.Minute
	// unmadeAfter is how long a Job that can't be made is waited for, as in a namespace that is being deleted. Nothing
	// is lost by going: what is stored stays.
	unmadeAfter = 5 * time.Minute
	// lockedShown is how long the status of a snapshot says that its store keeps the artifact, before it goes.
	lockedShown = 5 * time.Minute
	// shortestRetry and longestRetry are between Jobs that delete.
	shortestRetry, longestRetry = time.Minute, 30 * time.Minute
)

// Decide decides what becomes of an EtcdSnapshot. Like [Decide] it is pure, total and deterministic.
func Decide(o Observation) Decision {
	v := newView(o)
	rules := takingRules
	if o.Snapshot.DeletionTimestamp != nil {
		rules = endingRules
	}
	at, p := rules.First(v)
	d := Decision{
		Jobs: p.jobs, ResyncAfter: max(0, p.resync), Finalized: p.finalized,
		Reason: decision.Reason{Rule: rules[at].Name, Message: p.message},
	}
	d.Status = v.status(p)
	return d
}

func finished(v *view) *plan {
	p := &plan{message: v.Snapshot.Status.Message, stays: true, jobs: v.all()}
	switch v.Snapshot.Status.Phase {
	default:
		return nil
	case v1beta1.SnapshotFailed, v1beta1.SnapshotUnverified:
		return p
	case v1beta1.SnapshotSucceeded, v1beta1.SnapshotSkipped:
	}
	p.jobs = nil
	for _, job := range v.all() {
		if job.Status.CompletionTime == nil && !over(job) {
			p.jobs = append(p.jobs, job) // a moment more
			continue
		}
		left := jobKept
		if at := job.Status.CompletionTime; at != nil {
			left = at.Add(jobKept).Sub(v.Now)
		}
		if left > 0 {
			p.jobs = append(p.jobs, job)
			p.resync = left
		}
	}
	return p
}

func succeeded(v *view) *plan {
	report := v.report(func(r *stores.Snapshot) bool {
		return r.URI != "" && r.Error == "" && (!r.VerifiedAt.IsZero() || !verifies(v.Snapshot))
	})
	if report == nil {
		return nil
	}
	return &plan{phase: v1beta1.SnapshotSucceeded, message: whatIsStored(report), report: report, jobs: v.all(),
		resync: resyncLater}
}

func skipped(v *view) *plan {
	report := v.report(func(r *stores.Snapshot) bool { return r.Skipped })
	if report == nil {
		return nil
	}
	message := fmt.Sprintf("no snapshot was needed: nothing has changed since (keys at revision %d, users and roles "+
		"at revision %d)", report.Revision, report.AuthRevision)
	return &plan{phase: v1beta1.SnapshotSkipped, message: message, report: report, jobs: v.all(),
		resync: resyncLater}
}

// givenUp says why no Job goes on to take the snapshot, and whether the last one has told what came of it; empty while
// one may.
func (v *view) givenUp() (why string, told bool) {
	job := lastJob(v.taking)
	if job != nil {
		if how := ended(job, batchv1.JobFailed); how != nil {
			return v.whyFailed(job, how), v.heard(job, how)
		}
		if jobNumber(job) >= mostReads {
			return fmt.Sprintf("Job %s is done, but its report can't be read, %s in a row; its log may show more",
				job.Name, objects.Count(mostReads, "time")), false
		}
	}
	if blocked := v.blocked(); blocked != "" && v.leftToBegin() <= 0 {
		return fmt.Sprintf("it could not begin within %s (spec.job.deadline): %s", duration(v.deadline()), blocked),
			false
	}
	return "", false
}

// why a snapshot is given up. While it is looked up what is stored, the status has it: the last words of the Job may be
// gone.
func (v *view) why(now string) string { return cmp.Or(v.Snapshot.Status.Failure, now) }

func inspect(v *view) *plan {
	why, told := v.givenUp()
	if why == "" || told {
		return nil
	}
	why = v.why(why)
	if v.storeUnagreed() != "" {
		return nil
	}
	p := &plan{
		phase: v1beta1.SnapshotRunning, failure: why, message: why + "; checking whether anything was stored: ",
		report: v.told(), jobs: v.all(), resync: resyncLater,
	}
	inspection := v.inspection()
	if inspection != nil && !over(inspection) {
		_, p.progress, p.resync = v.progress(inspection)
		p.message += p.progress
		return p
	}
	if inspection != nil {
		done := ended(inspection, batchv1.JobComplete)
		switch {
		case done == nil || v.hasInspected(inspection):
			return nil
		case v.Now.Sub(done.LastTransitionTime.Time) < reportLag:
			p.message += "waiting for its report"
			return p
		case jobNumber(inspection) >= mostReads:
			return nil
		}
	}
	next := v.inspectJob()
	p.progress = isMade(next)
	p.jobs = slices.Concat(v.deleting, v.taking, []*batchv1.Job{next})
	p.message += p.progress
	return p
}

func stored(v *view) *plan {
	why, _ := v.givenUp()
	if why == "" {
		return nil
	}
	report := v.told()
	s := v.Snapshot.Status
	if report != nil {
		fill(&s, &v.Snapshot.Spec.Store, report)
	}
	if s.URI == "" {
		return nil
	}
	message := fmt.Sprintf("not verified: %s; the stored artifact stays: revision %d or later, %s stored as %s", v.why(why),
		s.Revision, s.Size, s.StoredSize)
	return &plan{phase: v1beta1.SnapshotUnverified, message: message, report: report, jobs: v.all()}
}

func failed(v *view) *plan {
	why, _ := v.givenUp()
	if why == "" {
		return nil
	}
	message := v.why(why)
	if inspection := v.inspection(); inspection != nil && !v.hasInspected(inspection) {
		lost := "its report is lost"
		if vain := ended(inspection, batchv1.JobFailed); vain != nil {
			lost = v.whyFailed(inspection, vain)
		}
		message += "; the check whether anything was stored failed: " + lost
	}
	return &plan{phase: v1beta1.SnapshotFailed, message: message, report: v.told(), jobs: v.all()}
}

func readAgain(v *view) *plan {
	job := lastJob(v.taking)
	if job == nil {
		return nil
	}
	how := ended(job, batchv1.JobComplete)
	switch {
	case how == nil:
		return nil
	case v.Now.Sub(how.LastTransitionTime.Time) < reportLag:
		return &plan{phase: v1beta1.SnapshotRunning, message: "the Job is done; waiting for its report",
			jobs: v.all(), resync: resyncLater}
	case jobNumber(job) >= mostReads, v.blocked() != "", validate(&v.Snapshot.Spec) != nil:
		return nil
	}
	next := v.takingJob(jobNumber(job) + 1)
	return &plan{
		phase: v1beta1.SnapshotRunning, message: "the Job is done, but its report is gone with its pod: reading the " +
			"stored artifact again",
		progress: isMade(next), jobs: append(v.deleting, next), resync: resyncLater,
	}
}

func taking(v *view) *plan {
	job := lastJob(v.taking)
	if job == nil || over(job) {
		return nil
	}
	phase, message, resync := v.progress(job)
	return &plan{phase: phase, message: message, progress: message, report: v.told(), jobs: v.all(), resync: resync}
}

func unsupported(v *view) *plan {
	if err := validate(&v.Snapshot.Spec); err != nil {
		return &plan{phase: v1beta1.SnapshotFailed, message: err.Error(), jobs: v.all()}
	}
	return nil
}

func (v *view) leftToBegin() time.Duration {
	return v.Snapshot.CreationTimestamp.Add(v.deadline()).Sub(v.Now)
}

func (v *view) deadline() time.Duration {
	return cmp.Or(v.Snapshot.Spec.Job.Deadline.Duration, time.Hour)
}

func pending(v *view) *plan {
	why := v.blocked()
	if why == "" {
		return nil
	}
	return &plan{phase: v1beta1.SnapshotPending, message: why, jobs: v.all(), resync: v.leftToBegin()}
}

func take(v *view) *plan {
	job := v.takingJob(1)
	return &plan{phase: v1beta1.SnapshotPending, message: isMade(job), progress: isMade(job),
		jobs: append(v.deleting, job), resync: resyncLater}
}
