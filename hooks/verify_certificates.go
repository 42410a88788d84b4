package hooks

import (
	"maps"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// outTrusted reports whether the member said that it trusts other authorities than its Secret holds.
func (j *judgement) outTrusted(m *member) bool {
	s := j.v.secret(serverSecret(j.o.Cluster))
	if !objects.Encrypted(j.o.Cluster) || s == nil || len(m.health.Trusts) == 0 {
		return false
	}
	begun, known := begunWith(m.pod)
	return !slices.Equal(subjects(s.Trust), m.health.Trusts) || provided(j.o.Cluster) && known &&
		!maps.Equal(begun, j.v.trusted())
}

// tlsFlagsWrong reports whether the member listens otherwise than it is listed or than the spec lets clients speak,
// or can't dial by TLS.
func (j *judgement) tlsFlagsWrong(m *member) bool {
	s := tlsFlagsOf(m.pod)
	return objects.Encrypted(j.o.Cluster) && m.pod != nil && (!s.certificates || !s.peers || !byTLS(m.PeerURLs...) ||
		s.plain != allowsPlaintext(j.o.Cluster))
}

// secrets checks that no certificate is lost, and none put to use that somebody would not accept (S19).
func (j *judgement) secrets() {
	if provided(j.o.Cluster) {
		j.provided()
		return
	}
	if objects.TLSMode(j.o.Cluster) != v1alpha1.TLSAuto {
		return
	}
	desired := map[string]*DesiredSecret{}
	for _, s := range j.d.Children.Secrets {
		desired[s.Name] = s
	}
	for _, l := range j.v.leaves {
		old, now := j.o.Children.Secrets[l.secret], desired[l.secret]
		j.require(old == nil || now != nil, "S19", "the Secret %s is gone from the answer", l.secret)
		if now == nil || old == nil || old.Certificate == nil {
			continue
		}
		if made, isNew := now.Make.(Leaf); isNew {
			j.signed(old, made)
		}
	}
	ca := CASecret(j.o.Cluster.Name)
	j.peersFirst(ca, desired)
	j.require(j.o.Children.Secrets[ca] == nil || desired[ca] != nil, "S19", "the authority is gone from the answer")
}

// signed checks that what takes the place of a certificate will be taken by all who take that.
func (j *judgement) signed(old *Secret, made Leaf) {
	signer := j.signer(made)
	if signer == nil {
		j.require(false, "S19", "%s is to be signed by an authority that was not observed", old.Name)
		return
	}
	j.require(!j.o.Now.After(signer.NotAfter), "S19", "%s is to be signed by an authority that has expired", old.Name)
	spent := old.Flaw != "" || j.o.Now.After(old.Certificate.NotAfter) // nobody takes it
	j.require(spent || signer.Key == old.Certificate.Issuer || j.trustedByAll(signer), "S19",
		"%s is to be signed by an authority that not every member trusts", old.Name)
}

// peersFirst checks that a new ca.crt of the servers, which is all that members tell us of, never comes before that
// of the peers.
func (j *judgement) peersFirst(ca string, desired map[string]*DesiredSecret) {
	server, peer, authority := desired[serverSecret(j.o.Cluster)], j.o.Children.Secrets[peerSecret(j.o.Cluster)],
		j.o.Children.Secrets[ca]
	ahead := server != nil && server.Make != nil && peer != nil && authority != nil &&
		!sameTrust(peer.Trust, authority.Trust)
	j.require(!ahead, "S19", "the servers are to trust an authority before the peers do")
}

// provided checks that no member is restarted or added that would show the others what they don't take, and that no
// Certificate is lost.
func (j *judgement) provided() {
	for name := range j.o.Children.Certificates {
		kept := slices.ContainsFunc(j.d.Children.Certificates,
			func(c *CertManagerCertificate) bool { return c.Name == name })
		leaf := slices.ContainsFunc(j.v.leaves, func(l leaf) bool { return l.secret == name })
		j.require(kept || !leaf, "S19", "the Certificate %s is gone from the answer", name)
	}
	server := j.v.secret(serverSecret(j.o.Cluster))
	if server == nil || len(server.Anchors) == 0 {
		return
	}
	_, adds := j.d.Step.(AddLearner)
	for _, m := range j.v.members {
		goes := j.stops(m)
		if !goes && !adds {
			continue
		}
		for _, o := range j.v.members {
			j.require(o.knows(server.Anchors) || o == m && goes, "S19",
				"a member is to show others the certificate in Secret %s, which %s does not take", server.Name, o.name)
		}
	}
}

// knows reports whether a member trusts one of these authorities, or may, as one that has said nothing or is about to
// stop.
func (m *member) knows(authorities []Certificate) bool {
	return len(m.health.Trusts) == 0 || m.pod == nil || m.pod.DeletionTimestamp != nil ||
		slices.ContainsFunc(authorities,
			func(a Certificate) bool { return slices.Contains(m.health.Trusts, a.Subject) })
}

// stops reports whether the answer stops a member that serves.
func (j *judgement) stops(m *member) bool {
	return m.serving() && m.pod != nil && m.pod.DeletionTimestamp == nil && !finished(m.pod) && j.pod(m.name) == nil &&
		(j.v.replicas > 0 || j.besideForeign())
}

// signer is the observed authority that a leaf is to be signed by; nil when there is none.
func (j *judgement) signer(made Leaf) *Certificate {
	ca := j.o.Children.Secrets[made.Signer]
	switch {
	case ca == nil:
		return nil
	case made.Previous:
		return ca.Previous
	}
	return ca.Certificate
}

func (j *judgement) trustedByAll(authority *Certificate) bool {
	for name := range j.o.Children.Pods {
		if _, ours := objects.Ordinal(j.o.Cluster.Name, name); ours && !slices.Contains(j.o.Health[name].Trusts,
			authority.Subject) {
			return false
		}
	}
	return true
}
