package facts

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

// OriginStatus is where the data comes from; nil for nowhere.
func (e *Epoch) OriginStatus() *v1beta1.OriginStatus {
	if e.Source == record.SourceEmpty && e.After == 0 && e.Evidence == "" {
		return nil
	}
	s := &v1beta1.OriginStatus{Source: e.Source, PreviousEpoch: int64(e.After), Restore: e.Restore, Survivor: e.Survivor,
		Evidence: e.Evidence}
	if e.Snapshot != nil {
		s.Snapshot = e.Snapshot.URL
		s.Evidence = cmp.Or(s.Evidence, e.StreamEnd)
	}
	return s
}

// How one epoch takes over from another: to restore a snapshot in place, to go back to earlier data, or because the
// quorum's data is lost.
//
// The next epoch is recorded first, as the first one is; that decides who its members are, under numbers above all
// that were ever used. From then on it comes in three moves, each of which is written on its record and waits for the
// one before to be observed.
//
//	staging   Its members get their volumes and are filled, beside the epoch that runs; they wait at a gate before their etcd. Whatever is
//	          wrong with the data is found out here, with nothing lost, and the wish can be taken back.
//	stopping  The record of the epoch that runs is deleted, and its members are stopped. Their pods name that record: one that a late view
//	          asks for once more does not start. Its volumes stay as they are, in quarantine: no pod is made on them any more.
//	began     Once no pod of the epoch before is left, it can't acknowledge anything any more, and the gate opens.
//
// That no pod is left must not be believed of a view of pods that lags. So, when the record is seen to be gone, a
// mark is put on the pods of the next epoch's members. Who sees the mark sees all pods as they were when it was
// written, or later, and by then no other pod of the epoch before could start.
//
// An epoch that begins with the volume of a member of the one before can be staged only when that is stopped, so it
// is stopped first.
//
// A wish that is taken back while it is made ready is written on the record, too: a record says either that it is
// cancelled or that the epoch before is being stopped, since each is written at the version that was seen. What was
// made for it goes first, and the record last.
//
// So at no time can two epochs acknowledge writes. What the epoch before leaves are its claims.

// within are the children of one epoch: pods and claims whose members' numbers are its own, and those without a number.
func within(o observation.Observation, e *Epoch, below int) observation.Children {
	if e == nil || e.First == 0 && below == objects.MostMembers {
		return o.Children
	}
	own := func(name string) bool {
		n, numbered := objects.Ordinal(o.Cluster.Name, name)
		return !numbered || n >= e.First && n < below
	}
	c := o.Children
	c.Pods = map[string]*corev1.Pod{}
	c.Claims = map[string]*corev1.PersistentVolumeClaim{}
	for name, pod := range o.Children.Pods {
		if own(name) {
			c.Pods[name] = pod
		}
	}
	for name, claim := range o.Children.Claims {
		if member, _ := MemberOfClaim(o.Cluster.Name, name); own(member) {
			c.Claims[name] = claim
		}
	}
	return c
}

// InEpoch reports whether the member's number is one of the view's epoch.
func (f *Facts) InEpoch(member string) bool {
	n, numbered := objects.Ordinal(f.Cluster.Name, member)
	return numbered && n < f.below && (f.Epoch == nil || n >= f.Epoch.First)
}

// OwnKeys reports whether an epoch of the cluster restores what its own Secret has the keys of.
func (e *Epoch) OwnKeys(cluster string) bool {
	return e != nil && e.Snapshot != nil && e.Snapshot.Tail != "" &&
		e.Snapshot.Keys.Name == objects.RestoreSecret(cluster)
}

// Ending reports whether the epoch is being stopped, or has been.
func (f *Facts) Ending() bool { return f.Next != nil && f.Next.Epoch.Phase == record.PhaseStopping }

// Over reports whether the epoch's record is gone, so that no pod of it starts any more.
func (f *Facts) Over() bool { return f.Ending() && f.Epoch.Record == nil }

// Choosing reports whether the next epoch begins with the volume of a member, and it is not known yet of which.
func (f *Facts) Choosing() bool {
	return f.Next.Epoch.Source == record.SourceSurvivor && f.Next.Epoch.Survivor == ""
}

// Describe says where the epoch's data comes from.
func (e *Epoch) Describe() string {
	switch e.Source {
	case record.SourceSnapshot:
		switch {
		case e.Snapshot == nil:
		case e.StreamEnd != "":
			return "its data comes from " + e.Snapshot.Artifact() + "; " + e.StreamEnd
		default:
			return "its data comes from " + e.Snapshot.Words()
		}
	case record.SourceSurvivor:
		return fmt.Sprintf("its data comes from %s, of epoch %d (%s)", e.Survivor, e.SurvivorsOf, e.Evidence)
	case record.SourceClaims:
		return fmt.Sprintf("its data comes from the claim %s (%s)", e.Survivor, e.Evidence)
	}
	return "without data"
}

// etcd 3.7 can't read log entries of 3.5: each start of a 3.5 writes one, and a 3.7 that finds it in its log ends
// with a panic. 3.6 reads them. So members may start as 3.7 only when such entries lie before a snapshot on their
// disks. A member writes one by itself every 10,000 entries, and keeps 5,000 more for others that lag; on a quiet
// cluster that is never. But lowering the version of the cluster makes every member write a snapshot (ForceSnapshot
// in etcd 3.6's etcdserver/apply), and that can be taken back (TestVersions in test/real/conformance). The record
// says up to which entry 3.5 has written.
