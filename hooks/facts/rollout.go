package facts

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
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
func (v *Facts) differs(m *Member) bool {
	_, image := v.ImageDiffers(m)
	return image || v.HasOutdatedTemplate(m)
}

// UpdateOf of a member; nil when it is as it should be.
func (v *Facts) UpdateOf(m *Member) *update {
	if m.Update == nil {
		found := v.findUpdate(m)
		m.Update = &found
	}
	return *m.Update
}

func (v *Facts) findUpdate(m *Member) *update {
	if m.PodName == "" || m.Pod == nil {
		return nil
	}
	for _, otherwise := range []func(*Facts, *Member) (string, bool){(*Facts).distrusts,
		(*Facts).tlsFlagsDiffer, (*Facts).allowsAnyPeer, (*Facts).templateDiffers, (*Facts).outsideURLDiffers, (*Facts).quotaDiffers,
		(*Facts).fileSystemWaits} {
		if reason, differs := otherwise(v, m); differs {
			return &update{Reason: reason}
		}
	}
	if reason, differs := v.ImageDiffers(m); differs && !v.mayDiffer(m) {
		return &update{Reason: reason, InPlace: defaults.SameFlags(MadeForVersion(m.Pod), v.Epoch.Version)}
	}
	if v.peersInPlain(m) {
		return &update{Reason: "its peer URL is plain text"}
	}
	if reason, differs := v.volumeDiffers(m); differs && (v.succeeding() || len(v.Denied()) == 0) {
		return &update{Reason: reason, NewVolume: true}
	}
	return nil
}

func (v *Facts) templateDiffers(m *Member) (string, bool) {
	return "the template of its pod has changed", v.HasOutdatedTemplate(m)
}

// ImageDiffers reports whether the member is to run another image, and which.
func (v *Facts) ImageDiffers(m *Member) (string, bool) {
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
func (v *Facts) mayDiffer(m *Member) bool {
	return v.Cluster.Spec.Image.Repository == "" && v.Now.Before(v.Settings.Since.Add(rolledWithin)) &&
		m.Serving() && objects.VersionOf(m.Pod.Annotations[objects.AnnotationImage]) == v.Epoch.Version
}

// WantsImage reports whether another image, whatever else differs, may be put into the member's pod, and why. While the
// kubelet is about to start it from the last one, it may not: if the old image were put back, it would never be started
// again, and the wait for that would not end.
func (v *Facts) WantsImage(m *Member) (string, bool) {
	if m.PodName == "" || m.Pod == nil || m.Restarting() && Running(m.Pod) || m.Pod.DeletionTimestamp != nil ||
		Finished(m.Pod) {
		return "", false
	}
	reason, differs := v.ImageDiffers(m)
	return reason, differs && defaults.SameFlags(MadeForVersion(m.Pod), v.Epoch.Version)
}

// peersInPlain reports whether a member that can't be restarted to listen by TLS must be succeeded by one that does.
func (v *Facts) peersInPlain(m *Member) bool {
	return !v.Restartable() && objects.Encrypted(v.Cluster) && v.EveryoneDials() && !ByTLS(m.PeerURLs...)
}

// Restartable reports whether a voter's pod may be deleted without losing its data or the quorum.
func (v *Facts) Restartable() bool { return !v.Memory() && v.CanLoseOne() }

// RestartSuffices reports whether the update may be done to the member itself; otherwise another one must succeed it.
func (v *Facts) RestartSuffices(r *update) bool {
	return !r.NewVolume && (v.Restartable() || r.InPlace && v.CanLoseOne())
}

// Leads is 1 for the leader, else 0: a rollout sorts by it, the leader last.
func (v *Facts) Leads(m *Member) int {
	if m.ID == v.Etcd.Leader {
		return 1
	}
	return 0
}

// Overtaken is the version that the members run, if the cluster has agreed on a higher one than the record says: the
// last member had already been given the new image when the others were to turn back. None of the lower version could
// start any more.
func (v *Facts) OvertakenVersion() (defaults.Release, bool) {
	if _, open := v.Downgrading(); open {
		return defaults.Release{}, false
	}
	for _, m := range v.Members {
		has, err := defaults.ParseRelease(m.Health.Version)
		if err == nil && m.Serving() && has.Minor() > v.Release().Minor() && v.agreed(has) {
			return has, true
		}
	}
	return defaults.Release{}, false
}

// Halfway reports whether the members are on their way from this minor version and may turn back: some still run it,
// and on the way up the cluster has not agreed on the other one yet.
func (v *Facts) Halfway(to defaults.Release) bool {
	if _, open := v.Downgrading(); open || to.Less(v.Release()) &&
		v.agreed(v.Release()) {
		return false
	}
	return slices.ContainsFunc(v.Voters, func(m *Member) bool {
		has, err := defaults.ParseRelease(m.Health.Version)
		return err == nil && m.Serving() && has.Minor() == to.Minor()
	})
}
