package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Operations are how far the EtcdOperations have come. The status of each follows what is said here, and once it says
// that it has ended, it is not here any more.
func Operations(v *state.View, because rule.Reason) []v1alpha1.OperationProgress {
	var all []v1alpha1.OperationProgress
	for _, op := range v.Asked.Open {
		p := v1alpha1.OperationProgress{Name: op.Name, UID: op.UID}
		if ended := state.EndOf(v.Cluster, op); ended != nil {
			p = *ended
		} else {
			p.Phase, p.Message = progress(v, op, because)
		}
		all = append(all, p)
	}
	return all
}

// progress is how far an operation has come that has not ended before this call.
func progress(v *state.View, op *v1alpha1.EtcdOperation, because rule.Reason) (v1alpha1.OperationPhase, string) {
	switch {
	case v.Asked.Over(op.UID) && v.Next != nil && v.Next.Epoch.Restore == string(op.UID) && !epochs.Cancelled(v):
		return v1alpha1.OperationRunning, fmt.Sprintf("withdrawing it%s: epoch %d is not taken back yet",
			wording.Colon(v.Asked.Refused[op.UID]), v.Next.Epoch.N)
	case v.Asked.Withdrawn[op.UID]:
		return v1alpha1.OperationFailed, "withdrawn: it was deleted before its end"
	case v.Asked.Refused[op.UID] != "":
		return v1alpha1.OperationFailed, v.Asked.Refused[op.UID]
	case v.Asked.Behind[op.UID] != "":
		return v1alpha1.OperationPending, fmt.Sprintf("waiting for EtcdOperation %s, which is older",
			v.Asked.Behind[op.UID])
	}
	if v.HeldBack() {
		return v1alpha1.OperationPending, because.Message
	}
	switch op.Spec.Type {
	case v1alpha1.OperationRestore:
		return restored(v, string(op.UID))
	case v1alpha1.OperationRecover:
		return recovered(v, op, because)
	case v1alpha1.OperationFence:
		return fenced(v, op)
	case v1alpha1.OperationMoveLeader:
		return ledBy(v, op.Spec.MoveLeader.To, because)
	case v1alpha1.OperationDefragment:
		return defragmented(v, string(op.UID), because)
	}
	return v1alpha1.OperationFailed, "this Quorate does not know the type " + string(op.Spec.Type)
}

func restored(v *state.View, id string) (v1alpha1.OperationPhase, string) {
	n := epochs.Answered(v)[id]
	switch {
	case v.Next != nil && v.Next.Epoch.Restore == id && epochs.ByRestore(v):
		_, message := epochs.Staged(v)
		return v1alpha1.OperationRunning, message
	case v.Epoch != nil && v.Epoch.Restore != id && n != 0:
		return v1alpha1.OperationSucceeded, fmt.Sprintf("epoch %d began with the restored data, and is over", n)
	}
	_, message, is, _ := health.Restored(v)
	switch {
	case v.Epoch != nil && v.Epoch.Restore == id && v.Epoch.Source == record.SourceEmpty:
		return v1alpha1.OperationFailed, fmt.Sprintf("the record of epoch %d was lost, so whether this was done is not "+
			"known: look at the data, and create another EtcdOperation if it was not", v.Epoch.N)
	case is:
		return v1alpha1.OperationSucceeded, message
	case v.Epoch != nil && v.Epoch.Restore == id:
		return v1alpha1.OperationRunning, message
	}
	return v1alpha1.OperationPending, message
}

func recovered(v *state.View, op *v1alpha1.EtcdOperation, because rule.Reason) (v1alpha1.OperationPhase, string) {
	r := op.Spec.Recover
	if v.Epoch == nil {
		return v1alpha1.OperationPending, because.Message
	}
	switch now, newest := int64(v.Epoch.N), v.Asked.Recovery(v.Epoch.N); {
	case now == r.Epoch && newest.UID != op.UID:
		return v1alpha1.OperationFailed, fmt.Sprintf("EtcdOperation %s, which is newer, takes its place", newest.Name)
	case now < r.Epoch:
		return v1alpha1.OperationFailed, fmt.Sprintf("the cluster is at epoch %d: there was no epoch %d", now, r.Epoch)
	case now > r.Epoch && int64(v.Epoch.After) != r.Epoch:
		return v1alpha1.OperationFailed, fmt.Sprintf("epoch %d is over: the cluster is at epoch %d", r.Epoch, now)
	case now > r.Epoch && !v.Epoch.HadQuorum():
		return v1alpha1.OperationRunning, fmt.Sprintf("epoch %d has begun, and has no quorum yet", now)
	case now > r.Epoch:
		return v1alpha1.OperationSucceeded, fmt.Sprintf("epoch %d serves; %s", now, v.Epoch.Describe())
	case v.Next != nil && !epochs.ByRestore(v):
		_, message := epochs.Staged(v)
		return v1alpha1.OperationRunning, message
	case v.Etcd != nil && v.Next == nil:
		return v1alpha1.OperationFailed, fmt.Sprintf("a quorum of epoch %d answers, so there is nothing to recover", now)
	}
	return v1alpha1.OperationPending, because.Message
}

func fenced(v *state.View, op *v1alpha1.EtcdOperation) (v1alpha1.OperationPhase, string) {
	if state.FenceOver(op, v.Now) {
		return v1alpha1.OperationSucceeded, fmt.Sprintf("%s may start again: the duration is over",
			strings.Join(op.Spec.Fence.Members, ", "))
	}
	var all []string
	phase := v1alpha1.OperationRunning
	for _, name := range op.Spec.Fence.Members {
		words, stopped := fencing(v, name)
		if all = append(all, name+" "+words); !stopped {
			phase = v1alpha1.OperationPending
		}
	}
	until := "until this EtcdOperation is deleted"
	if ends := state.FenceEnds(op); !ends.IsZero() {
		until = "until " + ends.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return phase, strings.Join(all, ", ") + "; " + until
}

// fencing says what becomes of a member that should be stopped, and whether it is.
func fencing(v *state.View, name string) (words string, stopped bool) {
	m := v.Find(name)
	switch {
	case v.Etcd == nil && v.Children.Pods[name] == nil:
		return "is stopped", true
	case v.Etcd == nil:
		return "is not stopped while no quorum answers", false
	case m == nil:
		return "is not a member", false
	case m.Pod == nil:
		return "is stopped", true
	case !state.MayStop(v, m):
		return "is not stopped because the others need it now", false
	}
	return "is being stopped", false
}

func ledBy(v *state.View, to string, because rule.Reason) (v1alpha1.OperationPhase, string) {
	if v.Etcd == nil {
		return v1alpha1.OperationPending, because.Message
	}
	switch m := v.Find(to); {
	case m == nil || m.Learner:
		return v1alpha1.OperationFailed, fmt.Sprintf("%s is not a voter of this cluster: the voters are %s", to,
			strings.Join(state.Names(v.Voters), ", "))
	case m.ID == v.Etcd.Leader:
		return v1alpha1.OperationSucceeded, to + " leads"
	case !m.Serving():
		return v1alpha1.OperationPending, fmt.Sprintf("waiting for %s to serve%s", to, wording.Colon(m.Health.Err))
	}
	return v1alpha1.OperationPending, because.Message
}

func defragmented(v *state.View, id string, because rule.Reason) (v1alpha1.OperationPhase, string) {
	run := v.DefragRun
	if run == nil || run.Request != id {
		return v1alpha1.OperationPending, because.Message
	}
	done := wording.Count(len(run.Done), "member") + " defragmented"
	if run.CompletionTime.IsZero() {
		return v1alpha1.OperationRunning, cmp.Or(strings.Join(slices.Sorted(slices.Values(run.Done)), ", "), "no member") +
			" defragmented so far"
	}
	if run.Reclaimed != nil && !run.Reclaimed.IsZero() {
		done += ", " + run.Reclaimed.String() + " reclaimed"
	}
	return v1alpha1.OperationSucceeded, done
}
