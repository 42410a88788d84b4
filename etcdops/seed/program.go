package seed

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quorate-dev/quorate/etcdops/archive"
)

// Programs are etcd's own, of the version that the member will run.
type Programs struct {
	Etcd, Etcdutl string
	// EndsWithin is how long etcd may take to end when it is told to, before it is killed; 0 for 10 seconds.
	EndsWithin time.Duration
}

// endsWithin is plenty: an etcd with nobody at its listeners ends in some milliseconds, and gives clients 7 seconds (ReqTimeout in its
// config/config.go).
const endsWithin = 10 * time.Second

// words keeps the end of what a program says, for the case that it fails.
type words struct{ bytes.Buffer }

// wordsKept is enough for the last lines; a termination message holds 4096 bytes in all.
const wordsKept = 16 << 10

func (w *words) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if over := w.Len() - wordsKept; over > 0 {
		w.Next(over)
	}
	return n, err
}

// last is the last line that says something, in a length fit for a message.
func (w *words) last() string {
	lines := strings.Split(strings.TrimSpace(w.String()), "\n")
	line := lines[len(lines)-1]
	for _, l := range lines { // etcd's loggers write a fatal error and then what follows from it
		if strings.Contains(l, `"level":"fatal"`) || strings.Contains(l, `"level":"panic"`) || strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "Error:") {
			line = l
			break
		}
	}
	return line[:min(len(line), 600)]
}

// member is who a data directory is made for.
type member struct {
	name, peerURL, initialCluster, token string
}

// restore makes a data directory of a database with etcdutl. Bump raises the revision and marks all before as compacted. The checksum
// behind a snapshot is known to be good already, and a database of a member has none.
func (p Programs) restore(ctx context.Context, db, dataDir, walDir string, m member, bump int64) error {
	args := []string{
		"snapshot", "restore", db, "--data-dir=" + dataDir, "--name=" + m.name, "--initial-advertise-peer-urls=" + m.peerURL,
		"--initial-cluster=" + m.initialCluster, "--initial-cluster-token=" + m.token, "--skip-hash-check",
	}
	if walDir != "" {
		args = append(args, "--wal-dir="+walDir)
	}
	if bump > 0 {
		args = append(args, fmt.Sprintf("--bump-revision=%d", bump), "--mark-compacted")
	}
	var said words
	cmd := exec.CommandContext(ctx, p.Etcdutl, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = bare(), &said, &said
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return failure(Failed, nil, "ended while etcdutl restored; what it made is removed at the next try")
	case strings.Contains(said.String(), "no space left on device"):
		return failure(NoSpace, nil, "%s has no room left for the database of %s", dataDir, megabytes(sizeOf(db)))
	}
	return failure(Failed, archive.OwnWords("%s", said.last()), "etcdutl could not restore the database: %s", archive.Words(err))
}

// bare is an environment without credentials, and without etcd's settings: those of the member to
// be are not meant for what is run here.
func bare() []string {
	return slices.DeleteFunc(archive.BareEnviron(), func(pair string) bool { return strings.HasPrefix(pair, "ETCD") })
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// replay starts etcd on a data directory of a cluster of its own, waits until it has applied an entry, and ends it. Nobody else reaches
// it, since it listens on sockets in a directory that is its own, and it reaches nobody, since it has no peers.
//
// An etcd that does not end is killed. One connection on which nothing was sent is enough for that: etcd waits for its first bytes before it
// closes its database (Serve in cmux.go of soheilhy/cmux, for which Close in etcd's embed/etcd.go waits). What it has applied is in the database all
// the same: it is written there every 100 ms.
func (p Programs) replay(ctx context.Context, dataDir, dir string, m member, index uint64) error {
	client, peer := filepath.Join(dir, "c"), filepath.Join(dir, "p")
	var said words
	process, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	cmd := exec.CommandContext(process, p.Etcd,
		"--name="+m.name, "--data-dir="+dataDir, "--listen-client-urls=unix://"+client, "--advertise-client-urls=http://127.0.0.1:1",
		"--listen-peer-urls=unix://"+peer, "--initial-advertise-peer-urls="+m.peerURL, "--initial-cluster="+m.initialCluster, "--initial-cluster-token="+m.token,
		"--initial-cluster-state=existing", "--log-level=warn",
		// It neither refuses what was once accepted for want of room, nor forgets history on its own.
		"--quota-backend-bytes=-1", "--auto-compaction-retention=0",
		// What is made here is copied when it is done, and made anew when the power goes.
		"--unsafe-no-fsync")
	cmd.Env, cmd.Stdout, cmd.Stderr = bare(), &said, &said
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, cmp.Or(p.EndsWithin, endsWithin)
	if err := cmd.Start(); err != nil {
		return failure(Failed, err, "etcd could not be started on the survivor's data")
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	applied := make(chan error, 1)
	go func() { applied <- awaitApplied(ctx, client, index) }()
	select {
	case err := <-ended:
		return failure(Failed, archive.OwnWords("%s", said.last()), "etcd ended on the survivor's data: %s", archive.Words(err))
	case err := <-applied:
		end()
		if last := <-ended; cmd.ProcessState.ExitCode() > 0 && err == nil { // -1 is for a signal
			err = failure(Failed, archive.OwnWords("%s", said.last()), "etcd ended badly on the survivor's data: %s", archive.Words(last))
		}
		return err
	}
}

// awaitApplied asks etcd until it has applied an entry of the log. Its metrics say so to everybody; where users are enabled, Status does not.
func awaitApplied(ctx context.Context, socket string, index uint64) error {
	// Without keep-alive no connection is left that nothing was sent on.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for {
		if applied, err := appliedIndex(ctx, client); err == nil && applied >= index {
			return nil
		}
		select {
		case <-ctx.Done():
			return failure(Failed, nil, "ended while etcd took up the survivor's log")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// appliedMetric is the index of the last entry that was applied, whatever its name says (etcdserver/metrics.go and server.go).
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
