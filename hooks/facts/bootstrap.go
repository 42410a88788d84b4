package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

// Initial members that do not come to their first quorum. Whatever the reason, it is said, with what each pod shows
// and what to do. The epoch is never begun again unasked: that Quorate has not seen a quorum does not prove that there
// was none. One that it could not reach may have served clients, and their writes would go with its data (S8).
//
// One reason is etcd's own. An etcd that ends after it has made its log and before its first entries are in it, as by
// a full disk, finds an empty log when it is started again. It takes that for a member that has been bootstrapped,
// knows no voters, and so never stands for election. Beside others it does no harm: they elect one of
// themselves, with its vote, and send it the entries.

// Stalled says why the initial members won't come to a quorum by themselves, or did not in time; empty while they may.
func (f *Facts) Stalled() string {
	if len(f.Epoch.StartsOn) == 0 {
		return "the epoch record was deleted before the first quorum, and no member may bootstrap now: see " +
			v1beta1.Docs + "troubleshooting.md#recorddeleted"
	}
	if why := cmp.Or(f.Unfilled(), f.Differing()); why != "" {
		return why
	}
	shows := f.overdueMembers()
	if shows == "" {
		return ""
	}
	return fmt.Sprintf("the members have not reached a first quorum within %s (%s), and `kubectl logs -n %s %s "+
		"--all-containers` may show why; %s; see "+v1beta1.Docs+"troubleshooting.md#bootstrap-that-cant-finish",
		objects.Brief(defaults.RecoverAfter(&f.Cluster.Spec)), shows, f.Cluster.Namespace, f.Epoch.InitialNames()[0],
		f.HowToBeginAgain())
}

// Unproven are the initial members of which it is not proven that their etcd has never run: that Quorate has heard of
// none proves nothing. Proven it is by a pod whose container of etcd has never been started, when what it would start
// on holds nothing either: prepare has found nothing there, or it could not be filled, or no volume has been made. On
// Memory the pod holds the data itself, and the record says which pod that is. One that has lost what it was to start
// on, pod and volume, never starts again.
func (f *Facts) Unproven() []string {
	switch {
	case !f.Epoch.Provisioned():
		return nil // no pod of a member runs yet
	case len(f.Epoch.StartsOn) == 0:
		return f.Epoch.InitialNames() // the record was made again
	}
	return objects.Filter(f.Epoch.InitialNames(), func(name string) bool {
		pod := f.Children.Pods[name]
		switch {
		case pod == nil:
			return !f.dataGone(name) && !f.unmade(name)
		case !NeverRan(pod):
			return true
		case f.Memory():
			return !f.Epoch.MayStartEmpty(name, pod.UID)
		case foundNothing(pod) || SeedFailure(pod) != nil && !Seeded(pod):
			return false
		}
		return pod.Spec.NodeName != "" || !f.unmade(name)
	})
}

// dataGone reports whether nothing is left of what was recorded for a member without a pod to start on: on claims none
// of its pods runs any more then, since Kubernetes keeps a claim for as long as one does.
func (f *Facts) dataGone(name string) bool {
	return f.Memory() || f.OnClaims() && slices.ContainsFunc(f.MemberClaims(name),
		func(c *corev1.PersistentVolumeClaim) bool { return c == nil || f.Epoch.Recorded(c.Name) != c.UID })
}

// unmade reports whether no volume has been made for the member's claims.
func (f *Facts) unmade(name string) bool {
	return f.OnClaims() && !slices.ContainsFunc(f.MemberClaims(name), func(c *corev1.PersistentVolumeClaim) bool {
		return c == nil || c.Spec.VolumeName != "" || c.Status.Phase == corev1.ClaimBound
	})
}

// VersionBeforeQuorum is the version that an epoch's members are to run that have never had a quorum. It follows the
// spec to another patch release, and to another minor version while it is proven that nothing has run that could not
// read the other's log (S18). Before the epoch begins it stays as it was planned.
func (f *Facts) VersionBeforeQuorum() string {
	is := f.Epoch.Version
	wanted := f.Cluster.Spec.Version
	switch {
	case f.Etcd != nil || !f.Epoch.Began() || f.gatedFor(is, wanted):
		return is
	case SameMinor(is, wanted) || len(f.Unproven()) == 0:
		return wanted
	}
	return cmp.Or(OtherMinor(is, f.RanVersions()), is)
}

// gatedFor reports whether a pod on Memory waits to begin as this version, and can't be given the image of the wanted
// one: its flags are others, and it is not made again. It begins as it was made.
func (f *Facts) gatedFor(is, wanted string) bool {
	if SameMinor(is, wanted) {
		return false
	}
	return slices.ContainsFunc(f.Epoch.InitialNames(), func(name string) bool {
		pod := f.Children.Pods[name]
		return pod != nil && Gated(pod) && !defaults.SameFlags(MadeForVersion(pod), wanted)
	})
}

// ChangesVersion reports whether the record gets another version in this very answer: no member begins as the one
// before then.
func (f *Facts) ChangesVersion() bool {
	return !f.Epoch.HadQuorum() && !SameMinor(f.VersionBeforeQuorum(), f.Epoch.Version)
}

// VersionWaits says that the spec's version waits, because members may have run as another one; empty when it does not.
func (f *Facts) VersionWaits() string {
	unproven := f.Unproven()
	follows := len(unproven) == 0 || SameMinor(f.Epoch.Version, f.Cluster.Spec.Version)
	if follows || f.Epoch.HadQuorum() || len(f.Epoch.StartsOn) == 0 {
		return ""
	}
	return fmt.Sprintf("; etcd %s waits for the first quorum, because %s may have run etcd %s already: set spec.version "+
		"back to that until then", f.Cluster.Spec.Version, strings.Join(unproven, ", "), f.Epoch.Version)
}

// NeverBegins reports whether the epoch has never had a quorum, and something stands in the way of that.
func (f *Facts) NeverBegins() bool {
	if !f.Epoch.Provisioned() || f.Epoch.HadQuorum() || f.Ending() {
		return false
	}
	return len(f.QuorumIsLost()) > 0 || f.Stalled() != ""
}

// overdueMembers is what the initial members' pods show once all of them have had spec.recovery.after; empty before.
func (f *Facts) overdueMembers() string {
	var shows, lost []string
	gone := f.LostBeforeStart()
	for _, name := range f.Epoch.InitialNames() {
		pod := f.Children.Pods[name]
		if pod == nil {
			if slices.Contains(gone, name) {
				lost = append(lost, name+": its data is gone")
			}
			continue
		}
		since, what := f.attempt(name, pod)
		if since.IsZero() || f.Now.Before(since.Add(defaults.RecoverAfter(&f.Cluster.Spec))) {
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
// it is being made ready, as when a snapshot is fetched. It is that of the pod where the container's begins again
// with every crash.
func (f *Facts) attempt(name string, pod *corev1.Pod) (since time.Time, what string) {
	m := &Member{PodName: name, Pod: pod, Health: f.Health[name]}
	made := pod.CreationTimestamp.Time
	if ends := Failures(pod); len(ends) > 0 {
		return made, fmt.Sprintf("it crashed: exit %d", ends[0].ExitCode)
	}
	if what = f.WhyNotServing(m); what != "" {
		return made, what
	}
	if Running(pod) {
		return RunningSince(pod), "its etcd runs" + follows(m.Health)
	}
	if Prepares(pod) {
		return time.Time{}, ""
	}
	return made, "its containers have not started"
}

// follows says what an etcd that runs has answered; empty for nothing.
func follows(h observation.Health) string {
	switch {
	case h.Err != "":
		return ": " + h.Err
	case h.Leader == 0:
		return " and follows no leader"
	}
	return " and follows a leader"
}

// HowToBeginAgain says how the epoch is begun once more where that loses nothing.
func (f *Facts) HowToBeginAgain() string {
	if f.Next != nil {
		return fmt.Sprintf("preparing epoch %d: %s", f.Next.Epoch.N, f.Preparing())
	}
	for _, name := range f.Epoch.InitialNames() {
		if pod := f.Children.Pods[name]; pod != nil && objects.Ready(pod) {
			return name + "'s pod is ready, so clients may be served, but Quorate can't reach it"
		}
	}
	const loses = "if no client was ever served, you lose nothing by beginning again: "
	switch {
	case f.Epoch.Source == record.SourceEmpty:
		return loses + f.recoverCommand(v1beta1.RecoverRecreate)
	case f.Epoch.Restore != "":
		return loses + "create another EtcdOperation of type Restore"
	case f.Epoch.After == 0:
		return loses + "delete the EtcdCluster and create it again"
	}
	return "what you can do depends on the data that it begins with"
}
