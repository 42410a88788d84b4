package mirror

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Options say what is mirrored, and where to.
type Options struct {
	// Source is asked, unless what is Stored of it is read.
	Source, Destination archive.Cluster
	Stored              *Stored
	Scope               Scope
	// Name of the mirror: its place is the key Reserved + Name of the destination.
	Name string
	// MostOps is how many operations the destination takes in a transaction; 0 for DefaultOps.
	MostOps int
	// CompareOnStart compares all keys once more before it goes on, and takes another cluster for the source.
	CompareOnStart bool
	Log            *slog.Logger
}

// farBehind is how many missed revisions are copied instead of watched: for a watch that lags, etcd reads all that is
// missing for each thousand that it sends, and writers wait meanwhile (syncWatchers in its mvcc/watchable_store.go).
const farBehind = 100_000

// mirror is one process.
type mirror struct {
	Options
	source  origin
	to      *destination
	monitor *Monitor
	// gap is the revision of the place behind which changes are lost, so that all keys are copied; 0 is none. Placed is
	// when the place was written last.
	gap    int64
	placed time.Time
	// fails is since when one of both etcds does not answer; zero while they do.
	fails time.Time
}

// Run mirrors until the context ends, or until it can't go on: then the error has a reason. The report is the last that
// the monitor has told.
func Run(ctx context.Context, o Options, monitor *Monitor) (stores.Mirror, error) {
	err := o.run(ctx, monitor)
	return monitor.Report(), err
}

func (o Options) run(ctx context.Context, monitor *Monitor) error {
	if err := o.Scope.Check(); err != nil {
		return failure(failed, err, "this can't be mirrored")
	}
	source, err := o.origin(ctx)
	if err != nil {
		return err
	}
	defer source.close()
	to, err := reach(o.Destination, o.Name, o.MostOps, o.Log)
	if err != nil {
		return err
	}
	defer to.close()
	m := &mirror{Options: o, source: source, to: to, monitor: monitor}
	for {
		err := m.turn(ctx)
		switch reason := archive.ReasonOf(err); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errMoved):
			m.Log.Info("another process mirrors to this place, too: going on behind what it has written")
		case errors.Is(err, errEnding):
			m.Log.Info("a promotion is under way: waiting for its end")
		case reason == stores.StreamCompacted:
			m.Log.Warn("the source has compacted revisions that are missing here: all keys are compared and copied. "+
				"If that repeats, keep more of them at the source", "revision", m.to.is.Revision)
			m.gap = m.to.is.Revision
		case reason == stores.StreamOtherCluster:
			m.Log.Error("the source is not what was mirrored", "reason", archive.Words(err))
			return failure(reason, nil, "the source is not what was mirrored: it is another cluster, or has another "+
				"history, as after a restore. Promote the destination, or set compareOnStart once, which makes the "+
				"destination what the source is now")
		case m.passes(reason) && (m.fails.IsZero() || time.Since(m.fails) < patience):
			if m.fails.IsZero() {
				m.fails = time.Now()
			}
			m.Log.Warn("the mirror has stopped, and goes on as soon as it can", "reason", archive.Words(err))
		default:
			return err
		}
		sleep(ctx, pause)
	}
}

// passes reports whether this may be over soon: a first snapshot that is not stored yet, too.
func (m *mirror) passes(reason string) bool {
	return reason == archive.Unreachable || m.Stored != nil && reason == archive.NotFound
}

// turn goes on at the place, until that can't go on. It ends without an error only with the context.
func (m *mirror) turn(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	at := m.to.is
	if m.CompareOnStart {
		at = place{} // it may be any
	}
	standing, err := m.source.standing(ctx, at)
	if err != nil {
		return err
	}
	if m.to.at == 0 {
		first := place{Scope: m.Scope, ClusterID: idOf(standing), Doing: copying, Towards: standing.Revision}
		if err := m.to.found(ctx, first); err != nil {
			return err
		}
	}
	is := &m.to.is
	if !m.CompareOnStart && is.ClusterID != idOf(standing) {
		return failure(stores.StreamOtherCluster, nil, "cluster %s answers, and %s was mirrored", idOf(standing),
			is.ClusterID)
	}
	behind := standing.Revision-is.Revision > farBehind
	lost := m.gap != 0 && m.gap == is.Revision // else another process has copied what was missing
	halfway := slices.Contains([]string{copying, reconciling, ending}, is.Doing)
	if m.CompareOnStart || lost || behind || halfway {
		if err := m.copy(ctx, standing); err != nil {
			return err
		}
		m.gap = 0
		m.CompareOnStart = false
	}
	return m.follow(ctx, standing)
}

// begin reads the place, and says whether this mirror may go on there.
func (m *mirror) begin(ctx context.Context) error {
	if m.Destination.Visitor != nil { // its tokens are of a revision of users and roles
		if _, err := m.Destination.Standing(ctx); err != nil {
			return err
		}
	}
	if _, err := m.to.read(ctx); err != nil {
		return err
	}
	is := &m.to.is
	switch {
	case m.to.at == 0:
		return nil
	case is.Ended:
		m.monitor.ended(is.ClusterID, is.Revision)
		return failure(stores.MirrorEnded, nil, "this mirror was ended at revision %d, and others write to the "+
			"destination: remove what runs it, or begin another one with another name and prefix", is.Revision)
	case !is.same(m.Scope):
		return failure(stores.MirrorOtherScope, nil, "this mirror was begun with another --prefix, --to-prefix or "+
			"--exclude: use the same ones, or another --name")
	}
	// What a promotion was about to take back, and has not, is copied once more.
	if stopped, err := m.to.stopped(ctx); err != nil || stopped {
		return cmp.Or(err, errEnding)
	}
	if is.Doing == "" || is.Session == m.to.session {
		return nil
	}
	return m.standsStill(ctx)
}

// standsStill waits until another process, that has left the destination not whole, shows that it does not go on.
func (m *mirror) standsStill(ctx context.Context) error {
	for began, at := time.Now(), m.to.at; time.Since(began) < takeover; {
		if sleep(ctx, pause); ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := m.to.read(ctx); err != nil {
			return err
		}
		if m.to.at != at {
			return errMoved
		}
	}
	return nil
}
