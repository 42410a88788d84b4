package hooks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/observation"
)

const ms = time.Millisecond

// disks are how long syncs take on the members from demo-0 on, which leads; 0 where that is not known.
func disks(means ...time.Duration) fact {
	return func(o *observation.Observation) {
		o.Cluster.Spec.Leadership.AvoidSlowDisks = true
		for i, mean := range means {
			disk(o, i, mean, 50)
		}
	}
}

func disk(o *observation.Observation, i int, mean time.Duration, syncs int64) {
	name := fmt.Sprint("demo-", i)
	h := o.Health[name]
	h.Disk = nil
	if mean > 0 {
		h.Disk = &observation.Disk{Over: 5 * time.Second, Syncs: syncs, Mean: mean}
		if mean > observation.SlowSync {
			h.Disk.Slow = syncs
		}
	}
	o.Health[name] = h
}

func movesTo(id uint64) decision.Step {
	if id == 0 {
		return nil
	}
	return decision.MoveLeader{To: id, Name: fmt.Sprint("demo-", id-1)}
}

// TestLeaveASlowDisk: the leadership goes to the voter with this ID; 0 for none.
func TestLeaveASlowDisk(t *testing.T) {
	next := func(in time.Duration) fact {
		return func(o *observation.Observation) {
			o.Cluster.Status.Internal.Leadership.NextMoveTime = metav1.NewTime(now.Add(in))
		}
	}
	few := func(i int) fact { return func(o *observation.Observation) { disk(o, i, 200*ms, 9) } }
	onePause := func(o *observation.Observation) { o.Health["demo-0"].Disk.Slow = 1 }
	for _, c := range []struct {
		name  string
		of    int
		facts []fact
		to    uint64
	}{
		{"200 ms more", 3, []fact{disks(201*ms, 2*ms, ms)}, 3},
		{"not asked for", 3, []fact{disks(201*ms, 2*ms, ms),
			func(o *observation.Observation) { o.Cluster.Spec.Leadership.AvoidSlowDisks = false }}, 0},
		{"below the floor", 3, []fact{disks(39*ms, 2*ms, ms)}, 0},
		{"not four times", 3, []fact{disks(79*ms, 20*ms, 20*ms)}, 0},
		{"four times", 3, []fact{disks(80*ms, 20*ms, 20*ms)}, 2},
		{"all are slow", 3, []fact{disks(201*ms, 190*ms, 210*ms)}, 0},
		{"a quorum would wait for another slow one", 3, []fact{disks(201*ms, 190*ms, ms)}, 0},
		{"one of five is fast", 5, []fact{disks(201*ms, 190*ms, 190*ms, 190*ms, ms)}, 0},
		{"three of five are fast", 5, []fact{disks(201*ms, 190*ms, 3*ms, 2*ms, 4*ms)}, 4},
		{"two wait for each other in any case", 2, []fact{disks(201*ms, ms)}, 0},
		{"one", 1, []fact{disks(201 * ms)}, 0},
		{"the leader's is not known", 3, []fact{disks(0, ms, ms)}, 0},
		{"another's is not known", 3, []fact{disks(201*ms, 0, ms)}, 0},
		{"few syncs", 3, []fact{disks(0, 2*ms, ms), few(0)}, 0},
		{"few syncs of another", 3, []fact{disks(201*ms, 2*ms, ms), few(1)}, 0},
		{"one long pause", 3, []fact{disks(50*ms, 2*ms, ms), onePause}, 0},
		{"another does not serve", 3, []fact{disks(201*ms, 2*ms, ms), func(o *observation.Observation) { silence(o, "demo-2") }}, 0},
		{"the fastest of five does not serve", 5, []fact{disks(201*ms, 3*ms, 2*ms, 4*ms, ms),
			func(o *observation.Observation) { silence(o, "demo-4") }}, 3},
		{"moved a moment ago", 3, []fact{disks(201*ms, 2*ms, ms), next(9 * time.Minute)}, 0},
		{"moved long ago", 3, []fact{disks(201*ms, 2*ms, ms), next(-time.Second)}, 3},
		{"a person has it elsewhere", 3, []fact{disks(201*ms, 2*ms, ms), askLeader("demo-1")}, 2},
		{"a preferred zone first", 3, []fact{disks(201*ms, 2*ms, ms), zones("a", "b", "c"), prefers("b")}, 2},
		{"a slow disk where it is preferred", 5, []fact{disks(201*ms, 190*ms, 2*ms, 2*ms, ms), zones("a", "b", "c", "d", "e"),
			prefers("b", "d")}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := with(serve(c.of), c.facts...)
			d := Decide(o)
			assert.Equal(t, movesTo(c.to), d.Step, d.Reason.Message)
			assert.NoError(t, verify(o, d))
		})
	}
}

// askLeader has an EtcdOperation ask for a leader.
func askLeader(name string) fact {
	return func(o *observation.Observation) {
		op := &v1beta1.EtcdOperation{Spec: v1beta1.EtcdOperationSpec{Type: v1beta1.OperationMoveLeader,
			MoveLeader: &v1beta1.MoveLeaderOperation{To: name}}}
		op.Name = "move"
		op.UID = "move"
		op.Spec.ClusterRef.Name = o.Cluster.Name
		o.Related.Operations = map[string]*v1beta1.EtcdOperation{"move": op}
	}
}

// zones are where the pods are, from demo-0 on.
func zones(all ...string) fact {
	return func(o *observation.Observation) {
		for i, zone := range all {
			if zone != "" {
				o.Children.Pods[fmt.Sprint("demo-", i)].Labels[corev1.LabelTopologyZone] = zone
			}
		}
	}
}

func prefers(zones ...string) fact {
	return func(o *observation.Observation) { o.Cluster.Spec.Leadership.PreferredZones = zones }
}

// TestPreferAZone: the leadership goes to the voter with this ID; 0 for none.
func TestPreferAZone(t *testing.T) {
	for _, c := range []struct {
		name    string
		facts   []fact
		to      uint64
		advises string
	}{
		{"the leader is elsewhere", []fact{zones("a", "b", "c"), prefers("c")}, 3, ""},
		{"the first of the list", []fact{zones("a", "b", "c"), prefers("d", "c", "b")}, 3, ""},
		{"it is in one, and not the first", []fact{zones("a", "b", "c"), prefers("c", "a")}, 0, ""},
		{"no voter is there", []fact{zones("a", "b", "c"), prefers("d")}, 0, "no voter is in one of"},
		{"zones are not known", []fact{prefers("a")}, 0, "no pod has the label topology.kubernetes.io/zone"},
		{"the leader's is not known", []fact{zones("", "b", "c"), prefers("c")}, 0, ""},
		{"none is preferred", []fact{zones("a", "b", "c")}, 0, ""},
		{"the one there does not serve", []fact{zones("a", "b", "c"), prefers("c"),
			func(o *observation.Observation) { silence(o, "demo-2") }}, 0, ""},
		{"its disk is slow", []fact{zones("a", "b", "c"), prefers("c"), disks(ms, ms, 99*ms)}, 0, "demo-2"},
		{"its disk was slow", []fact{zones("a", "b", "c"), prefers("c"), disks(ms, ms, ms),
			func(o *observation.Observation) {
				o.Cluster.Status.Internal.Leadership.SlowDisks = []v1beta1.SlowDisk{{Name: "demo-2",
					StartTime: metav1.NewTime(now.Add(-9 * time.Minute))}}
			}}, 0, "demo-2"},
		{"there is something to do", []fact{zones("a", "b", "c"), prefers("c"), high}, 0, ""},
		{"outside of a window", []fact{zones("a", "b", "c"), prefers("c"), func(o *observation.Observation) {
			o.Cluster.Spec.Maintenance.Windows = []v1beta1.MaintenanceWindow{{Schedule: "0 12 * * *",
				Duration: metav1.Duration{Duration: time.Hour}}}
		}}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := with(serve(3), c.facts...)
			d := Decide(o)
			assert.Equal(t, movesTo(c.to), d.Step, d.Reason.Message)
			assert.NoError(t, verify(o, d))
			if advice := answer.Advice(facts.New(o)); c.advises == "" {
				assert.Empty(t, advice)
			} else {
				assert.Contains(t, advice, c.advises)
			}
		})
	}
}

// TestVerifyJudgesMovesForALeader by what is measured and written.
func TestVerifyJudgesMovesForALeader(t *testing.T) {
	soon := func(o *observation.Observation) {
		o.Cluster.Status.Internal.Leadership.NextMoveTime = metav1.NewTime(now.Add(time.Minute))
	}
	for name, c := range map[string]struct {
		rule   string
		facts  []fact
		breaks string
	}{
		"nothing is known":   {facts.RuleLeaveSlowDisk, []fact{disks()}, "S16"},
		"it is not slow":     {facts.RuleLeaveSlowDisk, []fact{disks(30*ms, ms, ms)}, "S16"},
		"to one that is":     {facts.RuleLeaveSlowDisk, []fact{disks(99*ms, 98*ms, ms)}, "S16"},
		"others are":         {facts.RuleLeaveSlowDisk, []fact{disks(99*ms, ms, 98*ms)}, "S16"},
		"not asked for":      {facts.RuleLeaveSlowDisk, nil, "S16"},
		"moved a moment ago": {facts.RuleLeaveSlowDisk, []fact{disks(99*ms, ms, ms), soon}, "S16"},
		"rightly":            {facts.RuleLeaveSlowDisk, []fact{disks(99*ms, ms, ms)}, ""},
		"no zone":            {facts.RulePreferZone, []fact{prefers("b")}, "S16"},
		"from a good zone":   {facts.RulePreferZone, []fact{prefers("b", "a"), zones("a", "b", "c")}, "S16"},
		"too soon":           {facts.RulePreferZone, []fact{prefers("b"), zones("a", "b", "c"), soon}, "S16"},
		"to a slow disk":     {facts.RulePreferZone, []fact{prefers("b"), zones("a", "b", "c"), disks(ms, 99*ms, ms)}, "S16"},
		"to a good zone":     {facts.RulePreferZone, []fact{prefers("b"), zones("a", "b", "c")}, ""},
	} {
		o := with(serve(3), c.facts...)
		d := Decide(o)
		d.Step = movesTo(2)
		d.Reason.Rule = c.rule
		d.Outlook = decision.Works
		err := verify(o, d)
		if c.breaks == "" {
			assert.NotContains(t, fmt.Sprint(err), "S16", name)
			continue
		}
		assert.ErrorContains(t, err, c.breaks, name)
	}
	o := with(serve(3), disks(99*ms, ms, ms))
	o.Taken = &decision.Outcome{Step: movesTo(2), Rule: facts.RuleLeaveSlowDisk}
	d := Decide(o)
	require.NoError(t, verify(o, d))
	d.Status.Internal.Leadership.NextMoveTime = metav1.Time{}
	assert.ErrorContains(t, verify(o, d), "S16")
}

// TestDisksAreLookedAtOften, however long nothing has changed, and no answer is given again for longer.
func TestDisksAreLookedAtOften(t *testing.T) {
	o := with(serve(3), disks(ms, ms, ms))
	o.Now = now.Add(24 * time.Hour)
	observe(&o, Decide(o))
	d := Decide(o)
	assert.Equal(t, facts.DiskLook, d.ResyncAfter)
	assert.LessOrEqual(t, Rests(o, d), facts.DiskLook)
	assert.Equal(t, "http://10.0.0.1:2381/metrics", facts.Endpoints(o)[0].MetricsURL)
	ingress := answer.Policies(facts.New(o))[0].Spec.Ingress[2].From
	o.Cluster.Spec.Leadership = v1beta1.Leadership{PreferredZones: []string{"b"}}
	assert.Zero(t, Decide(o).ResyncAfter)
	assert.Empty(t, facts.Endpoints(o)[0].MetricsURL)
	assert.Len(t, ingress, len(answer.Policies(facts.New(o))[0].Spec.Ingress[2].From)+1, "Quorate is let in")
	zones("a", "b", "c")(&o)
	o.Cluster.Status.Internal.Leadership.NextMoveTime = metav1.NewTime(o.Now.Add(7 * time.Minute))
	assert.Equal(t, 7*time.Minute, Decide(o).ResyncAfter)
	o.Cluster.Status.Internal.Leadership.NextMoveTime = metav1.NewTime(o.Now.Add(700 * time.Hour))
	assert.Equal(t, "PreferZone", Decide(o).Reason.Rule, "a clock was ahead")

	o.Cluster.Spec.Leadership.AvoidSlowDisks = true
	o.Cluster.Spec.NetworkPolicy.Metrics = &v1beta1.Peers{}
	assert.Empty(t, answer.Policies(facts.New(o))[0].Spec.Ingress[2].From, "everyone is let in")
	o.Cluster.Spec.NetworkPolicy.Metrics.From = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	assert.Len(t, answer.Policies(facts.New(o))[0].Spec.Ingress[2].From, 2)
	assert.Len(t, o.Cluster.Spec.NetworkPolicy.Metrics.From, 1)
}

// TestTheJournalHasDisks: what was decided by them is decided once more.
func TestTheJournalHasDisks(t *testing.T) {
	o := with(serve(3), disks(201*ms, 2*ms, ms))
	d := Decide(o)
	entry, all, err := journal.New("v1", o, d)
	require.NoError(t, err)
	read, err := entry.Observation(all)
	require.NoError(t, err)
	assert.Equal(t, o.Health, read.Health)
	again, err := entry.Replayed(all, Decide)
	require.NoError(t, err)
	differ, err := all.Differences(&entry.Decided, &again)
	require.NoError(t, err)
	assert.Empty(t, differ)
	assert.Equal(t, "move leader to demo-2", again.Step)
}

// noise is a disk's: syncs of 2 ms, each with another factor, and bursts of other work in which they take many times
// as long.
type noise struct {
	r *rand.Rand
	// lasts is how many seconds a burst takes on average; 0 for none.
	lasts, left, times float64
}

// next is what a disk did in five seconds, in which 20 syncs are asked for each second. There is a burst every few
// minutes.
func (n *noise) next(more time.Duration) observation.Disk {
	d := observation.Disk{Over: facts.DiskLook}
	total := 0.0 // in seconds
	for at := 0.0; at < d.Over.Seconds(); {
		if n.left <= 0 && n.lasts > 0 && n.r.Float64() < 1.0/5000 {
			n.left = n.lasts * n.r.ExpFloat64()
			n.times = 5 + 50*n.r.ExpFloat64()
		}
		took := 0.002*math.Exp(0.8*n.r.NormFloat64()) + more.Seconds()
		if n.left > 0 {
			took *= n.times
		}
		if d.Syncs++; took > observation.SlowSync.Seconds() {
			d.Slow++
		}
		step := max(0.05, took)
		n.left -= step
		at += step
		total += took
	}
	d.Mean = time.Duration(total / float64(d.Syncs) * float64(time.Second))
	return d
}

// looks lets Quorate look every five seconds; the result is when the leadership moved, and how often the status was
// written without that.
func looks(t *testing.T, o *observation.Observation, n int, did func(look, member int) observation.Disk) (moves []int,
	writes int) {
	t.Helper()
	for look := range n {
		o.Now = o.Now.Add(facts.DiskLook)
		for i := range o.Etcd.Members {
			name := fmt.Sprint("demo-", i)
			h := o.Health[name]
			h.Disk = new(did(look, i))
			h.Leader = o.Etcd.Leader
			o.Health[name] = h
		}
		o.Taken = nil
		d := Decide(*o)
		if s, is := d.Step.(decision.MoveLeader); is {
			require.NoError(t, verify(*o, d))
			moves = append(moves, look)
			o.Etcd.Leader = s.To
			o.Taken = &decision.Outcome{Step: s, Rule: d.Reason.Rule}
			d = Decide(*o)
			require.NoError(t, verify(*o, d))
		} else if !same(d.Status, o.Cluster.Status) {
			writes++
		}
		o.Cluster.Status = d.Status
	}
	return moves, writes
}

// TestTheLeadershipDoesNotFlap in hours of noise. Short bursts move nothing, nor do those that all disks have. Long ones
// of the leader's disk alone may, ten minutes apart at first and then twice as long each time, up to an hour. Seldom is
// anything written.
func TestTheLeadershipDoesNotFlap(t *testing.T) {
	const hour = 60 * 12
	for name, c := range map[string]struct {
		lasts  float64
		shared bool
		most   int // moves in three hours
	}{
		"no bursts":      {0, false, 0},
		"short bursts":   {0.5, false, 0},
		"bursts of all":  {30, true, 0},
		"long bursts":    {30, false, 5},
		"bursts of 10 s": {10, false, 5},
	} {
		t.Run(name, func(t *testing.T) {
			o := with(serve(3), disks(ms, ms, ms))
			r := rand.New(rand.NewPCG(48, 4))
			own := []*noise{{r: r, lasts: c.lasts}, {r: r, lasts: c.lasts}, {r: r, lasts: c.lasts}}
			var first observation.Disk
			moves, writes := looks(t, &o, 3*hour, func(_, i int) observation.Disk {
				d := own[i].next(0)
				if i == 0 {
					first = d
				} else if c.shared {
					d = first
					d.Mean = time.Duration(float64(d.Mean) * math.Exp(0.2*r.NormFloat64()))
				}
				return d
			})
			t.Logf("%d moves, %d writes", len(moves), writes)
			assert.LessOrEqual(t, len(moves), c.most, moves)
			for i := 1; i < len(moves); i++ {
				assert.GreaterOrEqual(t, moves[i]-moves[i-1], min(10*12<<(i-1), hour))
			}
			assert.LessOrEqual(t, writes, 2*3*6*3, "a disk is slow for ten minutes at least, as far as is said")
		})
	}
}

// TestASlowDiskIsLeftAtOnce: in all the noise, a leader whose syncs take 200 ms more leads no more after two looks.
func TestASlowDiskIsLeftAtOnce(t *testing.T) {
	for seed := range uint64(30) {
		o := with(serve(3), disks(ms, ms, ms))
		n := &noise{r: rand.New(rand.NewPCG(4, seed)), lasts: 0.5}
		moves, _ := looks(t, &o, 60, func(look, i int) observation.Disk {
			if look >= 20 && i == 0 {
				return n.next(200 * ms)
			}
			return n.next(0)
		})
		require.Len(t, moves, 1, "seed %d", seed)
		assert.LessOrEqual(t, moves[0], 21)
	}
}
