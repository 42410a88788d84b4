package rollout

import (
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/volumes"
)

// Waits reports whether the member should be restarted, or succeeded, and that waits for a window.
func Waits(v *state.View, m *state.Member) bool {
	if !v.Windows.Closed() {
		return false
	}
	r := UpdateOf(v, m)
	return r != nil && m != v.Chosen() && (RestartSuffices(v, r) || !succeeding(v)) && !pressing(v, m)
}

// succeeding reports whether the successor of a voter has joined.
func succeeding(v *state.View) bool {
	l := v.Learner()
	return l != nil && l.PodName != "" || len(v.ReplicaVoters()) > v.Replicas
}

// pressing reports whether the member's restart can't wait.
func pressing(v *state.View, m *state.Member) bool {
	_, distrusts := certificates.Distrusts(v, m)
	_, otherImage := ImageDiffers(v, m)
	_, otherQuota := volumes.QuotaDiffers(v, m)
	_, grown := volumes.FileSystemWaits(v, m)
	_, downgrade := versions.Downgrading(v)
	unheard := objects.Encrypted(v.Cluster) && m.TLS.Peers != state.ByTLS(m.PeerURLs...) && m.TLS.Certificates
	open := m.TLS.Anonymous && state.AuthOff(v)
	return distrusts || unheard || open || downgrade && otherImage || len(pods.Alarms(v, observation.AlarmNoSpace)) > 0 &&
		(otherQuota || grown)
}

// HopWaits reports whether the next version on the way to the wanted one waits for a window.
func HopWaits(v *state.View) bool {
	_, downgrade := versions.Downgrading(v)
	hops := versions.Hops(v)
	return v.Windows.Closed() && !downgrade && len(hops) > 0 && !versions.Refuses(v, hops)
}
