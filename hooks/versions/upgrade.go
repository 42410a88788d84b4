// Package versions knows the releases of etcd, and the way from one to another.
package versions

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
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
	Below, above spec.Release
	why          string
}

// VersionGates are the oldest patch releases between which a minor version may be left or entered.
var VersionGates = []versionGate{
	{spec.Least35, spec.Least36,
		"older releases of 3.5 forget that a learner was promoted, and older ones of 3.6 lose members in the upgrade"},
	{spec.Release{3, 6, 11}, spec.Release{3, 7, 0},
		"older releases of 3.6 write membership data that 3.7 does not accept"},
}

// Newest are the newest patch releases of each minor version that were known when this Quorate was built: the
// waypoints of upgradePolicy Step.
var Newest = []spec.Release{{3, 5, 35}, {3, 6, 16}, {3, 7, 3}}

// NewestReleases are the newest known patch releases of all minor versions that are supported, as in "3.6.16".
func NewestReleases() []string {
	var all []string
	for _, r := range Newest {
		all = append(all, r.String())
	}
	return all
}

// UpgradePath is every version on the way to another, the last one included: patch releases at once, minor versions
// one at a time, and from each only between the releases that its gate lets through. Down is the way up, walked
// backwards.
func UpgradePath(from, to spec.Release) []spec.Release {
	if from.Minor() > to.Minor() {
		up := UpgradePath(to, from)
		slices.Reverse(up)
		return append(up[1:], to)
	}
	var hops []spec.Release
	step := func(r spec.Release) {
		if len(hops) == 0 && r != from || len(hops) > 0 && hops[len(hops)-1] != r {
			hops = append(hops, r)
		}
	}
	at := from
	for at.Minor() < to.Minor() {
		g := VersionGates[at.Minor()-Newest[0].Minor()]
		if at.Less(g.Below) {
			at = Newest[at.Minor()-Newest[0].Minor()]
			step(at)
		}
		next := Newest[at.Minor()+1-Newest[0].Minor()]
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
func Hops(v *state.View) []spec.Release {
	from, err := spec.ParseRelease(v.Epoch.Version)
	to, err2 := spec.ParseRelease(v.Cluster.Spec.Version)
	if err != nil || err2 != nil || !Supported(from) || !Supported(to) {
		return nil
	}
	return UpgradePath(from, to)
}

// Supported reports whether the release's minor version is one that Quorate knows.
func Supported(r spec.Release) bool {
	return r.Major() == 3 && r.Minor() >= Newest[0].Minor() && r.Minor() <= Newest[len(Newest)-1].Minor()
}

// Release of etcd that the record names.
func Release(v *state.View) spec.Release {
	r, _ := spec.ParseRelease(v.Epoch.Version)
	return r
}

// Turnover is after how many entries a member has surely written a snapshot, and keeps none from before it for others:
// etcd 3.6 after 10,000 by its own defaults, sooner by its flags (spec.Room), and it keeps 5,000 for others.
const Turnover = 15_000

// NextOldLog is what the record should say of it now.
func NextOldLog(v *state.View, verdict *decision.Verdict) record.OldLog {
	l := v.Epoch.OldLog
	switch {
	case verdict.Snapshotted:
		return record.OldLog{}
	case Release(v).Minor() == 5:
		return record.OldLog{There: verdict.Version != "" || l.There}
	case !l.There || v.Etcd == nil || len(wording.Filter(v.Members, (*state.Member).Serving)) < len(v.Members):
		return l
	}
	least, most := int64(record.MostRevisions), int64(0)
	for _, m := range v.Members {
		if r, err := spec.ParseRelease(m.Health.Version); err != nil || r.Minor() == 5 {
			return record.OldLog{There: true}
		}
		at := int64(min(m.Health.RaftIndex, record.MostRevisions))
		least = min(least, at)
		most = max(most, at)
	}
	switch {
	case l.UpTo == 0:
		l.UpTo = most
	case least > l.UpTo+Turnover:
		return record.OldLog{}
	}
	return l
}

// Downgrading is the version that a downgrade under way goes to; false when no member tells of one.
func Downgrading(v *state.View) (string, bool) {
	for _, m := range v.Members {
		if m.Serving() && m.Health.Downgrade != "" {
			return m.Health.Downgrade, true
		}
	}
	return "", false
}

// Agreed reports whether some member has its data in the format of this minor version: the cluster has agreed on it,
// then.
func Agreed(v *state.View, on spec.Release) bool {
	return slices.ContainsFunc(v.Members,
		func(m *state.Member) bool { return m.Serving() && m.Health.StorageVersion == on.Base() })
}

// Settling is how long all members must have run one minor version before they go on to another one.
const Settling = 15 * time.Second

// Refuses reports whether the wanted version is more than one step away, and a person wants to take each.
func Refuses(v *state.View, hops []spec.Release) bool {
	return len(hops) > 1 && v.Cluster.Spec.UpgradePolicy != v1alpha1.UpgradeStep
}

// Refusal says why a version is not gone to at once, and the way.
func Refusal(v *state.View, hops []spec.Release) string {
	var all []string
	for _, r := range hops {
		all = append(all, r.String())
	}
	why := "minor versions can't be skipped"
	for _, g := range VersionGates {
		if here := Release(v); here.Minor() == g.Below.Minor() && here.Less(g.Below) {
			why = fmt.Sprintf("leave %d.%d from %s or later: %s", here.Major(), here.Minor(), g.Below, g.why)
		}
	}
	return fmt.Sprintf("etcd %s can't go to %s directly (%s); go by %s: set spec.version to %s first, or "+
		"spec.upgradePolicy to Step; the members stay at %s",
		v.Epoch.Version, v.Cluster.Spec.Version, why, strings.Join(append([]string{v.Epoch.Version}, all...), " -> "),
		all[0], v.Epoch.Version)
}

// Behind says what keeps the members from going on to another minor version; empty for nothing.
func Behind(v *state.View) string {
	here := Release(v)
	for _, m := range v.Members {
		_, open := Downgrading(v)
		if told := m.Health.StorageVersion; here.Minor() >= 6 && told != here.Base() && !open {
			return fmt.Sprintf("waiting for %s to convert its data to the format of %s", m.PodName, here.Base())
		}
		if since := v.Now.Sub(RunningSince(m.Pod)); since < Settling {
			return fmt.Sprintf("waiting until %s has run %s for %.0f seconds", m.PodName, v.Epoch.Version,
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
