package facts

import (
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
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
func (f *Facts) wished() *Wish {
	if restore := f.wishedRestore(); restore != nil {
		return restore
	}
	op := f.Asked.Recovery(f.Epoch.N)
	if op == nil || f.Etcd != nil || !f.recoveryDue() {
		return nil
	}
	from, why := f.WayBack(op.Spec.Recover.Policy, true)
	if why != "" {
		return nil
	}
	return &Wish{from, op.Name}
}

// wishedRestore is a restore that is possible, and was not asked for before a recovery of the epoch; nil for none.
func (f *Facts) wishedRestore() *Wish {
	r := f.Asked.Restore
	if r == nil {
		return nil
	}
	if op := f.Asked.Recovery(f.Epoch.N); op != nil && op.CreationTimestamp.After(r.At) {
		return nil
	}
	from, why := f.RestoreSource(r)
	if why != "" {
		return nil
	}
	return &Wish{from, r.Name}
}

// RestoreFirst reports whether a restore is asked for that comes before a recovery.
func (f *Facts) RestoreFirst() bool { return f.wishedRestore() != nil }

// OvertakenWish is the wish that the next epoch is not the answer to; nil for none.
func (f *Facts) OvertakenWish() *Wish {
	w := f.wished()
	next := f.Next.Epoch
	switch {
	case w == nil:
		return nil
	case w.Restore != f.Epoch.Restore: // it is a restore
		if w.Restore == next.Restore {
			return nil
		}
	case f.ByRestore(), w.Source != next.Source:
	case sameData(w.Origin, next.Origin), !f.askedSince(): // what is newest may be another snapshot every hour
		return nil
	}
	return w
}

// askedSince reports whether the recovery was asked for after the next epoch was recorded.
func (f *Facts) askedSince() bool {
	return f.Asked.Recovery(f.Epoch.N).CreationTimestamp.After(f.Next.Epoch.Record.CreationTimestamp.Time)
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

// Suggested is the way back that loses least and that the next epoch does not take already, and the command for it;
// empty when only one is left that loses all.
func (f *Facts) Suggested() string {
	for _, policy := range []v1beta1.QuorumLoss{v1beta1.RecoverFromSurvivor, v1beta1.RecoverFromSnapshot} {
		asked := policy != v1beta1.RecoverFromSurvivor // nothing is offered that may be empty
		from, why := f.WayBack(policy, asked)
		if why == "" && (f.Next == nil || !sameData(from, f.Next.Epoch.Origin)) {
			return fmt.Sprintf("%s is possible, with %s: %s", policy, f.WordsFor(from), f.recoverCommand(policy))
		}
	}
	return f.earlierSnapshot()
}

// earlierSnapshot is how the newest snapshot is restored beside the one that the next epoch should begin with; empty
// for none.
func (f *Facts) earlierSnapshot() string {
	if f.Next == nil || f.Next.Epoch.Snapshot == nil {
		return ""
	}
	other := f.newestSnapshot(objects.Hex(f.clusterIDOf(f.Epoch.N)), f.Next.Epoch.Snapshot.Name)
	if other == nil {
		return ""
	}
	return fmt.Sprintf("EtcdSnapshot %s can be restored instead: kubectl quorate restore -n %s %s --snapshot=%s",
		other.Name, f.Cluster.Namespace, f.Cluster.Name, other.Name)
}

// Ways is how people go on from what can't be done: the way back that loses least, or the one that is left; with a
// semicolon before it.
func (f *Facts) Ways() string {
	if way := f.Suggested(); way != "" {
		return "; " + way
	}
	if f.BesideExternal() || f.Next != nil && f.Next.Epoch.Source == record.SourceEmpty {
		return ""
	}
	return fmt.Sprintf("; Quorate knows of no data that could be used: restore a snapshot by its artifact with an "+
		"EtcdOperation of type Restore, or begin without data: %s", f.recoverCommand(v1beta1.RecoverRecreate))
}

// mayHaveVoted reports whether a member of the epoch may have been a voter: what is known of the others is that they
// were still learners. It decides what is offered, and no more.
func (f *Facts) mayHaveVoted(name string) bool {
	if f.Epoch.BeganWith(name) {
		return true
	}
	n, _ := objects.Ordinal(f.Cluster.Name, name)
	if voters := f.pastOf(f.Epoch.N).Voters; len(voters) > 0 {
		return slices.Contains(voters, n)
	}
	return !slices.ContainsFunc(f.Cluster.Status.Members, func(m v1beta1.MemberStatus) bool {
		return m.Name == name && m.Role != v1beta1.Voter
	})
}
