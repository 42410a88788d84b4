package cluster

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
)

func switchEpoch(v *state.View) *decision.Verdict {
	if v.Next == nil {
		return nil
	}
	if verdict := otherwise(v); verdict != nil {
		return verdict
	}
	if v.Ending() {
		if left := epochs.Lingering(v); left != "" {
			return &decision.Verdict{
				Message: fmt.Sprintf("stopping epoch %d: %s; epoch %d begins when all of its pods are gone",
					v.Epoch.N, left, v.Next.Epoch.N), Outlook: stops(v), Resync: rule.ResyncLater}
		}
	}
	if v.Choosing() {
		if verdict := epochs.ChooseSurvivor(v); v.Ending() || verdict.Survivor != "" {
			return verdict
		}
		return nil // the epoch that runs is looked after meanwhile
	}
	if waits := epochs.Unstaged(v.Next); waits != "" {
		switch {
		case !v.Ending() && epochs.StopsFirst(v):
			return stop(v, "stopFirst is true", fmt.Sprintf(" before epoch %d is prepared",
				v.Next.Epoch.N))
		case !v.Ending():
			return nil // the epoch that runs is looked after meanwhile
		}
		return &decision.Verdict{Message: fmt.Sprintf("epoch %d is over; epoch %d waits: %s", v.Epoch.N, v.Next.Epoch.N,
			waits) + ways(v), Outlook: nextComes(v), Resync: rule.ResyncLater}
	}
	if !v.Ending() {
		if late := epochs.LongEnding(v); len(late) > 0 {
			return nil // it runs on: once it is stopped it would be waited for
		}
		return stop(v, fmt.Sprintf("epoch %d is ready", v.Next.Epoch.N), "")
	}
	if !epochs.SeesAll(v.Next) {
		return &decision.Verdict{Message: fmt.Sprintf("epoch %d is over; checking that nothing of it is left",
			v.Epoch.N), Resync: rule.ResyncSoon}
	}
	return &decision.Verdict{Message: fmt.Sprintf("epoch %d begins: %s", v.Next.Epoch.N, v.Next.Epoch.Describe()),
		Phase: record.PhaseBegan, Resync: rule.ResyncSoon}
}

// ways is how people go on from an epoch that can't be made ready; empty while it may be.
func ways(v *state.View) string {
	if v.Next == nil || v.Etcd != nil || nextComes(v) != rule.Waits || epochs.Unplaced(v.Next) {
		return ""
	}
	return epochs.Ways(v)
}

// stops is whether the pods of the epoch that runs end by themselves.
func stops(v *state.View) rule.Outlook {
	if len(epochs.LongEnding(v)) > 0 {
		return rule.Waits
	}
	return rule.Works
}

// stop writes down that the epoch that runs is stopped.
func stop(v *state.View, why, when string) *decision.Verdict {
	message := fmt.Sprintf("%s: stopping epoch %d%s", why, v.Epoch.N, when)
	if v.OnClaims() {
		message += "; its volumes are kept"
	}
	return &decision.Verdict{Message: message, Phase: record.PhaseStopping, Resync: rule.ResyncSoon}
}

// otherwise is what is said when the next epoch can't be the one that was recorded, or must not.
func otherwise(v *state.View) *decision.Verdict {
	if v.Ending() {
		return instead(v)
	}
	switch lost, why := epochs.LostBeforeStart(v.Next), needless(v); {
	case epochs.Cancelled(v) || epochs.RestoreWithdrawn(v):
		refused := v.Asked.Refused[types.UID(v.Next.Epoch.Restore)]
		return cancel(v, cmp.Or(refused, "the restore was withdrawn"))
	case why != "":
		return cancel(v, why)
	case len(lost) > 0:
		return cancel(v, "what was made for "+strings.Join(lost, ", ")+" is lost; creating it again")
	}
	return nil
}

// needless is why the next epoch is not to come, or not yet, although nothing is wrong with it; empty for nothing.
func needless(v *state.View) string {
	wish := epochs.Overtaken(v)
	switch {
	case wish != nil:
		return fmt.Sprintf("EtcdOperation %s asks for %s", wish.By, epochs.WordsFor(v, wish.Origin))
	case epochs.Collides(v):
		return fmt.Sprintf("a member has joined epoch %d under one of its names", v.Epoch.N)
	case v.Etcd != nil && !epochs.ByRestore(v):
		return fmt.Sprintf("a quorum of epoch %d answers again", v.Epoch.N)
	case v.Cluster.Spec.SelfHosted:
		return "spec.selfHosted is true, and the API server has its data in epoch " + strconv.Itoa(v.Epoch.N)
	case replanned(v) != "":
		return replanned(v)
	case epochs.Outgrown(v):
		return fmt.Sprintf("epoch %d is near the first revision of epoch %d", v.Epoch.N,
			v.Next.Epoch.N)
	case health.MembersMissing(v) && epochs.Staging(v) != "" && !epochs.StopsFirst(v):
		return fmt.Sprintf("epoch %d needs another member first", v.Epoch.N)
	}
	return ""
}

// replanned is why what was planned for the next epoch must be planned again: a pod of it can't go on, and would be made
// otherwise now. Its flags, its images and its version were recorded together, and change together. Empty for nothing.
func replanned(v *state.View) string {
	if epochs.Unstaged(v.Next) == "" {
		return ""
	}
	version := versions.Planned(v)
	for _, name := range v.Next.Epoch.InitialNames() {
		pod := v.Next.Children.Pods[name]
		if pod != nil && (children.Superseded(v.Next, pod) || v.Next.Epoch.Version != version && children.Waits(pod)) {
			return fmt.Sprintf("%s can't go on as it was made%s, and the spec has changed", name,
				epochs.WhyNotStarted(v.Next, pod))
		}
	}
	return ""
}

// instead records another epoch in place of one that can't begin, or that is no longer wanted, when the one before is
// stopped already.
func instead(v *state.View) *decision.Verdict {
	if old := v.Next.Epoch; epochs.Passed(v) {
		return epochs.RecordNextEpoch(v, old.Origin, fmt.Sprintf(
			"epoch %d is near the first revision of epoch %d: recording epoch %d, which begins with %s", v.Epoch.N,
			old.N, epochs.NextEpochNumber(v),
			epochs.WordsFor(v, old.Origin)))
	}
	if epochs.Unstaged(v.Next) == "" {
		return nil // it begins, and whatever else is asked for comes after it
	}
	wish := epochs.Overtaken(v)
	lost, old := epochs.LostBeforeStart(v.Next), v.Next.Epoch
	switch {
	case wish != nil:
		return epochs.RecordNextEpoch(v, wish.Origin,
			fmt.Sprintf("EtcdOperation %s: recording epoch %d in the place of epoch %d, which begins with %s", wish.By,
				epochs.NextEpochNumber(v), old.N, epochs.WordsFor(v, wish.Origin)))
	case replanned(v) != "":
		return epochs.RecordNextEpoch(v, old.Origin, fmt.Sprintf("%s: recording epoch %d, which begins with %s",
			replanned(v), epochs.NextEpochNumber(v), epochs.WordsFor(v, old.Origin)))
	case epochs.RestoreWithdrawn(v):
		from, why := epochs.RestoreInstead(v)
		if why != "" {
			return nil
		}
		return epochs.RecordNextEpoch(v, from,
			fmt.Sprintf("the restore was withdrawn: recording epoch %d, which begins with %s",
				epochs.NextEpochNumber(v), epochs.WordsFor(v, from)))
	case len(lost) > 0:
		return epochs.RecordNextEpoch(v, old.Origin, fmt.Sprintf(
			"what was made for %s is lost: recording epoch %d, which "+
				"begins with %s", strings.Join(lost, ", "), epochs.NextEpochNumber(v), epochs.WordsFor(v, old.Origin)))
	}
	return nil
}

// cancel writes down that the next epoch is not to come, and then takes down what was made for it.
func cancel(v *state.View, why string) *decision.Verdict {
	if epochs.Cancelled(v) {
		return &decision.Verdict{
			Message: fmt.Sprintf("deleting what was prepared for epoch %d, which will not begin",
				v.Next.Epoch.N), Resync: rule.ResyncSoon}
	}
	return &decision.Verdict{Message: fmt.Sprintf("%s: deleting what was prepared for epoch %d", why,
		v.Next.Epoch.N), Phase: record.PhaseCancelled, Resync: rule.ResyncSoon}
}

// prepareRestore says that the cluster does not have yet what a restore asks for, when there is nothing else to say.
func prepareRestore(v *state.View) *decision.Verdict {
	reason, message, is, shown := health.Restored(v)
	if !shown || is {
		return nil
	}
	outlook := rule.Works
	switch {
	case v.Next != nil:
		outlook = nextComes(v)
	case reason == v1alpha1.AnsweredBefore, reason == "Differing":
		outlook = rule.Waits
	case reason == "Impossible":
		if outlook = rule.Waits; !v.BesideForeign() && v.Asked.Restore.Snapshot != nil {
			outlook = arrives(v, v.Asked.Restore.Snapshot)
		}
	}
	return &decision.Verdict{Message: message, Outlook: outlook, Resync: rule.ResyncLater}
}
