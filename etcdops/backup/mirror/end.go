package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Promotion says at which revision of the source a mirror is ended.
type Promotion struct {
	Options
	// Revision that the destination must have reached; 0 for that of the source now.
	Revision int64
	// Force ends it at the last revision that the destination had whole, and does not ask the source.
	Force bool
}

// Promote waits until the destination has reached a revision, and ends the mirror there: no process goes on with it,
// and the destination may be written to. The report has the revision.
func Promote(ctx context.Context, p Promotion) (report stores.Mirror, err error) {
	to, err := reach(p.Destination, p.Name, p.MostOps, p.Log)
	if err != nil {
		return report, err
	}
	defer to.close()
	if p.Destination.Visitor != nil {
		if _, err := p.Destination.Standing(ctx); err != nil {
			return report, err
		}
	}
	if was, err := p.was(ctx, to); was || err != nil {
		return to.report(), err
	}
	target, source, err := p.target(ctx, to.is)
	if err != nil {
		return report, err
	}
	var told time.Time
	for ; ; sleep(ctx, pause/4) {
		done := false
		to.ends = to.ends && to.holds()
		if _, err = to.read(ctx); err == nil {
			done, err = p.end(ctx, to, target, source)
		}
		if ctx.Err() != nil {
			err = failure(failed, ctx.Err(), "the mirror was not ended: the destination has revision %d",
				to.is.Revision)
		}
		if done || err != nil && !errors.Is(err, errMoved) {
			return to.report(), err
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			p.Log.Info("waiting for the destination", "revision", to.is.Revision, "doing", to.is.Doing,
				"target", target)
		}
	}
}

// was reports whether an earlier promotion has ended the mirror: the source may be lost since, and is not asked.
func (p Promotion) was(ctx context.Context, to *destination) (bool, error) {
	if _, err := to.read(ctx); err != nil || !to.is.Ended || to.is.Revision < p.Revision {
		return false, err
	}
	return true, to.stop(ctx, false)
}

// target is the revision that the destination must reach, and the ID of the source where that was asked.
func (p Promotion) target(ctx context.Context, at place) (revision int64, source string, err error) {
	if p.Revision > 0 || p.Force {
		return p.Revision, "", nil
	}
	from, err := p.origin(ctx)
	if err != nil {
		return 0, "", err
	}
	defer from.close()
	standing, err := from.standing(ctx, at)
	return standing.Revision, idOf(standing), err
}

func (d *destination) report() stores.Mirror {
	is := d.is
	return stores.Mirror{SourceClusterID: is.ClusterID, Doing: is.Doing, Revision: is.Revision, Ended: is.Ended}
}

// end ends the mirror, if it is where it must be. Mirrors are kept from writing first: else one that is busy would
// always be ahead.
func (p Promotion) end(ctx context.Context, to *destination, target int64, source string) (done bool, err error) {
	is := to.is
	there := p.Force || is.Doing == "" && is.Revision >= target
	switch {
	case to.at == 0:
		return false, failure(archive.NotFound, nil, "the destination has no key %s: no such mirror has begun", to.key)
	case source != "" && source != is.ClusterID:
		return false, failure(stores.StreamOtherCluster, nil, "cluster %s answers, and %s was mirrored", source,
			is.ClusterID)
	case is.Ended && is.Revision < target:
		return false, failure(stores.MirrorEnded, nil, "the mirror was ended at revision %d before", is.Revision)
	case is.Ended:
		return true, to.stop(ctx, false)
	case !p.Force && is.Doing == ending:
		return false, failure(stores.MirrorEnded, nil, "a promotion to revision %d was interrupted: promote with "+
			"--force", is.Revision)
	case there != to.ends:
		return false, to.stop(ctx, there)
	case !there:
		return false, nil
	case is.Doing != "":
		return false, to.takeBack(ctx)
	}
	is.Ended = true
	return false, to.write(ctx, nil, is)
}

// takeBack makes the keys what they were when they were whole, from the history of the destination, and ends the
// mirror.
func (d *destination) takeBack(ctx context.Context) error {
	if d.is.WholeAt == 0 {
		if err := d.stop(ctx, false); err != nil {
			return err
		}
		return failure(failed, nil, "the first copy has not come to its end: the destination never had all keys of a "+
			"revision")
	}
	next := d.is
	whole := d.is
	next.Doing = ending
	next.Towards = 0
	whole.Doing = ""
	whole.Ended = true
	want := &walk{client: d.client, log: d.log, spans: d.is.toSpans(), revision: d.is.WholeAt,
		refusal: func(err error) error {
			if errors.Is(err, rpctypes.ErrCompacted) {
				return failure(stores.StreamCompacted, archive.ByEtcd(err), "the destination was between two "+
					"revisions of the source, and has compacted what it was before: let a mirror go on, or delete the "+
					"key %s and use what is there", d.key)
			}
			return d.refusal(err, 0)
		}}
	wrote, err := d.become(ctx, want, next, whole)
	if err == nil {
		d.log.Warn("what was written since the destination was whole has been taken back", "revision", whole.Revision,
			"keys", wrote)
	}
	return err
}

// errDiffers ends a comparison.
var errDiffers = errors.New("they differ")

// Compare compares the keys of both sides at the revision of the source that the destination has. The report has the
// number of keys, and the first one that differs.
func Compare(ctx context.Context, o Options) (report stores.Mirror, err error) {
	to, err := reach(o.Destination, o.Name, o.MostOps, o.Log)
	if err != nil {
		return report, err
	}
	defer to.close()
	source, err := o.origin(ctx)
	if err != nil {
		return report, err
	}
	defer source.close()
	if o.Destination.Visitor != nil {
		if _, err = o.Destination.Standing(ctx); err != nil {
			return report, err
		}
	}
	standing, err := source.standing(ctx, place{})
	if err != nil {
		return report, err
	}
	now, err := to.read(ctx)
	if err != nil {
		return report, err
	}
	report = to.report()
	switch is := to.is; {
	case to.at == 0:
		return report, failure(archive.NotFound, nil, "the destination has no key %s: no such mirror has begun", to.key)
	case is.Doing != "":
		return report, failure(failed, nil, "the destination is between two revisions of the source (%s): compare "+
			"later", is.Doing)
	case is.Ended:
		return report, failure(stores.MirrorEnded, nil, "the mirror was ended at revision %d, and the destination is "+
			"written to by others", is.Revision)
	case is.ClusterID != idOf(standing):
		return report, failure(stores.StreamOtherCluster, nil, "cluster %s answers, and %s was mirrored",
			idOf(standing), is.ClusterID)
	}
	scope := to.is.Scope
	standing.Revision = to.is.Revision
	all, err := source.keys(ctx, standing, scope)
	if err != nil {
		return report, err
	}
	want := &counted{keys: all}
	is := &walk{client: to.client, log: o.Log, spans: scope.toSpans(), revision: now,
		refusal: func(err error) error { return to.refusal(err, 0) }}
	err = differ(ctx, want, is, func(o op) error {
		report.Difference = fmt.Sprintf("%q", o.key)
		return errDiffers
	})
	report.Keys = want.n
	if errors.Is(err, errDiffers) {
		err = failure(stores.MirrorDiffers, nil, "the key %s of the destination is not what the source had at "+
			"revision %d: something else writes there. Stop that, and run the mirror once with "+
			"--compare-on-start", report.Difference,
			report.Revision)
	}
	return report, err
}
