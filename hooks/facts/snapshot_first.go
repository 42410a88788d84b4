package facts

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// An upgrade to another minor version waits for a verified snapshot where an EtcdSnapshotSchedule takes snapshots of
// the cluster. The status says since when it waits (SnapshotWanted), and the schedule takes one then
// (hooks/schedule). If the status is lost, one snapshot more is taken.

// freshSnapshot is how long before it was wanted a snapshot may have begun.
const freshSnapshot = 10 * time.Minute

// SnapshotFirst reports whether the next version on the way to the wanted one waits for a snapshot.
func (f *Facts) SnapshotFirst() bool {
	_, downgrade := f.Downgrading()
	if downgrade || !f.toOtherMinor() || f.snapshotSchedule() == "" {
		return false
	}
	since := f.Cluster.Status.SnapshotWanted.Time
	if since.IsZero() {
		since = f.Now
	}
	for _, s := range f.Related.Snapshots {
		if f.ofThisEtcd(s) && s.BeganAt().After(since.Add(-freshSnapshot)) {
			return false
		}
	}
	return true
}

// SnapshotWanted is since when an upgrade wants a snapshot, which the status says until it is over; zero for none.
func (f *Facts) SnapshotWanted(now bool) metav1.Time {
	told := f.Cluster.Status.SnapshotWanted
	switch {
	case now && told.IsZero():
		return metav1.NewTime(f.Now.Truncate(time.Second))
	case now, f.Epoch == nil, f.toOtherMinor():
		return told
	}
	return metav1.Time{}
}

// toOtherMinor reports whether the members are to go to another minor version, and the spec wants a snapshot before.
func (f *Facts) toOtherMinor() bool {
	hops := f.Hops()
	if len(hops) == 0 || f.Refuses(hops) || f.Cluster.Spec.SnapshotBeforeUpgrade == v1beta1.SnapshotNever {
		return false
	}
	return hops[0].Minor() != f.Release().Minor()
}

// snapshotSchedule is the name of an EtcdSnapshotSchedule that takes snapshots of this cluster; empty for none.
func (f *Facts) snapshotSchedule() string {
	name := ""
	for _, s := range f.Related.Snapshots {
		owner := metav1.GetControllerOf(s)
		if owner != nil && owner.Kind == v1beta1.KindSchedule && s.Spec.ClusterRef.Name == f.Cluster.Name {
			name = max(name, owner.Name)
		}
	}
	return name
}

// ofThisEtcd reports whether this is a snapshot of this etcd that was restored on trial, or need not be.
func (f *Facts) ofThisEtcd(s *v1beta1.EtcdSnapshot) bool {
	unverified := s.Status.VerificationTime.IsZero() && (s.Spec.Verify == nil || *s.Spec.Verify)
	stored := s.Status.Phase == v1beta1.SnapshotSucceeded && s.DeletionTimestamp == nil
	return stored && !unverified && s.Status.ClusterID == objects.Hex(f.Epoch.ClusterID)
}

// SnapshotMissed says which snapshot was taken for the upgrade and can't be restored; empty for none.
func (f *Facts) SnapshotMissed() string {
	var newest *v1beta1.EtcdSnapshot
	for _, s := range f.Related.Snapshots {
		since := f.Cluster.Status.SnapshotWanted
		if s.Spec.ClusterRef.Name != f.Cluster.Name || since.IsZero() || s.BeganAt().Time.Before(since.Time) {
			continue
		}
		if newest == nil || newest.BeganAt().Time.Before(s.BeganAt().Time) {
			newest = s
		}
	}
	if newest == nil {
		return ""
	}
	switch newest.Status.Phase {
	case v1beta1.SnapshotFailed, v1beta1.SnapshotUnverified:
		return fmt.Sprintf("%s is %s%s", newest.Name, newest.Status.Phase, objects.Colon(newest.Status.Message))
	case v1beta1.SnapshotPending, v1beta1.SnapshotRunning, v1beta1.SnapshotSucceeded, v1beta1.SnapshotSkipped,
		v1beta1.SnapshotDeleting:
	}
	return ""
}

// SnapshotAwaited says what an upgrade waits for.
func (f *Facts) SnapshotAwaited() string {
	return fmt.Sprintf("before the members go from etcd %s to %s, EtcdSnapshotSchedule %s takes a verified snapshot",
		f.Epoch.Version, f.Hops()[0], f.snapshotSchedule())
}
