// Package prepare guards a member's data directory before etcd starts: the command quorate prepare, which runs as an
// init container.
package prepare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/quorate-dev/quorate/etcdops/datadir"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// ErrDataLost is the refusal to start a member without the data that it had.
var ErrDataLost = errors.New("the member's data is lost")

// check lets a member start, or not, before etcd does. A member that has run before and finds its data directory empty
// would start all the same, under its old identity with an empty log: it could vote a second time in a term and lose
// writes that were acknowledged. Refused, it is replaced by a new member (S10).
//
// Start says what is known of the member (objects.StartBootstrap, StartJoin, StartResume). The marker is a file outside
// of the data's volume that lives as long as the pod: when it is there, this pod has started before, whatever start
// says. It is written here, and with it a mark where the log will be: see mark.go. While that is there, etcd has not
// begun. A member that may start gets nil; ErrDataLost says that it may not; any other error, that it is not known (a
// volume that can't be read is not an empty one).
//
// A log on a volume of its own (walDir; else empty) is half of the data: without it etcd begins from nothing whatever
// else there is, and without the rest it knows nothing that came before its last snapshot.
func check(dataDir, walDir, start, marker string) error {
	switch start {
	case objects.StartBootstrap, objects.StartJoin, objects.StartResume:
	default:
		return fmt.Errorf("--start must be %s, %s or %s, not %q", objects.StartBootstrap, objects.StartJoin,
			objects.StartResume, start)
	}
	data, err := datadir.HasData(dataDir, walDir)
	if err != nil {
		return fmt.Errorf("the data directory can't be read: %w", err)
	}
	word, started, err := read(marker)
	if err != nil {
		return fmt.Errorf("the marker can't be read: %w", err)
	}
	switch {
	case data && started:
		return nil
	case !data && start == objects.StartResume:
		return fmt.Errorf("%w: it has run before, but %s; it will be replaced", ErrDataLost, lacks(dataDir, walDir))
	case started:
		began, err := mayHaveBegun(dataDir, walDir, word)
		if err != nil {
			return fmt.Errorf("the data directory can't be read: %w", err)
		}
		if began {
			return fmt.Errorf("%w: this pod has started before, but %s; it will be replaced", ErrDataLost,
				lacks(dataDir, walDir))
		}
		return nil
	}
	return leaveMark(dataDir, walDir, marker)
}

// lacks says what is missing.
func lacks(dataDir, walDir string) string {
	if walDir == "" {
		return dataDir + " holds no write-ahead log"
	}
	return fmt.Sprintf("%s holds no write-ahead log, or %s not what belongs to it", walDir, dataDir)
}

// await waits until the file holds more than white space: it says then that the member may start. The file is a
// projection of an annotation, which the kubelet replaces when that changes; until then it is empty. Without a file
// there is no wait.
func await(ctx context.Context, file string) error {
	if file == "" {
		return nil
	}
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		words, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("what is waited for can't be read: %w", err)
		}
		if len(bytes.TrimSpace(words)) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ended while it waited for %s to say that the member may start", file)
		case <-look.C:
		}
	}
}
