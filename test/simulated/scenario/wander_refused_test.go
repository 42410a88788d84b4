package scenario

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quorate-dev/quorate/test/simulated/world"
)

// TestWanderThroughRefusals are walks on which the API server refuses to make objects, of one kind or another, and
// makes them again: first of a cluster that begins, and then of one that has served. No rule of safety may break, and
// what was refused must be there in the end.
func TestWanderThroughRefusals(t *testing.T) {
	for seed := range uint64(walks()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0))
			s := newStory()
			s.w.Watch = false
			medium := []string{"Persistent", "Memory"}[r.IntN(2)]
			s.cluster(args{"replicas": fmt.Sprint(1 + r.IntN(4)), "medium": medium, "leaf": "100h", "ca": "200h"})
			var told strings.Builder
			begins := func(*rand.Rand) string {
				s.w.Pass()
				return "pass, sync " + s.sync(args{})
			}
			for range r.IntN(20) {
				told.WriteString(s.refuseAtTimes(r, 4, begins))
			}
			clear(s.w.Refused)
			told.WriteString("accept\n" + s.stabilize(args{}))
			for range 5 + r.IntN(60) {
				told.WriteString(s.refuseAtTimes(r, 16, s.wander))
			}
			clear(s.w.Refused)
			told.WriteString(s.recover())
			if broken := s.breaches(); len(broken) > 0 {
				t.Errorf("VIOLATION %s\n%s", broken, told.String())
			}
			if left := s.w.Cluster().Status.Internal.Awaited; len(left) > 0 {
				t.Errorf("still awaited: %v\n%s%s", left, told.String(), s.check(args{}))
			}
		})
	}
}

// refuseAtTimes refuses a kind once in so many times, takes all refusals back as often, and else does something.
func (s *story) refuseAtTimes(r *rand.Rand, times int, otherwise func(*rand.Rand) string) string {
	kinds := []world.Kind{world.PodKind, world.PodKind, world.ClaimKind, world.ConfigMapKind, world.ServiceKind,
		world.BudgetKind, world.SecretKind, world.PolicyKind}
	switch r.IntN(times) {
	case 0:
		kind := kinds[r.IntN(len(kinds))]
		s.w.Refuse(kind, "")
		return fmt.Sprintln("refuse", kind)
	case 1:
		clear(s.w.Refused)
		return "accept\n"
	}
	return otherwise(r)
}
