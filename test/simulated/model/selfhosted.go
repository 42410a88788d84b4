package model

import "github.com/quorate-dev/quorate/hooks/api/v1beta1"

// Where the API server has its data in the etcd itself (spec.selfHosted), nothing is decided while that does not serve:
// members come back by their kubelets, or by a person who starts them on their nodes (quorate-snapshot rescue).

// refusal is what people ask of such an etcd that would stop it as a whole. The API server refuses it by the kind's
// rules; here it comes through, as it would where these are missing.
type refusal uint8

const (
	asksNothing refusal = iota
	asksRecreation
	asksAnotherAuthority
	asksSuspension
	allRefused
)

var refusedWords = [allRefused]string{asksRecreation: "quorum-loss=Recreate",
	asksAnotherAuthority: "tls=Auto", asksSuspension: "suspend=true"}

// ask writes it into a spec.
func (r refusal) ask(s *v1beta1.EtcdClusterSpec) {
	switch r {
	case asksRecreation:
		s.Recovery.QuorumLoss = v1beta1.RecoverRecreate
	case asksAnotherAuthority:
		s.TLS.Mode = v1beta1.TLSAuto
	case asksSuspension:
		s.Suspend = true
	}
}

// invalid reports whether nothing is done while it is asked for. Who suspends a cluster means it.
func (r refusal) invalid() bool { return r != asksNothing && r != asksSuspension }

// unserved reports whether there is no API server, for its etcd has no quorum that follows a leader.
func (m *model) unserved(s *worldState) bool { return m.SelfHosted && s.formed && !s.Leads() }

// withoutAPIServer is what may happen then. A kubelet knows the pods that it has started since its node was booted.
func (m *model) withoutAPIServer(s *worldState, list []action) []action {
	list = append(list, action{deed: etcdTicks})
	for n := range maxMembers {
		p := &s.live.pods[n]
		known := p.uid != 0 && p.bound && s.prepared.Has(n)
		if known && s.Running.Has(n) == (p.deleting != stays) {
			list = append(list, action{kubeletActs, uint8(n), 0})
		}
		returns := known && p.deleting == stays
		if s.Members().Has(n) && !returns && !s.Running.Has(n) && !s.lost.Has(n) && s.data[n] != nothing {
			list = append(list, action{memberRescued, uint8(n), 0})
		}
		if s.faults > 0 && p.bound && !s.lost.Has(n) {
			list = m.only(append(list, action{nodeLost, uint8(n), 0}), len(list))
		}
	}
	for _, e := range []struct {
		who set
		end deed
	}{{s.unreachable, memberReached}, {s.Isolated, memberJoined}, {s.lost, nodeBack}} {
		list = each(e.who, e.end, list)
	}
	return list
}

// rescue starts a member on its data, by a static pod beside its own.
func (s *worldState) rescue(n int) {
	s.prepared = s.prepared.Without(n)
	s.Running, s.proc[n] = s.Running.With(n), s.live.pods[n].version
}
