// Package epochs has the record of where a cluster's data comes from, and how one epoch takes over from another.
package epochs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Cancelled reports whether the next epoch is written down as one that is not to come.
func Cancelled(v *state.View) bool {
	return v.Next != nil && v.Next.Epoch.Phase == record.PhaseCancelled
}

// RestoreInstead is what is to come in place of a restore that was taken back or changed when the epoch before was
// stopped already: without another wish the data that was there before.
func RestoreInstead(v *state.View) (record.Origin, string) {
	if r := v.Asked.Restore; r != nil && Answered(v)[r.ID] == 0 {
		return RestoreSource(v, r)
	}
	from, why := WayBack(v, v1alpha1.RecoverFromSurvivor, true)
	from.Bump = nil // nothing is lost
	return from, why
}

// StopsFirst reports whether there is no room for two epochs beside each other.
func StopsFirst(v *state.View) bool {
	r := v.Asked.Restore
	return MayStopFirst(v, r) && r.ID == v.Next.Epoch.Restore
}

// MayStopFirst reports whether the restore may stop the epoch that runs before the next one is ready. On Memory that
// would take its data.
func MayStopFirst(v *state.View, r *state.Restore) bool {
	return r != nil && r.StopFirst && !v.Memory()
}

// Collides reports whether a member joined the epoch that runs under a number of the next one, in a call that did not
// see that yet (S9).
func Collides(v *state.View) bool {
	return slices.ContainsFunc(v.Members, func(m *state.Member) bool {
		n, ours := objects.Ordinal(v.Cluster.Name, m.PodName)
		return ours && n >= v.Next.Epoch.First
	})
}

// ByRestore reports whether the next epoch is the answer to a restore, and not to a lost quorum.
func ByRestore(v *state.View) bool {
	e := v.Next.Epoch
	return e.Restore != "" && e.Restore != v.Epoch.Restore
}

// LeavesNothing reports whether no pod of the epoch's members is seen, and no claim that was made for it. One of theirs
// may be that of a member that has joined the epoch before under the same number: it says of no later epoch that it is
// of it.
func LeavesNothing(v *state.View) bool {
	for name := range v.Children.Pods {
		if state.InEpoch(v, name) {
			return false
		}
	}
	for name, claim := range v.Children.Claims {
		member, ours := state.MemberOfClaim(v.Cluster.Name, name)
		if ours && state.InEpoch(v, member) && MadeFor(claim) == v.Epoch.N {
			return false
		}
	}
	return true
}

// MadeFor is the number of the epoch that a claim was made for.
func MadeFor(claim *corev1.PersistentVolumeClaim) int {
	return max(1, objects.ReadMark(claim.Annotations[objects.AnnotationEpoch]))
}

// RestoreWithdrawn reports whether the next epoch is no longer asked for: its operation is being deleted, or has ended
// as failed, or will. One that is not seen may be there.
func RestoreWithdrawn(v *state.View) bool {
	return ByRestore(v) && v.Asked.Over(types.UID(v.Next.Epoch.Restore))
}

// LostBeforeStart are the initial members, none of which has begun, that have lost what was recorded for them to
// start on.
func LostBeforeStart(v *state.View) []string {
	if !v.Epoch.Provisioned() {
		return nil
	}
	if v.HostPath() {
		return withoutNode(v)
	}
	return wording.Filter(v.Epoch.InitialNames(), func(name string) bool {
		if v.Memory() {
			pod := v.Children.Pods[name]
			return v.PodGone(pod) || v.Epoch.Recorded(name) != pod.UID
		}
		return !volumes.StorageUsable(v, name) || !state.MayBegin(v, name)
	})
}

// withoutNode are the members of an epoch that has not begun whose nodes the spec names no more.
func withoutNode(v *state.View) []string {
	if v.Epoch.Began() {
		return nil
	}
	return wording.Filter(v.Epoch.InitialNames(), func(name string) bool {
		return !slices.Contains(v.Nodes(), string(v.Epoch.StartsOn[name]))
	})
}

// Staging is what the next epoch waits for before this one is stopped; empty for nothing.
func Staging(v *state.View) string {
	if v.Choosing() {
		return BestSurvivor(v).message
	}
	if waits := Unstaged(v.Next); waits != "" {
		return waits
	}
	if late := LongEnding(v); len(late) > 0 {
		return wordsForLongEnding(v, late)
	}
	return ""
}

// SeesAll reports whether the pods that are shown are as they were when the record of the epoch before was gone, or
// later.
func SeesAll(v *state.View) bool {
	return slices.ContainsFunc(v.Epoch.InitialNames(), func(name string) bool {
		pod := v.Children.Pods[name]
		return pod != nil && pod.Annotations[objects.AnnotationPredecessorGone] != ""
	})
}

// Unstaged is what an epoch that is to take over waits for; empty when its members could begin.
func Unstaged(v *state.View) string {
	if !v.Epoch.Provisioned() {
		return "creating what its members need: " + strings.Join(v.Epoch.InitialNames(), ", ")
	}
	if !v.Epoch.Filled() {
		return ""
	}
	if why := cmp.Or(Unfilled(v), Differing(v)); why != "" {
		return why
	}
	if first := FirstToFill(v); v.Epoch.FirstAlone() {
		unknown := "the snapshot's SHA-256"
		if v.Epoch.UnknownEnd() {
			unknown = "the end of the stream"
		}
		return fmt.Sprintf("filling the volume of %s%s first, because the others must get the same and %s is not known",
			first, WhyNotStarted(v, v.Children.Pods[first]), unknown)
	}
	var waits []string
	for _, name := range v.Epoch.InitialNames() {
		if pod := v.Children.Pods[name]; !Seeded(pod) {
			waits = append(waits, name+WhyNotStarted(v, pod))
		}
	}
	if len(waits) > 0 {
		return "filling the volumes of " + strings.Join(waits, ", ") + otherNodes(v)
	}
	if mute := withoutSeedReport(v); len(mute) > 0 {
		return "waiting for the report of what was written to the volumes of " + strings.Join(mute, ", ")
	}
	return ""
}

// Unplaced reports whether a member that is tied to a named node is taken by none.
func Unplaced(v *state.View) bool {
	return v.HostPath() && slices.ContainsFunc(v.Epoch.InitialNames(), func(name string) bool {
		pod := v.Children.Pods[name]
		return pod != nil && pods.Unscheduled(v, &state.Member{Pod: pod}) != ""
	})
}

// otherNodes is what to do about a node that takes no member; empty where none is tied to it.
func otherNodes(v *state.View) string {
	if !Unplaced(v) {
		return ""
	}
	return "; if a node is gone for good, take it out of " + spec.NodesField(&v.Cluster.Spec)
}

// Unfilled is which of the initial members could not be filled at its last try, and why; empty for none.
func Unfilled(v *state.View) string {
	for _, name := range v.Epoch.InitialNames() {
		if report := SeedFailure(v.Children.Pods[name]); report != nil && !Seeded(v.Children.Pods[name]) {
			why := fmt.Sprintf("%s could not be filled (%s): %s", name, cmp.Or(report.Reason, "Failed"), report.Error)
			if report.Reason == "Damaged" && v.Epoch.Sum != "" {
				why += fmt.Sprintf("; %s found a database with the SHA-256 %s, which may have been overwritten "+
					"since: then %s", v.Epoch.FirstInitial(), v.Epoch.Sum, OtherwiseFilled(v))
			}
			return why
		}
	}
	return ""
}

// WhyNotStarted is why a pod does not begin, in brackets; empty for nothing known.
func WhyNotStarted(v *state.View, pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	if why := cmp.Or(pods.Unscheduled(v, &state.Member{Pod: pod}), state.Unpulled(&state.Member{Pod: pod})); why != "" {
		return " (" + why + ")"
	}
	return ""
}
