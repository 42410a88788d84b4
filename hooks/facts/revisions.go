package facts

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Revisions never go back from epoch to epoch (S21). A client that has seen a revision of an earlier epoch must not
// be answered by a later one as if nothing had happened: a watch would miss what happened, and a compare-and-swap
// could hit what another client wrote at the same revision. So an epoch begins above every revision that any epoch
// before it may have given out, and everything below is marked as compacted.
//
// How high those went is observed while a quorum answers, and noted on the record in coarse steps, so that it is
// known when none answers any more, and so that nothing is written at rest. The peer Service has a copy, in case the
// record is deleted.
//
// docs/decisions/0032-revisions.md has the whole argument.

const (
	// RevisionGap is how far above what is known of the epochs before an epoch begins: more than clients write
	// between the last look at an epoch and its end (etcd's own advice, etcd.io, disaster recovery).
	RevisionGap = 1_000_000_000
	// RevisionStep is how coarsely revisions are noted.
	RevisionStep = RevisionGap / 2
)

// Noted is the next step above a revision.
func Noted(revision int64) int64 {
	return (min(max(revision, 0), record.MostRevisions-RevisionStep)/RevisionStep + 1) * RevisionStep
}

// HighestRevision is above every revision that the epoch, or one before it, was seen to have given out. What it has
// given out since it was last seen is what RevisionGap is for.
func (f *Facts) HighestRevision() int64 {
	highest := max(Noted(f.ObservedRevision()), f.notedRevision())
	if f.Epoch == nil {
		return highest
	}
	for _, report := range f.seeds() {
		highest = max(highest, Noted(report.Revision))
	}
	// What is known although nothing is noted: each epoch begins so much above the one before.
	return max(highest, f.Epoch.Highest, int64(f.Epoch.N-1)*RevisionGap)
}

// ObservedRevision is the highest that members of the epoch have told in this call; 0 for none.
func (f *Facts) ObservedRevision() int64 {
	var id uint64
	switch {
	case f.Epoch == nil || f.Etcd != nil && f.Unfit() != "":
	case f.Etcd != nil:
		id = f.Etcd.ClusterID
	default:
		id = f.Epoch.ClusterID
	}
	var highest int64
	for _, h := range f.Health {
		if h.Err == "" && h.ClusterID == id && id != 0 {
			highest = max(highest, h.Revision)
		}
	}
	return highest
}

// notedRevision is the copy on the peer Service; 0 for none.
func (f *Facts) notedRevision() int64 {
	if peers := f.Children.Services[objects.PeerService(f.Cluster.Name)]; peers != nil {
		return RevisionIn(peers.Annotations[objects.AnnotationHighestRevision])
	}
	return 0
}

// Outgrown reports whether the epoch that runs has come so near to where the next one is to begin that this must
// begin higher.
func (f *Facts) Outgrown() bool {
	return f.ObservedRevision() > f.Next.Epoch.Floor+RevisionGap/2
}

// Passed reports whether the epoch that is being stopped has come as near to that. Without a quorum it can't, so not
// where the next one's data is fetched from a member.
func (f *Facts) Passed() bool {
	next := f.Next.Epoch
	return next.Member == "" && f.HighestRevision() > next.Floor+RevisionGap/2
}

// seeds are the reports of what filled the data directories of the initial members, by name, as far as their pods
// show them.
func (f *Facts) seeds() map[string]*stores.Restore {
	told := map[string]*stores.Restore{}
	for _, name := range f.Epoch.InitialNames() {
		if report := SeedReport(f.Children.Pods[name]); report != nil {
			told[name] = report
		}
	}
	return told
}

// SeedReport is what the pod's data directory was filled with; nil when it was not, or does not say.
func SeedReport(pod *corev1.Pod) *stores.Restore {
	if !Seeded(pod) {
		return nil
	}
	report, err := stores.Read[stores.Restore](seedStatus(pod).State.Terminated.Message)
	if err != nil || report.Revision == 0 {
		return nil
	}
	return report
}
