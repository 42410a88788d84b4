package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	rec "github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// takeover is how one epoch takes over from another. It begins when a restore or a recovery has just been asked for,
// and ends when the next epoch serves, or when the wish was taken back and the one before goes on. At no time may two
// epochs acknowledge writes (S8), what a survivor holds is in the epoch that it seeds, and no client of an earlier
// epoch is answered by a later one without noticing: that begins above all revisions that were given out, and with the
// same data in all of its members (S21).
type takeover struct {
	// least is what the data of the last epoch must hold.
	least uint64
}

// asked is a cluster of which something is asked that takes another epoch.
type asked struct {
	size int
	what string
	// lost are the volumes that are gone.
	lost []string
}

const (
	toRestore = "restore"
	toRecover = "recover"
	toGoBack  = "back"
	// toFetch is a restore of what is at a URL, which may be overwritten.
	toFetch = "fetch"
)

// latest is that URL, and burst what clients write at once: two of them are more than what an epoch may come near to
// the next one.
const (
	latest = "s3://bucket/latest"
	burst  = 700_000_000
)

// fromLatest is such a restore.
func fromLatest() v1beta1.RestoreOperation {
	return v1beta1.RestoreOperation{Snapshot: &v1beta1.SnapshotSource{Artifact: "latest",
		Store: &v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "bucket"}}}}
}

func (a asked) world(troubles int, decide decider, just ...string) *scene {
	w := world.New()
	spec := v1beta1.EtcdClusterSpec{DeletionPolicy: v1beta1.DeletionDelete,
		Version: releases[0], Replicas: new(int32(a.size)),
		Storage: v1beta1.StorageSpec{Size: oneGi}}
	spec.TLS.Mode = v1beta1.TLSDisabled
	w.CreateCluster(clusterName, spec)
	plot := &takeover{}
	s := &scene{w: w, plot: plot, troubles: troubles, just: just}
	s.settle()
	w.Write(5)
	w.TakeSnapshot("s1", "s3://bucket/s1", "", "")
	w.Write(3)
	wish := v1beta1.RestoreOperation{Snapshot: &v1beta1.SnapshotSource{SnapshotRef: v1beta1.SnapshotRef{Name: "s1"}}}
	switch a.what {
	case toRestore:
		w.AskRestore("one", wish)
	case toFetch:
		w.StoreArtifact(latest, "")
		w.AskRestore("one", fromLatest())
	case toGoBack:
		w.AskRestore("one", wish)
		s.settle()
		w.AskRestore("back", v1beta1.RestoreOperation{Epoch: new(int64(1))})
	case toRecover:
		w.Net.Isolated["demo-1"] = true
		w.TickEtcd()
		w.Write(40) // demo-1 does not get them
		delete(w.Net.Isolated, "demo-1")
		for _, name := range a.lost {
			w.LoseClaim(name)
		}
		w.AskRecover(v1beta1.RecoverFromSurvivor, 1)
		for _, claim := range w.Claims() {
			plot.least = max(plot.least, w.Dirs["volume of "+string(claim.UID)].Index)
		}
	}
	w.TakeLog()
	w.Decide = decide
	return s
}

func (*takeover) goesOn(s *scene) (list []move) {
	if s.quiet() {
		list = append(list, goes("tick 1m", func(w *world.World) { w.Elapse(time.Minute) }))
	}
	if again, waits := s.again(); waits {
		list = append(list, again)
	}
	return list
}

// again is a person who asks once more because a member could not be filled; false while none waits for that.
func (s *scene) again() (move, bool) {
	c := s.w.Cluster()
	restored := meta.FindStatusCondition(c.Status.Conditions, v1beta1.Restored)
	wish := s.restoreID()
	asked := wish != "" && slices.ContainsFunc(slices.Collect(maps.Values(s.w.Objects)), func(o metav1.Object) bool {
		cm, is := o.(*corev1.ConfigMap)
		says := recordtest.Says(cm)
		return is && says.Restore == wish && says.Phase != rec.PhaseCancelled
	})
	return move{"edit restore=again", true, func(s *scene) {
		s.w.AskRestore(s.restoreID()+"-again", fromLatest())
	}}, restored != nil && strings.Contains(restored.Message, "could not be filled") && asked
}

// mishaps are what may go wrong, what people do, and calls that lag.
func (*takeover) mishaps(s *scene) []move {
	list := []move{trouble("status wipe")}
	if s.w.Leads() && slices.Contains(s.just, "write") {
		list = append(list, fails("write", func(w *world.World) { w.Write(burst) }))
	}
	if _, there := s.w.Artifacts[latest]; there && s.w.Leads() {
		list = append(list, fails("artifact url="+latest,
			func(w *world.World) { w.Write(1); w.StoreArtifact(latest, "") }))
	}
	if s.held == nil && s.late == nil {
		list = append(list, move{"call", false, func(s *scene) { s.held = s.w.Begin(world.Crash{}) }},
			move{"look", false, func(s *scene) { s.late = s.w.Look() }})
	}
	if !s.w.Net.Down {
		list = append(list, trouble("etcd down"))
	}
	if s.restoreID() != "" {
		list = append(list, fails("edit restore=none", func(w *world.World) { w.Withdraw(v1beta1.OperationRestore) }))
	}
	for _, claim := range s.w.Claims() {
		// of the next epoch
		if !s.begun() && claim.Annotations[objects.AnnotationEpoch] != "" &&
			claim.Annotations[objects.AnnotationQuarantined] == "" {
			list = append(list, trouble("lose claim="+claim.Name))
		}
	}
	return slices.Concat(list, s.freezes(world.PodKind, world.ClaimKind, world.ConfigMapKind, world.ClusterKind,
		world.OperationKind), s.eachPod("kill pod", "kubelet pod"))
}

// begun reports whether the next epoch has begun: what is lost of it then is lost.
func (s *scene) begun() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(s.w.Objects)), func(o metav1.Object) bool {
		cm, is := o.(*corev1.ConfigMap)
		return is && recordtest.Says(cm).Phase == rec.PhaseBegan
	})
}

// done reports whether the cluster has what is asked for, or what it had when that was taken back.
func (p *takeover) done(s *scene) bool {
	c := s.w.Cluster()
	if c.Status.Rule != "Converged" || !s.quiet() {
		return false
	}
	for _, e := range s.w.Etcd.Clusters {
		if strconv.FormatUint(e.ID, 16) == c.Status.ClusterID {
			return e.Commit >= p.least
		}
	}
	return false
}

func (*takeover) tell(s *scene, b *strings.Builder, n numbers) {
	w, c := s.w, s.w.Cluster()
	fmt.Fprintln(b, s.troubles, w.Net.Down, s.restoreID(), c.Status.ObservedGeneration == c.Generation,
		c.Status.Rule, c.Status.Epoch, n.of(c.Status.ClusterID), c.Status.Internal.Restoring, c.Status.Operations)
	for _, m := range c.Status.Members {
		fmt.Fprintln(b, m.Name, m.Role, m.Ready, w.Now.Sub(m.JoinTime.Time) > facts.CallsEnd)
	}
	for _, m := range c.Status.Conditions {
		fmt.Fprintln(b, m.Type, m.Status, m.Message, m.Type == v1beta1.Available &&
			w.Now.Sub(m.LastTransitionTime.Time) >= 5*time.Minute)
	}
	for _, pod := range w.Pods() {
		fmt.Fprintln(b, w.Now.Sub(pod.CreationTimestamp.Time) >= 5*time.Minute)
	}
	n.everything(b, s)
	for _, id := range slices.Sorted(maps.Keys(w.Etcd.Clusters)) {
		fmt.Fprintln(b, w.Etcd.Clusters[id].Commit)
	}
	if s.held != nil {
		try := w.Clone()
		try.Apply(s.held)
		fmt.Fprintln(b, s.held.Decision.Reason, try.TakeLog())
	}
	if s.late != nil {
		try, late := w.Clone(), *s.late
		try.Apply(try.Act(&late))
		fmt.Fprintln(b, "late", try.TakeLog())
	}
}

// restoreID is the restore that is asked for and not withdrawn; empty for none.
func (s *scene) restoreID() string {
	for _, op := range s.w.Operations(v1beta1.OperationRestore) {
		if op.DeletionTimestamp == nil {
			return op.Name
		}
	}
	return ""
}

// four are the volumes that a cluster of four loses: the quorum's, and with it the last writes of demo-1, but not
// those of demo-2.
var four = []string{"demo-0", "demo-3"}

// TestTakeovers searches all that may happen while an epoch takes over from another.
func TestTakeovers(t *testing.T) {
	for _, c := range []struct {
		name     string
		asked    asked
		troubles int
		just     []string
		deep     bool
	}{
		{"a restore, undisturbed", asked{1, toRestore, nil}, 0, nil, false},
		{"a restore, one trouble", asked{1, toRestore, nil}, 1, nil, false},
		{"a recovery of one of two, one trouble", asked{2, toRecover, four[:1]}, 1, nil, true},
		{"a recovery of two of four, undisturbed", asked{4, toRecover, four}, 0, nil, false},
		{"back to an epoch before, one trouble", asked{1, toGoBack, nil}, 1, nil, true},
		{"a restore, a pod is killed and caches lag", asked{1, toRestore, nil}, 2, []string{"kill", "cache"}, false},
		{"a restore while clients write, two bursts", asked{1, toRestore, nil}, 2, []string{"write"}, false},
		{"a restore of two from a URL that is overwritten", asked{2, toFetch, nil}, 1, []string{"artifact"}, false},
		{"a restore from a URL that is overwritten, and a pod is killed", asked{2, toFetch, nil}, 2,
			[]string{"artifact", "kill"}, true},
		{"a restore, taken back, and calls that overlap or lag", asked{1, toRestore, nil}, 2,
			[]string{"edit", "call", "cache", "crash"}, true},
		{"a restore of three, one trouble", asked{3, toRestore, nil}, 1, nil, true},
	} {
		searchScene(t, c.name, c.deep, func() *scene { return c.asked.world(c.troubles, nil, c.just...) })
	}
}

// TestTakeoverMutants are rules about epochs that are wrong on purpose.
func TestTakeoverMutants(t *testing.T) {
	begins := func(a asked) func(decider) *scene {
		return func(decide decider) *scene { return a.world(9, decide) }
	}
	one := begins(asked{1, toRestore, nil})
	staged := slices.Repeat([]string{"sync", "pass"}, 4)
	for name, mutant := range map[string]followed{
		"the next epoch begins without waiting for the pods of the one before": {
			one, beginsUnwaited, append(slices.Clone(staged), "sync", "sync", "sync", "sync",
				"sync", "sync", "kubelet pod=demo-1"), "S8: 2 etcd clusters",
		},
		"the record of the epoch before is not deleted": {
			one, keepsRecord, append(slices.Clone(staged), "kill pod=demo-0", "call", "sync",
				"sync", "pass", "sync", "pass", "sync", "sync", "pass", "apply", "pass", "pass"), "S8: 2 etcd clusters",
		},
		"the gate is open while the next epoch is made ready": {one, opensEarly, nil, "S8: 2 etcd clusters"},
		"the survivor is chosen by its name": {begins(asked{4, toRecover, four}), choosesByName, nil,
			"liveness: the cluster ends in Converged with other data"},
		"a revision is raised by the same each time": {begins(asked{1, toGoBack, nil}), raisesByTheSame, nil,
			"S21: epoch 3 begins at revision"},
		"every member fetches what is at the URL now": {
			begins(asked{2, toFetch, nil}), fetchesAnything, []string{"sync", "pass", "sync", "pass", "sync", "pass", "sync",
				"kubelet pod=demo-2", "artifact url=" + latest},
			"S21: the members of epoch 2 begin with different data",
		},
		"what an epoch leaves behind is deleted": {one, leavesNothing, nil, "S7: the claim demo-0 is deleted"},
		"a view of pods that lags is believed": {
			one, believesPods, append(slices.Clone(staged[:7]), "pass", "kill pod=demo-0",
				"cache freeze=pod", "sync", "kubelet pod=demo-0", "sync", "sync", "sync", "sync", "sync", "pass"),
			"S8: 2 etcd clusters",
		},
	} {
		mutant.run(t, name)
	}
}

// ---- mutants
