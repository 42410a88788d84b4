package safety

import (
	"maps"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// outTrusted reports whether the member said that it trusts other authorities than its Secret holds.
func outTrusted(j *judgement, m *facts.Member) bool {
	s := j.f.ToldBy(m.Health)
	if !objects.Encrypted(j.o.Cluster) || s == nil || len(m.Health.Trusts) == 0 {
		return false
	}
	begun, known := facts.BegunWith(m.Pod)
	return !slices.Equal(facts.Subjects(s.Trust), m.Health.Trusts) || facts.Provided(j.o.Cluster) &&
		known && !maps.Equal(begun, j.f.Trusted())
}

// tlsFlagsWrong reports whether the member listens otherwise than it is listed or than the spec lets clients speak,
// or can't dial by TLS.
func tlsFlagsWrong(j *judgement, m *facts.Member) bool {
	s := facts.TLSFlagsOf(m.Pod)
	if !objects.Encrypted(j.o.Cluster) || m.Pod == nil {
		return false
	}
	if !s.Certificates || !s.Peers || !facts.ByTLS(m.PeerURLs...) {
		return true
	}
	return s.Plain != defaults.AllowsPlaintext(j.o.Cluster) || opensWrongly(j, m) || revokesWrongly(j, m)
}

// revokesWrongly reports whether the member has no list of revoked clients and could, or has one that is not asked for,
// or by which its pod could not start again.
func revokesWrongly(j *judgement, m *facts.Member) bool {
	asked := j.o.Cluster.Spec.TLS.ClientCRLSecretRef != nil
	copied := j.o.Children.Secrets[defaults.CRLSecret(j.o.Cluster.Name)]
	if facts.TLSFlagsOf(m.Pod).Revokes {
		return !asked || copied == nil
	}
	return asked && copied != nil && copied.CRL != nil && copied.CRL.Flaw == ""
}

// opensWrongly reports whether the member asks clients for a certificate and need not, or the other way round, or does
// not take the tokens by which Quorate comes to one that asks for none.
func opensWrongly(j *judgement, m *facts.Member) bool {
	wanted := defaults.AsksNone(j.o.Cluster)
	if facts.TLSFlagsOf(m.Pod).Anonymous {
		return !wanted || authTold(j, false) || m.Health.TokenRefused
	}
	return wanted && (authTold(j, true) && !authTold(j, false) || m.Health.TokenRefused)
}

// authTold reports whether a member that serves has told in this call that auth is on, or off.
func authTold(j *judgement, on bool) bool {
	return slices.ContainsFunc(j.f.Members, func(m *facts.Member) bool {
		told := m.Health.Auth != nil && *m.Health.Auth == on
		return m.DisplayName() != "" && m.Serving() && told
	})
}

// nextIsClosed checks that no member of an epoch that has not begun asks clients for no certificate: whether auth is on
// in its data is not known (S20).
func nextIsClosed(j *judgement) {
	for _, pod := range j.d.Children.Pods {
		number, ours := objects.Ordinal(j.o.Cluster.Name, pod.Name)
		j.require(!ours || j.f.Next == nil || number < j.f.Next.Epoch.First || !facts.TLSFlagsOf(pod).Anonymous, "S20",
			"%s, of the next epoch, is to ask clients for no certificate", pod.Name)
	}
}

// openMembers checks that no member begins to ask clients for no certificate where auth is not known to be on, and that
// auth is not turned off while one asks for none (S20).
func openMembers(j *judgement) {
	for _, pod := range j.d.Children.Pods {
		if pod.UID == "" && facts.TLSFlagsOf(pod).Anonymous {
			j.require(j.o.Etcd != nil && authTold(j, true) && !authTold(j, false), "S20",
				"%s is to ask clients for no certificate, and etcd's auth is not known to be on", pod.Name)
		}
	}
	if a, authorizes := j.d.Step.(decision.Authorize); authorizes && !a.Want.Enabled {
		for name, pod := range j.o.Children.Pods {
			j.require(!facts.TLSFlagsOf(pod).Anonymous && !j.o.Health[name].Anonymous, "S20",
				"auth would be turned off while %s asks clients for no certificate", name)
		}
	}
}

// secrets checks that no certificate is lost, and none put to use that not everyone would accept (S19).
func secrets(j *judgement) {
	if facts.Provided(j.o.Cluster) {
		provided(j)
		return
	}
	if objects.TLSMode(j.o.Cluster) != v1beta1.TLSAuto {
		return
	}
	desired := map[string]*decision.DesiredSecret{}
	for _, s := range j.d.Children.Secrets {
		desired[s.Name] = s
	}
	for _, l := range j.f.Leaves {
		old := j.o.Children.Secrets[l.Secret]
		now := desired[l.Secret]
		j.require(old == nil || now != nil, "S19", "the Secret %s is gone from the answer", l.Secret)
		if now == nil {
			continue
		}
		made, isNew := now.Make.(decision.Leaf)
		if !isNew {
			continue
		}
		j.require(j.passed(made.NotBefore), "S19", "the certificate in the Secret %s begins in the future", l.Secret)
		if old != nil && old.Certificate != nil {
			signed(j, old, made)
		}
	}
	ca := defaults.CASecret(j.o.Cluster.Name)
	peersFirst(j, ca, desired)
	if authority := desired[ca]; authority != nil {
		made, isNew := authority.Make.(decision.Authority)
		j.require(!isNew || j.passed(made.NotBefore), "S19", "the authority begins in the future")
		trim, trims := authority.Make.(decision.Trim)
		j.require(!trims || j.passed(trim.At), "S19", "an authority is let go that may not have expired")
	}
	j.require(j.o.Children.Secrets[ca] == nil || desired[ca] != nil, "S19", "the authority is gone from the answer")
}

// signed checks that what takes the place of a certificate will be taken by all who take that.
func signed(j *judgement, old *observation.Secret, made decision.Leaf) {
	signer := signer(j, made)
	if signer == nil {
		j.require(false, "S19", "%s would be signed by an authority that was not observed", old.Name)
		return
	}
	j.require(signer.ValidAt(j.o.Now), "S19",
		"%s would be signed by an authority that has expired, or is not valid yet", old.Name)
	spent := old.Flaw != "" || !old.Certificate.ValidAt(j.o.Now) // no one accepts it
	j.require(spent || signer.Key == old.Certificate.Issuer || trustedByAll(j, signer), "S19",
		"%s would be signed by an authority that not every member trusts", old.Name)
}

// peersFirst checks that a new ca.crt of the servers, which is all that members tell us of, never comes before that
// of the peers.
func peersFirst(j *judgement, ca string, desired map[string]*decision.DesiredSecret) {
	server := desired[defaults.ServerSecret(j.o.Cluster)]
	peer := j.o.Children.Secrets[defaults.PeerSecret(j.o.Cluster)]
	authority := j.o.Children.Secrets[ca]
	made := server != nil && server.Make != nil
	lag := peer != nil && authority != nil && !facts.SameTrust(peer.Trust, authority.Trust)
	j.require(!made || !lag, "S19", "the servers are to trust an authority before the peers do")
}

// provided checks that no member is restarted or added that would show the others what they don't take, and that no
// Certificate is lost.
func provided(j *judgement) {
	for name := range j.o.Children.Certificates {
		kept := slices.ContainsFunc(j.d.Children.Certificates,
			func(c *decision.CertManagerCertificate) bool { return c.Name == name })
		leaf := slices.ContainsFunc(j.f.Leaves, func(l defaults.Leaf) bool { return l.Secret == name })
		j.require(kept || !leaf, "S19", "the Certificate %s is gone from the answer", name)
	}
	server := j.f.Secret(defaults.ServerSecret(j.o.Cluster))
	if server == nil || len(server.Anchors) == 0 {
		return
	}
	_, adds := j.d.Step.(decision.AddLearner)
	for _, m := range j.f.Members {
		goes := stops(j, m)
		if !goes && !adds {
			continue
		}
		for _, o := range j.f.Members {
			shown := j.f.ToldBy(o.Health)
			if shown == nil || len(shown.Anchors) == 0 {
				continue
			}
			j.require(o.Knows(shown.Anchors) || o == m && goes, "S19",
				"a member is to show others the certificate in Secret %s, which %s does not take", shown.Name,
				o.PodName)
		}
	}
}

// stops reports whether the answer stops a member that serves.
func stops(j *judgement, m *facts.Member) bool {
	if !m.Serving() || m.Pod == nil || m.Pod.DeletionTimestamp != nil || facts.Finished(m.Pod) {
		return false
	}
	return podIn(j, m.PodName) == nil && (j.f.Replicas > 0 || besideExternal(j))
}

// signer is the observed authority that would sign a leaf; nil when there is none.
func signer(j *judgement, made decision.Leaf) *observation.Certificate {
	ca := j.o.Children.Secrets[made.Signer]
	switch {
	case ca == nil:
		return nil
	case made.Previous:
		return ca.Previous
	}
	return ca.Certificate
}

func trustedByAll(j *judgement, authority *observation.Certificate) bool {
	for name := range j.o.Children.Pods {
		if _, ours := objects.Ordinal(j.o.Cluster.Name, name); ours && !slices.Contains(j.o.Health[name].Trusts,
			authority.Subject) {
			return false
		}
	}
	return true
}
