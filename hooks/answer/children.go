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
	facts.ModeStopping:        {record: noRecord, claims: endedClaims, pods: noPods},
	facts.ModeUnrecorded:      {record: newRecord, claims: allClaims, pods: allPods},
	facts.ModePaused:          {record: advance, claims: allClaims, pods: lastPods},
	facts.ModeCreatingVolumes: {record: advance, claims: initialClaims, pods: initialPods},
	facts.ModeStarting:        {record: advance, claims: allClaims, pods: blindPods},
	facts.ModeBlind:           {record: advance, claims: allClaims, pods: blindPods},
	facts.ModeHasQuorum:       {record: advance, claims: listedClaims, pods: listedPods},
}

func noRecord(*facts.Facts, *decision.Plan) *corev1.ConfigMap { return nil }

func noPods(*facts.Facts, *decision.Plan) []*corev1.Pod { return nil }

func allClaims(f *facts.Facts, _ *decision.Plan) []*corev1.PersistentVolumeClaim {
	return keptClaims(f, f.Names)
}

func allPods(f *facts.Facts, _ *decision.Plan) []*corev1.Pod { return keptPods(f, f.Names) }

func lastPods(f *facts.Facts, _ *decision.Plan) []*corev1.Pod {
	return keptPods(f, f.ProtectingPods())
}

// desired are everything that should exist now.
func desired(f *facts.Facts, plan *decision.Plan) decision.Desired {
	if f.Mode() == facts.ModeHeldBack {
		return AsObserved(f.OfAllEpochs())
	}
	in := makings[f.ModeOfEpoch()]
	d := decision.Desired{Services: services(f), Budgets: []*policyv1.PodDisruptionBudget{budget(f)},
		Policies: Policies(f),
		Secrets:  Secrets(f), Certificates: certificates(f), ConfigMaps: records(f, in, plan)}
	d.Claims = append(formerClaims(f), in.claims(f, plan)...)
	d.Pods = in.pods(f, plan)
	if f.Next != nil && !f.Cancelled() {
		claims, pods := preparedChildren(f.Next)
		d.Claims = append(d.Claims, claims...)
		d.Pods = append(d.Pods, pods...)
	}
	d.Pods = append(d.Pods, inspectPods(f, plan)...)
	d.Pods = objects.Filter(d.Pods, func(pod *corev1.Pod) bool { return f.MayExist(pod) })
	for _, pod := range d.Pods {
		if pod.UID == "" {
			objects.Literal(&pod.Spec)
		}
	}
	d.Pods = append(d.Pods, strangePods(f)...)
	return d
}

// preparedChildren are the claims and pods of an epoch that is to take over. A survivor's volume is copied when it is
// known which.
func preparedChildren(f *facts.Facts) ([]*corev1.PersistentVolumeClaim, []*corev1.Pod) {
	if f.Epoch.Source == record.SourceSurvivor && f.Epoch.Survivor == "" {
		return keptClaims(f, f.Names), keptPods(f, f.Names)
	}
	in := makings[f.ModeOfEpoch()]
	claims := in.claims(f, &decision.Plan{})
	pods := in.pods(f, &decision.Plan{})
	for _, pod := range pods {
		if f.PredecessorGone && facts.Awaits(pod) {
			pod.Annotations[objects.AnnotationPredecessorGone] = "yes"
		}
	}
	return claims, pods
}

// listedPods are the pods of the listed members, and of those that are made ready to be added. That of the one that
// joins, or is added next, is for the place of the member that it succeeds.
func listedPods(f *facts.Facts, plan *decision.Plan) []*corev1.Pod {
	list := sortPods(append(memberPods(f, plan), aheadPods(f)...))
	leaves, _ := f.LostVoter()
	if leaves == nil {
		leaves, _ = f.VoterToSucceed()
	}
	successor := f.NextMember()
	if l := f.Learner(); l != nil {
		successor = l.PodName
	}
	for _, pod := range list {
		if leaves != nil && pod.Name == successor && pod.UID == "" {
			succeeds(f.Cluster, pod, leaves.PodName)
		}
	}
	return list
}

// initialClaims are the claims of the initial members. None is made when etcd answers: then the cluster runs, and the
// record that we see is an old one.
func initialClaims(f *facts.Facts, _ *decision.Plan) []*corev1.PersistentVolumeClaim {
	if !f.OnClaims() || f.Etcd != nil {
		return keptClaims(f, f.Names)
	}
	return claims(f, objects.Union(f.Names, f.Epoch.InitialNames()),
		func(name string) bool { return f.Epoch.Initial[name] != "" })
}

// listedClaims are the claims of the listed members and of those that are made ready to be added, and those of members
// that etcd has let go but whose numbers are not yet recorded as used (S7, S9), or that are kept in quarantine.
func listedClaims(f *facts.Facts, plan *decision.Plan) []*corev1.PersistentVolumeClaim {
	readied := f.Readied()
	names := objects.Union(f.Names, readied)
	all := claims(f, names, func(name string) bool {
		if m := f.Find(name); m != nil {
			return f.OnClaims() && f.MayBeMade(m)
		}
		return slices.Contains(readied, name) && f.Epoch.Recorded(name) == ""
	})
	list := objects.Filter(all, func(c *corev1.PersistentVolumeClaim) bool {
		member, _ := facts.MemberOfClaim(f.Cluster.Name, c.Name)
		old := f.Children.Claims[c.Name]
		if taken := f.All.Claims[c.Name]; old == nil && taken != nil && facts.MadeFor(taken) != f.Epoch.N {
			return false // it was made for the next epoch, and goes with that
		}
		if old == nil || f.Find(member) != nil {
			return true
		}
		return !f.OrdinalReserved(member) && !f.Dropped(member) || !f.Ours(old) || claimKept(f, old)
	})
	quarantine(f, list, plan)
	return list
}

// records are the epoch's record, with annotations that only ever move forward, and whatever other ConfigMaps are ours.
func records(f *facts.Facts, in making, plan *decision.Plan) []*corev1.ConfigMap {
	current := in.record(f, plan)
	next := nextRecord(f, plan)
	var list []*corev1.ConfigMap
	for _, name := range slices.Sorted(maps.Keys(f.Children.ConfigMaps)) {
		cm := f.Children.ConfigMaps[name]
		is := func(record *corev1.ConfigMap) bool { return record != nil && record.Name == name }
		if !is(current) && !is(next) && !f.Leftover(cm) {
			list = append(list, facts.Kept(f.Cluster, cm))
		}
	}
	for _, record := range []*corev1.ConfigMap{current, next, plan.NextEpoch} {
		if record != nil {
			record.Labels = objects.Labels(f.Cluster, nil)
			record.Annotations = objects.Annotations(f.Cluster, record.Annotations)
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
