package server

import (
	"context"
	"fmt"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/wire"
)

// shown is etcd for one call: with the certificate that this cluster's members know Quorate by, and with what external
// members are shown.
func (s *Server) shown(r *wire.ClusterCall) hooks.Etcd {
	etcd := s.options.Etcd
	own, err := etcdops.OwnOf(r.Cluster, r.Secret)
	able, is := etcd.(interface {
		With(own etcdops.Own) hooks.Etcd
	})
	if is && own.TLS != nil && err == nil { // else the decision says what is wrong, by the Secret's flaw
		etcd = able.With(own)
	}
	visitor, is := etcd.(interface {
		Beside(external etcdops.External) hooks.Etcd
	})
	if external := externalOf(r); is && external != nil {
		etcd = visitor.Beside(*external)
	}
	return etcd
}

// external is how the members of the etcd are reached that the cluster joins; nil in plain text, or while the Secrets
// for it can't be used: the decision says so.
func externalOf(r *wire.ClusterCall) *etcdops.External {
	e := defaults.External(r.Cluster)
	if !defaults.SpeaksTLS(e) {
		return nil
	}
	client := r.Secret(e.ClientSecretRef.Name)
	if client == nil && e.ClientSecretRef.Name != "" {
		return nil
	}
	config, err := pki.Visitor(r.Secret(e.CASecretRef.Name), client)
	if err != nil {
		return nil
	}
	external := &etcdops.External{TLS: config}
	if e.UserSecretRef.Name != "" {
		data := r.Secret(e.UserSecretRef.Name)
		external.User = string(data[defaults.KeyUsername])
		external.Password = string(data[defaults.KeyPassword])
	}
	return external
}

// guarded is etcd as one call sees it. A step is not begun once the client has gone away, and finished cleanly once
// begun. With verification on, a step is taken only if the decision for it breaks no rule.
type guarded struct {
	etcd   hooks.Etcd
	o      observation.Observation // with what etcd said last, and the step that was taken
	decide func(observation.Observation) decision.Decision
	verify func(observation.Observation, decision.Decision) error // nil: off
	// write writes down what a step follows from, before that is begun.
	write func(observation.Observation, decision.Decision)
	// withhold writes down what is neither carried out nor answered.
	withhold func(observation.Observation, decision.Decision, error)
	broken   error // what verify said to the decision for a step
	began    bool  // whether a step was
}

// Observe implements hooks.Etcd.
func (g *guarded) Observe(
	ctx context.Context, endpoints []observation.Endpoint,
) (*observation.Membership, map[string]observation.Health) {
	g.o.Etcd, g.o.Health = g.etcd.Observe(ctx, endpoints)
	return g.o.Etcd, g.o.Health
}

// Do implements hooks.Etcd.
func (g *guarded) Do(ctx context.Context, step decision.Step, on *observation.Membership,
	endpoints []observation.Endpoint) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("not begun: %w", err)
	}
	d := g.decide(g.o)
	if g.verify != nil {
		if err := g.verify(g.o, d); err != nil {
			g.broken = err
			g.withhold(g.o, d, err)
			return fmt.Errorf("not begun: %w", err)
		}
	}
	g.write(g.o, d)
	if deadline, ok := ctx.Deadline(); ok {
		alone, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		ctx = alone
	}
	g.began = true
	return g.etcd.Do(ctx, step, on, endpoints)
}

// check verifies the decision before it is answered, if verification is on.
func (g *guarded) check(d decision.Decision) error {
	if g.verify == nil {
		return nil
	}
	broken := g.broken
	if broken == nil {
		if broken = g.verify(g.o, d); broken != nil {
			g.withhold(g.o, d, broken)
		}
	}
	if broken != nil {
		return fmt.Errorf("a decision breaks a rule of safety and was withheld (rule %s): %w", d.Reason.Rule, broken)
	}
	return nil
}
