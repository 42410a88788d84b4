package volumes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// RoomOf is what a member's etcd is told that there is room for.
func RoomOf(v *state.View, member string) spec.Room {
	room := account(v, member)
	room.Quota = max(room.Quota, keptQuota(v, member, room.Quota))
	return room
}

// account is that of the volumes that the member has now.
func account(v *state.View, member string) spec.Room {
	s := &v.Cluster.Spec
	size := spec.StorageSize(s)
	if claim := v.Children.Claims[member]; claim != nil && v.OnClaims() {
		if has := VolumeSize(claim); !has.IsZero() {
			size = has
		}
	}
	on := spec.Volume{Size: size.Value(), Memory: v.Memory()}
	if wal := v.WALOf(member); wal != nil && v.HasWAL(member) {
		size = VolumeSize(wal)
		on.Log = size.Value()
	}
	room := spec.RoomOn(on, spec.LargestRequest(s.Options))
	room.Quota = spec.QuotaOn(s.Options, room)
	return room
}

// keptQuota is the larger quota that the member runs with, or those on as much room where it has no pod, while the
// database does not fit this one: writes would be refused at once (NOSPACE), or until keys are deleted. 0 for none.
func keptQuota(v *state.View, member string, quota int64) int64 {
	large := func(m *state.Member) bool {
		return m.PodName != "" && (m.Health.DBSize >= quota || m.Health.DBSizeInUse >= quota/10*9)
	}
	if !slices.ContainsFunc(v.Members, large) {
		return 0
	}
	if own := spec.Quota(v.Children.Pods[member]); own > 0 {
		return own
	}
	var runs int64
	for _, m := range v.Members {
		if m.Pod != nil && account(v, m.PodName).Quota == quota {
			runs = max(runs, spec.Quota(m.Pod))
		}
	}
	return runs
}

// QuotaDiffers reports whether etcd runs with another quota than its volume gives.
func QuotaDiffers(v *state.View, m *state.Member) (string, bool) {
	has, known := spec.QuotaOf(m.Pod)
	if !known || m.Claim == nil && v.OnClaims() {
		return "", false
	}
	wanted := RoomOf(v, m.PodName).Quota
	switch {
	case has == wanted:
		return "", false
	case v.Cluster.Spec.Options.QuotaBackendBytes != nil:
		return fmt.Sprintf("it runs with a quota of %s instead of %s", Mebibytes(has), Mebibytes(wanted)), true
	}
	return fmt.Sprintf("its volume allows a quota of %s instead of %s", Mebibytes(wanted), Mebibytes(has)), true
}

// KeptQuotas tells of members that keep a quota for which their volumes have no room; empty for none.
func KeptQuotas(v *state.View) string {
	var all wording.GroupedReasons
	for _, m := range v.Members {
		room := account(v, m.PodName).Quota
		if runs := spec.Quota(m.Pod); runs > room && RoomOf(v, m.PodName).Quota == runs {
			all.Add(m.PodName, fmt.Sprintf("its quota stays at %s, because its database does not fit one of %s: make the "+
				"database smaller, or raise %s", Mebibytes(runs), Mebibytes(room), larger(v)))
		}
	}
	return all.String()
}

// larger is what has to be for a larger quota.
func larger(v *state.View) string {
	if v.Cluster.Spec.Options.QuotaBackendBytes != nil {
		return "spec.options.quotaBackendBytes, for which spec.storage.size must have room"
	}
	return "spec.storage.size"
}

// MoreRoom reports whether the member will have more room by itself: its volumes grow, or a successor has larger ones.
func MoreRoom(v *state.View, member string) bool {
	return Roomier(v, member) || slices.ContainsFunc(Volumes(v, member),
		func(d *Volume) bool { return d.Growing() || d.Smaller() && !Stuck(v, d) })
}

// Roomier reports whether a successor of the member would have a larger volume than it has now.
func Roomier(v *state.View, member string) bool {
	wanted := spec.StorageSize(&v.Cluster.Spec)
	switch {
	case v.Memory():
		has := tmpfs(v.Children.Pods[member])
		return has != nil && has.Cmp(wanted) < 0
	case v.OnClaims() && Migrates(v):
		claim := v.Children.Claims[member]
		if claim == nil {
			return false
		}
		has := VolumeSize(claim)
		return has.Cmp(wanted) < 0
	}
	return false
}

// tmpfs is the size of the one that a pod has its data on; nil for none.
func tmpfs(pod *corev1.Pod) *resource.Quantity {
	if pod == nil {
		return nil
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == state.VolumeData && volume.EmptyDir != nil {
			return volume.EmptyDir.SizeLimit
		}
	}
	return nil
}
