package facts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// How running members come to another version (S18). The epoch record says which version members are to run; rule
// RollingUpdate brings them there one by one. The record moves one hop at a time: within a minor version, or to the
// next one over patch releases that are known to be safe. Down by a minor version it goes by etcd's own protocol:
// etcd first lowers the cluster's version and the format of every member's data, and only then do members of the
// lower version start on them. What a cluster as a whole has agreed on is told by the format of the data
// (Health.StorageVersion).

// versionGate is where a minor version may be left for the next: from no release below the one, and to none below the
// other.
type versionGate struct {
	Below, above defaults.Release
	why          string
}

// VersionGates are the oldest patch releases between which a minor version may be left or entered.
var VersionGates = []versionGate{
	{defaults.Least35, defaults.Least36,
		"older releases of 3.5 forget that a learner was promoted, and older ones of 3.6 lose members in the upgrade"},
	{defaults.Release{3, 6, 11}, defaults.Release{3, 7, 0},
		"older releases of 3.6 write membership data that 3.7 does not accept"},
}

// NewestReleases are the newest known patch releases of all minor versions that are supported, as in "3.6.16".
func NewestReleases() []string {
	var all []string
	for _, r := range defaults.Newest {
		all = append(all, r.String())
	}
	return all
}

// UpgradePath is every version on the way to another, the last one included: patch releases at once, minor versions
// one at a time, and from each only between the releases that its gate lets through. Down is the way up, walked
// backwards.
func UpgradePath(from, to defaults.Release) []defaults.Release {
	if from.Minor() > to.Minor() {
		up := UpgradePath(to, from)
		slices.Reverse(up)
		return append(up[1:], to)
	}
	var hops []defaults.Release
	step := func(r defaults.Release) {
		if len(hops) == 0 && r != from || len(hops) > 0 && hops[len(hops)-1] != r {
			hops = append(hops, r)
		}
	}
	at := from
	for at.Minor() < to.Minor() {
		g := VersionGates[at.Minor()-defaults.Newest[0].Minor()]
		if at.Less(g.Below) {
			at = defaults.Newest[at.Minor()-defaults.Newest[0].Minor()]
			step(at)
		}
		next := defaults.Newest[at.Minor()+1-defaults.Newest[0].Minor()]
		if next.Minor() == to.Minor() && !to.Less(g.above) {
			next = to
		}
		at = next
		step(at)
	}
	step(to)
	return hops
}

// Hops are what lies between the version that the members are to run and the one that the spec asks for; empty when
// they are the same, or one of them can't be read.
func (f *Facts) Hops() []defaults.Release {
	from, err := defaults.ParseRelease(f.Epoch.Version)
	to, err2 := defaults.ParseRelease(f.Cluster.Spec.Version)
	if err != nil || err2 != nil || !defaults.Supported(from) || !defaults.Supported(to) {
		return nil
	}
	return UpgradePath(from, to)
}

// Release of etcd that the record names.
func (f *Facts) Release() defaults.Release {
	r, _ := defaults.ParseRelease(f.Epoch.Version)
	return r
}

// Turnover is after how many entries a member has surely written a snapshot, and keeps none from before it for others:
// etcd 3.6 after 10,000 by its own defaults, sooner by its flags (defaults.Room), and it keeps 5,000 for others.
const Turnover = 15_000

// Downgrading is the version that a downgrade under way goes to; false when no member tells of one.
func (f *Facts) Downgrading() (string, bool) {
	for _, m := range f.Members {
		if m.Serving() && m.Health.Downgrade != "" {
			return m.Health.Downgrade, true
		}
	}
	return "", false
}

// agreed reports whether some member has its data in the format of this minor version: the cluster has agreed on it,
// then.
func (f *Facts) agreed(on defaults.Release) bool {
	return slices.ContainsFunc(f.Members,
		func(m *Member) bool { return m.Serving() && m.Health.StorageVersion == on.Base() })
}

// Settling is how long all members must have run a minor version before they go on to another one, where none tells what
// the cluster has agreed on: before 3.6.
const Settling = 15 * time.Second

// Refuses reports whether the wanted version is more than one step away, and a person wants to take each.
func (f *Facts) Refuses(hops []defaults.Release) bool {
	return len(hops) > 1 && f.Cluster.Spec.UpgradePolicy != v1beta1.UpgradeStep
}

// Refusal says why a version is not gone to at once, and the way.
func (f *Facts) Refusal(hops []defaults.Release) string {
	var all []string
	for _, r := range hops {
		all = append(all, r.String())
	}
	why := "minor versions can't be skipped"
	for _, g := range VersionGates {
		if here := f.Release(); here.Minor() == g.Below.Minor() && here.Less(g.Below) {
			why = fmt.Sprintf("first reach %s or a later %d.%d: %s", g.Below, here.Major(), here.Minor(), g.why)
		}
	}
	return fmt.Sprintf("etcd %s can't go to %s directly (%s); go by %s: set spec.version to %s first, or "+
		"spec.upgradePolicy to Step; the members stay at %s",
		f.Epoch.Version, f.Cluster.Spec.Version, why, strings.Join(append([]string{f.Epoch.Version}, all...), " -> "),
		all[0], f.Epoch.Version)
}

// Behind says what keeps the members from going on to another minor version; empty for nothing.
func (f *Facts) Behind() string {
	here := f.Release()
	to, open := f.Downgrading()
	if open && to == here.Base() {
		return fmt.Sprintf("waiting until etcd ends the downgrade to %s, at which all members have arrived", to)
	}
	for _, m := range f.Members {
		since := f.Now.Sub(RunningSince(m.Pod))
		switch {
		case here.Minor() >= 6 && m.Health.StorageVersion != here.Base() && !open:
			return fmt.Sprintf("waiting for %s to convert its data to the format of %s", m.PodName, here.Base())
		case here.Minor() < 6 && since < Settling:
			return fmt.Sprintf("waiting until %s has run %s for %.0f seconds", m.PodName, f.Epoch.Version,
				Settling.Seconds())
		}
	}
	return ""
}

// RunningSince is when the etcd of a pod was started; zero when that is not known.
func RunningSince(pod *corev1.Pod) time.Time {
	if etcd := objects.StatusOf(pod, objects.ContainerEtcd); etcd.State.Running != nil {
		return etcd.State.Running.StartedAt.Time
	}
	return time.Time{}
}
