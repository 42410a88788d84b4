package scenario

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestWanderThroughWindows are walks of clusters that people give maintenance windows, and edit while these are open or
// closed. The oracle sees to it that nothing begins outside of one that could wait. At the end time goes on until the
// next one opens, and the cluster must converge in it.
func TestWanderThroughWindows(t *testing.T) {
	for seed := range uint64(walks()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			s := newStory()
			s.w.Watch = false
			s.cluster(args{
				"replicas": fmt.Sprint(1 + r.IntN(4)), "medium": []string{"Persistent", "Memory"}[r.IntN(2)],
				"leaf": "100h", "ca": "200h", "windows": "0 2 * * *|4h", "ready": "",
			})
			var told strings.Builder
			for range 5 + r.IntN(60) {
				if r.IntN(6) == 0 {
					told.WriteString(s.wanderInWindows(r))
				}
				told.WriteString(s.wander(r))
			}
			told.WriteString(s.recover())
			for range 3 { // what heals, and certificates, may take a whole window
				told.WriteString(s.untilOpen() + s.stabilize(args{}))
			}
			if broken := s.breaches(); len(broken) > 0 {
				t.Errorf("VIOLATION %s\n%s", broken, told.String())
			}
			if !s.mayEnd() && s.alive() {
				t.Errorf("not converged:\n%s%s", told.String(), s.check(args{}))
			}
		})
	}
}

// wanderInWindows changes what members are restarted for, or when that may begin, or lets time pass to there.
func (s *story) wanderInWindows(r *rand.Rand) string {
	changes := []args{
		{"priority-class": "high"}, {"priority-class": ""}, {"quota": "900Mi"},
		{"schedule": "0 1 * * *", "ratio": "0", "reclaim": "0"},
		{"version": "3.7.3"}, {"version": "3.6.16"}, {"version": "3.6.11"},
		{"windows": "none"}, {"windows": "0 2 * * *|4h"}, {"windows": "0 2 * * 6|4h;0 0 30 2 *|1h"},
		{"windows": "0 * * * *|10m"},
	}
	change := changes[r.IntN(len(changes))]
	if r.IntN(4) == 0 {
		hour := time.Date(s.w.Now.Year(), s.w.Now.Month(), s.w.Now.Day()+1, 2, 0, 0, 0, time.UTC)
		s.w.Now = hour.Add(time.Duration(r.IntN(600)) * time.Second)
		return fmt.Sprintln("tick to", s.w.Now)
	}
	s.edit(change)
	return fmt.Sprintln("edit", change)
}

// untilOpen lets hours pass until nothing waits for a window any more, a week at most.
func (s *story) untilOpen() string {
	hours := 0
	for ; hours < 7*24 && s.w.Cluster().Status.Rule == "WaitForWindow"; hours++ {
		s.w.Now = s.w.Now.Truncate(time.Hour).Add(time.Hour)
		s.next()
		s.w.Pass()
	}
	return fmt.Sprintf("after %d hours\n", hours)
}
