package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	rec "github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// Three things are searched in the world of the stories itself, of which the model knows nothing: certificates
// (rotation_test.go), how one epoch takes over from another (epochs_test.go), and how our members take over from
// external ones (external_test.go).

// scene is such a world, with how much may still go wrong in it.
type scene struct {
	w        *world.World
	plot     plot
	troubles int
	// just are the troubles that there are, by their first word; nil for all.
	just []string
	// held is a call whose answer is under way, late one that has observed and not acted yet; nil for none.
	held *world.Call
	late *world.Held
}

// plot is what a search is about. It stays as it is.
type plot interface {
	// goesOn is what happens without a fault, besides what does in every world.
	goesOn(s *scene) []move
	// mishaps are what may go wrong, besides calls that are cut off or overlap.
	mishaps(s *scene) []move
	// done reports whether the end is reached.
	done(s *scene) bool
	// tell writes down what tells a state from others, except numbers that count up and times.
	tell(s *scene, b *strings.Builder, n numbers)
}

// move is one thing that may happen next. A free one costs nothing and is part of a life without faults.
type move struct {
	words string
	free  bool
	do    func(s *scene)
}

func goes(words string, do func(w *world.World)) move {
	return move{words, true, func(s *scene) { do(s.w) }}
}

func fails(words string, do func(w *world.World)) move {
	return move{words, false, func(s *scene) { do(s.w) }}
}

// trouble is what a line of a story says.
func trouble(line string) move { return fails(line, func(w *world.World) { say(w, line) }) }

// relief is the same of what ends a trouble.
func relief(line string) move { return goes(line, func(w *world.World) { say(w, line) }) }

// moves are all that may happen.
func (s *scene) moves() []move {
	if s.gone() {
		return nil
	}
	list := []move{
		goes("sync", func(w *world.World) { w.Sync(world.Crash{}) }),
		goes("pass", (*world.World).Pass),
	}
	for _, kind := range slices.Sorted(maps.Keys(s.w.Frozen)) {
		list = append(list, relief("cache thaw="+string(kind)))
	}
	if s.w.Net.Down {
		list = append(list, relief("etcd up"))
	}
	if s.held != nil {
		list = append(list, move{"apply", true, func(s *scene) { s.w.Apply(s.held); s.held = nil }})
	}
	if s.late != nil {
		list = append(list, move{"act and apply", true, func(s *scene) { s.w.Apply(s.w.Act(s.late)); s.late = nil }})
	}
	list = append(list, s.plot.goesOn(s)...)
	if s.troubles == 0 {
		return list
	}
	twoSyncs := fails("two-syncs", func(w *world.World) {
		first, second := w.BeginTwo()
		w.Apply(second)
		w.Apply(first)
	})
	for _, m := range slices.Concat(s.cuts(), []move{twoSyncs}, s.plot.mishaps(s)) {
		if s.just == nil || slices.Contains(s.just, strings.Fields(m.words)[0]) {
			list = append(list, m)
		}
	}
	return list
}

// cuts are the places at which the next call may be cut off, in either order of the objects.
func (s *scene) cuts() (list []move) {
	try := s.w.Clone()
	call := try.Sync(world.Crash{})
	cut := func(words string, c world.Crash) {
		list = append(list, fails("crash "+words, func(w *world.World) { w.Sync(c) }))
	}
	if call != nil && call.Outcome != nil {
		cut("step", world.Crash{At: world.AfterStep})
	}
	for _, line := range try.TakeLog() {
		words := strings.Fields(strings.TrimPrefix(line, "! "))
		if len(words) < 3 {
			continue // that the finalizer was removed
		}
		c := world.Crash{At: world.BeforeObject, Object: world.Key{Kind: world.Kind(words[1]), Name: words[2]}}
		told := fmt.Sprintf("before %s=%s", words[1], words[2])
		cut(told, c)
		c.Backwards = true
		cut(told+" order=backwards", c)
	}
	return list
}

// freezes are the caches of these kinds that may begin to lag.
func (s *scene) freezes(kinds ...world.Kind) (list []move) {
	for _, kind := range kinds {
		if _, frozen := s.w.Frozen[kind]; !frozen {
			list = append(list, trouble("cache freeze="+string(kind)))
		}
	}
	return list
}

// eachPod is what may befall every pod, in the words of stories.
func (s *scene) eachPod(befalls ...string) (list []move) {
	for _, words := range befalls {
		for _, pod := range s.w.Pods() {
			list = append(list, trouble(words+"="+pod.Name))
		}
	}
	return list
}

// after is the scene after the move; etcd is quick.
func (s *scene) after(m move) *scene {
	next := *s
	next.w = s.w.Clone()
	m.do(&next)
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
	return &next
}

// gone reports whether the EtcdCluster has been deleted: with that it ends.
func (s *scene) gone() bool { return s.w.Cluster() == nil }

// quiet reports whether nothing is left to do now: a call and what follows it change nothing.
func (s *scene) quiet() bool {
	troubled := len(s.w.Frozen)+len(s.w.Net.Isolated)+len(s.w.Net.Unreachable) > 0 || s.w.Net.Down
	if troubled || s.held != nil || s.late != nil {
		return false
	}
	try := s.w.Clone()
	before := try.Changes + try.Writes
	try.Sync(world.Crash{})
	try.Pass()
	return try.Changes+try.Writes == before
}

// settle lets everything run.
func (s *scene) settle() {
	for range 60 {
		s.runOn()
	}
}

func (s *scene) runOn() {
	s.w.Sync(world.Crash{})
	s.w.Pass()
	s.w.Now = s.w.Now.Add(time.Second)
}

// ---- the search

// scenes are what is searched.
type scenes struct{}

func (scenes) key(s *scene) key {
	var b strings.Builder
	if !s.gone() {
		s.plot.tell(s, &b, numbers{})
	}
	return keyOf(b.String())
}

func (scenes) kind(s *scene) kind {
	if s.gone() || s.plot.done(s) {
		return goal
	}
	return ordinary
}

func (scenes) leave(s *scene, take func(way[scene, string])) {
	for _, m := range s.moves() {
		next := s.after(m)
		take(way[scene, string]{m.words, next, m.free, next.w.Oracle.Broken})
	}
}

// searchScene searches all that may happen, and finds nothing.
func searchScene(t *testing.T, name string, large bool, begin func() *scene) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if large && !*deep {
			t.Skip("large: make model")
		}
		r := searchAll(scenes{}, *begin(), 0)
		t.Log(r)
		if r.Broken != nil {
			t.Errorf("%s\n%s", r.Broken, strings.Join(r.Broken.Path, "\n"))
		}
	})
}

// followed is a rule that is wrong on purpose: what happens on a way shows it, and the shipped rules live through the
// same.
type followed struct {
	begin  func(decider) *scene
	decide decider
	way    []string
	breaks string
}

func (f followed) run(t *testing.T, name string) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		broken := f.begin(f.decide).follow(t, f.way)
		require.NotEmpty(t, broken, "it was missed")
		assert.Contains(t, broken[0], f.breaks)
		assert.Empty(t, f.begin(nil).follow(t, f.way), "the shipped rules break it too")
	})
}

// follow goes a way, and then on without troubles until the end or until a rule is broken.
func (s *scene) follow(t *testing.T, way []string) (broken []string) {
	t.Helper()
	for _, words := range way {
		moves := s.moves()
		i := slices.IndexFunc(moves, func(m move) bool { return m.words == words })
		require.GreaterOrEqual(t, i, 0, words)
		s = s.after(moves[i])
		if len(s.w.Oracle.Broken) > 0 {
			return s.w.Oracle.Broken
		}
	}
	s.w.Net.Down = false
	clear(s.w.Frozen)
	for range 150 {
		s.runOn()
		if s.plot.done(s) || len(s.w.Oracle.Broken) > 0 {
			return s.w.Oracle.Broken
		}
		for _, m := range s.plot.goesOn(s) {
			m.do(s)
		}
	}
	return []string{fmt.Sprintf("liveness: the cluster ends in %s with other data than it should have",
		s.w.Cluster().Status.Rule)}
}

// ---- states

// numbers stand for names that count up, by the order in which they appear.
type numbers map[string]int

func (n numbers) of(name string) int {
	if _, known := n[name]; !known {
		n[name] = len(n)
	}
	return n[name]
}

// everything writes down the objects, what the caches that lag show of them, and etcd.
func (n numbers) everything(b *strings.Builder, s *scene) {
	w := s.w
	n.objects(b, w, w.Objects, true)
	for _, kind := range slices.Sorted(maps.Keys(w.Frozen)) {
		fmt.Fprintln(b, kind)
		shown := map[world.Key]metav1.Object{}
		for name, o := range w.Frozen[kind] {
			shown[world.Key{Kind: kind, Name: name}] = o
		}
		n.objects(b, w, shown, false)
	}
	for _, id := range slices.Sorted(maps.Keys(w.Etcd.Clusters)) {
		fmt.Fprintln(b, w.Etcd.Clusters[id].Leader, w.Etcd.Clusters[id].Members, w.Etcd.Clusters[id].Removed)
	}
}

// objects writes down what there is to some objects: those that are stored, or those that a cache shows.
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
			n.pod(b, w, t, live)
		case *corev1.PersistentVolumeClaim:
			d := w.Dirs["volume of "+string(t.UID)]
			fmt.Fprintln(b, t.Name, n.of(string(t.UID)), t.DeletionTimestamp != nil,
				t.Annotations[objects.AnnotationQuarantined] != "", t.Annotations[objects.AnnotationEpoch], d.Cluster,
				d.Member, lag(w, d), d.Unbegun != "")
		case *corev1.ConfigMap:
			n.record(b, w, t)
		case *observation.Secret:
			n.secret(b, w, t)
		case *v1beta1.EtcdOperation:
			fmt.Fprintln(b, t.Name, t.Status.Phase, t.DeletionTimestamp != nil)
		case *v1beta1.EtcdCluster:
			if !live {
				fmt.Fprintln(b, t.Status.Operations, t.Status.Rule, t.Status.Epoch, *t.Spec.Replicas, retires(t))
			}
		}
	}
}

// lag is how many entries a data directory lacks.
func lag(w *world.World, d world.Dir) uint64 { return w.Etcd.Clusters[d.Cluster].Commit - d.Index }

func (n numbers) pod(b *strings.Builder, w *world.World, p *corev1.Pod, live bool) {
	since, err := time.Parse(time.RFC3339, p.Annotations[objects.AnnotationWithdrawn])
	fmt.Fprintln(b, p.Name, n.of(string(p.UID)), p.DeletionTimestamp != nil, p.Spec.NodeName, p.Status.PodIP,
		statusOfPod(p), err == nil, w.Now.Sub(since) >= facts.CallsEnd, p.Labels[objects.LabelRole],
		n.of(p.Annotations[objects.AnnotationServes]))
	for _, key := range []string{objects.AnnotationStart, objects.AnnotationRestarted, objects.AnnotationBegins,
		objects.AnnotationPredecessorGone, objects.AnnotationInitialCluster} {
		fmt.Fprintln(b, p.Annotations[key])
	}
	for _, c := range p.Status.InitContainerStatuses {
		fmt.Fprintln(b, c.String())
	}
	if proc, runs := w.Procs[p.UID]; live {
		d := w.Dirs[proc.Dir]
		fmt.Fprintln(b, runs, d.Behind, lag(w, d), w.Prepared[p.UID], w.Markers[p.UID], n.trust(proc.Clients),
			n.trust(proc.Peers))
	}
	if files := w.Files[p.UID]; live && files.Peer != nil {
		fmt.Fprintln(b, n.of(files.Server.Certificate.ID), n.trust(files.Server.Trust),
			n.of(files.Peer.Certificate.ID), n.trust(files.Peer.Trust))
	}
}

func (n numbers) record(b *strings.Builder, w *world.World, cm *corev1.ConfigMap) {
	says := recordtest.Says(cm)
	fmt.Fprintln(b, cm.Name, says.Initial, says.Source, says.Restore, says.After, n.choice(w, says.Choice),
		w.Now.Sub(says.ExternalSince) >= 15*time.Second, says.StartsOn == nil)
	for _, member := range slices.Sorted(maps.Keys(says.StartsOn)) {
		fmt.Fprint(b, member, n.of(string(says.StartsOn[member])))
	}
	rest := says.State
	rest.StartsOn = nil
	rest.Choice = rec.Choice{}
	rest.ExternalSince = time.Time{}
	fmt.Fprintf(b, "%+v\n", rest)
}

// choice is what a record says of the member that is restarted or removed.
func (n numbers) choice(w *world.World, c rec.Choice) string {
	return fmt.Sprint(n.of(c.Name), n.of(c.Pod), n.of(c.Container), c.Down, c.Removes, c.Withdrawn.IsZero(),
		w.Now.Sub(c.Withdrawn) >= facts.CallsEnd)
}

func (n numbers) secret(b *strings.Builder, w *world.World, s *observation.Secret) {
	c := s.Certificate
	if c == nil {
		fmt.Fprintln(b, s.Name)
		return
	}
	lasts := c.NotAfter.Sub(c.NotBefore)
	fmt.Fprintln(b, s.Name, n.of(c.ID), n.of(c.Issuer), n.trust(s.Trust), s.Previous != nil, s.Flaw != "",
		w.Now.Before(c.NotBefore.Add(lasts/3*2)), w.Now.Before(c.NotAfter),
		c.Authority && w.Now.Before(c.NotBefore.Add(lasts/12)))
	for _, c := range s.Trust {
		fmt.Fprint(b, w.Now.Before(c.NotAfter))
	}
}

func (n numbers) trust(trust []observation.Certificate) (all []int) {
	for _, c := range trust {
		all = append(all, n.of(c.ID))
	}
	return all
}
