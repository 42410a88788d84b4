package facts

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// AnySecret is an observed Secret, the cluster's own or one that the spec names.
func (f *Facts) AnySecret(name string) *observation.Secret {
	if own := f.Children.Secrets[name]; own != nil {
		return own
	}
	return f.Related.Secrets[name]
}

// OwnersAgree reports whether those who keep the Secrets that members' pods mount have labelled them for the cluster.
func (f *Facts) OwnersAgree() bool {
	if objects.TLSMode(f.Cluster) != v1beta1.TLSSecrets {
		return true
	}
	labelled := f.Related.Secrets
	return labelled[defaults.ServerSecret(f.Cluster)] != nil && labelled[defaults.PeerSecret(f.Cluster)] != nil
}

// UsableAuthority reports whether the Secret holds an authority that can sign.
func UsableAuthority(s *observation.Secret) bool {
	return s != nil && s.Certificate != nil && s.Certificate.Authority && s.Flaw == ""
}

// How a cluster that speaks plain text learns TLS while it runs. A member can dial by TLS only with certificates, and
// it listens to its peers in one way only. So first every member is restarted with certificates, still listening in
// plain text. Then one after the other is listed with an https URL and restarted to listen so: in between, the others
// can't dial it, but it dials them, and raft needs no more than one of the two. Two such members at a time would not
// hear each other. Clients are listened to in both ways until the spec says otherwise. A learner's URL never changes.

// TLSFlags is how a member speaks, by the flags that its pod was made with.
type TLSFlags struct {
	// Certificates: it has what it takes to dial others by TLS.
	Certificates bool
	// AnyPeer: it takes every certificate of its authorities for a peer's.
	AnyPeer bool
	// Peers: it listens to its peers by TLS.
	Peers bool
	// Anonymous: it asks clients for no certificate.
	Anonymous bool
	// Revokes: it has a list of clients that are revoked.
	Revokes bool
	// Clients and plain: it listens to clients by TLS, and in plain text.
	Clients, Plain bool
}

// TLSFlagsOf reads from the pod's flags how its etcd listens and dials.
func TLSFlagsOf(pod *corev1.Pod) TLSFlags {
	var s TLSFlags
	named := false
	asks := false
	if pod == nil {
		return s
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name != objects.ContainerEtcd {
			continue
		}
		for _, flag := range pod.Spec.Containers[i].Command {
			name, value, _ := strings.Cut(flag, "=")
			switch name {
			case "--peer-cert-file":
				s.Certificates = true
			case "--peer-cert-allowed-cn":
				named = true
			case "--trusted-ca-file", "--client-cert-auth":
				asks = true
			case objects.FlagCRL:
				s.Revokes = true
			case "--listen-peer-urls":
				s.Peers = strings.HasPrefix(value, "https:")
			case "--listen-client-urls":
				s.Clients = strings.Contains(value, "https:")
				s.Plain = strings.Contains(value, "http:")
			}
		}
	}
	s.AnyPeer = s.Certificates && !named
	s.Anonymous = s.Clients && !asks
	return s
}

// ByTLS reports whether a URL is one of TLS.
func ByTLS(urls ...string) bool {
	return slices.ContainsFunc(urls, func(u string) bool { return strings.HasPrefix(u, "https:") })
}

// PeersDial reports how the member's peers dial it, and a new pod of it must listen: by what etcd lists, else by what
// is recorded.
func (f *Facts) PeersDial(name string) bool {
	if m := f.Find(name); m != nil {
		return ByTLS(m.PeerURLs...)
	}
	if f.Epoch == nil || !objects.Encrypted(f.Cluster) {
		return objects.Encrypted(f.Cluster)
	}
	if f.Etcd != nil && f.ToBeAdded(name) {
		return f.EveryoneDials() // as PeerURL lists it
	}
	return !f.Epoch.Plain() || slices.Contains(f.Epoch.HTTPSPeers, name)
}

// Plain reports whether the epoch began in plain text.
func (e *Epoch) Plain() bool {
	if e.Joined() {
		return e.Peers == "http"
	}
	for _, u := range e.Initial {
		if !ByTLS(u) {
			return true
		}
	}
	return false
}

// HTTPSPeers are the members that etcd lists with https although the epoch began in plain text, for the day that etcd
// doesn't answer.
func (f *Facts) HTTPSPeers() []string {
	if !f.Epoch.Plain() {
		return nil
	}
	if f.Etcd == nil {
		return f.Epoch.HTTPSPeers
	}
	var list []string
	for _, m := range f.Members {
		if m.PodName != "" && ByTLS(m.PeerURLs...) {
			list = append(list, m.PodName)
		}
	}
	return list
}

// EveryoneDials reports whether every listed member of ours can dial others by TLS, or will when it gets its pod.
func (f *Facts) EveryoneDials() bool {
	return !slices.ContainsFunc(f.Members,
		func(m *Member) bool { return m.PodName != "" && m.Pod != nil && !m.TLS.Certificates })
}

// PeerURL is the URL of a new member: one of TLS once every member can dial that.
func (f *Facts) PeerURL(name, address string) string {
	return objects.PeerURLOf(f.Cluster, name, address, objects.Encrypted(f.Cluster) && f.EveryoneDials())
}

// tlsFlagsDiffer reports whether the member must be restarted to speak as it should, and why.
func (f *Facts) tlsFlagsDiffer(m *Member) (string, bool) {
	if !objects.Encrypted(f.Cluster) || m.PodName == "" || m.Pod == nil || len(f.CertificateProblems) > 0 {
		return "", false
	}
	s := m.TLS
	switch {
	case !s.Certificates:
		return "it has no certificates yet", true
	case s.Peers != ByTLS(m.PeerURLs...):
		return "its peer URL is https now", true
	}
	if reason, differs := f.clientAuthDiffers(m); differs {
		return reason, true
	}
	if reason, differs := f.revokesDiffers(m); differs {
		return reason, true
	}
	if f.EveryoneDials() && s.Plain != f.Cluster.Spec.TLS.AllowPlaintextClients {
		if s.Plain {
			return "clients may no longer use plain text", true
		}
		return "clients may use plain text", true
	}
	return "", false
}

// clientAuthDiffers reports whether the member must be restarted for what it asks of clients, and why.
func (f *Facts) clientAuthDiffers(m *Member) (string, bool) {
	switch anonymous := m.TLS.Anonymous; {
	case anonymous && !defaults.AsksNone(f.Cluster):
		return "clients need a certificate again", true
	case anonymous && f.AuthOff():
		return "etcd asks no client who it is, so that clients need a certificate again", true
	case !anonymous && f.AsksNone():
		return "clients need no certificate any more", true
	case m.Health.TokenRefused && m.Serving() && defaults.AsksNone(f.Cluster):
		return "it started with another key for tokens than the Secret holds", true
	}
	return "", false
}

// Of narrows the Secrets of others, by name, to what can be asked for: what the edge does before it reads them.
func Of(k observation.SecretKeys, related map[string]*observation.Secret) map[string]*observation.Secret {
	all := map[string]*observation.Secret{}
	for name, s := range related {
		if keys := k.Named[name]; keys != nil {
			narrowed := *s
			narrowed.Keys = objects.Filter(s.Keys, func(key string) bool { return keys[key] })
			all[name] = &narrowed
		}
	}
	return all
}

// A member that asks clients for no certificate is open to everyone while etcd's auth is off. It serves clients once it
// has published itself through etcd's log (serve in etcd's embed/serve.go waits for that), and so once it has applied
// all that was committed before it started. So it may start like that where a member has told in this very call that
// auth is on, and does not start like that while blind: the member asks for certificates then, until it is restarted.
// Beside external members, one of those may have told it: auth is the same for all members of an etcd.

// AsksNone reports whether a member that starts now asks clients for no certificate.
func (f *Facts) AsksNone() bool {
	return defaults.AsksNone(f.Cluster) && f.Etcd != nil && f.authTold(true) && !f.AuthOff()
}

// AuthOff reports whether a member that serves has told in this call that etcd's auth is off.
func (f *Facts) AuthOff() bool { return f.authTold(false) }

func (f *Facts) authTold(on bool) bool {
	return slices.ContainsFunc(f.Members, func(m *Member) bool {
		told := m.Health.Auth != nil && *m.Health.Auth == on
		return m.DisplayName() != "" && m.Serving() && told
	})
}

// Anonymous are the pods of ours that ask clients for no certificate, by what they were made with or by what their
// members told.
func (f *Facts) Anonymous() []string {
	return objects.Filter(slices.SortedFunc(maps.Keys(f.Children.Pods), objects.ByOrdinal), func(name string) bool {
		return TLSFlagsOf(f.Children.Pods[name]).Anonymous || f.Health[name].Anonymous
	})
}

// Knows reports whether a member trusts one of these authorities, or may, as one that has said nothing or is about to
// stop.
func (m *Member) Knows(authorities []observation.Certificate) bool {
	return len(m.Health.Trusts) == 0 || m.Pod == nil || m.Pod.DeletionTimestamp != nil ||
		slices.ContainsFunc(authorities,
			func(a observation.Certificate) bool { return slices.Contains(m.Health.Trusts, a.Subject) })
}
