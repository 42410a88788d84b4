package answer

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

// making is what becomes of the record, and of the claims and pods of an epoch's members.
type making struct {
	record func(*facts.Facts, *decision.Plan) *corev1.ConfigMap
	claims func(*facts.Facts, *decision.Plan) []*corev1.PersistentVolumeClaim
	pods   func(*facts.Facts, *decision.Plan) []*corev1.Pod
}

// makings are those of the modes. In HeldBack every child stays as it is.
var makings = map[string]making{
	facts.ModeStopping:     {record: noRecord, claims: endedClaims, pods: noPods},
	facts.ModeUnrecorded:   {record: newRecord, claims: allClaims, pods: allPods},
	facts.ModePaused:       {record: advance, claims: allClaims, pods: lastPods},
	facts.ModeProvisioning: {record: advance, claims: initialClaims, pods: initialPods},
	facts.ModeStarting:     {record: advance, claims: allClaims, pods: blindPods},
	facts.ModeBlind:        {record: advance, claims: allClaims, pods: blindPods},
	facts.ModeQuorate:      {record: advance, claims: listedClaims, pods: listedPods},
}

func noRecord(*facts.Facts, *decision.Plan) *corev1.ConfigMap { return nil }

func noPods(*facts.Facts, *decision.Plan) []*corev1.Pod { return nil }

func allClaims(v *facts.Facts, _ *decision.Plan) []*corev1.PersistentVolumeClaim {
	return keptClaims(v, v.Names)
}

func allPods(v *facts.Facts, _ *decision.Plan) []*corev1.Pod { return keptPods(v, v.Names) }

func lastPods(v *facts.Facts, _ *decision.Plan) []*corev1.Pod {
	return keptPods(v, v.ProtectingPods())
}

// desired are everything that should exist now.
func desired(v *facts.Facts, plan *decision.Plan) decision.Desired {
	if v.Mode() == facts.ModeHeldBack {
		return AsObserved(v.OfAllEpochs())
	}
	in := makings[v.ModeOfEpoch()]
	d := decision.Desired{Services: services(v), Budgets: []*policyv1.PodDisruptionBudget{budget(v)},
		Policies: Policies(v),
		Secrets:  Secrets(v), Certificates: certificates(v), ConfigMaps: records(v, in, plan)}
	d.Claims = append(formerClaims(v), in.claims(v, plan)...)
	d.Pods = in.pods(v, plan)
	if v.Next != nil && !v.Cancelled() {
		claims, pods := stagedChildren(v.Next)
		d.Claims, d.Pods = append(d.Claims, claims...), append(d.Pods, pods...)
	}
	d.Pods = append(d.Pods, surveyPods(v, plan)...)
	d.Pods = objects.Filter(d.Pods, func(pod *corev1.Pod) bool { return v.MayExist(pod) })
	for _, pod := range d.Pods {
		if pod.UID == "" {
			objects.Literal(&pod.Spec)
		}
	}
	d.Pods = append(d.Pods, strangePods(v)...)
	return d
}

// stagedChildren are the claims and pods of an epoch that is to take over. A survivor's volume is copied when it is
// known which.
func stagedChildren(v *facts.Facts) ([]*corev1.PersistentVolumeClaim, []*corev1.Pod) {
	if v.Epoch.Source == record.SourceSurvivor && v.Epoch.Survivor == "" {
		return keptClaims(v, v.Names), keptPods(v, v.Names)
	}
	in := makings[v.ModeOfEpoch()]
	claims, pods := in.claims(v, &decision.Plan{}), in.pods(v, &decision.Plan{})
	for _, pod := range pods {
		if v.PredecessorGone && facts.Awaits(pod) {
			pod.Annotations[objects.AnnotationPredecessorGone] = "yes"
		}
	}
	return claims, pods
}

// listedPods are the pods of the listed members. A learner's is for the place of the member that it succeeds.
func listedPods(v *facts.Facts, plan *decision.Plan) []*corev1.Pod {
	list := memberPods(v, plan)
	leaves, _ := v.LostVoter()
	if leaves == nil {
		leaves, _ = v.VoterToSucceed()
	}
	l := v.Learner()
	if leaves == nil || l == nil {
		return list
	}
	for _, pod := range list {
		if pod.Name == l.PodName && pod.UID == "" {
			succeeds(v.Cluster, pod, leaves.PodName)
		}
	}
	return list
}

// initialClaims are the claims of the initial members. None is made when etcd answers: then the cluster runs, and the
// record that we see is an old one.
func initialClaims(v *facts.Facts, _ *decision.Plan) []*corev1.PersistentVolumeClaim {
	if !v.OnClaims() || v.Etcd != nil {
		return keptClaims(v, v.Names)
	}
	return claims(v, objects.Union(v.Names, v.Epoch.InitialNames()),
		func(name string) bool { return v.Epoch.Initial[name] != "" })
}

// listedClaims are the claims of the listed members, and those of members that etcd has let go but whose numbers are
// not yet recorded as used (S7, S9), or that are kept in quarantine.
func listedClaims(v *facts.Facts, plan *decision.Plan) []*corev1.PersistentVolumeClaim {
	all := claims(v, v.Names, func(name string) bool {
		m := v.Find(name)
		return v.OnClaims() && m != nil && v.MayBeMade(m)
	})
	list := objects.Filter(all, func(c *corev1.PersistentVolumeClaim) bool {
		member, _ := facts.MemberOfClaim(v.Cluster.Name, c.Name)
		old := v.Children.Claims[c.Name]
		if taken := v.All.Claims[c.Name]; old == nil && taken != nil && facts.MadeFor(taken) != v.Epoch.N {
			return false // it was made for the next epoch, and goes with that
		}
		return old == nil || v.Find(member) != nil || !v.OrdinalReserved(member) || !v.Ours(old) ||
			claimKept(v, old)
	})
	quarantine(v, list, plan)
	return list
}

// records are the epoch's record, with annotations that only ever move forward, and whatever other ConfigMaps are ours.
func records(v *facts.Facts, in making, plan *decision.Plan) []*corev1.ConfigMap {
	current := in.record(v, plan)
	next := nextRecord(v, plan)
	var list []*corev1.ConfigMap
	for _, name := range slices.Sorted(maps.Keys(v.Children.ConfigMaps)) {
		cm := v.Children.ConfigMaps[name]
		if (current == nil || current.Name != name) && (next == nil || next.Name != name) && !v.Leftover(cm) {
			list = append(list, facts.Kept(v.Cluster, cm))
		}
	}
	for _, record := range []*corev1.ConfigMap{current, next, plan.NextEpoch} {
		if record != nil {
			record.Labels = objects.Labels(v.Cluster, nil)
			record.Annotations = objects.Annotations(v.Cluster, record.Annotations)
			list = append(list, record)
		}
	}
	return list
}

// AsObserved are the children as they are, all of them: the answer that changes nothing.
func AsObserved(o observation.Observation) decision.Desired {
	return decision.Desired{
		Services:     facts.KeptServices(o),
		Budgets:      facts.KeptAll(o.Cluster, o.Children.Budgets),
		Policies:     facts.KeptAll(o.Cluster, o.Children.Policies),
		Secrets:      facts.KeptSecrets(o),
		Certificates: facts.KeptAll(o.Cluster, o.Children.Certificates),
		ConfigMaps:   facts.KeptAll(o.Cluster, o.Children.ConfigMaps),
		Claims:       facts.KeptAll(o.Cluster, o.Children.Claims),
		Pods:         facts.KeptAll(o.Cluster, o.Children.Pods),
	}
}
