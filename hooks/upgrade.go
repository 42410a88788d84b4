package hooks

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
)

// How running members come to another version (S18). The epoch record says which version members are to run; rule
// RollingUpdate brings them there one by one. The record moves one hop at a time: within a minor version, or to the
// next one over patch releases that are known to be safe. Down by a minor version it goes by etcd's own protocol:
// etcd first lowers the cluster's version and the format of every member's data, and only then do members of the
// lower version start on them. What a cluster as a whole has agreed on is told by the format of the data
// (Health.StorageVersion).

// versionGates are the oldest patch releases between which a minor version may be left or entered.
var versionGates = []struct {
	below, above release
	why          string
}{
	{release{3, 5, 26}, release{3, 6, 4}, "older releases of 3.5 forget that a learner was promoted, and of 3.6 lose " +
		"members on the way"},
	{release{3, 6, 11}, release{3, 7, 0}, "older releases of 3.6 hand on membership data that 3.7 does not accept"},
}

// newest are the newest patch releases of each minor version that were known when this Quorate was built: the
// waypoints of upgradePolicy Step.
var newest = []release{{3, 5, 35}, {3, 6, 16}, {3, 7, 3}}

// NewestReleases are the newest known patch releases of all minor versions that are supported, as in "3.6.16".
func NewestReleases() []string {
	var all []string
	for _, r := range newest {
		all = append(all, r.String())
	}
	return all
}

func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r.major, r.minor, r.patch) }

// base is the version that etcd's own protocols speak of: without the patch release.
func (r release) base() string { return fmt.Sprintf("%d.%d.0", r.major, r.minor) }

// upgradePath is every version on the way to another, the last one included: patch releases at once, minor versions
// one at a time, and from each only between the releases that its gate lets through. Down is the way up, walked
// backwards.
func upgradePath(from, to release) []release {
	if from.minor > to.minor {
		up := upgradePath(to, from)
		slices.Reverse(up)
		return append(up[1:], to)
	}
	var hops []release
	step := func(r release) {
		if len(hops) == 0 && r != from || len(hops) > 0 && hops[len(hops)-1] != r {
			hops = append(hops, r)
		}
	}
	at := from
	for at.minor < to.minor {
		g := versionGates[at.minor-newest[0].minor]
		if at.less(g.below) {
			at = newest[at.minor-newest[0].minor]
			step(at)
		}
		next := newest[at.minor+1-newest[0].minor]
		if next.minor == to.minor && !to.less(g.above) {
			next = to
		}
		at = next
		step(at)
	}
	step(to)
	return hops
}

// hops are what lies between the version that the members are to run and the one that the spec asks for; empty when
// they are the same, or one of them can't be read.
func (v *view) hops() []release {
	from, err := parseRelease(v.epoch.version)
	to, err2 := parseRelease(v.Cluster.Spec.Version)
	if err != nil || err2 != nil || !supported(from) || !supported(to) {
		return nil
	}
	return upgradePath(from, to)
}

func supported(r release) bool {
	return r.major == 3 && r.minor >= newest[0].minor && r.minor <= newest[len(newest)-1].minor
}

func (v *view) release() release {
	r, _ := parseRelease(v.epoch.version)
	return r
}

// ---- the log that 3.5 wrote

// etcd 3.7 can't read log entries of 3.5: each start of a 3.5 writes one, and a 3.7 that finds it in its log ends
// with a panic. 3.6 reads them. So members may start as 3.7 only when such entries lie before a snapshot on their
// disks. A member writes one by itself every 10,000 entries, and keeps 5,000 more for others that lag; on a quiet
// cluster that is never. But lowering the version of the cluster makes every member write a snapshot (ForceSnapshot
// in etcd 3.6's etcdserver/apply), and that can be taken back (TestVersions in test/real/conformance). The record
// says up to which entry 3.5 has written.

// oldLog is how far into the log entries of 3.5 may be: unbounded while members of 3.5 may run.
type oldLog struct {
	there bool
	upTo  uint64 // 0: not known yet
}

func readOldLog(s string) oldLog {
	release, index, _ := strings.Cut(s, "@")
	upTo, _ := strconv.ParseUint(index, 10, 64)
	return oldLog{there: release != "", upTo: upTo}
}

func (l oldLog) String() string {
	switch {
	case !l.there:
		return ""
	case l.upTo == 0:
		return "3.5"
	}
	return fmt.Sprintf("3.5@%d", l.upTo)
}

// turnover is after how many entries a member has surely written a snapshot, and keeps none from before it for others.
func (v *view) turnover() uint64 {
	const snapshotCount, catchUp = 10_000, 5_000 // of etcd 3.6
	if n := v.Cluster.Spec.Options.SnapshotCount; n != nil {
		return uint64(max(*n, snapshotCount)) + catchUp
	}
	return snapshotCount + catchUp
}

// nextOldLog is what the record should say of it now.
func (v *view) nextOldLog(decision *verdict) oldLog {
	l := v.epoch.oldLog
	switch {
	case decision.snapshotted:
		return oldLog{}
	case v.release().minor == 5:
		return oldLog{there: decision.version != "" || l.there}
	case !l.there || v.Etcd == nil || len(filter(v.members, (*member).serving)) < len(v.members):
		return l
	}
	least, most := uint64(math.MaxUint64), uint64(0)
	for _, m := range v.members {
		if r, err := parseRelease(m.health.Version); err != nil || r.minor == 5 {
			return oldLog{there: true}
		}
		least, most = min(least, m.health.RaftIndex), max(most, m.health.RaftIndex)
	}
	switch {
	case l.upTo == 0:
		l.upTo = most
	case least > l.upTo+v.turnover():
		return oldLog{}
	}
	return l
}

// forcing reports whether a downgrade is open only for the snapshots that it makes members write.
func (v *view) forcing() bool {
	hops := v.hops()
	calm := len(v.voters) >= v.wanted() && len(filter(v.members, (*member).serving)) == len(v.members)
	return calm && v.epoch.oldLog.there && len(hops) > 0 && hops[0].minor == 7 && v.release().minor == 6 &&
		!v.refuses(hops)
}

// forceSnapshots has every member write a snapshot; nil when that is not needed.
func (v *view) forceSnapshots(next release) *verdict {
	const why = "before members can run etcd 3.7, what 3.5 wrote into their logs must lie before a snapshot"
	to, open := v.downgrading()
	switch {
	case next.minor != 7 || !v.epoch.oldLog.there:
		return nil
	case !v.canLoseOne():
		return &verdict{message: fmt.Sprintf("etcd %s is not gone to: the log still has entries of 3.5, which a new "+
			"member of 3.7 can't read, and with fewer than 3 voters new members are the only way; set replicas to 3 "+
			"for the upgrade, or wait until %d more entries are written", next, v.turnover()), outlook: Waits}
	case !open:
		return v.change(EnableDowngrade{Version: release{3, 5, 0}.base()},
			why+": lowering the version of the cluster for a moment, which makes them write one")
	case to != release{3, 5, 0}.base():
		return nil
	}
	for _, m := range v.members {
		if m.health.StorageVersion != to {
			return &verdict{message: fmt.Sprintf("%s: waiting for %s to write it", why, m.name),
				resync: rule.ResyncSoon}
		}
	}
	return &verdict{message: why + ": they have written it", snapshotted: true, resync: rule.ResyncSoon}
}

// ---- the rules

// cancelDowngrade: a downgrade that nobody wants any more would keep members of the version that is wanted from
// starting.
func cancelDowngrade(v *view) *verdict {
	to, open := v.downgrading()
	wanted, err := parseRelease(v.Cluster.Spec.Version)
	if v.besideForeign() || !open || err != nil || wanted.base() == to || wanted.minor < v.release().minor ||
		v.forcing() {
		return nil
	}
	return v.change(CancelDowngrade{}, fmt.Sprintf("the downgrade to %s is no longer wanted: cancelling it", to))
}

// downgrading is the version that a downgrade under way goes to; false when no member tells of one.
func (v *view) downgrading() (string, bool) {
	for _, m := range v.members {
		if m.serving() && m.health.Downgrade != "" {
			return m.health.Downgrade, true
		}
	}
	return "", false
}

// setVersion: a patch release is only an update of pods; and a minor version may be taken back as long as the cluster
// has not agreed on it, which it does not while a voter runs the other.
func setVersion(v *view) *verdict {
	if v.besideForeign() {
		return v.setVersionBesideForeign()
	}
	if to, agreed := v.overtaken(); agreed {
		return &verdict{message: fmt.Sprintf("the cluster has agreed on etcd %s before it was turned back to %s: "+
			"from here it goes down by etcd's own protocol", to, v.epoch.version), version: to.String(),
			resync: rule.ResyncSoon}
	}
	hops := v.hops()
	if len(hops) == 0 {
		return nil
	}
	to, refused := hops[0], v.refuses(hops)
	if refused || to.minor != v.release().minor && !v.halfway(to) {
		return nil
	}
	return &verdict{message: fmt.Sprintf("the members are to run etcd %s instead of %s", to, v.epoch.version),
		version: to.String(), resync: rule.ResyncSoon}
}

// overtaken is the version that the members run, if the cluster has agreed on a higher one than the record says: the
// last member had already been given the new image when the others were to turn back. None of the lower version could
// start any more.
func (v *view) overtaken() (release, bool) {
	if _, open := v.downgrading(); open {
		return release{}, false
	}
	for _, m := range v.members {
		has, err := parseRelease(m.health.Version)
		if err == nil && m.serving() && has.minor > v.release().minor && v.agreed(has) {
			return has, true
		}
	}
	return release{}, false
}

// halfway reports whether the members are on their way from this minor version and may turn back: some still run it,
// and on the way up the cluster has not agreed on the other one yet.
func (v *view) halfway(to release) bool {
	if _, open := v.downgrading(); open || to.less(v.release()) && v.agreed(v.release()) {
		return false
	}
	return slices.ContainsFunc(v.voters, func(m *member) bool {
		has, err := parseRelease(m.health.Version)
		return err == nil && m.serving() && has.minor == to.minor
	})
}

// agreed reports whether some member has its data in the format of this minor version: the cluster has agreed on it,
// then.
func (v *view) agreed(on release) bool {
	return slices.ContainsFunc(v.members,
		func(m *member) bool { return m.serving() && m.health.StorageVersion == on.base() })
}

// settling is how long all members must have run one minor version before they go on to another one.
const settling = 15 * time.Second

func upgrade(v *view) *verdict {
	hops := v.hops()
	if len(hops) == 0 {
		return nil
	}
	next := hops[0]
	switch {
	case v.refuses(hops):
		return &verdict{message: v.refusal(hops), outlook: Waits}
	case v.hopWaits():
		return nil
	case v.behind() != "":
		return &verdict{message: fmt.Sprintf("on the way to etcd %s: %s", next, v.behind()), resync: rule.ResyncLater}
	case next.less(v.release()):
		return v.stepDown(next)
	}
	if first := v.forceSnapshots(next); first != nil {
		return first
	}
	return &verdict{message: fmt.Sprintf("the members are to run etcd %s instead of %s", next, v.epoch.version),
		version: next.String(), resync: rule.ResyncSoon}
}

// refuses reports whether the wanted version is more than one step away, and a person wants to take each.
func (v *view) refuses(hops []release) bool {
	return len(hops) > 1 && v.Cluster.Spec.UpgradePolicy != v1alpha1.UpgradeStep
}

// refusal says why a version is not gone to at once, and the way.
func (v *view) refusal(hops []release) string {
	var all []string
	for _, r := range hops {
		all = append(all, r.String())
	}
	why := "minor versions can't be skipped"
	for _, g := range versionGates {
		if here := v.release(); here.minor == g.below.minor && here.less(g.below) {
			why = fmt.Sprintf("%d.%d is left from %s on: %s", here.major, here.minor, g.below, g.why)
		}
	}
	return fmt.Sprintf("etcd %s can't go to %s at once (%s); the way is %s: set spec.version to %s first, or "+
		"spec.upgradePolicy to Step; the members stay at %s",
		v.epoch.version, v.Cluster.Spec.Version, why, strings.Join(append([]string{v.epoch.version}, all...), " -> "),
		all[0], v.epoch.version)
}

// behind says what keeps the members from going on to another minor version; empty for nothing.
func (v *view) behind() string {
	here := v.release()
	for _, m := range v.members {
		_, open := v.downgrading()
		if told := m.health.StorageVersion; here.minor >= 6 && told != here.base() && !open {
			return fmt.Sprintf("waiting for the data of %s to be in the format of %s", m.name, here.base())
		}
		if since := v.Now.Sub(runningSince(m.pod)); since < settling {
			return fmt.Sprintf("waiting until %s has run %s for %.0f seconds", m.name, v.epoch.version,
				settling.Seconds())
		}
	}
	return ""
}

// runningSince is when the etcd of a pod was started; zero when that is not known.
func runningSince(pod *corev1.Pod) time.Time {
	if etcd := objects.StatusOf(pod, objects.ContainerEtcd); etcd.State.Running != nil {
		return etcd.State.Running.StartedAt.Time
	}
	return time.Time{}
}

// stepDown lets etcd lower what the cluster has agreed on before members of the lower version start.
func (v *view) stepDown(next release) *verdict {
	why := fmt.Sprintf("going down from etcd %s to %s", v.epoch.version, next)
	// etcd lets nobody join while a downgrade is under way (allowedVersionRange in etcdserver/cluster_util.go).
	if !v.canLoseOne() || v.memory() && !sameFlags(v.epoch.version, next.String()) {
		return &verdict{message: why + " is not done: members would have to be succeeded by new ones, and etcd lets " +
			"nobody join meanwhile; it takes 3 voters or more, and on Memory versions with the same flags; set " +
			"replicas to 3 for the downgrade, or spec.version back", outlook: Waits}
	}
	if to, open := v.downgrading(); !open || to != next.base() {
		return v.change(EnableDowngrade{Version: next.base()}, why+": asking etcd to lower the version of the cluster")
	}
	for _, m := range v.members {
		if m.health.StorageVersion != next.base() {
			return &verdict{message: fmt.Sprintf("%s: waiting for the data of %s to be in the format of %s", why,
				m.name, next.base()), resync: rule.ResyncSoon}
		}
	}
	return &verdict{message: fmt.Sprintf("%s: the members are to run it", why), version: next.String(),
		resync: rule.ResyncSoon}
}
