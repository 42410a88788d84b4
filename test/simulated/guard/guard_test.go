package guard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What may be true of a voter and of a learner.
var (
	unstarted = Member{}
	down      = Member{Started: true}
	young     = Member{Started: true, Connected: true, InSync: true}
	settledIn = Member{Started: true, Connected: true, Settled: true, InSync: true}
	asked     = Member{Started: true, Connected: true, Settled: true, InSync: true, Asked: true}
	learners  = []Member{
		{Learner: true}, {Learner: true, Started: true}, {Learner: true, Started: true, InSync: true},
		{Learner: true, Started: true, Connected: true}, {Learner: true, Started: true, Connected: true, InSync: true},
	}
)

// TestWhatTheGuardsLetHappen looks at every quorate cluster of up to five voters and a learner. Of what etcd lets
// through, two things lose the quorum, and they are what S4 and S5 are for; nothing else does.
func TestWhatTheGuardsLetHappen(t *testing.T) {
	clusters, lost := 0, map[string]bool{}
	for n := 1; n <= 5; n++ {
		eachOf(n-1, []Member{unstarted, down, young, settledIn}, func(others []Member) {
			voters := append([]Member{asked}, others...)
			if connected(voters) < quorum(n) {
				return
			}
			clusters++
			for _, r := range []Rules{{}, {EveryVoter: true}} {
				if r.AddVoter(voters, false) == nil && connected(voters) < quorum(n+1) {
					lost["S4"] = true
					assert.Equal(t, 1, n, "a voter added to %v", voters)
				}
				assert.False(t, r.AddLearner(voters, false) == nil && settled(voters) < quorum(n),
					"a learner added to %v", voters)
			}
			for i := range voters {
				rest := append(append([]Member{}, voters[:i]...), voters[i+1:]...)
				assert.False(t, Remove(voters, i) == nil && connected(rest) < quorum(n-1), "%d removed from %v", i,
					voters)
			}
			for _, l := range learners {
				after := append(append([]Member{}, voters...), l)
				if Promote(after, n) == nil && connected(after) < quorum(n+1) {
					lost["S5"] = true
					assert.False(t, l.Connected, "%v promoted in %v", l, voters)
				}
			}
		})
	}
	assert.Equal(t, 1+2+12+32+176, clusters)
	assert.Equal(t, map[string]bool{"S4": true, "S5": true}, lost)
}

func TestRulesOfReleases(t *testing.T) {
	for version, every := range map[string]bool{
		"3.5.26": true, "3.5.29": true, "3.5.30": false, "3.5.35": false, "3.6.4": true, "3.6.10": true,
		"3.6.11": false, "3.7.0": false, "x": false,
	} {
		assert.Equal(t, Rules{EveryVoter: every}, Of(version), version)
	}
	oneOfFourDown := []Member{asked, settledIn, settledIn, down}
	assert.NoError(t, AddLearner(oneOfFourDown, false))
	assert.Error(t, Of("3.6.10").AddLearner(oneOfFourDown, false), fmt.Sprint(oneOfFourDown))
}

// eachOf calls f with every list of n of these.
func eachOf(n int, of []Member, f func([]Member)) {
	if n == 0 {
		f(nil)
		return
	}
	eachOf(n-1, of, func(rest []Member) {
		for _, m := range of {
			f(append(append([]Member{}, rest...), m))
		}
	})
}

func connected(list []Member) int {
	return count(list, func(m Member) bool { return m.Connected })
}
