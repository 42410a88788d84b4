package rules

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/record"
)

func switchEpoch(v *facts.Facts) *decision.Plan {
	if v.Next == nil {
		return nil
	}
	if plan := otherwise(v); plan != nil {
		return plan
	}
	if v.Ending() {
		if left := v.Lingering(); left != "" {
			return &decision.Plan{
				Message: fmt.Sprintf("stopping epoch %d: %s; epoch %d begins when all of its pods are gone",
					v.Epoch.N, left, v.Next.Epoch.N),
				Outlook: stops(v),
				Resync:  decision.ResyncLater,
			}
		}
	}
	if v.Choosing() {
		if plan := chooseSurvivor(v); v.Ending() || plan.Record.Evidence != "" {
			return plan
		}
		return nil // the epoch that runs is looked after meanwhile
	}
	if waits := v.Next.Unstaged(); waits != "" {
		switch {
		case !v.Ending() && v.StopsFirst():
			return stop(v, "stopFirst is true", fmt.Sprintf(" before epoch %d is prepared",
				v.Next.Epoch.N))
		case !v.Ending():
			return nil // the epoch that runs is looked after meanwhile
		}
		return &decision.Plan{
			Message: fmt.Sprintf("epoch %d is over; epoch %d waits: %s", v.Epoch.N, v.Next.Epoch.N,
				waits) + ways(v),
			Outlook: nextComes(v),
			Resync:  decision.ResyncLater,
		}
	}
	if !v.Ending() {
		if late := v.LongEnding(); len(late) > 0 {
			return nil // it runs on: once it is stopped it would be waited for
		}
		return stop(v, fmt.Sprintf("epoch %d is ready", v.Next.Epoch.N), "")
	}
	if !v.Next.SeesAll() {
		return &decision.Plan{
			Message: fmt.Sprintf("epoch %d is over; checking that nothing of it is left",
				v.Epoch.N),
			Resync: decision.ResyncSoon,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("epoch %d begins: %s", v.Next.Epoch.N, v.Next.Epoch.Describe()),
		Record:  decision.RecordChange{Phase: record.PhaseBegan},
		Resync:  decision.ResyncSoon,
	}
}

// ways is how people go on from an epoch that can't be made ready; empty while it may be.
func ways(v *facts.Facts) string {
	if v.Next == nil || v.Etcd != nil || nextComes(v) != decision.Waits || v.Next.Unplaced() {
		return ""
	}
	return v.Ways()
}

// stops is whether the pods of the epoch that runs end by themselves.
func stops(v *facts.Facts) decision.Outlook {
	if len(v.LongEnding()) > 0 {
		return decision.Waits
	}
	return decision.Works
}

// stop writes down that the epoch that runs is stopped.
func stop(v *facts.Facts, why, when string) *decision.Plan {
	message := fmt.Sprintf("%s: stopping epoch %d%s", why, v.Epoch.N, when)
	if v.OnClaims() {
		message += "; its volumes are kept"
	}
	return &decision.Plan{
		Message: message,
		Record:  decision.RecordChange{Phase: record.PhaseStopping},
		Resync:  decision.ResyncSoon,
	}
}

// otherwise is what is said when the next epoch can't be the one that was recorded, or must not.
func otherwise(v *facts.Facts) *decision.Plan {
	if v.Ending() {
		return instead(v)
	}
	switch lost, why := v.Next.LostBeforeStart(), needless(v); {
	case v.Cancelled() || v.RestoreWithdrawn():
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
func needless(v *facts.Facts) string {
	wish := v.OvertakenWish()
	switch {
	case wish != nil:
		return fmt.Sprintf("EtcdOperation %s asks for %s", wish.By, v.WordsFor(wish.Origin))
	case v.Collides():
		return fmt.Sprintf("a member has joined epoch %d under one of its names", v.Epoch.N)
	case v.Etcd != nil && !v.ByRestore():
		return fmt.Sprintf("a quorum of epoch %d answers again", v.Epoch.N)
	case v.Cluster.Spec.SelfHosted:
		return "spec.selfHosted is true, and the API server has its data in epoch " + strconv.Itoa(v.Epoch.N)
	case replanned(v) != "":
		return replanned(v)
	case v.Outgrown():
		return fmt.Sprintf("epoch %d is near the first revision of epoch %d", v.Epoch.N,
			v.Next.Epoch.N)
	case v.MembersMissing() && v.Staging() != "" && !v.StopsFirst():
		return fmt.Sprintf("epoch %d needs another member first", v.Epoch.N)
	}
	return ""
}

// replanned is why what was planned for the next epoch must be planned again: a pod of it can't go on, and would be made
// otherwise now. Its flags, its images and its version were recorded together, and change together. Empty for nothing.
func replanned(v *facts.Facts) string {
	if v.Next.Unstaged() == "" {
		return ""
	}
	version := v.Planned()
	for _, name := range v.Next.Epoch.InitialNames() {
		pod := v.Next.Children.Pods[name]
		if pod != nil && (v.Next.Superseded(pod) || v.Next.Epoch.Version != version && facts.WaitsForSeed(pod)) {
			return fmt.Sprintf("%s can't go on as it was made%s, and the spec has changed", name,
				v.Next.WhyNotStarted(pod))
		}
	}
	return ""
}

// instead records another epoch in place of one that can't begin, or that is no longer wanted, when the one before is
// stopped already.
func instead(v *facts.Facts) *decision.Plan {
	if old := v.Next.Epoch; v.Passed() {
		return RecordNextEpoch(v, old.Origin, fmt.Sprintf(
			"epoch %d is near the first revision of epoch %d: recording epoch %d, which begins with %s", v.Epoch.N,
			old.N, v.NextEpochNumber(),
			v.WordsFor(old.Origin)))
	}
	if v.Next.Unstaged() == "" {
		return nil // it begins, and whatever else is asked for comes after it
	}
	wish := v.OvertakenWish()
	lost, old := v.Next.LostBeforeStart(), v.Next.Epoch
	switch {
	case wish != nil:
		return RecordNextEpoch(v, wish.Origin,
			fmt.Sprintf("EtcdOperation %s: recording epoch %d in the place of epoch %d, which begins with %s", wish.By,
				v.NextEpochNumber(), old.N, v.WordsFor(wish.Origin)))
	case replanned(v) != "":
		return RecordNextEpoch(v, old.Origin, fmt.Sprintf("%s: recording epoch %d, which begins with %s",
			replanned(v), v.NextEpochNumber(), v.WordsFor(old.Origin)))
	case v.RestoreWithdrawn():
		from, why := v.RestoreInstead()
		if why != "" {
			return nil
		}
		return RecordNextEpoch(v, from,
			fmt.Sprintf("the restore was withdrawn: recording epoch %d, which begins with %s",
				v.NextEpochNumber(), v.WordsFor(from)))
	case len(lost) > 0:
		return RecordNextEpoch(v, old.Origin, fmt.Sprintf(
			"what was made for %s is lost: recording epoch %d, which "+
				"begins with %s", strings.Join(lost, ", "), v.NextEpochNumber(), v.WordsFor(old.Origin)))
	}
	return nil
}

// cancel writes down that the next epoch is not to come, and then takes down what was made for it.
func cancel(v *facts.Facts, why string) *decision.Plan {
	if v.Cancelled() {
		return &decision.Plan{
			Message: fmt.Sprintf("deleting what was prepared for epoch %d, which will not begin",
				v.Next.Epoch.N),
			Resync: decision.ResyncSoon,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s: deleting what was prepared for epoch %d", why,
			v.Next.Epoch.N),
		Record: decision.RecordChange{Phase: record.PhaseCancelled},
		Resync: decision.ResyncSoon,
	}
}

// prepareRestore says that the cluster does not have yet what a restore asks for, when there is nothing else to say.
func prepareRestore(v *facts.Facts) *decision.Plan {
	reason, message, is, shown := v.Restored()
	if !shown || is {
		return nil
	}
	outlook := decision.Works
	switch {
	case v.Next != nil:
		outlook = nextComes(v)
	case reason == v1alpha1.AnsweredBefore, reason == "Differing":
		outlook = decision.Waits
	case reason == "Impossible":
		if outlook = decision.Waits; !v.BesideForeign() && v.Asked.Restore.Snapshot != nil {
			outlook = arrives(v, v.Asked.Restore.Snapshot)
		}
	}
	return &decision.Plan{Message: message, Outlook: outlook, Resync: decision.ResyncLater}
}
