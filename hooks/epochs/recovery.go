package epochs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// When the next epoch begins, and with whose data.

// Beginning is where a new cluster's data comes from, or what that waits for.
func Beginning(v *state.View) (record.Origin, string) {
	from := record.Origin{Source: record.SourceEmpty}
	snapshot := BeginsWith(v)
	if why, _ := EarlierLife(v); why != "" {
		return from, why
	}
	if spec.Joins(v.Cluster) {
		from.Source = record.SourceExisting
		return from, ""
	}
	if snapshot == nil {
		return beginningWithClaims(v, from)
	}
	resolved, why := resolve(v, snapshot)
	if why != "" {
		return from, why
	}
	from.Source, from.Snapshot, from.Bump = record.SourceSnapshot, resolved, snapshot.BumpRevision
	return from, ""
}

// BeginsWith is the snapshot that a new cluster begins with; nil for none.
func BeginsWith(v *state.View) *v1alpha1.SnapshotSource {
	if b := v.Cluster.Spec.Bootstrap; b != nil {
		return b.Snapshot
	}
	return nil
}

// RestoreSource is the data that a restore asks for, or what stands in its way.
func RestoreSource(v *state.View, r *state.Restore) (record.Origin, string) {
	from := record.Origin{Restore: r.ID}
	if n := Answered(v)[r.ID]; n != 0 {
		return from, fmt.Sprintf("epoch %d was begun for it already; create another EtcdOperation to restore again", n)
	}
	if v.BesideForeign() {
		return from, "Quorate does not restore while foreign members are in the cluster, because they would keep " +
			"their data"
	}
	if r.Snapshot != nil {
		resolved, why := resolve(v, r.Snapshot)
		from.Source, from.Snapshot, from.Bump = record.SourceSnapshot, resolved, r.Snapshot.BumpRevision
		return from, why
	}
	if r.Epoch == nil {
		return from, "it names no snapshot and no epoch"
	}
	from.Source, from.SurvivorsOf = record.SourceSurvivor, int(*r.Epoch)
	switch {
	case from.SurvivorsOf == v.Epoch.N && !v.Ending():
		return from, fmt.Sprintf("epoch %d is running now", v.Epoch.N)
	case len(Survivors(v, from.SurvivorsOf)) == 0:
		return from, fmt.Sprintf("no volume of epoch %d is left%s", from.SurvivorsOf,
			WithoutGivenUp(v, from.SurvivorsOf))
	}
	return from, ""
}

// WordsFor say where an epoch's data comes from.
func WordsFor(v *state.View, from record.Origin) string {
	switch from.Source {
	case record.SourceSnapshot:
		return from.Snapshot.Words() + ofAnotherLife(v, from.Snapshot)
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

// ofAnotherLife says that a snapshot was not taken of the epoch that runs; empty when it was, or when it is not known.
func ofAnotherLife(v *state.View, s *record.Resolved) string {
	if v.Epoch == nil || !v.Epoch.HadQuorum() || s.ClusterID == "" || s.ClusterID == wording.Hex(v.Epoch.ClusterID) {
		return ""
	}
	return fmt.Sprintf(" (of an earlier etcd cluster, %s; that of epoch %d is %s)", s.ClusterID, v.Epoch.N,
		wording.Hex(v.Epoch.ClusterID))
}

// RecoveryDue reports whether a recovery that a person asks for is due: at once when the quorum's data is lost, else
// after the wait.
func RecoveryDue(v *state.View) bool { return len(QuorumIsLost(v)) > 0 || !v.Now.Before(LostUntil(v)) }

// MayComeBack waits for a quorum before the next epoch is recorded. While its data is there only a person may ask for
// that, and maybe did so long ago, for another trouble.
func MayComeBack(v *state.View, policy v1alpha1.QuorumLoss, lost []string) *decision.Verdict {
	at := LostUntil(v).UTC().Format("15:04:05 UTC")
	why := fmt.Sprintf("the data of %s is gone, and with it the quorum; by spec.recovery", strings.Join(lost, ", "))
	if len(lost) == 0 {
		why = "no quorum answers, although its data exists; as an EtcdOperation of type Recover asks"
	}
	return &decision.Verdict{Message: fmt.Sprintf("%s, %s begins at %s unless a quorum comes back", why, policy, at),
		Resync: rule.ResyncLater}
}

// RecoverBy is the policy for a lost quorum, and whether an operation asks for it now, for this very epoch.
func RecoverBy(v *state.View) (policy v1alpha1.QuorumLoss, asked bool) {
	if op := v.Asked.Recovery(v.Epoch.N); op != nil {
		return op.Spec.Recover.Policy, true
	}
	return cmp.Or(v.Cluster.Spec.Recovery.QuorumLoss, v1alpha1.RecoverManual), false
}

// recoverCommand is the command that starts the way back.
func recoverCommand(v *state.View, policy v1alpha1.QuorumLoss) string {
	return fmt.Sprintf("kubectl quorate recover -n %s %s %s", v.Cluster.Namespace, v.Cluster.Name, policy)
}

// LostUntil is when the quorum has been seen lost for long enough. Without the time in the status the wait begins
// again.
func LostUntil(v *state.View) time.Time {
	c := meta.FindStatusCondition(v.Cluster.Status.Conditions, v1alpha1.Available)
	if c == nil || c.Status != metav1.ConditionFalse {
		return v.Now.Add(spec.RecoverAfter(&v.Cluster.Spec))
	}
	return state.Later(c.LastTransitionTime.Time, state.WatchedSince(v)).Add(spec.RecoverAfter(&v.Cluster.Spec))
}

// QuorumIsLost are the voters whose data is gone, when with it a quorum is; none while one can come back.
func QuorumIsLost(v *state.View) []string {
	known := state.KnownVoters(v)
	lost := wording.Filter(known, func(name string) bool { return !state.HasData(v, name) })
	if len(known) == 0 || len(known)-len(lost) >= state.Quorum(len(known)) {
		return nil
	}
	return lost
}

// MayHaveQuorum reports whether so many members have data that they could be a quorum. The status, which says who
// voted last, may be one of long ago (S14): nothing is begun by itself, and no member's memory is given up, because
// voters of then are gone.
func MayHaveQuorum(v *state.View) bool {
	data := MayVote(v)
	joining := wording.Filter(data, func(name string) bool {
		return toldToJoin(v, name) &&
			!slices.Contains(state.KnownVoters(v), name)
	})
	// Those who are joining vote together with all others or not yet: each that votes makes the quorum larger too.
	voters := len(state.KnownVoters(v))
	return len(data)-len(joining) >= state.Quorum(voters) || len(data) >= state.Quorum(voters+len(joining))
}

// MayVote are the members that have data and may vote. Not those whose etcd has never run in the pod that they have,
// when that pod is still told which members to join, or has found no log (it was made, while no quorum answered, for
// one that has not run yet). Nor those that etcd has let go, whose claims are kept: no pod is ever made on these.
func MayVote(v *state.View) []string {
	return wording.Filter(v.Names, func(name string) bool {
		pod := v.Children.Pods[name]
		empty := pod != nil && state.NeverRan(pod) && (toldToJoin(v, name) || state.PrepareRefused(pod))
		gone := pod == nil && state.Quarantined(v.Children.Claims[name])
		return state.HasData(v, name) && !empty && !gone
	})
}

// toldToJoin reports whether a member's pod is still told which members to join: then it is a learner, or was one until
// a moment ago. None is promoted before that is taken from its pod ([promote]).
func toldToJoin(v *state.View, name string) bool {
	pod := v.Children.Pods[name]
	return pod != nil && state.PodStart(pod) == objects.StartJoin && objects.MayBegin(pod)
}

// besideOthers is why no epoch takes over from one that has foreign members: Quorate does not stop those.
const besideOthers = "the cluster still has foreign members, which would keep running; remove them first " +
	"(spec.bootstrap.existing.retireForeign)"

// Staged is how far the next epoch has come.
func Staged(v *state.View) (reason, message string) {
	if v.Ending() {
		return "Stopping", fmt.Sprintf("epoch %d is being stopped or is over; epoch %d is about to begin", v.Epoch.N,
			v.Next.Epoch.N)
	}
	waits := Staging(v)
	if waits == "" {
		return "Staging", fmt.Sprintf("epoch %d is ready", v.Next.Epoch.N)
	}
	beside := ""
	if v.Etcd != nil {
		beside = fmt.Sprintf(", and epoch %d runs on", v.Epoch.N)
	}
	return "Staging", fmt.Sprintf("preparing epoch %d%s: %s", v.Next.Epoch.N, beside, waits) + unfollowed(v)
}

// unfollowed says how a restore is taken back whose operation is gone, and can't be deleted any more; empty for none.
func unfollowed(v *state.View) string {
	id := v.Next.Epoch.Restore
	gone := !slices.ContainsFunc(v.Asked.Open, func(op *v1alpha1.EtcdOperation) bool { return string(op.UID) == id })
	if !ByRestore(v) || !gone {
		return ""
	}
	return "; the EtcdOperation that asked for it is gone: another one of type Restore takes its place, and that one can " +
		"be deleted"
}

// Answers is whether the epoch that runs has the data of the restore that it began for, as its record says.
func Answers(v *state.View) (reason, message string, is bool) {
	if why := Differing(v); why != "" {
		return "Differing", why, false
	}
	if v.Epoch.Filled() && !v.Epoch.HadQuorum() && v.Etcd == nil {
		return "Starting", fmt.Sprintf("epoch %d has begun with the restored data, and has no quorum yet", v.Epoch.N), false
	}
	words := fmt.Sprintf("epoch %d began with the restored data", v.Epoch.N)
	if v.Epoch.StreamEnd != "" {
		words += "; " + v.Epoch.StreamEnd
	}
	return "Restored", words, true
}
