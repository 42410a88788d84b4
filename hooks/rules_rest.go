package hooks

import (
	"fmt"
	"strings"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// The rules for when there is nothing to change.

func waitForMembers(v *view) *verdict {
	silent := filter(v.members, func(m *member) bool { return !m.serving() })
	if len(silent) == 0 {
		return nil
	}
	if fenced := filter(names(silent), v.fenced); len(fenced) == len(silent) {
		return &verdict{message: fmt.Sprintf("%s stopped by the annotation %s; take it away to have it back; nobody "+
			"else is restarted meanwhile", strings.Join(fenced, ", "), objects.AnnotationFence), outlook: Waits}
	}
	message := fmt.Sprintf("waiting for %s to serve again", strings.Join(names(silent), ", "))
	return &verdict{message: message + v.explainAll(silent), outlook: v.byPerson(silent), resync: rule.ResyncLater}
}

func updatePeerURLs(v *view) *verdict {
	m := v.nextReaddressed()
	if m == nil || v.windows.closed() {
		return nil
	}
	return v.change(UpdatePeerURL{ID: m.ID, Name: m.name, PeerURL: objects.PeerURL(v.Cluster, m.name)},
		fmt.Sprintf("listing %s with the URL by which its peers reach it by TLS", m.name))
}

// nextReaddressed is the voter that is to be listed with its https URL next, the leader last; nil for none.
func (v *view) nextReaddressed() *member {
	if !objects.Encrypted(v.Cluster) || !v.restartable() || !v.everyoneDials() || len(v.certificateProblems) > 0 {
		return nil
	}
	for _, leads := range []bool{false, true} {
		for _, m := range v.voters {
			if m.name != "" && !byTLS(m.PeerURLs...) && (m.ID == v.Etcd.Leader) == leads {
				return m
			}
		}
	}
	return nil
}

func converged(v *view) *verdict {
	return &verdict{message: fmt.Sprintf("serving as the spec wants, with %s", wording.Count(len(v.voters), "voter"))}
}
