package answer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// What Kubernetes refuses. A hook answers with the objects that should exist, and is never told what became of that:
// the API server's refusal (a quota, an admission policy, a priority class that does not exist) is in an event of
// Metacontroller's alone. But an object that was answered is there in the next call, or nearly. One that is not there
// after some seconds was refused, or another object has its name. The status remembers since when each is awaited; it
// is written after Metacontroller has tried to make them. At rest none is awaited, so nothing is written (S16).

// awaited are the objects of an answer that are not there.
type awaited struct {
	List    []v1beta1.AwaitedStatus
	now     time.Time
	cluster *v1beta1.EtcdCluster
}

// await is what of an answer is not there.
func await(f *facts.Facts, answer decision.Desired) awaited {
	a := awaited{now: f.Now, cluster: f.Cluster}
	was := f.Cluster.Status.Internal.Awaited
	for _, one := range unseen(f, answer) {
		one.RequestTime = metav1.NewTime(f.Now.Truncate(time.Second))
		same := func(a v1beta1.AwaitedStatus) bool { return a.Kind == one.Kind && a.Name == one.Name }
		if i := slices.IndexFunc(was, same); i >= 0 && was[i].RequestTime.Before(&one.RequestTime) {
			one.RequestTime = was[i].RequestTime
		}
		a.List = append(a.List, one)
	}
	return a
}

// unseen are the objects of an answer that were not observed.
func unseen(f *facts.Facts, d decision.Desired) []v1beta1.AwaitedStatus {
	var list []v1beta1.AwaitedStatus
	for _, k := range observation.Kinds {
		if !k.LookedAt(&f.All) {
			continue
		}
		for o := range k.Wanted(&d) {
			if !k.Sees(&f.All, o.GetName()) {
				list = append(list, v1beta1.AwaitedStatus{Kind: k.Kind, Name: o.GetName()})
			}
		}
	}
	return list
}

// since are the objects that have been awaited for so long, such as "Pod demo-2".
func (a awaited) since(long time.Duration) []string {
	var list []string
	for _, one := range a.List {
		if !a.now.Before(one.RequestTime.Add(long)) {
			list = append(list, one.Kind+" "+one.Name)
		}
	}
	return list
}

// Unmade says what Kubernetes has not made, and where to read why; empty for nothing.
func (a awaited) Unmade() string {
	list := a.since(facts.MissedAfter)
	if len(list) == 0 {
		return ""
	}
	more := ""
	if len(list) > 3 {
		more = fmt.Sprintf(" and %d more", len(list)-3)
		list = list[:3]
	}
	return fmt.Sprintf("Kubernetes has not created %s%s: `kubectl quorate status -n %s %s` shows why",
		strings.Join(list, ", "), more, a.cluster.Namespace, a.cluster.Name)
}

// Long reports whether Kubernetes has not made something for so long that it is a person's turn.
func (a awaited) Long() bool { return len(a.since(facts.MissedForLong)) > 0 }

// AddTo adds to a message what Kubernetes has not made.
func (a awaited) AddTo(message string) string {
	words := a.Unmade()
	if words == "" || strings.HasSuffix(message, words) {
		return message
	}
	return message + "; " + words
}

// Prospect is one while Kubernetes does not make something: then nothing is as the spec wants it, and after a while it
// is a person's turn.
func (a awaited) Prospect(p decision.Prospect) decision.Prospect {
	if len(a.since(facts.MissedAfter)) == 0 {
		return p
	}
	if p.Outlook == decision.Rests {
		p.Outlook = decision.Works
		p.Reason = v1beta1.ReasonFailedCreate
	}
	if p.Outlook == decision.Works && a.Long() {
		p.Outlook = decision.Waits
	}
	p.Message = a.AddTo(p.Message)
	return p
}

// Resync is when to ask again at the latest: what is awaited has to be spoken of in time.
func (a awaited) Resync(resync time.Duration) time.Duration {
	for _, one := range a.List {
		for _, long := range []time.Duration{facts.MissedAfter, facts.MissedForLong} {
			until := one.RequestTime.Add(long).Sub(a.now)
			if until > 0 && (resync == 0 || until < resync) {
				resync = until
			}
		}
	}
	return resync
}
