package server

import (
	"context"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/wire"
)

// clusterCall reads a call about an EtcdCluster.
func clusterCall(ctx context.Context, s *Server, body io.Reader) (*call, error) {
	r, err := wire.ReadCluster(ctx, body)
	if err != nil {
		return nil, err
	}
	r.Keys = s.options.RecordKeys.get()
	return &call{
		kind: v1beta1.Kind, parent: r.Cluster, finalizing: r.Finalizing,
		untimely: r.Finalizing && r.Cluster.DeletionTimestamp == nil,
		turn:     func(ctx context.Context) (func(), error) { return s.turn(ctx, r.Cluster.UID) },
		decide: func(ctx context.Context, began time.Time) (*decided, error) {
			o := r.Observation(s.now(), s.options.Settings)
			if r.Finalizing && !defaults.Protected(r.Cluster) && !facts.Leaving(o) {
				return s.finalizeCluster(r, o, began), nil
			}
			return s.syncCluster(ctx, r, o, began) // one that is being deleted and protected is looked after as before
		},
		letGo: func(began time.Time) *decided { return s.letClusterGo(r, began) },
	}, nil
}

// turn waits until no other call for the parent runs, for half of the call's time at most: a call that starts later
// could not ask etcd properly and would decide blind.
//
// A call that gets no turn is answered with 429 and Retry-After: Metacontroller 4 asks again after that time without
// counting a failure or telling an event (TooManyRequestError in pkg/hooks), 1.5.20 retries with backoff as it does on
// every code but 200.
func (s *Server) turn(ctx context.Context, cluster types.UID) (end func(), err error) {
	if ctx.Value(turnKey{}) == cluster { // it has it
		return func() {}, nil
	}
	waiting, cancel := context.WithTimeout(ctx, s.options.CallTimeout/2)
	defer cancel()
	end, err = s.locks.lock(waiting, cluster)
	if err != nil && ctx.Err() == nil {
		return nil, wire.Refuse(http.StatusTooManyRequests,
			"another call for this cluster is still running; ask again in a second")
	}
	return end, err
}

// syncCluster observes and decides: what should exist, after at most one step.
func (s *Server) syncCluster(
	ctx context.Context, r *wire.ClusterCall, o observation.Observation, began time.Time,
) (*decided, error) {
	o.Recent = s.logged.remembers(r.Cluster.UID)
	etcd := &guarded{etcd: s.shown(r), o: o, decide: s.decideFn, verify: s.verifier(),
		write: func(o observation.Observation, d decision.Decision) { s.written(s.journal.add(o, d, "", r.Made)) },
		withhold: func(o observation.Observation, d decision.Decision, broken error) {
			s.written(s.journal.withheld(o, d, broken, r.Made))
		}}
	d, outcome := s.syncFn(ctx, o, etcd)
	etcd.o.Taken = outcome
	if putOff(ctx) != nil && !etcd.began {
		return nil, ctx.Err()
	}
	if outcome != nil {
		s.metrics.Stepped(outcome.Step.Verb(), outcome.Err != "")
		s.metrics.Decided(outcome.Rule)
	}
	if err := etcd.check(d); err != nil {
		s.metrics.Violated()
		return nil, err
	}
	var finalized *bool // told while the cluster is being deleted only
	if r.Finalizing {
		finalized = new(bool)
	}
	return &decided{
		encode: func() ([]byte, error) { return r.Answer(d, finalized) },
		write:  func(body []byte) { s.written(s.journal.answered(etcd.o, d, body, r.Made)) },
		keep:   s.keeps(ctx, r, etcd, d),
		log: &answered{
			hook: "sync", kind: "cluster", parent: r.Cluster, because: d.Reason, outcome: outcome, began: began,
			children: &d.Children, quiet: outcome == nil && d.Quiet,
		},
		tell: func() {
			s.metrics.Decided(d.Reason.Rule)
			s.metrics.Cluster(r.Cluster, d.Reason.Rule, &d.Status, d.Children)
			s.logged.note(r.Cluster.UID, d.Status.History)
		},
	}, nil
}

func (s *Server) written(err error) {
	if err != nil {
		s.log.Warn("a decision is not in the journal", "error", err)
	}
}

// finalizeCluster decides about a cluster that is being deleted. It does not talk to etcd (S17).
func (s *Server) finalizeCluster(r *wire.ClusterCall, o observation.Observation, began time.Time) *decided {
	children, finalized := s.finalizeFn(o)
	because := decision.Reason{Rule: "Finalize", Message: "the cluster is being deleted"}
	if finalized {
		because.Message = "the cluster is deleted"
	}
	return &decided{
		encode: func() ([]byte, error) { return asItIs(r, children, finalized) },
		gone:   finalized,
		log: &answered{
			hook: "finalize", kind: "cluster", parent: r.Cluster, because: because, children: &children, began: began,
		},
		tell: func() {
			s.metrics.Decided(because.Rule)
			s.metrics.Cluster(r.Cluster, because.Rule, &r.Cluster.Status, children)
		},
	}
}

// letClusterGo answers everything as it is.
func (s *Server) letClusterGo(r *wire.ClusterCall, began time.Time) *decided {
	children := answer.AsObserved(r.Observation(began, s.options.Settings))
	because := decision.Reason{
		Rule: "NotSelected", Message: "its labels are not selected by this Quorate: everything stays as it is",
	}
	return &decided{
		encode: func() ([]byte, error) { return asItIs(r, children, true) },
		gone:   true,
		log: &answered{
			hook: "finalize", kind: "cluster", parent: r.Cluster, because: because, children: &children, began: began,
		},
		tell: func() { s.metrics.Decided(because.Rule) },
	}
}

// asItIs is an answer that leaves the status alone. Metacontroller replaces the status by the answer's: so that holds
// the observed one.
func asItIs(r *wire.ClusterCall, children decision.Desired, finalized bool) ([]byte, error) {
	return r.Answer(decision.Decision{Children: children, Status: r.Cluster.Status}, &finalized)
}

func (s *Server) verifier() func(observation.Observation, decision.Decision) error {
	if !s.options.Verify {
		return nil
	}
	return s.verifyFn
}
