package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// The rules for what stops us, for what comes before there is a cluster, and for when no quorum answers.

func suspended(v *facts.Facts) *decision.Plan {
	if !v.Suspended() {
		return nil
	}
	return &decision.Plan{
		Message: "spec.suspend is true: Quorate changes and recreates nothing until you set it to false"}
}

func unsupported(v *facts.Facts) *decision.Plan {
	if err := v.Unsupported(); err != nil {
		return &decision.Plan{Message: err.Error() + "; Quorate changes nothing until you correct the spec"}
	}
	return nil
}

func recordRefused(v *facts.Facts) *decision.Plan {
	refused := v.Refused()
	if len(refused) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(refused))
	why := slices.Compact(slices.Sorted(maps.Values(refused)))
	return &decision.Plan{
		Message: fmt.Sprintf("the ConfigMap %s is not as Quorate writes a record (%s), so Quorate changes and recreates "+
			"nothing: it was made or edited by others, came from a backup, or the key of --record-keys is another one; "+
			"kubectl delete configmap -n %s %s, and Quorate goes on by what it knows without it; see RecordRefused in "+
			"docs/troubleshooting.md", strings.Join(names, ", "), strings.Join(why, "; "), v.Cluster.Namespace,
			strings.Join(names, " ")),
		Resync: decision.ResyncLater,
	}
}

func applyStrategy(v *facts.Facts) *decision.Plan {
	if len(v.WithoutLastApplied) == 0 {
		return nil
	}
	shown, more := v.WithoutLastApplied, ""
	if len(shown) > 3 {
		shown, more = shown[:3], fmt.Sprintf(" and %d more", len(shown)-3)
	}
	outlook := decision.Works // the annotation comes with Metacontroller's next update
	if v.Cluster.Status.Rule == "ApplyStrategy" {
		outlook = decision.Waits
	}
	return &decision.Plan{
		Outlook: outlook,
		Resync:  decision.ResyncLater,
		Message: fmt.Sprintf("%s%s: the annotation %s is missing, so Quorate changes and recreates nothing; "+
			"Metacontroller writes it at its next call, unless it runs with --apply-strategy=server-side-apply: then "+
			"set dynamic-apply",
			strings.Join(shown, ", "), more, objects.AnnotationLastApplied),
	}
}

func empty(v *facts.Facts) *decision.Plan {
	if v.Epoch == nil && v.Replicas == 0 && !v.RanBefore() {
		return &decision.Plan{
			Message: "spec.replicas is 0 and there is no data yet; set it to 1 or more to create the cluster"}
	}
	return nil
}

func recordEpoch(v *facts.Facts) *decision.Plan {
	if len(v.Unsealed) > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("the ConfigMap %s has no seal of this installation's, and is of "+
				"the etcd that answers: it goes, and is written again, without the right to bootstrap",
				strings.Join(v.Unsealed, ", ")),
			Resync: decision.ResyncSoon,
		}
	}
	if v.Epoch != nil || v.RanBefore() {
		return &decision.Plan{
			Message: "the epoch record is missing although the cluster has run; writing it again, without the right " +
				"to bootstrap",
			Resync: decision.ResyncLater,
		}
	}
	if defaults.Joins(v.Cluster) {
		return &decision.Plan{
			Message: "recording that the members join the etcd at " +
				strings.Join(defaults.Existing(v.Cluster).Endpoints, ", "),
			Resync: decision.ResyncLater,
		}
	}
	from, waits := v.Beginning()
	if waits != "" {
		if _, outlook := v.EarlierLife(); outlook != "" {
			return &decision.Plan{Message: waits, Outlook: outlook, Resync: decision.ResyncLater}
		}
		return &decision.Plan{
			Message: "waiting for the data to begin with: " + waits,
			Outlook: cmp.Or(
				v.ClaimsOutlook(), arrives(v, v.BeginsWith())),
			Resync: decision.ResyncLater,
		}
	}
	size := v.Replicas
	if from.Source == record.SourceClaims {
		size = 1 // the others join it
	}
	message := fmt.Sprintf("recording the first epoch with %s", objects.Count(size, "member"))
	if from.Source != record.SourceEmpty {
		message += ", which begins with " + v.WordsFor(from)
	}
	return &decision.Plan{Message: message, Resync: decision.ResyncLater}
}

func pause(v *facts.Facts) *decision.Plan {
	if !v.Paused() {
		return nil
	}
	left := len(v.Children.Pods)
	if left == 0 {
		return &decision.Plan{
			Message: "paused: spec.replicas is 0 and all data is kept; set it to 1 or more to resume",
			Outlook: decision.Rests,
		}
	}
	if protecting := v.ProtectingPods(); len(protecting) > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("pausing, except %s: its claim is being deleted, and without the pod its data would "+
				"be gone; delete the pod, or set spec.replicas to 1 or more to have the member replaced",
				strings.Join(protecting, ", ")),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("pausing: waiting for %s to stop", objects.Count(left, "pod")),
		Resync:  decision.ResyncLater,
	}
}

func waitForCertificates(v *facts.Facts) *decision.Plan {
	switch {
	case v.Untrusted != "":
		return &decision.Plan{Message: v.Untrusted, Outlook: decision.Waits, Resync: decision.ResyncLater}
	case len(v.CertificateProblems) == 0:
		return nil
	}
	return &decision.Plan{
		Message: "waiting for certificates" + v.WhileCertificatesWait() + ": " +
			strings.Join(v.CertificateProblems, "; "),
		Outlook: uncertified(v),
		Resync:  decision.ResyncLater,
	}
}

func provision(v *facts.Facts) *decision.Plan {
	if v.HostPath() {
		return provisionOnNodes(v)
	}
	return &decision.Plan{
		Message: "creating what the initial members need: " + strings.Join(v.Epoch.InitialNames(),
			", "),
		Resync: decision.ResyncLater,
	}
}

func wrongCluster(v *facts.Facts) *decision.Plan {
	if v.Foreign == 0 {
		return nil
	}
	if !v.Epoch.HadQuorum() {
		return &decision.Plan{
			Message: fmt.Sprintf("etcd cluster %s answers and does not list %s, which ran in another cluster that is "+
				"no longer recorded; Quorate changes nothing: bring that cluster back, or delete their pods and "+
				"claims if you don't need their data",
				objects.Hex(v.Foreign), strings.Join(v.Remains(), ", ")),
			Resync: decision.ResyncLater,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("an etcd answered whose cluster ID is not the recorded %s; Quorate changes nothing "+
			"until you find out why", objects.Hex(v.Epoch.ClusterID)),
		Resync: decision.ResyncLater,
	}
}

func reschedule(v *facts.Facts) *decision.Plan {
	if v.Memory() {
		return planAgain(v)
	}
	for _, name := range v.Names {
		pod := v.Children.Pods[name]
		if pod != nil && pod.DeletionTimestamp == nil && v.Superseded(pod) {
			return &decision.Plan{
				Message: fmt.Sprintf("replacing the pod %s, which can't go on as it was made%s: the spec has changed",
					name, v.WhyNotStarted(pod)),
				Pod:    decision.PodChange{Name: name, Fate: decision.Deleted},
				Resync: decision.ResyncSoon,
			}
		}
	}
	return nil
}

// planAgain records another epoch in place of one on Memory, whose pods are never made twice, while it is proven that
// no etcd of it has run.
func planAgain(v *facts.Facts) *decision.Plan {
	if v.Next != nil || len(v.Unproven()) > 0 {
		return nil
	}
	for _, name := range v.Epoch.InitialNames() {
		if pod := v.Children.Pods[name]; pod != nil && v.Superseded(pod) {
			return RecordNextEpoch(v, v.Epoch.Origin, fmt.Sprintf("%s can't go on as it was made%s, and the spec "+
				"has changed: recording epoch %d, which begins with %s", name, v.WhyNotStarted(pod),
				v.NextEpochNumber(), v.WordsFor(v.Epoch.Origin)))
		}
	}
	return nil
}

func start(v *facts.Facts) *decision.Plan {
	if why := v.Stalled(); why != "" {
		return &decision.Plan{Message: why + v.VersionWaits(), Outlook: starts(v), Resync: decision.ResyncLater}
	}
	initial := v.Epoch.InitialNames()
	return &decision.Plan{
		Message: fmt.Sprintf("starting %s", strings.Join(initial, ", ")) +
			v.WhyPodsNotServing(initial) + v.VersionWaits(),
		Resync: decision.ResyncSoon,
	}
}

func quorumLost(v *facts.Facts) *decision.Plan {
	lost := v.QuorumIsLost()
	if len(lost) == 0 || v.BesideForeign() { // foreign members' data is not ours to count
		return nil
	}
	message := fmt.Sprintf("the data of %s is gone, and with it the quorum; ", strings.Join(lost, ", "))
	if v.Next == nil {
		message += "Quorate keeps what is left and replaces nothing" + v.WithoutGivenUp(v.Epoch.N)
	} else {
		message += fmt.Sprintf("preparing epoch %d: %s", v.Next.Epoch.N, v.Staging())
	}
	if !v.Epoch.HadQuorum() && v.Next == nil {
		message += "; " + v.HowToBeginAgain()
	}
	if way := v.Suggested(); v.Epoch.HadQuorum() && way != "" && (v.Next == nil || v.ByRestore()) {
		message += "; " + way
	}
	return &decision.Plan{
		Message: message + "; see QuorumLost in docs/troubleshooting.md",
		Outlook: nextComes(v),
		Resync:  decision.ResyncLater,
	}
}

func blind(v *facts.Facts) *decision.Plan {
	silent := objects.Filter(v.KnownVoters(), func(n string) bool {
		return !v.Health[n].Serving() ||
			!wasAsked(v, n)
	})
	message := fmt.Sprintf("no quorum answers (silent: %s); Quorate only keeps or recreates pods",
		strings.Join(silent, ", ")) + v.WhyPodsNotServing(silent)
	if v.Next != nil {
		message += fmt.Sprintf("; preparing epoch %d: %s", v.Next.Epoch.N, v.Staging())
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
			"in docs/troubleshooting.md", strings.Join(gone, ", "), objects.Colon(v.Suggested()))
	}
	return &decision.Plan{Message: message, Outlook: outlookWhileBlind(v), Resync: decision.ResyncLater}
}

// leftBehind are the pods that came back, have never run, and are not as the spec has them now. They may wait for
// what it no longer names, as a Secret. Quorate takes none away while blind: it can't know whether one runs by now
// (S11).
func leftBehind(v *facts.Facts) []string {
	return objects.Filter(v.Names, func(name string) bool {
		pod := v.Children.Pods[name]
		return v.Epoch.HadQuorum() && pod != nil && v.TemplateOutdated(pod) && facts.NeverRan(pod) &&
			!facts.PrepareRefused(pod)
	})
}

// distrusting are the members that must be restarted to take the present authority.
func distrusting(v *facts.Facts) []string {
	return objects.Filter(v.Names, func(name string) bool { return v.DistrustsPeers(v.Health[name]) })
}

// dataGone are the voters, as last known, of which nothing is left, whose data is gone, or that have found nothing
// where it was.
func dataGone(v *facts.Facts) []string {
	return objects.Filter(v.KnownVoters(), func(name string) bool {
		pod := v.Children.Pods[name]
		return !slices.Contains(v.Names, name) || !v.HasData(name) || pod != nil && facts.PrepareRefused(pod)
	})
}

func wasAsked(v *facts.Facts, name string) bool { _, ok := v.Health[name]; return ok }

// ProvisionOnNodes says what becomes of an epoch whose members have no nodes yet.
func provisionOnNodes(v *facts.Facts) *decision.Plan {
	initial := v.Epoch.InitialNames()
	if v.AssignNodes(initial) == nil {
		return &decision.Plan{
			Message: fmt.Sprintf("waiting: %s has %s for the %s of the first epoch; add nodes",
				defaults.NodesField(&v.Cluster.Spec), objects.Count(len(v.Nodes()), "node"),
				objects.Count(len(initial), "member")),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	return &decision.Plan{
		Message: "recording the nodes of the initial members: " + strings.Join(initial, ", "),
		Resync:  decision.ResyncLater,
	}
}
