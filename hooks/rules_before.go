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
	return &verdict{outlook: outlook, resync: rule.Patience, message: fmt.Sprintf("%s%s: the annotation %s is not there, so nothing is changed or brought back; "+
		"Metacontroller writes it at its next call, unless it runs with --apply-strategy=server-side-apply: then set dynamic-apply",
		strings.Join(shown, ", "), more, objects.AnnotationLastApplied)}
}

// ---- before there is a cluster

func empty(v *view) *verdict {
	if v.epoch == nil && v.replicas == 0 && !v.relics() {
		return &verdict{message: "replicas is 0 and there is no data yet; set it to 1 or more to create the cluster"}
	}
	return nil
}

func record(v *view) *verdict {
	if v.epoch != nil || v.relics() {
		return &verdict{message: "the epoch record is missing although the cluster has run; it is written again, without the right to bootstrap", resync: rule.Patience}
	}
	if joins(v.Cluster) {
		return &verdict{message: "recording that the members are to join the etcd at " + strings.Join(existing(v.Cluster).Endpoints, ", "), resync: rule.Patience}
	}
	from, waits := v.beginning()
	if waits != "" {
		return &verdict{message: "waiting for the data to begin with: " + waits, outlook: v.arrives(v.beginsWith()), resync: rule.Patience}
	}
	message := fmt.Sprintf("recording the first epoch with %s", wording.Count(v.replicas, "member"))
	if from.source != objects.SourceEmpty {
		message += ", which begins with " + v.wordsFor(from)
	}
	return &verdict{message: message, resync: rule.Patience}
}

// relics reports whether the cluster has run before, by anything that we can see.
func (v *view) relics() bool {
	return len(v.names) > 0 || v.Etcd != nil || v.Cluster.Status.ClusterID != ""
}

func pause(v *view) *verdict {
	if !v.paused() {
		return nil
	}
	left := len(v.Children.Pods)
	if left == 0 {
		return &verdict{message: "paused: replicas is 0, all data is kept; set replicas to 1 or more to resume", outlook: Rests}
	}
	if held := v.lastHolds(); len(held) > 0 {
		return &verdict{message: fmt.Sprintf("pausing, but for %s: the claim is being deleted, and its data would go with the pod; delete the pod, or set replicas to 1 or more to have the member replaced",
			strings.Join(held, ", ")), outlook: Waits, resync: rule.Patience}
	}
	return &verdict{message: fmt.Sprintf("pausing: %s still stopping", wording.Count(left, "pod")), resync: rule.Patience}
}

// lastHolds are the pods that alone keep a claim that is being deleted, and the data on it.
func (v *view) lastHolds() []string {
	return filter(v.names, func(name string) bool {
		pod := v.Children.Pods[name]
		return v.groundGoes(name) && pod != nil && pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" && !finished(pod)
	})
}

func certify(v *view) *verdict {
	switch {
	case v.estranged != "":
		return &verdict{message: v.estranged, outlook: Waits, resync: rule.Patience}
	case len(v.lacking) == 0:
		return nil
	}
	return &verdict{message: "waiting for certificates" + v.whileLacking() + ": " + strings.Join(v.lacking, "; "), outlook: v.uncertified(), resync: rule.Patience}
}

func found(v *view) *verdict {
	if v.hostPath() {
		return v.foundOnNodes()
	}
	return &verdict{message: "making what the initial members need: " + strings.Join(v.epoch.initialNames(), ", "), resync: rule.Patience}
}

// ---- without a quorum's answer

func foreign(v *view) *verdict {
	if v.foreign == 0 {
		return nil
	}
	if !v.epoch.quorate() {
		return &verdict{message: fmt.Sprintf("etcd cluster %s answers and lists none of %s, which have run in another that "+
			"no record names any more; nothing is changed: bring that back, or if its data is of no use, delete their pods and claims",
			hex(v.foreign), strings.Join(v.remains(), ", ")), resync: rule.Patience}
	}
	return &verdict{message: fmt.Sprintf("an etcd with another cluster ID than the recorded %s answered; nothing is changed until that is understood", hex(v.epoch.clusterID)), resync: rule.Patience}
}

func reschedule(v *view) *verdict {
	if v.memory() {
		return nil
	}
	for _, name := range v.names {
		pod := v.Children.Pods[name]
		if pod != nil && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && v.aged(pod) {
			return &verdict{message: fmt.Sprintf("making the pod %s anew: no node takes it, and the template has changed", name), roll: name, resync: rule.Soon}
		}
	}
	return nil
}

func start(v *view) *verdict {
	if why := v.stalled(); why != "" {
		return &verdict{message: why, outlook: v.starts(), resync: rule.Patience}
	}
	initial := v.epoch.initialNames()
	return &verdict{message: fmt.Sprintf("starting %s", strings.Join(initial, ", ")) + v.ailingPods(initial), resync: rule.Soon}
}

func quorumLost(v *view) *verdict {
	lost := v.quorumIsLost()
	if len(lost) == 0 || v.beside() { // foreign members' data is not ours to count
		return nil
	}
	message := fmt.Sprintf("the data of %s is gone, and with it the quorum; ", strings.Join(lost, ", "))
	if v.heir == nil {
		message += "what is left is kept as it is, and nothing is created anew" + v.withoutGivenUp(v.epoch.n)
	} else {
		message += fmt.Sprintf("epoch %d is being made ready: %s", v.heir.epoch.n, v.staging())
	}
	if !v.epoch.quorate() && v.heir == nil {
		message += "; " + v.anew()
	}
	if way := v.suggested(); v.epoch.quorate() && way != "" && (v.heir == nil || v.byWish()) {
		message += "; " + way
	}
	return &verdict{message: message + "; see QuorumLost in docs/failure-modes.md", outlook: v.heirComes(), resync: rule.Patience}
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
		return pod != nil && !finished(pod) && !v.barred(pod)
	}
	return !slices.Contains(v.grounds(name), nil)
}

func blind(v *view) *verdict {
	silent := filter(v.knownVoters(), func(n string) bool { return !v.Health[n].Serving() || !v.asked(n) })
	message := fmt.Sprintf("no quorum answers (silent: %s); nothing is changed, pods are kept or brought back", strings.Join(silent, ", ")) + v.ailingPods(silent)
	if v.heir != nil {
		message += fmt.Sprintf("; epoch %d is being made ready: %s", v.heir.epoch.n, v.staging())
	}
	if deaf := filter(v.names, func(n string) bool { return v.deaf(v.Health[n]) }); len(deaf) > 0 {
		message += fmt.Sprintf("; %s run since before there was the authority that signs now, and must be restarted to trust it: see Deaf in docs/failure-modes.md", strings.Join(deaf, ", "))
	}
	if left := v.leftBehind(); len(left) > 0 {
		message += fmt.Sprintf("; pods that have never run and were made from an earlier spec: %s; delete them, and they are made from this one", strings.Join(left, ", "))
	}
	return &verdict{message: message, outlook: v.deafened(), resync: rule.Patience}
}

// leftBehind are the pods that came back, have never run, and are not as the spec has them now. They may wait for what it no longer names,
// as a Secret. Quorate takes none away while blind: it can't know whether one runs by now (S11).
func (v *view) leftBehind() []string {
	return filter(v.names, func(name string) bool {
		pod := v.Children.Pods[name]
		return v.epoch.quorate() && pod != nil && v.aged(pod) && neverRan(pod) && !prepareRefused(pod)
	})
}

func (v *view) asked(name string) bool { _, ok := v.Health[name]; return ok }
