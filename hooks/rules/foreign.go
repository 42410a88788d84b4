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

// join waits for a quorum of the existing etcd, and writes down which cluster it is: only that one is joined, even if
// another answers later.
func join(v *facts.Facts) *decision.Plan {
	if !v.Epoch.Existing() || v.Epoch.HadQuorum() {
		return nil
	}
	existing := defaults.Existing(v.Cluster)
	switch {
	case existing == nil:
		return &decision.Plan{
			Message: "spec.bootstrap.existing was removed before the members joined that etcd: put it back, or " +
				"delete this EtcdCluster",
			Outlook: decision.Waits,
		}
	case v.Etcd == nil:
		return &decision.Plan{
			Message: fmt.Sprintf("waiting for a quorum of the existing etcd at %s%s",
				strings.Join(existing.Endpoints, ", "), v.Unanswered()),
			Resync: decision.ResyncLater,
		}
	case v.Unfit() != "":
		return &decision.Plan{
			Message: "the members can't join the existing etcd: " + v.Unfit(),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("recording the etcd cluster to join: %s, with the members %s",
			objects.Hex(v.Etcd.ClusterID), strings.Join(facts.Names(v.Members), ", ")),
		Resync: decision.ResyncSoon,
	}
}

func retireForeign(v *facts.Facts) *decision.Plan {
	if !v.BesideForeign() || !v.Retiring() {
		return nil
	}
	if silent := objects.Filter(v.ReplicaVoters(), func(m *facts.Member) bool { return !m.Serving() }); len(
		silent) > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("foreign members are removed when all of ours serve; waiting for %s",
				strings.Join(facts.Names(silent), ", ")),
			Outlook: byPerson(v, silent),
			Resync:  decision.ResyncLater,
		}
	}
	rank := func(m *facts.Member) int {
		switch {
		case m.ID == v.Etcd.Leader:
			return 2
		case m.Serving():
			return 1
		}
		return 0
	}
	list := objects.Filter(v.Voters, func(m *facts.Member) bool { return m.Alias != "" })
	if len(list) == 0 {
		return nil // a learner of theirs: rule Learner says so
	}
	slices.SortStableFunc(list, func(a, b *facts.Member) int { return rank(a) - rank(b) })
	why := fmt.Sprintf("removing the foreign members, %d left", len(list))
	if v.Now.Before(v.Epoch.ForeignSince.Add(facts.RetirePause)) {
		return &decision.Plan{
			Message: fmt.Sprintf("%s; %s is next, after a pause", why, list[0].Alias),
			Resync:  decision.ResyncLater,
		}
	}
	return removeVoter(v, list[0], why)
}

// foreignMembers is at rest, or waits for members to serve again.
func foreignMembers(v *facts.Facts) *decision.Plan {
	if !v.BesideForeign() {
		return nil
	}
	if silent := waitForMembers(v); silent != nil {
		return silent
	}
	_, message := v.ForeignStage()
	return &decision.Plan{Message: message, Outlook: followed(v)}
}

// SetVersionBesideForeign lets new members run what the spec asks for. Beside foreign members there are no upgrades;
// but before the first of ours has joined, and within a minor version, there is nothing that an upgrade would have to
// go through.
func setVersionBesideForeign(v *facts.Facts) *decision.Plan {
	has, err := defaults.ParseRelease(v.Epoch.Version)
	wanted, err2 := defaults.ParseRelease(v.Cluster.Spec.Version)
	none := !slices.ContainsFunc(v.Members, func(m *facts.Member) bool { return m.PodName != "" })
	if err != nil || err2 != nil || has == wanted || !none && has.Minor() != wanted.Minor() {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("the members will run etcd %s instead of %s", wanted, has),
		Record:  decision.RecordChange{Version: wanted.String()},
		Resync:  decision.ResyncSoon,
	}
}
