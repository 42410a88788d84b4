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
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// movingIn is how our members take over from those of an etcd outside of Kubernetes. It begins when the cluster that
// joins it has been created, or when all of ours vote there. It ends when no external member is left, or when the
// EtcdCluster has been deleted. A person has the external members removed, at any moment. What may go wrong: an
// external member stops, is removed or added by hand; ours are killed, cut off or lose their data; a person changes the
// spec; and all that may befall calls and caches.
type movingIn struct {
	takeover
	// ours is how many members of ours there shall be.
	ours int
}

// joined is such a cluster: with how many members of theirs and of ours, and whether ours vote already.
type joined struct {
	theirs, ours int
	voting       bool
}

// newcomer is an external member that a person adds.
const newcomer = "old-9"

func (j joined) world(troubles int, decide decider, just ...string) *scene {
	w := world.New()
	w.Etcd.LearnerPace = 2
	var names []string
	for i := range j.theirs {
		names = append(names, fmt.Sprint("old-", i))
	}
	w.ExternalCluster(releases[0], names...)
	w.Write(5)
	spec := v1beta1.EtcdClusterSpec{DeletionPolicy: v1beta1.DeletionDelete,
		Version: releases[0], Replicas: new(int32(j.ours)),
		Storage: v1beta1.StorageSpec{Size: oneGi}}
	spec.TLS.Mode = v1beta1.TLSDisabled
	spec.Bootstrap = externalAt(names)
	w.CreateCluster(clusterName, spec)
	s := &scene{w: w, plot: &movingIn{ours: j.ours}, troubles: troubles, just: just}
	if j.voting {
		s.settle()
	}
	w.TakeSnapshot("s1", "s3://bucket/s1", "", "")
	w.Write(3)
	w.TakeLog()
	w.Decide = decide
	return s
}

// now is the etcd that serves last.
func (s *scene) now() (now world.Cluster) {
	for _, c := range s.w.Etcd.Clusters {
		if c.Epoch >= now.Epoch && c.Leader != 0 {
			now = c
		}
	}
	return now
}

// others are the members of that which are none of ours, by name.
func (s *scene) others() map[string]observation.Member {
	all := map[string]observation.Member{}
	for _, m := range s.now().Members {
		if name := placed(m); !strings.HasPrefix(name, clusterName+"-") {
			all[name] = m
		}
	}
	return all
}

// placed is the name in the member's peer URL.
func placed(m observation.Member) string { return hostAt(m.PeerURLs[0]) }

// hostAt is the first part of the host in a URL of plain text.
func hostAt(at string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(at, "http://"), ":")
	name, _, _ := strings.Cut(host, ".")
	return name
}

// goesOn is what goes on by itself, and what people do who want to come to the end.
func (p *movingIn) goesOn(s *scene) []move {
	list := p.takeover.goesOn(s)
	add := func(words string, do func(w *world.World)) { list = append(list, goes(words, do)) }
	edit := func(words string, change func(e *v1beta1.EtcdClusterSpec)) {
		add("edit "+words, func(w *world.World) { w.EditSpec(change) })
	}
	c, others := s.w.Cluster(), s.others()
	if retires(c) == "beside" {
		edit("retire=true", func(e *v1beta1.EtcdClusterSpec) { e.RemoveExternalMembers = true })
	}
	e := joinedExternal(c)
	listed := func(at string) bool { return others[hostAt(at)].ID != 0 }
	if len(others) > 0 && (e == nil || !slices.ContainsFunc(e.Endpoints, listed)) {
		names := slices.Sorted(maps.Keys(others))
		edit("external="+strings.Join(names, ","),
			func(e *v1beta1.EtcdClusterSpec) { e.Bootstrap = externalAt(names) })
	}
	if c.DeletionTimestamp != nil && retires(c) != "none" && s.bereft() {
		edit("external=none", func(e *v1beta1.EtcdClusterSpec) { e.Bootstrap = nil })
	}
	if int(*c.Spec.Replicas) != p.ours {
		edit(fmt.Sprint("replicas=", p.ours), func(e *v1beta1.EtcdClusterSpec) { e.Replicas = new(int32(p.ours)) })
	}
	for _, name := range slices.Sorted(maps.Keys(s.w.Net.Isolated)) {
		list = append(list, relief("network joined="+name))
	}
	for _, name := range slices.Sorted(maps.Keys(s.w.Net.Unreachable)) {
		list = append(list, relief("network reachable="+name))
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		switch runs, ran := s.w.ExternalRuns(name); {
		case !ran:
			add("external join="+name, func(w *world.World) { w.JoinExternal(name, releases[0]) })
		case !runs:
			add("external again="+name, func(w *world.World) { w.StartExternal(name, releases[0]) })
		}
		if others[name].Learner || s.stranger(others[name]) {
			list = append(list, byHand("remove", name, true, (*world.World).RemoveByHand))
		}
		if others[name].Learner {
			list = append(list, byHand("promote", name, true, (*world.World).PromoteByHand))
		}
	}
	if s.quiet() {
		add("tick 10m", func(w *world.World) { w.Elapse(10 * time.Minute) })
	}
	return list
}

// externalAt is what a spec says of a running etcd with these members.
func externalAt(names []string) *v1beta1.Bootstrap {
	e := &v1beta1.ExternalCluster{}
	for _, name := range names {
		e.Endpoints = append(e.Endpoints, "http://"+name+":2379")
	}
	return &v1beta1.Bootstrap{External: e}
}

// byHand is what a person does to a member by etcdctl; nothing when etcd refuses it.
func byHand(verb, name string, free bool, do func(w *world.World, name string) error) move {
	return move{fmt.Sprintf("external %s=%s", verb, name), free, func(s *scene) { _ = do(s.w, name) }}
}

// stranger reports whether Quorate says of the member that it is left to a person.
func (s *scene) stranger(m observation.Member) bool {
	degraded := meta.FindStatusCondition(s.w.Cluster().Status.Conditions, v1beta1.Degraded)
	return degraded != nil && strings.Contains(degraded.Message, fmt.Sprintf("unmanaged member %x", m.ID))
}

// mishaps are what may go wrong besides, and what people change without need.
func (p *movingIn) mishaps(s *scene) []move {
	list := p.takeover.mishaps(s)
	add := func(words string, do func(w *world.World)) { list = append(list, fails(words, do)) }
	edit := func(words string, change func(e *v1beta1.EtcdClusterSpec)) {
		add("edit "+words, func(w *world.World) { w.EditSpec(change) })
	}
	c, others := s.w.Cluster(), s.others()
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if runs, _ := s.w.ExternalRuns(name); runs {
			add("external stop="+name, func(w *world.World) { w.StopExternal(name) })
		}
		if !others[name].Learner {
			list = append(list, byHand("remove", name, false, (*world.World).RemoveByHand))
		}
	}
	if len(others) > 0 && !s.w.External[newcomer] {
		for _, role := range []string{"learner", "voter"} {
			add(fmt.Sprintf("external add-%s=%s", role, newcomer), func(w *world.World) {
				w.External[newcomer] = true
				w.AddByHand("http://"+newcomer+":2380", role == "learner")
			})
		}
	}
	if *c.Spec.Replicas > 0 {
		edit("replicas=0", func(e *v1beta1.EtcdClusterSpec) { e.Replicas = new(int32(0)) })
	}
	if int(*c.Spec.Replicas) == p.ours {
		edit(fmt.Sprint("replicas=", p.ours+1),
			func(e *v1beta1.EtcdClusterSpec) { e.Replicas = new(int32(p.ours + 1)) })
	}
	if retires(c) == "retire" {
		edit("retire=false", func(e *v1beta1.EtcdClusterSpec) { e.RemoveExternalMembers = false })
	}
	recorded := s.w.Objects[firstRecord] != nil // before, it would be a cluster of its own
	if recorded && retires(c) != "none" {
		edit("external=none", func(e *v1beta1.EtcdClusterSpec) { e.Bootstrap = nil })
	}
	if slices.Contains(s.just, "delete") && c.DeletionTimestamp == nil {
		add("delete cluster", func(w *world.World) { w.DeleteCluster(false) })
	}
	if recorded && s.restoreID() == "" {
		add("restore id=one", func(w *world.World) {
			w.AskRestore("one", v1beta1.RestoreOperation{
				Snapshot: &v1beta1.SnapshotSource{SnapshotRef: v1beta1.SnapshotRef{Name: "s1"}}})
		})
	}
	for _, m := range s.now().Members {
		name := placed(m)
		if m.ID != s.now().Leader && !m.Learner {
			list = append(list, trouble("etcd leader="+name))
		}
		if !s.w.Net.Isolated[name] {
			list = append(list, trouble("network isolated="+name))
		}
		if !s.w.Net.Unreachable[name] {
			list = append(list, trouble("network unreachable="+name))
		}
	}
	for _, claim := range s.w.Claims() {
		if claim.DeletionTimestamp == nil {
			list = append(list, trouble("lose claim="+claim.Name))
		}
	}
	return list
}

// hasLeft looks at an etcd whose EtcdCluster has just gone: beside external members none of ours is left in it (S17),
// unless a person did not want to wait for that.
func (s *scene) hasLeft(before *world.World) {
	record, _ := before.Objects[firstRecord].(*corev1.ConfigMap)
	if retires(before.Cluster()) == "none" || len(recordtest.Says(record).External) == 0 {
		return
	}
	for _, m := range s.now().Members {
		if _, other := s.others()[placed(m)]; !other {
			left := fmt.Sprintf("S17: the EtcdCluster is gone, and %s is left beside external members", placed(m))
			s.w.Oracle.Broken = append(s.w.Oracle.Broken, left)
		}
	}
}

// done reports whether no external member is left and the cluster is as the spec asks for; or so much data is lost
// that only a person can help.
func (*movingIn) done(s *scene) bool {
	c := s.w.Cluster()
	if !s.quiet() {
		return false
	}
	if s.bereft() {
		return true
	}
	return c.Status.Rule == "Converged" && len(s.others()) == 0 && s.w.Lacks(&c.Spec) == ""
}

// bereft reports whether too few members of the etcd that serves last have their data for a quorum.
func (s *scene) bereft() bool {
	now, voters, have := s.now(), 0, 0
	for _, m := range now.Members {
		if m.Learner {
			continue
		}
		voters++
		holds := slices.ContainsFunc(slices.Collect(maps.Values(s.w.Dirs)), func(d world.Dir) bool {
			return d.Cluster == now.ID && d.Member == m.ID
		})
		if _, ran := s.w.ExternalRuns(placed(m)); holds || !ran && placed(m) == newcomer {
			have++
		}
	}
	return have < voters/2+1
}

// tell writes down what there is besides.
func (p *movingIn) tell(s *scene, b *strings.Builder, n numbers) {
	p.takeover.tell(s, b, n)
	w, c := s.w, s.w.Cluster()
	if e := joinedExternal(c); e != nil {
		fmt.Fprintln(b, e.Endpoints)
	}
	fmt.Fprintln(b, c.DeletionTimestamp != nil)
	fmt.Fprintln(b, *c.Spec.Replicas, retires(c), w.Net.Isolated, w.Net.Unreachable)
	watched := w.Now
	if c.Status.Internal.Watched != nil {
		watched = c.Status.Internal.Watched.StartTime.Time
	}
	for _, m := range c.Status.Members {
		seen := w.Now.Sub(watched)
		silent, joined := min(seen, w.Now.Sub(m.LastTransitionTime.Time)), min(seen, w.Now.Sub(m.JoinTime.Time))
		fmt.Fprintln(b, m.ID, m.Leader, m.External, m.Message, !m.Ready && silent >= 5*time.Minute,
			joined >= 10*time.Minute)
	}
	if r := c.Status.Internal.Replacement; r != nil {
		fmt.Fprintln(b, r.Learner, w.Now.Before(r.NextLearnerTime.Time), r.Voter, w.Now.Before(r.NextReplacementTime.Time))
	}
	for _, name := range slices.Sorted(maps.Keys(w.External)) {
		runs, ran := w.ExternalRuns(name)
		fmt.Fprintln(b, name, runs, ran)
	}
	for _, place := range slices.Sorted(maps.Keys(w.Dirs)) {
		if strings.HasPrefix(place, "disk of ") {
			fmt.Fprintln(b, w.Dirs[place].Index, w.Dirs[place].Behind)
		}
	}
	for _, claim := range w.Claims() {
		fmt.Fprintln(b, w.Dirs["volume of "+string(claim.UID)].Behind)
	}
}

// TestExternalMembers searches all that may happen while ours take over from external members.
func TestExternalMembers(t *testing.T) {
	for _, c := range []struct {
		name     string
		joined   joined
		troubles int
		just     []string
		deep     bool
	}{
		{"one joins one, undisturbed", joined{1, 1, false}, 0, nil, false},
		{"one joins one, one trouble", joined{1, 1, false}, 1, nil, false},
		{"one beside one, a restore and two bursts of writes", joined{1, 1, true}, 3, []string{"restore", "write"},
			false},
		{"two join one, and are deleted", joined{1, 2, false}, 1, []string{"delete"}, false},
		{"one beside two is deleted, one more trouble", joined{2, 1, true}, 2,
			[]string{"delete", "external", "lose", "cache", "look", "crash"}, true},
		{"one beside two, one trouble", joined{2, 1, true}, 1, nil, true},
		{"two join one, one trouble", joined{1, 2, false}, 1, nil, true},
		{"one joins one, two of external members and late calls", joined{1, 1, false}, 2,
			[]string{"external", "call", "look"}, true},
		{"one beside two, two of external members and edits", joined{2, 1, true}, 2, []string{"external", "edit"}, true},
	} {
		searchScene(t, c.name, c.deep, func() *scene { return c.joined.world(c.troubles, nil, c.just...) })
	}
}

// TestExternalMutants are rules about external members that are wrong on purpose. The search finds each by what happens
// alone, and the shipped rules live through the same in TestExternalMembers.
func TestExternalMutants(t *testing.T) {
	for name, mutant := range map[string]struct {
		joined   joined
		troubles int
		just     []string
		decide   decider
		breaks   string
	}{
		"external members are removed unasked": {joined{1, 1, true}, 0, nil, retiresUnasked,
			"S6: old-0 is removed, which is not ours, and the spec"},
		"external members are removed once one of ours votes": {joined{1, 2, false}, 0, nil, retiresEarly,
			"S6: old-0 is removed, which is not ours, and 1 of ours"},
		"external members are unmanaged": {joined{1, 1, false}, 0, nil, knowsNoOthers, "liveness:"},
		"the first record says nothing of the other etcd": {joined{1, 1, false}, 0, nil, beginsItsOwn,
			"S8: 2 etcd clusters"},
		"the lowest free number is given to the next member": {joined{2, 1, true}, 1, nil, reusesNames,
			"S9: the name demo-0 is used again"},
		"a revision is raised by the same each time": {joined{1, 1, true}, 3, []string{"restore", "write"},
			raisesByTheSame, "S21: epoch 2 begins at revision"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := searchAll(scenes{}, *mutant.joined.world(mutant.troubles, mutant.decide, mutant.just...), 1)
			require.NotNil(t, r.Broken, "it was missed: %s", r)
			assert.Contains(t, r.Broken.Rules[0], mutant.breaks)
			t.Log(strings.Join(append(r.Broken.Path, r.Broken.Rules...), "\n"))
		})
	}
}
