package world

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/simulated/membership"
)

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

// component is the voters that hear the leader, if they are a majority, else the most that hear one of them.
func (w *World) component(c Cluster) (members []observation.Member) {
	led := w.around(c, c.Leader)
	most := led.Component()
	if !led.Leads() {
		most = 0
		for n, m := range c.Members {
			if hear := w.around(c, m.ID).Component(); hear.Has(n) && hear.Size() > most.Size() {
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

// quorate reports whether a majority of voters hear each other.
func (w *World) quorate(c Cluster) bool {
	return len(w.component(c)) >= membership.Quorum(len(c.voters()))
}

// leads reports whether the cluster has a leader that is heard by a majority now.
func (w *World) leads(c Cluster) bool { return w.around(c, c.Leader).Leads() }

// follows reports whether the member follows a leader now.
func (w *World) follows(c Cluster, m observation.Member) bool {
	return w.around(c, c.Leader).Following().Has(c.number(m.ID))
}
