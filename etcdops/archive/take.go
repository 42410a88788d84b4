package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/quorate-dev/quorate/hooks"
)

// Order is what `quorate-snapshot snapshot` is asked for.
type Order struct {
	Cluster Cluster
	Place   Place
	// Key is the artifact's name in the store. One that is there and as wanted is reported again; another one is replaced.
	Key  string
	Form Form
	// Verify has the artifact fetched again and restored on trial.
	Verify bool
	// Etcdutl is the binary of that name, of the members' version; Scratch is a directory with room for twice the database.
	Etcdutl, Scratch string
	// UnlessRevision takes none while the keys have this revision; 0 takes one.
	UnlessRevision int64
	Log            *slog.Logger
}

// Take takes a snapshot, stores it, and verifies it. The report says what is known, with an error too: an artifact whose record is written
// is whole, though its verification may not have ended.
func Take(ctx context.Context, o Order) (hooks.SnapshotReport, error) {
	report := hooks.SnapshotReport{}
	err := o.take(ctx, &report)
	if err != nil {
		report.Error = Words(err)
	}
	return report, err
}

func (o Order) take(ctx context.Context, report *hooks.SnapshotReport) error {
	started := time.Now().UTC()
	if err := checkKey(o.Key); err != nil {
		return err
	}
	store, err := openStore(ctx, o.Place, true)
	if err != nil {
		return err
	}
	defer store.Close()
	if done, err := o.done(ctx, store); err != nil {
		return err
	} else if done != nil {
		*report = *done
		o.Log.Info("an earlier run has stored it", "to", store.url.Words(), "completed", done.Completed)
		return nil
	}
	members, err := o.Cluster.choose(ctx)
	if err != nil {
		return err
	}
	from := members[0]
	if newest := newestRevision(members); o.UnlessRevision != 0 && newest == o.UnlessRevision {
		report.Skipped, report.Revision = true, newest
		o.Log.Info("skipped: the keys have not changed", "revision", newest)
		return nil
	}
	o.Log.Info("taking a snapshot", "member", from.name, "leader", from.leader, "revision", from.status.GetHeader().GetRevision(), "to", store.url.Words())
	stored, back, err := o.store(ctx, store, from)
	if err != nil {
		return err
	}
	stored.Started, stored.Completed = started.Truncate(time.Second), time.Now().UTC().Truncate(time.Second)
	// What it holds exactly is known after verification; until then, that it is not older than what the member had before.
	stored.Revision = from.status.GetHeader().GetRevision()
	stored.EtcdVersion, stored.Member = from.status.GetVersion(), from.name
	stored.ClusterID = fmt.Sprintf("%x", from.status.GetHeader().GetClusterId())
	o.Log.Info("stored", "size", stored.Size, "storedSize", stored.StoredSize, "sha256", stored.SHA256, "took", time.Since(started).Round(time.Millisecond))
	report.Artifact = *stored
	return o.conclude(ctx, store, members, back, report)
}

// done is what an earlier run for the same artifact has reported: its record says it, and is written last. A Job runs again when its pod or
// its report is lost; it must not take another snapshot then. Nil without a record, or with one that does not say what is wanted now.
func (o Order) done(ctx context.Context, store *Store) (*hooks.SnapshotReport, error) {
	text, err := store.readAll(ctx, o.Key+recordSuffix)
	if err != nil {
		if reason := store.reason(err); reason == NotFound || reason == Denied {
			return nil, nil // whoever may only write takes it again
		}
		return nil, store.storeFailure(err, store.about("reading", o.Key+recordSuffix))
	}
	report := &hooks.SnapshotReport{}
	if err := json.Unmarshal(text, report); err != nil || report.SHA256 == "" || o.Verify && report.VerifiedAt.IsZero() {
		return nil, nil //nolint:nilerr // what can't be read is no record
	}
	if there, err := store.bucket.Attributes(ctx, o.Key); err != nil || there.Size != report.StoredSize {
		return nil, nil //nolint:nilerr // the artifact is not whole, so it is taken again
	}
	return report, nil
}

// conclude verifies what is stored, if that is asked for, and writes its record. What was disproved, or is no longer wanted, is removed; what
// could not be verified for another reason is kept: it may be all that there is.
func (o Order) conclude(ctx context.Context, store *Store, members []member, back age.Identity, report *hooks.SnapshotReport) error {
	var doubt error
	if o.Verify {
		doubt = o.verify(ctx, store, members, back, report)
		if ctx.Err() != nil || ReasonOf(doubt) == Damaged {
			report.Artifact = hooks.Artifact{}
			return store.cleared(ctx, o.Key, cmpError(doubt, ctx.Err()))
		}
	}
	if o.Verify && doubt == nil {
		report.VerifiedAt = time.Now().UTC().Truncate(time.Second)
	}
	if err := store.finish(ctx, o.Key, report); err != nil {
		*report = hooks.SnapshotReport{}
		return err
	}
	if doubt != nil {
		reason, kept := ReasonOf(doubt), store.named(o.Key)
		return failure(reason, doubt, "%s is stored, but not verified", kept)
	}
	if o.Verify {
		o.Log.Info("verified", "revision", report.Revision, "keys", report.Keys, "hash", report.Hash)
	}
	return nil
}

func cmpError(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func newestRevision(members []member) int64 {
	return slices.MaxFunc(members, func(a, b member) int {
		return int(a.status.GetHeader().GetRevision() - b.status.GetHeader().GetRevision())
	}).status.GetHeader().GetRevision()
}

// store streams the snapshot of one member, and of nobody else, into the store.
func (o Order) store(ctx context.Context, store *Store, from member) (*hooks.Artifact, age.Identity, error) {
	client, err := o.Cluster.client(from.urls...)
	if err != nil {
		return nil, nil, failure(Unreachable, byEtcd(err), "no client for member %s", from.name)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return nil, nil, failure(Unreachable, byEtcd(err), "member %s gives no snapshot", from.name)
	}
	defer snapshot.Close()
	stored, back, err := store.put(ctx, o.Key, snapshot, o.Form)
	var source *readError
	if errors.As(err, &source) {
		words := "the snapshot of member %s broke off; it will be tried again"
		if strings.Contains(err.Error(), "permission denied") {
			words = "member %s refuses us a snapshot: the certificate must be that of a user with the role root"
		}
		return nil, nil, failure(Unreachable, source, words, from.name)
	}
	return stored, back, err
}
