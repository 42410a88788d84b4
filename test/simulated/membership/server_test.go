package membership

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What may be true of a voter and of a learner.
type standing struct{ started, connected, settled, inSync bool }

var (
	unstarted = standing{}
	down      = standing{started: true}
	young     = standing{started: true, connected: true, inSync: true}
	settled   = standing{started: true, connected: true, settled: true, inSync: true}
	learners  = []standing{
		{}, {started: true}, {started: true, inSync: true}, {started: true, connected: true},
		{started: true, connected: true, inSync: true},
	}
)

// asked is the server of a cluster of these voters, of which the first one is asked.
func asked(voters ...standing) Server {
	var s Server
	for n, v := range voters {
		s = s.with(n, v)
		s.Voters = s.Voters.With(n)
	}
	return s
}

func (s Server) with(n int, m standing) Server {
	for set, is := range map[*Set]bool{&s.Started: m.started, &s.Connected: m.connected, &s.Settled: m.settled,
		&s.InSync: m.inSync} {
		if is {
			*set = set.With(n)
		}
	}
	return s
}

// lost reports whether the quorum is lost by a change that etcd lets through.
func (s Server) lost(after Cluster, err error) bool {
	return err == nil && (after.Voters&s.Connected).Size() < Quorum(after.Voters.Size())
}

// TestWhatTheGuardsLetHappen looks at every quorate cluster of up to five voters and a learner. Of what etcd lets
// through, two things lose the quorum, and they are what S4 and S5 are for; nothing else does.
func TestWhatTheGuardsLetHappen(t *testing.T) {
	clusters, lost := 0, map[string]bool{}
	for n := 1; n <= 5; n++ {
		eachOf(n-1, []standing{unstarted, down, young, settled}, func(others []standing) {
			s := asked(append([]standing{settled}, others...)...)
			if s.lost(s.Cluster, nil) {
				return
			}
			clusters++
			for _, s.Rules = range []Rules{{}, {EveryVoter: true}} {
				if s.lost(s.AddVoter(n)) {
					lost["S4"] = true
					assert.Equal(t, 1, n, "a voter added to %+v", s)
				}
				_, err := s.AddLearner(n)
				assert.False(t, err == nil && (s.Voters&s.Settled).Size() < Quorum(n), "a learner added to %+v", s)
			}
			for i := range s.Voters.All {
				assert.False(t, s.lost(s.Remove(i)), "%d removed from %+v", i, s)
			}
			for _, l := range learners {
				after := s.with(n, l)
				after.Learners = after.Learners.With(n)
				if after.lost(after.Promote(n)) {
					lost["S5"] = true
					assert.False(t, l.connected, "%+v promoted in %+v", l, s)
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
	oneOfFourDown := asked(settled, settled, settled, down)
	_, err := oneOfFourDown.AddLearner(4)
	assert.NoError(t, err)
	oneOfFourDown.Rules = Of("3.6.10")
	_, err = oneOfFourDown.AddLearner(4)
	assert.Error(t, err)
}

// eachOf calls f with every list of n of these.
func eachOf(n int, of []standing, f func([]standing)) {
	if n == 0 {
		f(nil)
		return
	}
	eachOf(n-1, of, func(rest []standing) {
		for _, m := range of {
			f(append(append([]standing{}, rest...), m))
		}
	})
}
