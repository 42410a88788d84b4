package facts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// Survivors are the members of an epoch whose volumes are all there. One that was given up does not count: it was
// unreachable for long, or proven wrong. A person who knows better takes the annotation failed-member off its claim; or
// puts it on one that is not to count.
func (f *Facts) Survivors(epoch int) []string {
	return objects.Filter(f.membersWithVolumes(epoch), func(name string) bool { return !f.givenUp(name) })
}

// givenUp reports whether a member was given up, or is proven wrong. One that was about to be removed for its silence
// when the quorum was lost is neither: it may have the most.
func (f *Facts) givenUp(member string) bool {
	return slices.ContainsFunc([]string{member, WALClaim(member)}, func(name string) bool {
		claim := f.All.Claims[name]
		return OfFailedMember(claim) &&
			(Quarantined(claim) || claim.Annotations[objects.AnnotationFailedMember] != objects.FailedUnreachable)
	})
}

// WithoutReplaced names the members of an epoch whose volumes are there and do not count; empty for none.
func (f *Facts) WithoutReplaced(epoch int) string {
	if all := objects.Filter(f.membersWithVolumes(epoch), func(member string) bool {
		return f.givenUp(member)
	}); len(all) > 0 {
		return fmt.Sprintf(" (%s was replaced before: its volume counts only if you remove the annotation %s)",
			strings.Join(all, ", "), objects.AnnotationFailedMember)
	}
	return ""
}

// membersWithVolumes are the members of an epoch whose volumes are all there. One whose volume was never bound has
// none.
func (f *Facts) membersWithVolumes(epoch int) []string {
	var list []string
	for _, name := range slices.SortedFunc(maps.Keys(f.All.Claims), objects.ByOrdinal) {
		n, member := objects.Ordinal(f.Cluster.Name, name)
		claim := f.All.Claims[name]
		wal := f.All.Claims[WALClaim(name)]
		going := claim.DeletionTimestamp != nil || wal != nil && wal.DeletionTimestamp != nil
		if !member || !f.Ours(claim) || neverBound(claim) || going {
			continue
		}
		of := objects.ReadMark(claim.Annotations[objects.AnnotationEpoch])
		if of == 0 && n >= f.Epoch.First && (f.Next == nil || n < f.Next.Epoch.First) {
			of = f.Epoch.N
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
