package hooks

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// A member may have a second claim, for its write-ahead log alone. What it stands on is both, then: it starts when
// both are there, it may begin empty only when both are recorded, and when one is lost its data is. (etcd with its
// data and an empty log begins anew, under its old identity.) Whether a member has one is decided once, by the spec
// that it was made for, and noted in the epoch record; another spec makes new members.

const (
	walSuffix = "-wal"
	volumeWAL = "wal"
	walMount  = "/var/lib/etcd-wal"
	// WALDir is where a member with a volume of its own for it has the write-ahead log; its parent is the volume.
	WALDir = walMount + "/wal"
)

// WALClaim names the claim for a member's write-ahead log.
func WALClaim(member string) string { return member + walSuffix }

// memberOfClaim is the member that a claim belongs to, by its name; false for a name that is not of a member's claim.
func memberOfClaim(cluster, claim string) (member string, ours bool) {
	member = strings.TrimSuffix(claim, walSuffix)
	_, ours = objects.Ordinal(cluster, member)
	return member, ours
}

// wantsWAL reports whether the spec asks for a volume of its own for the write-ahead log.
func (v *view) wantsWAL() bool { return v.Cluster.Spec.Storage.WAL != nil && v.onClaims() }

// hasWAL reports whether the member has, or is to be made with, a claim for its write-ahead log.
func (v *view) hasWAL(member string) bool {
	switch {
	case !v.onClaims():
		return false
	case v.epoch.recorded(WALClaim(member)) != "":
		return true
	case v.epoch.recorded(member) != "":
		return false
	}
	provisioning := v.epoch != nil && !v.epoch.provisioned() && v.epoch.initial[member] != ""
	if m := v.find(member); provisioning || m != nil && v.mayBeMade(m) {
		return v.wantsWAL()
	}
	// The record was deleted, and made again without what it knew.
	return v.ours(v.walOf(member)) || slices.Contains(claimsIn(v.Children.Pods[member]), WALClaim(member))
}

func (v *view) walOf(member string) *corev1.PersistentVolumeClaim {
	return v.Children.Claims[WALClaim(member)]
}

// memberClaims are the claims that the member stands on; nil in the place of one that is not there.
func (v *view) memberClaims(member string) []*corev1.PersistentVolumeClaim {
	list := []*corev1.PersistentVolumeClaim{v.Children.Claims[member]}
	if v.hasWAL(member) {
		list = append(list, v.walOf(member))
	}
	return list
}

// storageUsable reports whether the member's pod may be started on all that it stands on.
func (v *view) storageUsable(member string) bool {
	if v.hostPath() {
		return v.nodeOf(member) != ""
	}
	return !slices.ContainsFunc(v.memberClaims(member),
		func(c *corev1.PersistentVolumeClaim) bool { return !v.usable(c) })
}

// claimBeingDeleted reports whether something that the member stands on is being deleted.
func (v *view) claimBeingDeleted(member string) bool {
	return slices.ContainsFunc(v.memberClaims(member),
		func(c *corev1.PersistentVolumeClaim) bool { return v.ours(c) && c.DeletionTimestamp != nil })
}

// mayBegin reports whether the member may begin with nothing on the claims that there are.
func (v *view) mayBegin(member string) bool {
	if v.hostPath() {
		return v.epoch.recorded(member) != ""
	}
	return !slices.ContainsFunc(v.memberClaims(member), func(c *corev1.PersistentVolumeClaim) bool {
		return c == nil || !v.epoch.mayStartEmpty(c.Name, c.UID)
	})
}

// startUIDs are the UIDs of all that the member would start on, by name: of its claims, or on Memory of its pod; on
// HostPath its node. Nil while something is missing.
func (v *view) startUIDs(member string) map[string]types.UID {
	if v.hostPath() {
		return v.assignNodes([]string{member})
	}
	if v.memory() {
		pod := v.Children.Pods[member]
		if pod == nil || pod.DeletionTimestamp != nil || !gated(pod) {
			return nil
		}
		return map[string]types.UID{member: pod.UID}
	}
	if !v.storageUsable(member) {
		return nil
	}
	uids := map[string]types.UID{}
	for _, c := range v.memberClaims(member) {
		uids[c.Name] = c.UID
	}
	return uids
}

// claimsIn are the claims that the pod names.
func claimsIn(pod *corev1.Pod) []string {
	var list []string
	if pod == nil {
		return nil
	}
	for i := range pod.Spec.Volumes {
		if c := pod.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
			list = append(list, c.ClaimName)
		}
	}
	return list
}

// claimNames are the names of the members' claims: those for their data, and those for their logs, where they have
// one or are to get one.
func (v *view) claimNames(members []string, create func(string) bool) []string {
	var list []string
	for _, member := range members {
		list = append(list, member)
		if v.walOf(member) != nil || create(member) && v.hasWAL(member) {
			list = append(list, WALClaim(member))
		}
	}
	return list
}

// withWAL gives a new pod the volume for its write-ahead log.
func withWAL(pod *corev1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volumeWAL, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: WALClaim(pod.Name)},
	}})
	mount := corev1.VolumeMount{Name: volumeWAL, MountPath: walMount}
	etcd, prepare := &pod.Spec.Containers[0], &pod.Spec.InitContainers[0]
	etcd.VolumeMounts = append(etcd.VolumeMounts, mount)
	prepare.VolumeMounts = append(prepare.VolumeMounts, mount)
	etcd.Command = append(etcd.Command, "--wal-dir="+WALDir)
	prepare.Args = append(prepare.Args, "--wal-dir="+WALDir)
}
