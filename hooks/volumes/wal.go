package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/state"
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
func StorageUsable(v *state.View, member string) bool {
	if v.HostPath() {
		return v.HasPlace(member)
	}
	return !slices.ContainsFunc(v.MemberClaims(member),
		func(c *corev1.PersistentVolumeClaim) bool { return !v.Usable(c) })
}

// StartUIDs are the UIDs of all that the member would start on, by name: of its claims, or on Memory of its pod; on
// HostPath its node. Nil while something is missing.
func StartUIDs(v *state.View, member string) map[string]types.UID {
	if v.HostPath() {
		return AssignNodes(v, []string{member})
	}
	if v.Memory() {
		pod := v.Children.Pods[member]
		if pod == nil || pod.DeletionTimestamp != nil || !state.Gated(pod) {
			return nil
		}
		return map[string]types.UID{member: pod.UID}
	}
	if !StorageUsable(v, member) {
		return nil
	}
	uids := map[string]types.UID{}
	for _, c := range v.MemberClaims(member) {
		uids[c.Name] = c.UID
	}
	return uids
}

// claimNames are the names of the members' claims: those for their data, and those for their logs, where they have
// one or are to get one.
func claimNames(v *state.View, members []string, create func(string) bool) []string {
	var list []string
	for _, member := range members {
		list = append(list, member)
		if v.WALOf(member) != nil || create(member) && v.HasWAL(member) {
			list = append(list, state.WALClaim(member))
		}
	}
	return list
}

// WithWAL gives a new pod the volume for its write-ahead log.
func WithWAL(pod *corev1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, objects.ClaimVolume(VolumeWAL, state.WALClaim(pod.Name)))
	mount := corev1.VolumeMount{Name: VolumeWAL, MountPath: WALMount}
	etcd, trim, prepare := &pod.Spec.Containers[0], &pod.Spec.Containers[1], &pod.Spec.InitContainers[0]
	for _, c := range []*corev1.Container{etcd, trim, prepare} {
		c.VolumeMounts = append(c.VolumeMounts, mount)
	}
	etcd.Command = append(etcd.Command, "--wal-dir="+WALDir)
	trim.Args = append(trim.Args, "--wal-dir="+WALDir)
	prepare.Args = append(prepare.Args, "--wal-dir="+WALDir)
}
