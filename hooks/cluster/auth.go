package cluster

import (
	"github.com/quorate-dev/quorate/hooks/auth"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/users"
	"github.com/quorate-dev/quorate/hooks/versions"
)

// authorize applies the declared users and roles. Their names are recorded as ours before they are made.
func authorize(v *state.View) *decision.Plan {
	if v.Cluster.Spec.Auth == nil {
		return nil
	}
	want, err := auth.AuthWanted(v)
	old, applied := auth.Applied(v)
	switch {
	case err != nil:
		return nil // the condition Authorized says it; nothing else has to wait for that
	case auth.Tried(v):
		return nil // whether it worked or not: the condition says it, the next call tries again, and nothing else waits
	case !users.Recorded(old, want):
		return &decision.Plan{
			Message: "recording the names of users and roles before they are created in etcd",
			Resync:  rule.ResyncSoon,
		}
	case !want.Enabled && len(state.Anonymous(v)) > 0:
		return nil // the members ask for certificates first; the condition says it
	case applied == want.Hash() && (!want.Enabled || !state.AuthOff(v)) &&
		(v.Clock.Unix()+auth.Offset(v))%auth.AuthLook >= auth.AuthGate:
		return nil
	}
	return versions.Change(v, decision.Authorize{Want: want}, "applying users and roles")
}
