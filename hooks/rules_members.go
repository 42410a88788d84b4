package hooks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// The rules that change the members, with a quorum's answer in hand.

func elect(v *view) *verdict {
	if v.Etcd.Leader != 0 {
		return nil
	}
	return &verdict{message: "waiting for the members to elect a leader", resync: rule.ResyncSoon}
}

func learnerLost(v *view) *verdict {
	l := v.learner()
	if l == nil || l.name == "" {
		return nil
	}
	reason, lost := v.dataLost(l)
	if !lost {
		return nil
	}
	return v.removeMember(l, fmt.Sprintf("removing the learner %s: %s", l.name, reason))
}

func learnerSurplus(v *view) *verdict {
	l := v.learner()
	switch {
	case l == nil || l.name == "":
		return nil
	case v.memory() && v.hasOutdatedTemplate(l):
		return v.removeMember(l, fmt.Sprintf("removing the learner %s: its pod was made from an older template, and "+
			"can't be made anew on Memory", l.name))
	case len(v.replicaVoters()) < v.wanted():
		return nil
	}
	return v.removeMember(l, fmt.Sprintf("removing the learner %s: it is no longer wanted", l.name))
}

// CallsEnd is longer than any call may take to reach etcd: no server may let one take as long (S9).
const CallsEnd = 20 * time.Second

// removeMember removes a member. A call that looked before it was added may still be about to add it, and would find
// the member list as it was once the member is gone: its name would be used again (S9). Such calls are over when the
// status has listed the member for long enough.
func (v *view) removeMember(m *member, why string) *verdict {
	if !v.listedLong(m) {
		return &verdict{message: fmt.Sprintf("%s; waiting until calls from before its addition are over, %.0f "+
			"seconds after it", why, CallsEnd.Seconds()), resync: rule.ResyncLater}
	}
	return cmp.Or(v.chooseForRemoval(m, why), v.change(Remove{ID: m.ID, Name: m.displayName()}, why))
}

// listedLong reports whether the status has listed the member for longer than calls live. A status that is lost or
// old only delays.
func (v *view) listedLong(m *member) bool {
	return slices.ContainsFunc(v.Cluster.Status.Members, func(s v1alpha1.MemberStatus) bool {
		return s.ID == hex(m.ID) && !s.Joined.IsZero() && !v.Now.Before(s.Joined.Add(CallsEnd))
	})
}

func promote(v *view) *verdict {
	l := v.learner()
	if l == nil || l.name == "" || !v.caughtUp(l) || v.hasOutdatedTemplate(l) {
		return nil // one whose pod is made anew is restarted before it votes
	}
	// emptied now, it could join a second time: no voter may (S10)
	if l.pod.Annotations[objects.AnnotationInitialCluster] != "" {
		return nil
	}
	why := fmt.Sprintf("promoting %s: it has caught up", l.name)
	stay, all := len(filter(v.voters, v.stays)), len(v.voters)
	switch {
	case serving(v.voters)+1 < quorum(all+1):
		return nil // nor is its removal withdrawn, if it was chosen for that
	case v.chosen() == l:
		return v.withdraw()
	case stay+1 < quorum(all+1) && (stay >= quorum(all) || v.chosen() != nil):
		// else the quorum goes in any case, unless the learner votes by then
		return v.waitForRestarts(v.voters, why)
	}
	return v.change(Promote{ID: l.ID, Name: l.name}, why)
}

// caughtUp reports whether the learner itself answered in this call as a learner, with a volume, at 90 % of the
// leader's index or more. (etcd refuses a promotion below 90 % of the leader's match index, but asks only the leader:
// server.go, isLearnerReady.)
func (v *view) caughtUp(l *member) bool {
	lead := v.leader()
	hasVolume := l.pod != nil && l.pod.DeletionTimestamp == nil && (v.memory() || v.storageUsable(l.name))
	return lead != nil && lead.serving() && l.serving() && l.health.Learner && hasVolume &&
		l.health.RaftIndex*10 >= lead.health.RaftIndex*9
}

func learnerYields(v *view) *verdict {
	l := v.learner()
	lost, reason := v.lostVoter()
	if l == nil || l.name == "" || lost == nil || l.serving() {
		return nil
	}
	return v.removeMember(l, fmt.Sprintf("removing the learner %s, which does not serve: %s must be replaced first "+
		"(%s)", l.name, lost.name, reason))
}

func recreatePod(v *view) *verdict {
	for _, m := range v.chosenFirst(v.members) {
		if reason, stale := v.outdated(m); stale && v.disposable(m) {
			return v.chooseAndRecreate(m, &verdict{message: fmt.Sprintf("making the pod %s anew: %s", m.name, reason),
				deletePod: m.name, resync: rule.ResyncLater}, reason)
		}
	}
	for _, m := range v.chosenFirst(v.members) {
		reason, wants := v.wantsImage(m)
		switch {
		case !wants || m.serving() || v.mismatched(m):
		case v.chosenForDeletion(m) && v.disposable(m):
			return v.chooseAndRecreate(m, &verdict{message: fmt.Sprintf("making the pod %s anew: %s", m.name, reason),
				deletePod: m.name, resync: rule.ResyncLater}, reason)
		case m.Learner && !neverRan(m.pod) || !m.Learner && v.leads(m) == 0 && v.quorumWithout(m):
			return v.chooseAndRecreate(m, &verdict{message: fmt.Sprintf("exchanging the image of %s, which does not "+
				"serve: %s", m.name, reason), patchImage: m.name, resync: rule.ResyncLater}, reason)
		}
	}
	return nil
}

// chooseAndRecreate is what is said of a pod that is down, or a learner's. It may serve, and vote, before it is done,
// so it is chosen first. But another image for an etcd that never ran stops nothing.
func (v *view) chooseAndRecreate(m *member, decision *verdict, reason string) *verdict {
	if decision.patchImage != "" && neverRan(m.pod) {
		return decision
	}
	return cmp.Or(v.chooseForRestart(m, decision.patchImage != "", reason), decision)
}

// disposable reports whether the member's pod may be deleted without harm: a learner's nearly always, a voter's when
// it is down and the others can do without it. On Memory the data would go too.
func (v *view) disposable(m *member) bool {
	switch {
	case m.pod.DeletionTimestamp != nil || finished(m.pod) || v.mismatched(m):
		return false
	case m.Learner && !m.Started():
		return !m.serving()
	case v.memory():
		return false
	}
	return m.Learner || !m.serving() && v.leads(m) == 0 && v.quorumWithout(m)
}

// quorumWithout reports whether the voters that stay are a quorum without this one. One of them that was only chosen
// is let go before this one is.
func (v *view) quorumWithout(m *member) bool {
	chosen := v.chosen()
	rest := filter(v.voters, func(o *member) bool { return o.ID != m.ID && (v.stays(o) || o == chosen && o.serving()) })
	return len(rest) >= quorum(len(v.voters))
}

// outdated reports whether the member's pod should be another one than it is, and why.
func (v *view) outdated(m *member) (string, bool) {
	switch {
	case m.pod == nil:
		return "", false
	case v.misstarted(m):
		return "it waits for data that the member never had", true
	case podStart(m.pod) != objects.StartResume && m.Started() && crashing(m.pod):
		return "it crashes, and would begin the member a second time", true
	case podStart(m.pod) == objects.StartJoin && !m.Started() &&
		m.pod.Annotations[objects.AnnotationInitialCluster] != v.joinCluster(m):
		return "the membership changed before it started", true
	case v.hasOutdatedTemplate(m):
		return "it was made from an older template", true
	case !sameFlags(madeForVersion(m.pod), v.epoch.version):
		return "its flags are for etcd " + madeForVersion(m.pod), true
	case v.distrustsPeers(m.health):
		return "it does not trust the authority of the others, and learns of it only when it starts", true
	}
	return "", false
}

// hasOutdatedTemplate reports whether the member's pod was made from another template than the spec asks for now.
func (v *view) hasOutdatedTemplate(m *member) bool {
	return m.pod != nil && v.templateOutdated(m.pod)
}

func learner(v *view) *verdict {
	l := v.learner()
	switch {
	case l == nil:
		return nil
	case l.name == "":
		return &verdict{message: fmt.Sprintf("waiting: the learner %s is a stranger's; promote or remove it with "+
			"etcdctl", hex(l.ID)), outlook: Waits, resync: rule.ResyncLater}
	case !l.serving():
		return &verdict{message: fmt.Sprintf("waiting for the learner %s to start%s", l.name,
			wording.Colon(v.explain(l))), outlook: v.byPerson([]*member{l}), resync: rule.ResyncSoon}
	}
	return &verdict{message: fmt.Sprintf("waiting for the learner %s to catch up", l.name), resync: rule.ResyncSoon}
}

func waitForRemoved(v *view) *verdict {
	if left := v.removedPods(); len(left) > 0 {
		return &verdict{message: fmt.Sprintf("waiting for removed members to stop: %s", strings.Join(left, ", ")),
			resync: rule.ResyncLater}
	}
	return nil
}

func reserveName(v *view) *verdict {
	for _, m := range v.members {
		if m.name != "" && !v.ordinalReserved(m.name) {
			return &verdict{message: fmt.Sprintf("recording that the name %s is taken", m.name),
				resync: rule.ResyncSoon}
		}
	}
	return nil
}

// lostVoter is the first voter whose data is lost and that does not serve, and why; nil when there is none.
func (v *view) lostVoter() (*member, string) {
	for _, m := range v.voters {
		if reason, lost := v.dataLost(m); lost && !m.serving() {
			return m, reason
		}
	}
	return nil, ""
}

// voterToSucceed is the first voter that still serves although its data is going, or would go with the restart that
// it needs, and why; nil when there is none.
func (v *view) voterToSucceed() (*member, string) {
	for _, m := range v.voters {
		if reason, lost := v.dataLost(m); lost && m.serving() {
			return m, reason
		}
	}
	if v.besideForeign() {
		return nil, "" // nobody is restarted now, nor succeeded instead
	}
	followersFirst := slices.Clone(v.voters)
	slices.SortStableFunc(followersFirst, func(a, b *member) int { return v.leads(a) - v.leads(b) })
	for _, m := range followersFirst {
		if r := v.updateOf(m); r != nil && m.serving() && !v.restartSuffices(r) && !v.waits(m) {
			return m, r.reason
		}
	}
	return nil, ""
}

// wanted is the number of voters to have now: one more than asked for while the successor of a voter that still
// serves joins.
func (v *view) wanted() int {
	lost, _ := v.lostVoter()
	if replaced, _ := v.voterToSucceed(); replaced != nil && lost == nil && len(v.replicaVoters()) >= v.replicas {
		return v.replicas + 1
	}
	return v.replicas
}

func replace(v *view) *verdict {
	lost, reason := v.lostVoter()
	if lost == nil && len(v.replicaVoters()) > v.replicas {
		lost, reason = v.voterToSucceed()
	}
	if lost == nil {
		return nil
	}
	return v.removeVoter(lost, fmt.Sprintf("%s is replaced: %s", lost.name, reason))
}

func shrink(v *view) *verdict {
	voters := v.replicaVoters()
	if len(voters) <= v.replicas {
		return nil
	}
	return v.removeVoter(v.shrinkCandidate(), fmt.Sprintf("shrinking from %d to %s", len(voters),
		wording.Count(v.replicas, "voter")))
}

// shrinkCandidate is the voter of ours that a shrink takes next: not serving before serving, followers before the
// leader, the one that was chosen before already first, and then the highest number.
func (v *view) shrinkCandidate() *member {
	rank := func(m *member) int {
		switch {
		case m.name == "":
			return 3 // a stranger is never ours to remove
		case m.ID == v.Etcd.Leader:
			return 2 // also when it does not answer us: it leads
		case m.serving():
			return 1
		}
		return 0
	}
	voters := slices.Clone(v.voters)
	slices.Reverse(voters)
	voters = v.chosenFirst(voters)
	slices.SortStableFunc(voters, func(a, b *member) int { return rank(a) - rank(b) })
	return voters[0]
}

// removeVoter removes a voter, if the others keep quorum without it (S1), after handing the leadership on.
func (v *view) removeVoter(m *member, why string) *verdict {
	others := filter(v.voters, func(o *member) bool { return o.ID != m.ID })
	silent := filter(others, func(o *member) bool { return !o.serving() })
	stay := filter(others, v.stays)
	// who does not serve may only not be reached
	enough := len(stay) == len(others) || !m.serving() && len(stay) >= quorum(len(others))
	switch {
	case m.displayName() == "":
		return &verdict{message: why + "; waiting: only strangers are left, which Quorate does not remove; use " +
			"etcdctl member remove", outlook: Waits, resync: rule.ResyncLater}
	case serving(others) < quorum(len(others)):
		return &verdict{
			message: fmt.Sprintf("%s; waiting: without %s only %d of %d voters would serve%s", why, m.displayName(),
				serving(others), len(others), v.explainAll(silent)),
			outlook: v.byPerson(silent), resync: rule.ResyncLater,
		}
	case !enough && v.waitForRestarts(others, why) != nil:
		return v.waitForRestarts(others, why)
	case !enough:
		return &verdict{
			message: fmt.Sprintf("%s; waiting: %s serves, and another voter does not%s", why, m.displayName(),
				v.explainAll(silent)),
			outlook: v.byPerson(silent), resync: rule.ResyncLater,
		}
	case m.ID == v.Etcd.Leader:
		return v.change(v.handOver(m), fmt.Sprintf("%s; %s leads and hands over first", why, m.displayName()))
	}
	return v.removeMember(m, fmt.Sprintf("%s: removing %s", why, m.displayName()))
}

// handOver gives the leadership to the serving voter that has come furthest; to one that is restarted or replaced
// itself, now or later, or whose data is proven wrong, only when there is no other.
func (v *view) handOver(from *member) Step {
	candidates := filter(v.voters, func(o *member) bool { return o.ID != from.ID && o.serving() })
	wrong := v.compareHashes().wrong
	for _, better := range []func(*member) bool{
		func(o *member) bool { return !slices.Contains(wrong, o) },
		v.stays,
		func(o *member) bool { return v.updateOf(o) == nil },
		func(o *member) bool { return from.alias == "" || o.name != "" },
	} {
		if some := filter(candidates, better); len(some) > 0 {
			candidates = some
		}
	}
	to := slices.MaxFunc(candidates,
		func(a, b *member) int { return cmp.Compare(a.health.RaftIndex, b.health.RaftIndex) })
	return MoveLeader{To: to.ID, Name: to.displayName()}
}

func grow(v *view) *verdict {
	voters := v.replicaVoters()
	if len(voters) >= v.wanted() {
		return nil
	}
	name := objects.MemberName(v.Cluster.Name, v.nextOrdinal())
	why := fmt.Sprintf("growing from %d to %s", len(voters), wording.Count(v.wanted(), "voter"))
	if replaced, reason := v.voterToSucceed(); replaced != nil && v.wanted() > v.replicas {
		why += fmt.Sprintf(", for %s is to be replaced: %s", replaced.name, reason)
	}
	if to, open := v.downgrading(); open {
		return &verdict{message: fmt.Sprintf("%s; waiting: etcd lets nobody join while the downgrade to %s is under "+
			"way; set spec.version back to have it cancelled", why, to), outlook: Waits, resync: rule.ResyncLater}
	}
	if silent := filter(v.voters, func(m *member) bool { return !m.serving() }); len(silent) > 0 {
		return &verdict{message: fmt.Sprintf("%s; waiting for %s to serve%s", why, strings.Join(names(silent), ", "),
			v.explainAll(silent)+v.foreignSilent()), outlook: v.byPerson(silent), resync: rule.ResyncSoon}
	}
	if unfit := v.unfit(); unfit != "" {
		return &verdict{message: why + "; waiting: " + unfit, outlook: Waits, resync: rule.ResyncLater}
	}
	if decision := v.pausedGrowth(why); decision != nil {
		return decision
	}
	if v.next != nil {
		return &verdict{message: fmt.Sprintf("%s; waiting: epoch %d is being made ready to take over", why,
			v.next.epoch.n), outlook: v.nextComes(), resync: rule.ResyncLater}
	}
	if v.crowded() {
		return &verdict{message: why + "; waiting: every node of spec.storage.hostPath.nodes has a member; add one",
			outlook: Waits, resync: rule.ResyncLater}
	}
	return v.change(AddLearner{Name: name, PeerURL: v.peerURL(name)}, fmt.Sprintf("%s: adding %s", why, name))
}
