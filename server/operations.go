package server

import (
	"context"
	"io"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/operation"
	"github.com/quorate-dev/quorate/server/wire"
)

// operationCall reads a call about an EtcdOperation.
func (s *Server) operationCall(_ context.Context, body io.Reader) (*call, error) {
	r, err := wire.ReadOperation(body)
	if err != nil {
		return nil, err
	}
	return &call{
		kind: v1alpha1.KindOperation, parent: r.Operation, finalizing: r.Finalizing,
		untimely: r.Finalizing != (r.Operation.DeletionTimestamp != nil),
		decide:   func(_ context.Context, began time.Time) (*decided, error) { return s.decideOperation(r, began), nil },
		letGo: func(time.Time) *decided {
			finalized := true
			return &decided{gone: true, encode: func() ([]byte, error) {
				return r.Answer(&r.Operation.Status, &finalized)
			}}
		},
		forget: s.said.forget,
	}, nil
}

func (s *Server) decideOperation(r *wire.OperationCall, began time.Time) *decided {
	o := r.Observation
	o.Now = began
	d := operation.Decide(o)
	var finalized *bool
	if r.Finalizing {
		finalized = &d.Finalized
	}
	return &decided{
		encode: func() ([]byte, error) { return r.Answer(&d.Status, finalized) },
		gone:   r.Finalizing && d.Finalized,
		tell: func() {
			s.metrics.Decided("Operation" + d.Reason.Rule)
			s.logAnswer(&answered{
				hook: "sync", kind: "operation", parent: r.Operation, because: d.Reason,
				quiet: d.Status.Phase == r.Operation.Status.Phase, began: began,
			})
		},
	}
}
