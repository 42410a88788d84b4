package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/rule"
)

// quietRule is the rule of a cluster that is as it should be.
const quietRule = "Converged"

// sync answers the hook sync: what should exist, after at most one step.
func (s *Server) sync(c *gin.Context) {
	began := s.now()
	r, err := s.read(c)
	if err != nil {
		s.refuse(c, err)
		return
	}
	if r.Finalizing {
		s.refuse(c, bad("finalizing is true: the hook finalize must be sent to /finalize"))
		return
	}
	if err := s.options.Scope.check(v1alpha1.Kind, &r.Cluster.ObjectMeta); err != nil {
		s.refuse(c, err)
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.options.CallTimeout)
	defer cancel()
	end, err := s.turn(ctx, r)
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer end()
	s.look(ctx, c, r, began)
}

// look observes, decides and answers, in the turn of the cluster.
func (s *Server) look(ctx context.Context, c *gin.Context, r *request, began time.Time) {
	var finalized *bool // told while the cluster is being deleted only
	if r.Finalizing {
		finalized = new(bool)
	}
	o := r.observation(s.now(), s.options.Settings)
	o.Recent = s.said.remembers(r.Cluster.UID)
	etcd := &guarded{etcd: s.shown(r), o: o, decide: s.decideFn, verify: s.verifier()}
	d, outcome := s.syncFn(ctx, o, etcd)
	if putOff(ctx) != nil && !etcd.began {
		s.refuse(c, ctx.Err())
		return
	}
	if outcome != nil {
		s.metrics.steps.WithLabelValues(outcome.Step.Verb(), outcomeLabel(outcome)).Inc()
		s.metrics.decisions.WithLabelValues(outcome.Because).Inc()
	}
	if err := etcd.check(outcome, d); err != nil {
		s.metrics.violations.Inc()
		s.refuse(c, err)
		return
	}
	body, err := encode(r, d.Children, &d.Status, d.ResyncAfter, finalized)
	if err != nil {
		s.refuse(c, err)
		return
	}
	s.metrics.decisions.WithLabelValues(d.Because.Rule).Inc()
	s.metrics.clusters.note(r.Cluster, d.Because.Rule, &d.Status, d.Children)
	s.logCall("sync", r, d.Because, d.Children, outcome, s.now().Sub(began))
	s.said.note(r.Cluster.UID, d.Status.History)
	reply(c, body)
}

// finalize answers the hook finalize. It does not talk to etcd (S17), unless the cluster is protected: then it is looked after as before.
func (s *Server) finalize(c *gin.Context) {
	began := s.now()
	r, err := s.read(c)
	if err == nil {
		err = s.options.Scope.elsewhere(v1alpha1.Kind, &r.Cluster.ObjectMeta)
	}
	if err != nil {
		s.refuse(c, err)
		return
	}
	if r.Finalizing && !s.options.Scope.selects(&r.Cluster.ObjectMeta) {
		s.letGo(c, r, began)
		return
	}
	if !r.Finalizing || r.Cluster.DeletionTimestamp == nil {
		s.refuse(c, bad("the parent is not being deleted (finalizing is %t): the hook sync must be sent to /sync", r.Finalizing))
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.options.CallTimeout)
	defer cancel()
	end, err := s.turn(ctx, r)
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer end()
	if hooks.Protected(r.Cluster) || hooks.Leaving(r.observation(s.now(), s.options.Settings)) {
		s.look(ctx, c, r, began)
		return
	}

	children, finalized := s.finalizeFn(r.observation(s.now(), s.options.Settings))
	// Metacontroller replaces the status by the answer's: the observed one stays.
	body, err := encode(r, children, &r.Cluster.Status, 0, &finalized)
	if err != nil {
		s.refuse(c, err)
		return
	}
	because := rule.Because{Rule: "Finalize", Message: "the cluster is being deleted"}
	if finalized {
		because.Message = "the cluster is deleted"
	}
	s.metrics.decisions.WithLabelValues(because.Rule).Inc()
	s.metrics.clusters.note(r.Cluster, because.Rule, &r.Cluster.Status, children)
	s.logCall("finalize", r, because, children, nil, s.now().Sub(began))
	if finalized {
		s.said.forget(r.Cluster.UID)
		s.metrics.clusters.forget(r.Cluster.UID)
	}
	reply(c, body)
}

// letGo answers the hook finalize about a cluster that has not, or no longer, the labels that this server looks after. Metacontroller asks so
// once the labels have changed, and it takes its finalizer away when everything is answered as it is: what happens next is up to the Quorate
// whose labels it has. A cluster is let go whether it is being deleted or not: that other Quorate has a finalizer of its own.
func (s *Server) letGo(c *gin.Context, r *request, began time.Time) {
	finalized := true
	children := hooks.AsObserved(r.observation(began, s.options.Settings))
	body, err := encode(r, children, &r.Cluster.Status, 0, &finalized)
	if err != nil {
		s.refuse(c, err)
		return
	}
	because := rule.Because{Rule: "LetGo", Message: "its labels are not those that this Quorate looks after: everything stays as it is"}
	s.metrics.decisions.WithLabelValues(because.Rule).Inc()
	s.logCall("finalize", r, because, children, nil, s.now().Sub(began))
	s.said.forget(r.Cluster.UID)
	s.metrics.clusters.forget(r.Cluster.UID)
	reply(c, body)
}

// customize answers the hook customize: which Secrets and snapshots matter, besides the children.
func (s *Server) customize(c *gin.Context) {
	cluster, err := decodeAsked(c.Request.Body)
	if err == nil {
		err = s.options.Scope.elsewhere(v1alpha1.Kind, &cluster.ObjectMeta)
	}
	if err != nil {
		s.refuse(c, err)
		return
	}
	body, err := encodeRelated(cluster, s.options.RelatedByUID)
	if err != nil {
		s.refuse(c, err)
		return
	}
	reply(c, body)
}

// shown is etcd for one call: with the certificate that this cluster's members know Quorate by, and with what foreign members are shown.
func (s *Server) shown(r *request) hooks.Etcd {
	etcd := s.options.Etcd
	config, err := r.tls()
	able, is := etcd.(interface {
		With(config *tls.Config, password func(secret, key string) (string, error)) hooks.Etcd
	})
	if is && config != nil && err == nil { // else the decision says what is wrong, by the Secret's flaw
		etcd = able.With(config, r.password)
	}
	visitor, is := etcd.(interface {
		Beside(foreign etcdops.Foreign) hooks.Etcd
	})
	if foreign := r.foreign(); is && foreign != nil {
		etcd = visitor.Beside(*foreign)
	}
	return etcd
}

// read decodes the body of a call.
func (s *Server) read(c *gin.Context) (*request, error) {
	return decode(c.Request.Context(), c.Request.Body)
}

// turn waits until no other call for the parent runs, for half of the call's time at most: a call that starts later
// could not ask etcd properly and would decide blind.
//
// A call that waited in vain is answered with 429 and Retry-After: Metacontroller 4 asks again after that time without
// counting a failure or telling an event (TooManyRequestError in pkg/hooks), 1.5.20 retries with backoff as it does on every code but 200.
func (s *Server) turn(ctx context.Context, r *request) (end func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, s.options.CallTimeout/2)
	defer cancel()
	end, err = s.turns.take(waiting, r.Cluster.UID)
	if err != nil && ctx.Err() == nil {
		return nil, &badRequest{http.StatusTooManyRequests, "another call for this cluster is still running; ask again in a second"}
	}
	if err != nil {
		return nil, err
	}
	return end, nil
}

func (s *Server) verifier() func(hooks.Observation, hooks.Decision) error {
	if !s.options.Verify {
		return nil
	}
	return s.verifyFn
}

func outcomeLabel(o *hooks.Outcome) string {
	if o.Err != "" {
		return "failed"
	}
	return "done"
}

// guarded is etcd as one call sees it. A step is not begun once the client has gone away, and finished cleanly once
// begun. With verification on, a step is taken only if the decision for it breaks no rule.
type guarded struct {
	etcd   hooks.Etcd
	o      hooks.Observation // with what etcd said last
	decide func(hooks.Observation) hooks.Decision
	verify func(hooks.Observation, hooks.Decision) error // nil: off
	broken error                                         // what verify said to the decision for a step
	began  bool                                          // whether a step was
}

// Observe implements hooks.Etcd.
func (g *guarded) Observe(ctx context.Context, endpoints []hooks.Endpoint) (*hooks.Membership, map[string]hooks.Health) {
	g.o.Etcd, g.o.Health = g.etcd.Observe(ctx, endpoints)
	return g.o.Etcd, g.o.Health
}

// Do implements hooks.Etcd.
func (g *guarded) Do(ctx context.Context, step hooks.Step, on *hooks.Membership, endpoints []hooks.Endpoint) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("not begun: %w", err)
	}
	if g.verify != nil {
		if err := g.verify(g.o, g.decide(g.o)); err != nil {
			g.broken = err
			return fmt.Errorf("not begun: %w", err)
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		alone, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		ctx = alone
	}
	g.began = true
	return g.etcd.Do(ctx, step, on, endpoints)
}

// check verifies the decision that is to be answered, if verification is on.
func (g *guarded) check(outcome *hooks.Outcome, d hooks.Decision) error {
	if g.verify == nil {
		return nil
	}
	broken := g.broken
	if broken == nil {
		g.o.Taken = outcome
		broken = g.verify(g.o, d)
	}
	if broken != nil {
		return fmt.Errorf("a decision breaks a rule of safety and was withheld (rule %s): %w", d.Because.Rule, broken)
	}
	return nil
}

// reply answers a hook with status 200. It is the only place that does.
func reply(c *gin.Context, body []byte) {
	c.Header("Content-Length", strconv.Itoa(len(body)))
	c.Data(http.StatusOK, "application/json", body)
}

// clientGone is the code in metrics for a call whose client did not wait for the answer.
const clientGone = 499

// refuse answers with an error, which changes nothing: Metacontroller asks again.
func (s *Server) refuse(c *gin.Context, err error) {
	code := http.StatusInternalServerError
	if put := putOff(c.Request.Context()); put != nil && errors.Is(err, context.Canceled) {
		who, _ := c.Value(whoKey).(whose)
		s.metrics.putOff.WithLabelValues(who.Namespace, "slow").Inc()
		c.Header("Retry-After", "5") // about when a seat is free, and rarely enough that asking costs little
		err = put
	}
	if b := (*badRequest)(nil); errors.As(err, &b) {
		code = b.code
	} else if errors.Is(c.Request.Context().Err(), context.Canceled) {
		code = clientGone
	}
	if (code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable) && c.Writer.Header().Get("Retry-After") == "" {
		c.Header("Retry-After", "1")
	}
	_ = c.Error(err)
	c.AbortWithStatusJSON(code, gin.H{"error": err.Error()})
}

// measured counts and times a hook, logs its errors and turns a panic into a 500.
func (s *Server) measured(hook string) gin.HandlerFunc {
	return func(c *gin.Context) {
		began := time.Now()
		defer func() {
			if p := recover(); p != nil {
				s.panicked(c, hook, p)
			}
			s.metrics.hook(hook, c.Writer.Status(), time.Since(began))
		}()
		c.Next()
		if err := c.Errors.Last(); err != nil {
			s.logRefusal(c, hook, err)
		}
	}
}
