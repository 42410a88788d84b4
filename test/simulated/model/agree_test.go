package model

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	rec "github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
	"github.com/quorate-dev/quorate/test/simulated/membership"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

var agreements = flag.Int("agreements", 150, "how many random walks TestTheModelIsTheWorld takes; with -short a "+
	"third of them")

// TestTheModelIsTheWorld takes random walks through the model and does the same to the world of the stories, which is
// made of Kubernetes' own objects. After every step the two must agree on everything that both of them know.
func TestTheModelIsTheWorld(t *testing.T) {
	walks := *agreements
	if testing.Short() {
		walks /= 3
	}
	for seed := range uint64(walks) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			m := &model{
				Medium: v1beta1.Persistent, Replicas: []int{1, 3}[r.IntN(2)], Faults: 5, Edits: 3, Hitches: 100,
				Sizes: []int{0, 1, 2, 3, 4, 5},
				// 3.5 leaves something in the log
				From:      []uint8{usualVersion, nextMinor}[r.IntN(2)],
				Versions:  []uint8{usualVersion, patchRelease, nextMinor, unpullable},
				Templates: []uint8{0, 1, unplaced},
			}
			if r.IntN(3) == 0 {
				m.Medium, m.Sizes = v1beta1.Memory, m.Sizes[1:]
			}
			agree(t, m, r)
		})
	}
}

func agree(t *testing.T, m *model, r *rand.Rand) {
	s := m.first()
	d := newDouble(m)
	var told strings.Builder
	fmt.Fprintf(&told, "cluster replicas=%d medium=%s\n", m.Replicas, m.Medium)
	for range 120 {
		if s.live.record.next+6 >= maxMembers || s.used+6 >= maxMembers {
			return // no room for more members
		}
		a := choose(r, m.possible(&s, nil))
		m.do(&s, a)
		d.do(m, a, &s)
		told.WriteString(m.words(a, &s) + "\n")
		if d.marked() > int(s.live.record.next) {
			return // by the copy of the mark on the Service, which the model leaves out
		}
		if d.plannedAgain() {
			return // the model has one epoch
		}
		if ours, theirs := s.facts(), d.facts(); !reflect.DeepEqual(ours, theirs) {
			t.Fatalf("%s\nmodel: %+v\nworld: %+v", told.String(), ours, theirs)
		}
	}
}

// double is the world that does what the model does.
type double struct {
	w    *world.World
	call *world.Call
	held *world.Held
}

func newDouble(m *model) *double {
	w := world.New()
	w.RecordKeys = nil // the model has no seals, and they are written again with the UID
	w.Etcd.LearnerPace = never
	w.CreateCluster(clusterName, v1beta1.EtcdClusterSpec{
		DeletionPolicy: v1beta1.DeletionDelete,
		Replicas:       new(int32(m.Replicas)), Version: releases[m.From], UpgradePolicy: v1beta1.UpgradeStep,
		Storage: v1beta1.StorageSpec{Medium: m.Medium, Size: oneGi},
		TLS:     v1beta1.TLSSpec{Mode: v1beta1.TLSDisabled},
	})
	w.BindsAtOnce = true
	w.BadImages[image(unpullable)] = true
	w.Unplaced[template(unplaced)] = true
	w.Begin(world.Crash{}) // sets Metacontroller's finalizer; the answer is thrown away
	return &double{w: w}
}

// do is an action in the world. Whatever a story says of it in one word and a name is done as the story says.
func (d *double) do(m *model, a action, after *worldState) {
	w := d.w
	switch a.deed {
	case callWhole:
		w.Sync(world.Crash{})
	case callCut:
		w.Sync(crash(a.cut()))
	case callTwice:
		first, second := w.BeginTwo()
		w.Apply(second)
		w.Apply(first)
	case callDecides:
		d.held = w.Look()
	case callAnswers:
		d.call = w.Begin(world.Crash{})
	case callGoesOn:
		if d.held != nil {
			d.call, d.held = w.Act(d.held), nil
		}
		w.Apply(d.call)
		d.call = nil
	default:
		say(w, m.words(a, after))
	}
	d.follow(after)
}

// say does to a world what a line of a story says.
func say(w *world.World, line string) {
	verb, name, _ := strings.Cut(line, "=")
	verbs[verb](w, name)
}

// verbs are what the words of stories do to a world.
var verbs = map[string]func(w *world.World, name string){
	"kubelet pod":         (*world.World).Kubelet,
	"etcd tick":           func(w *world.World, _ string) { w.TickEtcd() },
	"etcd caught-up":      (*world.World).CatchUp,
	"etcd leader":         (*world.World).Lead,
	"etcd down":           func(w *world.World, _ string) { w.Net.Down = true },
	"etcd up":             func(w *world.World, _ string) { w.Net.Down = false },
	"etcd space":          func(w *world.World, is string) { w.Etcd.NoSpace = is == "out" },
	"collect":             func(w *world.World, _ string) { w.Collect() },
	"tick 1m":             func(w *world.World, _ string) { w.Elapse(time.Minute) },
	"cache freeze":        func(w *world.World, kind string) { w.Freeze(world.Kind(kind)) },
	"cache thaw":          func(w *world.World, kind string) { w.Thaw(world.Kind(kind)) },
	"status wipe":         func(w *world.World, _ string) { w.WipeStatus() },
	"kill pod":            (*world.World).KillPod,
	"restart pod":         (*world.World).Restart,
	"delete pod":          func(w *world.World, name string) { _ = w.Delete(world.PodKind, name) },
	"lose claim":          (*world.World).LoseClaim,
	"delete claim":        func(w *world.World, name string) { _ = w.Delete(world.ClaimKind, name) },
	"delete secret":       func(w *world.World, name string) { _ = w.Delete(world.SecretKind, name) },
	"lose node":           (*world.World).LoseNode,
	"heal node":           (*world.World).HealNode,
	"node full":           func(w *world.World, name string) { w.Full[name] = true },
	"node room":           func(w *world.World, name string) { delete(w.Full, name) },
	"network unreachable": func(w *world.World, name string) { w.Net.Unreachable[name] = true },
	"network reachable":   func(w *world.World, name string) { delete(w.Net.Unreachable, name) },
	"network isolated":    func(w *world.World, name string) { w.Net.Isolated[name] = true },
	"network joined":      func(w *world.World, name string) { delete(w.Net.Isolated, name) },
	"edit version": func(w *world.World, is string) {
		w.EditSpec(func(s *v1beta1.EtcdClusterSpec) { s.Version = is })
	},
	"edit priority-class": func(w *world.World, is string) {
		w.EditSpec(func(s *v1beta1.EtcdClusterSpec) { s.PriorityClassName = is })
	},
	"edit replicas": func(w *world.World, is string) {
		n, _ := strconv.ParseInt(is, 10, 32) // the model writes a number
		w.EditSpec(func(s *v1beta1.EtcdClusterSpec) { s.Replicas = new(int32(n)) })
	},
}

// follow lets the world have the leader that the model has: raft may elect any member that is up to date, and a
// leader that goes hands over to the one with the longest log, of which the model knows nothing.
func (d *double) follow(after *worldState) {
	if after.Leads() && d.w.Leads() {
		d.w.Lead(name(int(after.Leader) - 1))
	}
}

func crash(c cut) world.Crash {
	kind, name := c.Object.names()
	return world.Crash{At: c.At, Backwards: c.Backwards, Object: world.Key{Kind: world.Kind(kind), Name: name}}
}

// ---- what both of them know

// shared is what the model and the world must agree on.
type shared struct {
	pods    map[string]podFacts
	claims  map[string]bool // whether they are being deleted
	data    map[string]string
	version membership.Version

	voters, learners, published set
	leader                      string
	record                      recordFacts
	status                      clusterStatus
}

type podFacts struct {
	start, status, template, version string
	runs                             string // the version of the etcd that runs
	leaving, gated, bound, exchanged bool
	waits                            bool
	withdrawn                        uint8
}

type recordFacts struct {
	initial, starts  set
	dropped          set
	next             int
	founded, quorate bool
	version          string
	// chosen is the member that it names, and whether it is still that pod, or that container.
	chosen string
}

func noFacts() shared {
	return shared{pods: map[string]podFacts{}, claims: map[string]bool{}, data: map[string]string{}}
}

// seen of the model.
func (s *worldState) facts() shared {
	f := noFacts()
	for n := range maxMembers {
		if p := &s.live.pods[n]; p.uid != 0 {
			told := podFacts{start: starts[p.start], status: stories[p.status], template: template(p.template),
				version: releases[p.version], leaving: p.deleting != stays, gated: p.gated, bound: p.bound,
				exchanged: p.exchanged, withdrawn: p.withdrawn, waits: p.waits}
			if s.Running.Has(n) {
				told.runs = releases[s.proc[n]]
			}
			f.pods[name(n)] = told
		}
		if c := s.live.claims[n]; c.uid != 0 {
			f.claims[name(n)] = c.deleting
		}
		if s.data[n] != nothing {
			f.data[name(n)] = []string{behind: "behind", whole: "whole"}[s.data[n]]
		}
	}
	f.version = s.Version
	f.status = s.live.parent.status
	f.status.old = 0
	f.voters = s.Voters
	f.learners = s.Learners
	f.published = s.Started & s.Members()
	if s.Leads() {
		f.leader = name(int(s.Leader) - 1)
	}
	if r := &s.live.record; r.exists {
		f.record = recordFacts{initial: r.initial, next: int(r.next), founded: r.founded, quorate: r.quorate,
			version: releases[r.version], chosen: s.chosen(), starts: r.started() | r.dropped, dropped: r.dropped}
	}
	return f
}

// stories are what statuses are called.
var stories = []string{"pending", "runs", "crashes", "refused", "refused", "unpulled", "unpulled"}

func (s *worldState) chosen() string {
	c := s.live.record.choice
	if c.member == 0 {
		return ""
	}
	p := &s.live.pods[c.member-1]
	if c.removes {
		return removalWords(name(int(c.member)-1), c.withdrawn)
	}
	return choiceWords(name(int(c.member)-1), p.uid == c.pod, c.turn > 0, c.turn == p.turn+1)
}

func choiceWords(name string, samePod, exchange, sameContainer bool) string {
	return fmt.Sprint(name, " same pod ", samePod, " exchange ", exchange, " same container ", samePod && exchange &&
		sameContainer)
}

func removalWords(name string, withdrawn uint8) string {
	return fmt.Sprint(name, " removal ", withdrawn)
}

// seen of the world.
func (d *double) facts() shared {
	f := noFacts()
	for n := range maxMembers {
		var data world.Dir
		if p := d.w.Pod(name(n)); p != nil {
			f.pods[p.Name] = d.pod(p)
			data = d.w.Dirs["memory of "+string(p.UID)]
		}
		if claim := d.w.Claim(name(n)); claim != nil {
			f.claims[claim.Name] = claim.DeletionTimestamp != nil
			data = d.w.Dirs["volume of "+string(claim.UID)]
		}
		if data.Member != 0 {
			f.data[name(n)] = map[bool]string{true: "behind", false: "whole"}[data.Behind > 0]
		}
	}
	for _, only := range d.w.Etcd.Clusters {
		f.version = only.Version
		for _, m := range only.Members {
			f.list(m, only.Leader == m.ID && d.w.Leads())
		}
	}
	f.status = statusOf(&d.w.Cluster().Status)
	f.status.old = 0
	f.record = d.record()
	return f
}

func (f *shared) list(m observation.Member, leads bool) {
	host, _, _ := strings.Cut(strings.TrimPrefix(m.PeerURLs[0], "http://"), ".")
	n := int(number(host))
	if m.Learner {
		f.learners = f.learners.With(n)
	} else {
		f.voters = f.voters.With(n)
	}
	if m.Started() {
		f.published = f.published.With(n)
	}
	if leads {
		f.leader = host
	}
}

func (d *double) pod(p *corev1.Pod) podFacts {
	container := containerID(p)
	return podFacts{start: p.Annotations[objects.AnnotationStart], status: statusOfPod(p),
		template: p.Spec.PriorityClassName, version: tagOf(p.Spec.Containers[0].Image),
		runs: d.w.Procs[p.UID].Version, leaving: p.DeletionTimestamp != nil,
		gated: len(p.Spec.SchedulingGates) > 0, bound: p.Spec.NodeName != "",
		exchanged: container != "" && p.Annotations[objects.AnnotationExchanged] == container,
		withdrawn: d.since(p.Annotations[objects.AnnotationWithdrawn]), waits: facts.WaitsToJoin(p)}
}

func (d *double) record() recordFacts {
	r, found := d.w.Objects[firstRecord].(*corev1.ConfigMap)
	if !found {
		return recordFacts{}
	}
	e, err := facts.ParseEpoch(1, r)
	if err != nil {
		panic(err)
	}
	var dropped set
	for member, uid := range e.StartsOn {
		if uid == facts.NothingStarts {
			dropped = dropped.With(int(number(member)))
		}
	}
	return recordFacts{initial: membersOf(e.Initial), dropped: dropped, starts: membersOf(e.StartsOn), next: e.NextOrdinal,
		founded: e.Provisioned(), quorate: e.HadQuorum(), version: e.Version, chosen: d.chosen(e.Choice)}
}

func (d *double) chosen(c rec.Choice) string {
	switch {
	case c.Name == "":
		return ""
	case c.Removes && c.Withdrawn.IsZero():
		return removalWords(c.Name, notWithdrawn)
	case c.Removes:
		return removalWords(c.Name, d.since(c.Withdrawn.Format(time.RFC3339)))
	}
	p := d.w.Pod(c.Name)
	return choiceWords(c.Name, p != nil && string(p.UID) == c.Pod, c.Container != "",
		p != nil && containerID(p) == c.Container)
}

// since is how long ago something was withdrawn.
func (d *double) since(said string) uint8 {
	since, err := time.Parse(time.RFC3339, said)
	switch {
	case err != nil:
		return notWithdrawn
	case d.w.Now.Before(since.Add(facts.CallsEnd)):
		return justWithdrawn
	}
	return longWithdrawn
}

func statusOfPod(p *corev1.Pod) string {
	for _, s := range p.Status.InitContainerStatuses {
		if s.State.Waiting != nil {
			return "refused"
		}
	}
	etcd := kubelet.Container(p.Status.ContainerStatuses, objects.ContainerEtcd).State
	switch {
	case etcd.Running != nil:
		return "runs"
	case etcd.Waiting != nil && etcd.Waiting.Reason == kubelet.BacksOff:
		return "crashes"
	case etcd.Waiting != nil && etcd.Waiting.Reason == kubelet.NoImage:
		return "unpulled"
	}
	return "pending"
}

func containerID(p *corev1.Pod) string {
	return kubelet.Container(p.Status.ContainerStatuses, objects.ContainerEtcd).ContainerID
}

// plannedAgain reports whether another epoch is recorded, as on Memory for pods that can't go on as they were made.
func (d *double) plannedAgain() bool {
	return d.w.Objects[world.Key{Kind: world.ConfigMapKind, Name: objects.EpochName(clusterName, 2)}] != nil
}

// marked is the mark on the peers' Service.
func (d *double) marked() int {
	peers := d.w.Objects[world.Key{Kind: world.ServiceKind, Name: objects.PeerService(clusterName)}]
	if peers == nil {
		return 0
	}
	return objects.ReadMark(peers.GetAnnotations()[objects.AnnotationNextMember])
}
