package facts

import (
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Waits reports whether the member should be restarted, or succeeded, and that waits for a window.
func (v *Facts) WaitsForWindow(m *Member) bool {
	if !v.Windows.Closed() {
		return false
	}
	r := v.UpdateOf(m)
	return r != nil && m != v.Chosen() && (v.RestartSuffices(r) || !v.succeeding()) && !v.pressing(m)
}

// succeeding reports whether the successor of a voter has joined.
func (v *Facts) succeeding() bool {
	l := v.Learner()
	return l != nil && l.PodName != "" || len(v.ReplicaVoters()) > v.Replicas
}

// pressing reports whether the member's restart can't wait.
func (v *Facts) pressing(m *Member) bool {
	_, distrusts := v.distrusts(m)
	_, otherImage := v.ImageDiffers(m)
	_, otherQuota := v.quotaDiffers(m)
	_, grown := v.fileSystemWaits(m)
	_, downgrade := v.Downgrading()
	unheard := objects.Encrypted(v.Cluster) && m.TLS.Peers != ByTLS(m.PeerURLs...) && m.TLS.Certificates
	open := m.TLS.Anonymous && v.AuthOff()
	return distrusts || unheard || open || downgrade && otherImage || len(v.Alarms(observation.AlarmNoSpace)) > 0 &&
		(otherQuota || grown)
}

// HopWaits reports whether the next version on the way to the wanted one waits for a window.
func (v *Facts) HopWaits() bool {
	_, downgrade := v.Downgrading()
	hops := v.Hops()
	return v.Windows.Closed() && !downgrade && len(hops) > 0 && !v.Refuses(hops)
}
