package membership

import (
	"errors"
	"fmt"

	"github.com/quorate-dev/quorate/etcdops"
)

// Version is the cluster's, which its leader sets: the lowest minor version of the members. It never goes down by
// itself, and no member of a lower version runs, unless a downgrade was enabled.
type Version struct {
	// Agreed is the minor version that the cluster has agreed on, Downgrade the one that it goes down to; 0 for none.
	Agreed, Downgrade uint8
}

// Decide is what the leader sets, of the lowest and the highest minor version of the members that run.
// (decideClusterVersion and CancelDowngradeIfNeeded in etcdserver/version/monitor.go.)
func (v Version) Decide(lowest, highest uint8, allRun bool) Version {
	switch target := v.Downgrade; {
	case target != 0:
		v.Agreed = target
		if allRun && lowest == target && highest == target {
			v.Downgrade = 0
		}
	case allRun:
		v.Agreed = max(v.Agreed, lowest)
	}
	return v
}

// EnableDowngrade is one minor version down from what is agreed on. (downgradeValidate in etcdserver/v3_server.go.)
func (v Version) EnableDowngrade(to uint8) (Version, error) {
	if v.Downgrade != to && (v.Downgrade != 0 || v.Agreed != to+1) {
		return v, etcdops.ErrDowngradeTarget
	}
	v.Downgrade = to
	return v, nil
}

// Takes is why an etcd of this minor version does not start in the cluster. A member that has run knows of a downgrade
// from its data, and may start as it was while that is under way, or with the lower version once the cluster has agreed
// on that. (3.5 does not wait for it.) New ones don't join then. (isCompatibleWithCluster in
// etcdserver/cluster_util.go, MustDetectDowngrade in etcdserver/version/downgrade.go.)
func (v Version) Takes(minor uint8, isNew bool) error {
	switch {
	case isNew && v.Downgrade != 0:
		return errors.New("incompatible with current running cluster")
	case v.Downgrade != 0 && minor != v.Downgrade && (minor != v.Downgrade+1 || v.Agreed != v.Downgrade):
		return fmt.Errorf("invalid downgrade; server version is not allowed to join when downgrade is enabled to 3.%d",
			v.Downgrade)
	case minor < v.Agreed:
		return fmt.Errorf("invalid downgrade; server version is lower than determined cluster version 3.%d", v.Agreed)
	}
	return nil
}
