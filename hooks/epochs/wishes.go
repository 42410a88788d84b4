package epochs

import (
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Until an epoch has begun another one can be recorded in its place: by the act that people asked for last. So whatever
// turns out about its data or its nodes, there is a way on, and what waits for a person says which.

// Wish is what people ask for in the place of the epoch that is to come: where its data comes from, and by which
// EtcdOperation.
type Wish struct {
	record.Origin

	By string
}

// wished is the act that was asked for last, of those that are possible and due; nil for none.
func wished(v *state.View) *Wish {
	if restore := wishedRestore(v); restore != nil {
		return restore
	}
	op := v.Asked.Recovery(v.Epoch.N)
	if op == nil || v.Etcd != nil || !RecoveryDue(v) {
		return nil
	}
	from, why := WayBack(v, op.Spec.Recover.Policy, true)
	if why != "" {
		return nil
	}
	return &Wish{from, op.Name}
}

// wishedRestore is a restore that is possible, and was not asked for before a recovery of the epoch; nil for none.
func wishedRestore(v *state.View) *Wish {
	r := v.Asked.Restore
	if r == nil {
		return nil
	}
	if op := v.Asked.Recovery(v.Epoch.N); op != nil && op.CreationTimestamp.After(r.At) {
		return nil
	}
	from, why := RestoreSource(v, r)
	if why != "" {
		return nil
	}
	return &Wish{from, r.Name}
}

// RestoreFirst reports whether a restore is asked for that comes before a recovery.
func RestoreFirst(v *state.View) bool { return wishedRestore(v) != nil }

// Overtaken is the wish that the next epoch is not the answer to; nil for none.
func Overtaken(v *state.View) *Wish {
	w, next := wished(v), v.Next.Epoch
	switch {
	case w == nil:
		return nil
	case w.Restore != v.Epoch.Restore: // it is a restore
		if w.Restore == next.Restore {
			return nil
		}
	case ByRestore(v), w.Source != next.Source:
	case sameData(w.Origin, next.Origin), !askedSince(v): // what is newest may be another snapshot every hour
		return nil
	}
	return w
}

// askedSince reports whether the recovery was asked for after the next epoch was recorded.
func askedSince(v *state.View) bool {
	return v.Asked.Recovery(v.Epoch.N).CreationTimestamp.After(v.Next.Epoch.Record.CreationTimestamp.Time)
}

// sameData reports whether two epochs would begin with the same.
func sameData(a, b record.Origin) bool {
	url := func(o record.Origin) string {
		if o.Snapshot == nil {
			return ""
		}
		return o.Snapshot.URL
	}
	return a.Source == b.Source && a.SurvivorsOf == b.SurvivorsOf && a.Member == b.Member && url(a) == url(b)
}

// Suggested is the way back that loses least and that the next epoch does not take already, and the command for it; empty
// when only one is left that loses all.
func Suggested(v *state.View) string {
	for _, policy := range []v1alpha1.QuorumLoss{v1alpha1.RecoverFromSurvivor, v1alpha1.RecoverFromSnapshot} {
		asked := policy != v1alpha1.RecoverFromSurvivor // nothing is offered that may be empty
		from, why := WayBack(v, policy, asked)
		if why == "" && (v.Next == nil || !sameData(from, v.Next.Epoch.Origin)) {
			return fmt.Sprintf("%s is possible, with %s: %s", policy, WordsFor(v, from), recoverCommand(v, policy))
		}
	}
	return earlierSnapshot(v)
}

// earlierSnapshot is how the newest snapshot is restored beside the one that the next epoch should begin with; empty for
// none.
func earlierSnapshot(v *state.View) string {
	if v.Next == nil || v.Next.Epoch.Snapshot == nil {
		return ""
	}
	other := newestSnapshot(v, wording.Hex(clusterIDOf(v, v.Epoch.N)), v.Next.Epoch.Snapshot.Name)
	if other == nil {
		return ""
	}
	return fmt.Sprintf("EtcdSnapshot %s can be restored instead: kubectl quorate restore -n %s %s --snapshot=%s",
		other.Name, v.Cluster.Namespace, v.Cluster.Name, other.Name)
}

// Ways is how people go on from what can't be done: the way back that loses least, or the one that is left; with a
// semicolon before it.
func Ways(v *state.View) string {
	if way := Suggested(v); way != "" {
		return "; " + way
	}
	if v.BesideForeign() || v.Next != nil && v.Next.Epoch.Source == record.SourceEmpty {
		return ""
	}
	return fmt.Sprintf("; no data is known that could be used: restore a snapshot by its URL with an EtcdOperation of "+
		"type Restore, or begin without data: %s", recoverCommand(v, v1alpha1.RecoverRecreate))
}

// mayHaveVoted reports whether a member of the epoch may have been a voter: what is known of the others is that they
// were still learners. It decides what is offered, and no more.
func mayHaveVoted(v *state.View, name string) bool {
	if v.Epoch.BeganWith(name) {
		return true
	}
	n, _ := objects.Ordinal(v.Cluster.Name, name)
	if voters := pastOf(v, v.Epoch.N).Voters; len(voters) > 0 {
		return slices.Contains(voters, n)
	}
	return !slices.ContainsFunc(v.Cluster.Status.Members, func(m v1alpha1.MemberStatus) bool {
		return m.Name == name && m.Role == v1alpha1.Learner
	})
}
