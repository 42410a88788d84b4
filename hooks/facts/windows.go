package facts

import (
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// WaitsForWindow reports whether the member should be restarted, or succeeded, and that waits for a window.
func (f *Facts) WaitsForWindow(m *Member) bool {
	if !f.Windows.Closed() {
		return false
	}
	r := f.UpdateOf(m)
	if r == nil || m == f.Chosen() || f.pressing(m) || r.ForDefragmentation {
		return false
	}
	return f.RestartSuffices(m, r) || !f.succeeding()
}

// succeeding reports whether the successor of a voter has joined. Where a spare is wanted that is seen by the voters
// alone: whether a learner is the spare depends on this.
func (f *Facts) succeeding() bool {
	l := f.Learner()
	joins := l != nil && l.PodName != "" && f.Spares() == 0
	return joins || len(f.ReplicaVoters()) > f.Replicas
}

// pressing reports whether the member's restart can't wait.
func (f *Facts) pressing(m *Member) bool {
	_, distrusts := f.distrusts(m)
	_, otherImage := f.ImageDiffers(m)
	_, otherQuota := f.quotaDiffers(m)
	_, grown := f.fileSystemWaits(m)
	_, downgrade := f.Downgrading()
	unheard := objects.Encrypted(f.Cluster) && m.TLS.Peers != ByTLS(m.PeerURLs...) && m.TLS.Certificates
	open := m.TLS.Anonymous && f.AuthOff()
	behind := downgrade && otherImage
	if distrusts || unheard || open || behind {
		return true
	}
	full := len(f.Alarms(observation.AlarmNoSpace)) > 0 || !m.BelowQuota(m.Health.DBSizeInUse)
	return full && (otherQuota || grown)
}

// HopWaits reports whether the next version on the way to the wanted one waits for a window.
func (f *Facts) HopWaits() bool {
	_, downgrade := f.Downgrading()
	hops := f.Hops()
	return f.Windows.Closed() && !downgrade && len(hops) > 0 && !f.Refuses(hops)
}
