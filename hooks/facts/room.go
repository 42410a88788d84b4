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
func (f *Facts) RoomOf(member string) defaults.Room {
	room := f.account(member)
	room.Quota = max(room.Quota, f.keptQuota(member, room.Quota))
	return room
}

// account is that of the volumes that the member has now.
func (f *Facts) account(member string) defaults.Room {
	s := &f.Cluster.Spec
	size := defaults.StorageSize(s)
	if claim := f.Children.Claims[member]; claim != nil && f.OnClaims() {
		if has := volumeSize(claim); !has.IsZero() {
			size = has
		}
	}
	on := defaults.Volume{Size: size.Value(), Memory: f.Memory()}
	if wal := f.WALOf(member); wal != nil && f.HasWAL(member) {
		size = volumeSize(wal)
		on.Log = size.Value()
	}
	room := defaults.RoomOn(on, defaults.LargestRequest(s.Options))
	room.Quota = defaults.QuotaOn(s.Options, room)
	return room
}

// keptQuota is the larger quota that the member runs with, or those on as much room where it has no pod, while the
// database does not fit this one: writes would be refused at once (NOSPACE), or until keys are deleted. 0 for none.
func (f *Facts) keptQuota(member string, quota int64) int64 {
	large := func(m *Member) bool {
		return m.PodName != "" && (m.Health.DBSize >= quota || m.Health.DBSizeInUse >= quota/10*9)
	}
	if !slices.ContainsFunc(f.Members, large) {
		return 0
	}
	if own := defaults.Quota(f.Children.Pods[member]); own > 0 {
		return own
	}
	var runs int64
	for _, m := range f.Members {
		if m.Pod != nil && f.account(m.PodName).Quota == quota {
			runs = max(runs, defaults.Quota(m.Pod))
		}
	}
	return runs
}

// quotaDiffers reports whether etcd runs with another quota than its volume gives.
func (f *Facts) quotaDiffers(m *Member) (string, bool) {
	has, known := defaults.QuotaOf(m.Pod)
	if !known || m.Claim == nil && f.OnClaims() {
		return "", false
	}
	wanted := f.RoomOf(m.PodName).Quota
	switch {
	case has == wanted:
		return "", false
	case f.Cluster.Spec.Options.QuotaBackendBytes != nil:
		return fmt.Sprintf("it runs with a quota of %s instead of %s", Mebibytes(has), Mebibytes(wanted)), true
	}
	return fmt.Sprintf("its volume allows a quota of %s instead of %s", Mebibytes(wanted), Mebibytes(has)), true
}

// KeptQuotas tells of members that keep a quota for which their volumes have no room; empty for none.
func (f *Facts) KeptQuotas() string {
	var all objects.GroupedReasons
	for _, m := range f.Members {
		room := f.account(m.PodName).Quota
		if runs := defaults.Quota(m.Pod); runs > room && f.RoomOf(m.PodName).Quota == runs {
			all.Add(m.PodName, fmt.Sprintf("its quota stays at %s: its database does not fit into %s; make the database "+
				"smaller, or raise %s", Mebibytes(runs), Mebibytes(room), f.larger()))
		}
	}
	return all.String()
}

// larger is what has to be for a larger quota.
func (f *Facts) larger() string {
	if f.Cluster.Spec.Options.QuotaBackendBytes != nil {
		return "spec.options.quotaBackendBytes, for which spec.storage.size must have room"
	}
	return "spec.storage.size"
}

// MoreRoom reports whether the member will have more room by itself: its volumes grow, or a successor has larger ones.
func (f *Facts) MoreRoom(member string) bool {
	return f.Roomier(member) || slices.ContainsFunc(f.Volumes(member),
		func(d *Volume) bool { return d.Growing() || d.Smaller() && !f.Stuck(d) })
}

// Roomier reports whether a successor of the member would have a larger volume than it has now.
func (f *Facts) Roomier(member string) bool {
	wanted := defaults.StorageSize(&f.Cluster.Spec)
	switch {
	case f.Memory():
		has := tmpfs(f.Children.Pods[member])
		return has != nil && has.Cmp(wanted) < 0
	case f.OnClaims() && f.Migrates():
		claim := f.Children.Claims[member]
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
