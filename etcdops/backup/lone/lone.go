// Package lone runs an etcd that is a cluster of its own. It listens at sockets in a directory of its own, so no one
// else reaches it, and it has no peers, so it reaches no other etcd.
package lone

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// Etcd is one process, and what it runs on.
type Etcd struct {
	// Program is the file of etcd.
	Program string
	// DataDir is its data directory, which was made for Name, Peer, Cluster and Token.
	DataDir string
	// Dir is where the sockets are made. Its path has 100 bytes at most: that of a socket has 108 (sun_path in
	// unix(7)).
	Dir string
	// Flags besides. Clients are served in plain text unless there are some for TLS, and then Secure is set.
	Flags  []string
	Secure bool
	// Env are more variables of the environment, as os.Environ has them.
	Env []string
	// EndsWithin is how long etcd may take to end when it is told to, before it is killed; 0 for 10 seconds.
	EndsWithin time.Duration
}

// The only member, and its cluster. Nothing listens at its peer URL.
const (
	Name    = "lone"
	Peer    = "http://127.0.0.1:1"
	Cluster = Name + "=" + Peer
	Token   = "quorate-lone" //nolint:gosec // a token of etcd is no secret
)

// endsWithin is plenty: an etcd without connections ends in some milliseconds, and gives clients 7 seconds
// (ReqTimeout in its config/config.go).
const endsWithin = 10 * time.Second

// Ended is the error of an etcd that ended by itself, or badly.
type Ended struct {
	// Said is the end of what it printed.
	Said *Words
	// Killed: by a signal that was not ours, as when it is out of memory.
	Killed bool
	// Err is what the operating system says.
	Err error
}

func (e *Ended) Error() string { return e.Words() }

// Words are what may be passed on: the process knew no secret (see [Bare]).
func (e *Ended) Words() string { return cmp.Or(e.Said.Last(), e.Err.Error()) }

func (e *Ended) Unwrap() error { return e.Err }

// Socket is where clients are served.
func (e Etcd) Socket() string { return filepath.Join(e.Dir, "c") }

// Run starts etcd, calls use beside it, and ends etcd when that returns. It returns what use does, or an [Ended]. Use
// returns when its context ends, as it does when etcd has ended.
//
// An etcd that does not end is killed. One connection on which nothing was sent is enough for that: etcd waits for
// its first bytes before it closes its database (Serve in cmux.go of soheilhy/cmux, for which Close in etcd's
// embed/etcd.go waits). What it has applied is in the database all the same: it is written there every 100 ms.
func (e Etcd) Run(ctx context.Context, use func(ctx context.Context) error) error {
	said := &Words{}
	process, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	cmd := exec.CommandContext(process, e.Program, e.args()...)
	cmd.Env = append(Bare(), e.Env...)
	cmd.Stdout = said
	cmd.Stderr = said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = cmp.Or(e.EndsWithin, endsWithin)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	using, stop := context.WithCancel(ctx)
	defer stop()
	used := make(chan error, 1)
	go func() { used <- use(using) }()
	select {
	case err := <-ended:
		stop()
		//nolint:errcheck // etcd has ended, which says why
		<-used
		return &Ended{Said: said, Killed: cmd.ProcessState.ExitCode() < 0, Err: err}
	case err := <-used:
		if err != nil && ctx.Err() == nil {
			select { // what use has seen may be that etcd has died
			case last := <-ended:
				return &Ended{Said: said, Killed: cmd.ProcessState.ExitCode() < 0, Err: last}
			case <-time.After(time.Second):
			}
		}
		end()
		if last := <-ended; cmd.ProcessState.ExitCode() > 0 && err == nil { // -1 is for a signal
			err = &Ended{Said: said, Err: last}
		}
		return err
	}
}

func (e Etcd) args() []string {
	scheme := "unix://"
	if e.Secure {
		scheme = "unixs://"
	}
	return append([]string{
		"--name=" + Name, "--data-dir=" + e.DataDir, "--listen-client-urls=" + scheme + e.Socket(),
		"--advertise-client-urls=http://127.0.0.1:1",
		"--listen-peer-urls=unix://" + filepath.Join(e.Dir, "p"), "--initial-advertise-peer-urls=" + Peer,
		"--initial-cluster=" + Cluster, "--initial-cluster-token=" + Token,
		"--initial-cluster-state=existing", "--log-level=warn", "--enable-grpc-gateway=false",
		// It has no quota that would refuse what was once accepted, and does not compact on its own.
		"--quota-backend-bytes=-1", "--auto-compaction-retention=0",
		// What is made here is written to the disk when it is done, or thrown away. When the power goes it is made
		// again.
		"--unsafe-no-fsync",
	}, e.Flags...)
}

// Bare is the environment of this process without credentials of stores, and without etcd's settings: those of a
// member are not meant for what is run here. What such a program says may be passed on: it knows no secret.
func Bare() []string {
	secret := stores.CredentialVariables()
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return strings.HasPrefix(name, "ETCD") || slices.Contains(secret, name)
	})
}
