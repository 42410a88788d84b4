package facts

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// What members that are missing will run on is made before etcd lists them, all of it at once: their claims and pods.
// The pods wait in prepare, before etcd; members are added one at a time, as ever.
//
// A member that is made ready has a number from the record's mark on: that mark is above every number that a member has
// had, and moves when etcd lists one. Its pod is let go only when etcd lists the member as a learner, the mark is above
// its number, and the record has the UIDs of its claims. So where the number is not below the mark, whatever view that
// is of, no etcd has run.
//
// What is made ready and no longer wanted may be taken down only when no call can have the member run any more. A call
// that has seen less may still add it, and the next one let its pod go. So the record first says, in place of the
// UID, that nothing is to start there (NothingStarts). Who is added after that is a learner without data, and removed.

// NothingStarts is what the record has in place of the UID of what a member may start on that was made ready and is not
// wanted.
const NothingStarts types.UID = "none"

// ToBeAdded reports whether the member of this name is none yet, and never was one: etcd does not list it, as far as
// that is known, its number is not below the mark, and no pod but one that waits has its name.
func (f *Facts) ToBeAdded(name string) bool {
	if f.Epoch == nil || !f.Epoch.HadQuorum() || !f.OnClaims() {
		return false
	}
	pod := f.Children.Pods[name]
	others := func(c *corev1.PersistentVolumeClaim) bool { return !f.Ours(c) }
	if pod != nil && !WaitsToJoin(pod) || slices.ContainsFunc(f.allClaims(name), others) {
		return false
	}
	return f.Find(name) == nil && !f.OrdinalReserved(name)
}

// allClaims are those that there are of a member's name.
func (f *Facts) allClaims(member string) []*corev1.PersistentVolumeClaim {
	return objects.Filter([]*corev1.PersistentVolumeClaim{f.Children.Claims[member], f.WALOf(member)},
		func(c *corev1.PersistentVolumeClaim) bool { return c != nil })
}

// Dropped reports whether the record says that nothing starts on what was made ready for the member.
func (f *Facts) Dropped(name string) bool { return f.Epoch.Recorded(name) == NothingStarts }

// Missing is how many members are to join, without the learner that there is: those above what is wanted make it less
// than 0. Voters whose data is lost, or that are chosen to be removed, count as gone.
func (f *Facts) Missing() int {
	chosen := f.Chosen()
	goes := func(m *Member) bool {
		_, lost := f.DataLost(m)
		return lost && !m.Serving() || m == chosen && f.Epoch.Choice.Removes && f.Epoch.Choice.Withdrawn.IsZero()
	}
	stay := objects.Filter(f.ReplicaVoters(), func(m *Member) bool { return !goes(m) })
	missing := f.Wanted() + f.Spares() - len(stay)
	if l := f.Learner(); l != nil && l.PodName != "" && !goes(l) && !f.lost(l) {
		missing--
	}
	return missing
}

func (f *Facts) lost(m *Member) bool {
	_, lost := f.DataLost(m)
	return lost
}

// ReadiesAhead reports whether members are made ready before they are added: not where their place is chosen when they
// are, or an epoch comes.
func (f *Facts) ReadiesAhead() bool {
	if f.Etcd == nil || f.Epoch == nil || !f.Epoch.HadQuorum() {
		return false
	}
	return f.OnClaims() && !f.OnNamedNodes() && !f.BesideExternal() && f.Next == nil
}

// Readied are the members that are to be made ready now, before they are added: as many as are missing. The first of
// them is added next.
func (f *Facts) Readied() []string {
	if !f.ReadiesAhead() {
		return nil
	}
	missing := f.Missing()
	if missing <= 0 {
		return nil
	}
	var list []string
	for _, name := range f.Names {
		if len(list) < missing && f.ToBeAdded(name) && f.fitsAhead(name) {
			list = append(list, name)
		}
	}
	paused := f.Now.Before(f.Replacements("").NextLearnerTime.Time)
	for n := f.NextOrdinal(); len(list) < missing && !paused; n++ {
		list = append(list, objects.MemberName(f.Cluster.Name, n))
	}
	return list
}

// fitsAhead reports whether the member may be added with what was made ready for it: that is as the spec wants it, and
// what the record says. What is not made yet will be.
func (f *Facts) fitsAhead(name string) bool {
	if pod := f.Children.Pods[name]; pod != nil && !f.podFitsAhead(pod) {
		return false
	}
	recorded := f.Epoch.Recorded(name) != ""
	if f.HasWAL(name) != f.wantsWAL() || !f.wantsWAL() && f.WALOf(name) != nil {
		return false
	}
	return !slices.ContainsFunc(claimNamesOf(name, f.wantsWAL()), func(name string) bool {
		claim := f.Children.Claims[name]
		switch {
		case claim == nil:
			return recorded
		case !f.Usable(claim), recorded && f.Epoch.Recorded(name) != claim.UID:
			return true
		}
		size, class, _ := f.ClaimSpec(name)
		asked := claim.Annotations[objects.AnnotationAskedFor]
		return asked != "" && asked != AskedFor(size, class)
	})
}

// podFitsAhead reports whether a member may be added with the pod that waits for that: it listens as the member will be
// listed. A spare is added only when its pod has found a place, so one that has none is given up once the spec asks for
// another.
func (f *Facts) podFitsAhead(pod *corev1.Pod) bool {
	if objects.Encrypted(f.Cluster) && TLSFlagsOf(pod).Peers != f.EveryoneDials() {
		return false
	}
	return !f.LacksSpare() || Prepares(pod) || !f.TemplateOutdated(pod)
}

func claimNamesOf(member string, wal bool) []string {
	if wal {
		return []string{member, WALClaim(member)}
	}
	return []string{member}
}

// NextMember is the name of the member that is added next.
func (f *Facts) NextMember() string {
	if list := f.Readied(); len(list) > 0 {
		return list[0]
	}
	return objects.MemberName(f.Cluster.Name, f.NextOrdinal())
}

// WaitsToJoin reports whether the pod was made before its member was added, and has not been let go.
func WaitsToJoin(pod *corev1.Pod) bool {
	return MadeAhead(pod) && pod.Annotations[objects.AnnotationBegins] == ""
}

// MadeAhead reports whether the pod was made before its member was added.
func MadeAhead(pod *corev1.Pod) bool {
	return pod != nil && PodStart(pod) == objects.StartJoin && Awaits(pod)
}

// MayJoin reports whether a pod that waits for that may be let go: its member is a learner that has not started, whose
// number is recorded as used, with what it starts on.
func (f *Facts) MayJoin(m *Member) bool {
	if !m.Learner || m.Started() || !f.OrdinalReserved(m.PodName) {
		return false
	}
	return f.StorageUsable(m.PodName) && f.MayBegin(m.PodName)
}

// WhyNotReady says what is in the way of those that are made ready, as a message goes on with it; empty for nothing in
// particular.
func (f *Facts) WhyNotReady() string {
	var all objects.GroupedReasons
	for _, name := range f.Readied() {
		if what := f.WhyNotServing(&Member{PodName: name, Pod: f.Children.Pods[name]}); what != "" {
			all.Add(name, what)
		}
	}
	return following(all)
}
