package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// The rules for what stops us, for what comes before there is a cluster, and for when no quorum answers.

func suspended(f *facts.Facts) *decision.Plan {
	if !f.Suspended() {
		return nil
	}
	return &decision.Plan{
		Message: "spec.suspend is true: Quorate changes and recreates nothing until you set it to false"}
}

func unsupported(f *facts.Facts) *decision.Plan {
	if err := f.Unsupported(); err != nil {
		return &decision.Plan{Message: err.Error() + "; Quorate changes nothing until you correct the spec"}
	}
	return nil
}

func recordRefused(f *facts.Facts) *decision.Plan {
	refused := f.Refused()
	if len(refused) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(refused))
	why := slices.Compact(slices.Sorted(maps.Values(refused)))
	return &decision.Plan{
		Message: fmt.Sprintf("the ConfigMap %s is not as Quorate writes a record (%s), so Quorate changes and recreates "+
			"nothing: it was made or edited by others, came from a backup, or the key of --record-keys is another one; "+
			"delete the ConfigMap, and Quorate goes on by what else it knows: kubectl delete configmap -n %s %s; see "+
			v1beta1.Docs+"troubleshooting.md#recordrefused",
			strings.Join(names, ", "), strings.Join(why, "; "), f.Cluster.Namespace, strings.Join(names, " ")),
		Resync: decision.ResyncLater,
	}
}

func applyStrategy(f *facts.Facts) *decision.Plan {
	if len(f.WithoutLastApplied) == 0 {
		return nil
	}
	shown := f.WithoutLastApplied
	more := ""
	if len(shown) > 3 {
		more = fmt.Sprintf(" and %d more", len(shown)-3)
		shown = shown[:3]
	}
	outlook := decision.Works // the annotation comes with Metacontroller's next update
	if f.Cluster.Status.Rule == "ApplyStrategy" {
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

func scaledToZero(f *facts.Facts) *decision.Plan {
	if f.Epoch == nil && f.Replicas == 0 && !f.RanBefore() {
		return &decision.Plan{
			Message: "spec.replicas is 0 and there is no data yet; set it to 1 or more to create the cluster"}
	}
	return nil
}

func recordEpoch(f *facts.Facts) *decision.Plan {
	if len(f.Unsealed) > 0 {
		return &decision.Plan{
			Message: fmt.Sprintf("the ConfigMap %s lacks this installation's seal and is of the etcd that answers: "+
				"deleting it and writing it again, without the right to bootstrap",
				strings.Join(f.Unsealed, ", ")),
			Resync: decision.ResyncSoon,
		}
	}
	if f.Epoch != nil || f.RanBefore() {
		return &decision.Plan{
			Message: "the epoch record is missing although the cluster has run; writing it again, without the right " +
				"to bootstrap",
			Resync: decision.ResyncLater,
		}
	}
	if defaults.Joins(f.Cluster) {
		return &decision.Plan{
			Message: "recording that the members join the etcd at " +
				strings.Join(defaults.External(f.Cluster).Endpoints, ", "),
			Resync: decision.ResyncLater,
		}
	}
	from, waits := f.Beginning()
	if waits != "" {
		if _, outlook := f.EarlierLife(); outlook != "" {
			return &decision.Plan{Message: waits, Outlook: outlook, Resync: decision.ResyncLater}
		}
		return &decision.Plan{
			Message: "waiting for the data to begin with: " + waits,
			Outlook: cmp.Or(
				f.FoundOutlook(), arrives(f, f.BeginsWith())),
			Resync: decision.ResyncLater,
		}
	}
	size := f.Replicas
	if from.Source == record.SourceClaims {
		size = 1 // the others join it
	}
	message := fmt.Sprintf("recording the first epoch with %s", objects.Count(size, "member"))
	if from.Source != record.SourceEmpty {
		message += ", which begins with " + f.WordsFor(from)
	} else if l := f.LatestSnapshot(); l != nil {
		message += ", which begins with no data: " + f.ChooseLatest(l).Evidence
	}
	return &decision.Plan{Message: message, Resync: decision.ResyncLater}
}

func pause(f *facts.Facts) *decision.Plan {
	if !f.Paused() {
		return nil
	}
	left := len(f.Children.Pods)
	if left == 0 {
		return &decision.Plan{
			Message: "paused: spec.replicas is 0 and all data is kept; set it to 1 or more to resume",
			Outlook: decision.Rests,
		}
	}
	if protecting := f.ProtectingPods(); len(protecting) > 0 {
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

func waitForCertificates(f *facts.Facts) *decision.Plan {
	switch {
	case f.Untrusted != "":
		return &decision.Plan{Message: f.Untrusted, Outlook: decision.Waits, Resync: decision.ResyncLater}
	case len(f.CertificateProblems) == 0:
		return nil
	}
	return &decision.Plan{
		Message: "waiting for certificates" + f.WhileCertificatesWait() + ": " +
			strings.Join(f.CertificateProblems, "; "),
		Outlook: uncertified(f),
		Resync:  decision.ResyncLater,
	}
}

func createVolumes(f *facts.Facts) *decision.Plan {
	if f.HostPath() {
		return provisionOnNodes(f)
	}
	return &decision.Plan{
		Message: "creating what the initial members need: " + strings.Join(f.Epoch.InitialNames(),
			", "),
		Resync: decision.ResyncLater,
	}
}

func wrongCluster(f *facts.Facts) *decision.Plan {
	if f.OtherCluster == 0 {
		return nil
	}
	if !f.Epoch.HadQuorum() {
		return &decision.Plan{
			Message: fmt.Sprintf("etcd cluster %s answers and does not list %s, which ran in another cluster that is "+
				"no longer recorded; Quorate changes nothing: bring that cluster back, or delete their pods and "+
				"claims if you don't need their data",
				objects.Hex(f.OtherCluster), strings.Join(f.Remains(), ", ")),
			Resync: decision.ResyncLater,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("an etcd answered whose cluster ID is not the recorded %s; Quorate changes nothing "+
			"until you find out why", objects.Hex(f.Epoch.ClusterID)),
		Resync: decision.ResyncLater,
	}
}

func reschedule(f *facts.Facts) *decision.Plan {
	if f.Memory() {
		return planAgain(f)
	}
	for _, name := range f.Names {
		pod := f.Children.Pods[name]
		if pod != nil && pod.DeletionTimestamp == nil && f.Superseded(pod) {
			return &decision.Plan{
				Message: fmt.Sprintf("replacing the pod %s, which can't go on as it was made%s: the spec has changed",
					name, f.WhyNotStarted(pod)),
				Pod:    decision.PodChange{Name: name, Fate: decision.Deleted},
				Resync: decision.ResyncSoon,
			}
		}
	}
	return nil
}

// planAgain records another epoch in place of one on Memory, whose pods are never made twice, while it is proven that
// no etcd of it has run.
func planAgain(f *facts.Facts) *decision.Plan {
	if f.Next != nil || len(f.Unproven()) > 0 {
		return nil
	}
	for _, name := range f.Epoch.InitialNames() {
		if pod := f.Children.Pods[name]; pod != nil && f.Superseded(pod) {
			return RecordNextEpoch(f, f.Epoch.Origin, fmt.Sprintf("%s can't go on as it was made%s, and the spec "+
				"has changed: recording epoch %d, which begins with %s", name, f.WhyNotStarted(pod),
				f.NextEpochNumber(), f.WordsFor(f.Epoch.Origin)))
		}
	}
	return nil
}

func start(f *facts.Facts) *decision.Plan {
	if why := f.Stalled(); why != "" {
		return &decision.Plan{Message: why + f.VersionWaits(), Outlook: starts(f), Resync: decision.ResyncLater}
	}
	initial := f.Epoch.InitialNames()
	return &decision.Plan{
		Message: fmt.Sprintf("starting %s", strings.Join(initial, ", ")) +
			f.WhyPodsNotServing(initial) + f.VersionWaits(),
		Resync: decision.ResyncSoon,
	}
}

func quorumLost(f *facts.Facts) *decision.Plan {
	lost := f.QuorumIsLost()
	if len(lost) == 0 || f.BesideExternal() { // external members' data is not ours to count
		return nil
	}
	message := fmt.Sprintf("the data of %s is gone, and with it the quorum; ", strings.Join(lost, ", "))
	if f.Next == nil {
		message += "Quorate keeps what is left and replaces nothing" + f.WithoutReplaced(f.Epoch.N)
	} else {
		message += fmt.Sprintf("preparing epoch %d: %s", f.Next.Epoch.N, f.Preparing())
	}
	if !f.Epoch.HadQuorum() && f.Next == nil {
		message += "; " + f.HowToBeginAgain()
	}
	if way := f.Suggested(); f.Epoch.HadQuorum() && way != "" && (f.Next == nil || f.ByRestore()) {
		message += "; " + way
	}
	return &decision.Plan{
		Message: message + "; see " + v1beta1.Docs + "troubleshooting.md#quorumlost",
		Outlook: nextComes(f),
		Resync:  decision.ResyncLater,
	}
}

func blind(f *facts.Facts) *decision.Plan {
	unreachable := objects.Filter(f.KnownVoters(), func(n string) bool {
		return !f.Health[n].Serving() ||
			!wasAsked(f, n)
	})
	message := fmt.Sprintf("no quorum answers (unreachable: %s); Quorate only keeps or recreates pods",
		strings.Join(unreachable, ", ")) + f.WhyPodsNotServing(unreachable)
	if f.Next != nil {
		message += fmt.Sprintf("; preparing epoch %d: %s", f.Next.Epoch.N, f.Preparing())
	}
	if restart := distrusting(f); len(restart) > 0 {
		message += fmt.Sprintf("; %s started before the present authority and must restart to trust it: see "+
			v1beta1.Docs+"troubleshooting.md#trustoutdated", strings.Join(restart, ", "))
	}
	if left := leftBehind(f); len(left) > 0 {
		message += fmt.Sprintf("; these pods never ran and have an earlier spec: %s; delete them to get pods with "+
			"this spec: kubectl delete pod -n %s %s", strings.Join(left, ", "), f.Cluster.Namespace, strings.Join(left, " "))
	}
	gone, crashing := dataGone(f), crashing(f)
	switch {
	case f.Next != nil, f.BesideExternal():
	case !quorumWithout(f, gone):
		message += fmt.Sprintf("; without the data of %s there is no quorum: bring it back, or you decide%s; see "+
			v1beta1.Docs+"troubleshooting.md#quorumlost", strings.Join(gone, ", "), objects.Colon(f.Suggested()))
	case !quorumWithout(f, gone, crashing):
		message += fmt.Sprintf("; there is no quorum while etcd crashes in %s; see "+v1beta1.Docs+"troubleshooting.md#blind",
			strings.Join(crashing, ", "))
	}
	if out := f.WithoutNodes(); len(out) > 0 && f.Next == nil && !f.BesideExternal() {
		message += fmt.Sprintf("; the nodes of %s do not answer: the quorum is back when enough of them are; if they "+
			"never are, you decide%s; see "+v1beta1.Docs+"troubleshooting.md#quorumlost", strings.Join(out, ", "),
			objects.Colon(f.Suggested()))
	}
	return &decision.Plan{Message: message, Outlook: outlookWhileBlind(f), Resync: decision.ResyncSoon}
}

// leftBehind are the pods that came back, have never run, and are not as the spec has them now. They may wait for
// what it no longer names, as a Secret. Quorate takes none away while blind: it can't know whether one runs by now
// (S11).
func leftBehind(f *facts.Facts) []string {
	return objects.Filter(f.Names, func(name string) bool {
		pod := f.Children.Pods[name]
		if pod == nil || !f.Epoch.HadQuorum() || !f.TemplateOutdated(pod) {
			return false
		}
		return facts.NeverRan(pod) && !facts.PrepareRefused(pod)
	})
}

// distrusting are the members that must be restarted to take the present authority.
func distrusting(f *facts.Facts) []string {
	return objects.Filter(f.Names, func(name string) bool { return f.Distrusts(f.Health[name]) })
}

// dataGone are the voters, as last known, of which nothing is left, whose data is gone, or that have found nothing
// where it was.
func dataGone(f *facts.Facts) []string {
	return objects.Filter(f.KnownVoters(), func(name string) bool {
		pod := f.Children.Pods[name]
		return !slices.Contains(f.Names, name) || !f.HasData(name) || pod != nil && facts.PrepareRefused(pod)
	})
}

// crashing are the voters, as last known, whose etcd ends again and again.
func crashing(f *facts.Facts) []string { return objects.Filter(f.KnownVoters(), f.InCrashLoop) }

func wasAsked(f *facts.Facts, name string) bool { _, ok := f.Health[name]; return ok }

// provisionOnNodes says what becomes of an epoch whose members have no nodes yet.
func provisionOnNodes(f *facts.Facts) *decision.Plan {
	initial := f.Epoch.InitialNames()
	if f.AssignNodes(initial) == nil {
		return &decision.Plan{
			Message: fmt.Sprintf("waiting: %s has %s for the %s of the first epoch; add nodes",
				defaults.NodesField(&f.Cluster.Spec), objects.Count(len(f.Nodes()), "node"),
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
