package hooks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// The rules for what stops us, for what comes before there is a cluster, and for when no quorum answers.

// ---- what stops us

func suspended(v *view) *verdict {
	if !v.Cluster.Spec.Suspend {
		return nil
	}
	return &verdict{message: "spec.suspend is true: nothing is changed or brought back until it is set to false"}
}

func unsupported(v *view) *verdict {
	if err := v.unsupported(); err != nil {
		return &verdict{message: err.Error() + "; nothing is changed until the spec is corrected"}
	}
	return nil
}

func applyStrategy(v *view) *verdict {
	if len(v.WithoutLastApplied) == 0 {
		return nil
	}
	shown, more := v.WithoutLastApplied, ""
	if len(shown) > 3 {
		shown, more = shown[:3], fmt.Sprintf(" and %d more", len(shown)-3)
	}
	outlook := Works // the annotation comes with Metacontroller's next update
	if v.Cluster.Status.Phase == "ApplyStrategy" {
		outlook = Waits
	}
	return &verdict{outlook: outlook, resync: rule.ResyncLater,
		message: fmt.Sprintf("%s%s: the annotation %s is not there, so nothing is changed or brought back; "+
			"Metacontroller writes it at its next call, unless it runs with --apply-strategy=server-side-apply: then set "+
			"dynamic-apply",
			strings.Join(shown, ", "), more, objects.AnnotationLastApplied)}
}

// ---- before there is a cluster

func empty(v *view) *verdict {
	if v.epoch == nil && v.replicas == 0 && !v.ranBefore() {
		return &verdict{message: "replicas is 0 and there is no data yet; set it to 1 or more to create the cluster"}
	}
	return nil
}

func record(v *view) *verdict {
	if v.epoch != nil || v.ranBefore() {
		return &verdict{message: "the epoch record is missing although the cluster has run; it is written again, " +
			"without the right to bootstrap", resync: rule.ResyncLater}
	}
	if joins(v.Cluster) {
		return &verdict{message: "recording that the members are to join the etcd at " +
			strings.Join(existing(v.Cluster).Endpoints, ", "), resync: rule.ResyncLater}
	}
	from, waits := v.beginning()
	if waits != "" {
		return &verdict{message: "waiting for the data to begin with: " + waits, outlook: v.arrives(v.beginsWith()),
			resync: rule.ResyncLater}
	}
	message := fmt.Sprintf("recording the first epoch with %s", wording.Count(v.replicas, "member"))
	if from.source != objects.SourceEmpty {
		message += ", which begins with " + v.wordsFor(from)
	}
	return &verdict{message: message, resync: rule.ResyncLater}
}

// ranBefore reports whether the cluster has run before, by anything that we can see.
func (v *view) ranBefore() bool {
	return len(v.names) > 0 || v.Etcd != nil || v.Cluster.Status.ClusterID != ""
}

func pause(v *view) *verdict {
	if !v.paused() {
		return nil
	}
	left := len(v.Children.Pods)
	if left == 0 {
		return &verdict{message: "paused: replicas is 0, all data is kept; set replicas to 1 or more to resume",
			outlook: Rests}
	}
	if protecting := v.protectingPods(); len(protecting) > 0 {
		return &verdict{message: fmt.Sprintf("pausing, but for %s: the claim is being deleted, and its data would go "+
			"with the pod; delete the pod, or set replicas to 1 or more to have the member replaced",
			strings.Join(protecting, ", ")), outlook: Waits, resync: rule.ResyncLater}
	}
	return &verdict{message: fmt.Sprintf("pausing: %s still stopping", wording.Count(left, "pod")),
		resync: rule.ResyncLater}
}

// protectingPods are the pods that alone keep a claim that is being deleted, and the data on it.
func (v *view) protectingPods() []string {
	return filter(v.names, func(name string) bool {
		pod := v.Children.Pods[name]
		return v.claimBeingDeleted(name) && pod != nil && pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" &&
			!finished(pod)
	})
}

func waitForCertificates(v *view) *verdict {
	switch {
	case v.untrusted != "":
		return &verdict{message: v.untrusted, outlook: Waits, resync: rule.ResyncLater}
	case len(v.certificateProblems) == 0:
		return nil
	}
	return &verdict{message: "waiting for certificates" + v.whileCertificatesWait() + ": " +
		strings.Join(v.certificateProblems, "; "), outlook: v.uncertified(), resync: rule.ResyncLater}
}

func provision(v *view) *verdict {
	if v.hostPath() {
		return v.provisionOnNodes()
	}
	return &verdict{message: "making what the initial members need: " + strings.Join(v.epoch.initialNames(), ", "),
		resync: rule.ResyncLater}
}

// ---- without a quorum's answer

func wrongCluster(v *view) *verdict {
	if v.foreign == 0 {
		return nil
	}
	if !v.epoch.hadQuorum() {
		return &verdict{message: fmt.Sprintf("etcd cluster %s answers and lists none of %s, which have run in "+
			"another that "+
			"no record names any more; nothing is changed: bring that back, or if its data is of no use, delete "+
			"their pods and claims",
			hex(v.foreign), strings.Join(v.remains(), ", ")), resync: rule.ResyncLater}
	}
	return &verdict{message: fmt.Sprintf("an etcd with another cluster ID than the recorded %s answered; nothing is "+
		"changed until that is understood", hex(v.epoch.clusterID)), resync: rule.ResyncLater}
}

func reschedule(v *view) *verdict {
	if v.memory() {
		return nil
	}
	for _, name := range v.names {
		pod := v.Children.Pods[name]
		if pod != nil && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && v.templateOutdated(pod) {
			return &verdict{message: fmt.Sprintf("making the pod %s anew: no node takes it, and the template has "+
				"changed", name), deletePod: name, resync: rule.ResyncSoon}
		}
	}
	return nil
}

func start(v *view) *verdict {
	if why := v.stalled(); why != "" {
		return &verdict{message: why, outlook: v.starts(), resync: rule.ResyncLater}
	}
	initial := v.epoch.initialNames()
	return &verdict{message: fmt.Sprintf("starting %s", strings.Join(initial, ", ")) + v.whyPodsNotServing(initial),
		resync: rule.ResyncSoon}
}

func quorumLost(v *view) *verdict {
	lost := v.quorumIsLost()
	if len(lost) == 0 || v.besideForeign() { // foreign members' data is not ours to count
		return nil
	}
	message := fmt.Sprintf("the data of %s is gone, and with it the quorum; ", strings.Join(lost, ", "))
	if v.next == nil {
		message += "what is left is kept as it is, and nothing is created anew" + v.withoutGivenUp(v.epoch.n)
	} else {
		message += fmt.Sprintf("epoch %d is being made ready: %s", v.next.epoch.n, v.staging())
	}
	if !v.epoch.hadQuorum() && v.next == nil {
		message += "; " + v.howToBeginAgain()
	}
	if way := v.suggested(); v.epoch.hadQuorum() && way != "" && (v.next == nil || v.byRestore()) {
		message += "; " + way
	}
	return &verdict{message: message + "; see QuorumLost in docs/failure-modes.md", outlook: v.nextComes(),
		resync: rule.ResyncLater}
}

// knownVoters are the voters as last known, for words only: no decision follows from them.
func (v *view) knownVoters() []string {
	var known []string
	for _, m := range v.Cluster.Status.Members {
		if n, ours := objects.Ordinal(v.Cluster.Name, m.Name); ours && n >= v.epoch.first && m.Role == v1alpha1.Voter {
			known = append(known, m.Name)
		}
	}
	if len(known) == 0 {
		return v.epoch.initialNames()
	}
	return known
}

// hasData reports whether there is a volume that may hold the member's data.
func (v *view) hasData(name string) bool {
	if v.hostPath() {
		return v.nodeOf(name) != ""
	}
	if v.memory() {
		pod := v.Children.Pods[name]
		return pod != nil && !finished(pod) && !v.gatedForGood(pod)
	}
	return !slices.Contains(v.memberClaims(name), nil)
}

func blind(v *view) *verdict {
	silent := filter(v.knownVoters(), func(n string) bool { return !v.Health[n].Serving() || !v.asked(n) })
	message := fmt.Sprintf("no quorum answers (silent: %s); nothing is changed, pods are kept or brought back",
		strings.Join(silent, ", ")) + v.whyPodsNotServing(silent)
	if v.next != nil {
		message += fmt.Sprintf("; epoch %d is being made ready: %s", v.next.epoch.n, v.staging())
	}
	if distrusting := filter(v.names,
		func(n string) bool { return v.distrustsPeers(v.Health[n]) }); len(distrusting) > 0 {
		message += fmt.Sprintf("; %s run since before there was the authority that signs now, and must be restarted "+
			"to trust it: see TrustOutdated in docs/failure-modes.md", strings.Join(distrusting, ", "))
	}
	if left := v.leftBehind(); len(left) > 0 {
		message += fmt.Sprintf("; pods that have never run and were made from an earlier spec: %s; delete them, and "+
			"they are made from this one", strings.Join(left, ", "))
	}
	return &verdict{message: message, outlook: v.outlookWhileBlind(), resync: rule.ResyncLater}
}

// leftBehind are the pods that came back, have never run, and are not as the spec has them now. They may wait for
// what it no longer names, as a Secret. Quorate takes none away while blind: it can't know whether one runs by now
// (S11).
func (v *view) leftBehind() []string {
	return filter(v.names, func(name string) bool {
		pod := v.Children.Pods[name]
		return v.epoch.hadQuorum() && pod != nil && v.templateOutdated(pod) && neverRan(pod) && !prepareRefused(pod)
	})
}

func (v *view) asked(name string) bool { _, ok := v.Health[name]; return ok }
