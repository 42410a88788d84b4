package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rollout"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// desired are everything that should exist now. What becomes of the record, the claims and the pods is the mode's to
// say.
func desired(v *state.View, in *mode, verdict *decision.Verdict) decision.Desired {
	if in.pods == nil {
		return AsObserved(epochs.OfAllEpochs(v))
	}
	d := decision.Desired{Services: children.Services(v), Budgets: []*policyv1.PodDisruptionBudget{children.Budget(v)},
		Policies: children.Policies(v),
		Secrets:  children.Secrets(v), Certificates: certificates.Certificates(v), ConfigMaps: records(v, in, verdict)}
	d.Claims = append(epochs.FormerClaims(v), in.claims(v, verdict)...)
	d.Pods = in.pods(v, verdict)
	if v.Next != nil && !epochs.Cancelled(v) {
		claims, pods := stagedChildren(v.Next)
		d.Claims, d.Pods = append(d.Claims, claims...), append(d.Pods, pods...)
	}
	d.Pods = append(d.Pods, epochs.SurveyPods(v, verdict)...)
	d.Pods = wording.Filter(d.Pods, func(pod *corev1.Pod) bool { return certificates.MayExist(v, pod) })
	for _, pod := range d.Pods {
		if pod.UID == "" {
			objects.Literal(&pod.Spec)
		}
	}
	d.Pods = append(d.Pods, children.StrangePods(v)...)
	return d
}

// stagedChildren are the claims and pods of an epoch that is to take over. A survivor's volume is copied when it is
// known which.
func stagedChildren(v *state.View) ([]*corev1.PersistentVolumeClaim, []*corev1.Pod) {
	if v.Epoch.Source == record.SourceSurvivor && v.Epoch.Survivor == "" {
		return volumes.KeptClaims(v, v.Names), children.KeptPods(v, v.Names)
	}
	in := modeOfNext(v)
	claims, pods := in.claims(v, &decision.Verdict{}), in.pods(v, &decision.Verdict{})
	for _, pod := range pods {
		if v.PredecessorGone && epochs.Awaits(pod) {
			pod.Annotations[objects.AnnotationPredecessorGone] = "yes"
		}
	}
	return claims, pods
}

// listedPods are the pods of the listed members. A learner's is for the place of the member that it succeeds.
func listedPods(v *state.View, verdict *decision.Verdict) []*corev1.Pod {
	list := children.ListedPods(v, verdict)
	leaves, _ := rollout.LostVoter(v)
	if leaves == nil {
		leaves, _ = rollout.VoterToSucceed(v)
	}
	l := v.Learner()
	if leaves == nil || l == nil {
		return list
	}
	for _, pod := range list {
		if pod.Name == l.PodName && pod.UID == "" {
			children.Succeeds(v.Cluster, pod, leaves.PodName)
		}
	}
	return list
}

// initialClaims are the claims of the initial members. None is made when etcd answers: then the cluster runs, and the
// record that we see is an old one.
func initialClaims(v *state.View, _ *decision.Verdict) []*corev1.PersistentVolumeClaim {
	if !v.OnClaims() || v.Etcd != nil {
		return volumes.KeptClaims(v, v.Names)
	}
	return volumes.Claims(v, wording.Union(v.Names, v.Epoch.InitialNames()),
		func(name string) bool { return v.Epoch.Initial[name] != "" })
}

// listedClaims are the claims of the listed members, and those of members that etcd has let go but whose numbers are
// not yet recorded as used (S7, S9), or that are kept in quarantine.
func listedClaims(v *state.View, verdict *decision.Verdict) []*corev1.PersistentVolumeClaim {
	all := volumes.Claims(v, v.Names, func(name string) bool {
		m := v.Find(name)
		return v.OnClaims() && m != nil && v.MayBeMade(m)
	})
	list := wording.Filter(all, func(c *corev1.PersistentVolumeClaim) bool {
		member, _ := state.MemberOfClaim(v.Cluster.Name, c.Name)
		old := v.Children.Claims[c.Name]
		if taken := v.All.Claims[c.Name]; old == nil && taken != nil && epochs.MadeFor(taken) != v.Epoch.N {
			return false // it was made for the next epoch, and goes with that
		}
		return old == nil || v.Find(member) != nil || !state.OrdinalReserved(v, member) || !v.Ours(old) ||
			claimKept(v, old)
	})
	quarantine(v, list, verdict)
	return list
}

// records are the epoch's record, with annotations that only ever move forward, and whatever other ConfigMaps are ours.
func records(v *state.View, in *mode, verdict *decision.Verdict) []*corev1.ConfigMap {
	current := in.record(v, verdict)
	next := epochs.NextRecord(v, verdict)
	var list []*corev1.ConfigMap
	for _, name := range slices.Sorted(maps.Keys(v.Children.ConfigMaps)) {
		cm := v.Children.ConfigMaps[name]
		if (current == nil || current.Name != name) && (next == nil || next.Name != name) && !epochs.Leftover(v, cm) {
			list = append(list, state.Kept(v.Cluster, cm))
		}
	}
	for _, record := range []*corev1.ConfigMap{current, next, verdict.NextRecord} {
		if record != nil {
			record.Labels = objects.Labels(v.Cluster, nil)
			record.Annotations = objects.Annotations(v.Cluster, record.Annotations)
			list = append(list, record)
		}
	}
	return list
}
