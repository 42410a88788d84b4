package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"time"

	"filippo.io/age"

	"github.com/quorate-dev/quorate/etcdops/backup/lone"
	"github.com/quorate-dev/quorate/hooks/contents"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// verify fetches what is stored, restores it on trial, starts etcd on that, and compares: the bytes with those that
// were written, the restored database with the fetched one, what etcd says of it with what is in it, and all with
// members that run. The report then says what the artifact holds. An error with the reason Damaged says that it is
// disproved, Stale that it is older than was asked for; any other, that this is not known. Only what is in the store
// can be disproved: no fault of a disk of this machine is taken for one of the artifact.
func (o Order) verify(ctx context.Context, store *store, all []member, back age.Identity,
	report *stores.Snapshot) error {
	scratch, err := os.MkdirTemp(o.Scratch, "verify-")
	if err != nil {
		return localFailure(err, o.Scratch)
	}
	defer func() {
		if err := os.RemoveAll(scratch); err != nil { // it goes with the pod
			o.Log.Warn("the scratch directory can't be cleared", "error", err)
		}
	}()
	file := filepath.Join(scratch, "snapshot.db")
	var identities []age.Identity
	if back != nil {
		identities = append(identities, back)
	}
	found, err := store.fetchFile(ctx, o.Key, identities, report.Size, file)
	if err == nil {
		err = agree(store.named(o.Key), &report.Artifact, found, "")
	}
	if err != nil {
		return err
	}
	account := contents.New()
	holds, err := o.tried(ctx, file, scratch, report, account)
	if err != nil {
		return o.proven(ctx, file, found.SHA256, err)
	}
	if holds.Revision < report.Revision || holds.AuthRevision < report.AuthRevision {
		return failure(stale, nil, "the snapshot ends at revision %d, and that of users and roles is %d; when it was "+
			"asked for the cluster was at %d and %d: member %s lags, and its status does not say so",
			holds.Revision, holds.AuthRevision, report.Revision, report.AuthRevision, report.Member)
	}
	if err := o.compare(ctx, all, holds, report); err != nil {
		return err
	}
	report.Revision = holds.Revision
	report.CompactRevision = holds.CompactRevision
	report.AuthRevision = holds.AuthRevision
	report.Keys = max(holds.Keys, 0)
	report.Hash = holds.Hash
	o.tellContents(ctx, store, account, holds, report)
	return nil
}

// tried restores a snapshot on trial and starts etcd on it, and says what it holds. The report is that of what is
// stored.
func (o Order) tried(ctx context.Context, file, scratch string, report *stores.Snapshot,
	account *contents.Account) (*Contents, error) {
	done := o.stopwatch()
	fetched, err := Account(ctx, file, account)
	if err == nil && fetched.Free.Lost > 0 {
		err = failure(Damaged, nil, "%d pages are neither in use nor in the list of free pages", fetched.Free.Lost)
	}
	if ReasonOf(err) == Damaged {
		return nil, failure(Damaged, err, "there are damaged pages in the database of the snapshot")
	}
	if err != nil {
		return nil, err
	}
	done("examined")
	account.Settle()
	debug.FreeOSMemory() // the programs that are run next share our limit
	dir := filepath.Join(scratch, "restored")
	if err := o.restore(ctx, file, dir, fetched); err != nil {
		return nil, err
	}
	done("restored on trial")
	if o.Tell != nil {
		last := *report
		last.Error = Words(outOfMemory("the pod was killed while etcd started", fetched))
		o.Tell(&last)
		defer o.Tell(nil)
	}
	if err := o.trial(ctx, dir, scratch, fetched); err != nil {
		return nil, err
	}
	done("etcd has served it")
	return fetched, nil
}

// stopwatch logs how long each part took.
func (o Order) stopwatch() func(what string) {
	since := time.Now()
	return func(what string) {
		o.Log.Info(what, "took", time.Since(since).Round(time.Millisecond))
		since = time.Now()
	}
}

// proven is an error about a file in the scratch directory. That the snapshot is damaged is believed only while the
// file holds what was fetched: a disk that loses data, or can't be read, says nothing of what is stored.
func (o Order) proven(ctx context.Context, file, sha256 string, err error) error {
	if ReasonOf(err) != Damaged {
		return err
	}
	if ctx.Err() != nil {
		return failure(Failed, ctx.Err(), "the verification was stopped")
	}
	switch sum, wrong := sumOf(file); {
	case wrong != nil:
		return failure(Failed, wrong, "the scratch disk in %s can't be read: whether the snapshot is whole is not "+
			"known", o.Scratch)
	case sum != sha256:
		return failure(Failed, err, "the scratch disk in %s does not hold what was written to it: whether the "+
			"snapshot is whole is not known", o.Scratch)
	}
	return err
}

// sumOf is the SHA-256 of a file in hexadecimal.
func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// restore restores a snapshot on trial, in its place.
func (o Order) restore(ctx context.Context, file, dir string, holds *Contents) error {
	err := o.Restore(ctx, file, dir, holds)
	const doing = "restores the snapshot on trial"
	var ended *lone.Ended
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ended):
		return o.failed(ctx, "etcdutl", doing, ended)
	case ReasonOf(err) == NoSpace:
		return o.noSpace("etcdutl", doing)
	}
	return failure(Failed, err, "the snapshot can be read, and not restored on trial")
}

// Words by which programs of etcd tell of a disk that is full, and of one that fails. A fault is that of a mapped
// page that can't be read.
var (
	fullWords   = []string{"no space left on device", "disk quota exceeded"}
	faultyWords = []string{"input/output error", "read-only file system", "unexpected fault address", "SIGBUS"}
)

// failed says what it means that a program of etcd failed on what was fetched.
func (o Order) failed(ctx context.Context, program, doing string, ended *lone.Ended) error {
	said := ended.Said
	err := ended.Err
	switch {
	case ctx.Err() != nil:
		return failure(Failed, ctx.Err(), "stopped while %s %s", program, doing)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return failure(Failed, err, "%s does not exist here: the container must run in an etcd image", program)
	case said.Has(fullWords...):
		return o.noSpace(program, doing)
	case said.Panicked() && !said.Has(faultyWords...):
		return failure(Differs, OwnWords("%s", said.Last()), "%s ends in a panic while it %s", program, doing)
	case ended.Killed:
		return failure(Failed, err, "%s was killed while it %s: if it was out of memory, raise "+
			"spec.job.resources.limits.memory", program, doing)
	}
	return failure(Failed, OwnWords("%s", said.Last()), "%s fails while it %s", program, doing)
}

func (o Order) noSpace(program, doing string) error {
	return failure(NoSpace, nil, "no space is left in %s while %s %s: it needs the size of the database and 256 MiB; free "+
		"some space on the node", o.Scratch, program, doing)
}
