package world

import (
	"fmt"
	"hash/fnv"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks"
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
	// LoseReply lets the next step be carried out, and its answer be lost.
	LoseReply bool
}

// Cluster is what a raft cluster has agreed on.
type Cluster struct {
	ID      uint64
	Members []hooks.Member
	// Removed are the members that may never come back.
	Removed []uint64
	Leader  uint64
	Term    uint64
	// Commit counts the entries that a majority has acknowledged: they must never be lost.
	Commit uint64
	// Agreed is the minor version that the cluster has agreed on, Downgrade the one that it goes down to; 0 for none.
	Agreed, Downgrade int
	// OldLog is up to which entry etcd 3.5 has written.
	OldLog uint64
	// Revision of the keys, and up to which they were compacted. Begin is the revision that it began with.
	Revision, Compacted, Begin int64
	// Chosen: the spec said where its revisions begin.
	Chosen bool
	// Live is how many bytes the keys take, Old their history.
	Live, Old int64
	Alarms    []hooks.Alarm
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
	// entries from whoever leads.
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
	Clients, Peers []hooks.Certificate
	// Image and Version are what it was started from.
	Image, Version string
	// TLS is whether it listens to its peers by TLS.
	TLS bool
	// Busy is for how many more passes it defragments its database, and answers nobody.
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

// ---- who hears whom

// running is the etcd that runs as this member, if one does.
func (w *World) running(cluster, member uint64) (found types.UID, runs bool) {
	for pod, proc := range w.Procs {
		d := w.Dirs[proc.Dir]
		if d.Cluster == cluster && d.Member == member && (!runs || pod < found) {
			found, runs = pod, true
		}
	}
	return found, runs
}

// connected reports whether the member runs and hears the others.
func (w *World) connected(c Cluster, m hooks.Member) bool {
	pod, runs := w.running(c.ID, m.ID)
	return runs && !w.Net.Isolated[w.Procs[pod].Pod]
}

// component is the voters that hear the leader, if they are a majority, else the most that hear one of them; with one
// voter alone, isolation does not matter.
func (w *World) component(c Cluster) []hooks.Member {
	voters := c.voters()
	alive := slices.DeleteFunc(slices.Clone(voters), func(m hooks.Member) bool {
		_, runs := w.running(c.ID, m.ID)
		return !runs || len(voters) > 1 && !w.connected(c, m)
	})
	var most []hooks.Member
	for _, centre := range alive {
		around := slices.DeleteFunc(slices.Clone(alive),
			func(m hooks.Member) bool { return !w.paired(c, centre.ID, m.ID) })
		if centre.ID == c.Leader && len(around) > len(voters)/2 {
			return around
		}
		if len(around) > len(most) {
			most = around
		}
	}
	return most
}

// hears reports whether both members run, and hear each other.
func (w *World) hears(c Cluster, a, b hooks.Member) bool {
	return w.connected(c, a) && w.connected(c, b) && w.paired(c, a.ID, b.ID)
}

// quorate reports whether a majority of voters hear each other.
func (w *World) quorate(c Cluster) bool {
	return len(w.component(c)) >= len(c.voters())/2+1
}

// leads reports whether the cluster has a leader that is heard by a majority now.
func (w *World) leads(c Cluster) bool {
	leader, _ := c.member(c.Leader)
	all := w.component(c)
	return len(all) > len(c.voters())/2 &&
		slices.ContainsFunc(all, func(m hooks.Member) bool { return m.ID == c.Leader }) &&
		!slices.ContainsFunc(all, func(m hooks.Member) bool { return !w.paired(c, leader.ID, m.ID) })
}

// follows reports whether the member follows a leader now.
func (w *World) follows(c Cluster, m hooks.Member) bool {
	if !w.leads(c) {
		return false
	}
	if leader, _ := c.member(c.Leader); m.Learner {
		return w.connected(c, m) && w.paired(c, leader.ID, m.ID)
	}
	return slices.ContainsFunc(w.component(c), func(o hooks.Member) bool { return o.ID == m.ID })
}

func (c Cluster) voters() []hooks.Member {
	return slices.DeleteFunc(slices.Clone(c.Members), func(m hooks.Member) bool { return m.Learner })
}

// position of the member in the list; -1 when it is not in it.
func (c Cluster) position(id uint64) int {
	return slices.IndexFunc(c.Members, func(m hooks.Member) bool { return m.ID == id })
}

func (c Cluster) member(id uint64) (hooks.Member, bool) {
	i := c.position(id)
	if i < 0 {
		return hooks.Member{}, false
	}
	return c.Members[i], true
}

// with is the cluster with one member changed.
func (c Cluster) with(m hooks.Member) Cluster {
	c.Members = slices.Clone(c.Members)
	for i := range c.Members {
		if c.Members[i].ID == m.ID {
			c.Members[i] = m
		}
	}
	return c
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
	able := slices.DeleteFunc(w.component(c), func(m hooks.Member) bool {
		led := c
		led.Leader = m.ID
		return !w.leads(led) || w.blank(c, m)
	})
	if len(able) == 0 {
		return
	}
	best := slices.MaxFunc(able, func(a, b hooks.Member) int {
		if x, y := w.index(c, a), w.index(c, b); x != y {
			return int(x) - int(y)
		}
		return strings.Compare(b.PeerURLs[0], a.PeerURLs[0])
	})
	if held := w.index(c, best); held < c.Commit {
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
	for _, id := range slices.Sorted(maps.Keys(w.Etcd.Clusters)) {
		c := w.Etcd.Clusters[id]
		for _, m := range w.component(c) {
			if nameAt(m) == name {
				c.Leader = m.ID
				c.Term++
				w.store(c)
			}
		}
	}
}

// CatchUp lets the learner of this name get all that it lacks.
func (w *World) CatchUp(name string) {
	pod := w.Pod(name)
	if pod == nil {
		return
	}
	place := w.placeOf(pod)
	d, begun := w.Dirs[place]
	if !begun {
		return
	}
	d.Behind = 0
	w.storeDir(place, d)
	w.replicate(d.Cluster, false)
}

// blank reports whether the member's log is an empty one.
func (w *World) blank(c Cluster, m hooks.Member) bool {
	pod, runs := w.running(c.ID, m.ID)
	return runs && w.Dirs[w.Procs[pod].Dir].Blank
}

func (w *World) index(c Cluster, m hooks.Member) uint64 {
	pod, runs := w.running(c.ID, m.ID)
	if !runs {
		return 0
	}
	return w.Dirs[w.Procs[pod].Dir].Index
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
		case m.Learner && d.Behind > 0:
		default:
			if d.Index == 0 {
				d.Snapshot, d.Rot = w.behindSnapshot(c, d), w.rotOf(c)
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

// rotOf is what is wrong with the leader's data: whoever joins copies it. The initial members have none to copy.
func (w *World) rotOf(c Cluster) uint32 {
	pod, runs := w.running(c.ID, c.Leader)
	if !runs {
		return 0
	}
	return w.Dirs[w.Procs[pod].Dir].Rot
}

// publish lets members that follow a leader for the first time say their names and client URLs.
func (w *World) publish(id uint64) {
	for _, m := range w.Etcd.Clusters[id].Members {
		c := w.Etcd.Clusters[id]
		if m.Started() || !w.follows(c, m) {
			continue
		}
		pod, _ := w.running(id, m.ID)
		m.Name, m.ClientURLs = w.Procs[pod].Pod, []string{"http://" + w.Procs[pod].Pod}
		c = c.with(m)
		c.Commit++
		w.store(c)
		w.replicate(id, false)
	}
}

// Write lets clients write n keys; false when there is no leader to take them, or an alarm.
func (w *World) Write(n int) bool {
	c, led := w.led()
	if !led || len(c.Alarms) > 0 {
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

// ---- starting

// startEtcd runs the pod's etcd on its data, or says why it exits.
func (w *World) startEtcd(pod *corev1.Pod, place string) (complaint string) {
	files, d := w.Files[pod.UID], w.dirOf(pod, place)
	if why := files.unfit(); why != "" {
		return why
	}
	if why := unknownFlag(pod); why != "" {
		return why
	}
	if d.Member == 0 {
		var err error
		if d, err = w.begin(pod); err != nil {
			return err.Error()
		}
		if err := w.Oracle.takeIdentity(w, d, place); err != nil {
			return err.Error()
		}
		w.storeBegun(pod, place, d)
	}
	if why := w.unfitVersion(pod, d); why != "" {
		return why
	}
	if why := w.differs(pod, d); why != "" {
		return why
	}
	if slices.Contains(w.Etcd.Clusters[d.Cluster].Removed, d.Member) {
		return "the member has been permanently removed from the cluster"
	}
	w.starts(pod, d)
	w.Oracle.runs(d, place)
	clients, peers := files.loaded()
	w.Starts++
	w.Procs[pod.UID] = Proc{Pod: pod.Name, Dir: place, Since: w.Now, Start: w.Starts, Clients: clients, Peers: peers,
		TLS:   listensByTLS(pod),
		Image: pod.Spec.Containers[0].Image, Version: version(pod)}
	w.Changes++
	w.seededAlike(w.Etcd.Clusters[d.Cluster])
	return ""
}

// begin is what an etcd with an empty data directory makes of its flags.
func (w *World) begin(pod *corev1.Pod) (Dir, error) {
	env, err := w.env(pod)
	if err != nil {
		return Dir{}, err
	}
	initial := pairs(env["ETCD_INITIAL_CLUSTER"])
	peer, listed := initial[pod.Name]
	if !listed {
		return Dir{}, fmt.Errorf("couldn't find local name %q in the initial cluster configuration", pod.Name)
	}
	if env["ETCD_INITIAL_CLUSTER_STATE"] == "new" {
		return w.bootstrap(initial, peer, env["ETCD_INITIAL_CLUSTER_TOKEN"], w.Files[pod.UID])
	}
	return w.join(initial, peer, w.Files[pod.UID])
}

// bootstrap makes a cluster of its own: all that are told the same list and token make the same one.
func (w *World) bootstrap(initial map[string]string, peer, token string, files Files) (Dir, error) {
	c, self := w.formed(initial, peer, token)
	if known, exists := w.Etcd.Clusters[c.ID]; exists {
		if m, listed := known.member(self); listed && m.Started() && w.anyPeer(known, self, files) {
			return Dir{}, fmt.Errorf("member %x has already been bootstrapped", self)
		}
	} else {
		w.store(c)
	}
	return Dir{Cluster: c.ID, Member: self, Index: uint64(len(initial))}, nil
}

// formed is the cluster that members form who are told the same list and token, and which of them has this URL.
func (w *World) formed(initial map[string]string, peer, token string) (c Cluster, self uint64) {
	c = Cluster{Commit: uint64(len(initial)), Epoch: epochOf(token),
		Of: strings.TrimSuffix(token, fmt.Sprintf("-%d", epochOf(token)))}
	var ids []string
	for _, name := range slices.Sorted(maps.Keys(initial)) {
		m := hooks.Member{ID: id(plain(initial[name]), token), Name: name, PeerURLs: []string{initial[name]}}
		c.Members = append(c.Members, m)
		ids = append(ids, fmt.Sprint(m.ID))
	}
	slices.SortFunc(c.Members, func(a, b hooks.Member) int { return strings.Compare(a.Name, b.Name) })
	c.ID = id(ids...)
	return c, id(plain(peer), token)
}

// join asks the peers that it was told for the cluster, and insists that the list is the one that it was told.
func (w *World) join(initial map[string]string, peer string, files Files) (Dir, error) {
	for _, clusterID := range slices.Sorted(maps.Keys(w.Etcd.Clusters)) {
		c := w.Etcd.Clusters[clusterID]
		urls := map[string]uint64{}
		for _, m := range c.Members {
			urls[m.PeerURLs[0]] = m.ID
		}
		self, listed := urls[peer]
		if !listed || !w.anyPeer(c, self, files) {
			continue
		}
		for _, told := range initial {
			if _, known := urls[told]; !known || len(initial) != len(urls) {
				return Dir{}, fmt.Errorf("member count is unequal or peer URLs mismatch")
			}
		}
		return Dir{Cluster: c.ID, Member: self, Behind: w.Etcd.LearnerPace}, nil
	}
	return Dir{}, fmt.Errorf("cannot fetch cluster info from peer urls")
}

// anyPeer reports whether another member runs that can be asked by one that starts with these files.
func (w *World) anyPeer(c Cluster, self uint64, files Files) bool {
	var own side
	if files.Peer != nil {
		own = side{files.Peer.Certificate, files.Peer.Trust}
	}
	return slices.ContainsFunc(c.Members, func(m hooks.Member) bool {
		pod, _ := w.running(c.ID, m.ID)
		return m.ID != self && w.connected(c, m) && w.reaches(own, pod, m)
	})
}

// env is the environment of the pod's etcd container.
func (w *World) env(pod *corev1.Pod) (map[string]string, error) {
	return w.envOf(pod.Spec.Containers[0].Env, pod)
}

func (w *World) envOf(list []corev1.EnvVar, pod *corev1.Pod) (map[string]string, error) {
	env := map[string]string{}
	for _, e := range list {
		env[e.Name] = e.Value
		if e.ValueFrom == nil {
			continue
		}
		if field := e.ValueFrom.FieldRef; field != nil {
			key := strings.TrimSuffix(strings.TrimPrefix(field.FieldPath, "metadata.annotations['"), "']")
			env[e.Name] = pod.Annotations[key]
			continue
		}
		ref := e.ValueFrom.ConfigMapKeyRef
		record, found := w.Objects[Key{ConfigMapKind, ref.Name}].(*corev1.ConfigMap)
		if !found {
			return nil, fmt.Errorf("configmap %q not found", ref.Name)
		}
		env[e.Name] = record.Data[ref.Key]
	}
	return env, nil
}

func pairs(s string) map[string]string {
	all := map[string]string{}
	for field := range strings.SplitSeq(s, ",") {
		if k, v, ok := strings.Cut(field, "="); ok {
			all[k] = v
		}
	}
	return all
}

// nameAt is the name in a member's peer URL: that of its pod and claim.
func nameAt(m hooks.Member) string {
	u, err := url.Parse(m.PeerURLs[0])
	if err != nil {
		return m.PeerURLs[0]
	}
	name, _, _ := strings.Cut(u.Hostname(), ".")
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
	for _, id := range slices.Sorted(maps.Keys(w.Etcd.Clusters)) {
		if c := w.Etcd.Clusters[id]; w.leads(c) && (!led || c.Epoch > latest.Epoch) {
			latest, led = c, true
		}
	}
	return latest, led
}
