package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// withSpare is a cluster of three voters with the spare demo-3.
func withSpare() observation.Observation {
	o := learnerAt(1000)
	o.Cluster.Spec.Replicas = new(int32(3))
	o.Cluster.Spec.Spares = 1
	for _, c := range o.Children.Claims {
		c.Status.Capacity = c.Spec.Resources.Requests
	}
	return o
}

// behindAt has the learner be this far behind, at the end of a long log.
func behindAt(o *observation.Observation, index uint64) {
	for name, h := range o.Health {
		h.RaftIndex = 1_000_000
		if name == "demo-3" {
			h.RaftIndex = index
		}
		o.Health[name] = h
	}
}

// TestWhoIsASpare: the stories of spares tell what becomes of one.
func TestWhoIsASpare(t *testing.T) {
	cases := map[string]struct {
		change fact
		is     bool
	}{
		"it has all data":        {func(*observation.Observation) {}, true},
		"it is a little behind":  {func(o *observation.Observation) { behindAt(o, 999_000) }, true},
		"it is far behind":       {func(o *observation.Observation) { behindAt(o, 990_000) }, false},
		"it does not serve":      {func(o *observation.Observation) { o.Health["demo-3"] = observation.Health{Err: "no"} }, false},
		"none is wanted":         {func(o *observation.Observation) { o.Cluster.Spec.Spares = 0 }, false},
		"a voter more is wanted": {replicas(4), false},
		"a voter's data is lost": {gone("demo-1"), false},
		"its own claim is being deleted": {func(o *observation.Observation) {
			o.Children.Claims["demo-3"].DeletionTimestamp = &metav1.Time{Time: now}
		}, false},
	}
	for name, c := range cases {
		f := facts.New(with(withSpare(), c.change))
		assert.Equal(t, c.is, f.Spare() != nil, name)
		assert.Equal(t, c.is, f.Joining() == nil, name)
	}
}

// gone has the member's pod and claim gone.
func gone(member string) fact {
	return func(o *observation.Observation) {
		delete(o.Children.Pods, member)
		delete(o.Children.Claims, member)
		delete(o.Health, member)
	}
}

// TestASpareVotesOnceTheBudgetKnows: the PodDisruptionBudget does not count it before, or no voter could be evicted.
func TestASpareVotesOnceTheBudgetKnows(t *testing.T) {
	protects := func(n int) fact {
		return func(o *observation.Observation) {
			o.Children.Budgets["demo"].Spec.MinAvailable = new(intstr.FromInt(n))
		}
	}
	rests := Decide(with(withSpare(), protects(2)))
	assert.Nil(t, rests.Step)
	assert.Equal(t, 2, rests.Children.Budgets[0].Spec.MinAvailable.IntValue())
	waits := Decide(with(withSpare(), protects(2), gone("demo-1")))
	assert.Nil(t, waits.Step)
	assert.Equal(t, 3, waits.Children.Budgets[0].Spec.MinAvailable.IntValue())
	d := Decide(with(withSpare(), protects(3), gone("demo-1")))
	assert.Equal(t, "demo-3", d.Step.(decision.Promote).Name)
}

// TestASpareIsNotLate: it joined long ago, and one that does not serve is given the time of a member.
func TestASpareIsNotLate(t *testing.T) {
	silent := func(role v1beta1.Role, since time.Duration) *facts.Facts {
		o := withSpare()
		unreachable(&o, "demo-3", since)
		last := &o.Cluster.Status.Members[len(o.Cluster.Status.Members)-1]
		last.Role = role
		return facts.New(o)
	}
	assert.Nil(t, silent(v1beta1.Spare, 4*time.Minute).Late())
	assert.NotNil(t, silent(v1beta1.Spare, 6*time.Minute).Late())
	assert.NotNil(t, silent(v1beta1.Learner, 4*time.Minute).Late(), "it never was one, and joined a day ago")
}

// TestTheOracleKnowsSpares: what no rule decides.
func TestTheOracleKnowsSpares(t *testing.T) {
	o := withSpare()
	spare := facts.New(o).Learner()
	for want, step := range map[string]decision.Step{
		"S6: promote demo-3, a spare, although no voter is missing":                  decision.Promote{ID: spare.ID, Name: "demo-3"},
		"S6: remove demo-3, a learner that is wanted and that nothing is wrong with": decision.Remove{ID: spare.ID, Name: "demo-3"},
		"S3: add learner demo-4 while there is a learner":                            decision.AddLearner{Name: "demo-4", PeerURL: objects.PeerURL(o.Cluster, "demo-4", "")},
	} {
		d := Decide(o)
		d.Step = step
		assert.ErrorContains(t, Verify(o, d), want, want)
	}
}
