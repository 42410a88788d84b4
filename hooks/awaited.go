package hooks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// What Kubernetes refuses. A hook answers with the objects that should exist, and is never told what became of that:
// the API server's refusal (a quota, an admission policy, a priority class that does not exist) is in an event of
// Metacontroller's alone. But an object that was answered is there in the next call, or nearly. One that is not there
// after some seconds was refused, or another object has its name. The status remembers since when each is awaited; it
// is written after Metacontroller has tried to make them. At rest none is awaited, so nothing is written (S16).

// failedCreate is the reason of conditions for that, as Kubernetes' own controllers have it.
const failedCreate = "FailedCreate"

const (
	// missedAfter is how long an object may take to be seen: Metacontroller makes it right after the answer, and its
	// cache follows.
	missedAfter = 10 * time.Second
	// missedForLong is when the cluster is Degraded by that, and a person has to do something.
	missedForLong = time.Minute
)

// expect notes what of the answer is not there. It is called once, when the answer is known.
func (v *view) expect(answer Desired) {
	was := v.Cluster.Status.Awaited
	for _, one := range v.unseen(answer) {
		one.Since = metav1.NewTime(v.Now.Truncate(time.Second))
		same := func(a v1alpha1.AwaitedStatus) bool { return a.Kind == one.Kind && a.Name == one.Name }
		if i := slices.IndexFunc(was, same); i >= 0 && was[i].Since.Before(&one.Since) {
			one.Since = was[i].Since
		}
		v.awaited = append(v.awaited, one)
	}
}

// unseen are the objects of an answer that were not observed, what members wait for first.
func (v *view) unseen(d Desired) []v1alpha1.AwaitedStatus {
	c := v.all
	return slices.Concat(
		unseen("Pod", d.Pods, c.Pods), unseen("PersistentVolumeClaim", d.Claims, c.Claims),
		unseen("ConfigMap", d.ConfigMaps, c.ConfigMaps), unseen("Secret", d.Secrets, c.Secrets),
		unseen("Certificate", d.Certificates, c.Certificates), unseen("Service", d.Services, c.Services),
		unseen("PodDisruptionBudget", d.Budgets, c.Budgets), unseen("NetworkPolicy", d.Policies, c.Policies))
}

func unseen[D metav1.Object, O any](kind string, desired []D, observed map[string]O) []v1alpha1.AwaitedStatus {
	var list []v1alpha1.AwaitedStatus
	if observed == nil { // this kind was not looked at
		return nil
	}
	for _, o := range desired {
		if _, seen := observed[o.GetName()]; !seen {
			list = append(list, v1alpha1.AwaitedStatus{Kind: kind, Name: o.GetName()})
		}
	}
	return list
}

// unmadeFor are the objects that have been awaited for so long, such as "Pod demo-2".
func (v *view) unmadeFor(long time.Duration) []string {
	var list []string
	for _, a := range v.awaited {
		if !v.Now.Before(a.Since.Add(long)) {
			list = append(list, a.Kind+" "+a.Name)
		}
	}
	return list
}

// unmade says what Kubernetes has not made, and where to read why; empty for nothing.
func (v *view) unmade() string {
	list := v.unmadeFor(missedAfter)
	if len(list) == 0 {
		return ""
	}
	more := ""
	if len(list) > 3 {
		list, more = list[:3], fmt.Sprintf(" and %d more", len(list)-3)
	}
	return fmt.Sprintf("Kubernetes has not made %s%s: `kubectl quorate status -n %s %s` shows why",
		strings.Join(list, ", "), more, v.Cluster.Namespace, v.Cluster.Name)
}

// andUnmade adds to a message what Kubernetes has not made.
func (v *view) andUnmade(message string) string {
	words := v.unmade()
	if words == "" || strings.HasSuffix(message, words) {
		return message
	}
	return message + "; " + words
}

// refusesPod reports whether Kubernetes does not make the member's pod, as far as calls before this one tell. That is
// no fault of the member's.
func (v *view) refusesPod(m *member) bool {
	return m.pod == nil && slices.ContainsFunc(v.Cluster.Status.Awaited, func(a v1alpha1.AwaitedStatus) bool {
		return a.Kind == "Pod" && a.Name == m.name && !v.Now.Before(a.Since.Add(missedAfter))
	})
}

func (v *view) longUnmade() bool { return len(v.unmadeFor(missedForLong)) > 0 }

// withUnmade is a prospect while Kubernetes does not make something: then nothing is as the spec wants it, and after a
// while it is a person's turn.
func (v *view) withUnmade(p prospect) prospect {
	if len(v.unmadeFor(missedAfter)) == 0 {
		return p
	}
	if p.Outlook == Rests {
		p.Outlook, p.reason = Works, failedCreate
	}
	if p.Outlook == Works && v.longUnmade() {
		p.Outlook = Waits
	}
	p.message = v.andUnmade(p.message)
	return p
}

// resyncForUnmade is when to ask again at the latest: what is awaited has to be spoken of in time.
func (v *view) resyncForUnmade(resync time.Duration) time.Duration {
	for _, a := range v.awaited {
		for _, long := range []time.Duration{missedAfter, missedForLong} {
			if until := a.Since.Add(long).Sub(v.Now); until > 0 && (resync == 0 || until < resync) {
				resync = until
			}
		}
	}
	return resync
}
