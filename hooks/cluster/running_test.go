package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

func TestRunningVersion(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *observation.Observation)
		want   string
	}{
		"all run what is wanted": {func(*observation.Observation) {}, "3.6.16"},
		"another one is wanted": {func(o *observation.Observation) { o.Cluster.Spec.Version = "3.6.99" },
			"3.6.16 -> 3.6.99"},
		"one is behind": {func(o *observation.Observation) {
			h := o.Health["demo-1"]
			h.Version = "3.6.9"
			o.Health["demo-1"] = h
		}, "3.6.9 -> 3.6.16"},
		"one has come there": {func(o *observation.Observation) {
			o.Cluster.Spec.Version = "3.6.17"
			h := o.Health["demo-1"]
			h.Version = "3.6.17"
			o.Health["demo-1"] = h
		}, "3.6.16 -> 3.6.17"},
		"none answers, and they ran another one": {func(o *observation.Observation) {
			o.Etcd, o.Health, o.Cluster.Status.Running = nil, nil, "3.6.9 -> 3.6.10"
		}, "3.6.9 -> 3.6.16"},
		"what is no version is not shown": {func(o *observation.Observation) {
			for name, h := range o.Health {
				h.Version = "a page of text"
				o.Health[name] = h
			}
		}, "3.6.16"},
	} {
		assert.Equal(t, c.want, decidedAfter(c.change).Status.Running, name)
	}
}

func decidedAfter(change func(o *observation.Observation)) decision.Decision {
	o := serve(3)
	change(&o)
	return Decide(o)
}
