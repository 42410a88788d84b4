package hooks

import (
	"context"
	"errors"

	"github.com/quorate-dev/quorate/hooks/users"
)

// Etcd is the side of etcd that Sync needs. Package etcdops implements it over the network, the model and the
// scenarios in memory.
type Etcd interface {
	// Observe asks every endpoint for its own health, and one that leads for the member list (linearizable). The
	// membership is nil when no quorum answered. It takes no longer than the deadline of ctx and never fails: what
	// did not answer is in the health's Err.
	Observe(ctx context.Context, endpoints []Endpoint) (*Membership, map[string]Health)

	// Do carries out one step on the membership that it was decided on. It first reads the member list again and
	// refuses the step when the membership has changed meanwhile. An error means that the step may or may not have
	// been carried out.
	Do(ctx context.Context, step Step, on *Membership, endpoints []Endpoint) error
}

// Endpoint is where a member's pod can be asked.
type Endpoint struct {
	// Name of the member.
	Name string
	// ClientURL on the pod's own address, such as https://10.244.1.7:2379.
	ClientURL string
	// ServerName that the member's certificate must be for; empty when it speaks plain text.
	ServerName string
	// PeerURL that the member has in the member list, be it with http or https. An answer from a member that is
	// listed with another one comes from a stranger (an address that was reused) and does not count.
	PeerURL string
	// Foreign: it is not a pod of ours, but a member of the etcd that was joined, or may be one. Which, its answer
	// tells: its Name is the URL, and PeerURL is empty until then.
	Foreign bool
	// Allowed says where a foreign one may be asked; nil is nowhere. Namespace is that of the cluster.
	Allowed   *AllowedEndpoints
	Namespace string
	// ClusterID that is recorded; 0 while none is. An etcd of another cluster is asked for the member list only when
	// nobody of this one can give it.
	ClusterID uint64
}

// Sync makes one call of the hook: observe, decide, carry out the step if there is one, observe and decide again with
// steps off. The membership that the answered children follow was read in this very call, after the step.
// o.Etcd, o.Health and o.Taken are filled in here.
func Sync(ctx context.Context, o Observation, etcd Etcd) (Decision, *Outcome) {
	endpoints := Endpoints(o)
	o.Etcd, o.Health = etcd.Observe(ctx, endpoints)
	d := Decide(o)
	if d.Step == nil {
		return d, nil
	}
	o.Taken = &Outcome{Step: d.Step, Rule: d.Reason.Rule}
	if err := etcd.Do(ctx, d.Step, o.Etcd, Located(endpoints, o.Etcd, o.Health)); err != nil {
		o.Taken.Err = err.Error()
		if unfinished := (*users.Unfinished)(nil); errors.As(err, &unfinished) {
			o.Taken.Passwords = unfinished.Passwords
		}
	}
	o.Etcd, o.Health = etcd.Observe(ctx, endpoints)
	return Decide(o), o.Taken
}
