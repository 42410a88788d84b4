package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// Order is what `quorate-snapshot snapshot` is asked for.
type Order struct {
	Cluster Cluster
	Place   Place
	// Key is the artifact's name in the store. One that is there whole is not taken again.
	Key  string
	Form Form
	// Verify has the artifact fetched again and restored on trial.
	Verify bool
	// Etcd is the binary of that name, of the members' version; Scratch is a directory with room for the database and
	// 256 MiB, for a log and to spare. Its path has some 70 bytes at most, for the sake of sockets in it.
	Etcd, Scratch string
	// Restore makes of a database, in which something was found, the data directory of a cluster of one (see
	// [lone.Etcd]). It moves it there.
	Restore func(ctx context.Context, database, dataDir string, holds *Contents) error
	// Unless the cluster is as it was a snapshot is taken; nil takes one in any case.
	Unless *Unless
	// Tell is told before etcd is started on trial what must be reported if this process does not live to do so: a
	// kernel that has no memory for etcd kills both. It is told nil when etcd has ended. May be nil.
	Tell func(*stores.Snapshot)
	Log  *slog.Logger
}

// Unless is what a cluster was like when it was last stored.
type Unless struct {
	Revision int64
	// ClusterID in hexadecimal; that of a cluster that was made again under the same name is another one.
	ClusterID string
	// AuthRevision of users and roles, which don't raise the other one (AuthStatusResponse in etcd's rpc.proto).
	AuthRevision int64
}

// Reasons, as those of [ReasonOf], for which the snapshot of another member may do where one did not.
const (
	// stale: the database lacks what had been written before it was asked for.
	stale = "Stale"
	// Differs: etcd makes something else of the database than is in its records.
	Differs = "Differs"
)

// Take takes a snapshot, stores it, and verifies it. The report says what is stored (URI), with an error too: then it
// is not verified.
//
// What is stored has its record before it is verified, so that a run that is stopped then leaves it whole, and the
// next run verifies it. It is removed only when it is disproved, and replaced only by another one that is whole.
func Take(ctx context.Context, o Order) (stores.Snapshot, error) {
	report := stores.Snapshot{}
	err := o.take(ctx, &report)
	if report.Absent = report.Absent && err != nil; err != nil {
		report.Error = cmp.Or(Words(err), "it failed, for a reason that is not known")
	}
	return report, err
}

// Look reports what is stored under a name, whole; Absent when nothing is.
func Look(ctx context.Context, place Place, key string) (stores.Snapshot, error) {
	if err := checkKey(key); err != nil {
		return stores.Snapshot{}, err
	}
	store, err := openStore(ctx, place, false)
	if err != nil && ReasonOf(err) == NotFound {
		return stores.Snapshot{Absent: true}, nil // a folder that was never made
	}
	if err != nil {
		return stores.Snapshot{}, err
	}
	defer store.Close()
	switch report, _, err := store.kept(ctx, key); {
	case err != nil:
		return stores.Snapshot{}, err
	case report == nil:
		return stores.Snapshot{Absent: true}, nil
	default:
		return *report, nil
	}
}

func (o Order) take(ctx context.Context, report *stores.Snapshot) error {
	if err := checkKey(o.Key); err != nil {
		return err
	}
	store, err := openStore(ctx, o.Place, true)
	if err != nil {
		return err
	}
	defer store.Close()
	store.lock = o.Form.Lock
	earlier, tag, err := store.kept(ctx, o.Key)
	switch {
	case err != nil && (ReasonOf(err) != Denied || isUnauthenticated(err)): // who may only write takes it again
		return err
	case earlier == nil:
		report.Absent = err == nil
		return o.fresh(ctx, store, report)
	}
	*report = *earlier
	store.tag = tag
	if !o.Verify || !earlier.VerifiedAt.IsZero() {
		o.Log.Info("an earlier run has stored it", "key", o.Key, "completed", earlier.Completed)
		return nil
	}
	if earlier.Encrypted { // only the process that stored it can open it without an identity
		o.Log.Info("an earlier run stored it without verifying it; it is encrypted, so a new one replaces it", "key",
			o.Key)
		return o.fresh(ctx, store, report)
	}
	o.Log.Info("an earlier run has stored it; it is verified now", "key", o.Key, "completed", earlier.Completed)
	if err = o.conclude(ctx, store, o.Cluster.witnesses(ctx), nil, report); another(err) && ctx.Err() == nil {
		o.Log.Warn("the artifact of an earlier run can't be used: a new one is taken", "reason", Words(err))
		return o.fresh(ctx, store, report)
	}
	return err
}

// kept is what an earlier run has left whole under a name, as its record tells, which is written last, and its tag;
// nil for nothing. A Job runs again when its pod or its report is lost.
func (s *store) kept(ctx context.Context, key string) (*stores.Snapshot, string, error) {
	text, err := s.readAll(ctx, key+recordSuffix)
	if err != nil {
		if s.reason(err) == NotFound {
			return nil, "", nil
		}
		return nil, "", s.storeFailure(err, s.about("reading", key+recordSuffix))
	}
	report := &stores.Snapshot{}
	if err := json.Unmarshal(text, report); err != nil || report.SHA256 == "" {
		return nil, "", nil //nolint:nilerr // what can't be read is no record
	}
	there, err := s.bucket.Attributes(ctx, key)
	switch {
	case err != nil && s.reason(err) == NotFound, err == nil && there.Size != report.StoredSize:
		return nil, "", nil
	case err != nil:
		return nil, "", s.storeFailure(err, s.about("looking at", key))
	}
	return report, s.tagOf(there), nil
}

// fresh takes a snapshot from the first member whose snapshot holds. The report may have what an earlier run has
// left: it stays until there is another.
func (o Order) fresh(ctx context.Context, store *store, report *stores.Snapshot) error {
	from, all, asked, err := o.Cluster.choose(ctx)
	if err != nil {
		return err
	}
	if report.URI == "" && o.unchanged(asked) {
		report.Skipped = true
		report.Revision = asked.revision
		report.AuthRevision = asked.authRevision
		report.ClusterID = fmt.Sprintf("%x", asked.cluster)
		o.Log.Info("skipped: nothing has changed", "revision", asked.revision, "authRevision", asked.authRevision)
		return nil
	}
	for i, m := range from {
		err = o.from(ctx, store, m, all, asked, report)
		if err == nil || !another(err) || ctx.Err() != nil {
			return err
		}
		if i+1 < len(from) {
			o.Log.Warn("the snapshot of this member won't do: another one is asked", "member", m.name, "next",
				from[i+1].name, "reason", Words(err))
		}
	}
	return err
}

// unchanged reports whether the cluster is the one that need not be stored again.
func (o Order) unchanged(asked bound) bool {
	u := o.Unless
	return u != nil && asked.revision == u.Revision && fmt.Sprintf("%x", asked.cluster) == u.ClusterID &&
		asked.authRevision == u.AuthRevision
}

// another reports whether the snapshot of another member may do where this one did not.
func another(err error) bool {
	switch ReasonOf(err) {
	case Damaged, stale, Differs:
		return true
	}
	return false
}

// from takes the snapshot of one member.
func (o Order) from(ctx context.Context, store *store, m member, all []member, asked bound,
	report *stores.Snapshot) error {
	if report.Absent { // it was looked some time ago
		switch now, _, err := store.kept(ctx, o.Key); {
		case err != nil:
			return err
		case now != nil:
			return o.givesWay(ctx, store, report)
		}
	}
	started := now()
	o.Log.Info("taking a snapshot", "member", m.name, "leader", m.leader, "revision", asked.revision, "key", o.Key)
	stored, back, err := o.store(ctx, store, m, !report.Absent)
	if errors.Is(err, errReplaced) {
		return o.givesWay(ctx, store, report)
	}
	if err != nil {
		return err
	}
	stored.Started = started
	stored.Completed = now()
	// What it holds exactly is known after verification; until then, that it has what was written before it was asked
	// for.
	stored.Revision = asked.revision
	stored.AuthRevision = asked.authRevision
	stored.EtcdVersion = m.status.GetVersion()
	stored.Member = m.name
	stored.ClusterID = fmt.Sprintf("%x", asked.cluster)
	o.Log.Info("stored", "size", stored.Size, "storedSize", stored.StoredSize, "sha256", stored.SHA256, "took",
		time.Since(started).Round(time.Millisecond))
	*report = stores.Snapshot{Artifact: *stored}
	// Without its record what is stored is not whole: that is written also when the Job is told to end.
	finishing, stop := context.WithTimeout(context.WithoutCancel(ctx), cleaningTime)
	defer stop()
	if err := store.finish(finishing, o.Key, report); errors.Is(err, errReplaced) {
		return o.givesWay(finishing, store, report)
	} else if err != nil {
		*report = stores.Snapshot{Absent: true}
		return err
	}
	if !o.Verify {
		return nil
	}
	return o.conclude(ctx, store, all, back, report)
}

// now is the time as a record has it: whole, since a record with a time that is too early would stand before what it
// follows on.
func now() time.Time { return time.Now().UTC().Round(0) }

// conclude verifies what is stored, and writes its record once more. What is disproved is removed. What could not be
// verified for another reason is kept: it may be all that there is.
func (o Order) conclude(ctx context.Context, store *store, all []member, back age.Identity,
	report *stores.Snapshot) error {
	verified := *report
	err := o.verify(ctx, store, all, back, &verified)
	if ReasonOf(err) == Damaged && ctx.Err() == nil {
		return o.disproved(ctx, store, report, err)
	}
	if err == nil {
		err = o.stillThere(ctx, store, report)
	}
	if err == nil {
		verified.VerifiedAt = now()
		err = store.note(ctx, o.Key, &verified)
		if ReasonOf(err) == Locked {
			o.Log.Warn("the status alone says that it is verified: its record can't be replaced", "reason", Words(err))
			err = nil
		}
	}
	if errors.Is(err, errReplaced) {
		return o.givesWay(ctx, store, report)
	}
	if err != nil {
		return err
	}
	*report = verified
	o.Log.Info("verified", "revision", report.Revision, "keys", report.Keys, "hash", report.Hash, "hashOf",
		report.HashOf, "warning", report.Warning)
	return nil
}

// stillThere fails when what is stored is not what was looked at: errReplaced when another run has stored it.
func (o Order) stillThere(ctx context.Context, store *store, report *stores.Snapshot) error {
	now, _, err := store.kept(ctx, o.Key)
	var replaced bool
	if err == nil {
		replaced, err = store.replaced(ctx, o.Key)
	}
	switch {
	case err != nil && ReasonOf(err) != Denied:
		return failure(Failed, err, "nothing shows whether it has changed since it was inspected")
	case replaced, now != nil && now.StoredSHA256 != report.StoredSHA256:
		return errReplaced
	}
	return nil
}

// givesWay reports what another run has stored meanwhile, or nothing while that has no record yet.
func (o Order) givesWay(ctx context.Context, store *store, report *stores.Snapshot) error {
	now, _, err := store.kept(ctx, o.Key)
	if *report = (stores.Snapshot{}); err == nil && now != nil {
		*report = *now
	}
	return errReplaced
}

// disproved removes what is stored, unless it is not what was looked at: then another run has stored it.
func (o Order) disproved(ctx context.Context, store *store, report *stores.Snapshot, why error) error {
	switch err := o.stillThere(ctx, store, report); {
	case errors.Is(err, errReplaced):
		return o.givesWay(ctx, store, report)
	case err != nil:
		return err
	}
	*report = stores.Snapshot{Absent: true}
	return store.cleared(ctx, o.Key, why)
}

// store streams the snapshot of one member, and of no other, into the store.
func (o Order) store(ctx context.Context, store *store, from member, keep bool) (*stores.Artifact, age.Identity,
	error) {
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
	stored, back, err := store.put(ctx, o.Key, snapshot, o.Form, keep)
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
