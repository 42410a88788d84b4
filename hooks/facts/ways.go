package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// WayBack is where the next epoch's data comes from by this policy, or why there is none. A person may ask for more
// than is done unasked.
func (f *Facts) WayBack(policy v1beta1.QuorumLoss, asked bool) (record.Origin, string) {
	from := record.Origin{Restore: f.Epoch.Restore}
	if f.BesideExternal() {
		return from, besideOthers
	}
	switch policy {
	case v1beta1.RecoverFromSurvivor:
		if !f.OnClaims() {
			return f.fromMember(from)
		}
		switch left := f.Survivors(f.Epoch.N); {
		case len(left) == 0:
			return from, "no member's volume has survived" + f.WithoutReplaced(f.Epoch.N)
		case !asked && !slices.ContainsFunc(left, func(name string) bool { return f.mayHaveVoted(name) }):
			return from, fmt.Sprintf("only the volumes of members that have never voted are left (%s), which may be empty",
				strings.Join(left, ", "))
		}
		from.Source = record.SourceSurvivor
		from.SurvivorsOf = f.Epoch.N
		return from, ""
	case v1beta1.RecoverFromSnapshot:
		return f.fromNewest(from, asked)
	case v1beta1.RecoverRecreate:
		from.Source = record.SourceEmpty
		return from, ""
	case v1beta1.RecoverManual:
	}
	return from, "spec.recovery.quorumLoss is " + string(policy)
}

// fromNewest is the way back by the newest snapshot that was restored on trial of the life that is lost and what a
// stream has stored after it, or else what that life began with. Another one's data may have been rolled back on
// purpose, or be that of a cluster of the same name which was deleted long ago: it is taken only where there is nothing
// else, and a person asks. Whether there is a stream, its members' pods find out.
func (f *Facts) fromNewest(from record.Origin, asked bool) (record.Origin, string) {
	newest := f.newestSnapshot(objects.Hex(f.clusterIDOf(f.Epoch.N)), "")
	whosever := f.newestSnapshot("", "")
	if asked && newest == nil && f.Epoch.Snapshot == nil {
		newest = whosever
	}
	from.Source = record.SourceSnapshot
	switch {
	case newest != nil:
		var why string
		from.Snapshot, why = f.resolve(&v1beta1.SnapshotSource{SnapshotRef: v1beta1.SnapshotRef{Name: newest.Name},
			IdentitySecretRef: f.identity()})
		if why == "" && from.Snapshot.ClusterID != "" {
			f.followed(from.Snapshot, &v1beta1.Until{}, snapshot.Tail(newest), from.Snapshot.ClusterID)
			from.Snapshot.AsFar = true
		}
		return from, why
	case f.Epoch.Snapshot != nil:
		began := *f.Epoch.Snapshot
		began.SHA256 = cmp.Or(began.SHA256, f.Epoch.Sum)
		began.Until = cmp.Or(began.Until, f.Epoch.Until)
		from.Snapshot = &began
		return from, ""
	case whosever != nil:
		return from, fmt.Sprintf("it has no verified EtcdSnapshot (etcd cluster %s); the newest one, %s, is of an "+
			"earlier etcd cluster, %s: if you want that one, %s",
			objects.Hex(f.clusterIDOf(f.Epoch.N)), whosever.Name, cmp.Or(whosever.Status.ClusterID, "unknown"),
			f.recoverCommand(v1beta1.RecoverFromSnapshot))
	}
	return from, fmt.Sprintf("it has no verified EtcdSnapshot (with the label %s=%s)", objects.LabelCluster,
		f.Cluster.Name)
}

// fromMember is the way back where no volume can be copied: what a member that still runs has applied, fetched from it.
func (f *Facts) fromMember(from record.Origin) (record.Origin, string) {
	switch {
	case !f.Memory():
		return from, fmt.Sprintf("a survivor's data can't be copied on the medium %s; use FromSnapshot or Recreate",
			f.Cluster.Spec.Storage.Medium)
	case f.Answering() == "":
		return from, "no running member answers"
	case f.MayHaveQuorum():
		return from, "enough members run to have a quorum, although none answers"
	}
	from.Source = record.SourceSurvivor
	from.SurvivorsOf = f.Epoch.N
	from.Member, _, _ = strings.Cut(f.Answering(), ":")
	return from, ""
}

// Answering are the members that answer although there is no quorum, the one that is ahead first, with the evidence;
// empty for none.
func (f *Facts) Answering() string {
	able := objects.Filter(f.Names, func(name string) bool {
		h, asked := f.Health[name]
		own := f.Epoch.ClusterID == 0 || h.ClusterID == f.Epoch.ClusterID
		return asked && h.Err == "" && own && f.HasData(name)
	})
	slices.SortStableFunc(able, func(a, b string) int {
		x := f.Health[a]
		y := f.Health[b]
		return cmp.Or(cmp.Compare(y.RaftTerm, x.RaftTerm), cmp.Compare(y.RaftIndex, x.RaftIndex))
	})
	var evidence []string
	for _, name := range able {
		evidence = append(evidence, fmt.Sprintf("%s: term %d, index %d", name, f.Health[name].RaftTerm,
			f.Health[name].RaftIndex))
	}
	return strings.Join(evidence, "; ")
}

// identity is the Secret by which encrypted snapshots of this cluster are read.
func (f *Facts) identity() v1beta1.SecretKeyRef { return f.Cluster.Spec.Recovery.IdentitySecretRef }

// newestSnapshot is the newest one of the EtcdCluster that was restored on trial: of the etcd with this cluster ID,
// or of any if that is empty; other than the one of this name.
func (f *Facts) newestSnapshot(clusterID, other string) *v1beta1.EtcdSnapshot {
	var newest *v1beta1.EtcdSnapshot
	for _, name := range slices.Sorted(maps.Keys(f.Related.Snapshots)) {
		s := f.Related.Snapshots[name]
		if name == other {
			continue
		}
		if s.Spec.ClusterRef.Name != f.Cluster.Name || s.Status.Phase != v1beta1.SnapshotSucceeded ||
			s.Status.VerificationTime.IsZero() || s.DeletionTimestamp != nil {
			continue
		}
		if clusterID != "" && s.Status.ClusterID != clusterID {
			continue
		}
		if newest == nil || newerSnapshot(s, newest, clusterID != "") {
			newest = s
		}
	}
	return newest
}

// newerSnapshot reports whether a snapshot is newer than another one. Of one etcd its revisions say that, and no clock
// of a Job.
func newerSnapshot(s, than *v1beta1.EtcdSnapshot, ofOne bool) bool {
	if ofOne && s.Status.Revision != than.Status.Revision {
		return s.Status.Revision > than.Status.Revision
	}
	return than.Status.CompletionTime.Before(&s.Status.CompletionTime)
}
