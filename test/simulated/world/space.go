package world

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// How large the members' databases are, whether they hold the same, and the alarms that etcd raises about both.

// What an empty database takes: its file, and what is in it.
const emptyFile, emptyUse = int64(1 << 20), int64(1 << 19)

// inUse is how much of the member's database something is in, size how large its file is.
func (d Dir) inUse() int64 { return emptyUse + d.Held }

func (d Dir) size() int64 {
	if d.File == 0 {
		return max(emptyFile, d.inUse())
	}
	return max(d.File, d.inUse())
}

// holding is the directory with these keys in it. A file never shrinks by that.
func (d Dir) holding(bytes int64) Dir {
	if before := d.size(); bytes != d.Held {
		d.Held = bytes
		d.File = max(before, d.inUse())
	}
	return d
}

var (
	errSpace    = errors.New("etcdserver: mvcc: database space exceeded")
	errCorrupt  = errors.New("etcdserver: corrupt cluster")
	errNoLeader = errors.New("no leader")
)

// Fill lets clients write so many bytes of new keys, write over as many of old ones, and delete as many.
func (w *World) Fill(live, over, deleted int64) error {
	c, led := w.led()
	switch {
	case !led:
		return errNoLeader
	case c.raised(observation.AlarmCorrupt):
		return errCorrupt
	case c.raised(observation.AlarmNoSpace) && live+over > 0:
		return errSpace
	}
	c.Live, c.Old = c.Live+live-deleted, c.Old+over+deleted
	c.Commit++
	c.Revision++
	w.store(c)
	w.replicate(c.ID, false)
	return w.spaceOut(c.ID)
}

// Compact lets a person drop all of the keys' history.
func (w *World) Compact() {
	for _, c := range w.clusters() {
		c.Old, c.Compacted = 0, c.Revision
		w.store(c)
		w.replicate(c.ID, false)
	}
}

// spaceOut raises the alarm of every member whose database is larger than its quota.
func (w *World) spaceOut(id uint64) error {
	c := w.Etcd.Clusters[id]
	var err error
	for _, m := range c.Members {
		uid, runs := w.running(id, m.ID)
		if !runs || w.External[w.Procs[uid].Pod] || w.Dirs[w.Procs[uid].Dir].size() <= quotaOf(w.Pod(w.Procs[uid].Pod)) {
			continue
		}
		c, err = c.alarm(m.ID, observation.AlarmNoSpace), errSpace
	}
	if err != nil {
		w.store(c)
	}
	return err
}

func quotaOf(pod *corev1.Pod) int64 {
	n, err := strconv.ParseInt(flag(&pod.Spec.Containers[0], "quota-backend-bytes"), 10, 64)
	if err != nil {
		return 2 << 30
	}
	return n
}

// ---- alarms

func (c Cluster) raised(kind string) bool {
	return slices.ContainsFunc(c.Alarms, func(a observation.Alarm) bool { return a.Kind == kind })
}

// alarm is the cluster with one alarm more.
func (c Cluster) alarm(member uint64, kind string) Cluster {
	a := observation.Alarm{MemberID: member, Kind: kind}
	if slices.Contains(c.Alarms, a) {
		return c
	}
	c.Alarms = append(slices.Clone(c.Alarms), a)
	slices.SortFunc(c.Alarms, func(a, b observation.Alarm) int {
		return cmp.Or(cmp.Compare(a.MemberID, b.MemberID), strings.Compare(a.Kind, b.Kind))
	})
	return c
}

// disarmed is the cluster with one alarm less.
func (c Cluster) disarmed(member uint64, kind string) Cluster {
	c.Alarms = slices.DeleteFunc(slices.Clone(c.Alarms),
		func(a observation.Alarm) bool { return a == observation.Alarm{MemberID: member, Kind: kind} })
	return c
}

// Corrupt changes what a member's database holds, as a disk does that is failing: another number is other data.
func (w *World) Corrupt(name string, as uint32) {
	place := w.placeOf(w.Pod(name))
	d := w.Dirs[place]
	d.Rot = as
	w.storeDir(place, d)
}

// CheckHashes is what etcd's leader does once in a while after a compaction: it compares the members' hashes. From
// 3.6 on a majority of them decides whose data is wrong; before, the alarm names no member.
func (w *World) CheckHashes() {
	for _, c := range w.clusters() {
		if !w.leads(c) {
			continue
		}
		groups := map[uint32][]uint64{}
		for _, m := range c.voters() {
			if d, runs := w.holds(c, m.ID); runs && w.follows(c, m) {
				groups[d.Rot] = append(groups[d.Rot], m.ID)
			}
		}
		if len(groups) == 1 {
			continue
		}
		if accused := w.accuse(c, groups); len(accused.Alarms) > len(c.Alarms) {
			w.store(accused)
		}
	}
}

// accuse raises the alarm CORRUPT.
func (w *World) accuse(c Cluster, groups map[uint32][]uint64) Cluster {
	leader, _ := w.running(c.ID, c.Leader)
	var wrong []uint64
	majority := false
	for _, group := range groups {
		if len(group) > len(c.Members)/2 {
			majority = true
		} else {
			wrong = append(wrong, group...)
		}
	}
	if !majority || minorOf(w.Procs[leader].Version) < 6 {
		return c.alarm(0, observation.AlarmCorrupt)
	}
	for _, id := range wrong {
		c = c.alarm(id, observation.AlarmCorrupt)
	}
	return c
}

// differs is why a member does not start among peers whose data is not its own; empty when it does. etcd 3.5 does not
// look.
func (w *World) differs(pod *corev1.Pod, d Dir) string {
	if minorOf(version(pod)) < 6 || d.Index == 0 {
		return ""
	}
	c := w.Etcd.Clusters[d.Cluster]
	for _, m := range c.Members {
		if theirs := w.held(c, m.ID); theirs.Index > 0 && theirs.Rot != d.Rot {
			return "found data inconsistency with peers"
		}
	}
	return ""
}

// tellHashes adds to the answers of voters the hashes of their keys, as Quorate asks for them while there is an alarm.
func (c *client) tellHashes(list *observation.Membership, health map[string]observation.Health) {
	if list == nil || !slices.ContainsFunc(list.Alarms,
		func(a observation.Alarm) bool { return a.Kind == observation.AlarmCorrupt }) {
		return
	}
	cluster := c.w.Etcd.Clusters[list.ClusterID]
	for name, h := range health {
		if h.Err != "" || h.Leader == 0 || h.Learner {
			continue
		}
		d := c.w.held(cluster, h.MemberID)
		h.Hash = &observation.Hash{Revision: cluster.Revision, CompactRevision: cluster.Compacted,
			Value: 0xaaaa0000 + d.Rot}
		health[name] = h
	}
}

// tellSpace adds to an answer how large the database is, and the alarms that the member has raised.
func (w *World) tellSpace(h *observation.Health, d Dir) {
	c := w.Etcd.Clusters[d.Cluster]
	h.DBSize, h.DBSizeInUse, h.Revision = d.size(), d.inUse(), c.Revision
	if w.Etcd.CountsLate && c.raised(observation.AlarmNoSpace) {
		h.DBSizeInUse = h.DBSize
	}
	if w.Etcd.DBSize != 0 {
		h.DBSize, h.DBSizeInUse = w.Etcd.DBSize, w.Etcd.DBInUse
	}
	for _, a := range c.Alarms {
		if a.MemberID == d.Member {
			h.Alarms = append(h.Alarms, a.Kind)
		}
	}
	if w.Etcd.NoSpace && len(h.Alarms) == 0 {
		h.Alarms = []string{observation.AlarmNoSpace}
	}
}

// ---- maintenance

// maintain is etcd's answer to a step that leaves the members as they are.
func (c *client) maintain(cluster Cluster, step decision.Step) (Cluster, error) {
	switch s := step.(type) {
	case decision.Compact:
		switch {
		case cluster.raised(observation.AlarmCorrupt):
			return cluster, etcdops.ErrCorrupt
		case s.Revision > cluster.Revision:
			return cluster, etcdops.ErrFutureRevision
		case s.Revision > cluster.Compacted:
			cluster.Compacted, cluster.Old = s.Revision, 0
		}
	case decision.Defragment:
		pod, runs := c.w.running(cluster.ID, s.ID)
		if !runs {
			return cluster, etcdops.ErrUnreachable
		}
		return cluster, c.w.defragment(pod)
	case decision.Authorize:
		c.w.mayAuthorize(cluster, s)
		cluster = cluster.authorized(s.Want)
	case decision.Disarm:
		cluster = cluster.disarmed(s.ID, s.Kind)
	}
	return cluster, nil
}

// defragment begins; where that takes passes, the call gets no answer.
func (w *World) defragment(pod types.UID) error {
	for other, p := range w.Procs {
		if p.Busy > 0 && other != pod {
			w.violate("S2", "%s and %s are defragmented at the same time", p.Pod, w.Procs[pod].Pod)
		}
	}
	proc := w.Procs[pod]
	proc.Busy = w.Etcd.DefragmentPasses
	w.Procs[pod] = proc
	w.Changes++
	if proc.Busy > 0 {
		return etcdops.ErrNoAnswer
	}
	w.shrink(proc)
	return nil
}

func (w *World) shrink(proc Proc) {
	d := w.Dirs[proc.Dir]
	d.File = d.inUse()
	w.storeDir(proc.Dir, d)
}

// defragmentOn lets defragmentations go on by a pass.
func (w *World) defragmentOn() {
	for _, pod := range slices.Sorted(maps.Keys(w.Procs)) {
		proc := w.Procs[pod]
		if proc.Busy == 0 {
			continue
		}
		proc.Busy--
		w.Procs[pod] = proc
		w.Changes++
		if proc.Busy == 0 {
			w.shrink(proc)
		}
	}
}

// afterMaintenance looks at what a step has done to the data: none that is right goes, and clients are let in again
// only to members that agree.
func (o *Oracle) afterMaintenance(w *World, before Cluster, step decision.Step) {
	now := w.Etcd.Clusters[before.ID]
	if remove, is := step.(decision.Remove); is && before.raised(observation.AlarmCorrupt) {
		m, _ := before.member(remove.ID)
		if d, runs := w.holds(before, m.ID); runs && !m.Learner && d.Rot == 0 {
			w.violate("S6", "%s is removed for its data, which is right", nameAt(m))
		}
	}
	if !before.raised(observation.AlarmCorrupt) || now.raised(observation.AlarmCorrupt) {
		return
	}
	rots := map[uint32]bool{}
	for _, m := range now.Members {
		if d, runs := w.holds(now, m.ID); runs && !m.Learner {
			rots[d.Rot] = true
		}
	}
	if len(rots) > 1 {
		w.violate("S6", "%s: clients are let in to members whose data differs", step)
	}
}

// Database is how large a running member's database is, and how much of it is in use.
func (w *World) Database(name string) (size, inUse int64, runs bool) {
	pod := w.Pod(name)
	if pod == nil {
		return 0, 0, false
	}
	proc, runs := w.Procs[pod.UID]
	d := w.Dirs[proc.Dir]
	return d.size(), d.inUse(), runs
}
