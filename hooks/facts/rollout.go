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

// differs reports whether the member's pod was made from another template or image than the spec's.
func (f *Facts) differs(m *Member) bool {
	_, image := f.ImageDiffers(m)
	return image || f.HasOutdatedTemplate(m)
}

// UpdateOf of a member; nil when it is as it should be.
func (f *Facts) UpdateOf(m *Member) *Update {
	if m.Update == nil {
		found := f.findUpdate(m)
		m.Update = &found
	}
	return *m.Update
}

func (f *Facts) findUpdate(m *Member) *Update {
	if m.PodName == "" || m.Pod == nil {
		return nil
	}
	for _, otherwise := range []func(*Facts, *Member) (string, bool){(*Facts).distrusts,
		(*Facts).tlsFlagsDiffer, (*Facts).allowsAnyPeer, (*Facts).templateDiffers, (*Facts).outsideURLDiffers, (*Facts).quotaDiffers,
		(*Facts).fileSystemWaits} {
		if reason, differs := otherwise(f, m); differs {
			return &Update{Reason: reason}
		}
	}
	if reason, differs := f.ImageDiffers(m); differs && !f.mayDiffer(m) {
		return &Update{Reason: reason, InPlace: defaults.SameFlags(MadeForVersion(m.Pod), f.Epoch.Version)}
	}
	if f.peersInPlain(m) {
		return &Update{Reason: "its peer URL is plain text"}
	}
	if reason, differs := f.volumeDiffers(m); differs && (f.succeeding() || len(f.Denied()) == 0) {
		return &Update{Reason: reason, NewVolume: true}
	}
	if reason, leave := f.clientsLeaveFirst(m); leave {
		return &Update{Reason: reason, ForDefragmentation: true}
	}
	return nil
}

func (f *Facts) templateDiffers(m *Member) (string, bool) {
	return "the template of its pod has changed", f.HasOutdatedTemplate(m)
}

// ImageDiffers reports whether the member is to run another image, and which.
func (f *Facts) ImageDiffers(m *Member) (string, bool) {
	wanted := f.Settings.Etcd(&f.Cluster.Spec, f.Epoch.Version)
	has := m.Pod.Annotations[objects.AnnotationImage]
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
func (f *Facts) mayDiffer(m *Member) bool {
	return f.Cluster.Spec.Image.Repository == "" && f.Now.Before(f.Settings.Since.Add(rolledWithin)) &&
		m.Serving() && objects.VersionOf(m.Pod.Annotations[objects.AnnotationImage]) == f.Epoch.Version
}

// WantsImage reports whether another image, whatever else differs, may be put into the member's pod, and why. While the
// kubelet is about to start it from the last one, it may not: if the old image were put back, it would never be started
// again, and the wait for that would not end.
func (f *Facts) WantsImage(m *Member) (string, bool) {
	if m.PodName == "" || m.Pod == nil || m.Restarting() && Running(m.Pod) {
		return "", false
	}
	if m.Pod.DeletionTimestamp != nil || Finished(m.Pod) {
		return "", false
	}
	reason, differs := f.ImageDiffers(m)
	return reason, differs && defaults.SameFlags(MadeForVersion(m.Pod), f.Epoch.Version)
}

// peersInPlain reports whether a member that can't be restarted to listen by TLS must be succeeded by one that does.
func (f *Facts) peersInPlain(m *Member) bool {
	return !f.Restartable() && objects.Encrypted(f.Cluster) && f.EveryoneDials() && !ByTLS(m.PeerURLs...)
}

// Restartable reports whether a voter's pod may be deleted without losing its data or the quorum.
func (f *Facts) Restartable() bool { return !f.Memory() && f.CanLoseOne() }

// RestartSuffices reports whether the update may be done to the member itself; otherwise another one must succeed it.
func (f *Facts) RestartSuffices(m *Member, r *Update) bool {
	if m.Learner {
		return !r.NewVolume && (!f.Memory() || r.InPlace)
	}
	return !r.NewVolume && (f.Restartable() || r.InPlace && f.CanLoseOne())
}

// Leads is 1 for the leader, else 0: a rollout sorts by it, the leader last.
func (f *Facts) Leads(m *Member) int {
	if m.ID == f.Etcd.Leader {
		return 1
	}
	return 0
}

// OvertakenVersion is the version that the members run, if the cluster has agreed on a higher one than the record says:
// the last member had already been given the new image when the others were to turn back. None of the lower version
// could start any more.
func (f *Facts) OvertakenVersion() (defaults.Release, bool) {
	if _, open := f.Downgrading(); open {
		return defaults.Release{}, false
	}
	for _, m := range f.Members {
		has, err := defaults.ParseRelease(m.Health.Version)
		if err == nil && m.Serving() && has.Minor() > f.Release().Minor() && f.agreed(has) {
			return has, true
		}
	}
	return defaults.Release{}, false
}

// Halfway reports whether the members are on their way from this minor version and may turn back: some still run it,
// and on the way up the cluster has not agreed on the other one yet.
func (f *Facts) Halfway(to defaults.Release) bool {
	if _, open := f.Downgrading(); open || to.Less(f.Release()) &&
		f.agreed(f.Release()) {
		return false
	}
	return slices.ContainsFunc(f.Voters, func(m *Member) bool {
		has, err := defaults.ParseRelease(m.Health.Version)
		return err == nil && m.Serving() && has.Minor() == to.Minor()
	})
}
