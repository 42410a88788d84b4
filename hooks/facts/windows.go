package facts

import (
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Waits reports whether the member should be restarted, or succeeded, and that waits for a window.
func WaitsForWindow(v *Facts, m *Member) bool {
	if !v.Windows.Closed() {
		return false
	}
	r := UpdateOf(v, m)
	return r != nil && m != v.Chosen() && (RestartSuffices(v, r) || !succeeding(v)) && !pressing(v, m)
}

// succeeding reports whether the successor of a voter has joined.
func succeeding(v *Facts) bool {
	l := v.Learner()
	return l != nil && l.PodName != "" || len(v.ReplicaVoters()) > v.Replicas
}

// pressing reports whether the member's restart can't wait.
func pressing(v *Facts, m *Member) bool {
	_, distrusts := distrusts(v, m)
	_, otherImage := ImageDiffers(v, m)
	_, otherQuota := quotaDiffers(v, m)
	_, grown := fileSystemWaits(v, m)
	_, downgrade := Downgrading(v)
	unheard := objects.Encrypted(v.Cluster) && m.TLS.Peers != ByTLS(m.PeerURLs...) && m.TLS.Certificates
	open := m.TLS.Anonymous && AuthOff(v)
	return distrusts || unheard || open || downgrade && otherImage || len(Alarms(v, observation.AlarmNoSpace)) > 0 &&
		(otherQuota || grown)
}

// HopWaits reports whether the next version on the way to the wanted one waits for a window.
func HopWaits(v *Facts) bool {
	_, downgrade := Downgrading(v)
	hops := Hops(v)
	return v.Windows.Closed() && !downgrade && len(hops) > 0 && !Refuses(v, hops)
}
