package server

import (
	"context"
	"crypto/tls"
	"io"
	"slices"
	"time"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/server/pki"
)

// Asked is a call of Metacontroller's as the hooks read it, for whoever wants to know what they would answer to it.
type Asked struct{ r *request }

// Read reads the body of a call to the hook sync or finalize. The error names the field that is wrong.
func Read(body io.Reader) (*Asked, error) {
	r, err := decode(context.Background(), body)
	if err != nil {
		return nil, err
	}
	return &Asked{r}, nil
}

// Groups name the kinds of children that a call must have, each "Kind.version" or "Kind.group/version".
func Groups() []string { return slices.Clone(requiredGroups) }

// Finalizing reports whether it is a call to the hook finalize.
func (a *Asked) Finalizing() bool { return a.r.Finalizing }

// Observation is what the call says, without etcd's answers.
func (a *Asked) Observation(now time.Time, s hooks.Settings) hooks.Observation {
	return a.r.observation(now, s)
}

// TLS is what the cluster's members are shown; nil when the call holds no certificate for that.
func (a *Asked) TLS() (*tls.Config, error) { return a.r.tls() }

// Answer is the body that the hook sync would answer with. What a decision lets make of Secrets is made anew in each, and is secret.
func (a *Asked) Answer(d hooks.Decision) ([]byte, error) {
	return encode(a.r, d.Children, &d.Status, d.ResyncAfter, nil)
}

func (r *request) observation(now time.Time, s hooks.Settings) hooks.Observation {
	return hooks.Observation{Cluster: r.Cluster, Children: r.Children, Related: r.Related, WithoutLastApplied: hooks.WithoutLastApplied(r.Children), Now: now, Resync: r.Resync, Settings: s}
}

// foreign is how the members of the etcd are reached that the cluster joins; nil in plain text, or while the Secrets for it can't be used: the
// decision says so.
func (r *request) foreign() *etcdops.Foreign {
	b := r.Cluster.Spec.Bootstrap
	if b == nil || b.Existing == nil || b.Existing.TLS == nil {
		return nil
	}
	config, err := pki.Visitor(r.data(b.Existing.TLS.SecretName))
	if err != nil {
		return nil
	}
	foreign := &etcdops.Foreign{TLS: config}
	if a := b.Existing.Auth; a != nil {
		data := r.data(a.SecretName)
		foreign.User, foreign.Password = string(data[hooks.KeyUsername]), string(data[hooks.KeyPassword])
	}
	return foreign
}

// data is what a Secret holds, the cluster's own or one that the spec names.
func (r *request) data(secret string) map[string][]byte {
	if own := r.secrets[secret]; own != nil {
		return own
	}
	return r.related[secret]
}

// tls is what the Secret with Quorate's own certificate says; nil without one.
func (r *request) tls() (*tls.Config, error) {
	data := r.data(objects.OperatorSecret(r.Cluster))
	if data == nil {
		return nil, nil
	}
	return pki.Client(data)
}
