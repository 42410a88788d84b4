package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/rollout"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// recordsRemoval reports whether what is said has the record name a member that is removed next.
func recordsRemoval(v *decision.Verdict) bool {
	return v.Choose.Removes && v.Choose.Withdrawn.IsZero()
}

// The rules that change the members, with a quorum's answer in hand.

func elect(v *state.View) *decision.Verdict {
	if v.Etcd.Leader != 0 {
		return nil
	}
	return &decision.Verdict{Message: "waiting for the members to elect a leader", Resync: rule.ResyncSoon}
}

func learnerLost(v *state.View) *decision.Verdict {
	l := v.Learner()
	if l == nil || l.PodName == "" {
		return nil
	}
	reason, lost := v.DataLost(l)
	if !lost {
		return nil
	}
	return removeMember(v, l, fmt.Sprintf("removing the learner %s: %s", l.PodName, reason))
}

func learnerSurplus(v *state.View) *decision.Verdict {
	l, voters := v.Learner(), len(v.ReplicaVoters())
	if lost, _ := rollout.LostVoter(v); lost != nil {
		voters-- // it is replaced, and the learner is its successor
	}
	switch {
	case l == nil || l.PodName == "":
		return nil
	case v.Memory() && rollout.HasOutdatedTemplate(v, l):
		return removeMember(v, l, fmt.Sprintf("removing the learner %s: its pod has an older template, and can't be "+
			"replaced on Memory", l.PodName))
	case voters < rollout.Wanted(v):
		return nil
	}
	return removeMember(v, l, fmt.Sprintf("removing the learner %s: it is no longer needed", l.PodName))
}

// removeMember removes a member. A call that looked before it was added may still be about to add it, and would find
// the member list as it was once the member is gone: its name would be used again (S9). Such calls are over when the
// status has listed the member for long enough. No call ever adds an initial member.
func removeMember(v *state.View, m *state.Member, why string) *decision.Verdict {
	if joined, listed := joinTime(v, m); mayBeAddedAgain(v, m) {
		verdict := &decision.Verdict{Message: fmt.Sprintf("%s; waiting for calls from before it was added to end, "+
			"%.0f seconds after that", why, state.CallsEnd.Seconds()), Resync: rule.ResyncLater}
		if listed {
			verdict.Due = state.CallsLeft(v, joined)
		}
		return verdict
	}
	return cmp.Or(state.ChooseForRemoval(v, m, why), versions.Change(v, decision.Remove{ID: m.ID,
		Name: m.DisplayName()}, why))
}

// mayBeAddedAgain reports whether a call from before the member was added may still be on its way to etcd.
func mayBeAddedAgain(v *state.View, m *state.Member) bool {
	joined, listed := joinTime(v, m)
	return !v.Epoch.BeganWith(m.PodName) && (!listed || state.CallsLeft(v, joined) > 0)
}

// joinTime is since when the status has listed the member. A status that is lost or old only delays.
func joinTime(v *state.View, m *state.Member) (since time.Time, listed bool) {
	s := v.LastStatus(m)
	if s == nil || s.JoinTime.IsZero() {
		return time.Time{}, false
	}
	return s.JoinTime.Time, true
}

func promote(v *state.View) *decision.Verdict {
	l := v.Learner()
	if l == nil || l.PodName == "" || !caughtUp(v, l) || rollout.HasOutdatedTemplate(v, l) {
		return nil // its pod is replaced before it votes
	}
	// emptied now, it could join a second time: no voter may (S10)
	if objects.MayBegin(l.Pod) {
		return nil
	}
	why := fmt.Sprintf("promoting %s: it has caught up", l.PodName)
	stay, all := len(wording.Filter(v.Voters, func(m *state.Member) bool { return state.Stays(v, m) })), len(v.Voters)
	switch {
	case state.Serving(v.Voters)+1 < state.Quorum(all+1):
		return nil // nor is its removal withdrawn, if it was chosen for that
	case v.Chosen() == l:
		return state.Withdraw(v)
	case stay+1 < state.Quorum(all+1) && (stay >= state.Quorum(all) || v.Chosen() != nil):
		// else the quorum goes in any case, unless the learner votes by then
		return health.WaitForRestarts(v, v.Voters, why)
	}
	if lags := children.BudgetLags(v); lags != "" {
		return &decision.Verdict{Message: why + "; " + lags, Resync: rule.ResyncSoon}
	}
	return versions.Change(v, decision.Promote{ID: l.ID, Name: l.PodName}, why)
}

// caughtUp reports whether the learner itself answered in this call as a learner, with a volume and not about to stop,
// so near to the others that it serves as a voter, and at 90 % of the leader's index or more. (etcd refuses a promotion
// below 90 % of the leader's match index, but asks only the leader: server.go, isLearnerReady.)
func caughtUp(v *state.View, l *state.Member) bool {
	lead := v.Leader()
	hasVolume := v.Memory() || volumes.StorageUsable(v, l.PodName)
	return lead != nil && lead.Serving() && l.Serving() && l.Health.Learner && !l.Restarting() && hasVolume &&
		!l.Lags && l.Health.RaftIndex*10 >= lead.Health.RaftIndex*9
}

// replaceFirst does not wait for the learner: an etcd that joins compares its initial cluster with the list of the
// others, and looks up the name of every member for that; the name of a member without a pod has gone
// (etcdserver/api/membership, ValidateClusterAndAssignIDs). Its pod is made again with the shorter list.
func replaceFirst(v *state.View) *decision.Verdict {
	l := v.Learner()
	lost, reason := rollout.LostVoter(v)
	if l == nil || l.PodName == "" || lost == nil || l.Serving() || len(v.RemovedPods()) > 0 {
		return nil
	}
	return removeVoter(v, lost, fmt.Sprintf("replacing %s: %s", lost.PodName, reason))
}

func recreatePod(v *state.View) *decision.Verdict {
	for _, m := range state.ChosenFirst(v, v.Members) {
		if reason, stale := rollout.Outdated(v, m); stale && disposable(v, m) {
			return chooseAndRecreate(v, m, &decision.Verdict{Message: fmt.Sprintf("replacing the pod %s: %s",
				m.PodName, reason), DeletePod: m.PodName, Resync: rule.ResyncLater}, reason)
		}
	}
	for _, m := range state.ChosenFirst(v, v.Members) {
		reason, wants := rollout.WantsImage(v, m)
		switch {
		case !wants || m.Serving() || pods.Mismatched(v, m):
		case state.ChosenForDeletion(v, m) && disposable(v, m):
			return chooseAndRecreate(v, m, &decision.Verdict{Message: fmt.Sprintf("replacing the pod %s: %s",
				m.PodName, reason), DeletePod: m.PodName, Resync: rule.ResyncLater}, reason)
		case m.Learner && !state.NeverRan(m.Pod) || !m.Learner && rollout.Leads(v, m) == 0 && state.QuorumWithout(v, m):
			return chooseAndRecreate(v, m, &decision.Verdict{
				Message:    fmt.Sprintf("changing the image of %s, which does not serve: %s", m.PodName, reason),
				PatchImage: m.PodName, Resync: rule.ResyncLater}, reason)
		}
	}
	return nil
}

// chooseAndRecreate is what is said of a pod that is down, or a learner's. It may serve, and vote, before it is done,
// so it is chosen first. But another image for an etcd that never ran stops nothing.
func chooseAndRecreate(v *state.View, m *state.Member, verdict *decision.Verdict, reason string) *decision.Verdict {
	if verdict.PatchImage != "" && state.NeverRan(m.Pod) {
		return verdict
	}
	return cmp.Or(state.ChooseForRestart(v, m, verdict.PatchImage != "", reason), verdict)
}

// disposable reports whether the member's pod may be deleted without harm: a learner's nearly always, a voter's when
// it is down and the others can do without it. On Memory the data would go too.
func disposable(v *state.View, m *state.Member) bool {
	switch {
	case m.Pod.DeletionTimestamp != nil || state.Finished(m.Pod) || pods.Mismatched(v, m):
		return false
	case m.Learner && !m.Started():
		return !m.Serving()
	case v.Memory():
		return false
	}
	return m.Learner || !m.Serving() && rollout.Leads(v, m) == 0 && state.QuorumWithout(v, m)
}

func learner(v *state.View) *decision.Verdict {
	l := v.Learner()
	switch {
	case l == nil:
		return nil
	case l.PodName == "":
		return &decision.Verdict{
			Message: fmt.Sprintf("waiting: Quorate did not add the learner %s; promote or remove it with etcdctl",
				wording.Hex(l.ID)), Outlook: rule.Waits, Resync: rule.ResyncLater}
	case !l.Serving():
		return &decision.Verdict{Message: fmt.Sprintf("waiting for the learner %s to start%s", l.PodName,
			wording.Colon(health.Explain(v, l))), Outlook: byPerson(v, []*state.Member{l}), Resync: rule.ResyncSoon}
	}
	return &decision.Verdict{Message: fmt.Sprintf("waiting for the learner %s to catch up", l.PodName),
		Resync: rule.ResyncSoon}
}

func waitForRemoved(v *state.View) *decision.Verdict {
	if left := v.RemovedPods(); len(left) > 0 {
		return &decision.Verdict{Message: fmt.Sprintf("waiting for removed members to stop: %s", strings.Join(left,
			", ")), Resync: rule.ResyncLater}
	}
	return nil
}

func reserveName(v *state.View) *decision.Verdict {
	for _, m := range v.Members {
		if m.PodName != "" && !state.OrdinalReserved(v, m.PodName) {
			return &decision.Verdict{Message: fmt.Sprintf("recording that the name %s is taken", m.PodName),
				Resync: rule.ResyncSoon}
		}
	}
	return nil
}

func replace(v *state.View) *decision.Verdict {
	lost, reason := rollout.LostVoter(v)
	if lost == nil && len(v.ReplicaVoters()) > v.Replicas {
		lost, reason = rollout.VoterToSucceed(v)
	}
	if lost == nil {
		return nil
	}
	return removeVoter(v, lost, fmt.Sprintf("replacing %s: %s", lost.PodName, reason))
}

func shrink(v *state.View) *decision.Verdict {
	voters := v.ReplicaVoters()
	if len(voters) <= v.Replicas {
		return nil
	}
	m, why := shrinkCandidate(v), fmt.Sprintf("shrinking from %d to %s", len(voters), wording.Count(v.Replicas, "voter"))
	if held := stoppedByFence(v); held != nil && (held == m || m.Serving()) {
		return &decision.Verdict{Message: fmt.Sprintf("%s; waiting: an EtcdOperation of type Fence keeps %s stopped for a "+
			"person to look at; delete it", why, held.PodName), Outlook: rule.Waits, Resync: rule.ResyncLater}
	}
	return removeVoter(v, m, why)
}

// stoppedByFence is a voter that a person keeps stopped; nil for none.
func stoppedByFence(v *state.View) *state.Member {
	return wording.First(v.Voters, func(m *state.Member) bool { return v.Fenced(m.PodName) && !m.Serving() })
}

// shrinkCandidate is the voter of ours that a shrink takes next: not serving before serving, followers before the
// leader, one that can be removed at once before one that was added just now, the one that was chosen before already
// first, and then the highest number. One that a person has fenced is looked at, and taken after all others.
func shrinkCandidate(v *state.View) *state.Member {
	rank := func(m *state.Member) int {
		switch {
		case m.PodName == "":
			return 4 // a stranger is never ours to remove
		case v.Fenced(m.PodName):
			return 3
		case m.ID == v.Etcd.Leader:
			return 2 // also when it does not answer us: it leads
		case m.Serving():
			return 1
		}
		return 0
	}
	voters := slices.Clone(v.Voters)
	slices.Reverse(voters)
	voters = state.ChosenFirst(v, voters)
	waits := func(m *state.Member) int {
		if mayBeAddedAgain(v, m) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(voters, func(a, b *state.Member) int {
		return cmp.Or(rank(a)-rank(b), waits(a)-waits(b))
	})
	return voters[0]
}

// removeVoter removes a voter, if the others keep quorum without it (S1), after handing the leadership on.
func removeVoter(v *state.View, m *state.Member, why string) *decision.Verdict {
	others := wording.Filter(v.Voters, func(o *state.Member) bool { return o.ID != m.ID })
	silent := wording.Filter(others, func(o *state.Member) bool { return !o.Serving() })
	stay := wording.Filter(others, func(m *state.Member) bool { return state.Stays(v, m) })
	// who does not serve may only not be reached
	enough := len(stay) == len(others) || !m.Serving() && len(stay) >= state.Quorum(len(others))
	switch {
	case m.DisplayName() == "":
		return &decision.Verdict{Message: why +
			"; waiting: Quorate does not remove members that it did not add; use etcdctl member remove",
			Outlook: rule.Waits, Resync: rule.ResyncLater}
	case state.Serving(others) < state.Quorum(len(others)):
		return &decision.Verdict{
			Message: fmt.Sprintf("%s; waiting: without %s only %d of %d voters serve%s", why, m.DisplayName(),
				state.Serving(others), len(others), health.ExplainAll(v, silent)),
			Outlook: byPerson(v, silent), Resync: rule.ResyncLater,
		}
	case !enough && health.WaitForRestarts(v, others, why) != nil:
		return health.WaitForRestarts(v, others, why)
	case !enough:
		return &decision.Verdict{
			Message: fmt.Sprintf("%s; waiting: %s serves and another voter does not%s", why, m.DisplayName(),
				health.ExplainAll(v, silent)),
			Outlook: byPerson(v, silent), Resync: rule.ResyncLater,
		}
	case m.ID == v.Etcd.Leader:
		return versions.Change(v, handOver(v, m), fmt.Sprintf("%s; %s leads and hands over first", why,
			m.DisplayName()))
	}
	return removeMember(v, m, fmt.Sprintf("%s: removing %s", why, m.DisplayName()))
}

// handOver gives the leadership to the serving voter that has come furthest; to one that is restarted or replaced
// itself, now or later, or whose data is proven wrong, only when there is no other.
func handOver(v *state.View, from *state.Member) decision.Step {
	candidates := wording.Filter(v.Voters, func(o *state.Member) bool { return o.ID != from.ID && o.Serving() })
	wrong := compareHashes(v).wrong
	for _, better := range []func(*state.Member) bool{
		func(o *state.Member) bool { return !slices.Contains(wrong, o) },
		func(m *state.Member) bool { return state.Stays(v, m) },
		func(o *state.Member) bool { return rollout.UpdateOf(v, o) == nil },
		func(o *state.Member) bool { return from.Alias == "" || o.PodName != "" },
	} {
		if some := wording.Filter(candidates, better); len(some) > 0 {
			candidates = some
		}
	}
	to := slices.MaxFunc(candidates,
		func(a, b *state.Member) int { return cmp.Compare(a.Health.RaftIndex, b.Health.RaftIndex) })
	return decision.MoveLeader{To: to.ID, Name: to.DisplayName()}
}

// afterDowngrade: no member can join during a downgrade. The members that there are come to its end first, where they
// can be restarted for it; then etcd ends it by itself.
func afterDowngrade(v *state.View, to, why string) *decision.Verdict {
	why = fmt.Sprintf("%s; waiting: no member can join during the downgrade to %s", why, to)
	inTheWay := slices.ContainsFunc(v.ReplicaVoters(), func(m *state.Member) bool {
		if m.Pod == nil || m.Restarting() || !m.Serving() {
			return true
		}
		_, differs := rollout.ImageDiffers(v, m)
		return differs
	})
	switch {
	case !v.CanLoseOne():
		return &decision.Verdict{Message: why + "; set spec.version back to cancel it", Outlook: rule.Waits,
			Resync: rule.ResyncLater}
	case inTheWay || len(versions.Hops(v)) > 0:
		return nil
	}
	return &decision.Verdict{Message: why, Resync: rule.ResyncSoon}
}

func grow(v *state.View) *decision.Verdict {
	voters := v.ReplicaVoters()
	if len(voters) >= rollout.Wanted(v) {
		return nil
	}
	name := objects.MemberName(v.Cluster.Name, v.NextOrdinal())
	why := fmt.Sprintf("growing from %d to %s", len(voters), wording.Count(rollout.Wanted(v), "voter"))
	if replaced, reason := rollout.VoterToSucceed(v); replaced != nil && rollout.Wanted(v) > v.Replicas {
		why += fmt.Sprintf(", because %s must be replaced: %s", replaced.PodName, reason)
	}
	if to, open := versions.Downgrading(v); open {
		return afterDowngrade(v, to, why)
	}
	if silent := wording.Filter(v.Voters, func(m *state.Member) bool { return !m.Serving() }); len(silent) > 0 {
		return &decision.Verdict{Message: fmt.Sprintf("%s; waiting for %s to serve%s", why,
			strings.Join(state.Names(silent), ", "),
			health.ExplainAll(v, silent)+foreign.ForeignSilent(v)), Outlook: byPerson(v, silent),
			Resync: rule.ResyncSoon}
	}
	if unfit := foreign.Unfit(v); unfit != "" {
		return &decision.Verdict{Message: why + "; waiting: " + unfit, Outlook: rule.Waits,
			Resync: rule.ResyncLater}
	}
	if verdict := pausedGrowth(v, why); verdict != nil {
		return verdict
	}
	if v.Next != nil {
		return &decision.Verdict{Message: fmt.Sprintf("%s; waiting: epoch %d is being prepared", why,
			v.Next.Epoch.N), Outlook: nextComes(v), Resync: rule.ResyncLater}
	}
	if volumes.Crowded(v) {
		return &decision.Verdict{Message: why + "; waiting: every node of " + spec.NodesField(&v.Cluster.Spec) +
			" has a member; add one", Outlook: rule.Waits, Resync: rule.ResyncLater}
	}
	address := volumes.FreeAddress(v, v.NextOrdinal())
	if v.HostNetwork() && address == "" {
		return &decision.Verdict{Message: fmt.Sprintf("%s; waiting: the certificates in the Secrets %s and %s are "+
			"not valid for the address of any free node", why, spec.ServerSecret(v.Cluster),
			spec.PeerSecret(v.Cluster)),
			Outlook: rule.Waits, Resync: rule.ResyncSoon}
	}
	return versions.Change(v, decision.AddLearner{Name: name, PeerURL: state.PeerURL(v, name, address)},
		fmt.Sprintf("%s: adding %s", why, name))
}
