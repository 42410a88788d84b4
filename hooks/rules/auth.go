package rules

import (
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/users"
)

// authorize applies the declared users and roles. Their names are recorded as ours before they are made.
func authorize(f *facts.Facts) *decision.Plan {
	if f.Cluster.Spec.Auth == nil {
		return nil
	}
	want, err := f.AuthWanted()
	old, applied := f.Applied()
	switch {
	case err != nil:
		return nil // the condition Authorized says it; nothing else has to wait for that
	case f.Tried():
		return nil // whether it worked or not: the condition says it, the next call tries again, and nothing else waits
	case !users.Recorded(old, want):
		return &decision.Plan{
			Message: "recording the names of users and roles before they are created in etcd",
			Resync:  decision.ResyncSoon,
		}
	case !want.Enabled && len(f.Anonymous()) > 0:
		return nil // the members ask for certificates first; the condition says it
	case applied == want.Hash() && (!want.Enabled || !f.AuthOff()) && !f.AuthLookDue():
		return nil
	}
	return change(f, decision.Authorize{Want: want}, "applying users and roles")
}
