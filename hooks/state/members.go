package state

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Fenced reports whether a person wants this member's etcd stopped, without its removal. Its data would not outlive
// that on Memory.
func (v *View) Fenced(name string) bool {
	return !v.Memory() && slices.Contains(v.Asked.Fenced, name)
}

// MayStop reports whether the others can do without the member (S1), and no other one is missing or joining when it
// serves (S2).
func MayStop(v *View, m *Member) bool {
	return QuorumWithout(v, m) && (!m.Serving() || v.Learner() == nil && Serving(v.Voters) == len(v.Voters))
}

// busyFor is how long a member is left alone that gives free space back to its file system: a second for 100 MB or
// so, on a disk that is not slow, and it does not answer meanwhile.
const busyFor = 10 * time.Minute

// Busy reports whether a member may still be at that.
func Busy(v *View, m *Member) bool {
	if !v.UnderWay() || len(v.DefragRun.Done) == 0 {
		return false
	}
	return v.DefragRun.Done[len(v.DefragRun.Done)-1] == m.PodName &&
		v.Now.Before(v.DefragRun.LastMemberTime.Add(busyFor))
}

// OnHold reports whether a person keeps a member from being brought back: then its time does not count.
func OnHold(v *View, name string) bool { return v.Suspended() || v.Fenced(name) }

// LastStatus is what the status says of a member; nil for nothing.
func (v *View) LastStatus(m *Member) *v1alpha1.MemberStatus {
	return wording.Find(v.Cluster.Status.Members, func(s *v1alpha1.MemberStatus) bool {
		return s.ID == wording.Hex(m.ID)
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
func Serving(list []*Member) int { return len(wording.Filter(list, (*Member).Serving)) }

// Names of the members as messages have them.
func Names(list []*Member) []string {
	var all []string
	for _, m := range list {
		all = append(all, cmp.Or(m.DisplayName(), "stranger "+wording.Hex(m.ID)))
	}
	return all
}

// NameOf is what the member with this ID is called; empty for none and for a stranger.
func (v *View) NameOf(id uint64) string {
	if m := v.ByID(id); m != nil {
		return m.DisplayName()
	}
	return ""
}

// ByID is the listed member with this ID; nil when the list omits it.
func (v *View) ByID(id uint64) *Member {
	return wording.First(v.Members, func(m *Member) bool { return m.ID == id })
}

// Leader is the member that leads; nil while none is known.
func (v *View) Leader() *Member { return v.ByID(v.Etcd.Leader) }

// RanBefore reports whether the cluster has run before, by anything that we can see.
func RanBefore(v *View) bool {
	return len(v.Names) > 0 || v.Etcd != nil || v.Cluster.Status.ClusterID != ""
}

// KnownVoters are the voters as last known, for words only: no decision follows from them.
func KnownVoters(v *View) []string {
	var known []string
	for _, m := range v.Cluster.Status.Members {
		if n, ours := objects.Ordinal(v.Cluster.Name, m.Name); ours && n >= v.Epoch.First && m.Role == v1alpha1.Voter {
			known = append(known, m.Name)
		}
	}
	if len(known) == 0 {
		return v.Epoch.InitialNames()
	}
	return known
}

// HasData reports whether there is a volume that may hold the member's data.
func HasData(v *View, name string) bool {
	if v.HostPath() {
		return v.NodeOf(name) != ""
	}
	if v.Memory() {
		pod := v.Children.Pods[name]
		return pod != nil && !Finished(pod) && !gatedForGood(v, pod)
	}
	return !slices.Contains(v.MemberClaims(name), nil)
}

// CallsEnd is longer than any call may take to reach etcd: no server may let one take more than half of it (S9). The
// other half is for clocks: that of the server which judges may be ahead by as much of that of the one which noted the
// time.
const CallsEnd = 20 * time.Second

// CallsLeft is how long a call from before that time may still go on; 0 or less when none may.
func CallsLeft(v *View, since time.Time) time.Duration { return since.Add(CallsEnd).Sub(v.Now) }

// QuorumWithout reports whether the voters that stay are a quorum without this one. One of them that was only chosen
// is let go before this one is.
func QuorumWithout(v *View, m *Member) bool {
	chosen := v.Chosen()
	rest := wording.Filter(v.Voters, func(o *Member) bool {
		return o.ID != m.ID && (Stays(v, o) || o == chosen &&
			o.Serving())
	})
	return len(rest) >= Quorum(len(v.Voters))
}
