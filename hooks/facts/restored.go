package facts

import (
	"cmp"
	"fmt"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// Restored is the condition Restored: whether the cluster has the data that a restore asks for; not shown when none does.
func (v *Facts) Restored() (reason, message string, is, shown bool) {
	r := v.Asked.Restore
	switch {
	case v.Next != nil:
		reason, message = v.Staged()
		return reason, message, false, true
	case r == nil:
		return "", "", false, false
	case v.Epoch == nil:
		_, why := v.Beginning()
		return "Waiting", cmp.Or(why, "the cluster has not started"), false, true
	case v.Epoch.Restore == r.ID:
		reason, message, is = v.answers()
		return reason, message, is, true
	}
	_, why := v.RestoreSource(r)
	switch {
	case v.Answered()[r.ID] != 0:
		return v1alpha1.AnsweredBefore, "EtcdOperation " + r.Name + ": " + why, false, true
	case why == "" && v.MembersMissing() && !v.MayStopFirst(r):
		return "Waiting", fmt.Sprintf("EtcdOperation %s waits until epoch %d has all its members; with stopFirst it "+
			"does not wait", r.Name, v.Epoch.N), false, true
	}
	return "Impossible", fmt.Sprintf("EtcdOperation %s: %s; the data is untouched", r.Name, cmp.Or(why, "about to begin")), false,
		true
}

// MembersMissing reports whether the epoch that runs lacks a member.
func (v *Facts) MembersMissing() bool {
	return v.Etcd != nil && (len(v.ReplicaVoters()) < v.Wanted() || v.Learner() != nil)
}
