package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
)

// What Kubernetes refuses. A hook answers with the objects that should exist, and is never told what became of that:
// the API server's refusal (a quota, an admission policy, a priority class that does not exist) is in an event of
// Metacontroller's alone. But an object that was answered is there in the next call, or nearly. One that is not there
// after some seconds was refused, or another object has its name. The status remembers since when each is awaited; it
// is written after Metacontroller has tried to make them. At rest none is awaited, so nothing is written (S16).

// failedCreate is the reason of conditions for that, as Kubernetes' own controllers have it.
const failedCreate = "FailedCreate"

const (
	// MissedAfter is how long an object may take to be seen: Metacontroller makes it right after the answer, and its
	// cache follows.
	MissedAfter = 10 * time.Second
	// MissedForLong is when the cluster is Degraded by that, and a person has to do something.
	MissedForLong = time.Minute
)

// Expect notes what of the answer is not there. It is called once, when the answer is known.
func Expect(v *state.View, answer decision.Desired) {
	was := v.Cluster.Status.Internal.Awaited
	for _, one := range allUnseen(v, answer) {
		one.RequestTime = metav1.NewTime(v.Now.Truncate(time.Second))
		same := func(a v1alpha1.AwaitedStatus) bool { return a.Kind == one.Kind && a.Name == one.Name }
		if i := slices.IndexFunc(was, same); i >= 0 && was[i].RequestTime.Before(&one.RequestTime) {
			one.RequestTime = was[i].RequestTime
		}
		v.Awaited = append(v.Awaited, one)
	}
}

// allUnseen are the objects of an answer that were not observed.
func allUnseen(v *state.View, d decision.Desired) []v1alpha1.AwaitedStatus {
	var list []v1alpha1.AwaitedStatus
	for _, k := range observation.Kinds {
		if !k.LookedAt(&v.All) {
			continue
		}
		for o := range k.Wanted(&d) {
			if !k.Sees(&v.All, o.GetName()) {
				list = append(list, v1alpha1.AwaitedStatus{Kind: k.Kind, Name: o.GetName()})
			}
		}
	}
	return list
}

// unmadeFor are the objects that have been awaited for so long, such as "Pod demo-2".
func unmadeFor(v *state.View, long time.Duration) []string {
	var list []string
	for _, a := range v.Awaited {
		if !v.Now.Before(a.RequestTime.Add(long)) {
			list = append(list, a.Kind+" "+a.Name)
		}
	}
	return list
}

// Unmade says what Kubernetes has not made, and where to read why; empty for nothing.
func Unmade(v *state.View) string {
	list := unmadeFor(v, MissedAfter)
	if len(list) == 0 {
		return ""
	}
	more := ""
	if len(list) > 3 {
		list, more = list[:3], fmt.Sprintf(" and %d more", len(list)-3)
	}
	return fmt.Sprintf("Kubernetes has not created %s%s: `kubectl quorate status -n %s %s` shows why",
		strings.Join(list, ", "), more, v.Cluster.Namespace, v.Cluster.Name)
}

// AndUnmade adds to a message what Kubernetes has not made.
func AndUnmade(v *state.View, message string) string {
	words := Unmade(v)
	if words == "" || strings.HasSuffix(message, words) {
		return message
	}
	return message + "; " + words
}

// refusesPod reports whether Kubernetes does not make the member's pod, as far as calls before this one tell. That is
// no fault of the member's.
func refusesPod(v *state.View, m *state.Member) bool {
	return m.Pod == nil && slices.ContainsFunc(v.Cluster.Status.Internal.Awaited, func(a v1alpha1.AwaitedStatus) bool {
		return a.Kind == "Pod" && a.Name == m.PodName && !v.Now.Before(a.RequestTime.Add(MissedAfter))
	})
}

// LongUnmade reports whether Kubernetes has not made something for so long that it is a person's turn.
func LongUnmade(v *state.View) bool { return len(unmadeFor(v, MissedForLong)) > 0 }

// WithUnmade is a prospect while Kubernetes does not make something: then nothing is as the spec wants it, and after a
// while it is a person's turn.
func WithUnmade(v *state.View, p decision.Prospect) decision.Prospect {
	if len(unmadeFor(v, MissedAfter)) == 0 {
		return p
	}
	if p.Outlook == rule.Rests {
		p.Outlook, p.Reason = rule.Works, failedCreate
	}
	if p.Outlook == rule.Works && LongUnmade(v) {
		p.Outlook = rule.Waits
	}
	p.Message = AndUnmade(v, p.Message)
	return p
}

// ResyncForUnmade is when to ask again at the latest: what is awaited has to be spoken of in time.
func ResyncForUnmade(v *state.View, resync time.Duration) time.Duration {
	for _, a := range v.Awaited {
		for _, long := range []time.Duration{MissedAfter, MissedForLong} {
			if until := a.RequestTime.Add(long).Sub(v.Now); until > 0 && (resync == 0 || until < resync) {
				resync = until
			}
		}
	}
	return resync
}
