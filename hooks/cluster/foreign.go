package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// join waits for a quorum of the existing etcd, and writes down which cluster it is: only that one is joined, even if
// another answers later.
func join(v *state.View) *decision.Verdict {
	if !v.Epoch.Existing() || v.Epoch.HadQuorum() {
		return nil
	}
	existing := spec.Existing(v.Cluster)
	switch {
	case existing == nil:
		return &decision.Verdict{
			Message: "spec.bootstrap.existing was removed before the members joined that etcd: put it back, or " +
				"delete this EtcdCluster", Outlook: rule.Waits}
	case v.Etcd == nil:
		return &decision.Verdict{Message: fmt.Sprintf("waiting for a quorum of the existing etcd at %s%s",
			strings.Join(existing.Endpoints, ", "), foreign.Unanswered(v)), Resync: rule.ResyncLater}
	case foreign.Unfit(v) != "":
		return &decision.Verdict{Message: "the members can't join the existing etcd: " + foreign.Unfit(v),
			Outlook: rule.Waits, Resync: rule.ResyncLater}
	}
	return &decision.Verdict{Message: fmt.Sprintf("recording the etcd cluster to join: %s, with the members %s",
		wording.Hex(v.Etcd.ClusterID), strings.Join(state.Names(v.Members), ", ")), Resync: rule.ResyncSoon}
}

func retireForeign(v *state.View) *decision.Verdict {
	if !v.BesideForeign() || !foreign.Retiring(v) {
		return nil
	}
	if silent := wording.Filter(v.ReplicaVoters(), func(m *state.Member) bool { return !m.Serving() }); len(
		silent) > 0 {
		return &decision.Verdict{
			Message: fmt.Sprintf("foreign members are removed when all of ours serve; waiting for %s",
				strings.Join(state.Names(silent), ", ")),
			Outlook: byPerson(v, silent), Resync: rule.ResyncLater}
	}
	rank := func(m *state.Member) int {
		switch {
		case m.ID == v.Etcd.Leader:
			return 2
		case m.Serving():
			return 1
		}
		return 0
	}
	list := wording.Filter(v.Voters, func(m *state.Member) bool { return m.Alias != "" })
	if len(list) == 0 {
		return nil // a learner of theirs: rule Learner says so
	}
	slices.SortStableFunc(list, func(a, b *state.Member) int { return rank(a) - rank(b) })
	why := fmt.Sprintf("removing the foreign members, %d left", len(list))
	if v.Now.Before(v.Epoch.ForeignSince.Add(foreign.RetirePause)) {
		return &decision.Verdict{Message: fmt.Sprintf("%s; %s is next, after a pause", why, list[0].Alias),
			Resync: rule.ResyncLater}
	}
	return removeVoter(v, list[0], why)
}

// foreignMembers is at rest, or waits for members to serve again.
func foreignMembers(v *state.View) *decision.Verdict {
	if !v.BesideForeign() {
		return nil
	}
	if silent := waitForMembers(v); silent != nil {
		return silent
	}
	_, message := foreign.ForeignStage(v)
	return &decision.Verdict{Message: message, Outlook: followed(v)}
}
