package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/hooks/decision"
)

// TestALearnerCutOff: it answers, and what the leader writes does not reach it, as behind a firewall. It is tried for as
// long as a learner has to catch up; then another one takes its place. Another reason is not its fault.
func TestALearnerCutOff(t *testing.T) {
	o := learnerAt(990)
	o.Cluster.Spec.Replicas = new(int32(5))
	why := "etcd asks to wait: too few voters have started"
	sync := func() decision.Decision { // every half minute
		o.Now = o.Now.Add(30 * time.Second)
		o.Taken = nil
		d := Decide(o)
		if d.Step != nil {
			o.Taken = &decision.Outcome{Step: d.Step, Rule: d.Reason.Rule, Err: why}
			d = Decide(o)
		}
		o.Cluster.Status = d.Status
		return d
	}
	for range 20 {
		assert.Contains(t, sync().Reason.Message, "promoting demo-3")
	}
	assert.Empty(t, o.Cluster.Status.Internal.Replacement.CutOff)

	why = decision.LearnerCutOff + ": an entry that the leader wrote does not arrive"
	for range 10 { // a learner has five minutes
		assert.Contains(t, sync().Reason.Message, "promoting demo-3")
		assert.Equal(t, "demo-3", o.Cluster.Status.Internal.Replacement.CutOff)
	}
	assert.Contains(t, sync().Reason.Message, "removing the learner demo-3, which could not be promoted within 5m")

	silence(&o, "demo-3")
	sync()
	assert.Empty(t, o.Cluster.Status.Internal.Replacement.CutOff, "what it has is not known now")
}
