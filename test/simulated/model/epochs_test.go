package model

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/cluster"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/reports"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// How one epoch takes over from another is searched in the world of the stories, too. It begins when a restore or a
// recovery has just been asked for, and ends when the next epoch serves, or when the wish was taken back and the one
// before goes on. At no time may two epochs acknowledge writes (S8), what a survivor holds is in the epoch that it
// seeds, and no client of an earlier epoch is answered by a later one without noticing: that begins above all
// revisions that were given out, and with the same data in all of its members (S21).

// takeover is such a world, with how much may still go wrong in it.
type takeover struct {
	w        *world.World
	troubles int
	// held is a call whose answer is under way, late one that has observed and not acted yet; nil for none.
	held *world.Call
	late *world.Held
	// just are the troubles that there are, by their first word; nil for all.
	just []string
	// least is what the data of the last epoch must hold.
	least uint64
	// ours is how many members of ours a foreign etcd is joined with; 0 for a cluster of its own.
	ours int
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
func fromLatest() v1alpha1.RestoreOperation {
	return v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{Artifact: "latest",
		Store: &v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "bucket"}}}}
}

func (a asked) world(troubles int, decide func(observation.Observation) decision.Decision, just ...string) *takeover {
	w := world.New()
	spec := v1alpha1.EtcdClusterSpec{Version: releases[0], Replicas: new(int32(a.size)),
		Storage: v1alpha1.StorageSpec{Size: oneGi}}
	spec.TLS.Mode = v1alpha1.TLSDisabled
	w.CreateCluster(clusterName, spec)
	s := &takeover{w: w, troubles: troubles, just: just}
	s.settle()
	w.Write(5)
	w.TakeSnapshot("s1", "s3://bucket/s1", "")
	w.Write(3)
	wish := v1alpha1.RestoreOperation{
		Snapshot: &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: "s1"}}}
	switch a.what {
	case toRestore:
		w.AskRestore("one", wish)
	case toFetch:
		w.StoreArtifact(latest, "")
		w.AskRestore("one", fromLatest())
	case toGoBack:
		w.AskRestore("one", wish)
		s.settle()
		w.AskRestore("back", v1alpha1.RestoreOperation{Epoch: new(int64(1))})
	case toRecover:
		w.Net.Isolated["demo-1"] = true
		w.TickEtcd()
		w.Write(40) // demo-1 does not get them
		delete(w.Net.Isolated, "demo-1")
		for _, name := range a.lost {
			w.LoseClaim(name)
		}
		w.AskRecover(v1alpha1.RecoverFromSurvivor, 1)
		for _, claim := range w.Claims() {
			s.least = max(s.least, w.Dirs["volume of "+string(claim.UID)].Index)
		}
	}
	w.TakeLog()
	w.Decide = decide
	return s
}

// settle lets everything run.
func (s *takeover) settle() {
	for range 60 {
		s.w.Sync(world.Crash{})
		s.w.Pass()
		s.w.Now = s.w.Now.Add(time.Second)
	}
}

func (s *takeover) clone() *takeover {
	c := *s
	c.w = s.w.Clone()
	return &c
}

type turn = possible[*takeover]

func (s *takeover) after(m turn) *takeover {
	next := s.clone()
	m.do(next)
	if !m.free {
		next.troubles--
	}
	next.w.TickEtcd()
	next.w.Collect()
	next.w.TickEtcd()
	next.w.TakeLog()
	if next.gone() && !s.gone() {
		next.hasLeft(s.w)
	}
	return next
}

func (s *takeover) ways() (list []oneWay[*takeover]) {
	if s.gone() {
		return nil
	}
	for _, m := range s.turns() {
		list = append(list, oneWay[*takeover]{m.words, m.free, s.after(m)})
	}
	return list
}

func (s *takeover) broken() []string { return s.w.Oracle.Broken }

// turns are all that may happen.
func (s *takeover) turns() []turn {
	list := []turn{
		{"sync", true, func(s *takeover) { s.w.Sync(world.Crash{}) }},
		{"pass", true, func(s *takeover) { s.w.Pass() }},
	}
	for _, kind := range slices.Sorted(maps.Keys(s.w.Frozen)) {
		list = append(list, turn{"cache thaw=" + string(kind), true, func(s *takeover) { s.w.Thaw(kind) }})
	}
	if s.w.Net.Down {
		list = append(list, turn{"etcd up", true, func(s *takeover) { s.w.Net.Down = false }})
	}
	if s.held != nil {
		list = append(list, turn{"apply", true, func(s *takeover) { s.w.Apply(s.held); s.held = nil }})
	}
	if s.late != nil {
		list = append(list, turn{"act and apply", true, func(s *takeover) { s.w.Apply(s.w.Act(s.late)); s.late = nil }})
	}
	if s.quiet() {
		list = append(list, turn{"tick 1m", true, func(s *takeover) { s.w.Elapse(time.Minute) }})
	}
	if again, waits := s.again(); waits {
		list = append(list, again)
	}
	if s.ours > 0 {
		list = append(list, s.besideOthers()...)
	}
	if s.troubles == 0 {
		return list
	}
	known := func(m turn) bool { return s.just == nil || slices.Contains(s.just, strings.Fields(m.words)[0]) }
	mishaps := s.mishaps()
	if s.ours > 0 {
		mishaps = append(mishaps, s.mishapsBesideOthers()...)
	}
	for _, m := range append(cutsIn(s.w, func(s *takeover) *world.World { return s.w }), mishaps...) {
		if known(m) {
			list = append(list, m)
		}
	}
	return list
}

// again is a person who asks once more because a member could not be filled; false while none waits for that.
func (s *takeover) again() (turn, bool) {
	c := s.w.Cluster()
	restored := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Restored)
	wish := s.restoreID()
	asked := wish != "" && slices.ContainsFunc(slices.Collect(maps.Values(s.w.Objects)),
		func(o metav1.Object) bool {
			record, is := o.(*corev1.ConfigMap)
			return is && record.Data[objects.EpochKeyRestore] == wish &&
				record.Annotations[objects.AnnotationPhase] != "cancelled"
		})
	return turn{"edit restore=again", true, func(s *takeover) {
		s.w.AskRestore(s.restoreID()+"-again", fromLatest())
	}}, restored != nil && strings.Contains(restored.Message, "could not be filled") && asked
}

// mishaps are what may go wrong, what people do, and calls that overlap.
func (s *takeover) mishaps() []turn {
	list := []turn{
		{"two-syncs", false, func(s *takeover) {
			first, second := s.w.BeginTwo()
			s.w.Apply(second)
			s.w.Apply(first)
		}},
		{"status wipe", false, func(s *takeover) { s.w.WipeStatus() }},
	}
	if s.w.Leads() && slices.Contains(s.just, "write") {
		list = append(list, turn{"write", false, func(s *takeover) { s.w.Write(burst) }})
	}
	if _, there := s.w.Artifacts[latest]; there && s.w.Leads() {
		list = append(list, turn{"artifact url=" + latest, false,
			func(s *takeover) { s.w.Write(1); s.w.StoreArtifact(latest, "") }})
	}
	mishap := func(words, name string, do func(w *world.World, name string)) {
		list = append(list, turn{words + name, false, func(s *takeover) { do(s.w, name) }})
	}
	if s.held == nil && s.late == nil {
		list = append(list, turn{"call", false, func(s *takeover) { s.held = s.w.Begin(world.Crash{}) }},
			turn{"look", false, func(s *takeover) { s.late = s.w.Look() }})
	}
	if !s.w.Net.Down {
		list = append(list, turn{"etcd down", false, func(s *takeover) { s.w.Net.Down = true }})
	}
	if s.restoreID() != "" {
		list = append(list, turn{"edit restore=none", false, func(s *takeover) {
			s.w.Withdraw(v1alpha1.OperationRestore)
		}})
	}
	for _, kind := range []world.Kind{world.PodKind, world.ClaimKind, world.ConfigMapKind, world.ClusterKind,
		world.OperationKind} {
		if _, frozen := s.w.Frozen[kind]; !frozen {
			mishap("freeze cache of ", string(kind), func(w *world.World, name string) { w.Freeze(world.Kind(name)) })
		}
	}
	for _, pod := range s.w.Pods() {
		mishap("kill pod=", pod.Name, (*world.World).KillPod)
		mishap("kubelet pod=", pod.Name, (*world.World).Kubelet)
	}
	for _, claim := range s.w.Claims() {
		// of the next epoch
		if !s.begun() && claim.Annotations[objects.AnnotationEpoch] != "" &&
			claim.Annotations[objects.AnnotationQuarantined] == "" {
			mishap("lose claim=", claim.Name, (*world.World).LoseClaim)
		}
	}
	return list
}

// begun reports whether the next epoch has begun: what is lost of it then is lost.
func (s *takeover) begun() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(s.w.Objects)), func(o metav1.Object) bool {
		return o.GetAnnotations()[objects.AnnotationPhase] == "began"
	})
}

// quiet reports whether nothing is left to do now.
func (s *takeover) quiet() bool {
	return len(s.w.Frozen)+len(s.w.Net.Isolated)+len(s.w.Net.Unreachable) == 0 && !s.w.Net.Down && s.held == nil &&
		s.late == nil && still(s.w)
}

// done reports whether the cluster has what is asked for, or what it had when that was taken back.
func (s *takeover) done() bool {
	if s.ours > 0 {
		return s.gone() || s.movedIn()
	}
	c := s.w.Cluster()
	if c.Status.Rule != "Converged" || !s.quiet() {
		return false
	}
	for _, e := range s.w.Etcd.Clusters {
		if strconv.FormatUint(e.ID, 16) == c.Status.ClusterID {
			return e.Commit >= s.least
		}
	}
	return false
}

// identity of the state: worlds that differ only in numbers that count up, and in times, are one.
func (s *takeover) identity() identity {
	w, n := s.w, numbers{}
	var b strings.Builder
	if s.gone() {
		return identity{}
	}
	c := w.Cluster()
	fmt.Fprintln(&b, s.troubles, w.Net.Down, s.restoreID(), c.Status.ObservedGeneration == c.Generation,
		c.Status.Rule, c.Status.Epoch, n.of(c.Status.ClusterID), c.Status.Internal.Restoring, c.Status.Operations)
	for _, m := range c.Status.Members {
		fmt.Fprintln(&b, m.Name, m.Role, m.Ready, w.Now.Sub(m.JoinTime.Time) > state.CallsEnd)
	}
	for _, m := range c.Status.Conditions {
		fmt.Fprintln(&b, m.Type, m.Status, m.Message, m.Type == v1alpha1.Available &&
			w.Now.Sub(m.LastTransitionTime.Time) >= 5*time.Minute)
	}
	if s.ours > 0 {
		s.writeOthers(&b)
	}
	n.objects(&b, w, w.Objects, true)
	for _, kind := range slices.Sorted(maps.Keys(w.Frozen)) {
		fmt.Fprintln(&b, kind)
		shown := map[world.Key]metav1.Object{}
		for name, o := range w.Frozen[kind] {
			shown[world.Key{Kind: kind, Name: name}] = o
		}
		n.objects(&b, w, shown, false)
	}
	for _, id := range slices.Sorted(maps.Keys(w.Etcd.Clusters)) {
		e := w.Etcd.Clusters[id]
		fmt.Fprintln(&b, e.Leader, e.Members, e.Removed, e.Commit)
	}
	if s.held != nil {
		try := w.Clone()
		try.TakeLog()
		try.Apply(s.held)
		fmt.Fprintln(&b, s.held.Decision.Reason, try.TakeLog())
	}
	if s.late != nil {
		try := w.Clone()
		try.TakeLog()
		late := *s.late
		try.Apply(try.Act(&late))
		fmt.Fprintln(&b, "late", try.TakeLog())
	}
	return sha256.Sum256([]byte(b.String()))
}

// restoreID is the restore that is asked for and not withdrawn; empty for none.
func (s *takeover) restoreID() string {
	for _, op := range s.w.Operations(v1alpha1.OperationRestore) {
		if op.DeletionTimestamp == nil {
			return op.Name
		}
	}
	return ""
}

// objects writes down what there is to pods, claims and records.
func (n numbers) objects(b *strings.Builder, w *world.World, all map[world.Key]metav1.Object, live bool) {
	keys := slices.SortedFunc(maps.Keys(all), func(x, y world.Key) int {
		return strings.Compare(string(x.Kind)+x.Name, string(y.Kind)+y.Name)
	})
	for _, key := range keys {
		if now := w.Objects[key]; !live {
			fmt.Fprint(b, now != nil && now.GetResourceVersion() == all[key].GetResourceVersion())
		}
		switch t := all[key].(type) {
		case *corev1.Pod:
			n.pod(b, w, t)
			fmt.Fprintln(b, t.Annotations[objects.AnnotationBegins], t.Annotations[objects.AnnotationPredecessorGone],
				t.Annotations[objects.AnnotationInitialCluster], t.Status.InitContainerStatuses,
				w.Now.Sub(t.CreationTimestamp.Time) >= 5*time.Minute)
			if proc, runs := w.Procs[t.UID]; live {
				fmt.Fprintln(b, runs, w.Dirs[proc.Dir].Index, w.Prepared[t.UID], w.Markers[t.UID])
			}
		case *corev1.PersistentVolumeClaim:
			d := w.Dirs["volume of "+string(t.UID)]
			fmt.Fprintln(b, t.Name, n.of(string(t.UID)), t.DeletionTimestamp != nil,
				t.Annotations[objects.AnnotationQuarantined] != "", t.Annotations[objects.AnnotationEpoch], d.Cluster,
				d.Member, d.Index, d.Unbegun != "")
		case *corev1.ConfigMap:
			fmt.Fprintln(b, t.Name, t.Data[objects.EpochKeyInitialCluster], t.Data[objects.EpochKeySource],
				t.Data[objects.EpochKeyRestore], t.Data[objects.EpochKeyAfter])
			for _, k := range slices.Sorted(maps.Keys(t.Annotations)) {
				switch {
				case strings.HasSuffix(k, "last-applied-configuration"):
				case k == objects.AnnotationForeignSince:
					since, err := time.Parse(time.RFC3339, t.Annotations[k])
					fmt.Fprintln(b, err == nil, w.Now.Sub(since) >= 15*time.Second)
				case k == objects.AnnotationChosen:
					fmt.Fprintln(b, n.choice(w, t.Annotations[k]))
				case k == objects.AnnotationStartsOn:
					for pair := range strings.SplitSeq(t.Annotations[k], ",") {
						member, uid, _ := strings.Cut(pair, ":")
						fmt.Fprint(b, member, n.of(uid))
					}
				default:
					fmt.Fprintln(b, k, t.Annotations[k])
				}
			}
		case *v1alpha1.EtcdOperation:
			fmt.Fprintln(b, t.Name, t.Status.Phase, t.DeletionTimestamp != nil)
		case *v1alpha1.EtcdCluster:
			if !live {
				fmt.Fprintln(b, t.Status.Operations, t.Status.Rule, t.Status.Epoch, *t.Spec.Replicas, retires(t))
			}
		}
	}
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
		{"a restore, a pod is killed and caches lag", asked{1, toRestore, nil}, 2, []string{"kill", "freeze"}, false},
		{"a restore while clients write, two bursts", asked{1, toRestore, nil}, 2, []string{"write"}, false},
		{"a restore of two from a URL that is overwritten", asked{2, toFetch, nil}, 1, []string{"artifact"}, false},
		{"a restore from a URL that is overwritten, and a pod is killed", asked{2, toFetch, nil}, 2,
			[]string{"artifact", "kill"}, true},
		{"a restore, taken back, and calls that overlap or lag", asked{1, toRestore, nil}, 2,
			[]string{"edit", "call", "freeze", "crash"}, true},
		{"a restore of three, one trouble", asked{3, toRestore, nil}, 1, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.deep && !*deep {
				t.Skip("large: make model")
			}
			began := time.Now()
			f := searchAll(c.asked.world(c.troubles, nil, c.just...))
			t.Logf("%d states, %d transitions, %s", f.states, f.moves, time.Since(began).Round(time.Millisecond))
			if f.broken != nil {
				t.Errorf("%s\n%s", strings.Join(f.broken, "\n"), strings.Join(f.way, "\n"))
			}
		})
	}
}

// follow goes a way, and then on without troubles.
func (s *takeover) follow(t *testing.T, way []string) (broken []string) {
	t.Helper()
	for _, words := range way {
		turns := s.turns()
		i := slices.IndexFunc(turns, func(m turn) bool { return m.words == words })
		require.GreaterOrEqual(t, i, 0, words)
		s = s.after(turns[i])
		if len(s.w.Oracle.Broken) > 0 {
			return s.w.Oracle.Broken
		}
	}
	s.w.Net.Down = false
	for _, kind := range slices.Collect(maps.Keys(s.w.Frozen)) {
		s.w.Thaw(kind)
	}
	for range 150 {
		s.w.Sync(world.Crash{})
		s.w.Pass()
		s.w.Now = s.w.Now.Add(time.Second)
		if len(s.w.Oracle.Broken) > 0 {
			return s.w.Oracle.Broken
		}
		if again, waits := s.again(); waits {
			again.do(s)
		}
	}
	if !s.done() {
		return []string{fmt.Sprintf("liveness: the cluster ends in %s with other data than it should have",
			s.w.Cluster().Status.Rule)}
	}
	return nil
}

// TestTakeoverMutants are rules about epochs that are wrong on purpose: what happens shows it. The shipped rules live
// through the same.
func TestTakeoverMutants(t *testing.T) {
	staged := slices.Repeat([]string{"sync", "pass"}, 4)
	for name, mutant := range map[string]struct {
		asked  asked
		decide func(observation.Observation) decision.Decision
		way    []string
		breaks string
	}{
		"the next epoch begins without waiting for the pods of the one before": {
			asked{1, toRestore, nil}, beginsUnwaited, append(slices.Clone(staged), "sync", "sync", "sync", "sync",
				"sync", "sync", "kubelet pod=demo-1"), "S8: 2 etcd clusters",
		},
		"the record of the epoch before is not deleted": {
			asked{1, toRestore, nil}, keepsRecord, append(slices.Clone(staged), "kill pod=demo-0", "call", "sync",
				"sync", "pass", "sync", "pass", "sync", "sync", "pass", "apply", "pass", "pass"), "S8: 2 etcd clusters",
		},
		"the gate is open while the next epoch is made ready": {asked{1, toRestore, nil}, opensEarly, nil,
			"S8: 2 etcd clusters"},
		"the survivor is chosen by its name": {asked{4, toRecover, four}, choosesByName, nil,
			"liveness: the cluster ends in Converged with other data"},
		"a revision is raised by the same each time": {asked{1, toGoBack, nil}, raisesByTheSame, nil,
			"S21: epoch 3 begins at revision"},
		"every member fetches what is at the URL now": {
			asked{2, toFetch, nil}, fetchesAnything, []string{"sync", "pass", "sync", "pass", "sync", "pass", "sync",
				"kubelet pod=demo-2", "artifact url=" + latest},
			"S21: the members of epoch 2 begin with different data",
		},
		"what an epoch leaves behind is deleted": {asked{1, toRestore, nil}, leavesNothing, nil,
			"S7: the claim demo-0 is deleted"},
		"a view of pods that lags is believed": {
			asked{1, toRestore, nil}, believesPods, append(slices.Clone(staged[:7]), "pass", "kill pod=demo-0",
				"freeze cache of pod", "sync", "kubelet pod=demo-0", "sync", "sync", "sync", "sync", "sync", "pass"),
			"S8: 2 etcd clusters",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := mutant.asked.world(9, mutant.decide).follow(t, mutant.way)
			require.NotEmpty(t, broken, "it was missed")
			assert.Contains(t, broken[0], mutant.breaks)
			assert.Empty(t, mutant.asked.world(9, nil).follow(t, mutant.way), "the shipped rules break it too")
		})
	}
}

// ---- mutants

// stopping is the record of the epoch that the one before is stopped for; nil for none.
func stopping(o observation.Observation) *corev1.ConfigMap {
	for _, cm := range o.Children.ConfigMaps {
		if cm.Annotations[objects.AnnotationPhase] == "stopping" {
			return cm
		}
	}
	return nil
}

// former are the members before those of the record's epoch.
func former(record *corev1.ConfigMap, name string) bool {
	first, err := strconv.Atoi(record.Data[objects.EpochKeyFirst])
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(strings.TrimPrefix(name, clusterName+"-"))
	return err == nil && n < first
}

// beginsUnwaited takes no notice of the pods that still end.
func beginsUnwaited(o observation.Observation) decision.Decision {
	if record := stopping(o); record != nil {
		o.Children.Pods = maps.Clone(o.Children.Pods)
		maps.DeleteFunc(o.Children.Pods, func(name string, _ *corev1.Pod) bool { return former(record, name) })
	}
	return cluster.Decide(o)
}

// keepsRecord lets the record of the epoch before stay, and goes on.
func keepsRecord(o observation.Observation) decision.Decision {
	first := o.Children.ConfigMaps[objects.EpochName(clusterName, 1)]
	second := o.Children.ConfigMaps[objects.EpochName(clusterName, 2)]
	if first == nil || second == nil || second.Annotations[objects.AnnotationPhase] == "" {
		return cluster.Decide(o)
	}
	o.Children.ConfigMaps = maps.Clone(o.Children.ConfigMaps)
	delete(o.Children.ConfigMaps, first.Name)
	d := cluster.Decide(o)
	d.Children.ConfigMaps = append(slices.Clone(d.Children.ConfigMaps), first)
	return d
}

// opensEarly lets members begin as soon as they are filled.
func opensEarly(o observation.Observation) decision.Decision {
	d := cluster.Decide(o)
	for i, pod := range d.Children.Pods {
		begins := *pod
		begins.Annotations = maps.Clone(pod.Annotations)
		begins.Annotations[objects.AnnotationBegins] = "yes"
		d.Children.Pods[i] = &begins
	}
	return d
}

// choosesByName takes all logs for equally long.
func choosesByName(o observation.Observation) decision.Decision {
	o.Children.Pods = maps.Clone(o.Children.Pods)
	for name, pod := range o.Children.Pods {
		if !strings.HasSuffix(name, "-survey") || len(pod.Status.ContainerStatuses) == 0 {
			continue
		}
		equal := pod.DeepCopy()
		var report reports.Survey
		if err := json.Unmarshal([]byte(equal.Status.ContainerStatuses[0].State.Terminated.Message),
			&report); err != nil {
			panic(err)
		}
		report.LastTerm, report.LastIndex = 1, 1
		raw, err := json.Marshal(report)
		if err != nil {
			panic(err)
		}
		equal.Status.ContainerStatuses[0].State.Terminated.Message = string(raw)
		o.Children.Pods[name] = equal
	}
	return cluster.Decide(o)
}

// reseeded is the decision with other arguments for what fills the data directories.
func reseeded(d decision.Decision, other func(arg string) string) decision.Decision {
	for i, pod := range d.Children.Pods {
		changed := pod.DeepCopy()
		for j := range changed.Spec.InitContainers {
			if c := &changed.Spec.InitContainers[j]; c.Name == objects.ContainerSeed && pod.UID == "" {
				for k, arg := range c.Args {
					c.Args[k] = other(arg)
				}
			}
		}
		d.Children.Pods[i] = changed
	}
	return d
}

// raisesByTheSame raises every revision by a thousand million, wherever it begins.
func raisesByTheSame(o observation.Observation) decision.Decision {
	return reseeded(cluster.Decide(o), func(arg string) string {
		if strings.HasPrefix(arg, "--begin-after=") {
			return "--bump-revision=1000000000"
		}
		return arg
	})
}

// fetchesAnything has every member take whatever is there, and compares nothing.
func fetchesAnything(o observation.Observation) decision.Decision {
	o.Children.Pods = maps.Clone(o.Children.Pods)
	for name, pod := range o.Children.Pods {
		alike := pod.DeepCopy()
		for i := range alike.Status.InitContainerStatuses {
			if s := &alike.Status.InitContainerStatuses[i]; s.Name == objects.ContainerSeed &&
				s.State.Terminated != nil {
				s.State.Terminated.Message = `{"revision":2000000000,"sha256":"any"}`
			}
		}
		o.Children.Pods[name] = alike
	}
	d := cluster.Decide(o)
	for _, pod := range d.Children.Pods {
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			c.Env = slices.DeleteFunc(slices.Clone(c.Env),
				func(e corev1.EnvVar) bool { return e.Name == epochs.EnvSHA256 })
		}
	}
	return d
}

// leavesNothing drops the claims in quarantine.
func leavesNothing(o observation.Observation) decision.Decision {
	d := cluster.Decide(o)
	if stopping(o) == nil {
		d.Children.Claims = slices.DeleteFunc(slices.Clone(d.Children.Claims),
			func(c *corev1.PersistentVolumeClaim) bool {
				return c.Annotations[objects.AnnotationQuarantined] != ""
			})
	}
	return d
}

// believesPods takes every view of pods for one that shows all, and puts no mark on them.
func believesPods(o observation.Observation) decision.Decision {
	record := stopping(o)
	if record == nil {
		return cluster.Decide(o)
	}
	marked := func(pod *corev1.Pod, mark string) *corev1.Pod {
		m := *pod
		m.Annotations = maps.Clone(pod.Annotations)
		if m.Annotations[objects.AnnotationPredecessorGone] = mark; mark == "" {
			delete(m.Annotations, objects.AnnotationPredecessorGone)
		}
		return &m
	}
	o.Children.Pods = maps.Clone(o.Children.Pods)
	for name, pod := range o.Children.Pods {
		if !former(record, name) {
			o.Children.Pods[name] = marked(pod, "yes")
		}
	}
	d := cluster.Decide(o)
	for i, pod := range d.Children.Pods {
		d.Children.Pods[i] = marked(pod, "")
	}
	return d
}
