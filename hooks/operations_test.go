package hooks

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// ask has the observation show an EtcdOperation of this name and UID.
func ask(o *observation.Observation, uid string, spec v1beta1.EtcdOperationSpec) *v1beta1.EtcdOperation {
	spec.ClusterRef.Name = o.Cluster.Name
	op := &v1beta1.EtcdOperation{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid),
		CreationTimestamp: metav1.NewTime(now.Add(-time.Second))}, Spec: spec}
	o.Related.Operations = maps.Clone(o.Related.Operations)
	if o.Related.Operations == nil {
		o.Related.Operations = map[string]*v1beta1.EtcdOperation{}
	}
	for name, other := range o.Related.Operations {
		if other.Spec.Type == spec.Type {
			delete(o.Related.Operations, name)
		}
	}
	o.Related.Operations[uid] = op
	return op
}

func askRestore(o *observation.Observation, uid string, r v1beta1.RestoreOperation) *v1beta1.EtcdOperation {
	return ask(o, uid, v1beta1.EtcdOperationSpec{Type: v1beta1.OperationRestore, Restore: &r})
}

func askRecover(o *observation.Observation, policy v1beta1.QuorumLoss, epoch int64) {
	ask(o, "recover", v1beta1.EtcdOperationSpec{Type: v1beta1.OperationRecover,
		Recover: &v1beta1.RecoverOperation{Policy: policy, Epoch: epoch}})
}

func askFence(o *observation.Observation, members ...string) *v1beta1.EtcdOperation {
	return ask(o, "fence", v1beta1.EtcdOperationSpec{Type: v1beta1.OperationFence,
		Fence: &v1beta1.FenceOperation{Members: members}})
}

func askDefragment(o *observation.Observation, uid string) *v1beta1.EtcdOperation {
	return ask(o, uid, v1beta1.EtcdOperationSpec{Type: v1beta1.OperationDefragment})
}

// noAsk takes every EtcdOperation out of sight.
func noAsk(o *observation.Observation) { o.Related.Operations = nil }

// progressOf is what the cluster says of the operation of this UID.
func progressOf(t *testing.T, o observation.Observation, uid string) v1beta1.OperationProgress {
	t.Helper()
	d := Decide(o)
	require.NoError(t, verify(o, d))
	for _, p := range d.Status.Operations {
		if p.UID == types.UID(uid) {
			return p
		}
	}
	require.Fail(t, "the status does not name it", "%v", d.Status.Operations)
	return v1beta1.OperationProgress{}
}

func askMove(o *observation.Observation, to string) *v1beta1.EtcdOperation {
	return ask(o, "move", v1beta1.EtcdOperationSpec{Type: v1beta1.OperationMoveLeader,
		MoveLeader: &v1beta1.MoveLeaderOperation{To: to}})
}

func TestHowFarOperationsAre(t *testing.T) {
	moveTo := func(member string, facts ...fact) func(o *observation.Observation) {
		return func(o *observation.Observation) { askMove(o, member); *o = with(*o, facts...) }
	}
	recoverOf := func(epoch int64) fact {
		return func(o *observation.Observation) { askRecover(o, v1beta1.RecoverFromSurvivor, epoch) }
	}
	fence := func(member string, lasts time.Duration, facts ...fact) fact {
		return func(o *observation.Observation) {
			if op := askFence(o, member); lasts > 0 {
				op.Spec.Fence.Duration = &metav1.Duration{Duration: lasts}
			}
			*o = with(*o, facts...)
		}
	}
	inMemory := func(o *observation.Observation) { o.Cluster.Spec.Storage.Medium = v1beta1.Memory }
	defragment := func(withdrawn *metav1.Time) fact {
		return func(o *observation.Observation) { askDefragment(o, "defrag").DeletionTimestamp = withdrawn }
	}
	const pending, failed, succeeded = v1beta1.OperationPending, v1beta1.OperationFailed, v1beta1.OperationSucceeded
	for name, c := range map[string]struct {
		ask   fact
		phase v1beta1.OperationPhase
		says  string
	}{
		"a leader that should be another": {moveTo("demo-1"), pending, "handing the leadership to demo-1"},
		"the one that leads":              {moveTo("demo-0"), succeeded, "demo-0 leads"},
		"one that is none of ours": {moveTo("other-0"), failed,
			"other-0 is not a voter of this cluster: the voters are demo-0, demo-1, demo-2"},
		"one that is unreachable":        {moveTo("demo-1", silenced("demo-1")), pending, "waiting for demo-1 to serve"},
		"a cluster that is suspended":    {moveTo("demo-1", suspending), pending, "spec.suspend"},
		"an epoch that has a quorum":     {recoverOf(1), failed, "a quorum of epoch 1 answers"},
		"an epoch that never was":        {recoverOf(7), failed, "there was no epoch 7"},
		"a fence":                        {fence("demo-1", 0), pending, "demo-1 is being stopped; until"},
		"a fence of an unmanaged member": {fence("demo-7", 0), pending, "demo-7 is not a member"},
		"a fence whose time is over":     {fence("demo-1", time.Second), succeeded, "demo-1 may start"},
		"a fence whose time is to end":   {fence("demo-1", time.Hour), pending, "UTC"},
		"a member that the others need": {fence("demo-1", 0, silenced("demo-2")), pending,
			"demo-1 is not stopped because the others need it now"},
		"a member in memory":    {fence("demo-1", 0, inMemory), failed, "would lose its data"},
		"a defragmentation":     {defragment(nil), v1beta1.OperationRunning, "no member defragmented so far"},
		"one that is withdrawn": {defragment(&metav1.Time{Time: now}), failed, "withdrawn"},
		"a snapshot that is not there": {restoring(nil), pending,
			"EtcdSnapshot s1 does not exist in namespace default, " +
				"or lacks the label: kubectl label etcdsnapshot -n default s1 " +
				"etcd.quorate.dev/cluster=demo; the data is untouched"},
	} {
		t.Run(name, func(t *testing.T) {
			o := with(serve(3), c.ask)
			p := progressOf(t, o, slices.Collect(maps.Keys(o.Related.Operations))[0])
			assert.Equal(t, c.phase, p.Phase, p.Message)
			assert.Contains(t, p.Message, c.says)
		})
	}
}

// TestOperationsOfOneTypeRunOneAfterTheOther: the younger waits, also while only the cluster's status says that the
// older has ended, and then it runs although that is still shown as open.
func TestOperationsOfOneTypeRunOneAfterTheOther(t *testing.T) {
	o := serve(3)
	older := askMove(&o, "demo-1")
	younger := older.DeepCopy()
	younger.Name, younger.UID, younger.Spec.MoveLeader.To = "young", "young", "demo-2"
	younger.CreationTimestamp = metav1.NewTime(now)
	o.Related.Operations["young"] = younger
	assert.Equal(t, decision.MoveLeader{To: 2, Name: "demo-1"}, Decide(o).Step)
	assert.Equal(t, "waiting for EtcdOperation move, which is older", progressOf(t, o, "young").Message)

	o.Etcd.Leader = 2
	d := Decide(o)
	assert.Nil(t, d.Step, "the end of the first is written down before the second begins")
	o.Cluster.Status = d.Status
	d = Decide(o)
	assert.Equal(t, decision.MoveLeader{To: 3, Name: "demo-2"}, d.Step)
	assert.Len(t, d.Status.Operations, 2, "it is told until its own status says so")

	o.Cluster.Status.Operations = nil
	older.Status.Phase = v1beta1.OperationSucceeded
	assert.Equal(t, decision.MoveLeader{To: 3, Name: "demo-2"}, Decide(o).Step)
	older.Status.Phase = ""
	older.Spec.ClusterRef.Name = "other"
	assert.Equal(t, decision.MoveLeader{To: 3, Name: "demo-2"}, Decide(o).Step, "that is another cluster's")
}

// TestManyOperations: a status holds as many as it can, those that are withdrawn first, so that they can go.
func TestManyOperations(t *testing.T) {
	o := serve(3)
	o.Related.Operations = map[string]*v1beta1.EtcdOperation{}
	for i := range 100 {
		name := fmt.Sprintf("op-%03d", i)
		op := &v1beta1.EtcdOperation{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
			CreationTimestamp: metav1.NewTime(now.Add(time.Duration(i-100) * time.Second))},
			Spec: v1beta1.EtcdOperationSpec{Type: v1beta1.OperationDefragment,
				ClusterRef: v1beta1.ClusterRef{Name: o.Cluster.Name}}}
		if i == 99 {
			op.DeletionTimestamp = &metav1.Time{Time: now}
		}
		o.Related.Operations[name] = op
	}
	all := Decide(o).Status.Operations
	require.Len(t, all, 32)
	assert.Equal(t, "op-000", all[0].Name)
	assert.Equal(t, "op-099", all[31].Name)
	assert.Equal(t, v1beta1.OperationFailed, all[31].Phase)
}

// askSnapshot asks for the data of an EtcdSnapshot.
func askSnapshot(o *observation.Observation, uid, name string) *v1beta1.EtcdOperation {
	return askRestore(o, uid, v1beta1.RestoreOperation{
		Snapshot: &v1beta1.SnapshotSource{SnapshotRef: v1beta1.SnapshotRef{Name: name}}})
}
