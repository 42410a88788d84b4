package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// Cancelled reports whether the next epoch is written down as one that is not to come.
func (v *Facts) Cancelled() bool {
	return v.Next != nil && v.Next.Epoch.Phase == record.PhaseCancelled
}

// RestoreInstead is what is to come in place of a restore that was taken back or changed when the epoch before was
// stopped already: without another wish the data that was there before.
func (v *Facts) RestoreInstead() (record.Origin, string) {
	if r := v.Asked.Restore; r != nil && v.Answered()[r.ID] == 0 {
		return v.RestoreSource(r)
	}
	from, why := v.WayBack(v1alpha1.RecoverFromSurvivor, true)
	from.Bump = nil // nothing is lost
	return from, why
}

// StopsFirst reports whether there is no room for two epochs beside each other.
func (v *Facts) StopsFirst() bool {
	r := v.Asked.Restore
	return v.MayStopFirst(r) && r.ID == v.Next.Epoch.Restore
}

// MayStopFirst reports whether the restore may stop the epoch that runs before the next one is ready. On Memory that
// would take its data.
func (v *Facts) MayStopFirst(r *restore) bool {
	return r != nil && r.StopFirst && !v.Memory()
}

// Collides reports whether a member joined the epoch that runs under a number of the next one, in a call that did not
// see that yet (S9).
func (v *Facts) Collides() bool {
	return slices.ContainsFunc(v.Members, func(m *Member) bool {
		n, ours := objects.Ordinal(v.Cluster.Name, m.PodName)
		return ours && n >= v.Next.Epoch.First
	})
}

// ByRestore reports whether the next epoch is the answer to a restore, and not to a lost quorum.
func (v *Facts) ByRestore() bool {
	e := v.Next.Epoch
	return e.Restore != "" && e.Restore != v.Epoch.Restore
}

// LeavesNothing reports whether no pod of the epoch's members is seen, and no claim that was made for it. One of theirs
// may be that of a member that has joined the epoch before under the same number: it says of no later epoch that it is
// of it.
func (v *Facts) LeavesNothing() bool {
	for name := range v.Children.Pods {
		if v.InEpoch(name) {
			return false
		}
	}
	for name, claim := range v.Children.Claims {
		member, ours := MemberOfClaim(v.Cluster.Name, name)
		if ours && v.InEpoch(member) && MadeFor(claim) == v.Epoch.N {
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
func (v *Facts) RestoreWithdrawn() bool {
	return v.ByRestore() && v.Asked.Over(types.UID(v.Next.Epoch.Restore))
}

// LostBeforeStart are the initial members, none of which has begun, that have lost what was recorded for them to
// start on.
func (v *Facts) LostBeforeStart() []string {
	if !v.Epoch.Provisioned() {
		return nil
	}
	if v.HostPath() {
		return v.withoutNode()
	}
	return objects.Filter(v.Epoch.InitialNames(), func(name string) bool {
		if v.Memory() {
			pod := v.Children.Pods[name]
			return v.PodGone(pod) || v.Epoch.Recorded(name) != pod.UID
		}
		return !v.StorageUsable(name) || !v.MayBegin(name)
	})
}

// withoutNode are the members of an epoch that has not begun whose nodes the spec names no more.
func (v *Facts) withoutNode() []string {
	if v.Epoch.Began() {
		return nil
	}
	return objects.Filter(v.Epoch.InitialNames(), func(name string) bool {
		return !slices.Contains(v.Nodes(), string(v.Epoch.StartsOn[name]))
	})
}

// Staging is what the next epoch waits for before this one is stopped; empty for nothing.
func (v *Facts) Staging() string {
	if v.Choosing() {
		return v.BestSurvivor().Message
	}
	if waits := v.Next.Unstaged(); waits != "" {
		return waits
	}
	if late := v.LongEnding(); len(late) > 0 {
		return v.wordsForLongEnding(late)
	}
	return ""
}

// SeesAll reports whether the pods that are shown are as they were when the record of the epoch before was gone, or
// later.
func (v *Facts) SeesAll() bool {
	return slices.ContainsFunc(v.Epoch.InitialNames(), func(name string) bool {
		pod := v.Children.Pods[name]
		return pod != nil && pod.Annotations[objects.AnnotationPredecessorGone] != ""
	})
}

// Unstaged is what an epoch that is to take over waits for; empty when its members could begin.
func (v *Facts) Unstaged() string {
	if !v.Epoch.Provisioned() {
		return "creating what its members need: " + strings.Join(v.Epoch.InitialNames(), ", ")
	}
	if !v.Epoch.Filled() {
		return ""
	}
	if why := cmp.Or(v.Unfilled(), v.Differing()); why != "" {
		return why
	}
	if first := v.FirstToFill(); v.Epoch.FirstAlone() {
		unknown := "the snapshot's SHA-256"
		if v.Epoch.UnknownEnd() {
			unknown = "the end of the stream"
		}
		return fmt.Sprintf("filling the volume of %s%s first, because the others must get the same and %s is not known",
			first, v.WhyNotStarted(v.Children.Pods[first]), unknown)
	}
	var waits []string
	for _, name := range v.Epoch.InitialNames() {
		if pod := v.Children.Pods[name]; !Seeded(pod) {
			waits = append(waits, name+v.WhyNotStarted(pod))
		}
	}
	if len(waits) > 0 {
		return "filling the volumes of " + strings.Join(waits, ", ") + v.otherNodes()
	}
	if mute := v.withoutSeedReport(); len(mute) > 0 {
		return "waiting for the report of what was written to the volumes of " + strings.Join(mute, ", ")
	}
	return ""
}

// Unplaced reports whether a member that is tied to a named node is taken by none.
func (v *Facts) Unplaced() bool {
	return v.HostPath() && slices.ContainsFunc(v.Epoch.InitialNames(), func(name string) bool {
		pod := v.Children.Pods[name]
		return pod != nil && v.unscheduled(&Member{Pod: pod}) != ""
	})
}

// otherNodes is what to do about a node that takes no member; empty where none is tied to it.
func (v *Facts) otherNodes() string {
	if !v.Unplaced() {
		return ""
	}
	return "; if a node is gone for good, take it out of " + defaults.NodesField(&v.Cluster.Spec)
}

// Unfilled is which of the initial members could not be filled at its last try, and why; empty for none.
func (v *Facts) Unfilled() string {
	for _, name := range v.Epoch.InitialNames() {
		if report := SeedFailure(v.Children.Pods[name]); report != nil && !Seeded(v.Children.Pods[name]) {
			why := fmt.Sprintf("%s could not be filled (%s): %s", name, cmp.Or(report.Reason, "Failed"), report.Error)
			if report.Reason == "Damaged" && v.Epoch.Sum != "" {
				why += fmt.Sprintf("; %s found a database with the SHA-256 %s, which may have been overwritten "+
					"since: then %s", v.Epoch.FirstInitial(), v.Epoch.Sum, v.OtherwiseFilled())
			}
			return why
		}
	}
	return ""
}

// WhyNotStarted is why a pod does not begin, in brackets; empty for nothing known.
func (v *Facts) WhyNotStarted(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	if why := cmp.Or(v.unscheduled(&Member{Pod: pod}), Unpulled(&Member{Pod: pod})); why != "" {
		return " (" + why + ")"
	}
	return ""
}
