package facts

import (
	"cmp"
	"fmt"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Restored is the condition Restored: whether the cluster has the data that a restore asks for; not shown when none
// does.
func (f *Facts) Restored() (reason, message string, is, shown bool) {
	r := f.Asked.Restore
	switch {
	case f.Next != nil:
		reason, message = f.Prepared()
		return reason, message, false, true
	case r == nil:
		return "", "", false, false
	case f.Epoch == nil:
		_, why := f.Beginning()
		return "Waiting", cmp.Or(why, "the cluster has not started"), false, true
	case f.Epoch.Restore == r.ID:
		reason, message, is = f.answers()
		return reason, message, is, true
	}
	_, why := f.RestoreSource(r)
	switch {
	case f.Answered()[r.ID] != 0:
		return v1beta1.AnsweredBefore, "EtcdOperation " + r.Name + ": " + why, false, true
	case why == "" && f.MembersMissing() && !f.MayStopFirst(r):
		return "Waiting", fmt.Sprintf("EtcdOperation %s waits until epoch %d has all its members; with stopFirst it "+
			"does not wait", r.Name, f.Epoch.N), false, true
	}
	return "Impossible", fmt.Sprintf("EtcdOperation %s: %s; the data is untouched", r.Name, cmp.Or(why, "about to begin")), false,
		true
}

// MembersMissing reports whether the epoch that runs lacks a member. A spare is not waited for.
func (f *Facts) MembersMissing() bool {
	if f.Etcd == nil || f.Learner() != nil && f.Spares() == 0 {
		return f.Etcd != nil
	}
	return len(f.ReplicaVoters()) < f.Wanted()
}
