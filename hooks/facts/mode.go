package facts

// The modes: how much is known of a cluster, and so what may be done with it. In this order the first whose condition
// holds: what stops us comes first, then what is needed before there is a cluster, then blindness, and last a quorum's
// answer. The rules of each are in cluster/modes.go.
const (
	ModeHeldBack     = "HeldBack"
	ModeStopping     = "Stopping"
	ModeUnrecorded   = "Unrecorded"
	ModePaused       = "Paused"
	ModeProvisioning = "Provisioning"
	ModeStarting     = "Starting"
	ModeBlind        = "Blind"
	ModeQuorate      = "Quorate"
)

// Mode is the one that the cluster is in.
func (v *Facts) Mode() string {
	if v.HeldBack() {
		return ModeHeldBack
	}
	return v.ModeOfEpoch()
}

// ModeOfEpoch is the one that the epoch is in, whether or not the cluster is held back.
func (v *Facts) ModeOfEpoch() string {
	switch {
	case v.Ending():
		return ModeStopping
	case v.Epoch == nil || v.Epoch.Record == nil:
		return ModeUnrecorded
	case v.Paused():
		return ModePaused
	case !v.Epoch.Provisioned():
		return ModeProvisioning
	case v.Etcd == nil && !v.Epoch.HadQuorum():
		return ModeStarting
	case v.Etcd == nil:
		return ModeBlind
	}
	return ModeQuorate
}

// Paused reports whether members should be stopped and kept. Beside foreign members they would be missed, so they
// leave.
func (v *Facts) Paused() bool { return v.Replicas == 0 && !v.BesideForeign() }
