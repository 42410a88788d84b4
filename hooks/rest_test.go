package hooks

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// numbered is a cluster of three whose members have these numbers.
func numbered(each func(i int, h *observation.Health)) observation.Observation {
	o := serve(3)
	for i, m := range o.Etcd.Members {
		h := o.Health[m.Name]
		each(i, &h)
		o.Health[m.Name] = h
	}
	o.Cluster.Status = Decide(o).Status
	return o
}

// TestWhatIsFurthestIsAlikeStill: numbers for which it is decided once more count as alike, and the next ones do not.
func TestWhatIsFurthestIsAlikeStill(t *testing.T) {
	for _, size := range []int64{1, 1<<20 - 1, 1 << 20, 3<<20 + 1, 16 << 20, 26 << 20, 1 << 30, 1<<30 + 1, 9 << 30} {
		for _, behind := range []uint64{0, 1, fewEntries - 1, fewEntries, facts.MostBehind} {
			o := numbered(func(i int, h *observation.Health) {
				h.RaftIndex = 1<<24 - behind*uint64(i%2)
				h.DBSize = size
				h.DBSizeInUse = size
			})
			for _, free := range []bool{false, true} {
				end := o
				end.Health = furthest(o.Health, free)
				assert.True(t, Alike(o, end), "%d bytes, %d entries behind: %v", size, behind, end.Health)
				beyond := end
				beyond.Health = maps.Clone(end.Health)
				h := beyond.Health["demo-0"]
				h.DBSize++
				if !free {
					h.DBSize -= 2
				}
				beyond.Health["demo-0"] = h
				assert.False(t, Alike(o, beyond), "%d bytes", size)
			}
			apart := furthest(o.Health, true)
			step := firstIndex(apart) - apart["demo-1"].RaftIndex
			assert.Equal(t, behind/fewEntries*fewEntries+fewEntries-1, step, "%d entries behind", behind)
		}
	}
}

// TestAMemberThatMayLagRestsNot: one entry more, and it does not serve.
func TestAMemberThatMayLagRestsNot(t *testing.T) {
	at := func(behind uint64) observation.Observation {
		return numbered(func(i int, h *observation.Health) { h.RaftIndex = 1<<24 - behind*uint64(i%2) })
	}
	near := at(facts.MostBehind)
	require.Equal(t, "Converged", Decide(near).Reason.Rule)
	require.NotEqual(t, "Converged", Decide(at(facts.MostBehind+1)).Reason.Rule)
	assert.Zero(t, Rests(near, Decide(near)))
	near = at(facts.MostBehind - 1)
	assert.NotZero(t, Rests(near, Decide(near)))
}
