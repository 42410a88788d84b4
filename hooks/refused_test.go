package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/hooks/decision"
)

// TestALearnerThatNeverVotes: it serves, and its leader does not hear it, as behind a firewall. It is tried for as long
// as a learner has to catch up; then another one takes its place.
func TestALearnerThatNeverVotes(t *testing.T) {
	o := learnerAt(990)
	o.Cluster.Spec.Replicas = new(int32(5))
	sync := func() decision.Decision { // every half minute
		o.Now = o.Now.Add(30 * time.Second)
		o.Taken = nil
		d := Decide(o)
		if d.Step != nil {
			o.Taken = &decision.Outcome{Step: d.Step, Rule: d.Reason.Rule, Err: "the learner is not connected to the leader"}
			d = Decide(o)
		}
		o.Cluster.Status = d.Status
		return d
	}
	for range 10 { // a learner has five minutes
		assert.Contains(t, sync().Reason.Message, "promoting demo-3")
		assert.Equal(t, "demo-3", o.Cluster.Status.Internal.Replacement.Refused)
	}
	assert.Contains(t, sync().Reason.Message, "recording that the learner demo-3 did not become a voter within 5m")
	assert.Contains(t, sync().Reason.Message, "removing the learner demo-3, which did not become a voter within 5m")

	silence(&o, "demo-3")
	sync()
	assert.Empty(t, o.Cluster.Status.Internal.Replacement.Refused, "what it has is not known now")
}
