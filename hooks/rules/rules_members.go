package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// recordsRemoval reports whether what is said has the record name a member that is removed next.
func recordsRemoval(p *decision.Plan) bool {
	return p.Record.Choice.Removes && p.Record.Choice.Withdrawn.IsZero()
}

// The rules that change the members, with a quorum's answer in hand.

func elect(v *facts.Facts) *decision.Plan {
	if v.Etcd.Leader != 0 {
		return nil
	}
	return &decision.Plan{Message: "waiting for the members to elect a leader", Resync: decision.ResyncSoon}
}

func learnerLost(v *facts.Facts) *decision.Plan {
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

func learnerSurplus(v *facts.Facts) *decision.Plan {
	l, voters := v.Learner(), len(v.ReplicaVoters())
	if lost, _ := v.LostVoter(); lost != nil {
		voters-- // it is replaced, and the learner is its successor
	}
	switch {
	case l == nil || l.PodName == "":
		return nil
	case v.Memory() && v.HasOutdatedTemplate(l):
		return removeMember(v, l, fmt.Sprintf("removing the learner %s: its pod has an older template, and can't be "+
			"replaced on Memory", l.PodName))
	case voters < v.Wanted():
		return nil
	}
	return removeMember(v, l, fmt.Sprintf("removing the learner %s: it is no longer needed", l.PodName))
}

// removeMember removes a member. A call that looked before it was added may still be about to add it, and would find
// the member list as it was once the member is gone: its name would be used again (S9). Such calls are over when the
// status has listed the member for long enough. No call ever adds an initial member.
func removeMember(v *facts.Facts, m *facts.Member, why string) *decision.Plan {
	if joined, listed := joinTime(v, m); mayBeAddedAgain(v, m) {
		plan := &decision.Plan{
			Message: fmt.Sprintf("%s; waiting for calls from before it was added to end, "+
				"%.0f seconds after that", why, facts.CallsEnd.Seconds()),
			Resync: decision.ResyncLater,
		}
		if listed {
			plan.Due = v.CallsLeft(joined)
		}
		return plan
	}
	return cmp.Or(chooseForRemoval(v, m, why), change(v, decision.Remove{ID: m.ID,
		Name: m.DisplayName()}, why))
}

// mayBeAddedAgain reports whether a call from before the member was added may still be on its way to etcd.
func mayBeAddedAgain(v *facts.Facts, m *facts.Member) bool {
	joined, listed := joinTime(v, m)
	return !v.Epoch.BeganWith(m.PodName) && (!listed || v.CallsLeft(joined) > 0)
}

// joinTime is since when the status has listed the member. A status that is lost or old only delays.
func joinTime(v *facts.Facts, m *facts.Member) (since time.Time, listed bool) {
	s := v.LastStatus(m)
	if s == nil || s.JoinTime.IsZero() {
		return time.Time{}, false
	}
	return s.JoinTime.Time, true
}

func promote(v *facts.Facts) *decision.Plan {
	l := v.Learner()
	if l == nil || l.PodName == "" || !caughtUp(v, l) || v.HasOutdatedTemplate(l) {
		return nil // its pod is replaced before it votes
	}
	// emptied now, it could join a second time: no voter may (S10)
	if objects.MayBegin(l.Pod) {
		return nil
	}
	why := fmt.Sprintf("promoting %s: it has caught up", l.PodName)
	stay, all := len(objects.Filter(v.Voters, func(m *facts.Member) bool { return v.Stays(m) })), len(v.Voters)
	switch {
	case facts.Serving(v.Voters)+1 < facts.Quorum(all+1):
		return nil // nor is its removal withdrawn, if it was chosen for that
	case v.Chosen() == l:
		return withdraw(v)
	case stay+1 < facts.Quorum(all+1) && (stay >= facts.Quorum(all) || v.Chosen() != nil):
		// else the quorum goes in any case, unless the learner votes by then
		return waitForRestarts(v, v.Voters, why)
	}
	if lags := v.BudgetLags(); lags != "" {
		return &decision.Plan{Message: why + "; " + lags, Resync: decision.ResyncSoon}
	}
	return change(v, decision.Promote{ID: l.ID, Name: l.PodName}, why)
}

// caughtUp reports whether the learner itself answered in this call as a learner, with a volume and not about to stop,
// so near to the others that it serves as a voter, and at 90 % of the leader's index or more. (etcd refuses a promotion
// below 90 % of the leader's match index, but asks only the leader: server.go, isLearnerReady.)
func caughtUp(v *facts.Facts, l *facts.Member) bool {
	lead := v.Leader()
	hasVolume := v.Memory() || v.StorageUsable(l.PodName)
	return lead != nil && lead.Serving() && l.Serving() && l.Health.Learner && !l.Restarting() && hasVolume &&
		!l.Lags && l.Health.RaftIndex*10 >= lead.Health.RaftIndex*9
}

// replaceFirst does not wait for the learner: an etcd that joins compares its initial cluster with the list of the
// others, and looks up the name of every member for that; the name of a member without a pod has gone
// (etcdserver/api/membership, ValidateClusterAndAssignIDs). Its pod is made again with the shorter list.
func replaceFirst(v *facts.Facts) *decision.Plan {
	l := v.Learner()
	lost, reason := v.LostVoter()
	if l == nil || l.PodName == "" || lost == nil || l.Serving() || len(v.RemovedPods()) > 0 {
		return nil
	}
	return removeVoter(v, lost, fmt.Sprintf("replacing %s: %s", lost.PodName, reason))
}

func recreatePod(v *facts.Facts) *decision.Plan {
	for _, m := range v.ChosenFirst(v.Members) {
		if reason, stale := v.Outdated(m); stale && disposable(v, m) {
			return chooseAndRecreate(v, m, &decision.Plan{
				Message: fmt.Sprintf("replacing the pod %s: %s",
					m.PodName, reason),
				Pod:    decision.PodChange{Name: m.PodName, Fate: decision.Deleted},
				Resync: decision.ResyncLater,
			}, reason)
		}
	}
	for _, m := range v.ChosenFirst(v.Members) {
		reason, wants := v.WantsImage(m)
		switch {
		case !wants || m.Serving() || v.Mismatched(m):
		case v.ChosenForDeletion(m) && disposable(v, m):
			return chooseAndRecreate(v, m, &decision.Plan{
				Message: fmt.Sprintf("replacing the pod %s: %s",
					m.PodName, reason),
				Pod:    decision.PodChange{Name: m.PodName, Fate: decision.Deleted},
				Resync: decision.ResyncLater,
			}, reason)
		case m.Learner && !facts.NeverRan(m.Pod) || !m.Learner && v.Leads(m) == 0 && v.QuorumWithout(m):
			return chooseAndRecreate(v, m, &decision.Plan{
				Message: fmt.Sprintf("changing the image of %s, which does not serve: %s", m.PodName, reason),
				Pod:     decision.PodChange{Name: m.PodName, Fate: decision.Reimaged},
				Resync:  decision.ResyncLater,
			}, reason)
		}
	}
	return nil
}

// chooseAndRecreate is what is said of a pod that is down, or a learner's. It may serve, and vote, before it is done,
// so it is chosen first. But another image for an etcd that never ran stops nothing.
func chooseAndRecreate(v *facts.Facts, m *facts.Member, plan *decision.Plan, reason string) *decision.Plan {
	inPlace := plan.Pod.Fate == decision.Reimaged
	if inPlace && facts.NeverRan(m.Pod) {
		return plan
	}
	return cmp.Or(ChooseForRestart(v, m, inPlace, reason), plan)
}

// disposable reports whether the member's pod may be deleted without harm: a learner's nearly always, a voter's when
// it is down and the others can do without it. On Memory the data would go too.
func disposable(v *facts.Facts, m *facts.Member) bool {
	switch {
	case m.Pod.DeletionTimestamp != nil || facts.Finished(m.Pod) || v.Mismatched(m):
		return false
	case m.Learner && !m.Started():
		return !m.Serving()
	case v.Memory():
		return false
	}
	return m.Learner || !m.Serving() && v.Leads(m) == 0 && v.QuorumWithout(m)
}

func learner(v *facts.Facts) *decision.Plan {
	l := v.Learner()
	switch {
	case l == nil:
		return nil
	case l.PodName == "":
		return &decision.Plan{
			Message: fmt.Sprintf("waiting: Quorate did not add the learner %s; promote or remove it with etcdctl",
				objects.Hex(l.ID)),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	case !l.Serving():
		return &decision.Plan{
			Message: fmt.Sprintf("waiting for the learner %s to start%s", l.PodName,
				objects.Colon(v.Explain(l))),
			Outlook: byPerson(v, []*facts.Member{l}),
			Resync:  decision.ResyncSoon,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("waiting for the learner %s to catch up", l.PodName),
		Resync:  decision.ResyncSoon,
	}
}

func waitForRemoved(v *facts.Facts) *decision.Plan {
	if left := v.RemovedPods(); len(left) > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("waiting for removed members to stop: %s", strings.Join(left,
				", ")),
			Resync: decision.ResyncLater,
		}
	}
	return nil
}

func reserveName(v *facts.Facts) *decision.Plan {
	for _, m := range v.Members {
		if m.PodName != "" && !v.OrdinalReserved(m.PodName) {
			return &decision.Plan{
				Message: fmt.Sprintf("recording that the name %s is taken", m.PodName),
				Resync:  decision.ResyncSoon,
			}
		}
	}
	return nil
}

func replace(v *facts.Facts) *decision.Plan {
	lost, reason := v.LostVoter()
	if lost == nil && len(v.ReplicaVoters()) > v.Replicas {
		lost, reason = v.VoterToSucceed()
	}
	if lost == nil {
		return nil
	}
	return removeVoter(v, lost, fmt.Sprintf("replacing %s: %s", lost.PodName, reason))
}

func shrink(v *facts.Facts) *decision.Plan {
	voters := v.ReplicaVoters()
	if len(voters) <= v.Replicas {
		return nil
	}
	m, why := shrinkCandidate(v), fmt.Sprintf("shrinking from %d to %s", len(voters), objects.Count(v.Replicas, "voter"))
	if held := stoppedByFence(v); held != nil && (held == m || m.Serving()) {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting: an EtcdOperation of type Fence keeps %s stopped for a "+
				"person to look at; delete it", why, held.PodName),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	return removeVoter(v, m, why)
}

// stoppedByFence is a voter that a person keeps stopped; nil for none.
func stoppedByFence(v *facts.Facts) *facts.Member {
	return objects.First(v.Voters, func(m *facts.Member) bool { return v.Fenced(m.PodName) && !m.Serving() })
}

// shrinkCandidate is the voter of ours that a shrink takes next: not serving before serving, followers before the
// leader, one that can be removed at once before one that was added just now, the one that was chosen before already
// first, and then the highest number. One that a person has fenced is looked at, and taken after all others.
func shrinkCandidate(v *facts.Facts) *facts.Member {
	rank := func(m *facts.Member) int {
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
	voters = v.ChosenFirst(voters)
	waits := func(m *facts.Member) int {
		if mayBeAddedAgain(v, m) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(voters, func(a, b *facts.Member) int {
		return cmp.Or(rank(a)-rank(b), waits(a)-waits(b))
	})
	return voters[0]
}

// removeVoter removes a voter, if the others keep quorum without it (S1), after handing the leadership on.
func removeVoter(v *facts.Facts, m *facts.Member, why string) *decision.Plan {
	others := objects.Filter(v.Voters, func(o *facts.Member) bool { return o.ID != m.ID })
	silent := objects.Filter(others, func(o *facts.Member) bool { return !o.Serving() })
	stay := objects.Filter(others, func(m *facts.Member) bool { return v.Stays(m) })
	// who does not serve may only not be reached
	enough := len(stay) == len(others) || !m.Serving() && len(stay) >= facts.Quorum(len(others))
	switch {
	case m.DisplayName() == "":
		return &decision.Plan{
			Message: why +
				"; waiting: Quorate does not remove members that it did not add; use etcdctl member remove",
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	case facts.Serving(others) < facts.Quorum(len(others)):
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting: without %s only %d of %d voters serve%s", why, m.DisplayName(),
				facts.Serving(others), len(others), v.ExplainAll(silent)),
			Outlook: byPerson(v, silent),
			Resync:  decision.ResyncLater,
		}
	case !enough && waitForRestarts(v, others, why) != nil:
		return waitForRestarts(v, others, why)
	case !enough:
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting: %s serves and another voter does not%s", why, m.DisplayName(),
				v.ExplainAll(silent)),
			Outlook: byPerson(v, silent),
			Resync:  decision.ResyncLater,
		}
	case m.ID == v.Etcd.Leader:
		return change(v, HandOver(v, m), fmt.Sprintf("%s; %s leads and hands over first", why,
			m.DisplayName()))
	}
	return removeMember(v, m, fmt.Sprintf("%s: removing %s", why, m.DisplayName()))
}

// handOver gives the leadership to the serving voter that has come furthest; to one that is restarted or replaced
// itself, now or later, or whose data is proven wrong, only when there is no other.
func HandOver(v *facts.Facts, from *facts.Member) decision.Step {
	candidates := objects.Filter(v.Voters, func(o *facts.Member) bool { return o.ID != from.ID && o.Serving() })
	wrong := compareHashes(v).wrong
	for _, better := range []func(*facts.Member) bool{
		func(o *facts.Member) bool { return !slices.Contains(wrong, o) },
		func(m *facts.Member) bool { return v.Stays(m) },
		func(o *facts.Member) bool { return v.UpdateOf(o) == nil },
		func(o *facts.Member) bool { return from.Alias == "" || o.PodName != "" },
	} {
		if some := objects.Filter(candidates, better); len(some) > 0 {
			candidates = some
		}
	}
	to := slices.MaxFunc(candidates,
		func(a, b *facts.Member) int { return cmp.Compare(a.Health.RaftIndex, b.Health.RaftIndex) })
	return decision.MoveLeader{To: to.ID, Name: to.DisplayName()}
}

// afterDowngrade: no member can join during a downgrade. The members that there are come to its end first, where they
// can be restarted for it; then etcd ends it by itself.
func afterDowngrade(v *facts.Facts, to, why string) *decision.Plan {
	why = fmt.Sprintf("%s; waiting: no member can join during the downgrade to %s", why, to)
	inTheWay := slices.ContainsFunc(v.ReplicaVoters(), func(m *facts.Member) bool {
		if m.Pod == nil || m.Restarting() || !m.Serving() {
			return true
		}
		_, differs := v.ImageDiffers(m)
		return differs
	})
	switch {
	case !v.CanLoseOne():
		return &decision.Plan{
			Message: why + "; set spec.version back to cancel it",
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	case inTheWay || len(v.Hops()) > 0:
		return nil
	}
	return &decision.Plan{Message: why, Resync: decision.ResyncSoon}
}

func grow(v *facts.Facts) *decision.Plan {
	voters := v.ReplicaVoters()
	if len(voters) >= v.Wanted() {
		return nil
	}
	name := objects.MemberName(v.Cluster.Name, v.NextOrdinal())
	why := fmt.Sprintf("growing from %d to %s", len(voters), objects.Count(v.Wanted(), "voter"))
	if replaced, reason := v.VoterToSucceed(); replaced != nil && v.Wanted() > v.Replicas {
		why += fmt.Sprintf(", because %s must be replaced: %s", replaced.PodName, reason)
	}
	if to, open := v.Downgrading(); open {
		return afterDowngrade(v, to, why)
	}
	if silent := objects.Filter(v.Voters, func(m *facts.Member) bool { return !m.Serving() }); len(silent) > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting for %s to serve%s", why,
				strings.Join(facts.Names(silent), ", "),
				v.ExplainAll(silent)+v.ForeignSilent()),
			Outlook: byPerson(v, silent),
			Resync:  decision.ResyncSoon,
		}
	}
	if unfit := v.Unfit(); unfit != "" {
		return &decision.Plan{
			Message: why + "; waiting: " + unfit,
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	if plan := pausedGrowth(v, why); plan != nil {
		return plan
	}
	if v.Next != nil {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting: epoch %d is being prepared", why,
				v.Next.Epoch.N),
			Outlook: nextComes(v),
			Resync:  decision.ResyncLater,
		}
	}
	if v.Crowded() {
		return &decision.Plan{
			Message: why + "; waiting: every node of " + defaults.NodesField(&v.Cluster.Spec) +
				" has a member; add one",
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	address := v.FreeAddress(v.NextOrdinal())
	if v.HostNetwork() && address == "" {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting: the certificates in the Secrets %s and %s are "+
				"not valid for the address of any free node", why, defaults.ServerSecret(v.Cluster),
				defaults.PeerSecret(v.Cluster)),
			Outlook: decision.Waits,
			Resync:  decision.ResyncSoon,
		}
	}
	return change(v, decision.AddLearner{Name: name, PeerURL: v.PeerURL(name, address)},
		fmt.Sprintf("%s: adding %s", why, name))
}
