package model

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/cluster"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// What happens to certificates is searched in the world of the stories itself: it begins when the authority of a
// running cluster is due to be succeeded, and ends when the old one has expired and is not trusted any more. The
// model, whose clusters speak plain text, has no part in it. Days pass only when nothing is left to do, so that no
// certificate expires because a step was late.

// succession is such a world, with how much may still go wrong in it: faults, caches that lag, calls that are cut off
// or overlap.
type succession struct {
	w        *world.World
	troubles int
}

// dueAuthority is a cluster of this size whose authority is due.
func dueAuthority(size, troubles int, decide func(observation.Observation) decision.Decision) *succession {
	w := world.New()
	s := v1alpha1.EtcdClusterSpec{Version: releases[0], Replicas: new(int32(size)),
		Storage: v1alpha1.StorageSpec{Size: oneGi}}
	s.TLS.Auto.LeafDuration.Duration, s.TLS.Auto.CADuration.Duration = 100*time.Hour, 200*time.Hour
	w.CreateCluster(clusterName, s)
	for _, wait := range []time.Duration{0, 67 * time.Hour, 67 * time.Hour} {
		w.Now = w.Now.Add(wait)
		for range 15 {
			if wait == 0 || w.Now.Before(w.Secret(spec.CASecret(clusterName)).Certificate.NotBefore.Add(
				100*time.Hour)) {
				w.Sync(world.Crash{})
				w.Pass()
			}
		}
	}
	w.Decide = decide
	return &succession{w, troubles}
}

// possible is one thing that may happen next. A free one costs nothing and is part of a life without faults.
type possible[S any] struct {
	words string
	free  bool
	do    func(s S)
}

type move = possible[*succession]

// after is the world after the move; etcd is quick.
func (s *succession) after(m move) *succession {
	next := &succession{s.w.Clone(), s.troubles}
	m.do(next)
	if !m.free {
		next.troubles--
	}
	next.w.TickEtcd()
	next.w.Collect()
	next.w.TakeLog()
	return next
}

// moves are all that may happen.
func (s *succession) moves() []move {
	list := []move{
		{"sync", true, func(s *succession) { s.w.Sync(world.Crash{}) }},
		{"pass", true, func(s *succession) { s.w.Pass() }},
	}
	for kind := range s.w.Frozen {
		list = append(list, move{"cache thaw=" + string(kind), true, func(s *succession) { s.w.Thaw(kind) }})
	}
	for name := range s.w.Net.Isolated {
		list = append(list, move{"network healed", true, func(s *succession) {
			delete(s.w.Net.Isolated, name)
			delete(s.w.Net.Unreachable, name)
		}})
	}
	if s.troubles > 0 {
		list = append(append(list, cutsIn(s.w, func(s *succession) *world.World { return s.w })...), s.faults()...)
	}
	if s.quiet() {
		list = append(list, move{"later", true, (*succession).later})
	}
	return list
}

// faults are what may go wrong besides.
func (s *succession) faults() []move {
	list := []move{{"two-syncs", false, func(s *succession) {
		first, second := s.w.BeginTwo()
		s.w.Apply(second)
		s.w.Apply(first)
	}}}
	fault := func(words, name string, do func(w *world.World, name string)) {
		list = append(list, move{words + name, false, func(s *succession) { do(s.w, name) }})
	}
	for _, kind := range []world.Kind{world.SecretKind, world.PodKind} {
		if _, frozen := s.w.Frozen[kind]; !frozen {
			fault("cache freeze=", string(kind), func(w *world.World, name string) { w.Freeze(world.Kind(name)) })
		}
	}
	for _, pod := range s.w.Pods() {
		fault("kubelet pod=", pod.Name, (*world.World).Kubelet)
		fault("kill pod=", pod.Name, (*world.World).KillPod)
		fault("restart pod=", pod.Name, (*world.World).Restart)
		fault("network isolated and unreachable=", pod.Name, func(w *world.World, name string) {
			w.Net.Isolated[name],
				w.Net.Unreachable[name] = true, true
		})
		fault("etcd leader=", pod.Name, (*world.World).Lead)
	}
	for _, secret := range s.w.Secrets() {
		fault("delete secret=", secret.Name, func(w *world.World, name string) { _ = w.Delete(world.SecretKind, name) })
	}
	return list
}

// cutsIn are the places at which the next call may be cut off, in either order of the objects; of is the world of a
// state.
func cutsIn[S any](w *world.World, of func(S) *world.World) []possible[S] {
	try := w.Clone()
	call := try.Sync(world.Crash{})
	var list []possible[S]
	cut := func(words string, c world.Crash) {
		list = append(list, possible[S]{"crash " + words, false, func(s S) { of(s).Sync(c) }})
	}
	if call != nil && call.Outcome != nil {
		cut("step", world.Crash{At: world.AfterStep})
	}
	for _, line := range try.TakeLog() {
		words := strings.Fields(strings.TrimPrefix(line, "! "))
		if len(words) < 3 {
			continue // that the finalizer was removed
		}
		for _, backwards := range []bool{false, true} {
			told := fmt.Sprintf("before %s=%s", words[1], words[2])
			if backwards {
				told += " order=backwards"
			}
			cut(told, world.Crash{At: world.BeforeObject, Object: world.Key{Kind: world.Kind(words[1]), Name: words[2]},
				Backwards: backwards})
		}
	}
	return list
}

// quiet reports whether nothing is left to do now.
func (s *succession) quiet() bool {
	return len(s.w.Frozen) == 0 && len(s.w.Net.Isolated) == 0 && still(s.w)
}

// still reports whether a call and what follows it change nothing.
func still(w *world.World) bool {
	try := w.Clone()
	before := try.Changes + try.Writes
	try.Sync(world.Crash{})
	try.Pass()
	return try.Changes+try.Writes == before
}

// later lets time pass until there may be something to do.
func (s *succession) later() {
	ca := s.w.Secret(spec.CASecret(clusterName))
	settled := ca.Certificate.NotBefore.Add(ca.Certificate.NotAfter.Sub(ca.Certificate.NotBefore)/12 + time.Minute)
	switch {
	case s.w.Cluster().Status.Rule != "Converged":
		s.w.Elapse(30 * time.Second)
	case ca.Previous != nil && s.w.Now.Before(settled):
		s.w.Now = settled
	case len(ca.Trust) > 1:
		s.w.Now = ca.Trust[len(ca.Trust)-1].NotAfter.Add(time.Minute)
		if due := ca.Certificate.NotBefore.Add(ca.Certificate.NotAfter.Sub(ca.Certificate.NotBefore)/3*2 +
			time.Minute); due.Before(s.w.Now) {
			s.w.Now = due
		}
	}
}

// done reports whether the succession is over: all trust the new authority alone, and show what it has signed.
func (s *succession) done() bool {
	ca := s.w.Secret(spec.CASecret(clusterName))
	if ca == nil || ca.Certificate.ID == "A1" || len(ca.Trust) > 1 || s.w.Cluster().Status.Rule != "Converged" ||
		!s.quiet() {
		return false
	}
	alone := func(trust []observation.Certificate) bool { return len(trust) == 1 && trust[0].ID == ca.Certificate.ID }
	for _, secret := range s.w.Secrets() {
		if secret.Certificate != nil && (secret.Certificate.Issuer != ca.Certificate.Key || !alone(secret.Trust)) {
			return false
		}
	}
	for _, proc := range s.w.Procs {
		if !alone(proc.Clients) || !alone(proc.Peers) {
			return false
		}
	}
	return true
}

// ---- states

// identity of a state: worlds that differ only in numbers that count up are one.
type identity [sha256.Size]byte

type numbers map[string]int

// of is the number of a name, by the order in which names appear.
func (n numbers) of(name string) int {
	if _, known := n[name]; !known {
		n[name] = len(n)
	}
	return n[name]
}

func (s *succession) identity() identity {
	w, n := s.w, numbers{}
	var b strings.Builder
	c := w.Cluster()
	fmt.Fprintln(&b, s.troubles, w.Cluster().Status.Rule, w.Net.Isolated)
	for _, m := range c.Status.Members {
		fmt.Fprintln(&b, m.Name, m.Role, m.Ready, m.Leader, m.Message, w.Now.Sub(m.JoinTime.Time) > state.CallsEnd)
	}
	for _, condition := range c.Status.Conditions {
		fmt.Fprintln(&b, condition.Type, condition.Status, condition.Message)
	}
	for _, certificate := range c.Status.TLS.Certificates {
		fmt.Fprintln(&b, certificate.Name, n.of(certificate.NotAfter.String()))
	}
	for _, secret := range w.Secrets() {
		n.secret(&b, w, secret)
	}
	fmt.Fprintln(&b, n.of(served(w)))
	for _, pod := range w.Pods() {
		n.pod(&b, w, pod)
		proc, runs := w.Procs[pod.UID]
		d := w.Dirs[proc.Dir]
		fmt.Fprintln(&b, runs, d.Behind, w.Etcd.Clusters[d.Cluster].Commit-d.Index, n.trust(proc.Clients),
			n.trust(proc.Peers))
		if files := w.Files[pod.UID]; files.Peer != nil {
			fmt.Fprintln(&b, n.of(files.Server.Certificate.ID), n.trust(files.Server.Trust),
				n.of(files.Peer.Certificate.ID), n.trust(files.Peer.Trust))
		}
	}
	for _, claim := range w.Claims() {
		fmt.Fprintln(&b, claim.Name, n.of(string(claim.UID)), claim.DeletionTimestamp != nil)
	}
	for _, id := range slices.Sorted(maps.Keys(w.Etcd.Clusters)) {
		fmt.Fprintln(&b, w.Etcd.Clusters[id].Leader, w.Etcd.Clusters[id].Members)
	}
	if record := w.Objects[world.Key{Kind: world.ConfigMapKind, Name: objects.EpochName(clusterName,
		1)}]; record != nil {
		said := record.GetAnnotations()
		fmt.Fprintln(&b, said[objects.AnnotationNextMember], len(said[objects.AnnotationStartsOn]),
			n.choice(w, said[objects.AnnotationChosen]))
	}
	for _, kind := range slices.Sorted(maps.Keys(w.Frozen)) {
		for _, name := range slices.Sorted(maps.Keys(w.Frozen[kind])) {
			o, live := w.Frozen[kind][name], w.Objects[world.Key{Kind: kind, Name: name}]
			fmt.Fprintln(&b, kind, live != nil && live.GetResourceVersion() == o.GetResourceVersion())
			switch t := o.(type) {
			case *observation.Secret:
				n.secret(&b, w, t)
			case *corev1.Pod:
				n.pod(&b, w, t)
			}
		}
	}
	return sha256.Sum256([]byte(b.String()))
}

// served is what the annotation says of pods whose member shows what the Secrets hold now.
func served(w *world.World) string {
	o := observation.Observation{Cluster: w.Cluster(), Now: w.Now}
	o.Children.Pods, o.Children.Secrets = map[string]*corev1.Pod{}, map[string]*observation.Secret{}
	for _, pod := range w.Pods() {
		o.Children.Pods[pod.Name] = pod
	}
	for _, secret := range w.Secrets() {
		o.Children.Secrets[secret.Name] = secret
	}
	for _, pod := range cluster.Decide(o).Children.Pods {
		return pod.Annotations[objects.AnnotationServes]
	}
	return ""
}

func (n numbers) secret(b *strings.Builder, w *world.World, s *observation.Secret) {
	if s.Certificate == nil {
		fmt.Fprintln(b, s.Name)
		return
	}
	due := s.Certificate.NotBefore.Add(s.Certificate.NotAfter.Sub(s.Certificate.NotBefore) / 3 * 2)
	settled := s.Certificate.NotBefore.Add(s.Certificate.NotAfter.Sub(s.Certificate.NotBefore) / 12)
	fmt.Fprintln(b, s.Name, n.of(s.Certificate.ID), n.of(s.Certificate.Issuer), n.trust(s.Trust), s.Previous != nil,
		s.Flaw != "",
		w.Now.Before(due), w.Now.Before(s.Certificate.NotAfter), s.Certificate.Authority && w.Now.Before(settled))
	for _, c := range s.Trust {
		fmt.Fprint(b, w.Now.Before(c.NotAfter))
	}
}

// words are the numbers of all that a text says.
// choice is what a record says of the member that is restarted or removed.
func (n numbers) choice(w *world.World, said string) string {
	who, withdrawn, _ := strings.Cut(said, " withdrawn ")
	var all []int
	for word := range strings.FieldsSeq(who) {
		all = append(all, n.of(word))
	}
	since, err := time.Parse(time.RFC3339, withdrawn)
	return fmt.Sprint(all, err == nil, w.Now.Sub(since) >= state.CallsEnd)
}

func (n numbers) trust(trust []observation.Certificate) (all []int) {
	for _, c := range trust {
		all = append(all, n.of(c.ID))
	}
	return all
}

func (n numbers) pod(b *strings.Builder, w *world.World, p *corev1.Pod) {
	since, err := time.Parse(time.RFC3339, p.Annotations[objects.AnnotationWithdrawn])
	fmt.Fprintln(b, err == nil, w.Now.Sub(since) >= state.CallsEnd)
	fmt.Fprintln(b, p.Name, n.of(string(p.UID)), p.DeletionTimestamp != nil, p.Spec.NodeName, p.Status.PodIP,
		statusOfPod(p),
		p.Annotations[objects.AnnotationStart], p.Annotations[objects.AnnotationRestarted], p.Labels[objects.LabelRole],
		n.of(p.Annotations[objects.AnnotationServes]))
}

// ---- the search

// searched is what a search has seen.
type searched struct {
	states, moves int
	// broken are the rules, or stuck is the state from which nothing leads to the end, with the way there; nil for
	// none.
	broken, way []string
}

// searchable is a world of which a search takes every way.
type searchable[S any] interface {
	identity() identity
	// ways are all moves, with the world after each.
	ways() []oneWay[S]
	done() bool
	broken() []string
}

// oneWay is one move from a state.
type oneWay[S any] struct {
	words string
	free  bool
	after S
}

// ways implements searchable.
func (s *succession) ways() (list []oneWay[*succession]) {
	for _, m := range s.moves() {
		list = append(list, oneWay[*succession]{m.words, m.free, s.after(m)})
	}
	return list
}

func (s *succession) broken() []string { return s.w.Oracle.Broken }

func (s *succession) search() searched { return searchAll(s) }

func searchAll[S searchable[S]](first S) searched {
	type state struct {
		from  int
		words string
		free  []int // where the free moves lead
		done  bool
	}
	var all []state
	known := map[identity]int{}
	frontier := map[int]S{}
	way := func(i int) (words []string) {
		for ; i > 0; i = all[i].from {
			words = append(words, all[i].words)
		}
		slices.Reverse(words)
		return words
	}
	visit := func(next S, from int, words string) int {
		id := next.identity()
		if i, seen := known[id]; seen {
			return i
		}
		i := len(all)
		known[id] = i
		all = append(all, state{from: from, words: words, done: next.done()})
		frontier[i] = next
		return i
	}
	visit(first, 0, "")
	f := searched{}
	for i := 0; i < len(all); i++ {
		here := frontier[i]
		delete(frontier, i)
		for _, m := range here.ways() {
			f.moves++
			if broken := m.after.broken(); len(broken) > 0 {
				return searched{len(all), f.moves, broken, append(way(i), m.words)}
			}
			to := visit(m.after, i, m.words)
			if m.free {
				all[i].free = append(all[i].free, to)
			}
		}
	}
	f.states = len(all)
	// Backwards from the end, over free moves alone.
	back := make([][]int, len(all))
	var reached []int
	ends := make([]bool, len(all))
	for i := range all {
		for _, to := range all[i].free {
			back[to] = append(back[to], i)
		}
		if all[i].done {
			ends[i] = true
			reached = append(reached, i)
		}
	}
	for len(reached) > 0 {
		i := reached[0]
		reached = reached[1:]
		for _, from := range back[i] {
			if !ends[from] {
				ends[from] = true
				reached = append(reached, from)
			}
		}
	}
	if i := slices.Index(ends, false); i >= 0 {
		f.broken, f.way = []string{"liveness: no way leads to the end"}, way(i)
	}
	return f
}

// TestSuccession searches all that may happen while an authority is succeeded.
func TestSuccession(t *testing.T) {
	for _, c := range []struct {
		name           string
		size, troubles int
		deep           bool
	}{
		{"a single member, undisturbed", 1, 0, false},
		{"three members, undisturbed", 3, 0, false},
		{"a single member, one trouble", 1, 1, false},
		{"three members, one trouble", 3, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.deep && !*deep {
				t.Skip("large: make model")
			}
			began := time.Now()
			f := dueAuthority(c.size, c.troubles, nil).search()
			t.Logf("%d states, %d transitions, %s", f.states, f.moves, time.Since(began).Round(time.Millisecond))
			if f.broken != nil {
				t.Errorf("%s\n%s", strings.Join(f.broken, "\n"), strings.Join(f.way, "\n"))
			}
		})
	}
}

// TestSuccessionMutants are rules about certificates that are wrong on purpose: what happens shows it, after these
// troubles if they are needed. The shipped rules live through the same.
func TestSuccessionMutants(t *testing.T) {
	for name, mutant := range map[string]struct {
		decide   func(observation.Observation) decision.Decision
		troubles []string
		breaks   string
	}{
		"what the new authority signs is shown before all members trust it": {signsEarly, nil, "S19: demo-"},
		"all who distrust are restarted at once":                            {rollsAll, nil, "S1: deleting pods"},
		"the servers may trust an authority before the peers do": {
			serversFirst, []string{"sync", "crash before secret=demo-peer-tls order=backwards", "restart pod=demo-1",
				"pass"}, "S19: demo-",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := dueAuthority(3, 9, mutant.decide).follow(t, mutant.troubles)
			require.NotEmpty(t, broken, "it was missed")
			assert.Contains(t, broken[0], mutant.breaks)
			assert.Empty(t, dueAuthority(3, 9, nil).follow(t, mutant.troubles), "the shipped rules break it too")
		})
	}
}

// follow goes a way, and then on without troubles until the end or until a rule is broken.
func (s *succession) follow(t *testing.T, way []string) (broken []string) {
	t.Helper()
	for _, words := range way {
		moves := s.moves()
		i := slices.IndexFunc(moves, func(m move) bool { return m.words == words })
		require.GreaterOrEqual(t, i, 0, words)
		s = s.after(moves[i])
	}
	for range 100 {
		s.w.Sync(world.Crash{})
		s.w.Pass()
		if s.done() || len(s.w.Oracle.Broken) > 0 {
			return s.w.Oracle.Broken
		}
		if s.quiet() {
			s.later()
		}
	}
	t.Fatal("it does not end")
	return nil
}

// signsEarly assumes that each member trusts what the Secrets say.
func signsEarly(o observation.Observation) decision.Decision {
	server := o.Children.Secrets[clusterName+"-server-tls"]
	o.Health = maps.Clone(o.Health)
	for name, h := range o.Health {
		if h.Trusts = nil; h.Err == "" && server != nil {
			for _, c := range server.Trust {
				h.Trusts = append(h.Trusts, c.Subject)
			}
		}
		slices.Sort(h.Trusts)
		o.Health[name] = h
	}
	return cluster.Decide(o)
}

// rollsAll deletes all pods when one should be restarted.
func rollsAll(o observation.Observation) decision.Decision {
	d := cluster.Decide(o)
	if d.Reason.Rule == "RollingUpdate" && d.Step == nil && len(d.Children.Pods) == 2 {
		d.Children.Pods = nil
	}
	return d
}

// serversFirst brings every ca.crt up to the authority's at once.
func serversFirst(o observation.Observation) decision.Decision {
	d := cluster.Decide(o)
	i := slices.IndexFunc(d.Children.Secrets,
		func(s *decision.DesiredSecret) bool { return s.Name == clusterName+"-server-tls" })
	lags := slices.ContainsFunc(d.Children.Secrets,
		func(s *decision.DesiredSecret) bool { _, bundle := s.Make.(decision.Bundle); return bundle })
	if i >= 0 && lags && d.Children.Secrets[i].Make == nil {
		d.Children.Secrets[i].Make = decision.Bundle{Signer: spec.CASecret(clusterName)}
	}
	return d
}
