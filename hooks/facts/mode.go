package facts

// The modes: how much is known of a cluster, and so what may be done with it. In this order the first whose condition
// holds: what stops us comes first, then what is needed before there is a cluster, then blindness, and last a quorum's
// answer. The rules of each are in rules/modes.go.
const (
	ModeHeldBack        = "HeldBack"
	ModeStopping        = "Stopping"
	ModeUnrecorded      = "Unrecorded"
	ModePaused          = "Paused"
	ModeCreatingVolumes = "CreatingVolumes"
	ModeStarting        = "Starting"
	ModeBlind           = "Blind"
	ModeHasQuorum       = "HasQuorum"
)

// Mode is the one that the cluster is in.
func (f *Facts) Mode() string {
	if f.HeldBack() {
		return ModeHeldBack
	}
	return f.ModeOfEpoch()
}

// ModeOfEpoch is the one that the epoch is in, whether or not the cluster is held back.
func (f *Facts) ModeOfEpoch() string {
	switch {
	case f.Ending():
		return ModeStopping
	case f.Epoch == nil || f.Epoch.Record == nil:
		return ModeUnrecorded
	case f.Paused():
		return ModePaused
	case !f.Epoch.Provisioned():
		return ModeCreatingVolumes
	case f.Etcd == nil && !f.Epoch.HadQuorum():
		return ModeStarting
	case f.Etcd == nil:
		return ModeBlind
	}
	return ModeHasQuorum
}

// Paused reports whether members should be stopped and kept. Beside external members they would be missed, so they
// leave.
func (f *Facts) Paused() bool { return f.Replicas == 0 && !f.BesideExternal() }
