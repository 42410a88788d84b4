package facts

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// allowsAnyPeer reports whether a member still does that when all members are ours, and why it should be restarted.
func (f *Facts) allowsAnyPeer(m *Member) (string, bool) {
	return "it still accepts every certificate of its authorities from peers, as the external members needed",
		m.TLS.AnyPeer && !f.BesideExternal()
}

// AsksInPlainText says that the external members are asked without TLS; empty when they are not, or there are none.
func (f *Facts) AsksInPlainText() string {
	joined := defaults.External(f.Cluster)
	joins := f.Epoch == nil && defaults.Joins(f.Cluster)
	if joined == nil || defaults.SpeaksTLS(joined) || !f.BesideExternal() && !joins {
		return ""
	}
	return "Quorate talks to the etcd of spec.bootstrap.external in plain text, so anything on the network can " +
		"pose as it; use https:// endpoints and caSecretRef if it has TLS"
}

// TrustSecret names the Secret with the authorities of the external members that ours trust as well; empty for none.
func TrustSecret(c *v1beta1.EtcdCluster) string {
	e := defaults.External(c)
	if !defaults.SpeaksTLS(e) || objects.TLSMode(c) != v1beta1.TLSAuto {
		return ""
	}
	return cmp.Or(e.PeerCASecretRef.Name, e.CASecretRef.Name)
}

// SameIDs reports whether two lists hold the same certificates, in whichever order and number.
func SameIDs(a, b []observation.Certificate) bool {
	ids := func(list []observation.Certificate) []string {
		var all []string
		for _, c := range list {
			all = append(all, c.ID)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return slices.Equal(ids(a), ids(b))
}

// besideTLS reports whether there are external members that speak TLS.
func (f *Facts) besideTLS() bool {
	return defaults.SpeaksTLS(defaults.External(f.Cluster)) && f.Epoch.Joined() && f.BesideExternal()
}

// externalCertificateProblems says which Secret of spec.bootstrap.external is not there or can't be used, and why.
func (f *Facts) externalCertificateProblems() []string {
	if !f.besideTLS() {
		return nil
	}
	e := defaults.External(f.Cluster)
	var list []string
	lacks := func(name, why string) { list = append(list, fmt.Sprintf("Secret %s: %s", name, why)) }
	absent := fmt.Sprintf("it does not exist, or does not have the label %s: %s", objects.LabelCluster, f.Cluster.Name)
	for _, name := range defaults.Distinct([]string{e.CASecretRef.Name, cmp.Or(e.PeerCASecretRef.Name,
		e.CASecretRef.Name)}) {
		switch s := f.AnySecret(name); {
		case s == nil:
			lacks(name, absent)
		case len(s.Trust) == 0:
			lacks(name, "it has no ca.crt with the authority of the external members, or that can't be parsed")
		}
	}
	if name := e.ClientSecretRef.Name; name != "" {
		switch s := f.AnySecret(name); {
		case s == nil:
			lacks(name, absent)
		case !s.Has(objects.KeyCertificate, objects.KeyPrivate):
			lacks(name, "it does not have tls.crt and tls.key")
		case s.Certificate == nil:
			lacks(name, s.Flaw)
		}
	}
	if name := e.UserSecretRef.Name; name != "" {
		if s := f.AnySecret(name); s == nil {
			lacks(name, absent)
		} else if !s.Has(defaults.KeyUsername, defaults.KeyPassword) {
			lacks(name, "it does not have username and password")
		}
	}
	return list
}

// notAdopted says which of our Secrets do not trust the external members' authority yet, when nothing is lacking of
// theirs.
func (f *Facts) notAdopted() []string {
	var list []string
	name := TrustSecret(f.Cluster)
	if name == "" || !f.besideTLS() {
		return nil
	}
	for _, own := range []string{defaults.CASecret(f.Cluster.Name), defaults.PeerSecret(f.Cluster),
		defaults.ServerSecret(f.Cluster)} {
		s := f.Children.Secrets[own]
		if s != nil && slices.ContainsFunc(f.AnySecret(name).Trust, func(c observation.Certificate) bool {
			return !slices.ContainsFunc(s.Trust, func(o observation.Certificate) bool { return o.ID == c.ID })
		}) {
			list = append(list, fmt.Sprintf("Secret %s: it does not trust the authority in Secret %s yet", own, name))
		}
	}
	return list
}
