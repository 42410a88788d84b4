package scenario

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// TestWanderBesideOthers are walks of clusters that join an etcd which runs elsewhere, with members there that stop
// and start, and a person who can't decide whether they are to go. In the end they are.
func TestWanderBesideOthers(t *testing.T) {
	for seed := range uint64(walks()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			s := newStory()
			s.w.Watch = false
			var others []string
			for i := range 1 + r.IntN(4) {
				others = append(others, fmt.Sprintf("old-%d", i))
			}
			s.foreign(args{"start": strings.Join(others, ",")})
			s.cluster(args{"replicas": fmt.Sprint(1 + r.IntN(4)), "medium": []string{"Persistent", "Memory"}[r.IntN(2)],
				"tls":      "Disabled",
				"existing": strings.Join(others, ","), "size": "64Gi"}) // room for whatever is there
			var told strings.Builder
			for range 10 + r.IntN(80) {
				if r.IntN(8) == 0 {
					told.WriteString(s.wanderBeside(r, others))
				} else {
					told.WriteString(s.wander(r))
				}
			}
			for _, other := range others {
				s.foreign(args{"again": other})
			}
			s.w.EditSpec(func(e *v1alpha1.EtcdClusterSpec) {
				e.Bootstrap.Existing.RetireForeign, e.Replicas = true, new(max(1, *e.Replicas))
			})
			told.WriteString(s.recover())
			if broken := s.breaches(); len(broken) > 0 {
				t.Errorf("VIOLATION %s\n%s", broken, told.String())
			}
			if !s.mayEnd() && s.alive() {
				t.Errorf("not converged:\n%s%s", told.String(), s.check(args{}))
			}
		})
	}
}

// wanderBeside does one thing by chance that has to do with foreign members.
func (s *story) wanderBeside(r *rand.Rand, others []string) string {
	other := others[r.IntN(len(others))]
	switch r.IntN(4) {
	case 0:
		s.foreign(args{"stop": other})
		return "foreign stop=" + other + "\n"
	case 1:
		s.foreign(args{"again": other})
		return "foreign again=" + other + "\n"
	case 2:
		retire := r.IntN(2) == 0
		s.w.EditSpec(func(e *v1alpha1.EtcdClusterSpec) { e.Bootstrap.Existing.RetireForeign = retire })
		return fmt.Sprintln("retire", retire)
	}
	if s.w.Cluster().Spec.Storage.Medium == v1alpha1.Memory {
		return ""
	}
	s.w.EditSpec(func(e *v1alpha1.EtcdClusterSpec) { e.Replicas = new(int32(0)) })
	return "replicas 0\n"
}
