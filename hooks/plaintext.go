package hooks

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// How a cluster that speaks plain text learns TLS while it runs. A member can dial by TLS only with certificates, and
// it listens to its peers in one way only. So first every member is restarted with certificates, still listening in
// plain text. Then one after the other is listed with an https URL and restarted to listen so: in between, the others
// can't dial it, but it dials them, and raft needs no more than one of the two. Two such members at a time would not
// hear each other. Clients are listened to in both ways until the spec says otherwise. A learner's URL never changes.

// tlsFlags is how a member speaks, by the flags that its pod was made with.
type tlsFlags struct {
	// certificates: it has what it takes to dial others by TLS.
	certificates bool
	// anyPeer: it takes every certificate of its authorities for a peer's.
	anyPeer bool
	// peers: it listens to its peers by TLS.
	peers bool
	// clients and plain: it listens to clients by TLS, and in plain text.
	clients, plain bool
}

func tlsFlagsOf(pod *corev1.Pod) tlsFlags {
	var s tlsFlags
	named := false
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
				s.certificates = true
			case "--peer-cert-allowed-cn":
				named = true
			case "--listen-peer-urls":
				s.peers = strings.HasPrefix(value, "https:")
			case "--listen-client-urls":
				s.clients, s.plain = strings.Contains(value, "https:"), strings.Contains(value, "http:")
			}
		}
	}
	s.anyPeer = s.certificates && !named
	return s
}

// byTLS reports whether a URL is one of TLS.
func byTLS(urls ...string) bool {
	return slices.ContainsFunc(urls, func(u string) bool { return strings.HasPrefix(u, "https:") })
}

// peersDial reports how the member's peers dial it, and a new pod of it must listen: by what etcd lists, else by what
// is recorded.
func (v *view) peersDial(name string) bool {
	if m := v.find(name); m != nil {
		return byTLS(m.PeerURLs...)
	}
	if v.epoch == nil || !objects.Encrypted(v.Cluster) {
		return objects.Encrypted(v.Cluster)
	}
	return !v.epoch.plain() || slices.Contains(v.epoch.httpsPeers, name)
}

// plain reports whether the epoch began in plain text.
func (e *epoch) plain() bool {
	if e.existing() {
		return e.record.Data[objects.EpochKeyPeers] == "http"
	}
	for _, u := range e.initial {
		if !byTLS(u) {
			return true
		}
	}
	return false
}

// httpsPeers are the members that etcd lists with https although the epoch began in plain text, for the day that etcd
// doesn't answer.
func (v *view) httpsPeers() []string {
	if !v.epoch.plain() {
		return nil
	}
	if v.Etcd == nil {
		return v.epoch.httpsPeers
	}
	var list []string
	for _, m := range v.members {
		if m.name != "" && byTLS(m.PeerURLs...) {
			list = append(list, m.name)
		}
	}
	return list
}

// everyoneDials reports whether every listed member of ours can dial others by TLS, or will when it gets its pod.
func (v *view) everyoneDials() bool {
	return !slices.ContainsFunc(v.members,
		func(m *member) bool { return m.name != "" && m.pod != nil && !m.tls.certificates })
}

// peerURL is the URL of a new member: one of TLS once everybody can dial that.
func (v *view) peerURL(name string) string {
	return objects.PeerURLOf(v.Cluster, name, objects.Encrypted(v.Cluster) && v.everyoneDials())
}

// tlsFlagsDiffer reports whether the member must be restarted to speak as it should, and why.
func (v *view) tlsFlagsDiffer(m *member) (string, bool) {
	if !objects.Encrypted(v.Cluster) || m.name == "" || m.pod == nil || len(v.certificateProblems) > 0 {
		return "", false
	}
	s := m.tls
	switch {
	case !s.certificates:
		return "it has no certificates yet", true
	case s.peers != byTLS(m.PeerURLs...):
		return "its peers reach it by TLS now", true
	case v.everyoneDials() && s.plain != v.Cluster.Spec.TLS.AllowPlaintextClients:
		if s.plain {
			return "clients may not speak plain text any more", true
		}
		return "clients may speak plain text", true
	}
	return "", false
}

// allowsPlaintext reports whether clients may speak plain text beside TLS.
func allowsPlaintext(c *v1alpha1.EtcdCluster) bool {
	return objects.Encrypted(c) && c.Spec.TLS.AllowPlaintextClients
}
