package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// The rules for what stops us, for what comes before there is a cluster, and for when no quorum answers.

func suspended(v *state.View) *decision.Verdict {
	if !v.Suspended() {
		return nil
	}
	return &decision.Verdict{
		Message: "spec.suspend is true: Quorate changes and recreates nothing until you set it to false"}
}

func unsupported(v *state.View) *decision.Verdict {
	if err := v.Unsupported(); err != nil {
		return &decision.Verdict{Message: err.Error() + "; Quorate changes nothing until you correct the spec"}
	}
	return nil
}

func recordRefused(v *state.View) *decision.Verdict {
	refused := v.Refused()
	if len(refused) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(refused))
	why := slices.Compact(slices.Sorted(maps.Values(refused)))
	return &decision.Verdict{Resync: rule.ResyncLater,
		Message: fmt.Sprintf("the ConfigMap %s is not as Quorate writes a record (%s), so Quorate changes and "+
			"recreates nothing: it was made or edited by others, came from a backup, or the key of --record-keys is "+
			"another one; kubectl delete configmap -n %s %s, and Quorate goes on by what it knows "+
			"without it; see RecordRefused in docs/troubleshooting.md", strings.Join(names, ", "),
			strings.Join(why, "; "), v.Cluster.Namespace, strings.Join(names, " "))}
}

func applyStrategy(v *state.View) *decision.Verdict {
	if len(v.WithoutLastApplied) == 0 {
		return nil
	}
	shown, more := v.WithoutLastApplied, ""
	if len(shown) > 3 {
		shown, more = shown[:3], fmt.Sprintf(" and %d more", len(shown)-3)
	}
	outlook := rule.Works // the annotation comes with Metacontroller's next update
	if v.Cluster.Status.Rule == "ApplyStrategy" {
		outlook = rule.Waits
	}
	return &decision.Verdict{Outlook: outlook, Resync: rule.ResyncLater,
		Message: fmt.Sprintf("%s%s: the annotation %s is missing, so Quorate changes and recreates nothing; "+
			"Metacontroller writes it at its next call, unless it runs with --apply-strategy=server-side-apply: then "+
			"set dynamic-apply",
			strings.Join(shown, ", "), more, objects.AnnotationLastApplied)}
}

func empty(v *state.View) *decision.Verdict {
	if v.Epoch == nil && v.Replicas == 0 && !state.RanBefore(v) {
		return &decision.Verdict{
			Message: "spec.replicas is 0 and there is no data yet; set it to 1 or more to create the cluster"}
	}
	return nil
}

func recordEpoch(v *state.View) *decision.Verdict {
	if len(v.Unsealed) > 0 {
		return &decision.Verdict{Message: fmt.Sprintf("the ConfigMap %s has no seal of this installation's, and is of "+
			"the etcd that answers: it goes, and is written again, without the right to bootstrap",
			strings.Join(v.Unsealed, ", ")), Resync: rule.ResyncSoon}
	}
	if v.Epoch != nil || state.RanBefore(v) {
		return &decision.Verdict{
			Message: "the epoch record is missing although the cluster has run; writing it again, without the right " +
				"to bootstrap", Resync: rule.ResyncLater}
	}
	if spec.Joins(v.Cluster) {
		return &decision.Verdict{Message: "recording that the members join the etcd at " +
			strings.Join(spec.Existing(v.Cluster).Endpoints, ", "), Resync: rule.ResyncLater}
	}
	from, waits := epochs.Beginning(v)
	if waits != "" {
		if _, outlook := epochs.EarlierLife(v); outlook != "" {
			return &decision.Verdict{Message: waits, Outlook: outlook, Resync: rule.ResyncLater}
		}
		return &decision.Verdict{Message: "waiting for the data to begin with: " + waits, Outlook: cmp.Or(
			epochs.ClaimsOutlook(v), arrives(v, epochs.BeginsWith(v))), Resync: rule.ResyncLater}
	}
	size := v.Replicas
	if from.Source == record.SourceClaims {
		size = 1 // the others join it
	}
	message := fmt.Sprintf("recording the first epoch with %s", wording.Count(size, "member"))
	if from.Source != record.SourceEmpty {
		message += ", which begins with " + epochs.WordsFor(v, from)
	}
	return &decision.Verdict{Message: message, Resync: rule.ResyncLater}
}

func pause(v *state.View) *decision.Verdict {
	if !paused(v) {
		return nil
	}
	left := len(v.Children.Pods)
	if left == 0 {
		return &decision.Verdict{
			Message: "paused: spec.replicas is 0 and all data is kept; set it to 1 or more to resume",
			Outlook: rule.Rests}
	}
	if protecting := protectingPods(v); len(protecting) > 0 {
		return &decision.Verdict{
			Message: fmt.Sprintf("pausing, except %s: its claim is being deleted, and without the pod its data would "+
				"be gone; delete the pod, or set spec.replicas to 1 or more to have the member replaced",
				strings.Join(protecting, ", ")), Outlook: rule.Waits, Resync: rule.ResyncLater}
	}
	return &decision.Verdict{Message: fmt.Sprintf("pausing: waiting for %s to stop", wording.Count(left, "pod")),
		Resync: rule.ResyncLater}
}

// protectingPods are the pods that alone keep a claim that is being deleted, and the data on it.
func protectingPods(v *state.View) []string {
	return wording.Filter(v.Names, func(name string) bool {
		pod := v.Children.Pods[name]
		return state.ClaimBeingDeleted(v, name) && pod != nil && pod.DeletionTimestamp == nil &&
			pod.Spec.NodeName != "" && !state.Finished(pod)
	})
}

func waitForCertificates(v *state.View) *decision.Verdict {
	switch {
	case v.Untrusted != "":
		return &decision.Verdict{Message: v.Untrusted, Outlook: rule.Waits, Resync: rule.ResyncLater}
	case len(v.CertificateProblems) == 0:
		return nil
	}
	return &decision.Verdict{Message: "waiting for certificates" + certificates.WhileCertificatesWait(v) + ": " +
		strings.Join(v.CertificateProblems, "; "), Outlook: uncertified(v), Resync: rule.ResyncLater}
}

func provision(v *state.View) *decision.Verdict {
	if v.HostPath() {
		return volumes.ProvisionOnNodes(v)
	}
	return &decision.Verdict{Message: "creating what the initial members need: " + strings.Join(v.Epoch.InitialNames(),
		", "), Resync: rule.ResyncLater}
}

func wrongCluster(v *state.View) *decision.Verdict {
	if v.Foreign == 0 {
		return nil
	}
	if !v.Epoch.HadQuorum() {
		return &decision.Verdict{
			Message: fmt.Sprintf("etcd cluster %s answers and does not list %s, which ran in another cluster that is "+
				"no longer recorded; Quorate changes nothing: bring that cluster back, or delete their pods and "+
				"claims if you don't need their data",
				wording.Hex(v.Foreign), strings.Join(state.Remains(v), ", ")), Resync: rule.ResyncLater}
	}
	return &decision.Verdict{
		Message: fmt.Sprintf("an etcd answered whose cluster ID is not the recorded %s; Quorate changes nothing "+
			"until you find out why", wording.Hex(v.Epoch.ClusterID)), Resync: rule.ResyncLater}
}

func reschedule(v *state.View) *decision.Verdict {
	if v.Memory() {
		return planAgain(v)
	}
	for _, name := range v.Names {
		pod := v.Children.Pods[name]
		if pod != nil && pod.DeletionTimestamp == nil && children.Superseded(v, pod) {
			return &decision.Verdict{
				Message: fmt.Sprintf("replacing the pod %s, which can't go on as it was made%s: the spec has changed",
					name, epochs.WhyNotStarted(v, pod)),
				DeletePod: name, Resync: rule.ResyncSoon}
		}
	}
	return nil
}

// planAgain records another epoch in place of one on Memory, whose pods are never made twice, while it is proven that
// no etcd of it has run.
func planAgain(v *state.View) *decision.Verdict {
	if v.Next != nil || len(epochs.Unproven(v)) > 0 {
		return nil
	}
	for _, name := range v.Epoch.InitialNames() {
		if pod := v.Children.Pods[name]; pod != nil && children.Superseded(v, pod) {
			return epochs.RecordNextEpoch(v, v.Epoch.Origin, fmt.Sprintf("%s can't go on as it was made%s, and the spec "+
				"has changed: recording epoch %d, which begins with %s", name, epochs.WhyNotStarted(v, pod),
				epochs.NextEpochNumber(v), epochs.WordsFor(v, v.Epoch.Origin)))
		}
	}
	return nil
}

func start(v *state.View) *decision.Verdict {
	if why := epochs.Stalled(v); why != "" {
		return &decision.Verdict{Message: why + epochs.VersionWaits(v), Outlook: starts(v), Resync: rule.ResyncLater}
	}
	initial := v.Epoch.InitialNames()
	return &decision.Verdict{Message: fmt.Sprintf("starting %s", strings.Join(initial, ", ")) +
		pods.WhyPodsNotServing(v, initial) + epochs.VersionWaits(v), Resync: rule.ResyncSoon}
}

func quorumLost(v *state.View) *decision.Verdict {
	lost := epochs.QuorumIsLost(v)
	if len(lost) == 0 || v.BesideForeign() { // foreign members' data is not ours to count
		return nil
	}
	message := fmt.Sprintf("the data of %s is gone, and with it the quorum; ", strings.Join(lost, ", "))
	if v.Next == nil {
		message += "Quorate keeps what is left and replaces nothing" + epochs.WithoutGivenUp(v, v.Epoch.N)
	} else {
		message += fmt.Sprintf("preparing epoch %d: %s", v.Next.Epoch.N, epochs.Staging(v))
	}
	if !v.Epoch.HadQuorum() && v.Next == nil {
		message += "; " + epochs.HowToBeginAgain(v)
	}
	if way := epochs.Suggested(v); v.Epoch.HadQuorum() && way != "" && (v.Next == nil || epochs.ByRestore(v)) {
		message += "; " + way
	}
	return &decision.Verdict{Message: message + "; see QuorumLost in docs/troubleshooting.md", Outlook: nextComes(v),
		Resync: rule.ResyncLater}
}

func blind(v *state.View) *decision.Verdict {
	silent := wording.Filter(state.KnownVoters(v), func(n string) bool {
		return !v.Health[n].Serving() ||
			!wasAsked(v, n)
	})
	message := fmt.Sprintf("no quorum answers (silent: %s); Quorate only keeps or recreates pods",
		strings.Join(silent, ", ")) + pods.WhyPodsNotServing(v, silent)
	if v.Next != nil {
		message += fmt.Sprintf("; preparing epoch %d: %s", v.Next.Epoch.N, epochs.Staging(v))
	}
	if restart := distrusting(v); len(restart) > 0 {
		message += fmt.Sprintf("; %s started before the present authority and must restart to trust it: see "+
			"TrustOutdated in docs/troubleshooting.md", strings.Join(restart, ", "))
	}
	if left := leftBehind(v); len(left) > 0 {
		message += fmt.Sprintf("; these pods never ran and have an earlier spec: %s; delete them to get pods with "+
			"this spec", strings.Join(left, ", "))
	}
	if gone := dataGone(v); v.Next == nil && !v.BesideForeign() && !quorumWithout(v, gone) {
		message += fmt.Sprintf("; without the data of %s there is no quorum: bring it back, or you decide%s; see QuorumLost "+
			"in docs/troubleshooting.md", strings.Join(gone, ", "), wording.Colon(epochs.Suggested(v)))
	}
	return &decision.Verdict{Message: message, Outlook: outlookWhileBlind(v), Resync: rule.ResyncLater}
}

// leftBehind are the pods that came back, have never run, and are not as the spec has them now. They may wait for
// what it no longer names, as a Secret. Quorate takes none away while blind: it can't know whether one runs by now
// (S11).
func leftBehind(v *state.View) []string {
	return wording.Filter(v.Names, func(name string) bool {
		pod := v.Children.Pods[name]
		return v.Epoch.HadQuorum() && pod != nil && children.TemplateOutdated(v, pod) && state.NeverRan(pod) &&
			!state.PrepareRefused(pod)
	})
}

// distrusting are the members that must be restarted to take the present authority.
func distrusting(v *state.View) []string {
	return wording.Filter(v.Names, func(name string) bool { return certificates.DistrustsPeers(v, v.Health[name]) })
}

// dataGone are the voters, as last known, of which nothing is left, whose data is gone, or that have found nothing
// where it was.
func dataGone(v *state.View) []string {
	return wording.Filter(state.KnownVoters(v), func(name string) bool {
		pod := v.Children.Pods[name]
		return !slices.Contains(v.Names, name) || !state.HasData(v, name) || pod != nil && state.PrepareRefused(pod)
	})
}

func wasAsked(v *state.View, name string) bool { _, ok := v.Health[name]; return ok }
