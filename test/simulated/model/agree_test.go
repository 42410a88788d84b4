package model

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/state"
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
				Medium: v1alpha1.Persistent, Replicas: []int{1, 3}[r.IntN(2)], Faults: 5, Edits: 3, Hitches: 100,
				Sizes: []int{0, 1, 2, 3, 4, 5},
				// 3.5 leaves something in the log
				From:      []uint8{usualVersion, nextMinor}[r.IntN(2)],
				Versions:  []uint8{usualVersion, patchRelease, nextMinor, unpullable},
				Templates: []uint8{0, 1, unplaced},
			}
			if r.IntN(3) == 0 {
				m.Medium, m.Sizes = v1alpha1.Memory, m.Sizes[1:]
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
		if s.live.record.next+2 >= maxMembers || s.used+2 >= maxMembers {
			return // no room for more members
		}
		a := choose(r, m.possible(&s, nil))
		m.do(&s, a)
		d.do(m, a, &s)
		told.WriteString(m.words(a, &s) + "\n")
		if d.marked() > int(s.live.record.next) {
			return // by the copy of the mark on the Service, which the model leaves out
		}
		if ours, theirs := s.facts(m), d.facts(); ours != theirs {
			t.Fatalf("%s\nmodel: %s\nworld: %s", told.String(), ours, theirs)
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
	w.Etcd.LearnerPace = never
	w.CreateCluster(clusterName, v1alpha1.EtcdClusterSpec{
		Replicas: new(int32(m.Replicas)), Version: releases[m.From], UpgradePolicy: v1alpha1.UpgradeStep,
		Storage: v1alpha1.StorageSpec{Medium: m.Medium, Size: oneGi},
		TLS:     v1alpha1.TLSSpec{Mode: v1alpha1.TLSDisabled},
	})
	w.BadImages[image(unpullable)] = true
	w.Unplaced[template(unplaced)] = true
	w.Begin(world.Crash{}) // sets Metacontroller's finalizer; the answer is thrown away
	return &double{w: w}
}

var kinds = map[uint8]world.Kind{podCache: world.PodKind, claimCache: world.ClaimKind, recordCache: world.ConfigMapKind,
	parentCache: world.ClusterKind}

func (d *double) do(m *model, a action, after *worldState) {
	w, member := d.w, name(int(a.n))
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
	case kubeletActs:
		w.Kubelet(member)
	case etcdTicks:
		w.TickEtcd()
	case learnerCatchesUp:
		w.CatchUp(member)
	case claimsCollected:
		w.Collect()
	case timePasses:
		w.Elapse(time.Minute)
	case cacheThaws:
		w.Thaw(kinds[a.x])
	case cacheFreezes:
		w.Freeze(kinds[a.x])
	default:
		d.befall(m, a, member, after)
	}
	d.follow(after)
}

// follow lets the world have the leader that the model has: raft may elect any member that is up to date, and a
// leader that goes hands over to the one with the longest log, of which the model knows nothing.
func (d *double) follow(after *worldState) {
	if after.Leads() && d.w.Leads() {
		d.w.Lead(name(int(after.Leader) - 1))
	}
}

func (d *double) befall(_ *model, a action, member string, after *worldState) {
	w := d.w
	switch a.deed {
	case podKilled:
		w.KillPod(member)
	case podDeleted:
		_ = w.Delete(world.PodKind, member)
	case claimLost:
		w.LoseClaim(member)
	case claimDeleted:
		_ = w.Delete(world.ClaimKind, member)
	case nodeLost:
		w.LoseNode(member)
	case nodeBack:
		w.HealNode(member)
	case podStuck:
		w.Full[member] = true
	case podTaken:
		delete(w.Full, member)
	case etcdOut, etcdBack:
		w.Net.Down = after.down
	case memberUnreachable, memberReached:
		w.Net.Unreachable[member] = after.unreachable.Has(int(a.n))
	case memberIsolated, memberJoined:
		w.Net.Isolated[member] = after.Isolated.Has(int(a.n))
	case leaderMoves:
		w.Lead(member)
	case statusWiped:
		w.WipeStatus()
	case spaceOut, spaceFreed:
		w.Etcd.NoSpace = after.nospace
	case sizeEdited:
		w.EditSpec(func(s *v1alpha1.EtcdClusterSpec) { s.Replicas = new(int32(a.x)) })
	case badTakenBack, versionEdited, templateEdited:
		if a.deed == badTakenBack && a.x == aPendingPod {
			_ = w.Delete(world.PodKind, member)
			return
		}
		w.EditSpec(func(s *v1alpha1.EtcdClusterSpec) {
			s.Version, s.PriorityClassName = releases[after.live.parent.version], template(after.live.parent.template)
		})
	}
}

func crash(c cut) world.Crash {
	kind, name := c.Object.names()
	return world.Crash{At: c.At, Backwards: c.Backwards, Object: world.Key{Kind: world.Kind(kind), Name: name}}
}

// ---- what both of them know

// facts are the model's, in words.
func (s *worldState) facts(m *model) string {
	var b strings.Builder
	for n := range maxMembers {
		if p := s.live.pods[n]; p.uid != 0 {
			fmt.Fprintf(&b, " pod %s %s %s", name(n), []string{"bootstrap", "join", "resume"}[p.start],
				[]string{"pending", "runs", "crashes", "refused", "refused", "unpulled", "unpulled"}[p.status])
			flags(&b, map[string]bool{"leaving": p.deleting != stays, "gated": p.gated, "bound": p.bound,
				"running": s.Running.Has(n), "exchanged": p.exchanged, "withdrawn": p.withdrawn == justWithdrawn,
				"long withdrawn": p.withdrawn == longWithdrawn, template(p.template): true, releases[p.version]: true,
				"running " + releases[s.proc[n]]: s.Running.Has(n)})
		}
		if c := s.live.claims[n]; c.uid != 0 {
			fmt.Fprintf(&b, " claim %s", name(n))
			flags(&b, map[string]bool{"leaving": c.deleting})
		}
		if s.data[n] != nothing {
			fmt.Fprintf(&b, " data %s %s", name(n), []string{"", "behind", "whole"}[s.data[n]])
		}
	}
	if m.minors {
		fmt.Fprintf(&b, "\n agreed on %d, lowered to %d;", s.Agreed, s.Downgrade)
	}
	fmt.Fprintf(&b, "\n voters %s, learners %s, published %s", namesOf(s.Voters), namesOf(s.Learners),
		namesOf(s.Started&s.Members()))
	if s.Leads() {
		fmt.Fprintf(&b, ", led by %s", name(int(s.Leader)-1))
	}
	if r := s.live.record; r.exists {
		var starts set
		for n, uid := range r.startsOn {
			if uid != 0 {
				starts = starts.With(n)
			}
		}
		fmt.Fprintf(&b, "\n record %s starts on %s, next %d", namesOf(r.initial), namesOf(starts), r.next)
		flags(&b, map[string]bool{"founded": r.founded, "quorate": r.quorate, releases[r.version]: true,
			"restarts " + s.chosen(): s.chosen() != ""})
	}
	st := s.live.parent.status
	fmt.Fprintf(&b, "\n status %s and %s", namesOf(st.voters), namesOf(st.learners))
	flags(&b, map[string]bool{"id": st.hasID})
	return b.String()
}

func flags(b *strings.Builder, all map[string]bool) {
	var set []string
	for flag, is := range all {
		if is {
			set = append(set, flag)
		}
	}
	slices.Sort(set)
	fmt.Fprintf(b, " %v", set)
}

// chosen is the member that the record names, and whether it is still that pod, or that container.
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

func (d *double) chosen(record *corev1.ConfigMap) string {
	fields := append(strings.Fields(strings.TrimSuffix(record.Annotations[objects.AnnotationChosen], " down")), "", "",
		"", "")
	if fields[1] == "removal" {
		return removalWords(fields[0], d.since(fields[3]))
	}
	p := d.w.Pod(fields[0])
	return choiceWords(fields[0], p != nil && string(p.UID) == fields[1], fields[2] != "",
		p != nil && containerID(p) == fields[2])
}

// withdrawn is how long ago the restart of the pod was withdrawn.
func (d *double) withdrawn(p *corev1.Pod) uint8 {
	return d.since(p.Annotations[objects.AnnotationWithdrawn])
}

func (d *double) since(said string) uint8 {
	since, err := time.Parse(time.RFC3339, said)
	switch {
	case err != nil:
		return notWithdrawn
	case d.w.Now.Before(since.Add(state.CallsEnd)):
		return justWithdrawn
	}
	return longWithdrawn
}

// facts are the world's, in the same words.
func (d *double) facts() string {
	w := d.w
	var b strings.Builder
	var c world.Cluster
	for _, only := range w.Etcd.Clusters {
		c = only
	}
	for n := range maxMembers {
		p, claim := w.Pod(name(n)), w.Claim(name(n))
		var data world.Dir
		if p != nil {
			fmt.Fprintf(&b, " pod %s %s %s", name(n), p.Annotations[objects.AnnotationStart], statusOfPod(p))
			proc, running := w.Procs[p.UID]
			container := containerID(p)
			flags(&b, map[string]bool{
				"leaving": p.DeletionTimestamp != nil, "gated": len(p.Spec.SchedulingGates) > 0,
				"bound": p.Spec.NodeName != "", "running": running,
				"exchanged": container != "" && p.Annotations[objects.AnnotationExchanged] == container,
				"withdrawn": d.withdrawn(p) == justWithdrawn, "long withdrawn": d.withdrawn(p) == longWithdrawn,
				p.Spec.PriorityClassName:          true,
				tagOf(p.Spec.Containers[0].Image): true, "running " + proc.Version: running,
			})
			data = w.Dirs["memory of "+string(p.UID)]
		}
		if claim != nil {
			fmt.Fprintf(&b, " claim %s", name(n))
			flags(&b, map[string]bool{"leaving": claim.DeletionTimestamp != nil})
			data = w.Dirs["volume of "+string(claim.UID)]
		}
		if data.Member != 0 {
			fmt.Fprintf(&b, " data %s %s", name(n), map[bool]string{true: "behind", false: "whole"}[data.Behind > 0])
		}
	}
	fmt.Fprintf(&b, "\n agreed on %d, lowered to %d;", c.Agreed, c.Downgrade)
	voters, learners, published, leader := membersInWorld(c)
	fmt.Fprintf(&b, "\n voters %v, learners %v, published %v", voters, learners, published)
	if leader != "" && w.Leads() {
		fmt.Fprintf(&b, ", led by %s", leader)
	}
	b.WriteString(d.record())
	b.WriteString(statusInWorld(w.Cluster()))
	return b.String()
}

func statusOfPod(p *corev1.Pod) string {
	for _, s := range p.Status.InitContainerStatuses {
		if s.State.Waiting != nil {
			return "refused"
		}
	}
	for _, s := range p.Status.ContainerStatuses {
		switch {
		case s.State.Running != nil:
			return "runs"
		case s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff":
			return "crashes"
		case s.State.Waiting != nil && s.State.Waiting.Reason == "ErrImagePull":
			return "unpulled"
		}
	}
	return "pending"
}

func containerID(p *corev1.Pod) string {
	for _, s := range p.Status.ContainerStatuses {
		return s.ContainerID
	}
	return ""
}

func membersInWorld(c world.Cluster) (voters, learners, published []string, leader string) {
	all := slices.Clone(c.Members)
	slices.SortFunc(all, func(a, b observation.Member) int { return byNumber(nameOf(a), nameOf(b)) })
	for _, m := range all {
		if m.Learner {
			learners = append(learners, nameOf(m))
		} else {
			voters = append(voters, nameOf(m))
		}
		if m.Started() {
			published = append(published, nameOf(m))
		}
		if m.ID == c.Leader {
			leader = nameOf(m)
		}
	}
	return voters, learners, published, leader
}

func nameOf(m observation.Member) string {
	host := strings.TrimPrefix(m.PeerURLs[0], "http://")
	return host[:strings.Index(host, ".")]
}

func byNumber(a, b string) int { return int(number(a)) - int(number(b)) }

func (d *double) record() string {
	r, found := d.w.Objects[world.Key{Kind: world.ConfigMapKind,
		Name: objects.EpochName(clusterName, 1)}].(*corev1.ConfigMap)
	if !found {
		return ""
	}
	var starts []string
	raw := r.Annotations[objects.AnnotationStartsOn]
	for field := range strings.SplitSeq(raw, ",") {
		if member, _, ok := strings.Cut(field, ":"); ok {
			starts = append(starts, member)
		}
	}
	slices.SortFunc(starts, byNumber)
	quorate := r.Annotations[objects.AnnotationClusterID] != ""
	var b strings.Builder
	fmt.Fprintf(&b, "\n record %s starts on %v, next %s", namesOf(membersOf(r.Data[objects.EpochKeyInitialCluster])),
		starts, r.Annotations[objects.AnnotationNextMember])
	flags(&b, map[string]bool{"founded": raw != "" || quorate, "quorate": quorate,
		r.Annotations[objects.AnnotationVersion]: true,
		"restarts " + d.chosen(r):                r.Annotations[objects.AnnotationChosen] != ""})
	return b.String()
}

// marked is the mark on the peers' Service.
func (d *double) marked() int {
	peers := d.w.Objects[world.Key{Kind: world.ServiceKind, Name: objects.PeerService(clusterName)}]
	if peers == nil {
		return 0
	}
	n, _ := strconv.Atoi(peers.GetAnnotations()[objects.AnnotationNextMember])
	return n
}

func statusInWorld(c *v1alpha1.EtcdCluster) string {
	var voters, learners []string
	for _, m := range c.Status.Members {
		if m.Role == v1alpha1.Learner {
			learners = append(learners, m.Name)
		} else {
			voters = append(voters, m.Name)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n status %v and %v", voters, learners)
	flags(&b, map[string]bool{"id": c.Status.ClusterID != ""})
	return b.String()
}
