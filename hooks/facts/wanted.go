package facts

import (
	"slices"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Outdated reports whether the member's pod should be another one than it is, and why.
func (f *Facts) Outdated(m *Member) (string, bool) {
	switch {
	case m.Pod == nil:
		return "", false
	case f.misstarted(m):
		return "it waits for data that the member never had", true
	case PodStart(m.Pod) != objects.StartResume && m.Started() && Crashing(m.Pod):
		return "it crashes, and would bootstrap the member a second time", true
	case f.joinsOtherwise(m) != "":
		return f.joinsOtherwise(m), true
	case f.HasOutdatedTemplate(m):
		return "it has an older template", true
	case !defaults.SameFlags(MadeForVersion(m.Pod), f.Epoch.Version):
		return "its flags are for etcd " + MadeForVersion(m.Pod), true
	case f.DistrustsPeers(m.Health):
		return "it does not trust the authority of the others until it restarts", true
	}
	return "", false
}

// joinsOtherwise says why a member can't join in its pod any more; empty when it can, or does not join.
func (f *Facts) joinsOtherwise(m *Member) string {
	switch {
	case WaitsToJoin(m.Pod):
		if m.Learner && !m.Started() {
			return ""
		}
		return "it waits until the member is a learner, and that was added otherwise"
	case PodStart(m.Pod) == objects.StartJoin && !m.Started() &&
		m.Pod.Annotations[objects.AnnotationInitialCluster] != f.JoinCluster(m):
		return "the membership changed before it started"
	}
	return ""
}

// HasOutdatedTemplate reports whether the member's pod was made from another template than the spec asks for now.
func (f *Facts) HasOutdatedTemplate(m *Member) bool {
	return m.Pod != nil && f.TemplateOutdated(m.Pod)
}

// LostVoter is the first voter whose data is lost and that does not serve, and why; nil when there is none.
func (f *Facts) LostVoter() (*Member, string) {
	for _, m := range f.Voters {
		if reason, lost := f.DataLost(m); lost && !m.Serving() {
			return m, reason
		}
	}
	return nil, ""
}

// VoterToSucceed is the first voter that still serves although its data is going, or would go with the restart that
// it needs, and why; nil when there is none.
func (f *Facts) VoterToSucceed() (*Member, string) {
	for _, m := range f.Voters {
		if reason, lost := f.DataLost(m); lost && m.Serving() {
			return m, reason
		}
	}
	if f.BesideExternal() {
		return nil, "" // no member is restarted now, nor succeeded instead
	}
	followersFirst := slices.Clone(f.Voters)
	slices.SortStableFunc(followersFirst, func(a, b *Member) int { return f.Leads(a) - f.Leads(b) })
	for _, m := range followersFirst {
		if r := f.UpdateOf(m); r != nil && m.Serving() && !f.RestartSuffices(m, r) && !f.WaitsForWindow(m) {
			return m, r.Reason
		}
	}
	return nil, ""
}

// Wanted is the number of voters to have now: one more than asked for while the successor of a voter that still
// serves joins. etcd advises to remove first, which holds for dead members. So there are never fewer than asked for,
// and a single member can be moved at all.
func (f *Facts) Wanted() int {
	if len(f.ReplicaVoters()) < f.Replicas {
		return f.Replicas
	}
	if replaced, _ := f.VoterToSucceed(); replaced == nil {
		return f.Replicas
	}
	if lost, _ := f.LostVoter(); lost != nil {
		return f.Replicas
	}
	return f.Replicas + 1
}
