package facts

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// When the next epoch begins, and with whose data.

// Beginning is where a new cluster's data comes from, or what that waits for.
func (f *Facts) Beginning() (record.Origin, string) {
	from := record.Origin{Source: record.SourceEmpty}
	snapshot := f.BeginsWith()
	if why, _ := f.EarlierLife(); why != "" {
		return from, why
	}
	if defaults.Joins(f.Cluster) {
		from.Source = record.SourceExternal
		return from, ""
	}
	if l := f.LatestSnapshot(); l != nil {
		return f.beginningWithLatest(from, l)
	}
	if snapshot == nil {
		return f.beginningWithClaims(from)
	}
	resolved, why := f.resolve(snapshot)
	if why != "" {
		return from, why
	}
	from.Source = record.SourceSnapshot
	from.Snapshot = resolved
	return from, ""
}

// BeginsWith is the snapshot that a new cluster begins with; nil for none.
func (f *Facts) BeginsWith() *v1beta1.SnapshotSource {
	if b := f.Cluster.Spec.Bootstrap; b != nil {
		return b.Snapshot
	}
	return nil
}

// RestoreSource is the data that a restore asks for, or what stands in its way.
func (f *Facts) RestoreSource(r *restore) (record.Origin, string) {
	from := record.Origin{Restore: r.ID}
	if n := f.Answered()[r.ID]; n != 0 {
		return from, fmt.Sprintf("epoch %d was begun for it already; create another EtcdOperation to restore again", n)
	}
	if f.BesideExternal() {
		return from, "Quorate does not restore while external members are in the cluster, because they would keep " +
			"their data"
	}
	if r.Snapshot != nil {
		resolved, why := f.resolve(r.Snapshot)
		from.Source = record.SourceSnapshot
		from.Snapshot = resolved
		return from, why
	}
	if r.Epoch == nil {
		return from, "it names no snapshot and no epoch"
	}
	from.Source = record.SourceSurvivor
	from.SurvivorsOf = int(*r.Epoch)
	switch {
	case from.SurvivorsOf == f.Epoch.N && !f.Ending():
		return from, fmt.Sprintf("epoch %d is running now", f.Epoch.N)
	case len(f.Survivors(from.SurvivorsOf)) == 0:
		return from, fmt.Sprintf("no volume of epoch %d is left%s", from.SurvivorsOf,
			f.WithoutReplaced(from.SurvivorsOf))
	}
	return from, ""
}

// WordsFor say where an epoch's data comes from.
func (f *Facts) WordsFor(from record.Origin) string {
	switch from.Source {
	case record.SourceSnapshot:
		return from.Snapshot.Words() + f.otherLife(from.Snapshot)
	case record.SourceSurvivor:
		if from.Member != "" {
			return "what " + from.Member + " has"
		}
		return fmt.Sprintf("the data of epoch %d", from.SurvivorsOf)
	case record.SourceClaims:
		return "the data of the claim " + from.Claim.Name
	}
	return "no data"
}

// otherLife says that a snapshot was not taken of the epoch that runs; empty when it was, or when it is not known.
func (f *Facts) otherLife(s *record.Resolved) string {
	if f.Epoch == nil || !f.Epoch.HadQuorum() || s.ClusterID == "" || s.ClusterID == objects.Hex(f.Epoch.ClusterID) {
		return ""
	}
	return fmt.Sprintf(" (of an earlier etcd cluster, %s; that of epoch %d is %s)", s.ClusterID, f.Epoch.N,
		objects.Hex(f.Epoch.ClusterID))
}

// recoveryDue reports whether a recovery that a person asks for is due: at once when the quorum's data is lost, else
// after the wait.
func (f *Facts) recoveryDue() bool { return len(f.QuorumIsLost()) > 0 || !f.Now.Before(f.LostUntil()) }

// RecoverBy is the policy for a lost quorum, and whether an operation asks for it now, for this very epoch.
func (f *Facts) RecoverBy() (policy v1beta1.QuorumLoss, asked bool) {
	if op := f.Asked.Recovery(f.Epoch.N); op != nil {
		return op.Spec.Recover.Policy, true
	}
	return cmp.Or(f.Cluster.Spec.Recovery.QuorumLoss, v1beta1.RecoverManual), false
}

// recoverCommand is the command that starts the way back. To begin without data it must be said twice.
func (f *Facts) recoverCommand(policy v1beta1.QuorumLoss) string {
	command := fmt.Sprintf("kubectl quorate recover -n %s %s %s", f.Cluster.Namespace, f.Cluster.Name, policy)
	if policy == v1beta1.RecoverRecreate {
		command += " --yes"
	}
	return command
}

// LostUntil is when the quorum has been seen lost for long enough. Without the time in the status the wait begins
// again.
func (f *Facts) LostUntil() time.Time {
	c := meta.FindStatusCondition(f.Cluster.Status.Conditions, v1beta1.Available)
	if c == nil || c.Status != metav1.ConditionFalse {
		return f.Now.Add(defaults.RecoverAfter(&f.Cluster.Spec))
	}
	return Later(c.LastTransitionTime.Time, f.watchedSince()).Add(defaults.RecoverAfter(&f.Cluster.Spec))
}

// QuorumIsLost are the voters whose data is gone, when with it a quorum is; none while one can come back.
func (f *Facts) QuorumIsLost() []string {
	known := f.KnownVoters()
	lost := objects.Filter(known, func(name string) bool { return !f.HasData(name) })
	if len(known) == 0 || len(known)-len(lost) >= Quorum(len(known)) {
		return nil
	}
	return lost
}

// WithoutNodes are the voters whose nodes have not answered for spec.recovery.after, when without them there is no
// quorum; none while one can come back without these nodes.
func (f *Facts) WithoutNodes() []string {
	known := f.KnownVoters()
	out := objects.Filter(known, func(name string) bool {
		pod := f.Children.Pods[name]
		return pod != nil && nodeGone(pod, f.Now)
	})
	if len(known)-len(out) >= Quorum(len(known)) || f.Now.Before(f.LostUntil()) {
		return nil
	}
	return out
}

// MayHaveQuorum reports whether so many members have data that they could be a quorum. The status, which says who
// voted last, may be one of long ago (S14): nothing is begun by itself, and no member's memory is given up, because
// voters of then are gone.
func (f *Facts) MayHaveQuorum() bool {
	data := f.MayVote()
	joining := objects.Filter(data, func(name string) bool {
		return f.toldToJoin(name) &&
			!slices.Contains(f.KnownVoters(), name)
	})
	// Those who are joining vote together with all others or not yet: each that votes makes the quorum larger too.
	voters := len(f.KnownVoters())
	return len(data)-len(joining) >= Quorum(voters) || len(data) >= Quorum(voters+len(joining))
}

// MayVote are the members that have data and may vote. Not those whose etcd has never run in the pod that they have,
// when that pod is still told which members to join, or has found no log (it was made, while no quorum answered, for
// one that has not run yet). Nor those that etcd has let go, whose claims are kept: no pod is ever made on these; nor
// those whose claims no pod has ever used.
func (f *Facts) MayVote() []string {
	return objects.Filter(f.Names, func(name string) bool {
		pod := f.Children.Pods[name]
		empty := pod != nil && NeverRan(pod) && (f.toldToJoin(name) || PrepareRefused(pod))
		claim := f.Children.Claims[name]
		gone := pod == nil && claim != nil && (Quarantined(claim) || neverBound(claim))
		return f.HasData(name) && !empty && !gone
	})
}

// toldToJoin reports whether a member's pod is still told which members to join, or waits to be: then it is a learner,
// or was one until a moment ago, or is to be. None is promoted before that is taken from its pod ([promote]).
func (f *Facts) toldToJoin(name string) bool {
	pod := f.Children.Pods[name]
	return pod != nil && PodStart(pod) == objects.StartJoin && (objects.MayBegin(pod) || WaitsToJoin(pod))
}

// besideOthers is why no epoch takes over from one that has external members: Quorate does not stop those.
const besideOthers = "the cluster still has external members, which would keep running; remove them first " +
	"(spec.removeExternalMembers)"

// Prepared is how far the next epoch has come.
func (f *Facts) Prepared() (reason, message string) {
	if f.Ending() {
		return "Stopping", fmt.Sprintf("epoch %d is stopping or has ended; epoch %d begins next", f.Epoch.N,
			f.Next.Epoch.N)
	}
	waits := f.Preparing()
	if waits == "" {
		return "Preparing", fmt.Sprintf("epoch %d is ready", f.Next.Epoch.N)
	}
	beside := ""
	if f.Etcd != nil {
		beside = fmt.Sprintf(", and epoch %d runs on", f.Epoch.N)
	}
	return "Preparing", fmt.Sprintf("preparing epoch %d%s: %s", f.Next.Epoch.N, beside, waits) + f.unfollowed()
}

// unfollowed says how a restore is taken back whose operation is gone, and can't be deleted any more; empty for none.
func (f *Facts) unfollowed() string {
	id := f.Next.Epoch.Restore
	gone := !slices.ContainsFunc(f.Asked.Open, func(op *v1beta1.EtcdOperation) bool { return string(op.UID) == id })
	if !f.ByRestore() || !gone {
		return ""
	}
	return "; the EtcdOperation that asked for it is gone; another one of type Restore takes its place: delete that one " +
		"to cancel the restore"
}

// answers is whether the epoch that runs has the data of the restore that it began for, as its record says.
func (f *Facts) answers() (reason, message string, is bool) {
	if why := f.Differing(); why != "" {
		return "Differing", why, false
	}
	if f.Epoch.Filled() && !f.Epoch.HadQuorum() && f.Etcd == nil {
		return "Starting", fmt.Sprintf("epoch %d has begun with the restored data, and has no quorum yet", f.Epoch.N), false
	}
	words := fmt.Sprintf("epoch %d began with the restored data", f.Epoch.N)
	if f.Epoch.StreamEnd != "" {
		words += "; " + f.Epoch.StreamEnd
	}
	return "Restored", words, true
}
