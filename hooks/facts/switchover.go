package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// Cancelled reports whether the next epoch is written down as one that is not to come.
func (f *Facts) Cancelled() bool {
	return f.Next != nil && f.Next.Epoch.Phase == record.PhaseCancelled
}

// RestoreInstead is what is to come in place of a restore that was taken back or changed when the epoch before was
// stopped already: without another wish the data that was there before.
func (f *Facts) RestoreInstead() (record.Origin, string) {
	if r := f.Asked.Restore; r != nil && f.Answered()[r.ID] == 0 {
		return f.RestoreSource(r)
	}
	return f.WayBack(v1beta1.RecoverFromSurvivor, true)
}

// StopsFirst reports whether there is no room for two epochs beside each other.
func (f *Facts) StopsFirst() bool {
	r := f.Asked.Restore
	return f.MayStopFirst(r) && r.ID == f.Next.Epoch.Restore
}

// MayStopFirst reports whether the restore may stop the epoch that runs before the next one is ready. On Memory that
// would take its data.
func (f *Facts) MayStopFirst(r *restore) bool {
	return r != nil && r.StopFirst && !f.Memory()
}

// Collides reports whether a member joined the epoch that runs under a number of the next one, in a call that did not
// see that yet (S9).
func (f *Facts) Collides() bool {
	return slices.ContainsFunc(f.Members, func(m *Member) bool {
		n, ours := objects.Ordinal(f.Cluster.Name, m.PodName)
		return ours && n >= f.Next.Epoch.First
	})
}

// ByRestore reports whether the next epoch is the answer to a restore, and not to a lost quorum.
func (f *Facts) ByRestore() bool {
	e := f.Next.Epoch
	return e.Restore != "" && e.Restore != f.Epoch.Restore
}

// LeavesNothing reports whether no pod of the epoch's members is seen, and no claim that was made for it. One of theirs
// may be that of a member that has joined the epoch before under the same number: it says of no later epoch that it is
// of it.
func (f *Facts) LeavesNothing() bool {
	for name := range f.Children.Pods {
		if f.InEpoch(name) {
			return false
		}
	}
	for name, claim := range f.Children.Claims {
		member, ours := MemberOfClaim(f.Cluster.Name, name)
		if ours && f.InEpoch(member) && MadeFor(claim) == f.Epoch.N {
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
func (f *Facts) RestoreWithdrawn() bool {
	return f.ByRestore() && f.Asked.Over(types.UID(f.Next.Epoch.Restore))
}

// LostBeforeStart are the initial members, none of which has begun, that have lost what was recorded for them to
// start on.
func (f *Facts) LostBeforeStart() []string {
	if !f.Epoch.Provisioned() {
		return nil
	}
	if f.HostPath() {
		return f.withoutNode()
	}
	return objects.Filter(f.Epoch.InitialNames(), func(name string) bool {
		if f.Memory() {
			pod := f.Children.Pods[name]
			return f.PodGone(pod) || f.Epoch.Recorded(name) != pod.UID
		}
		return !f.StorageUsable(name) || !f.MayBegin(name)
	})
}

// withoutNode are the members of an epoch that has not begun whose nodes the spec names no more.
func (f *Facts) withoutNode() []string {
	if f.Epoch.Began() {
		return nil
	}
	return objects.Filter(f.Epoch.InitialNames(), func(name string) bool {
		return !slices.Contains(f.Nodes(), string(f.Epoch.StartsOn[name]))
	})
}

// Preparing is what the next epoch waits for before this one is stopped; empty for nothing.
func (f *Facts) Preparing() string {
	if f.Choosing() {
		return f.BestSurvivor().Message
	}
	if waits := f.Next.Unprepared(); waits != "" {
		return waits
	}
	if late := f.LongEnding(); len(late) > 0 {
		return f.wordsForLongEnding(late)
	}
	return ""
}

// SeesAll reports whether the pods that are shown are as they were when the record of the epoch before was gone, or
// later.
func (f *Facts) SeesAll() bool {
	return slices.ContainsFunc(f.Epoch.InitialNames(), func(name string) bool {
		pod := f.Children.Pods[name]
		return pod != nil && pod.Annotations[objects.AnnotationPredecessorGone] != ""
	})
}

// Unprepared is what an epoch that is to take over waits for; empty when its members could begin.
func (f *Facts) Unprepared() string {
	if !f.Epoch.Provisioned() {
		return "creating what its members need: " + strings.Join(f.Epoch.InitialNames(), ", ")
	}
	if !f.Epoch.Filled() {
		return ""
	}
	if why := cmp.Or(f.Unfilled(), f.Differing()); why != "" {
		return why
	}
	if first := f.FirstToFill(); f.Epoch.FirstAlone() {
		unknown := "the snapshot's SHA-256"
		if f.Epoch.UnknownEnd() {
			unknown = "the end of the stream"
		}
		return fmt.Sprintf("filling the volume of %s%s first, because the others must get the same and %s is not known",
			first, f.WhyNotStarted(f.Children.Pods[first]), unknown)
	}
	var waits []string
	for _, name := range f.Epoch.InitialNames() {
		if pod := f.Children.Pods[name]; !Seeded(pod) {
			waits = append(waits, name+f.WhyNotStarted(pod))
		}
	}
	if len(waits) > 0 {
		return "filling the volumes of " + strings.Join(waits, ", ") + f.otherNodes()
	}
	if mute := f.withoutSeedReport(); len(mute) > 0 {
		return "waiting for the report of what was written to the volumes of " + strings.Join(mute, ", ")
	}
	return ""
}

// Unplaced reports whether a member that is tied to a named node is taken by none.
func (f *Facts) Unplaced() bool {
	return f.HostPath() && slices.ContainsFunc(f.Epoch.InitialNames(), func(name string) bool {
		pod := f.Children.Pods[name]
		return pod != nil && f.unscheduled(&Member{Pod: pod}) != ""
	})
}

// otherNodes is what to do about a node that takes no member; empty where none is tied to it.
func (f *Facts) otherNodes() string {
	if !f.Unplaced() {
		return ""
	}
	return "; if a node is gone for good, take it out of " + defaults.NodesField(&f.Cluster.Spec)
}

// Unfilled is which of the initial members could not be filled at its last try, and why; empty for none.
func (f *Facts) Unfilled() string {
	for _, name := range f.Epoch.InitialNames() {
		if report := SeedFailure(f.Children.Pods[name]); report != nil && !Seeded(f.Children.Pods[name]) {
			why := fmt.Sprintf("%s could not be filled (%s): %s", name, cmp.Or(report.Reason, "Failed"), report.Error)
			if report.Reason == "Damaged" && f.Epoch.Sum != "" {
				why += fmt.Sprintf("; %s found a database with the SHA-256 %s, which may have been overwritten "+
					"since: then %s", f.Epoch.FirstInitial(), f.Epoch.Sum, f.OtherwiseFilled())
			}
			return why
		}
	}
	return ""
}

// WhyNotStarted is why a pod does not begin, in brackets; empty for nothing known.
func (f *Facts) WhyNotStarted(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	if why := cmp.Or(f.unscheduled(&Member{Pod: pod}), Unpulled(&Member{Pod: pod})); why != "" {
		return " (" + why + ")"
	}
	return ""
}
