package rules

import (
	"fmt"
	"strings"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// The rules for when there is nothing to change.

func waitForMembers(f *facts.Facts) *decision.Plan {
	unreachable := objects.Filter(f.Members, func(m *facts.Member) bool { return !m.Serving() })
	if len(unreachable) == 0 {
		return waitForPods(f)
	}
	if fenced := objects.Filter(facts.Names(unreachable), f.Fenced); len(fenced) == len(unreachable) {
		return &decision.Plan{
			Message: fmt.Sprintf("an EtcdOperation of type Fence keeps %s stopped; delete that operation to start "+
				"the member; no other member restarts until then", strings.Join(fenced, ", ")),
			Outlook: decision.Waits,
		}
	}
	message := fmt.Sprintf("waiting for %s to serve again", strings.Join(facts.Names(unreachable), ", "))
	return &decision.Plan{
		Message: message + f.ExplainAll(unreachable),
		Outlook: byPerson(f, unreachable),
		Resync:  decision.ResyncSoon,
	}
}

// waitForPods waits for pods that stop, or have, while their members still answer, and none of ours is restarted for
// it: a person has deleted them, or their nodes are drained.
func waitForPods(f *facts.Facts) *decision.Plan {
	stopping := objects.Filter(f.Voters, func(m *facts.Member) bool {
		return m.PodName != "" && (m.Pod == nil || m.Pod.DeletionTimestamp != nil)
	})
	if len(stopping) == 0 || len(due(f)) > 0 {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("waiting for the pod of %s to stop",
			strings.Join(facts.Names(stopping), ", ")),
		Resync: decision.ResyncSoon,
	}
}

func updatePeerURLs(f *facts.Facts) *decision.Plan {
	m := nextReaddressed(f)
	if m == nil || f.Windows.Closed() {
		return nil
	}
	return change(f, decision.UpdatePeerURL{ID: m.ID, Name: m.PodName,
		PeerURL: objects.PeerURL(f.Cluster, m.PodName, f.Address(m.PodName))},
		fmt.Sprintf("changing the peer URL of %s to https", m.PodName))
}

// nextReaddressed is the next voter that should be listed with its https URL, the leader last; nil for none.
func nextReaddressed(f *facts.Facts) *facts.Member {
	if !objects.Encrypted(f.Cluster) || !f.Restartable() || !f.EveryoneDials() ||
		len(f.CertificateProblems) > 0 {
		return nil
	}
	for _, leads := range []bool{false, true} {
		for _, m := range f.Voters {
			if m.PodName != "" && !facts.ByTLS(m.PeerURLs...) && (m.ID == f.Etcd.Leader) == leads {
				return m
			}
		}
	}
	return nil
}

func converged(f *facts.Facts) *decision.Plan {
	return &decision.Plan{Message: fmt.Sprintf("serving as the spec says, with %s", objects.Count(len(f.Voters),
		"voter"))}
}
