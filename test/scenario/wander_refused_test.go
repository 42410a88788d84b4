package scenario

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quorate-dev/quorate/test/world"
)

// TestWanderThroughRefusals are walks on which the API server refuses to make objects, of one kind or another, and makes them again.
func TestWanderThroughRefusals(t *testing.T) {
	kinds := []world.Kind{world.PodKind, world.PodKind, world.ClaimKind, world.ConfigMapKind, world.ServiceKind, world.BudgetKind, world.SecretKind, world.PolicyKind}
	for seed := range uint64(walks()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0))
			s := newStory()
			s.w.Watch = false
			s.cluster(args{"replicas": fmt.Sprint(1 + r.IntN(4)), "medium": []string{"Persistent", "Memory"}[r.IntN(2)], "leaf": "100h", "ca": "200h"})
			var told strings.Builder
			for range 5 + r.IntN(60) {
				switch kind := kinds[r.IntN(len(kinds))]; r.IntN(16) {
				case 0:
					s.w.Refuse(kind, "")
					fmt.Fprintln(&told, "refuse", kind)
				case 1:
					clear(s.w.Refused)
					told.WriteString("accept\n")
				default:
					told.WriteString(s.wander(r))
				}
			}
			clear(s.w.Refused)
			told.WriteString(s.recover())
			if broken := s.breaches(); len(broken) > 0 {
				t.Errorf("VIOLATION %s\n%s", broken, told.String())
			}
			if !s.mayEnd() && s.alive() {
				t.Errorf("not converged:\n%s%s", told.String(), s.check(args{}))
			}
			if left := s.w.Cluster().Status.Awaited; s.w.Cluster().Status.Phase == "Converged" && len(left) > 0 {
				t.Errorf("at rest, and awaited: %v", left)
			}
		})
	}
}
