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
	if r == nil || v.Next != nil || v.Answered()[r.ID] != 0 {
		return nil
	}
	from, why := v.RestoreSource(r)
	if why != "" || v.MembersMissing() && !v.MayStopFirst(r) {
		return nil // the condition Restored says it; the cluster runs on
	}
	return RecordNextEpoch(v, from,
		fmt.Sprintf("EtcdOperation %s: recording epoch %d, which begins with %s; epoch %d runs until that is ready",
			r.Name, v.NextEpochNumber(), v.WordsFor(from), v.Epoch.N))
}

func recoverQuorum(v *facts.Facts) *decision.Plan {
	if v.Next != nil || v.Cluster.Spec.SelfHosted { // while the API server answers there is a quorum, whatever we see
		return nil
	}
	if v.RestoreFirst() {
		return nil
	}
	policy, asked := v.RecoverBy()
	lost := v.QuorumIsLost()
	if !asked && (v.BesideForeign() || policy == v1alpha1.RecoverManual || len(lost) == 0 || !v.Epoch.HadQuorum() ||
		v.MayHaveQuorum()) {
		return nil
	}
	if !asked || len(lost) == 0 {
		if v.Now.Before(v.LostUntil()) {
			return mayComeBack(v, policy, lost)
		}
	}
	from, why := v.WayBack(policy, asked)
	if why != "" {
		return &decision.Plan{
			Message: fmt.Sprintf("the quorum is lost, and %s is not possible: %s; Quorate keeps what is left", policy,
				why) + v.Ways(),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	return RecordNextEpoch(v, from,
		fmt.Sprintf("the quorum of epoch %d is lost: recording epoch %d, which begins "+
			"with %s", v.Epoch.N, v.NextEpochNumber(), v.WordsFor(from)))
}

// MayComeBack waits for a quorum before the next epoch is recorded. While its data is there only a person may ask for
// that, and maybe did so long ago, for another trouble.
func mayComeBack(v *facts.Facts, policy v1alpha1.QuorumLoss, lost []string) *decision.Plan {
	at := v.LostUntil().UTC().Format("15:04:05 UTC")
	why := fmt.Sprintf("the data of %s is gone, and with it the quorum; by spec.recovery", strings.Join(lost, ", "))
	if len(lost) == 0 {
		why = "no quorum answers, although its data exists; as an EtcdOperation of type Recover asks"
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s, %s begins at %s unless a quorum comes back", why, policy, at),
		Resync:  decision.ResyncLater,
	}
}
