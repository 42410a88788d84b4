package server

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/mirror"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/server/wire"
)

// mirrorCall reads a call about an EtcdMirror.
func (s *Server) mirrorCall(_ context.Context, body io.Reader) (*call, error) {
	r, err := wire.ReadMirror(body)
	if err != nil {
		return nil, err
	}
	return &call{
		kind: v1alpha1.KindMirror, parent: r.Mirror, finalizing: r.Finalizing,
		// With --cascade=foreground the hook sync is sent while Kubernetes deletes the children, too.
		untimely: r.Finalizing && r.Mirror.DeletionTimestamp == nil,
		decide:   func(_ context.Context, began time.Time) (*decided, error) { return s.decideMirror(r, began) },
		letGo:    func(time.Time) *decided { return letMirrorGo(r) },
		forget:   s.forgetMirror,
	}, nil
}

func (s *Server) decideMirror(r *wire.MirrorCall, began time.Time) (*decided, error) {
	o := r.Observation
	o.Now, o.Images, o.AllowedEndpoints = began, s.options.Settings.Images, s.options.Settings.AllowedEndpoints
	d := mirror.Decide(o)
	if s.options.Verify {
		if err := snapshot.VerifyPods(o.Images, o.Pods, d.Pods); err != nil {
			s.metrics.Violated()
			return nil, err
		}
	}
	var finalized *bool
	if r.Finalizing {
		finalized = new(true) // its pods go with it, and what they have written stays
	}
	return &decided{
		encode: func() ([]byte, error) { return r.Answer(d, finalized) },
		gone:   r.Finalizing,
		tell: func() {
			s.metrics.Decided("Mirror" + d.Reason.Rule)
			s.metrics.Mirror(r.Mirror, &d.Status)
			s.logAnswer(&answered{
				hook: "sync", kind: "mirror", parent: r.Mirror, because: d.Reason,
				quiet: d.Reason.Message == r.Mirror.Status.Message, began: began,
			})
		},
	}, nil
}

// letMirrorGo answers everything as it is.
func letMirrorGo(r *wire.MirrorCall) *decided {
	finalized := true
	return &decided{gone: true, encode: func() ([]byte, error) {
		return r.Answer(mirror.Decision{Pods: byName(r.Pods), Status: r.Mirror.Status}, &finalized)
	}}
}

func (s *Server) forgetMirror(mirror types.UID) {
	s.said.forget(mirror)
	s.metrics.ForgetMirror(mirror)
}
