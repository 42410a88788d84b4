package hooks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Initial members that do not come to their first quorum. Whatever the reason, it is said, with what each pod shows
// and what to do. The epoch is never begun anew unasked: that Quorate has not seen a quorum does not prove that there
// was none. One that it could not reach may have served clients, and their writes would go with its data (S8).
//
// One reason is etcd's own. An etcd that ends after it has made its log and before its first entries are in it, as by
// a full disk, finds an empty log when it is started again. It takes that for a member that has been bootstrapped,
// knows no voters, and so stands for no election, for ever. Beside others it does no harm: they elect one of
// themselves, with its vote, and send it the entries.

// stalled says why the initial members won't come to a quorum by themselves, or did not in time; empty while they may.
func (v *view) stalled() string {
	if len(v.epoch.startsOn) == 0 {
		return "the epoch record was deleted before the cluster first had quorum, and nobody may bootstrap any more: " +
			"see RecordDeleted in docs/failure-modes.md"
	}
	if why := cmp.Or(v.unfilled(), v.differing()); why != "" {
		return why
	}
	shows := v.overdueMembers()
	if shows == "" {
		return ""
	}
	return fmt.Sprintf("the members have not come to a first quorum within %s (%s), and `kubectl logs -n %s %s --all-containers` may tell why; %s; see Bootstrap that can't finish in docs/failure-modes.md",
		brief(recoverAfter(&v.Cluster.Spec)), shows, v.Cluster.Namespace, v.epoch.initialNames()[0],
		v.howToBeginAgain())
}

// neverBegins reports whether the epoch has never had a quorum, and something stands in the way of that.
func (v *view) neverBegins() bool {
	return v.epoch.provisioned() && !v.epoch.hadQuorum() && !v.ending() &&
		(len(v.quorumIsLost()) > 0 || v.stalled() != "")
}

// overdueMembers is what the initial members' pods show once all of them have had spec.recovery.after; empty before.
func (v *view) overdueMembers() string {
	var shows, lost []string
	gone := v.lostBeforeStart()
	for _, name := range v.epoch.initialNames() {
		pod := v.Children.Pods[name]
		if pod == nil {
			if slices.Contains(gone, name) {
				lost = append(lost, name+": its data is gone")
			}
			continue
		}
		since, what := v.attempt(name, pod)
		if since.IsZero() || v.Now.Before(since.Add(recoverAfter(&v.Cluster.Spec))) {
			return ""
		}
		shows = append(shows, name+": "+what)
	}
	if len(shows) == 0 {
		return ""
	}
	return strings.Join(append(shows, lost...), "; ")
}

// attempt is since when the initial member of this pod tries to begin, and what the pod shows. The time is zero while
// it is being made ready, as when a snapshot is fetched. It is that of the pod where the container's begins anew with
// every crash.
func (v *view) attempt(name string, pod *corev1.Pod) (since time.Time, what string) {
	m := &member{name: name, pod: pod, health: v.Health[name]}
	made := pod.CreationTimestamp.Time
	if ends := failures(pod); len(ends) > 0 {
		return made, fmt.Sprintf("it has crashed: exit %d", ends[0].ExitCode)
	}
	if what = v.whyNotServing(m); what != "" {
		return made, what
	}
	if running(pod) {
		return runningSince(pod), "its etcd runs" + follows(m.health)
	}
	if prepares(pod) {
		return time.Time{}, ""
	}
	return made, "its containers have not started"
}

// follows says what an etcd that runs has answered; empty for nothing.
func follows(h Health) string {
	switch {
	case h.Err != "":
		return ": " + h.Err
	case h.Leader == 0:
		return " and follows no leader"
	}
	return " and follows a leader"
}

// howToBeginAgain says how the epoch is begun once more where that loses nothing.
func (v *view) howToBeginAgain() string {
	if v.next != nil {
		return fmt.Sprintf("epoch %d is being made ready: %s", v.next.epoch.n, v.staging())
	}
	for _, name := range v.epoch.initialNames() {
		if pod := v.Children.Pods[name]; pod != nil && readyPod(pod) {
			return name + "'s pod is ready, so that clients may be served, and Quorate can't reach it"
		}
	}
	const loses = "if no client was ever served, nothing is lost by beginning anew: "
	switch {
	case v.epoch.source == objects.SourceEmpty:
		return loses + v.recoverCommand(v1alpha1.RecoverRecreate)
	case v.epoch.restore != "":
		return loses + "give spec.restore another id"
	case v.epoch.after == 0:
		return loses + "delete the EtcdCluster and create it again"
	}
	return "what can be done depends on the data that it is to begin with"
}

func readyPod(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
