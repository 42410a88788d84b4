package server

import (
	"context"
	"io"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/server/wire"
)

// snapshotCall reads a call about an EtcdSnapshot.
func (s *Server) snapshotCall(_ context.Context, body io.Reader) (*call, error) {
	r, err := wire.ReadSnapshot(body)
	if err != nil {
		return nil, err
	}
	return &call{
		kind: v1alpha1.KindSnapshot, parent: r.Snapshot, finalizing: r.Finalizing,
		// With --cascade=foreground the hook sync is sent while Kubernetes deletes the children, and then finalize.
		untimely: r.Finalizing && r.Snapshot.DeletionTimestamp == nil,
		decide:   func(_ context.Context, began time.Time) (*decided, error) { return s.decideSnapshot(r, began) },
		letGo:    func(time.Time) *decided { return letSnapshotGo(r) },
		forget:   s.said.forget,
	}, nil
}

func (s *Server) decideSnapshot(r *wire.SnapshotCall, began time.Time) (*decided, error) {
	o := r.Observation
	o.Now, o.Images, o.AllowedEndpoints = began, s.options.Settings.Images, s.options.Settings.AllowedEndpoints
	d := snapshot.Decide(o)
	if s.options.Verify {
		if err := snapshot.Verify(o, d); err != nil {
			s.metrics.Violated()
			return nil, err
		}
	}
	var finalized *bool
	if r.Finalizing {
		finalized = &d.Finalized
	}
	return &decided{
		encode: func() ([]byte, error) { return r.Answer(d, finalized) },
		gone:   d.Finalized,
		tell: func() {
			s.metrics.Decided("Snapshot" + d.Reason.Rule)
			s.metrics.Snapshot(r.Snapshot, &d)
			quiet := d.Status.Phase == r.Snapshot.Status.Phase && !d.Finalized
			s.logAnswer(&answered{
				hook: "sync", kind: "snapshot", parent: r.Snapshot, because: d.Reason, quiet: quiet, began: began,
			})
		},
	}, nil
}

// letSnapshotGo answers everything as it is.
func letSnapshotGo(r *wire.SnapshotCall) *decided {
	finalized := true
	return &decided{gone: true, encode: func() ([]byte, error) {
		return r.Answer(snapshot.Decision{Jobs: byName(r.Jobs), Status: r.Snapshot.Status}, &finalized)
	}}
}
