package rules

import (
	"fmt"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
)

// What people decide: which members' etcd should be stopped for a while, and what becomes of a cluster that is
// deleted.

func fence(f *facts.Facts) *decision.Plan {
	for _, m := range f.ChosenFirst(f.Voters) {
		if m.PodName == "" || !f.Fenced(m.PodName) {
			continue
		}
		if m.Pod == nil || m.Pod.DeletionTimestamp != nil || !f.MayStop(m) {
			continue
		}
		why := fmt.Sprintf("stopping %s, as an EtcdOperation of type Fence asks", m.PodName)
		if f.Leads(m) == 1 {
			return change(f, HandOver(f, m), why+"; it leads and hands over first")
		}
		if plan := ChooseForRestart(f, m, false, why); plan != nil {
			return plan
		}
		return &decision.Plan{
			Message: why,
			Pod:     decision.PodChange{Name: m.PodName, Fate: decision.Deleted},
			Resync:  decision.ResyncSoon,
		}
	}
	return nil
}

// moveLeader hands the leadership to the voter that should have it, once that serves.
func moveLeader(f *facts.Facts) *decision.Plan {
	if f.Asked.MoveLeader == nil {
		return nil
	}
	m := f.Find(f.Asked.MoveLeader.To)
	if m == nil || m.Learner || !m.Serving() || m.ID == f.Etcd.Leader {
		return nil
	}
	return change(f, decision.MoveLeader{To: m.ID, Name: m.PodName},
		fmt.Sprintf("handing the leadership to %s, as an EtcdOperation asks", m.PodName))
}
