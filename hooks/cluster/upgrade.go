package cluster

import (
	"fmt"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/rollout"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// forcing reports whether a downgrade is open only for the snapshots that it makes members write.
func forcing(v *state.View) bool {
	hops := versions.Hops(v)
	calm := len(v.Voters) >= rollout.Wanted(v) && len(wording.Filter(v.Members,
		(*state.Member).Serving)) == len(v.Members)
	return calm && v.Epoch.OldLog.There && len(hops) > 0 && hops[0].Minor() == 7 && versions.Release(v).Minor() == 6 &&
		!versions.Refuses(v, hops)
}

// forceSnapshots has every member write a snapshot; nil when that is not needed.
func forceSnapshots(v *state.View, next spec.Release) *decision.Plan {
	const why = "before members can run etcd 3.7, they need a snapshot after the last log entry of 3.5"
	to, open := versions.Downgrading(v)
	switch {
	case next.Minor() != 7 || !v.Epoch.OldLog.There:
		return nil
	case !v.CanLoseOne():
		return &decision.Plan{
			Message: fmt.Sprintf("the upgrade to etcd %s waits: the log still has entries of 3.5, which a new member "+
				"of 3.7 can't read, and fewer than 3 voters can only be upgraded by new members; set spec.replicas "+
				"to 3 for the upgrade, or wait for %d more entries", next, versions.Turnover),
			Outlook: rule.Waits,
		}
	case !open:
		return versions.Change(v, decision.EnableDowngrade{Version: spec.Release{3, 5, 0}.Base()},
			why+": lowering the cluster's version for a moment, which makes them write one")
	case to != spec.Release{3, 5, 0}.Base():
		return nil
	}
	for _, m := range v.Members {
		if m.Health.StorageVersion != to {
			return &decision.Plan{
				Message: fmt.Sprintf("%s: waiting for %s to write it", why, m.PodName),
				Resync:  rule.ResyncSoon,
			}
		}
	}
	return &decision.Plan{
		Message: why + ": they have it",
		Record:  decision.RecordChange{Snapshotted: true},
		Resync:  rule.ResyncSoon,
	}
}

// cancelDowngrade: a downgrade that is no longer wanted would keep members of the wanted version from starting.
func cancelDowngrade(v *state.View) *decision.Plan {
	to, open := versions.Downgrading(v)
	wanted, err := spec.ParseRelease(v.Cluster.Spec.Version)
	if v.BesideForeign() || !open || err != nil || wanted.Base() == to ||
		wanted.Minor() < versions.Release(v).Minor() || forcing(v) {
		return nil
	}
	return versions.Change(v, decision.CancelDowngrade{}, fmt.Sprintf(
		"cancelling the downgrade to %s: spec.version has changed", to))
}

// setVersion: a patch release is only an update of pods; and a minor version may be taken back as long as the cluster
// has not agreed on it, which it does not while a voter runs the other.
func setVersion(v *state.View) *decision.Plan {
	if v.BesideForeign() {
		return foreign.SetVersionBesideForeign(v)
	}
	if to, agreed := rollout.Overtaken(v); agreed {
		return &decision.Plan{
			Message: fmt.Sprintf("the cluster had already agreed on etcd %s when spec.version was set back to %s: "+
				"going down by etcd's own protocol", to, v.Epoch.Version),
			Record: decision.RecordChange{Version: to.String()},
			Resync: rule.ResyncSoon,
		}
	}
	hops := versions.Hops(v)
	if len(hops) == 0 {
		return nil
	}
	to, refused := hops[0], versions.Refuses(v, hops)
	if refused || to.Minor() != versions.Release(v).Minor() && !rollout.Halfway(v, to) {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("the members will run etcd %s instead of %s", to, v.Epoch.Version),
		Record:  decision.RecordChange{Version: to.String()},
		Resync:  rule.ResyncSoon,
	}
}

func upgrade(v *state.View) *decision.Plan {
	hops := versions.Hops(v)
	if len(hops) == 0 {
		return nil
	}
	next := hops[0]
	switch {
	case versions.Refuses(v, hops):
		return &decision.Plan{Message: versions.Refusal(v, hops), Outlook: rule.Waits}
	case rollout.HopWaits(v):
		return nil
	case versions.Behind(v) != "":
		return &decision.Plan{
			Message: fmt.Sprintf("on the way to etcd %s: %s", next, versions.Behind(v)),
			Resync:  rule.ResyncLater,
		}
	case next.Less(versions.Release(v)):
		return stepDown(v, next)
	}
	if first := forceSnapshots(v, next); first != nil {
		return first
	}
	return &decision.Plan{
		Message: fmt.Sprintf("the members will run etcd %s instead of %s", next,
			v.Epoch.Version),
		Record: decision.RecordChange{Version: next.String()},
		Resync: rule.ResyncSoon,
	}
}

// stepDown lets etcd lower what the cluster has agreed on before members of the lower version start.
func stepDown(v *state.View, next spec.Release) *decision.Plan {
	why := fmt.Sprintf("going down from etcd %s to %s", v.Epoch.Version, next)
	// etcd lets no member join while a downgrade is under way (allowedVersionRange in etcdserver/cluster_util.go).
	if !v.CanLoseOne() || v.Memory() && !spec.SameFlags(v.Epoch.Version, next.String()) {
		return &decision.Plan{
			Message: why +
				" can't be done: it would need new members, and none can join during a downgrade; it needs 3 voters or " +
				"more, and on Memory versions with the same flags; set spec.replicas to 3 for the downgrade, or set " +
				"spec.version back",
			Outlook: rule.Waits,
		}
	}
	if to, open := versions.Downgrading(v); !open || to != next.Base() {
		return versions.Change(v, decision.EnableDowngrade{Version: next.Base()},
			why+": asking etcd to lower the cluster's version")
	}
	for _, m := range v.Members {
		if m.Health.StorageVersion != next.Base() {
			return &decision.Plan{
				Message: fmt.Sprintf("%s: waiting for %s to convert its data to the format of %s",
					why, m.PodName, next.Base()),
				Resync: rule.ResyncSoon,
			}
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s: the members will run it", why),
		Record:  decision.RecordChange{Version: next.String()},
		Resync:  rule.ResyncSoon,
	}
}
