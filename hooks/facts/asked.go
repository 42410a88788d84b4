package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// asked are the acts that EtcdOperations ask for now: of each type the oldest that has not ended, and every fence. Of
// the recoveries of one epoch the newest counts, so that one that turns out impossible can be replaced.
//
// An operation that is not seen says nothing: a cache may lag. That one is withdrawn is seen by its deletion, which
// waits until the cluster's status says that it is known.
type asked struct {
	// Open are the operations that have not ended by their own status, the oldest first.
	Open       []*v1beta1.EtcdOperation
	Restore    *restore
	Recoveries []*v1beta1.EtcdOperation
	MoveLeader *v1beta1.MoveLeaderOperation
	// Defragment is the UID of the operation; empty for none.
	Defragment string
	// Fenced are the members that should be stopped.
	Fenced []string
	// Withdrawn are the UIDs of those that are being deleted.
	Withdrawn map[types.UID]bool
	// Behind says which older operation one waits for, and Refused why one can't be done, both by UID.
	Behind  map[types.UID]string
	Refused map[types.UID]string
	// failed are the UIDs of those that have ended without success.
	failed map[types.UID]bool
}

// Over reports whether an operation is seen to ask for nothing any more, and was not done.
func (a *asked) Over(id types.UID) bool {
	return a.Withdrawn[id] || a.Refused[id] != "" || a.failed[id]
}

// restore is a restore that is asked for.
type restore struct {
	v1beta1.RestoreOperation

	// ID is the operation's UID: what the record of the epoch says.
	ID string
	// At is when it was asked for.
	At time.Time
	// Name of the operation.
	Name string
}

// askedOf are the acts that an observation's operations ask for, beside these records.
func askedOf(o observation.Observation, recorded map[int]*Epoch) asked {
	begun := len(recorded) > 0 || o.Cluster.Status.ClusterID != ""
	a := asked{Open: openOperations(o), Withdrawn: map[types.UID]bool{}, Behind: map[types.UID]string{},
		Refused: map[types.UID]string{}, failed: failedOperations(o)}
	first := map[v1beta1.OperationType]string{}
	for _, op := range a.Open {
		older := first[op.Spec.Type]
		switch why := refusal(o, op, begun); {
		case op.DeletionTimestamp != nil:
			a.Withdrawn[op.UID] = true
		case EndOf(o.Cluster, op) != nil:
		case why != "":
			a.Refused[op.UID] = why
		case older != "":
			a.Behind[op.UID] = older
		default:
			if op.Spec.Type != v1beta1.OperationFence && op.Spec.Type != v1beta1.OperationRecover {
				first[op.Spec.Type] = op.Name
			}
			a.ask(op, o.Now)
		}
	}
	return a
}

// ask puts an operation to effect.
func (a *asked) ask(op *v1beta1.EtcdOperation, now time.Time) {
	switch s := &op.Spec; {
	case s.Restore != nil:
		a.Restore = &restore{RestoreOperation: *s.Restore, ID: string(op.UID), Name: op.Name,
			At: op.CreationTimestamp.Time}
	case s.Recover != nil:
		a.Recoveries = append(a.Recoveries, op)
	case s.MoveLeader != nil:
		a.MoveLeader = s.MoveLeader
	case s.Fence != nil && !FenceOver(op, now):
		a.Fenced = append(a.Fenced, s.Fence.Members...)
	case s.Type == v1beta1.OperationDefragment:
		a.Defragment = string(op.UID)
	}
}

// Recovery is the newest recovery of this epoch that is asked for; nil for none.
func (a *asked) Recovery(epoch int) (newest *v1beta1.EtcdOperation) {
	for _, op := range a.Recoveries {
		if op.Spec.Recover.Epoch == int64(epoch) {
			newest = op
		}
	}
	return newest
}

// refusal is why an operation can't be done on a cluster with this spec; empty for none.
func refusal(o observation.Observation, op *v1beta1.EtcdOperation, begun bool) string {
	s := &op.Spec
	if o.Cluster.Spec.SelfHosted && (s.Restore != nil || s.Recover != nil) {
		return fmt.Sprintf("%s is not possible with spec.selfHosted, because it would stop the API server halfway; see "+
			v1beta1.Docs+"how-to/self-hosted.md", s.Type)
	}
	if s.Restore != nil && s.Restore.Snapshot != nil {
		if err := stores.ValidateSource("spec.restore.snapshot", s.Restore.Snapshot); err != nil {
			return err.Error()
		}
	}
	if s.Restore != nil || s.Recover != nil {
		if why := ofAnotherLife(o, op, begun); why != "" {
			return why
		}
	}
	if o.Cluster.Spec.Storage.Medium == v1beta1.Memory && s.Fence != nil {
		return "a member of the medium Memory would lose its data if it was stopped"
	}
	return ""
}

// ofAnotherLife is why an operation that moves the cluster to other data is not one on the life that it has now; empty
// when it may be. One that comes back from a backup has no status, and would be done again.
func ofAnotherLife(o observation.Observation, op *v1beta1.EtcdOperation, begun bool) string {
	runs := len(o.Children.Claims)+len(o.Children.Pods) > 0
	switch {
	case op.Labels[objects.LabelRestored] != "":
		return "Velero has made it from a backup, and it may have been done before: create another EtcdOperation if it " +
			"should be done now"
	case !begun && !runs:
		return "the cluster has not begun: what it begins with is in spec.bootstrap"
	}
	return ""
}

// mostOperations are looked at in a call, so that a status holds them: those that are withdrawn, and then the oldest.
const mostOperations = 32

// openOperations are those on the cluster that have not ended by their own status, the oldest first.
func openOperations(o observation.Observation) []*v1beta1.EtcdOperation {
	var all []*v1beta1.EtcdOperation
	for op := range maps.Values(o.Related.Operations) {
		if op.Spec.ClusterRef.Name == o.Cluster.Name && !op.Status.Phase.Ended() {
			all = append(all, op)
		}
	}
	older := func(a, b *v1beta1.EtcdOperation) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	}
	if len(all) > mostOperations {
		stays := func(op *v1beta1.EtcdOperation) int { return map[bool]int{true: 1}[op.DeletionTimestamp == nil] }
		slices.SortFunc(all, func(a, b *v1beta1.EtcdOperation) int { return cmp.Or(stays(a)-stays(b), older(a, b)) })
		all = all[:mostOperations]
	}
	slices.SortFunc(all, older)
	return all
}

// failedOperations are those on the cluster that have ended as failed, by their own status or by the cluster's.
func failedOperations(o observation.Observation) map[types.UID]bool {
	all := map[types.UID]bool{}
	for op := range maps.Values(o.Related.Operations) {
		end := EndOf(o.Cluster, op)
		all[op.UID] = op.Status.Phase == v1beta1.OperationFailed || end != nil && end.Phase == v1beta1.OperationFailed
	}
	return all
}

// EndOf is what the cluster's status says of an operation that has ended; nil for one that has not. The operation's own
// status follows that.
func EndOf(c *v1beta1.EtcdCluster, op *v1beta1.EtcdOperation) *v1beta1.OperationProgress {
	return objects.Find(c.Status.Operations, func(p *v1beta1.OperationProgress) bool {
		return p.UID == op.UID && p.Phase.Ended()
	})
}

// FenceEnds is when a fence ends; zero for when its operation is deleted.
func FenceEnds(op *v1beta1.EtcdOperation) time.Time {
	if d := op.Spec.Fence.Duration; d != nil {
		return op.CreationTimestamp.Add(d.Duration)
	}
	return time.Time{}
}

// FenceOver reports whether a fence has ended by its duration.
func FenceOver(op *v1beta1.EtcdOperation, now time.Time) bool {
	ends := FenceEnds(op)
	return !ends.IsZero() && !now.Before(ends)
}
