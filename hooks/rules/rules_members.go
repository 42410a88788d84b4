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

func noLeader(f *facts.Facts) *decision.Plan {
	if f.Etcd.Leader != 0 {
		return nil
	}
	return &decision.Plan{Message: "waiting for the members to elect a leader", Resync: decision.ResyncSoon}
}

func learnerLost(f *facts.Facts) *decision.Plan {
	l := f.Learner()
	if l == nil || l.PodName == "" {
		return nil
	}
	reason, lost := f.DataLost(l)
	if !lost {
		return nil
	}
	return removeMember(f, l, fmt.Sprintf("removing the learner %s: %s", l.PodName, reason))
}

func learnerSurplus(f *facts.Facts) *decision.Plan {
	l := f.Learner()
	switch {
	case l == nil || l.PodName == "":
		return nil
	case f.Memory() && f.HasOutdatedTemplate(l):
		return removeMember(f, l, fmt.Sprintf("removing the learner %s: its pod has an older template, and can't be "+
			"replaced on Memory", l.PodName))
	case f.SpareUnfit() != "":
		return removeMember(f, l, fmt.Sprintf("removing the spare %s: %s; the next one is made", l.PodName, f.SpareUnfit()))
	case f.Short() || f.Spares() > 0:
		return nil
	}
	return removeMember(f, l, fmt.Sprintf("removing the learner %s: it is no longer needed", l.PodName))
}

// removeMember removes a member. A call that looked before it was added may still be about to add it, and would find
// the member list as it was once the member is gone: its name would be used again (S9). Such calls are over when the
// status has listed the member for long enough. No call ever adds an initial member.
func removeMember(f *facts.Facts, m *facts.Member, why string) *decision.Plan {
	if joined, listed := joinTime(f, m); mayBeAddedAgain(f, m) {
		plan := &decision.Plan{
			Message: fmt.Sprintf("%s; waiting for calls that began before it was added: they end "+
				"within %.0f seconds of that", why, facts.CallsEnd.Seconds()),
			Resync: decision.ResyncLater,
		}
		if listed {
			plan.Due = f.CallsLeft(joined)
		}
		return plan
	}
	return cmp.Or(chooseForRemoval(f, m, why), change(f, decision.Remove{ID: m.ID,
		Name: m.DisplayName()}, why))
}

// mayBeAddedAgain reports whether a call from before the member was added may still be on its way to etcd.
func mayBeAddedAgain(f *facts.Facts, m *facts.Member) bool {
	joined, listed := joinTime(f, m)
	return !f.Epoch.BeganWith(m.PodName) && (!listed || f.CallsLeft(joined) > 0)
}

// joinTime is since when the status has listed the member. A status that is lost or old only delays.
func joinTime(f *facts.Facts, m *facts.Member) (since time.Time, listed bool) {
	s := f.LastStatus(m)
	if s == nil || s.JoinTime.IsZero() {
		return time.Time{}, false
	}
	return s.JoinTime.Time, true
}

func promote(f *facts.Facts) *decision.Plan {
	l := f.Learner()
	if l == nil || l.PodName == "" || !f.CaughtUp(l) || f.HasOutdatedTemplate(l) {
		return nil // its pod is replaced before it votes
	}
	if l == f.Spare() || f.CutOff(l) && f.Late() == l {
		return nil // it stays as it is, or is given up
	}
	// emptied now, it could join a second time: no voter may (S10)
	if objects.MayBegin(l.Pod) {
		return nil
	}
	why := fmt.Sprintf("promoting %s: it has caught up", l.PodName)
	stay := len(objects.Filter(f.Voters, func(m *facts.Member) bool { return f.Stays(m) }))
	all := len(f.Voters)
	switch {
	case facts.Serving(f.Voters)+1 < facts.Quorum(all+1):
		return nil // nor is its removal withdrawn, if it was chosen for that
	case f.Chosen() == l:
		return withdraw(f)
	case stay+1 < facts.Quorum(all+1) && (stay >= facts.Quorum(all) || f.Chosen() != nil):
		// else the quorum goes in any case, unless the learner votes by then
		return waitForRestarts(f, f.Voters, why)
	}
	if lags := f.BudgetLags(); lags != "" {
		return &decision.Plan{Message: why + "; " + lags, Resync: decision.ResyncSoon}
	}
	return change(f, decision.Promote{ID: l.ID, Name: l.PodName}, why)
}

// replaceFirst does not wait for the learner: an etcd that joins compares its initial cluster with the list of the
// others, and looks up the name of every member for that; the name of a member without a pod has gone
// (etcdserver/api/membership, ValidateClusterAndAssignIDs). Its pod is made again with the shorter list.
func replaceFirst(f *facts.Facts) *decision.Plan {
	l := f.Learner()
	lost, reason := f.LostVoter()
	if l == nil || l.PodName == "" || l.Serving() {
		return nil
	}
	if lost == nil || len(f.RemovedPods()) > 0 {
		return nil
	}
	return removeVoter(f, lost, fmt.Sprintf("replacing %s: %s", lost.PodName, reason))
}

func recreatePod(f *facts.Facts) *decision.Plan {
	for _, m := range f.ChosenFirst(f.Members) {
		if reason, stale := f.Outdated(m); stale && disposable(f, m) {
			return chooseAndRecreate(f, m, &decision.Plan{
				Message: fmt.Sprintf("replacing the pod %s: %s",
					m.PodName, reason),
				Pod:    decision.PodChange{Name: m.PodName, Fate: decision.Deleted},
				Resync: decision.ResyncLater,
			}, reason)
		}
	}
	for _, m := range f.ChosenFirst(f.Members) {
		reason, wants := f.WantsImage(m)
		switch {
		case !wants || m.Serving() || f.Mismatched(m):
		case f.ChosenForDeletion(m) && disposable(f, m):
			return chooseAndRecreate(f, m, &decision.Plan{
				Message: fmt.Sprintf("replacing the pod %s: %s",
					m.PodName, reason),
				Pod:    decision.PodChange{Name: m.PodName, Fate: decision.Deleted},
				Resync: decision.ResyncLater,
			}, reason)
		case m.Learner && !facts.NeverRan(m.Pod), !m.Learner && f.Leads(m) == 0 && f.QuorumWithout(m):
			return chooseAndRecreate(f, m, &decision.Plan{
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
func chooseAndRecreate(f *facts.Facts, m *facts.Member, plan *decision.Plan, reason string) *decision.Plan {
	inPlace := plan.Pod.Fate == decision.Reimaged
	if inPlace && facts.NeverRan(m.Pod) {
		return plan
	}
	return cmp.Or(ChooseForRestart(f, m, inPlace, reason), plan)
}

// disposable reports whether the member's pod may be deleted without harm: a learner's nearly always, a voter's when
// it is down and the others can do without it. On Memory the data would go too.
func disposable(f *facts.Facts, m *facts.Member) bool {
	switch {
	case m.Pod.DeletionTimestamp != nil || facts.Finished(m.Pod) || f.Mismatched(m):
		return false
	case m.Learner && !m.Started():
		return !m.Serving()
	case f.Memory():
		return false
	}
	return m.Learner || !m.Serving() && f.Leads(m) == 0 && f.QuorumWithout(m)
}

func learnerCatchingUp(f *facts.Facts) *decision.Plan {
	l := f.Joining()
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
				objects.Colon(f.Explain(l))) + f.WhyNotReady(),
			Outlook: byPerson(f, []*facts.Member{l}),
			Resync:  decision.ResyncSoon,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("waiting for the learner %s to catch up", l.PodName) + f.WhyNotReady(),
		Resync:  decision.ResyncSoon,
	}
}

// waitForRemoved does not wait for pods that stop already, where another voter is to leave: it takes no one's place.
func waitForRemoved(f *facts.Facts) *decision.Plan {
	left := f.RemovedPods()
	if len(left) == 0 || shrinks(f) && f.AllStop(left) {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("waiting for removed members to stop: %s", strings.Join(left, ", ")),
		Resync:  decision.ResyncLater,
	}
}

// shrinks reports whether there are more voters of ours than wanted.
func shrinks(f *facts.Facts) bool { return len(f.ReplicaVoters()) > f.Replicas }

func reserveName(f *facts.Facts) *decision.Plan {
	for _, m := range f.Members {
		if m.PodName != "" && !f.OrdinalReserved(m.PodName) {
			return &decision.Plan{
				Message: fmt.Sprintf("reserving the name %s", m.PodName),
				Resync:  decision.ResyncSoon,
			}
		}
	}
	return nil
}

func replace(f *facts.Facts) *decision.Plan {
	lost, reason := f.LostVoter()
	if lost == nil && shrinks(f) {
		lost, reason = f.VoterToSucceed()
	}
	if lost == nil {
		return nil
	}
	return removeVoter(f, lost, fmt.Sprintf("replacing %s: %s", lost.PodName, reason))
}

func shrink(f *facts.Facts) *decision.Plan {
	if !shrinks(f) {
		return nil
	}
	m := shrinkOrder(f)[0]
	why := fmt.Sprintf("shrinking from %d to %s", len(f.ReplicaVoters()), objects.Count(f.Replicas, "voter"))
	if held := stoppedByFence(f); held != nil && (held == m || m.Serving()) {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting: an EtcdOperation of type Fence keeps %s stopped; "+
				"delete that operation to go on", why, held.PodName),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	return removeVoter(f, m, why)
}

// stoppedByFence is a voter that a person keeps stopped; nil for none.
func stoppedByFence(f *facts.Facts) *facts.Member {
	return objects.First(f.Voters, func(m *facts.Member) bool { return f.Fenced(m.PodName) && !m.Serving() })
}

// shrinkOrder is in which order a shrink takes the voters: not serving before serving, followers before the leader, one
// that can be removed at once before one that was added just now, the one that was chosen before already first, and then
// the highest number. One that a person has fenced is looked at, and taken after all others.
func shrinkOrder(f *facts.Facts) []*facts.Member {
	rank := func(m *facts.Member) int {
		switch {
		case m.PodName == "":
			return 4 // an unmanaged member is never ours to remove
		case f.Fenced(m.PodName):
			return 3
		case m.ID == f.Etcd.Leader:
			return 2 // also when it does not answer us: it leads
		case m.Serving():
			return 1
		}
		return 0
	}
	voters := slices.Clone(f.Voters)
	slices.Reverse(voters)
	voters = f.ChosenFirst(voters)
	waits := func(m *facts.Member) int {
		if mayBeAddedAgain(f, m) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(voters, func(a, b *facts.Member) int {
		return cmp.Or(rank(a)-rank(b), waits(a)-waits(b))
	})
	return voters
}

// removeVoter removes a voter, if the others keep quorum without it (S1), after handing the leadership on.
func removeVoter(f *facts.Facts, m *facts.Member, why string) *decision.Plan {
	others := objects.Filter(f.Voters, func(o *facts.Member) bool { return o.ID != m.ID })
	unreachable := objects.Filter(others, func(o *facts.Member) bool { return !o.Serving() })
	stay := objects.Filter(others, func(m *facts.Member) bool { return f.Stays(m) })
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
				facts.Serving(others), len(others), f.ExplainAll(unreachable)),
			Outlook: byPerson(f, unreachable),
			Resync:  decision.ResyncSoon,
		}
	case !enough && waitForRestarts(f, others, why) != nil:
		return waitForRestarts(f, others, why)
	case !enough:
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting for another voter to serve, as %s does%s", why, m.DisplayName(),
				f.ExplainAll(unreachable)),
			Outlook: byPerson(f, unreachable),
			Resync:  decision.ResyncSoon,
		}
	case m.ID == f.Etcd.Leader:
		return change(f, HandOver(f, m), fmt.Sprintf("%s; %s leads and hands over first", why,
			m.DisplayName()))
	}
	return removeMember(f, m, fmt.Sprintf("%s: removing %s", why, m.DisplayName()))
}

// HandOver gives the leadership to the serving voter that has come furthest; to one that is restarted or replaced
// itself, now or later, or whose data is proven wrong, or whose disk is slow, only when there is no other. Of the rest
// one in a preferred zone has it.
func HandOver(f *facts.Facts, from *facts.Member) decision.Step {
	candidates := objects.Filter(f.Voters, func(o *facts.Member) bool { return o.ID != from.ID && o.Serving() })
	wrong := compareHashes(f).wrong
	for _, better := range []func(*facts.Member) bool{
		func(o *facts.Member) bool { return !slices.Contains(wrong, o) },
		func(m *facts.Member) bool { return f.Stays(m) },
		func(o *facts.Member) bool { return f.UpdateOf(o) == nil },
		func(o *facts.Member) bool { return from.Alias == "" || o.PodName != "" },
		func(o *facts.Member) bool { return !f.HasSlowDisk(o) },
		f.Preferred,
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
func afterDowngrade(f *facts.Facts, to, why string) *decision.Plan {
	why = fmt.Sprintf("%s; waiting: no member can join during the downgrade to %s", why, to)
	inTheWay := slices.ContainsFunc(f.ReplicaVoters(), func(m *facts.Member) bool {
		if m.Pod == nil || m.Restarting() || !m.Serving() {
			return true
		}
		_, differs := f.ImageDiffers(m)
		return differs
	})
	switch {
	case !f.CanLoseOne():
		return &decision.Plan{
			Message: why + "; set spec.version back to cancel it",
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	case inTheWay || len(f.Hops()) > 0:
		return nil
	}
	return &decision.Plan{Message: why, Resync: decision.ResyncSoon}
}

func grow(f *facts.Facts) *decision.Plan {
	voters := f.ReplicaVoters()
	if len(voters) >= f.Wanted() {
		return nil
	}
	why := fmt.Sprintf("growing from %d to %s", len(voters), objects.Count(f.Wanted(), "voter"))
	if replaced, reason := f.VoterToSucceed(); replaced != nil && f.Wanted() > f.Replicas {
		why += fmt.Sprintf(", because %s must be replaced: %s", replaced.PodName, reason)
	}
	if to, open := f.Downgrading(); open {
		return afterDowngrade(f, to, why)
	}
	return addLearner(f, why)
}

// addSpare comes last of all that changes something: a spare that can't join holds nothing up. Its pod waits somewhere
// before etcd lists it, so that none joins that has no place.
func addSpare(f *facts.Facts) *decision.Plan {
	if _, open := f.Downgrading(); open || !f.LacksSpare() {
		return nil
	}
	const why = "adding a spare"
	if !f.Epoch.HadQuorum() {
		return &decision.Plan{Message: why + "; recording first that the members serve", Resync: decision.ResyncSoon}
	}
	name := f.NextMember()
	if pod := f.Children.Pods[name]; f.ReadiesAhead() && !facts.Prepares(pod) {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting for the pod of %s to start%s", why, name, f.WhyNotReady()),
			Outlook: byPerson(f, []*facts.Member{{PodName: name, Pod: pod}}),
			Resync:  decision.ResyncLater,
		}
	}
	return addLearner(f, why)
}

// addLearner adds the next member as a learner, where nothing is in the way.
func addLearner(f *facts.Facts, why string) *decision.Plan {
	if unreachable := objects.Filter(f.Voters, func(m *facts.Member) bool { return !m.Serving() }); len(unreachable) > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting for %s to serve%s", why,
				strings.Join(facts.Names(unreachable), ", "),
				f.ExplainAll(unreachable)+f.ExternalUnreachable()),
			Outlook: byPerson(f, unreachable),
			Resync:  decision.ResyncSoon,
		}
	}
	if unfit := f.Unfit(); unfit != "" {
		return &decision.Plan{
			Message: why + "; waiting: " + unfit,
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	if plan := pausedGrowth(f, why); plan != nil {
		return plan
	}
	if f.Next != nil {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting: epoch %d is being prepared", why,
				f.Next.Epoch.N),
			Outlook: nextComes(f),
			Resync:  decision.ResyncLater,
		}
	}
	if f.Crowded() {
		return &decision.Plan{
			Message: why + "; waiting for a node: every node of " + defaults.NodesField(&f.Cluster.Spec) +
				" has a member; add one",
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	name := f.NextMember()
	address := f.FreeAddress(f.NextOrdinal())
	if f.HostNetwork() && address == "" {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting: the certificates in the Secrets %s and %s are "+
				"not valid for the address of any free node%s", why, defaults.ServerSecret(f.Cluster),
				defaults.PeerSecret(f.Cluster), f.WithoutSigner()),
			Outlook: decision.Waits,
			Resync:  decision.ResyncSoon,
		}
	}
	return change(f, decision.AddLearner{Name: name, PeerURL: f.PeerURL(name, address)},
		fmt.Sprintf("%s: adding %s", why, name))
}
