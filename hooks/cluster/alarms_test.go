package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/state"
)

// hashed is a cluster with the alarm CORRUPT of this member, whose voters have these hashes; 0 for none.
func hashed(accused uint64, hashes ...uint32) observation.Observation {
	o := serve(len(hashes))
	o.Etcd.Alarms = []observation.Alarm{{MemberID: accused, Kind: observation.AlarmCorrupt}}
	for i, value := range hashes {
		if value == 0 {
			continue
		}
		name := objects.MemberName("demo", i)
		h := o.Health[name]
		h.Hash = &observation.Hash{Revision: 100, CompactRevision: 50, Value: value}
		o.Health[name] = h
	}
	for _, claim := range o.Children.Claims {
		note(claim, objects.AnnotationFailedMember, "true") // as it is before any member goes
	}
	return o
}

func rehash(o *observation.Observation, name string, change func(*observation.Hash)) {
	h := o.Health[name]
	hash := *h.Hash
	change(&hash)
	h.Hash = &hash
	o.Health[name] = h
}

func TestCorruptNeedsProof(t *testing.T) {
	former := uint64(77)
	cases := []struct {
		name  string
		given observation.Observation
		step  decision.Step
	}{
		{"a follower differs from two", hashed(2, 1, 9, 1), decision.Remove{ID: 2, Name: "demo-1"}},
		{"the leader differs from two", hashed(1, 9, 1, 1), decision.MoveLeader{To: 2, Name: "demo-1"}},
		{"no single member is accused", hashed(0, 1, 1, 9), decision.Remove{ID: 3, Name: "demo-2"}},
		{"another is accused than the one that differs", hashed(3, 1, 9, 1), decision.Remove{ID: 2, Name: "demo-1"}},
		{"two of five differ: followers first", hashed(1, 9, 1, 1, 8, 1), decision.Remove{ID: 4, Name: "demo-3"}},
		{"all three differ", hashed(0, 1, 2, 3), nil},
		{"two of four differ", hashed(0, 1, 1, 2, 2), nil},
		{"one of two differs", hashed(0, 1, 2), nil},
		{"one differs, one says nothing", hashed(0, 1, 2, 0), nil},
		{"none says anything", hashed(2, 0, 0, 0), nil},
		{"all agree", hashed(2, 1, 1, 1), decision.Disarm{ID: 2, Name: "demo-1", Kind: observation.AlarmCorrupt}},
		{"all agree, and none was accused", hashed(0, 1, 1, 1), decision.Disarm{Kind: observation.AlarmCorrupt}},
		{"all that say something agree", hashed(2, 1, 0, 1), nil},
		{"the accused has left", hashed(former, 1, 1, 1), decision.Disarm{ID: former, Kind: observation.AlarmCorrupt}},
		{"the accused has left, one says nothing", hashed(former, 1, 1, 0), decision.Disarm{ID: former,
			Kind: observation.AlarmCorrupt}},
		{"the accused has left, the rest differ", hashed(former, 1, 2), nil},
		{"a single voter proves nothing by itself", hashed(1, 1), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(onceChosen(t, c.given))
			assert.Equal(t, "Corrupt", d.Reason.Rule)
			assert.Equal(t, c.step, d.Step, d.Reason.Message)
			assert.NoError(t, verify(c.given, d))
			assert.Equal(t, c.given.Cluster.Status.Members, d.Status.Members)
		})
	}
}

func TestHashesOfOtherRevisionsProveNothing(t *testing.T) {
	o := hashed(2, 1, 9, 1)
	rehash(&o, "demo-1", func(h *observation.Hash) { h.CompactRevision = 40 })
	d := Decide(o)
	assert.Nil(t, d.Step)
	assert.Contains(t, d.Reason.Message, "demo-1 has the hash 00000009 at revision 100 since 40")
	assert.NoError(t, verify(o, d))
}

func TestNoMemberJoinsWhileDataIsCorrupt(t *testing.T) {
	o := learnerAt(1000)
	o.Etcd.Alarms = []observation.Alarm{{Kind: observation.AlarmCorrupt}}
	assert.Nil(t, Decide(o).Step, "no promotion")

	proven := hashed(2, 1, 9, 1)
	addMember(&proven, 3, true)
	list(&proven, "demo-3", state.CallsEnd)
	proven.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationNextMember] = "4"
	assert.Equal(t, decision.Remove{ID: 4, Name: "demo-3"}, Decide(onceChosen(t, proven)).Step,
		"the learner may have copied what is wrong")

	grown := hashed(2, 1, 9, 1)
	grown.Cluster.Spec.Replicas = new(int32(5))
	d := Decide(grown)
	d.Step = decision.AddLearner{Name: "demo-3", PeerURL: objects.PeerURL(grown.Cluster, "demo-3", "")}
	assert.ErrorContains(t, verify(grown, d), "while data is corrupt")
	d.Step = decision.Remove{ID: 3, Name: "demo-2"}
	assert.ErrorContains(t, verify(grown, d), "neither lost, nor proven wrong")
	d.Step = decision.Disarm{ID: 2, Name: "demo-1", Kind: observation.AlarmCorrupt}
	assert.ErrorContains(t, verify(grown, d), "2 hashes")
}

func TestTheHeirOfACorruptLeaderIsNotCorrupt(t *testing.T) {
	o := hashed(0, 9, 8, 1, 1, 1)
	ahead := o.Health["demo-1"]
	ahead.RaftIndex += 100
	o.Health["demo-1"] = ahead
	v := newView(o)
	assert.Equal(t, "demo-2", handOver(v, v.Find("demo-0")).(decision.MoveLeader).Name)
}

// spaceOut is a cluster of three with a quota of 768 MiB, the alarm NOSPACE, and databases of these sizes in MiB.
func spaceOut(size, inUse int64) observation.Observation {
	o := serve(3)
	everyDatabase(&o, size<<20, inUse<<20)
	o.Etcd.Alarms = []observation.Alarm{{MemberID: 2, Kind: observation.AlarmNoSpace}}
	return o
}

func recovering(o observation.Observation, change func(*decision.DefragmentationRun)) observation.Observation {
	run := &decision.DefragmentationRun{}
	run.Trigger, run.StartTime = v1alpha1.TriggerNoSpace, metav1.NewTime(now.Add(-time.Minute))
	return inRun(o, run, change)
}

// inRun is the observation with the run in its status, changed.
func inRun(o observation.Observation, run *decision.DefragmentationRun,
	change func(*decision.DefragmentationRun)) observation.Observation {
	change(run)
	o.Cluster.Status.Defragmentation, o.Cluster.Status.Internal.Defragmentation = run.Told()
	return o
}

func TestNoSpace(t *testing.T) {
	untouched := func(*decision.DefragmentationRun) {}
	compacted := func(s *decision.DefragmentationRun) {
		s.Compacted, s.LastMemberTime = 100, metav1.NewTime(now.Add(-10*time.Second))
	}
	finished := func(s *decision.DefragmentationRun) { compacted(s); s.CompletionTime = metav1.NewTime(now) }
	stale := func(s *decision.DefragmentationRun) {
		finished(s)
		s.StartTime = metav1.NewTime(now.Add(-spaceEvery))
	}
	off := func(o observation.Observation) observation.Observation {
		o.Cluster.Spec.Options.AutoCompaction.Mode = v1alpha1.CompactOff
		for _, p := range o.Children.Pods {
			p.Annotations[objects.AnnotationTemplate] = children.TemplateNow(newView(o), "3.6.16")
		}
		return o
	}
	cases := []struct {
		name  string
		given observation.Observation
		rule  string
		step  decision.Step
	}{
		{"below 90 %: disarm at once", spaceOut(600, 500), "NoSpace",
			decision.Disarm{ID: 2, Name: "demo-1", Kind: observation.AlarmNoSpace}},
		{"it begins by being written down", spaceOut(770, 760), "NoSpace", nil},
		{"history first", recovering(spaceOut(770, 760), untouched), "NoSpace", decision.Compact{Revision: 100}},
		{"a compaction may take a while", recovering(spaceOut(770, 760), compacted), "NoSpace", nil},
		{"after one, a full member may have room that it does not tell", recovering(spaceOut(765, 690), compacted),
			"NoSpace", decision.Defragment{ID: 2, Name: "demo-1", DBSize: 765 << 20}},
		{"no compaction when free space is what fills it", recovering(spaceOut(770, 300), untouched), "NoSpace",
			decision.Defragment{ID: 2, Name: "demo-1", DBSize: 770 << 20}},
		{"too soon after the last time", recovering(spaceOut(770, 300), finished), "NoSpace", nil},
		{"the keys fill it, and nothing was written since", recovering(spaceOut(770, 760), stale), "OutOfSpace", nil},
		{"compaction is off", off(spaceOut(770, 760)), "OutOfSpace", nil},
		{"compaction is off, and there is free space", off(spaceOut(770, 300)), "NoSpace", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(c.given)
			assert.Equal(t, c.rule, d.Reason.Rule, d.Reason.Message)
			assert.Equal(t, c.step, d.Step, d.Reason.Message)
			assert.NoError(t, verify(c.given, d))
		})
	}
}

func TestVerifyKnowsMaintenance(t *testing.T) {
	o := spaceOut(770, 300)
	d := Decide(o)
	broken := func(o observation.Observation, step decision.Step) string {
		d.Step = step
		if err := verify(o, d); err != nil {
			return err.Error()
		}
		return ""
	}
	require.Empty(t, broken(o, decision.Defragment{ID: 2, Name: "demo-1"}))
	assert.Contains(t, broken(o, decision.Disarm{ID: 2, Name: "demo-1", Kind: observation.AlarmNoSpace}),
		"not below 90 %")
	assert.Contains(t, broken(o, decision.Compact{Revision: 101}), "to which the leader has not come")
	assert.Contains(t, broken(serve(3), decision.Compact{Revision: 0}), "although there is space")

	down := spaceOut(770, 300)
	silence(&down, "demo-2")
	assert.Contains(t, broken(down, decision.Defragment{ID: 2, Name: "demo-1"}), "while demo-2 does not serve")
	learner := learnerAt(500)
	assert.Contains(t, broken(learner, decision.Defragment{ID: 2, Name: "demo-1"}), "while there is a learner")
	asked := recovering(serve(3), func(s *decision.DefragmentationRun) { s.Trigger = v1alpha1.TriggerRequest })
	assert.Contains(t, broken(asked, decision.Defragment{ID: 1, Name: "demo-0"}), "which leads, before demo-1")
}
