package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/quorate-dev/quorate/hooks"
)

// errDataLost is the refusal to start a member without the data that it had.
var errDataLost = errors.New("the member's data is lost")

// prepare lets a member start, or not, before etcd does. A member that has run before and finds its data directory empty
// would start all the same, under its old identity with an empty log: it could vote a second time in a term and lose
// writes that were acknowledged. Refused, it is replaced by a new member (S10).
//
// Start says what is known of the member (hooks.StartBootstrap, StartJoin, StartResume). The marker is a file outside of
// the data's volume that lives as long as the pod: when it is there, this pod has started before, whatever start says. It
// is written here. A member that may start gets nil; errDataLost says that it may not; any other error, that it is not
// known (a volume that can't be read is not an empty one).
//
// A log on a volume of its own (walDir; else empty) is half of the data: without it etcd begins anew whatever else there is, and without
// the rest it knows nothing that came before its last snapshot.
func prepare(dataDir, walDir, start, marker string) error {
	switch start {
	case hooks.StartBootstrap, hooks.StartJoin, hooks.StartResume:
	default:
		return fmt.Errorf("--start must be %s, %s or %s, not %q", hooks.StartBootstrap, hooks.StartJoin, hooks.StartResume, start)
	}
	data, err := hasData(dataDir, walDir)
	if err != nil {
		return fmt.Errorf("the data directory can't be read: %w", err)
	}
	started, err := exists(marker)
	if err != nil {
		return fmt.Errorf("the marker can't be read: %w", err)
	}
	switch {
	case !data && start == hooks.StartResume:
		return fmt.Errorf("%w: it has run before, but %s; it will be replaced", errDataLost, lacks(dataDir, walDir))
	case !data && started:
		return fmt.Errorf("%w: this pod has started before, but %s; it will be replaced", errDataLost, lacks(dataDir, walDir))
	case started:
		return nil
	}
	if err := writeMarker(marker); err != nil {
		return fmt.Errorf("the marker can't be written: %w", err)
	}
	return nil
}

// lacks says what is missing.
func lacks(dataDir, walDir string) string {
	if walDir == "" {
		return dataDir + " holds no write-ahead log"
	}
	return fmt.Sprintf("%s holds no write-ahead log, or %s not what belongs to it", walDir, dataDir)
}

// hasData reports whether etcd would resume from this directory. etcd looks for a file *.wal in member/wal, or where else its log is to
// be (wal.Exist), and starts anew without one, whatever else is there; member/snap is made before the first *.wal, so a log without it is
// not etcd's work.
func hasData(dataDir, walDir string) (bool, error) {
	if walDir == "" {
		walDir = filepath.Join(dataDir, "member", "wal")
	}
	entries, err := os.ReadDir(walDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".wal" {
			return exists(filepath.Join(dataDir, "member", "snap"))
		}
	}
	return false, nil
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// writeMarker makes the marker, on the disk when it returns.
func writeMarker(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
