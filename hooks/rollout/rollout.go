// Package rollout says which members differ from the spec, and which changes wait for a maintenance window.
package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/volumes"
)

// How a change reaches members that run. A member whose pod is not the one that the spec asks for is updated:
// restarted by deleting its pod, or by exchanging the image in it, where nothing else differs. Where a member can't
// be restarted (its data is in memory, or there are one or two voters) it is succeeded by a new one, which joins
// first.
//
// Updates go in the order of dead, starting, not serving (rule RecreatePod), then, with every member serving, one
// follower after the other, and the leader last (rule RollingUpdate). So a change that does not work stops at its first
// member, and taking it back mends that one first. Which voter is restarted is written to the epoch record before.

// Differs reports whether the member's pod was made from another template or image than the spec's.
func Differs(v *state.View, m *state.Member) bool {
	_, image := ImageDiffers(v, m)
	return image || HasOutdatedTemplate(v, m)
}

// UpdateOf of a member; nil when it is as it should be.
func UpdateOf(v *state.View, m *state.Member) *state.Update {
	if m.Update == nil {
		found := findUpdate(v, m)
		m.Update = &found
	}
	return *m.Update
}

func findUpdate(v *state.View, m *state.Member) *state.Update {
	if m.PodName == "" || m.Pod == nil {
		return nil
	}
	for _, otherwise := range []func(*state.View, *state.Member) (string, bool){certificates.Distrusts,
		state.TLSFlagsDiffer, foreign.AllowsAnyPeer, templateDiffers, state.OutsideURLDiffers, volumes.QuotaDiffers,
		volumes.FileSystemWaits} {
		if reason, differs := otherwise(v, m); differs {
			return &state.Update{Reason: reason}
		}
	}
	if reason, differs := ImageDiffers(v, m); differs && !mayDiffer(v, m) {
		return &state.Update{Reason: reason, InPlace: spec.SameFlags(versions.MadeForVersion(m.Pod), v.Epoch.Version)}
	}
	if peersInPlain(v, m) {
		return &state.Update{Reason: "its peer URL is plain text"}
	}
	if reason, differs := volumes.VolumeDiffers(v, m); differs && (succeeding(v) || len(volumes.Denied(v)) == 0) {
		return &state.Update{Reason: reason, NewVolume: true}
	}
	return nil
}

func templateDiffers(v *state.View, m *state.Member) (string, bool) {
	return "the template of its pod has changed", HasOutdatedTemplate(v, m)
}

// ImageDiffers reports whether the member is to run another image, and which.
func ImageDiffers(v *state.View, m *state.Member) (string, bool) {
	wanted, has := v.Settings.Etcd(&v.Cluster.Spec, v.Epoch.Version), m.Pod.Annotations[objects.AnnotationImage]
	switch {
	case has == wanted:
		return "", false
	case objects.VersionOf(has) != objects.VersionOf(wanted):
		return fmt.Sprintf("it should run etcd %s instead of %s", objects.VersionOf(wanted), cmp.Or(objects.VersionOf(has),
				"what it runs")),
			true
	}
	return fmt.Sprintf("its image should be %s", wanted), true
}

// rolledWithin is how long Quorate's own Deployment takes at most to be rolled when nothing is wrong, nodes' pulls of
// its image included.
const rolledWithin = 5 * time.Minute

// mayDiffer reports whether the member's image may be from another repository for now: from one that the spec does
// not name, and that a replica of Quorate which is about to go has in its settings still. The two would answer by
// turns, and exchange the image back and forth.
func mayDiffer(v *state.View, m *state.Member) bool {
	return v.Cluster.Spec.Image.Repository == "" && v.Now.Before(v.Settings.Since.Add(rolledWithin)) &&
		m.Serving() && objects.VersionOf(m.Pod.Annotations[objects.AnnotationImage]) == v.Epoch.Version
}

// WantsImage reports whether another image, whatever else differs, may be put into the member's pod, and why. While the
// kubelet is about to start it from the last one, it may not: if the old image were put back, it would never be started
// again, and the wait for that would not end.
func WantsImage(v *state.View, m *state.Member) (string, bool) {
	if m.PodName == "" || m.Pod == nil || m.Restarting() && state.Running(m.Pod) || m.Pod.DeletionTimestamp != nil ||
		state.Finished(m.Pod) {
		return "", false
	}
	reason, differs := ImageDiffers(v, m)
	return reason, differs && spec.SameFlags(versions.MadeForVersion(m.Pod), v.Epoch.Version)
}

// peersInPlain reports whether a member that can't be restarted to listen by TLS must be succeeded by one that does.
func peersInPlain(v *state.View, m *state.Member) bool {
	return !Restartable(v) && objects.Encrypted(v.Cluster) && v.EveryoneDials() && !state.ByTLS(m.PeerURLs...)
}

// Restartable reports whether a voter's pod may be deleted without losing its data or the quorum.
func Restartable(v *state.View) bool { return !v.Memory() && v.CanLoseOne() }

// RestartSuffices reports whether the update may be done to the member itself; otherwise another one must succeed it.
func RestartSuffices(v *state.View, r *state.Update) bool {
	return !r.NewVolume && (Restartable(v) || r.InPlace && v.CanLoseOne())
}

// Leads is 1 for the leader, else 0: a rollout sorts by it, the leader last.
func Leads(v *state.View, m *state.Member) int {
	if m.ID == v.Etcd.Leader {
		return 1
	}
	return 0
}

// Overtaken is the version that the members run, if the cluster has agreed on a higher one than the record says: the
// last member had already been given the new image when the others were to turn back. None of the lower version could
// start any more.
func Overtaken(v *state.View) (spec.Release, bool) {
	if _, open := versions.Downgrading(v); open {
		return spec.Release{}, false
	}
	for _, m := range v.Members {
		has, err := spec.ParseRelease(m.Health.Version)
		if err == nil && m.Serving() && has.Minor() > versions.Release(v).Minor() && versions.Agreed(v, has) {
			return has, true
		}
	}
	return spec.Release{}, false
}

// Halfway reports whether the members are on their way from this minor version and may turn back: some still run it,
// and on the way up the cluster has not agreed on the other one yet.
func Halfway(v *state.View, to spec.Release) bool {
	if _, open := versions.Downgrading(v); open || to.Less(versions.Release(v)) &&
		versions.Agreed(v, versions.Release(v)) {
		return false
	}
	return slices.ContainsFunc(v.Voters, func(m *state.Member) bool {
		has, err := spec.ParseRelease(m.Health.Version)
		return err == nil && m.Serving() && has.Minor() == to.Minor()
	})
}
