package rules

import (
	"fmt"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
)

func restore(v *facts.Facts) *decision.Plan {
	r := v.Asked.Restore
	if r == nil || v.Next != nil || facts.Answered(v)[r.ID] != 0 {
		return nil
	}
	from, why := facts.RestoreSource(v, r)
	if why != "" || facts.MembersMissing(v) && !facts.MayStopFirst(v, r) {
		return nil // the condition Restored says it; the cluster runs on
	}
	return RecordNextEpoch(v, from,
		fmt.Sprintf("EtcdOperation %s: recording epoch %d, which begins with %s; epoch %d runs until that is ready",
			r.Name, facts.NextEpochNumber(v), facts.WordsFor(v, from), v.Epoch.N))
}

func recoverQuorum(v *facts.Facts) *decision.Plan {
	if v.Next != nil || v.Cluster.Spec.SelfHosted { // while the API server answers there is a quorum, whatever we see
		return nil
	}
	if facts.RestoreFirst(v) {
		return nil
	}
	policy, asked := facts.RecoverBy(v)
	lost := facts.QuorumIsLost(v)
	if !asked && (v.BesideForeign() || policy == v1alpha1.RecoverManual || len(lost) == 0 || !v.Epoch.HadQuorum() ||
		facts.MayHaveQuorum(v)) {
		return nil
	}
	if !asked || len(lost) == 0 {
		if v.Now.Before(facts.LostUntil(v)) {
			return mayComeBack(v, policy, lost)
		}
	}
	from, why := facts.WayBack(v, policy, asked)
	if why != "" {
		return &decision.Plan{
			Message: fmt.Sprintf("the quorum is lost, and %s is not possible: %s; Quorate keeps what is left", policy,
				why) + facts.Ways(v),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	return RecordNextEpoch(v, from,
		fmt.Sprintf("the quorum of epoch %d is lost: recording epoch %d, which begins "+
			"with %s", v.Epoch.N, facts.NextEpochNumber(v), facts.WordsFor(v, from)))
}

// MayComeBack waits for a quorum before the next epoch is recorded. While its data is there only a person may ask for
// that, and maybe did so long ago, for another trouble.
func mayComeBack(v *facts.Facts, policy v1alpha1.QuorumLoss, lost []string) *decision.Plan {
	at := facts.LostUntil(v).UTC().Format("15:04:05 UTC")
	why := fmt.Sprintf("the data of %s is gone, and with it the quorum; by spec.recovery", strings.Join(lost, ", "))
	if len(lost) == 0 {
		why = "no quorum answers, although its data exists; as an EtcdOperation of type Recover asks"
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s, %s begins at %s unless a quorum comes back", why, policy, at),
		Resync:  decision.ResyncLater,
	}
}
