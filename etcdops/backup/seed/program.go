package seed

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/lone"
)

// Programs are etcd's own, of the version that the member will run.
type Programs struct {
	Etcd, Etcdutl string
	// endsWithin is how long etcd may take to end when it is told to, before it is killed; 0 for 10 seconds.
	endsWithin time.Duration
}

// member is who a data directory is made for.
type member struct {
	name, peerURL, initialCluster, token string
}

// restore makes a data directory of a database with etcdutl. Bump raises the revision and marks all before as
// compacted. The checksum behind a snapshot is known to be good already, and a database of a member has none.
func (p Programs) restore(ctx context.Context, db, dataDir, walDir string, m member, bump int64) error {
	args := []string{
		"snapshot", "restore", db, "--data-dir=" + dataDir, "--name=" + m.name, "--initial-advertise-peer-urls=" +
			m.peerURL,
		"--initial-cluster=" + m.initialCluster, "--initial-cluster-token=" + m.token, "--skip-hash-check",
	}
	if walDir != "" {
		args = append(args, "--wal-dir="+walDir)
	}
	if bump > 0 {
		args = append(args, fmt.Sprintf("--bump-revision=%d", bump), "--mark-compacted")
	}
	var said lone.Words
	cmd := exec.CommandContext(ctx, p.Etcdutl, args...)
	cmd.Env = lone.Bare()
	cmd.Stdout = &said
	cmd.Stderr = &said
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return failure(failed, nil, "ended while etcdutl restored; the next try removes what it created")
	case said.Has(fullWords...):
		return failure(noSpace, nil, "%s has no room left for the first of the log; make the volume larger",
			cmp.Or(walDir, dataDir))
	}
	killed := cmd.ProcessState != nil && cmd.ProcessState.ExitCode() < 0
	return failure(failed, &lone.Ended{Said: &said, Killed: killed, Err: err}, "etcdutl could not restore the database: %s",
		archive.Words(err))
}

// replay starts etcd on a data directory of a cluster of its own, with its sockets in dir, waits until it has applied
// an entry, and ends it.
func (p Programs) replay(ctx context.Context, on staged, dir string, index uint64) error {
	e := lone.Etcd{Program: p.Etcd, DataDir: on.dataDir, Flags: []string{"--wal-dir=" + on.log()}, Dir: dir,
		EndsWithin: p.endsWithin}
	err := e.Run(ctx, func(ctx context.Context) error { return awaitApplied(ctx, e.Socket(), index) })
	var ended *lone.Ended
	if errors.As(err, &ended) {
		return failure(failed, ended, "etcd ended on the survivor's data: %s", archive.Words(ended.Err))
	}
	if err != nil && !archive.Reasoned(err) {
		return failure(failed, err, "etcd could not be started on the survivor's data")
	}
	return err
}

// awaitApplied asks etcd until it has applied an entry of the log. Its metrics say so to every client; where users are
// enabled, Status does not.
func awaitApplied(ctx context.Context, socket string, index uint64) error {
	// Without keep-alive no connection is left that nothing was sent on.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
	for {
		if applied, err := appliedIndex(ctx, client); err == nil && applied >= index {
			return nil
		}
		select {
		case <-ctx.Done():
			return failure(failed, nil, "ended while etcd took up the survivor's log")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// appliedMetric is the index of the last entry that was applied, whatever its name says (etcdserver/metrics.go and
// server.go).
const appliedMetric = "etcd_server_proposals_applied_total "

func appliedIndex(ctx context.Context, client *http.Client) (uint64, error) {
	// A member that is busy with its log answers late.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), appliedMetric); found {
			index, err := strconv.ParseFloat(value, 64)
			return uint64(index), err
		}
	}
	return 0, errors.Join(errors.New("etcd does not say what it has applied"), lines.Err())
}
