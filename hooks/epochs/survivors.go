package epochs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Survivors are the members of an epoch whose volumes are all there. One that was given up does not count: it was
// silent for long, or proven wrong. A person who knows better takes the annotation failed-member off its claim; or
// puts it on one that is not to count.
func Survivors(v *state.View, epoch int) []string {
	return wording.Filter(membersWithVolumes(v, epoch), func(name string) bool { return !givenUp(v, name) })
}

// givenUp reports whether a member was given up, or is proven wrong. One that was about to be removed for its silence
// when the quorum was lost is neither: it may have the most.
func givenUp(v *state.View, member string) bool {
	return slices.ContainsFunc([]string{member, state.WALClaim(member)}, func(name string) bool {
		claim := v.All.Claims[name]
		return state.OfFailedMember(claim) &&
			(state.Quarantined(claim) || claim.Annotations[objects.AnnotationFailedMember] != objects.FailedSilent)
	})
}

// WithoutGivenUp names the members of an epoch whose volumes are there and do not count; empty for none.
func WithoutGivenUp(v *state.View, epoch int) string {
	if all := wording.Filter(membersWithVolumes(v, epoch), func(member string) bool {
		return givenUp(v,
			member)
	}); len(all) > 0 {
		return fmt.Sprintf(" (%s was replaced before: its volume counts only if you remove the annotation %s)",
			strings.Join(all, ", "), objects.AnnotationFailedMember)
	}
	return ""
}

// membersWithVolumes are the members of an epoch whose volumes are all there. One whose volume was never bound has
// none.
func membersWithVolumes(v *state.View, epoch int) []string {
	var list []string
	for _, name := range slices.SortedFunc(maps.Keys(v.All.Claims), wording.ByOrdinal) {
		n, member := objects.Ordinal(v.Cluster.Name, name)
		claim, wal := v.All.Claims[name], v.All.Claims[state.WALClaim(name)]
		going := claim.DeletionTimestamp != nil || wal != nil && wal.DeletionTimestamp != nil
		if !member || !v.Ours(claim) || neverBound(claim) || going {
			continue
		}
		of := objects.ReadMark(claim.Annotations[objects.AnnotationEpoch])
		if of == 0 && n >= v.Epoch.First && (v.Next == nil || n < v.Next.Epoch.First) {
			of = v.Epoch.N
		}
		if of == epoch {
			list = append(list, name)
		}
	}
	return list
}

// neverBound reports whether no pod has ever mounted the claim's volume: it has none, and none is meant for it. What is
// Lost was bound. An old view can't hide that there is one: volumes are looked at when their claims are seen in
// quarantine, which comes after the last pod.
func neverBound(claim *corev1.PersistentVolumeClaim) bool {
	s := &claim.Spec
	return claim.Status.Phase == corev1.ClaimPending && s.VolumeName == "" && s.DataSource == nil &&
		s.DataSourceRef == nil
}
