package answer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// operations are how far the EtcdOperations have come. The status of each follows what is said here, and once it says
// that it has ended, it is not here any more.
func operations(f *facts.Facts, because decision.Reason) []v1beta1.OperationProgress {
	var all []v1beta1.OperationProgress
	for _, op := range f.Asked.Open {
		p := v1beta1.OperationProgress{Name: op.Name, UID: op.UID}
		if ended := facts.EndOf(f.Cluster, op); ended != nil {
			p = *ended
		} else {
			p.Phase, p.Message = progress(f, op, because)
		}
		all = append(all, p)
	}
	return all
}

// progress is how far an operation has come that has not ended before this call.
func progress(f *facts.Facts, op *v1beta1.EtcdOperation, because decision.Reason) (v1beta1.OperationPhase, string) {
	switch {
	case f.Asked.Over(op.UID) && f.Next != nil && f.Next.Epoch.Restore == string(op.UID) && !f.Cancelled():
		return v1beta1.OperationRunning, fmt.Sprintf("withdrawing it%s: epoch %d is not taken back yet",
			objects.Colon(f.Asked.Refused[op.UID]), f.Next.Epoch.N)
	case f.Asked.Withdrawn[op.UID]:
		return v1beta1.OperationFailed, "withdrawn: it was deleted before its end"
	case f.Asked.Refused[op.UID] != "":
		return v1beta1.OperationFailed, f.Asked.Refused[op.UID]
	case f.Asked.Behind[op.UID] != "":
		return v1beta1.OperationPending, fmt.Sprintf("waiting for EtcdOperation %s, which is older",
			f.Asked.Behind[op.UID])
	}
	if f.HeldBack() {
		return v1beta1.OperationPending, because.Message
	}
	switch op.Spec.Type {
	case v1beta1.OperationRestore:
		return restored(f, string(op.UID))
	case v1beta1.OperationRecover:
		return recovered(f, op, because)
	case v1beta1.OperationFence:
		return fenced(f, op)
	case v1beta1.OperationMoveLeader:
		return ledBy(f, op.Spec.MoveLeader.To, because)
	case v1beta1.OperationDefragment:
		return defragmented(f, string(op.UID), because)
	}
	return v1beta1.OperationFailed, "this Quorate does not know the type " + string(op.Spec.Type)
}

func restored(f *facts.Facts, id string) (v1beta1.OperationPhase, string) {
	n := f.Answered()[id]
	switch {
	case f.Next != nil && f.Next.Epoch.Restore == id && f.ByRestore():
		_, message := f.Prepared()
		return v1beta1.OperationRunning, message
	case f.Epoch != nil && f.Epoch.Restore != id && n != 0:
		return v1beta1.OperationSucceeded, fmt.Sprintf("epoch %d began with the restored data, and has ended", n)
	}
	_, message, is, _ := f.Restored()
	switch {
	case f.Epoch != nil && f.Epoch.Restore == id && f.Epoch.Source == record.SourceEmpty:
		return v1beta1.OperationFailed, fmt.Sprintf("the record of epoch %d was lost, so whether this was done is not "+
			"known: look at the data, and create another EtcdOperation if it was not", f.Epoch.N)
	case is:
		return v1beta1.OperationSucceeded, message
	case f.Epoch != nil && f.Epoch.Restore == id:
		return v1beta1.OperationRunning, message
	}
	return v1beta1.OperationPending, message
}

func recovered(f *facts.Facts, op *v1beta1.EtcdOperation, because decision.Reason) (v1beta1.OperationPhase, string) {
	r := op.Spec.Recover
	if f.Epoch == nil {
		return v1beta1.OperationPending, because.Message
	}
	switch now, newest := int64(f.Epoch.N), f.Asked.Recovery(f.Epoch.N); {
	case now == r.Epoch && newest.UID != op.UID:
		return v1beta1.OperationFailed, fmt.Sprintf("EtcdOperation %s, which is newer, takes its place", newest.Name)
	case now < r.Epoch:
		return v1beta1.OperationFailed, fmt.Sprintf("the cluster is at epoch %d: there was no epoch %d", now, r.Epoch)
	case now > r.Epoch && int64(f.Epoch.After) != r.Epoch:
		return v1beta1.OperationFailed, fmt.Sprintf("epoch %d has ended: the cluster is at epoch %d", r.Epoch, now)
	case now > r.Epoch && !f.Epoch.HadQuorum():
		return v1beta1.OperationRunning, fmt.Sprintf("epoch %d has begun, and has no quorum yet", now)
	case now > r.Epoch:
		return v1beta1.OperationSucceeded, fmt.Sprintf("epoch %d serves; %s", now, f.Epoch.Describe())
	case f.Next != nil && !f.ByRestore():
		_, message := f.Prepared()
		return v1beta1.OperationRunning, message
	case f.Etcd != nil && f.Next == nil:
		return v1beta1.OperationFailed, fmt.Sprintf("a quorum of epoch %d answers, so there is nothing to recover", now)
	}
	return v1beta1.OperationPending, because.Message
}

func fenced(f *facts.Facts, op *v1beta1.EtcdOperation) (v1beta1.OperationPhase, string) {
	if facts.FenceOver(op, f.Now) {
		return v1beta1.OperationSucceeded, fmt.Sprintf("%s may start again: the duration is over",
			strings.Join(op.Spec.Fence.Members, ", "))
	}
	var all []string
	phase := v1beta1.OperationRunning
	for _, name := range op.Spec.Fence.Members {
		words, stopped := fencing(f, name)
		if all = append(all, name+" "+words); !stopped {
			phase = v1beta1.OperationPending
		}
	}
	until := "until this EtcdOperation is deleted"
	if ends := facts.FenceEnds(op); !ends.IsZero() {
		until = "until " + ends.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return phase, strings.Join(all, ", ") + "; " + until
}

// fencing says what becomes of a member that should be stopped, and whether it is.
func fencing(f *facts.Facts, name string) (words string, stopped bool) {
	m := f.Find(name)
	switch {
	case f.Etcd == nil && f.Children.Pods[name] == nil:
		return "is stopped", true
	case f.Etcd == nil:
		return "is not stopped while no quorum answers", false
	case m == nil:
		return "is not a member", false
	case m.Pod == nil:
		return "is stopped", true
	case !f.MayStop(m):
		return "is not stopped because the others need it now", false
	}
	return "is being stopped", false
}

func ledBy(f *facts.Facts, to string, because decision.Reason) (v1beta1.OperationPhase, string) {
	if f.Etcd == nil {
		return v1beta1.OperationPending, because.Message
	}
	switch m := f.Find(to); {
	case m == nil || m.Learner:
		return v1beta1.OperationFailed, fmt.Sprintf("%s is not a voter of this cluster: the voters are %s", to,
			strings.Join(facts.Names(f.Voters), ", "))
	case m.ID == f.Etcd.Leader:
		return v1beta1.OperationSucceeded, to + " leads"
	case !m.Serving():
		return v1beta1.OperationPending, fmt.Sprintf("waiting for %s to serve%s", to, objects.Colon(m.Health.Err))
	}
	return v1beta1.OperationPending, because.Message
}

func defragmented(f *facts.Facts, id string, because decision.Reason) (v1beta1.OperationPhase, string) {
	run := f.DefragRun
	if run == nil || run.Request != id {
		return v1beta1.OperationPending, because.Message
	}
	done := objects.Count(len(run.Done), "member") + " defragmented"
	if run.CompletionTime.IsZero() {
		return v1beta1.OperationRunning, cmp.Or(strings.Join(slices.Sorted(slices.Values(run.Done)), ", "), "no member") +
			" defragmented so far"
	}
	if run.Reclaimed != nil && !run.Reclaimed.IsZero() {
		done += ", " + run.Reclaimed.String() + " reclaimed"
	}
	return v1beta1.OperationSucceeded, done
}
