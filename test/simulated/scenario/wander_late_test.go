package scenario

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// TestWanderThroughChanges are walks on which people change what members run, how many there are and who is fenced,
// all the time, while answers are late: a call that decided before a change is applied after it.
func TestWanderThroughChanges(t *testing.T) {
	wanders(t, 1, func(of *story, r *rand.Rand, tell func(string)) string {
		s := &lateStory{story: of, r: r}
		s.cluster(args{"replicas": fmt.Sprint(3 + r.IntN(3)),
			"medium": []string{"Persistent", "Persistent", "Memory"}[r.IntN(3)],
			"tls":    string(v1alpha1.TLSDisabled), "ready": ""})
		s.w.Now = s.w.Now.Add(time.Minute)
		for range 20 + r.IntN(60) {
			tell(s.wander())
		}
		tell(s.arrive(0))
		s.w.Fence()
		tell(s.recover())
		return ""
	})
}

// lateStory is a story with calls whose answers have not arrived yet.
type lateStory struct {
	*story
	r     *rand.Rand
	calls []lateCall
}

type lateCall struct {
	*world.Call
	end time.Time
}

// wander does one thing by chance. What takes a member away happens to no answer that could not have known of it.
func (s *lateStory) wander() string {
	pods, _ := s.names()
	pod := ""
	if len(pods) > 0 {
		pod = pods[s.r.IntN(len(pods))]
	}
	switch n := s.r.IntN(100); {
	case n < 15:
		return "sync " + s.told(s.w.Sync(world.Crash{}))
	case n < 45:
		s.w.Pass()
		return "pass, sync " + s.told(s.w.Sync(world.Crash{}))
	case n < 62:
		c := s.w.Begin(world.Crash{})
		s.calls = append(s.calls, lateCall{c, s.w.Now.Add(state.CallsEnd)})
		return "call " + s.told(c)
	case n < 65 && len(s.calls) > 0:
		return s.arrive(len(s.calls) - 1)
	case n < 68:
		s.w.Kubelets()
		return "kubelet\n"
	case n < 72:
		return s.tick(time.Duration(1+s.r.IntN(10)) * time.Second)
	case n < 73:
		return s.tick(time.Duration(1+s.r.IntN(10)) * time.Minute)
	case n < 97:
		return s.change(pod)
	case pod == "":
		return ""
	}
	return s.trouble(pod)
}

// arrive applies all but so many of the answers, the oldest first.
func (s *lateStory) arrive(left int) string {
	var told strings.Builder
	for ; len(s.calls) > left; s.calls = s.calls[1:] {
		s.w.Apply(s.calls[0].Call)
		told.WriteString("apply\n" + s.writes())
	}
	return told.String()
}

// tick lets time pass, and the answers arrive of calls that have ended by then.
func (s *lateStory) tick(d time.Duration) string {
	told, now := "", s.w.Now.Add(d)
	for len(s.calls) > 0 && !now.Before(s.calls[0].end) {
		told += s.arrive(len(s.calls) - 1)
	}
	s.w.Now = now
	return told + fmt.Sprintf("tick %s\n", d)
}

// change is what people do.
func (s *lateStory) change(pod string) string {
	spec := &s.w.Cluster().Spec
	switch s.r.IntN(8) {
	case 0, 1, 2:
		class := map[string]string{"": "high", "high": ""}[spec.PriorityClassName]
		return s.edit(args{"priority-class": class}) + fmt.Sprintf("edit priority-class=%s\n", class)
	case 3:
		version := map[string]string{"3.6.16": "3.6.17", "3.6.17": "3.6.16"}[spec.Version]
		return s.edit(args{"version": version}) + fmt.Sprintf("edit version=%s\n", version)
	case 4, 5, 6:
		size := fmt.Sprint(2 + s.r.IntN(2) + s.r.IntN(2))
		return s.edit(args{"replicas": size}) + fmt.Sprintf("edit replicas=%s\n", size)
	}
	if len(s.w.Operations(v1alpha1.OperationFence)) > 0 {
		s.w.Fence()
		return "fence none\n"
	}
	s.w.Fence(pod)
	return fmt.Sprintf("fence %s\n", pod)
}

// trouble befalls a member.
func (s *lateStory) trouble(pod string) string {
	told := s.arrive(0)
	switch {
	case s.r.IntN(2) == 0:
		s.w.KillPod(pod)
		return told + fmt.Sprintf("kill %s\n", pod)
	case len(s.w.Crashing) > 0:
		pod = slices.Collect(maps.Keys(s.w.Crashing))[0]
		s.w.Mend(pod)
		return told + fmt.Sprintf("mend %s\n", pod)
	}
	s.w.Crash(pod)
	return told + fmt.Sprintf("crash %s\n", pod)
}
