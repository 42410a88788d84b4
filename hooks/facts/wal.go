package facts

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// VolumeWAL is the volume of a member's pod for the write-ahead log.
	VolumeWAL = "wal"
	// WALMount is where that is mounted.
	WALMount = "/var/lib/etcd-wal"
	// WALDir is where a member with a volume of its own for it has the write-ahead log; its parent is the volume.
	WALDir = WALMount + "/wal"
)

// StorageUsable reports whether the member's pod may be started on all that it stands on.
func (f *Facts) StorageUsable(member string) bool {
	if f.HostPath() {
		return f.HasPlace(member)
	}
	return !slices.ContainsFunc(f.MemberClaims(member),
		func(c *corev1.PersistentVolumeClaim) bool { return !f.Usable(c) })
}
