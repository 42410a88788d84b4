package facts

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Fenced reports whether a person wants this member's etcd stopped, without its removal. Its data would not outlive
// that on Memory.
func (f *Facts) Fenced(name string) bool {
	return !f.Memory() && slices.Contains(f.Asked.Fenced, name)
}

// MayStop reports whether the others can do without the member (S1), and no other one is missing or joining when it
// serves (S2).
func (f *Facts) MayStop(m *Member) bool {
	return f.QuorumWithout(m) && (!m.Serving() || f.Joining() == nil && Serving(f.Voters) == len(f.Voters))
}

// busyFor is how long a member is left alone that gives free space back to its file system: a second for 100 MB or
// so, on a disk that is not slow, and it does not answer meanwhile.
const busyFor = 10 * time.Minute

// busy reports whether a member may still be at that.
func (f *Facts) busy(m *Member) bool {
	if !f.UnderWay() || len(f.DefragRun.Done) == 0 {
		return false
	}
	return f.DefragRun.Done[len(f.DefragRun.Done)-1] == m.PodName &&
		f.Now.Before(f.DefragRun.LastMemberTime.Add(busyFor))
}

// OnHold reports whether a person keeps a member from being brought back: then its time does not count.
func (f *Facts) OnHold(name string) bool { return f.Suspended() || f.Fenced(name) }

// LastStatus is what the status says of a member; nil for nothing.
func (f *Facts) LastStatus(m *Member) *v1beta1.MemberStatus {
	return objects.Find(f.Cluster.Status.Members, func(s *v1beta1.MemberStatus) bool {
		return s.ID == objects.Hex(m.ID)
	})
}

// OfFailedMember reports whether the claim was a failed member's.
func OfFailedMember(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.Annotations[objects.AnnotationFailedMember] != ""
}

// Quarantined reports whether the claim is kept apart, for a person to look into.
func Quarantined(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.Annotations[objects.AnnotationQuarantined] != ""
}

// Impostor reports whether an etcd answered at the member's address that is not the member.
func (m *Member) Impostor() bool { return m.Asked && m.Health.Err != "" && m.Health.MemberID != 0 }

// Serving counts the members that serve.
func Serving(list []*Member) int { return len(objects.Filter(list, (*Member).Serving)) }

// Names of the members as messages have them.
func Names(list []*Member) []string {
	var all []string
	for _, m := range list {
		all = append(all, cmp.Or(m.DisplayName(), "unmanaged member "+objects.Hex(m.ID)))
	}
	return all
}

// NameOf is what the member with this ID is called; empty for none and for an unmanaged member.
func (f *Facts) NameOf(id uint64) string {
	if m := f.ByID(id); m != nil {
		return m.DisplayName()
	}
	return ""
}

// ByID is the listed member with this ID; nil when the list omits it.
func (f *Facts) ByID(id uint64) *Member {
	return objects.First(f.Members, func(m *Member) bool { return m.ID == id })
}

// Leader is the member that leads; nil while none is known.
func (f *Facts) Leader() *Member { return f.ByID(f.Etcd.Leader) }

// RanBefore reports whether the cluster has run before, by anything that we can see.
func (f *Facts) RanBefore() bool {
	return len(f.Names) > 0 || f.Etcd != nil || f.Cluster.Status.ClusterID != ""
}

// KnownVoters are the voters as last known, for words only: no decision follows from them.
func (f *Facts) KnownVoters() []string {
	var known []string
	for _, m := range f.Cluster.Status.Members {
		if n, ours := objects.Ordinal(f.Cluster.Name, m.Name); ours && n >= f.Epoch.First && m.Role == v1beta1.Voter {
			known = append(known, m.Name)
		}
	}
	if len(known) == 0 {
		return f.Epoch.InitialNames()
	}
	return known
}

// HasData reports whether there is a volume that may hold the member's data.
func (f *Facts) HasData(name string) bool {
	if f.HostPath() {
		return f.NodeOf(name) != ""
	}
	if f.Memory() {
		pod := f.Children.Pods[name]
		return pod != nil && !Finished(pod) && !f.gatedForGood(pod)
	}
	return !slices.Contains(f.MemberClaims(name), nil)
}

// CallsEnd is longer than any call may take to reach etcd: no server may let one take more than half of it (S9). The
// other half is for clocks: that of the server which judges may be ahead by as much of that of the one which noted the
// time.
const CallsEnd = 20 * time.Second

// CallsLeft is how long a call from before that time may still go on; 0 or less when none may.
func (f *Facts) CallsLeft(since time.Time) time.Duration { return since.Add(CallsEnd).Sub(f.Now) }

// QuorumWithout reports whether the voters that stay are a quorum without this one. One of them that was only chosen
// is let go before this one is.
func (f *Facts) QuorumWithout(m *Member) bool {
	chosen := f.Chosen()
	rest := objects.Filter(f.Voters, func(o *Member) bool {
		return o.ID != m.ID && (f.Stays(o) || o == chosen &&
			o.Serving())
	})
	return len(rest) >= Quorum(len(f.Voters))
}
