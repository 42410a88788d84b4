package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// join waits for a quorum of the external etcd, and writes down which cluster it is: only that one is joined, even if
// another answers later.
func join(f *facts.Facts) *decision.Plan {
	if !f.Epoch.Joined() || f.Epoch.HadQuorum() {
		return nil
	}
	external := defaults.External(f.Cluster)
	switch {
	case external == nil:
		return &decision.Plan{
			Message: "spec.bootstrap.external was removed before the members joined that etcd: put it back, or " +
				"delete this EtcdCluster",
			Outlook: decision.Waits,
		}
	case f.Etcd == nil:
		return &decision.Plan{
			Message: fmt.Sprintf("waiting for a quorum of the external etcd at %s%s",
				strings.Join(external.Endpoints, ", "), f.Unanswered()),
			Resync: decision.ResyncLater,
		}
	case f.Unfit() != "":
		return &decision.Plan{
			Message: "the members can't join the external etcd: " + f.Unfit(),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("recording the etcd cluster to join: %s, with the members %s",
			objects.Hex(f.Etcd.ClusterID), strings.Join(facts.Names(f.Members), ", ")),
		Resync: decision.ResyncSoon,
	}
}

func removeExternal(f *facts.Facts) *decision.Plan {
	if !f.BesideExternal() || !f.Retiring() {
		return nil
	}
	if unreachable := objects.Filter(f.ReplicaVoters(), func(m *facts.Member) bool { return !m.Serving() }); len(
		unreachable) > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("external members are removed when all of ours serve; waiting for %s",
				strings.Join(facts.Names(unreachable), ", ")),
			Outlook: byPerson(f, unreachable),
			Resync:  decision.ResyncLater,
		}
	}
	rank := func(m *facts.Member) int {
		switch {
		case m.ID == f.Etcd.Leader:
			return 2
		case m.Serving():
			return 1
		}
		return 0
	}
	list := objects.Filter(f.Voters, func(m *facts.Member) bool { return m.Alias != "" })
	if len(list) == 0 {
		return nil // a learner of theirs: rule Learner says so
	}
	slices.SortStableFunc(list, func(a, b *facts.Member) int { return rank(a) - rank(b) })
	why := fmt.Sprintf("removing the external members, %d left", len(list))
	if f.Now.Before(f.Epoch.ExternalSince.Add(facts.RetirePause)) {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; %s is next, after a pause", why, list[0].Alias),
			Resync:  decision.ResyncLater,
		}
	}
	return removeVoter(f, list[0], why)
}

// externalMembers is at rest, or waits for members to serve again.
func externalMembers(f *facts.Facts) *decision.Plan {
	if !f.BesideExternal() {
		return nil
	}
	if unreachable := waitForMembers(f); unreachable != nil {
		return unreachable
	}
	_, message := f.ExternalStage()
	return &decision.Plan{Message: message, Outlook: followed(f)}
}

// recordVersionBesideExternal lets new members run what the spec asks for. Beside external members there are no
// upgrades; but before the first of ours has joined, and within a minor version, there is nothing that an upgrade would
// have to go through.
func recordVersionBesideExternal(f *facts.Facts) *decision.Plan {
	has, err := defaults.ParseRelease(f.Epoch.Version)
	wanted, err2 := defaults.ParseRelease(f.Cluster.Spec.Version)
	none := !slices.ContainsFunc(f.Members, func(m *facts.Member) bool { return m.PodName != "" })
	otherMinor := has.Minor() != wanted.Minor()
	if err != nil || err2 != nil || has == wanted {
		return nil
	}
	if otherMinor && !none {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("the members will run etcd %s instead of %s", wanted, has),
		Record:  decision.RecordChange{Version: wanted.String()},
		Resync:  decision.ResyncSoon,
	}
}
