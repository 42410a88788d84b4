package rules

import (
	"fmt"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
)

func restore(f *facts.Facts) *decision.Plan {
	r := f.Asked.Restore
	if r == nil || f.Next != nil || f.Answered()[r.ID] != 0 {
		return nil
	}
	from, why := f.RestoreSource(r)
	if why != "" || f.MembersMissing() && !f.MayStopFirst(r) {
		return nil // the condition Restored says it; the cluster runs on
	}
	return RecordNextEpoch(f, from,
		fmt.Sprintf("EtcdOperation %s: recording epoch %d, which begins with %s; epoch %d runs until that is ready",
			r.Name, f.NextEpochNumber(), f.WordsFor(from), f.Epoch.N))
}

func recoverQuorum(f *facts.Facts) *decision.Plan {
	if f.Next != nil || f.Cluster.Spec.SelfHosted { // while the API server answers there is a quorum, whatever we see
		return nil
	}
	if f.RestoreFirst() {
		return nil
	}
	policy, asked := f.RecoverBy()
	lost := f.QuorumIsLost()
	byItself := policy != v1beta1.RecoverManual && !f.BesideExternal()
	isLost := len(lost) > 0 && f.Epoch.HadQuorum() && !f.MayHaveQuorum()
	due := asked || byItself && isLost
	if !due {
		return nil
	}
	if !asked || len(lost) == 0 {
		if f.Now.Before(f.LostUntil()) {
			return mayComeBack(f, policy, lost)
		}
	}
	from, why := f.WayBack(policy, asked)
	if why != "" {
		return &decision.Plan{
			Message: fmt.Sprintf("the quorum is lost, and %s is not possible: %s; Quorate keeps what is left", policy,
				why) + f.Ways(),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	return RecordNextEpoch(f, from,
		fmt.Sprintf("the quorum of epoch %d is lost: recording epoch %d, which begins "+
			"with %s", f.Epoch.N, f.NextEpochNumber(), f.WordsFor(from)))
}

// mayComeBack waits for a quorum before the next epoch is recorded. While its data is there only a person may ask for
// that, and maybe did so long ago, for another trouble.
func mayComeBack(f *facts.Facts, policy v1beta1.QuorumLoss, lost []string) *decision.Plan {
	at := f.LostUntil().UTC().Format("15:04:05 UTC")
	why := fmt.Sprintf("the data of %s is gone, and with it the quorum; by spec.recovery", strings.Join(lost, ", "))
	if len(lost) == 0 {
		why = "no quorum answers, although its data exists; as an EtcdOperation of type Recover asks"
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s, %s begins at %s unless a quorum comes back", why, policy, at),
		Resync:  decision.ResyncLater,
	}
}
