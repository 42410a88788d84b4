package cluster

import (
	"fmt"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
)

func restore(v *state.View) *decision.Plan {
	r := v.Asked.Restore
	if r == nil || v.Next != nil || epochs.Answered(v)[r.ID] != 0 {
		return nil
	}
	from, why := epochs.RestoreSource(v, r)
	if why != "" || health.MembersMissing(v) && !epochs.MayStopFirst(v, r) {
		return nil // the condition Restored says it; the cluster runs on
	}
	return epochs.RecordNextEpoch(v, from,
		fmt.Sprintf("EtcdOperation %s: recording epoch %d, which begins with %s; epoch %d runs until that is ready",
			r.Name, epochs.NextEpochNumber(v), epochs.WordsFor(v, from), v.Epoch.N))
}

func recoverQuorum(v *state.View) *decision.Plan {
	if v.Next != nil || v.Cluster.Spec.SelfHosted { // while the API server answers there is a quorum, whatever we see
		return nil
	}
	if epochs.RestoreFirst(v) {
		return nil
	}
	policy, asked := epochs.RecoverBy(v)
	lost := epochs.QuorumIsLost(v)
	if !asked && (v.BesideForeign() || policy == v1alpha1.RecoverManual || len(lost) == 0 || !v.Epoch.HadQuorum() ||
		epochs.MayHaveQuorum(v)) {
		return nil
	}
	if !asked || len(lost) == 0 {
		if v.Now.Before(epochs.LostUntil(v)) {
			return epochs.MayComeBack(v, policy, lost)
		}
	}
	from, why := epochs.WayBack(v, policy, asked)
	if why != "" {
		return &decision.Plan{
			Message: fmt.Sprintf("the quorum is lost, and %s is not possible: %s; Quorate keeps what is left", policy,
				why) + epochs.Ways(v),
			Outlook: rule.Waits,
			Resync:  rule.ResyncLater,
		}
	}
	return epochs.RecordNextEpoch(v, from,
		fmt.Sprintf("the quorum of epoch %d is lost: recording epoch %d, which begins "+
			"with %s", v.Epoch.N, epochs.NextEpochNumber(v), epochs.WordsFor(v, from)))
}
