package facts

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// RoomOf is what a member's etcd is told that there is room for.
func (v *Facts) RoomOf(member string) defaults.Room {
	room := v.account(member)
	room.Quota = max(room.Quota, v.keptQuota(member, room.Quota))
	return room
}

// account is that of the volumes that the member has now.
func (v *Facts) account(member string) defaults.Room {
	s := &v.Cluster.Spec
	size := defaults.StorageSize(s)
	if claim := v.Children.Claims[member]; claim != nil && v.OnClaims() {
		if has := volumeSize(claim); !has.IsZero() {
			size = has
		}
	}
	on := defaults.Volume{Size: size.Value(), Memory: v.Memory()}
	if wal := v.WALOf(member); wal != nil && v.HasWAL(member) {
		size = volumeSize(wal)
		on.Log = size.Value()
	}
	room := defaults.RoomOn(on, defaults.LargestRequest(s.Options))
	room.Quota = defaults.QuotaOn(s.Options, room)
	return room
}

// keptQuota is the larger quota that the member runs with, or those on as much room where it has no pod, while the
// database does not fit this one: writes would be refused at once (NOSPACE), or until keys are deleted. 0 for none.
func (v *Facts) keptQuota(member string, quota int64) int64 {
	large := func(m *Member) bool {
		return m.PodName != "" && (m.Health.DBSize >= quota || m.Health.DBSizeInUse >= quota/10*9)
	}
	if !slices.ContainsFunc(v.Members, large) {
		return 0
	}
	if own := defaults.Quota(v.Children.Pods[member]); own > 0 {
		return own
	}
	var runs int64
	for _, m := range v.Members {
		if m.Pod != nil && v.account(m.PodName).Quota == quota {
			runs = max(runs, defaults.Quota(m.Pod))
		}
	}
	return runs
}

// QuotaDiffers reports whether etcd runs with another quota than its volume gives.
func (v *Facts) quotaDiffers(m *Member) (string, bool) {
	has, known := defaults.QuotaOf(m.Pod)
	if !known || m.Claim == nil && v.OnClaims() {
		return "", false
	}
	wanted := v.RoomOf(m.PodName).Quota
	switch {
	case has == wanted:
		return "", false
	case v.Cluster.Spec.Options.QuotaBackendBytes != nil:
		return fmt.Sprintf("it runs with a quota of %s instead of %s", Mebibytes(has), Mebibytes(wanted)), true
	}
	return fmt.Sprintf("its volume allows a quota of %s instead of %s", Mebibytes(wanted), Mebibytes(has)), true
}

// KeptQuotas tells of members that keep a quota for which their volumes have no room; empty for none.
func (v *Facts) KeptQuotas() string {
	var all objects.GroupedReasons
	for _, m := range v.Members {
		room := v.account(m.PodName).Quota
		if runs := defaults.Quota(m.Pod); runs > room && v.RoomOf(m.PodName).Quota == runs {
			all.Add(m.PodName, fmt.Sprintf("its quota stays at %s, because its database does not fit one of %s: make the "+
				"database smaller, or raise %s", Mebibytes(runs), Mebibytes(room), v.larger()))
		}
	}
	return all.String()
}

// larger is what has to be for a larger quota.
func (v *Facts) larger() string {
	if v.Cluster.Spec.Options.QuotaBackendBytes != nil {
		return "spec.options.quotaBackendBytes, for which spec.storage.size must have room"
	}
	return "spec.storage.size"
}

// MoreRoom reports whether the member will have more room by itself: its volumes grow, or a successor has larger ones.
func (v *Facts) MoreRoom(member string) bool {
	return v.Roomier(member) || slices.ContainsFunc(v.Volumes(member),
		func(d *volume) bool { return d.Growing() || d.Smaller() && !v.Stuck(d) })
}

// Roomier reports whether a successor of the member would have a larger volume than it has now.
func (v *Facts) Roomier(member string) bool {
	wanted := defaults.StorageSize(&v.Cluster.Spec)
	switch {
	case v.Memory():
		has := tmpfs(v.Children.Pods[member])
		return has != nil && has.Cmp(wanted) < 0
	case v.OnClaims() && v.Migrates():
		claim := v.Children.Claims[member]
		if claim == nil {
			return false
		}
		has := volumeSize(claim)
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
		if volume.Name == VolumeData && volume.EmptyDir != nil {
			return volume.EmptyDir.SizeLimit
		}
	}
	return nil
}
