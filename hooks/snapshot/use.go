package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Who restores a snapshot: what is stored is not deleted under a restore that reads it, or is about to.

// Restorable reports whether a snapshot may be restored by its name. One that is stored and was not verified is, once a
// person has set spec.verify to false.
func Restorable(s *v1beta1.EtcdSnapshot) bool {
	if s.Status.URI == "" {
		return false
	}
	return s.Status.Phase == v1beta1.SnapshotSucceeded || s.Status.Phase == v1beta1.SnapshotUnverified && !verifies(s)
}

// Unrestorable says why it may not.
func Unrestorable(s *v1beta1.EtcdSnapshot) string {
	if s.Status.Phase == v1beta1.SnapshotUnverified {
		return fmt.Sprintf("EtcdSnapshot %s is Unverified; to restore it anyway: kubectl patch -n %s "+
			"etcdsnapshot/%s --type=merge -p '{\"spec\":{\"verify\":false}}'", s.Name, s.Namespace, s.Name)
	}
	return fmt.Sprintf("EtcdSnapshot %s is %s, not Succeeded", s.Name, cmp.Or(s.Status.Phase, v1beta1.SnapshotPending))
}

// verifies reports whether the snapshot should be restored on trial.
func verifies(s *v1beta1.EtcdSnapshot) bool { return s.Spec.Verify == nil || *s.Spec.Verify }

// users are the EtcdClusters that restore the snapshot, or are about to.
func (v *view) users() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(v.Clusters)) {
		if uses(v.Clusters[name], v.Snapshot) {
			all = append(all, name)
		}
	}
	return all
}

// uses reports whether a cluster restores a snapshot: its members are being filled with it or about to, or it begins
// with it.
func uses(c *v1beta1.EtcdCluster, s *v1beta1.EtcdSnapshot) bool {
	names := func(from *v1beta1.SnapshotSource) bool { return from != nil && from.SnapshotRef.Name == s.Name }
	b := c.Spec.Bootstrap
	switch {
	case c.DeletionTimestamp != nil:
		return false
	case s.Status.URI != "" && slices.ContainsFunc(c.Status.Internal.Restoring, func(url string) bool {
		return sameArtifact(url,
			s.Status.URI)
	}):
		return true
	}
	return b != nil && names(b.Snapshot) && c.Status.ClusterID == "" && c.Status.Epoch <= 1
}

// sameArtifact compares URLs without their queries, which say how a store is reached.
func sameArtifact(a, b string) bool {
	a, _, _ = strings.Cut(a, "?")
	b, _, _ = strings.Cut(b, "?")
	return a == b
}
