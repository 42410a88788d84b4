package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
)

func TestHistoryKeepsWhatChangedAndNothingElse(t *testing.T) {
	o := serve(3)
	for i := range 30 {
		o.Now = now.Add(time.Duration(i) * time.Minute)
		if o.Taken = nil; i%2 == 0 {
			o.Taken = &decision.Outcome{Step: decision.MoveLeader{To: 2, Name: "demo-1"}, Rule: "Shrink"}
		}
		o.Cluster.Status = Decide(o).Status
	}
	h := o.Cluster.Status.History
	require.Len(t, h, 20)
	assert.Equal(t, []string{"Shrink", "Converged"}, []string{h[18].Rule, h[19].Rule})
	assert.Equal(t, "move leader to demo-1", h[18].Step)

	o.Taken = nil
	o.Now = o.Now.Add(time.Hour)
	assert.Equal(t, h, Decide(o).Status.History, "at rest nothing is added")
}

func TestHistoryOfAViewThatLagsIsNotLost(t *testing.T) {
	o := serve(3)
	o.Recent = []v1alpha1.HistoryEntry{{Rule: "Grow", Step: "add learner demo-2"}, {Rule: "Learner"}}
	first := Decide(o).Status.History
	require.Len(t, first, 3)
	assert.Equal(t, "Converged", first[2].Rule)
	o.Cluster.Status.History, o.Recent = first, first
	assert.Equal(t, first, Decide(o).Status.History)
}

func TestRetainedClaimsAreTakenFromTheirOwner(t *testing.T) {
	o := serve(3)
	o.Cluster.Spec.DeletionPolicy = v1alpha1.DeletionRetain
	d, done := Finalize(o)
	assert.False(t, done)
	require.Len(t, d.Claims, 3)
	assert.Len(t, ToldOwners(d.Claims[0]), 1, "told once, so that it can be taken back")
	o.Children.Claims["demo-0"] = d.Claims[0]
	o.WithoutLastApplied = []string{"PersistentVolumeClaim demo-0"}
	d, done = Finalize(o)
	assert.False(t, done)
	assert.Len(t, ToldOwners(d.Claims[0]), 1, "Metacontroller has no note of it: told again")
	o.WithoutLastApplied = nil
	d, done = Finalize(o)
	assert.False(t, done)
	assert.Empty(t, ToldOwners(d.Claims[0]))
	assert.Len(t, ToldOwners(d.Claims[1]), 1)
	o.Children.Claims = nil
	_, done = Finalize(o)
	assert.True(t, done)
}

func TestDecideTellsNoOwners(t *testing.T) {
	for _, claim := range Decide(serve(3)).Children.Claims {
		assert.Empty(t, ToldOwners(claim))
	}
}
