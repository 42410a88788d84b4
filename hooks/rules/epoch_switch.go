package rules

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/record"
)

func switchEpoch(f *facts.Facts) *decision.Plan {
	if f.Next == nil {
		return nil
	}
	if plan := otherwise(f); plan != nil {
		return plan
	}
	if f.Ending() {
		if left := f.Lingering(); left != "" {
			return &decision.Plan{
				Message: fmt.Sprintf("stopping epoch %d: %s; epoch %d begins when all of its pods are gone",
					f.Epoch.N, left, f.Next.Epoch.N),
				Outlook: stops(f),
				Resync:  decision.ResyncLater,
			}
		}
	}
	if f.Choosing() {
		if plan := chooseSurvivor(f); f.Ending() || plan.Record.Evidence != "" {
			return plan
		}
		return nil // the epoch that runs is looked after meanwhile
	}
	if waits := f.Next.Unprepared(); waits != "" {
		switch {
		case !f.Ending() && f.StopsFirst():
			return stop(f, "stopFirst is true", fmt.Sprintf(" before epoch %d is prepared",
				f.Next.Epoch.N))
		case !f.Ending():
			return nil // the epoch that runs is looked after meanwhile
		}
		return &decision.Plan{
			Message: fmt.Sprintf("epoch %d has ended; epoch %d waits: %s", f.Epoch.N, f.Next.Epoch.N,
				waits) + ways(f),
			Outlook: nextComes(f),
			Resync:  decision.ResyncLater,
		}
	}
	if !f.Ending() {
		if late := f.LongEnding(); len(late) > 0 {
			return nil // it runs on: once it is stopped it would be waited for
		}
		return stop(f, fmt.Sprintf("epoch %d is ready", f.Next.Epoch.N), "")
	}
	if !f.Next.SeesAll() {
		return &decision.Plan{
			Message: fmt.Sprintf("epoch %d has ended; checking that nothing of it is left",
				f.Epoch.N),
			Resync: decision.ResyncSoon,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("epoch %d begins: %s", f.Next.Epoch.N, f.Next.Epoch.Describe()),
		Record:  decision.RecordChange{Phase: record.PhaseBegan},
		Resync:  decision.ResyncSoon,
	}
}

// ways is how people go on from an epoch that can't be made ready; empty while it may be.
func ways(f *facts.Facts) string {
	if f.Next == nil || f.Etcd != nil || nextComes(f) != decision.Waits || f.Next.Unplaced() {
		return ""
	}
	return f.Ways()
}

// stops is whether the pods of the epoch that runs end by themselves.
func stops(f *facts.Facts) decision.Outlook {
	if len(f.LongEnding()) > 0 {
		return decision.Waits
	}
	return decision.Works
}

// stop writes down that the epoch that runs is stopped.
func stop(f *facts.Facts, why, when string) *decision.Plan {
	message := fmt.Sprintf("%s: stopping epoch %d%s", why, f.Epoch.N, when)
	if f.OnClaims() {
		message += "; its volumes are kept"
	}
	return &decision.Plan{
		Message: message,
		Record:  decision.RecordChange{Phase: record.PhaseStopping},
		Resync:  decision.ResyncSoon,
	}
}

// otherwise is what is said when the next epoch can't be the one that was recorded, or must not.
func otherwise(f *facts.Facts) *decision.Plan {
	if f.Ending() {
		return instead(f)
	}
	switch lost, why := f.Next.LostBeforeStart(), needless(f); {
	case f.Cancelled() || f.RestoreWithdrawn():
		refused := f.Asked.Refused[types.UID(f.Next.Epoch.Restore)]
		return cancel(f, cmp.Or(refused, "the restore was withdrawn"))
	case why != "":
		return cancel(f, why)
	case len(lost) > 0:
		return cancel(f, "what was made for "+strings.Join(lost, ", ")+" is lost; creating it again")
	}
	return nil
}

// needless is why the next epoch is not to come, or not yet, although nothing is wrong with it; empty for nothing.
func needless(f *facts.Facts) string {
	wish := f.OvertakenWish()
	switch {
	case wish != nil:
		return fmt.Sprintf("EtcdOperation %s now asks for %s", wish.By, f.WordsFor(wish.Origin))
	case f.Collides():
		return fmt.Sprintf("a member has joined epoch %d under one of its names", f.Epoch.N)
	case f.Etcd != nil && !f.ByRestore():
		return fmt.Sprintf("a quorum of epoch %d answers again", f.Epoch.N)
	case f.Cluster.Spec.SelfHosted:
		return "spec.selfHosted is true, and the API server has its data in epoch " + strconv.Itoa(f.Epoch.N)
	case replanned(f) != "":
		return replanned(f)
	case f.Outgrown():
		return fmt.Sprintf("epoch %d is near the first revision of epoch %d", f.Epoch.N,
			f.Next.Epoch.N)
	case f.MembersMissing() && f.Preparing() != "" && !f.StopsFirst():
		return fmt.Sprintf("epoch %d needs another member first", f.Epoch.N)
	}
	return ""
}

// replanned is why what was planned for the next epoch must be planned again: a pod of it can't go on, and would be
// made otherwise now. Its flags, its images and its version were recorded together, and change together. Empty for
// nothing.
func replanned(f *facts.Facts) string {
	if f.Next.Unprepared() == "" {
		return ""
	}
	version := f.Planned()
	for _, name := range f.Next.Epoch.InitialNames() {
		pod := f.Next.Children.Pods[name]
		if pod != nil && (f.Next.Superseded(pod) || f.Next.Epoch.Version != version && facts.WaitsForSeed(pod)) {
			return fmt.Sprintf("%s can't go on as it was made%s, and the spec has changed", name,
				f.Next.WhyNotStarted(pod))
		}
	}
	return ""
}

// instead records another epoch in place of one that can't begin, or that is no longer wanted, when the one before is
// stopped already.
func instead(f *facts.Facts) *decision.Plan {
	if old := f.Next.Epoch; f.Passed() {
		return RecordNextEpoch(f, old.Origin, fmt.Sprintf(
			"epoch %d is near the first revision of epoch %d: recording epoch %d, which begins with %s", f.Epoch.N,
			old.N, f.NextEpochNumber(),
			f.WordsFor(old.Origin)))
	}
	if f.Next.Unprepared() == "" {
		return nil // it begins, and whatever else is asked for comes after it
	}
	wish := f.OvertakenWish()
	lost := f.Next.LostBeforeStart()
	old := f.Next.Epoch
	switch {
	case wish != nil:
		return RecordNextEpoch(f, wish.Origin,
			fmt.Sprintf("EtcdOperation %s: recording epoch %d in the place of epoch %d, which begins with %s", wish.By,
				f.NextEpochNumber(), old.N, f.WordsFor(wish.Origin)))
	case replanned(f) != "":
		return RecordNextEpoch(f, old.Origin, fmt.Sprintf("%s: recording epoch %d, which begins with %s",
			replanned(f), f.NextEpochNumber(), f.WordsFor(old.Origin)))
	case f.RestoreWithdrawn():
		from, why := f.RestoreInstead()
		if why != "" {
			return nil
		}
		return RecordNextEpoch(f, from,
			fmt.Sprintf("the restore was withdrawn: recording epoch %d, which begins with %s",
				f.NextEpochNumber(), f.WordsFor(from)))
	case len(lost) > 0:
		return RecordNextEpoch(f, old.Origin, fmt.Sprintf(
			"what was made for %s is lost: recording epoch %d, which "+
				"begins with %s", strings.Join(lost, ", "), f.NextEpochNumber(), f.WordsFor(old.Origin)))
	}
	return nil
}

// cancel writes down that the next epoch is not to come, and then takes down what was made for it.
func cancel(f *facts.Facts, why string) *decision.Plan {
	if f.Cancelled() {
		return &decision.Plan{
			Message: fmt.Sprintf("deleting what was prepared for epoch %d, which will not begin",
				f.Next.Epoch.N),
			Resync: decision.ResyncSoon,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s: deleting what was prepared for epoch %d", why,
			f.Next.Epoch.N),
		Record: decision.RecordChange{Phase: record.PhaseCancelled},
		Resync: decision.ResyncSoon,
	}
}

// prepareRestore says that the cluster does not have yet what a restore asks for, when there is nothing else to say.
func prepareRestore(f *facts.Facts) *decision.Plan {
	reason, message, is, shown := f.Restored()
	if !shown || is {
		return nil
	}
	outlook := decision.Works
	switch {
	case f.Next != nil:
		outlook = nextComes(f)
	case reason == v1beta1.AnsweredBefore, reason == "Differing":
		outlook = decision.Waits
	case reason == "Impossible":
		if outlook = decision.Waits; !f.BesideExternal() && f.Asked.Restore.Snapshot != nil {
			outlook = arrives(f, f.Asked.Restore.Snapshot)
		}
	}
	return &decision.Plan{Message: message, Outlook: outlook, Resync: decision.ResyncLater}
}
