package rules

import (
	"fmt"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// forcing reports whether a downgrade is open only for the snapshots that it makes members write.
func forcing(f *facts.Facts) bool {
	hops := f.Hops()
	calm := len(f.Voters) >= f.Wanted() && len(objects.Filter(f.Members,
		(*facts.Member).Serving)) == len(f.Members)
	if !calm || !f.Epoch.OldLog.There || len(hops) == 0 {
		return false
	}
	return hops[0].Minor() == 7 && f.Release().Minor() == 6 && !f.Refuses(hops)
}

// forceSnapshots has every member write a snapshot; nil when that is not needed.
func forceSnapshots(f *facts.Facts, next defaults.Release) *decision.Plan {
	const why = "before members can run etcd 3.7, they need a snapshot after the last log entry of 3.5"
	to, open := f.Downgrading()
	switch {
	case next.Minor() != 7 || !f.Epoch.OldLog.There:
		return nil
	case !f.CanLoseOne():
		return &decision.Plan{
			Message: fmt.Sprintf("the upgrade to etcd %s waits: the log still has entries of 3.5, which a new member "+
				"of 3.7 can't read, and fewer than 3 voters can only be upgraded by new members; set spec.replicas "+
				"to 3 for the upgrade, or wait for %d more entries", next, facts.Turnover),
			Outlook: decision.Waits,
		}
	case !open:
		return change(f, decision.EnableDowngrade{Version: defaults.Release{3, 5, 0}.Base()},
			why+": lowering the cluster's version for a moment, which makes them write one")
	case to != defaults.Release{3, 5, 0}.Base():
		return nil
	}
	for _, m := range f.Members {
		if m.Health.StorageVersion != to {
			return &decision.Plan{
				Message: fmt.Sprintf("%s: waiting for %s to write it", why, m.PodName),
				Resync:  decision.ResyncSoon,
			}
		}
	}
	return &decision.Plan{
		Message: "members can run etcd 3.7 now: each has a snapshot after its last log entry of 3.5",
		Record:  decision.RecordChange{Snapshotted: true},
		Resync:  decision.ResyncSoon,
	}
}

// cancelDowngrade: a downgrade that is no longer wanted would keep members of the wanted version from starting.
func cancelDowngrade(f *facts.Facts) *decision.Plan {
	to, open := f.Downgrading()
	wanted, err := defaults.ParseRelease(f.Cluster.Spec.Version)
	if !open || err != nil || f.BesideExternal() {
		return nil
	}
	if wanted.Base() == to || wanted.Minor() < f.Release().Minor() || forcing(f) {
		return nil
	}
	return change(f, decision.CancelDowngrade{}, fmt.Sprintf(
		"cancelling the downgrade to %s: spec.version has changed", to))
}

// recordVersion: a patch release is only an update of pods; and a minor version may be taken back as long as the
// cluster has not agreed on it, which it does not while a voter runs the other.
func recordVersion(f *facts.Facts) *decision.Plan {
	if f.BesideExternal() {
		return recordVersionBesideExternal(f)
	}
	if to, agreed := f.OvertakenVersion(); agreed {
		return &decision.Plan{
			Message: fmt.Sprintf("the cluster had already agreed on etcd %s when spec.version was set back to %s: "+
				"downgrading by etcd's protocol", to, f.Epoch.Version),
			Record: decision.RecordChange{Version: to.String()},
			Resync: decision.ResyncSoon,
		}
	}
	hops := f.Hops()
	if len(hops) == 0 {
		return nil
	}
	to := hops[0]
	refused := f.Refuses(hops)
	if refused || to.Minor() != f.Release().Minor() && !f.Halfway(to) {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("the members will run etcd %s instead of %s", to, f.Epoch.Version),
		Record:  decision.RecordChange{Version: to.String()},
		Resync:  decision.ResyncSoon,
	}
}

func upgrade(f *facts.Facts) *decision.Plan {
	hops := f.Hops()
	if len(hops) == 0 {
		return nil
	}
	next := hops[0]
	switch {
	case f.Refuses(hops):
		return &decision.Plan{Message: f.Refusal(hops), Outlook: decision.Waits}
	case f.HopWaits(), f.SnapshotFirst():
		return nil
	case f.Behind() != "":
		return &decision.Plan{
			Message: fmt.Sprintf("on the way to etcd %s: %s", next, f.Behind()),
			Resync:  decision.ResyncSoon,
		}
	case next.Less(f.Release()):
		return stepDown(f, next)
	}
	if first := forceSnapshots(f, next); first != nil {
		return first
	}
	return &decision.Plan{
		Message: fmt.Sprintf("the members will run etcd %s instead of %s", next,
			f.Epoch.Version),
		Record: decision.RecordChange{Version: next.String()},
		Resync: decision.ResyncSoon,
	}
}

func waitForSnapshot(f *facts.Facts) *decision.Plan {
	if f.HopWaits() || !f.SnapshotFirst() {
		return nil
	}
	p := &decision.Plan{Message: f.SnapshotAwaited(), WantsSnapshot: true}
	if why := f.SnapshotMissed(); why != "" {
		p.Message = fmt.Sprintf("%s; %s; take one with `kubectl quorate snapshot -n %s %s`, or set "+
			"spec.snapshotBeforeUpgrade to Never", p.Message, why, f.Cluster.Namespace, f.Cluster.Name)
		p.Outlook = decision.Waits
	}
	return p
}

// stepDown lets etcd lower what the cluster has agreed on before members of the lower version start.
func stepDown(f *facts.Facts, next defaults.Release) *decision.Plan {
	why := fmt.Sprintf("downgrading from etcd %s to %s", f.Epoch.Version, next)
	// etcd lets no member join while a downgrade is under way (allowedVersionRange in etcdserver/cluster_util.go).
	if !f.CanLoseOne() || f.Memory() && !defaults.SameFlags(f.Epoch.Version, next.String()) {
		return &decision.Plan{
			Message: why +
				" can't be done: it would need new members, and none can join during a downgrade; it needs 3 voters or " +
				"more; on Memory, both versions must have the same flags; set spec.replicas to 3 for the downgrade, or set " +
				"spec.version back",
			Outlook: decision.Waits,
		}
	}
	if to, open := f.Downgrading(); !open || to != next.Base() {
		return change(f, decision.EnableDowngrade{Version: next.Base()},
			why+": asking etcd to lower the cluster's version")
	}
	for _, m := range f.Members {
		if m.Health.StorageVersion != next.Base() {
			return &decision.Plan{
				Message: fmt.Sprintf("%s: waiting for %s to convert its data to the format of %s",
					why, m.PodName, next.Base()),
				Resync: decision.ResyncSoon,
			}
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s: the members will run it", why),
		Record:  decision.RecordChange{Version: next.String()},
		Resync:  decision.ResyncSoon,
	}
}

// change asks for a step, or reports what became of the one that this call has taken: there is never a second (S3).
func change(f *facts.Facts, s decision.Step, message string) *decision.Plan {
	switch {
	case f.Taken == nil:
		return &decision.Plan{Step: s, Message: message, Resync: decision.ResyncSoon}
	case f.Taken.Err != "":
		return &decision.Plan{
			Message: fmt.Sprintf("%s; etcd did not %s: %s", message, f.Taken.Step, f.Taken.Err),
			Resync:  decision.ResyncSoon,
		}
	}
	return &decision.Plan{Message: message, Resync: decision.ResyncSoon}
}
