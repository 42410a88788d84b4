package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/status"
)

func scheduled(line string) observation.Observation {
	o := serve(3)
	o.Cluster.Spec.Maintenance.Defragmentation = &v1alpha1.Defragmentation{Schedule: line}
	return o
}

func TestScheduleAsksToBeCalledAtItsTime(t *testing.T) {
	o := scheduled("30 4 * * *")
	first := Decide(o)
	next := first.Status.Defragmentation.NextScheduleTime
	want := time.Date(now.Year(), now.Month(), now.Day(), 4, 30, 0, 0, time.UTC)
	if !want.After(now) {
		want = want.AddDate(0, 0, 1)
	}
	assert.True(t, next.Equal(&metav1.Time{Time: want}), "%s, want %s", next, want)
	assert.Equal(t, want.Sub(now), first.ResyncAfter)

	observe(&o, first)
	o.Now = want.Add(-time.Second)
	second := Decide(o)
	assert.Equal(t, first.Status, second.Status, "nothing is written before that")
	assert.Equal(t, time.Second, second.ResyncAfter)

	o.Now = want
	begun := Decide(o)
	assert.Equal(t, "Defragment", begun.Reason.Rule)
	assert.True(t, begun.Status.Defragmentation.NextScheduleTime.Equal(&metav1.Time{Time: want.AddDate(0, 0, 1)}))
}

func TestSchedulesThatBeginNothing(t *testing.T) {
	for line, says := range map[string]string{
		"nonsense": "expected exactly 5 fields", "61 * * * *": "above maximum",
		"TZ=Europe/Paris 0 3 * * *": "without a time zone", "@weekly": "descriptor",
		"0 0 30 2 *": "never happens", "*/0 * * * *": "step of range should be a positive number",
	} {
		o := scheduled(line)
		d := Decide(o)
		assert.Equal(t, "Converged", d.Reason.Rule, line)
		assert.Nil(t, d.Status.Defragmentation, line)
		assert.Zero(t, d.ResyncAfter, line)
		assert.Contains(t, status.ScheduleAdvice(newView(o)), says, line)
	}
	assert.Empty(t, status.ScheduleAdvice(newView(scheduled("0 3 * * 0"))))
}

// inARequest is a cluster whose run by the annotation is under way.
func inARequest(change func(*decision.DefragmentationRun)) observation.Observation {
	o := spaceOut(500, 100)
	o.Etcd.Alarms = nil
	askDefragment(&o, "a")
	return recovering(o, func(s *decision.DefragmentationRun) {
		s.Trigger, s.Request = v1alpha1.TriggerRequest, "a"
		change(s)
	})
}

func TestWhatADefragmentationCountsFor(t *testing.T) {
	step := decision.Defragment{ID: 2, Name: "demo-1", DBSize: 500 << 20}
	shrunk := func(o *observation.Observation, to int64) {
		h := o.Health["demo-1"]
		h.DBSize = to << 20
		o.Health["demo-1"] = h
	}
	cases := []struct {
		name      string
		err       string
		then      func(*observation.Observation)
		done      bool
		reclaimed string
	}{
		{"done", "", func(o *observation.Observation) { shrunk(o, 100) }, true, "400Mi"},
		{"the answer was lost", "no answer in time", func(o *observation.Observation) { shrunk(o, 100) }, true,
			"400Mi"},
		{"it is still at it", "no answer in time", func(o *observation.Observation) { silence(o, "demo-1") }, true, ""},
		{"it was refused", "refused", func(*observation.Observation) {}, false, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := inARequest(func(*decision.DefragmentationRun) {})
			require.Equal(t, step, Decide(o).Step)
			c.then(&o)
			o.Taken = &decision.Outcome{Step: step, Rule: "Defragment", Err: c.err}
			s := Decide(o).Status.Defragmentation
			assert.Equal(t, c.done, len(s.Done) == 1)
			if c.reclaimed == "" {
				assert.Nil(t, s.Reclaimed)
			} else {
				assert.Equal(t, c.reclaimed, s.Reclaimed.String())
			}
		})
	}
}

func TestAMemberThatAnswersAgainSaysWhatItGaveBack(t *testing.T) {
	o := inARequest(func(s *decision.DefragmentationRun) {
		s.Done, s.Before, s.LastMemberTime = []string{"demo-1"}, quantity("500Mi"), metav1.NewTime(now.Add(-time.Hour))
	})
	h := o.Health["demo-1"]
	h.DBSize = 100 << 20
	o.Health["demo-1"] = h
	d := Decide(o)
	assert.Equal(t, "400Mi", d.Status.Defragmentation.Reclaimed.String())
	assert.Nil(t, d.Status.Internal.Defragmentation.Before)
	assert.Nil(t, d.Step, "it has just come back: a pause first")
	assert.Contains(t, d.Reason.Message, "demo-2 is next, after a pause")
}

func TestARunWithoutItsMemoryGoesOnSooner(t *testing.T) {
	o := inARequest(func(s *decision.DefragmentationRun) {
		s.Done, s.Before, s.LastMemberTime = []string{"demo-1"}, quantity("500Mi"), metav1.NewTime(now)
	})
	assert.Nil(t, Decide(o).Step, "a pause first")
	o.Cluster.Status.Internal = v1alpha1.InternalStatus{}
	d := Decide(o)
	assert.Equal(t, decision.Defragment{ID: 3, Name: "demo-2", DBSize: 500 << 20}, d.Step)
	assert.Nil(t, d.Status.Defragmentation.Reclaimed, "what was not seen is not counted")
}

func TestARequestIsAnsweredOnce(t *testing.T) {
	o := inARequest(func(s *decision.DefragmentationRun) { s.CompletionTime = metav1.NewTime(now) })
	assert.Equal(t, "Converged", Decide(o).Reason.Rule)
	askDefragment(&o, "b")
	d := Decide(o)
	assert.Equal(t, "Defragment", d.Reason.Rule)
	assert.Nil(t, d.Step, "it begins by being written down")
	assert.Equal(t, "b", d.Status.Defragmentation.Request)
}
