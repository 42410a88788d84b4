package model

import (
	"fmt"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// kubelet does what there is to do for the pod of a member.
func (m *model) kubelet(s *worldState, n int) []string {
	p := &s.live.pods[n]
	switch {
	case p.uid == 0, s.lost.Has(n) && p.bound:
		return nil
	case p.deleting != stays && m.unserved(s): // it knows, and has no one to tell
		s.stop(n)
		return nil
	case p.deleting != stays:
		m.dropPod(s, n)
		return nil
	case !p.bound && m.held(s, n):
		return nil
	}
	p.bound = true
	if s.Running.Has(n) && s.proc[n] == p.version && s.prepared.Has(n) {
		return nil
	}
	s.stop(n)
	status, broken := m.start(s, n, p)
	if status == runs || status == crashes && (p.status != crashes || p.exchanged) {
		p.exchanged, p.turn = false, s.freshTurn(n)
	}
	p.status, p.fresh = status, m.minors && status == runs
	return broken
}

// freshTurn is that of a container that no view and no record knows yet.
func (s *worldState) freshTurn(n int) uint8 {
	turn := max(s.live.pods[n].turn, s.seen.pods[n].turn, s.flight.view.pods[n].turn)
	for _, r := range s.records() {
		if int(r.choice.member) == n+1 && r.choice.turn > 0 && r.choice.turn != unseenTurn {
			turn = max(turn, r.choice.turn-1)
		}
	}
	return turn + 1
}

// records are all copies of the record.
func (s *worldState) records() [4]*record {
	return [...]*record{&s.live.record, &s.seen.record, &s.flight.view.record, &s.flight.answer.record}
}

// held reports whether something keeps the pod from being given a node.
func (m *model) held(s *worldState, n int) bool {
	noClaim := m.Medium == v1beta1.Persistent && (s.live.claims[n].uid == 0 || s.live.claims[n].deleting)
	return noClaim || s.live.pods[n].gated || s.lost.Has(n) || s.stuck.Has(n) || s.live.pods[n].template == unplaced
}

// start runs prepare, then etcd, and says how the pod stands.
func (m *model) start(s *worldState, n int, p *pod) (status uint8, broken []string) {
	if p.waits {
		return pending, nil
	}
	if !s.prepared.Has(n) {
		if s.data[n] == nothing && (p.start == resumes || s.marked.Has(n)) {
			return again(p, refused, refusedAgain), nil
		}
		s.marked, s.prepared = s.marked.With(n), s.prepared.With(n)
	}
	switch {
	case p.version == unpullable:
		return again(p, unpulled, unpulledAgain), nil
	case p.oldFlags && minorOf(p.version) >= 7, !p.oldFlags && minorOf(p.version) < 6: // 3.6 knows both
		return crashes, nil
	}
	if s.data[n] == nothing {
		var ok bool
		if ok, broken = m.begin(s, n, p); !ok {
			return crashes, broken
		}
	}
	minor, isNew := minorOf(p.version), s.data[n] == behind
	soon := !isNew && minor == s.Downgrade // the model does not make it wait until the leader has lowered the version
	if s.Removed.Has(n) || !soon && s.Takes(minor, isNew) != nil {
		return crashes, broken
	}
	s.Running, s.proc[n] = s.Running.With(n), p.version
	if m.minors && s.Agreed != 0 && minorOf(p.version) > s.Agreed+1 {
		broken = append(broken, fmt.Sprintf("S18: %s runs %s in a cluster that has agreed on 3.%d", name(n),
			releases[p.version], s.Agreed))
	}
	if m.Young {
		s.Young = s.Young.With(n)
	}
	return runs, broken
}

// again is how the kubelet reports the same trouble of a pod in which etcd has run before.
func again(p *pod, first, later uint8) uint8 {
	if p.ran() {
		return later
	}
	return first
}

// reboot restarts the node under a pod: what was in memory is gone, and prepare runs again.
func (m *model) reboot(s *worldState, n int) {
	s.lost = s.lost.Without(n)
	if s.live.pods[n].uid == 0 {
		return
	}
	s.stop(n)
	s.prepared = s.prepared.Without(n)
	if m.Medium == v1beta1.Memory {
		s.data[n] = nothing
	}
}
