package world

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/simulated/membership"
)

// carryOut is etcd's own answer to the change, with the guards of strict-reconfig-check.
func (c *client) carryOut(cluster Cluster, step decision.Step) error {
	if _, local := step.(decision.Defragment); !local && !c.w.commits(cluster) {
		return etcdops.ErrNoAnswer
	}
	var err error
	switch s := step.(type) {
	case decision.AddLearner:
		cluster, err = c.w.add(cluster, s.PeerURL)
	case decision.Promote:
		cluster, err = c.w.promote(cluster, s.ID)
	case decision.Remove:
		cluster, err = c.w.removeMember(cluster, s.ID)
	case decision.UpdatePeerURL:
		cluster, err = c.w.updatePeerURL(cluster, s.ID, s.PeerURL)
	case decision.MoveLeader:
		cluster, err = c.w.moveLeader(cluster, s.To)
	case decision.EnableDowngrade:
		cluster.Version, err = cluster.EnableDowngrade(minorOf(s.Version))
	case decision.CancelDowngrade:
		cluster.Downgrade = 0
	case decision.Defragment:
		_, err = c.maintain(cluster, step)
		return err
	default:
		cluster, err = c.maintain(cluster, step)
	}
	if err != nil {
		return err
	}
	c.w.agreeOn(cluster)
	return nil
}

// agreeOn is the change that those agree on who are members before it: one of them may be the leader that goes.
func (w *World) agreeOn(changed Cluster) {
	before := w.Etcd.Clusters[changed.ID]
	before.Commit++
	w.Etcd.Clusters[changed.ID] = before
	w.replicate(changed.ID, false)
	changed.Commit = before.Commit
	w.store(changed)
	w.replicate(changed.ID, false)
}

func (w *World) add(c Cluster, peerURL string) (Cluster, error) {
	if _, err := w.asked(c).AddLearner(c.numberAt(peerURL)); err != nil {
		return c, err
	}
	c.Added++
	fresh := observation.Member{ID: id(plain(peerURL), "added", string(rune('0'+c.Added))), PeerURLs: []string{peerURL},
		Learner: true}
	c.Members = append(slices.Clone(c.Members), fresh)
	return c, nil
}

func (w *World) promote(c Cluster, id uint64) (Cluster, error) {
	to, err := w.asked(c).Promote(c.number(id))
	return c.as(to), err
}

func (w *World) removeMember(c Cluster, id uint64) (Cluster, error) {
	to, err := w.asked(c).Remove(c.number(id))
	return c.as(to), err
}

// updatePeerURL lists a member with another peer URL.
func (w *World) updatePeerURL(c Cluster, id uint64, peerURL string) (Cluster, error) {
	n := c.number(id)
	if err := w.asked(c).UpdatePeerURL(n, c.numberAt(peerURL)); err != nil {
		return c, err
	}
	c.Members = slices.Clone(c.Members)
	c.Members[n].PeerURLs = []string{peerURL}
	return c, nil
}

func (w *World) moveLeader(c Cluster, to uint64) (Cluster, error) {
	if err := w.asked(c).MoveLeader(c.number(to)); err != nil {
		return c, err
	}
	c.Leader = to
	c.Term++
	return c, nil
}

// asked is the server that answers for the cluster: the leader, to which other members forward what they are asked.
func (w *World) asked(c Cluster) membership.Server {
	r := w.around(c, c.Leader)
	for n, m := range c.Members {
		if w.sent(c, m.ID)*10 >= c.Commit*9 {
			r.InSync = r.InSync.With(n)
		}
		if pod, _ := w.running(c.ID, m.ID); w.Now.Before(w.Procs[pod].Since.Add(w.Etcd.ConnectedFor)) {
			r.Young = r.Young.With(n)
		}
	}
	return r.Server()
}

// number of a member in etcd's rules: its place in the list, or the one after the last when it is not in it.
func (c Cluster) number(id uint64) int {
	if i := c.position(id); i >= 0 {
		return i
	}
	return len(c.Members)
}

// numberAt is the number of the member that has this peer URL, or would get it.
func (c Cluster) numberAt(peerURL string) int {
	for n, m := range c.Members {
		if slices.Contains(m.PeerURLs, peerURL) {
			return n
		}
	}
	return len(c.Members)
}

// as is the cluster with the members that etcd's rules have left it, and the roles that they have given them.
func (c Cluster) as(to membership.Cluster) Cluster {
	var members []observation.Member
	for n, m := range c.Members {
		if m.Learner = to.Learners.Has(n); to.Members().Has(n) {
			members = append(members, m)
		} else {
			c.Removed = append(slices.Clone(c.Removed), m.ID)
		}
	}
	c.Members = members
	return c
}

// sent is how much of the log the leader has sent to the member, dead or alive.
func (w *World) sent(c Cluster, member uint64) uint64 {
	var most uint64
	for _, d := range w.Dirs {
		if d.Cluster == c.ID && d.Member == member {
			most = max(most, d.Index)
		}
	}
	return most
}

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
func (w *World) connected(c Cluster, m observation.Member) bool {
	pod, runs := w.running(c.ID, m.ID)
	return runs && !w.Net.Isolated[w.Procs[pod].Pod]
}

// rules is the cluster as etcd's rules look at it, in which a member's number is its place in the list.
func (c Cluster) rules() membership.Cluster {
	r := membership.Cluster{Leader: uint8(c.position(c.Leader) + 1), Version: c.Version}
	for n, m := range c.Members {
		if m.Learner {
			r.Learners = r.Learners.With(n)
		} else {
			r.Voters = r.Voters.With(n)
		}
		if m.Started() {
			r.Started = r.Started.With(n)
		}
	}
	return r
}

// around is the same with those that run. Who does not hear the member in the centre is isolated.
func (w *World) around(c Cluster, centre uint64) membership.Cluster {
	r := c.rules()
	for n, m := range c.Members {
		pod, runs := w.running(c.ID, m.ID)
		if !runs {
			continue
		}
		r.Running = r.Running.With(n)
		if w.Net.Isolated[w.Procs[pod].Pod] || !w.paired(c, centre, m.ID) {
			r.Isolated = r.Isolated.With(n)
		}
	}
	return r
}

// component is the voters that hear the leader and take what it writes, if they are a majority, else the most that hear
// one of them.
func (w *World) component(c Cluster) (members []observation.Member) {
	led, late := w.around(c, c.Leader), w.late(c)
	most := led.Component() &^ late
	if !led.Leads() {
		most = 0
		for n, m := range c.Members {
			if hear := w.around(c, m.ID).Component() &^ late; hear.Has(n) && hear.Size() > most.Size() {
				most = hear
			}
		}
	}
	for n := range most.All {
		members = append(members, c.Members[n])
	}
	return members
}

// hears reports whether both members run, and hear each other.
func (w *World) hears(c Cluster, a, b observation.Member) bool {
	return w.connected(c, a) && w.connected(c, b) && w.paired(c, a.ID, b.ID)
}

// quorate reports whether a majority of voters hear each other, and would take what is written.
func (w *World) quorate(c Cluster) bool {
	return len(w.component(c)) >= membership.Quorum(len(c.voters()))
}

// leads reports whether the cluster has a leader that is heard by a majority now.
func (w *World) leads(c Cluster) bool { return w.around(c, c.Leader).Leads() }

// commits reports whether something can be written.
func (w *World) commits(c Cluster) bool { return w.leads(c) && w.quorate(c) }

// follows reports whether the member follows a leader now.
func (w *World) follows(c Cluster, m observation.Member) bool {
	return w.around(c, c.Leader).Following().Has(c.number(m.ID))
}
