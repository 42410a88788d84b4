package hooks

import (
	"context"
	"errors"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rules"
	"github.com/quorate-dev/quorate/hooks/safety"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Etcd is the side of etcd that Sync needs. Package etcdops implements it over the network, the model and the
// scenarios in memory.
type Etcd interface {
	// Observe asks every endpoint for its own health, and one that leads for the member list (linearizable). The
	// membership is nil when no quorum answered. It takes no longer than the deadline of ctx and never fails: what
	// did not answer is in the health's Err.
	Observe(ctx context.Context, endpoints []observation.Endpoint) (*observation.Membership,
		map[string]observation.Health)

	// Do carries out one step on the membership that it was decided on. It first reads the member list again and
	// refuses the step when the membership has changed meanwhile. An error means that the step may or may not have
	// been carried out.
	Do(ctx context.Context, step decision.Step, on *observation.Membership, endpoints []observation.Endpoint) error
}

// Sync makes one call of the hook: observe, decide, carry out the step if there is one, observe and decide again with
// steps off. The membership that the answered children follow was read in this very call, after the step.
// o.Etcd, o.Health and o.Taken are filled in here.
func Sync(ctx context.Context, o observation.Observation, etcd Etcd) (decision.Decision, *decision.Outcome) {
	endpoints := facts.Endpoints(o)
	o.Etcd, o.Health = etcd.Observe(ctx, endpoints)
	d := Decide(o)
	if d.Step == nil {
		return d, nil
	}
	o.Taken = &decision.Outcome{Step: d.Step, Rule: d.Reason.Rule}
	if err := etcd.Do(ctx, d.Step, o.Etcd, facts.Located(endpoints, o.Etcd, o.Health)); err != nil {
		o.Taken.Err = err.Error()
		if unfinished := (*users.Unfinished)(nil); errors.As(err, &unfinished) {
			o.Taken.Passwords = unfinished.Passwords
		}
	}
	o.Etcd, o.Health = etcd.Observe(ctx, endpoints)
	return Decide(o), o.Taken
}

// Verify is the oracle: the rules of safety, said a second time, and what tools that wait are told. The error names
// every rule that is broken; nil is the only acceptable answer.
func Verify(o observation.Observation, d decision.Decision) error {
	return errors.Join(rules.VerifyOutlook(d), safety.Verify(o, d))
}

// VerifyFinalize is Verify of the answer while the cluster is being deleted.
func VerifyFinalize(o observation.Observation, remaining decision.Desired, finalized bool) error {
	return safety.Finalize(o, remaining, finalized)
}
