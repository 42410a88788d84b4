package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Options say what is watched, and where its changes go.
type Options struct {
	Cluster archive.Cluster
	Place   archive.Place
	Form    archive.Form
	// KeysFile has the keys that sign; empty for none. It is read each time, as its keys may be followed by others.
	KeysFile string
	// Tail is the folder in the store that has one folder for each cluster ID.
	Tail string
	// ClusterID that is expected, in hexadecimal; empty for any.
	ClusterID string
	// FromRevision is that of the snapshot that the changes are to follow on.
	FromRevision int64
	// A segment is stored FlushAfter its first revision has arrived, or when it has MaxSize bytes of records.
	FlushAfter time.Duration
	MaxSize    int
	// HashEvery is how often a hash of all keys goes into a segment; 0 for each hour.
	HashEvery time.Duration
	Log       *slog.Logger
}

const (
	// memory is how many bytes of records wait for the store at most, before nothing more is read. Besides there are a
	// copy of one segment, what compresses it, and a part of an upload: 64 MiB in all with segments of 8 MiB.
	memory = 40 << 20
	// LargestSize is what Options.MaxSize may be.
	LargestSize = memory / 2
	// patience is how long a store or a cluster may fail before the stream ends with the reason.
	patience = 2 * time.Minute
	// pause is between two tries.
	pause = time.Second
	// closing is how long the last segment may take when the stream has been told to end.
	closing = 10 * time.Second
	// farBehind is how many revisions a stream reads that it has missed. etcd reads all of them for each thousand that
	// it sends, and writers wait meanwhile (syncWatchers in its mvcc/watchable_store.go).
	farBehind = 100_000
)

// Run streams until the context ends, or until it can't go on: then the error has a reason. The report is the last that
// the monitor has told.
func Run(ctx context.Context, o Options, monitor *Monitor) (stores.Stream, error) {
	err := o.run(ctx, monitor)
	report := monitor.Report()
	if err != nil {
		report.Reason = archive.ReasonOf(err)
		report.Error = archive.Words(err)
	}
	return report, err
}

func (o Options) run(ctx context.Context, monitor *Monitor) error {
	if _, err := ReadKeys(o.KeysFile); err != nil {
		return err
	}
	standing, err := o.Cluster.Standing(ctx)
	if err != nil {
		return err
	}
	id := fmt.Sprintf("%x", standing.ClusterID)
	if o.ClusterID != "" && o.ClusterID != id {
		return otherCluster("cluster %s answers, and %s was expected", id, o.ClusterID)
	}
	folder, err := archive.OpenFolder(ctx, o.Place, "", true)
	if err != nil {
		return err
	}
	defer folder.Close()
	s := session{Options: o, folder: folder, prefix: folderOf(o.Tail, id), clusterID: id, monitor: monitor}
	pruning, stop := context.WithCancel(ctx)
	defer stop()
	go s.prune(pruning)
	monitor.looked(standing.AuthRevision)
	beating, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		s.beat(beating)
		close(ended)
	}()
	defer func() {
		end()
		<-ended
	}()
	return s.run(ctx, standing)
}

// session is a stream of one cluster into one folder.
type session struct {
	Options
	folder            *archive.Folder
	prefix, clusterID string
	monitor           *Monitor
}

// run goes on behind what is stored. Where that can't be followed any more, it says so once, and goes on behind the gap
// all the same: the next snapshot takes a while, and what is stored meanwhile follows on it.
func (s session) run(ctx context.Context, standing archive.Standing) error {
	all, err := spans(ctx, s.folder, s.prefix)
	if err != nil {
		return err
	}
	_, reach := chain(all, s.FromRevision)
	if lastOf(all) > standing.Revision { // another process may have stored more meanwhile
		if standing, err = s.Cluster.Standing(ctx); err != nil {
			return err
		}
	}
	if standing.Revision < reach {
		return otherCluster("the cluster is at revision %d, and %d is stored of it: it has another history now; take "+
			"a new snapshot", standing.Revision, reach)
	}
	gap := s.follow(ctx, standing, reach, nil)
	if !missed(gap) {
		return gap
	}
	// An earlier process has told of the gap once it had stored what is behind it; if not, uncovered does.
	if all, err = spans(ctx, s.folder, s.prefix); err != nil {
		return err
	}
	now, err := s.Cluster.Standing(ctx)
	if err != nil || now.ClusterID != standing.ClusterID || now.AuthRevision != standing.AuthRevision {
		return gap
	}
	standing = now
	if last := lastOf(all); last > reach && last <= standing.Revision {
		if err := s.follow(ctx, standing, last, nil); !missed(err) {
			return err
		}
	}
	s.Log.Warn("the stream goes on behind a gap", "reason", archive.Words(gap))
	return s.follow(ctx, standing, standing.Revision, gap)
}

// missed reports whether a stream has missed revisions for good.
func missed(err error) bool {
	reason := archive.ReasonOf(err)
	return err != nil && (reason == stores.StreamCompacted || reason == stores.StreamBehind)
}

// lastOf is the last revision that is stored; 0 for none.
func lastOf(all []Span) (last int64) {
	for _, s := range all {
		last = max(last, s.Last)
	}
	return last
}

// follow streams behind a revision. With a gap before that, it ends once something is stored, and returns the gap.
func (s session) follow(ctx context.Context, standing archive.Standing, from int64, gap error) error {
	if behind := standing.Revision - from; behind > farBehind {
		return failure(stores.StreamBehind, nil, "%d revisions are missing, and etcd's writers would wait while it "+
			"reads them: take a new snapshot", behind)
	}
	s.Log.Info("streaming", "clusterID", s.clusterID, "from", s.FromRevision, "stored", from, "revision",
		standing.Revision)
	s.monitor.begin(s.clusterID, from)
	w := &writer{session: s, gap: gap, authRevision: standing.AuthRevision}
	return w.run(ctx, standing, from)
}

// writer makes segments of what arrives. It is one goroutine; it alone has these fields.
type writer struct {
	session
	// gap is what to end with once a segment is stored; nil for not.
	gap error

	// open is the segment that is being made, since then; nil for none. Queue are those that wait, the first of them
	// being stored while busy. Held are the bytes of their records.
	open  *Segment
	since time.Time
	queue []*Segment
	busy  bool
	held  int
	// hash goes with the next segment. What follows is for the one that is being stored: authRevision is what it was
	// when all up to usersAt had arrived.
	hash                  *Hash
	leaser                leaser
	authRevision, usersAt int64
}

func (w *writer) run(ctx context.Context, standing archive.Standing, reach int64) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	arrived := make(chan batch)
	found := make(chan *Hash)
	ended := make(chan error, 2)
	r := &receiver{cluster: w.Cluster, clusterID: standing.ClusterID, last: reach, to: arrived,
		askEvery: w.FlushAfter / 4, silence: max(3*w.FlushAfter, time.Minute)}
	s := &inspector{Options: w.Options, monitor: w.monitor, was: standing, to: found}
	go func() { ended <- r.run(ctx, w.Log) }()
	go func() { ended <- s.run(ctx) }()
	stored := make(chan error, 1)
	changed := make(chan error, 1)
	began := time.Now()
	go func() { changed <- w.uncovered(ctx, standing, reach) }()
	tick := time.NewTicker(max(w.FlushAfter/10, time.Millisecond))
	defer tick.Stop()
	defer w.leaser.hangUp()
	for {
		from := arrived
		if w.held >= memory {
			from = nil
		}
		select {
		case b := <-from:
			w.add(b)
		case w.hash = <-found:
		case err := <-changed:
			w.gap = cmp.Or(w.gap, err)
		case <-tick.C:
			if w.gap != nil && time.Since(began) > max(3*w.FlushAfter, patience/4) { // nothing changes
				stop()
				return w.finish(ctx, stored, w.gap)
			}
		case err := <-stored:
			if err := w.answered(err); err != nil {
				return err
			}
			if w.gap != nil {
				stop()
				return w.finish(ctx, stored, w.gap)
			}
		case err := <-ended: // by the end of the context, too: then nil
			stop()
			return w.finish(ctx, stored, err)
		}
		w.cut(false)
		if !w.busy && len(w.queue) > 0 {
			w.busy = true
			go func(s *Segment) { stored <- w.store(ctx, s) }(w.queue[0])
		}
	}
}

// add takes what has arrived into the open segment.
func (w *writer) add(b batch) {
	w.monitor.saw(b.last, b.at, b.events == 0)
	w.monitor.Writes.add(&b)
	if b.events == 0 {
		return
	}
	if w.open == nil {
		w.open = &Segment{Header: Header{Format: format, ClusterID: w.clusterID, First: b.first, Before: b.before},
			referred: map[int64]struct{}{}}
		w.since = time.Now()
	}
	s := w.open
	s.Last = b.last
	s.Events = s.Events + b.events
	if s.records == nil { // it may be one large revision
		s.records = b.records
	} else {
		s.records = append(s.records, b.records...)
	}
	maps.Copy(s.referred, b.leases)
	w.held += len(b.records)
	mark := Mark{Revision: b.last, At: b.at.Truncate(time.Millisecond).Add(time.Millisecond)}
	if n := len(s.Times); n > 1 && mark.At.Sub(s.Times[n-2].At) < time.Second {
		s.Times[n-1] = mark
	} else {
		s.Times = append(s.Times, mark)
	}
}

// cut ends the open segment when it is time. One that is not large waits until the store has taken those before it.
func (w *writer) cut(now bool) {
	if w.open == nil {
		return
	}
	due := time.Since(w.since) >= w.FlushAfter && len(w.queue) == 0
	if len(w.open.records) < w.MaxSize && !due && !now {
		return
	}
	w.open.Hash = w.hash
	w.queue = append(w.queue, w.open)
	w.open = nil
	w.hash = nil
}

// answered says what became of the segment that was being stored. It is an error where that one is not.
func (w *writer) answered(err error) error {
	w.busy = false
	if err != nil && !errors.Is(err, errUsersChanged) {
		return err
	}
	w.taken()
	w.gap = cmp.Or(w.gap, err)
	return nil
}

// taken lets go of the segment that is stored.
func (w *writer) taken() {
	w.held -= len(w.queue[0].records)
	w.queue = w.queue[1:]
}

// store stores a segment, and tries again for a while. Once it is stored, the error is errUsersChanged where users
// have.
func (w *writer) store(ctx context.Context, s *Segment) error {
	if len(s.records) > largest-2*longestLine {
		return failure(stores.StreamBehind, nil, "revisions %d to %d have %d MB of changes, more than a segment may: "+
			"take a new snapshot", s.First, s.Last, len(s.records)/1_000_000)
	}
	was := w.authRevision
	if revision := w.leaser.users(ctx, w.Options); revision != 0 {
		w.authRevision = revision
		w.usersAt = s.Last
	}
	s.AuthRevision = w.authRevision
	s.UsersAt = w.usersAt
	if s.Leases = w.leaser.leases(ctx, w.Options, s.referred); s.Leases != nil && len(s.Leases.TTL) > mostLeases {
		s.Leases = nil // a restore then keeps those of the snapshot, and of keys
	}
	keys, err := ReadKeys(w.KeysFile)
	if err != nil {
		return err
	}
	whole, err := s.encode(keys)
	if err != nil {
		return failure(failed, err, "a segment can't be encoded")
	}
	name := w.prefix + nameOf(s.First, s.Last, w.Form)
	for until := time.Now().Add(patience); ; {
		began := time.Now()
		trial, stop := context.WithTimeout(ctx, patience)
		size, err := w.folder.Put(trial, name, whole, w.Form)
		stop()
		if err == nil {
			w.monitor.stored(s.Last, size)
			w.Log.Debug("stored", "first", s.First, "last", s.Last, "events", s.Events, "size", size, "took",
				time.Since(began).Round(time.Millisecond))
			if was != 0 && was != w.authRevision {
				return errUsersChanged
			}
			return nil
		}
		if ctx.Err() != nil || time.Now().After(until) || archive.ReasonOf(err) == archive.Denied {
			return err
		}
		w.Log.Warn("a segment is not stored yet", "reason", archive.Words(err))
		sleep(ctx, pause)
	}
}

// finish stores what has arrived before the stream ends, for whatever reason.
func (w *writer) finish(ctx context.Context, stored <-chan error, why error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer stop()
	if w.busy { // it was told to end, and may have ended before
		if err := <-stored; err == nil || errors.Is(err, errUsersChanged) {
			w.taken()
			why = cmp.Or(why, err)
		}
	}
	w.cut(true)
	for ; len(w.queue) > 0; w.taken() {
		err := w.store(ctx, w.queue[0])
		if errors.Is(err, errUsersChanged) {
			why = cmp.Or(why, err)
			err = nil
		}
		if err != nil {
			w.Log.Warn("the last changes are not stored", "reason", archive.Words(err))
			if why == nil {
				return err
			}
			break
		}
	}
	return why
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// run watches again and again. It ends with the context, or with an error that another try won't help.
func (r *receiver) run(ctx context.Context, log *slog.Logger) error {
	since := time.Now()
	for {
		began := time.Now()
		last := r.last
		err := r.watch(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to end
		}
		if r.last > last || time.Since(began) > patience {
			since = time.Now()
		}
		reason := archive.ReasonOf(err)
		lasting := reason != archive.Unreachable && reason != failed
		if lasting || time.Since(since) > patience {
			return err
		}
		log.Warn("the watch has ended, and begins again", "revision", r.last, "reason", archive.Words(err))
		sleep(ctx, pause)
	}
}
