package hooks

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/reports"
)

// Revisions never go back from epoch to epoch (S21). A client that has seen a revision of an earlier epoch must not
// be answered by a later one as if nothing had happened: a watch would miss what happened, and a compare-and-swap
// could hit what somebody else wrote at the same revision. So an epoch begins above every revision that any epoch
// before it may have given out, and everything below is marked as compacted.
//
// How high those went is observed while a quorum answers, and noted on the record in coarse steps, so that it is
// known when none answers any more, and so that nothing is written at rest. The peer Service has a copy, for the day
// that somebody deletes the record.
//
// docs/decisions/0032-revisions.md has the whole argument.

const (
	// revisionGap is how far above what is known of the epochs before an epoch begins: more than anybody writes
	// between the last look at an epoch and its end (etcd's own advice, etcd.io, disaster recovery).
	revisionGap = 1_000_000_000
	// revisionStep is how coarsely revisions are noted.
	revisionStep = revisionGap / 2
)

// mostRevisions bounds them: far more than a cluster ever has, and so little that what is added never overflows.
const mostRevisions = 1 << 62

// noted is the next step above a revision.
func noted(revision int64) int64 {
	return (min(max(revision, 0), mostRevisions-revisionStep)/revisionStep + 1) * revisionStep
}

// highestRevision is above every revision that the epoch, or one before it, was seen to have given out. What it has
// given out since it was last seen is what revisionGap is for.
func (v *view) highestRevision() int64 {
	highest := max(noted(v.observedRevision()), v.notedRevision())
	if v.epoch == nil {
		return highest
	}
	for _, report := range v.seeds() {
		highest = max(highest, noted(report.Revision))
	}
	// What is known although nothing is noted: each epoch begins so much above the one before.
	return max(highest, v.epoch.highest, int64(v.epoch.n-1)*revisionGap)
}

// observedRevision is the highest that members of the epoch have told in this call; 0 for none.
func (v *view) observedRevision() int64 {
	var id uint64
	switch {
	case v.epoch == nil || v.Etcd != nil && v.unfit() != "":
	case v.Etcd != nil:
		id = v.Etcd.ClusterID
	default:
		id = v.epoch.clusterID
	}
	var highest int64
	for _, h := range v.Health {
		if h.Err == "" && h.ClusterID == id && id != 0 {
			highest = max(highest, h.Revision)
		}
	}
	return highest
}

// notedRevision is the copy on the peer Service; 0 for none.
func (v *view) notedRevision() int64 {
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		return revisionIn(peers.Annotations[objects.AnnotationHighestRevision])
	}
	return 0
}

// noteRevision is what is to be noted of that; empty while there is nothing that is not known anyway.
func (v *view) noteRevision() string {
	if highest := v.highestRevision(); highest > revisionStep {
		return strconv.FormatInt(highest, 10)
	}
	return ""
}

func revisionIn(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > mostRevisions {
		return 0
	}
	return n
}

// beginArgs tell what fills a data directory at which revision the epoch begins.
func (e *epoch) beginArgs() []string {
	switch {
	case e.bump == nil:
		return []string{fmt.Sprintf("--begin-after=%d", e.floor)}
	case *e.bump > 0:
		return []string{fmt.Sprintf("--bump-revision=%d", *e.bump)}
	}
	return nil
}

// outgrown reports whether the epoch that runs has come so near to where the next one is to begin that this must
// begin higher.
func (v *view) outgrown() bool {
	next := v.next.epoch
	return next.bump == nil && v.observedRevision() > next.floor+revisionGap/2
}

// passed reports whether the epoch that is being stopped has come as near to that. Without a quorum it can't, so not
// where the next one's data is fetched from a member.
func (v *view) passed() bool {
	next := v.next.epoch
	return next.bump == nil && next.member == "" && v.highestRevision() > next.floor+revisionGap/2
}

// seeds are the reports of what filled the data directories of the initial members, by name, as far as their pods
// show them.
func (v *view) seeds() map[string]*reports.Restore {
	reports := map[string]*reports.Restore{}
	for _, name := range v.epoch.initialNames() {
		if report := seedReport(v.Children.Pods[name]); report != nil {
			reports[name] = report
		}
	}
	return reports
}

// seedReport is what the pod's data directory was filled with; nil when it was not, or does not say.
func seedReport(pod *corev1.Pod) *reports.Restore {
	if !seeded(pod) {
		return nil
	}
	report, err := reports.Read[reports.Restore](seedStatus(pod).State.Terminated.Message)
	if err != nil || report.Revision == 0 {
		return nil
	}
	return report
}
