package chaos

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestScheduleRepeats: the faults of a stream depend on the seed and on nothing else.
func TestScheduleRepeats(t *testing.T) {
	draw := func(seed uint64, noise bool) []faultKind {
		s := &Schedule{Seed: seed}
		assert.Nil(t, s.next("hook"), "faults before the start")
		s.Start()
		var all []faultKind
		for range 200 {
			if noise {
				s.next("etcd Status").Uint64()
			}
			all = append(all, pick(s.next("hook"), hookWeights))
		}
		return all
	}
	assert.Equal(t, draw(1, false), draw(1, true), "another stream disturbs this one")
	assert.NotEqual(t, draw(1, false), draw(2, false))
	for _, w := range hookWeights {
		assert.Contains(t, draw(1, false), w.fault)
	}
	assert.Contains(t, draw(1, false), calm)
}

func TestTable(t *testing.T) {
	s := &Schedule{}
	s.Count("b", "refused")
	s.Count("b", "done")
	s.Count("b", "done")
	s.Count("a", "done")
	assert.Equal(t, 3, s.Counted("b"))
	assert.Equal(t, "| what | times | what came of it |\n| --- | --- | --- |\n| a | 1 | done 1 |\n| b | 3 | done 2, "+
		"refused 1 |\n", s.Table())
}
