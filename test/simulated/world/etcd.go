package world

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/simulated/membership"
)

// Etcd is all raft clusters that ever formed, without raft: what a cluster has agreed on is one value, and each data
// directory is how much of it one member holds.
type Etcd struct {
	Clusters map[uint64]Cluster
	// LearnerPace is the number of passes that a learner takes to catch up.
	LearnerPace int
	// ConnectedFor is how long members must have been connected before a change of members is let through (5 s in
	// etcd).
	ConnectedFor time.Duration
	// DBSize and DBInUse of every member's database, in bytes, whatever they hold; 0 for what they do.
	DBSize, DBInUse int64
	// NoSpace: every member says of itself that it has raised the alarm NOSPACE, and the cluster knows of none. (The
	// model's.)
	NoSpace bool
	// DefragmentPasses is how many passes a defragmentation takes: its answer does not come in time then.
	DefragmentPasses int
	// CountsLate: while an alarm NOSPACE lasts, a member tells of no room in its database before it is defragmented.
	CountsLate bool
	// HashChecks: the leader compares the members' hashes at every pass.
	HashChecks bool
	// Lagging are the voters, by name, that hear the leader and are sent a snapshot that does not arrive: they
	// acknowledge nothing that is written.
	Lagging map[string]bool
	// LoseReply lets the next step be carried out, and its answer be lost.
	LoseReply bool
}

// Cluster is what a raft cluster has agreed on.
type Cluster struct {
	ID      uint64
	Members []observation.Member
	// Removed are the members that may never come back.
	Removed []uint64
	Leader  uint64
	Term    uint64
	// Commit counts the entries that a majority has acknowledged: they must never be lost.
	Commit uint64
	membership.Version
	// OldLog is up to which entry etcd 3.5 has written.
	OldLog uint64
	// Revision of the keys, and up to which they were compacted. Begin is the revision that it began with.
	Revision, Compacted, Begin int64
	// Live is how many bytes the keys take, Old their history.
	Live, Old int64
	Alarms    []observation.Alarm
	// Auth are users and roles, and whether every client is asked who it is.
	Auth Auth
	// Added counts members added; etcd hashes the time into their IDs.
	Added int
	// Epoch that it is, and Of which cluster, by its token.
	Epoch int
	Of    string
}

// Dir is a data directory. One that is not there is empty.
type Dir struct {
	Cluster, Member uint64
	// Index is how many entries it holds.
	Index uint64
	// Snapshot is the last entry before the last snapshot on the disk.
	Snapshot uint64
	// Behind is how many more passes the learner takes to catch up.
	Behind int
	// Held is how many bytes of keys and history it holds, File how large its database is; 0 for that of an empty one.
	Held, File int64
	// Rot is not 0 when it holds something else than what was agreed.
	Rot uint32
	// Blank: its log was made, and its etcd ended before anything was in it. It stands for no election, and gets its
	// entries from the leader.
	Blank bool
	// Apart: its log is on a volume of its own.
	Apart bool
	// Seed is the report of what filled it; empty for nothing.
	Seed string
	// Unbegun is the pod whose prepare left its mark where the log will be. etcd takes it away when it makes its log.
	Unbegun types.UID
}

// Proc is a running etcd.
type Proc struct {
	// Pod is the name of its pod, Dir the place of its data.
	Pod, Dir string
	Since    time.Time
	// Start numbers all starts of the world.
	Start int
	// Clients and Peers are the authorities whose certificates it takes: those that it was started with.
	Clients, Peers []observation.Certificate
	// Image and Version are what it was started from.
	Image, Version string
	// TLS is whether it listens to its peers by TLS.
	TLS bool
	// Anonymous is whether it asks clients for no certificate.
	Anonymous bool
	// Busy is for how many more passes it defragments its database, and answers no call.
	Busy int
}

// container is the ID of the container that it runs in: another one for each start.
func (p Proc) container() string { return fmt.Sprintf("containerd://%d", p.Start) }

func volumeOf(claim types.UID) string { return "volume of " + string(claim) }
func memoryOf(pod types.UID) string   { return "memory of " + string(pod) }

// id is a hash, as etcd makes its IDs.
func id(parts ...string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join(parts, "\x00")))
	return uint64(h.Sum32())
}

// plain is a peer URL as it would be without TLS: so that IDs are the same with and without.
func plain(peerURL string) string { return strings.Replace(peerURL, "https:", "http:", 1) }

func (c Cluster) voters() []observation.Member {
	return slices.DeleteFunc(slices.Clone(c.Members), func(m observation.Member) bool { return m.Learner })
}

// position of the member in the list; -1 when it is not in it.
func (c Cluster) position(id uint64) int {
	return slices.IndexFunc(c.Members, func(m observation.Member) bool { return m.ID == id })
}

func (c Cluster) member(id uint64) (observation.Member, bool) {
	i := c.position(id)
	if i < 0 {
		return observation.Member{}, false
	}
	return c.Members[i], true
}

// with is the cluster with one member changed.
func (c Cluster) with(m observation.Member) Cluster {
	c.Members = slices.Clone(c.Members)
	for i := range c.Members {
		if c.Members[i].ID == m.ID {
			c.Members[i] = m
		}
	}
	return c
}

// clusters are all that there are, in one order.
func (w *World) clusters() (all []Cluster) {
	for _, id := range slices.Sorted(maps.Keys(w.Etcd.Clusters)) {
		all = append(all, w.Etcd.Clusters[id])
	}
	return all
}

// ---- time goes on

// TickEtcd lets every cluster elect, replicate and publish.
func (w *World) TickEtcd() {
	w.defragmentOn()
	if w.Etcd.HashChecks {
		w.CheckHashes()
	}
	for _, id := range slices.Sorted(maps.Keys(w.Etcd.Clusters)) {
		w.expel(w.Etcd.Clusters[id])
		w.elect(id)
		w.replicate(id, true)
		w.publish(id)
		w.agree(id)
	}
	w.onlyOneServes()
}

// expel stops members that learn that they have been removed.
func (w *World) expel(c Cluster) {
	for _, id := range c.Removed {
		if pod, runs := w.running(c.ID, id); runs && w.leads(c) && !w.Net.Isolated[w.Procs[pod].Pod] &&
			w.paired(c, c.Leader, id) {
			w.stop(pod)
		}
	}
}

func (w *World) elect(id uint64) {
	c := w.Etcd.Clusters[id]
	if !w.quorate(c) || w.leads(c) {
		return
	}
	able := slices.DeleteFunc(w.component(c), func(m observation.Member) bool {
		led := c
		led.Leader = m.ID
		return !w.leads(led) || w.held(c, m.ID).Blank
	})
	if len(able) == 0 {
		return
	}
	best := slices.MaxFunc(able, func(a, b observation.Member) int {
		return cmp.Or(cmp.Compare(w.held(c, a.ID).Index, w.held(c, b.ID).Index),
			strings.Compare(b.PeerURLs[0], a.PeerURLs[0]))
	})
	if held := w.held(c, best.ID).Index; held < c.Commit {
		w.violate("S10", "acknowledged writes are lost: the new leader %s holds %d of %d entries", nameAt(best), held,
			c.Commit)
	}
	if c.Term == 0 {
		w.beginsRight(c)
	}
	c.Leader = best.ID
	c.Term++
	w.store(c)
}

// Lead makes the member of this name the leader, as when the one before it was slow for a moment.
func (w *World) Lead(name string) {
	for _, c := range w.clusters() {
		for _, m := range w.component(c) {
			if nameAt(m) == name {
				c.Leader = m.ID
				c.Term++
				w.store(c)
			}
		}
	}
}

// Lag lets clients write so much that the voter of this name needs a snapshot, which does not arrive. It does not
// happen where the others would not be enough to take it.
func (w *World) Lag(name string) {
	c, led := w.led()
	i := slices.IndexFunc(c.Members, func(m observation.Member) bool { return nameAt(m) == name && !m.Learner })
	if !led || i < 0 || c.Members[i].ID == c.Leader || !w.connected(c, c.Members[i]) || w.Etcd.Lagging[name] {
		return
	}
	w.Etcd.Lagging[name] = true
	w.Changes++
	if !w.Write(catchUp + 1) {
		delete(w.Etcd.Lagging, name)
	}
}

// late are the voters that are sent a snapshot.
func (w *World) late(c Cluster) (late membership.Set) {
	for n, m := range c.Members {
		if w.Etcd.Lagging[nameAt(m)] && !m.Learner {
			late = late.With(n)
		}
	}
	return late
}

// CatchUp lets the member of this name get all that it lacks.
func (w *World) CatchUp(name string) {
	delete(w.Etcd.Lagging, name)
	pod := w.Pod(name)
	if pod == nil {
		return
	}
	place := w.Procs[pod.UID].Dir
	d, runs := w.Dirs[place]
	if !runs {
		return
	}
	d.Behind = 0
	w.storeDir(place, d)
	w.replicate(d.Cluster, false)
}

// holds is the data directory that the member runs on; false when it does not run.
func (w *World) holds(c Cluster, member uint64) (Dir, bool) {
	pod, runs := w.running(c.ID, member)
	return w.Dirs[w.Procs[pod].Dir], runs
}

// held is the same, empty when it does not run.
func (w *World) held(c Cluster, member uint64) Dir {
	d, _ := w.holds(c, member)
	return d
}

// replicate brings every member that hears the leader up to what is agreed; learners at their pace.
func (w *World) replicate(id uint64, pace bool) {
	c := w.Etcd.Clusters[id]
	for _, m := range c.Members {
		pod, runs := w.running(id, m.ID)
		if !runs || !w.follows(c, m) {
			continue
		}
		place := w.Procs[pod].Dir
		d := w.Dirs[place]
		switch {
		case m.Learner && d.Behind > 0 && pace:
			d.Behind--
		case m.Learner && d.Behind > 0, w.late(c).Has(c.number(m.ID)):
		default:
			if d.Index == 0 {
				d.Snapshot = w.behindSnapshot(c, d)
				d.Rot = w.held(c, c.Leader).Rot // it copies what is wrong too; the initial members have none to copy
			}
			d.Index, d.Blank = c.Commit, false
			d = d.holding(c.Live + c.Old)
			if d.Index-d.Snapshot >= snapshotCount {
				d.Snapshot = d.Index
			}
		}
		w.storeDir(place, d)
	}
}

// publish lets members that follow a leader say their names and client URLs, once after each start that has others.
func (w *World) publish(id uint64) {
	for _, m := range w.Etcd.Clusters[id].Members {
		c := w.Etcd.Clusters[id]
		pod, _ := w.running(id, m.ID)
		urls := w.advertised(w.Procs[pod].Pod)
		known := m.Started() && (w.Pod(w.Procs[pod].Pod) == nil || slices.Equal(m.ClientURLs, urls))
		if !w.commits(c) || !w.follows(c, m) || known {
			continue
		}
		m.Name, m.ClientURLs = w.Procs[pod].Pod, urls
		c = c.with(m)
		c.Commit++
		w.store(c)
		w.replicate(id, false)
	}
}

// advertised are the client URLs in the flags of a pod, sorted as etcd has them; for a member elsewhere, one of its
// name.
func (w *World) advertised(name string) []string {
	pod := w.Pod(name)
	if pod == nil {
		return []string{"http://" + name}
	}
	return slices.Sorted(strings.SplitSeq(flag(&pod.Spec.Containers[0], "advertise-client-urls"), ","))
}

// Write lets clients write n keys; false when there is no leader to take them, or an alarm.
func (w *World) Write(n int) bool {
	c, led := w.led()
	if !led || !w.commits(c) || len(c.Alarms) > 0 {
		return false
	}
	c.Commit += uint64(n)
	c.Revision += int64(n)
	w.store(c)
	w.replicate(c.ID, false)
	return true
}

func (w *World) store(c Cluster) {
	w.Etcd.Clusters[c.ID] = c
	w.Changes++
	w.Oracle.seeMembers(w, c)
}

func (w *World) storeDir(place string, d Dir) {
	if w.Dirs[place] != d {
		w.Dirs[place] = d
		w.Changes++
	}
}

// nameAt is the name in a member's peer URL: that of its pod and claim.
func nameAt(m observation.Member) string {
	u, err := url.Parse(m.PeerURLs[0])
	if err != nil {
		return m.PeerURLs[0]
	}
	name, _, _ := strings.Cut(cmp.Or(u.User.Username(), u.Hostname()), ".")
	return name
}

// Leads reports whether some cluster has a leader that a majority hears now.
func (w *World) Leads() bool {
	_, led := w.led()
	return led
}

// led is the cluster whose leader a majority hears now, and to which clients speak: the one of the latest epoch, as
// there may be an etcd that is none of ours.
func (w *World) led() (latest Cluster, led bool) {
	for _, c := range w.clusters() {
		if w.leads(c) && (!led || c.Epoch > latest.Epoch) {
			latest, led = c, true
		}
	}
	return latest, led
}
