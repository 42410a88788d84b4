package cluster

import (
	"slices"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/state"
)

// leaving names the voters that clients are led away from: those that restart or are removed in a moment, and in a roll
// the one whose turn is next. A client whose connection a member closes would come back to it as long as nodes lead
// there, find no one, and wait for a second (gRPC's first backoff); and kube-proxy may let a second pass between two
// changes. Another voter that clients are led to stays.
func leaving(v *state.View, plan *decision.Plan) (names []string) {
	if v.Etcd == nil || v.Epoch == nil {
		return nil
	}
	for _, m := range v.Voters {
		if othersHaveClients(v, m, names) && state.Leaves(v, m, plan) {
			names = append(names, m.PodName)
		}
	}
	rolling := slices.ContainsFunc(v.Voters, func(m *state.Member) bool { return !state.Stays(v, m) })
	stuck := slices.ContainsFunc(v.Voters, func(m *state.Member) bool { return health.Overdue(v, m) })
	if !rolling || stuck {
		return names
	}
	for _, next := range due(v) {
		if !slices.Contains(names, next.PodName) && othersHaveClients(v, next, names) {
			return append(names, next.PodName)
		}
	}
	return names
}

// othersHaveClients reports whether the voter serves, and another one would have clients without it and those that leave.
func othersHaveClients(v *state.View, m *state.Member, leave []string) bool {
	return m.Serving() && m.Pod != nil && slices.ContainsFunc(v.Voters, func(o *state.Member) bool {
		return o != m && !slices.Contains(leave, o.PodName) && hasClients(v, o)
	})
}

// hasClients reports whether clients are led to the voter, and will be.
func hasClients(v *state.View, m *state.Member) bool {
	return state.Stays(v, m) && m.Pod != nil && m.Pod.Labels[objects.LabelRole] == pods.RoleVoter && objects.Ready(m.Pod)
}
