package model

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	rec "github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/hooks/stores"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// Deciders are the mutants' decisions, by name.
var Deciders = map[string]func(observation.Observation) decision.Decision{
	"knowsNoAPIServer": knowsNoAPIServer,
	"letsTheUnreadyGo": letsTheUnreadyGo,
	"seesNoBudget":     seesNoBudget,
	"suspendsAtOnce":   suspendsAtOnce,
	"promotesUnasked":  promotesUnasked,
	"freezesBlind":     freezesBlind,
	"tidiesClaims":     tidiesClaims,
	"reusesNames":      reusesNames,
	"neverWaits":       neverWaits,
	"trustsStatus":     trustsStatus,
	"rollsUnrecorded":  rollsUnrecorded,
	"seesNoExchange":   seesNoExchange,
	"hopsEarly":        hopsEarly,
	"shrinksAnyway":    shrinksAnyway,
	"beginsUnwaited":   beginsUnwaited,
	"keepsRecord":      keepsRecord,
	"opensEarly":       opensEarly,
	"choosesByName":    choosesByName,
	"raisesByTheSame":  raisesByTheSame,
	"fetchesAnything":  fetchesAnything,
	"leavesNothing":    leavesNothing,
	"believesPods":     believesPods,
	"retiresUnasked":   retiresUnasked,
	"retiresEarly":     retiresEarly,
	"knowsNoOthers":    knowsNoOthers,
	"beginsItsOwn":     beginsItsOwn,
	"signsEarly":       signsEarly,
	"rollsAll":         rollsAll,
	"serversFirst":     serversFirst,
}

// decider stands for hooks.Decide; nil is the shipped one.
type decider func(observation.Observation) decision.Decision

// sees is the decision on other objects: copies, each changed.
func sees[T interface{ DeepCopy() T }](all map[string]T, change func(T)) map[string]T {
	others := map[string]T{}
	for name, o := range all {
		others[name] = o.DeepCopy()
		change(others[name])
	}
	return others
}

// asks is a decision in which objects are others: copies, each changed.
func asks[T interface{ DeepCopy() T }](all []T, change func(T)) (others []T) {
	for _, o := range all {
		others = append(others, o.DeepCopy())
		change(others[len(others)-1])
	}
	return others
}

// ofAnother decides for a cluster that says something else.
func ofAnother(o observation.Observation, change func(*v1beta1.EtcdCluster)) decision.Decision {
	o.Cluster = o.Cluster.DeepCopy()
	change(o.Cluster)
	return hooks.Decide(o)
}

// knowsNoAPIServer decides as for any other etcd; what Verify is shown has the field.
func knowsNoAPIServer(o observation.Observation) decision.Decision {
	return ofAnother(o, func(c *v1beta1.EtcdCluster) { c.Spec.SelfHosted = false })
}

// letsTheUnreadyGo has a budget that protects members which are ready alone.
func letsTheUnreadyGo(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	for _, b := range d.Children.Budgets {
		b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	}
	return d
}

// seesNoBudget decides without a look at the budget that there is.
func seesNoBudget(o observation.Observation) decision.Decision {
	o.Children.Budgets = nil
	return hooks.Decide(o)
}

// suspendsAtOnce does not wait for the end of what is under way.
func suspendsAtOnce(o observation.Observation) decision.Decision {
	return ofAnother(o, func(c *v1beta1.EtcdCluster) { c.Status.Rule = "Suspended" })
}

// promotesUnasked believes that every learner serves and has caught up.
func promotesUnasked(o observation.Observation) decision.Decision {
	if o.Etcd != nil {
		o.Health = maps.Clone(o.Health)
		for _, m := range o.Etcd.Members {
			if m.Learner && m.Started() {
				o.Health[m.Name] = observation.Health{ClusterID: o.Etcd.ClusterID, MemberID: m.ID,
					Leader: o.Etcd.Leader, Learner: true, RaftIndex: 100}
			}
		}
	}
	return hooks.Decide(o)
}

// freezesBlind leaves everything as it is while no quorum answers.
func freezesBlind(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if o.Etcd == nil && d.Reason.Rule == "Blind" {
		d.Children, _ = answer.Finalize(o)
	}
	return d
}

// tidiesClaims deletes the claims that have no pod.
func tidiesClaims(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	d.Children.Claims = slices.DeleteFunc(slices.Clone(d.Children.Claims), func(c *corev1.PersistentVolumeClaim) bool {
		return o.Etcd != nil && o.Children.Claims[c.Name] != nil && o.Children.Pods[c.Name] == nil
	})
	return d
}

// reusesNames gives a new member the lowest number of which nothing is seen.
func reusesNames(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if _, adds := d.Step.(decision.AddLearner); !adds {
		return d
	}
	taken := func(name string) bool {
		return o.Children.Pods[name] != nil || o.Children.Claims[name] != nil || slices.ContainsFunc(o.Etcd.Members,
			func(m observation.Member) bool {
				return slices.Contains(m.PeerURLs, objects.PeerURL(o.Cluster, name, ""))
			})
	}
	n := 0
	for taken(objects.MemberName(o.Cluster.Name, n)) {
		n++
	}
	name := objects.MemberName(o.Cluster.Name, n)
	d.Step = decision.AddLearner{Name: name, PeerURL: objects.PeerURL(o.Cluster, name, "")}
	return d
}

// neverWaits takes every member for one that has been there for long.
func neverWaits(o observation.Observation) decision.Decision {
	c := o.Cluster.DeepCopy()
	c.Status.Members = nil
	if o.Etcd != nil {
		for _, m := range o.Etcd.Members {
			c.Status.Members = append(c.Status.Members, v1beta1.MemberStatus{Name: m.Name, ID: hexID(int(m.ID) - 1),
				JoinTime: metav1.Unix(1, 0)})
		}
	}
	d := hooks.Decide(observation.Observation{Cluster: c, Children: o.Children, Etcd: o.Etcd, Health: o.Health,
		Taken: o.Taken, Now: o.Now, Settings: o.Settings})
	d.Status.Members = nil
	return d
}

// trustsStatus begins a new cluster when the status knows of none.
func trustsStatus(o observation.Observation) decision.Decision {
	if o.Cluster.Status.ClusterID == "" && o.Etcd == nil {
		o.Children.ConfigMaps = sees(o.Children.ConfigMaps, func(record *corev1.ConfigMap) {
			recordtest.Edit(record, func(r *rec.Record) {
				if r.ClusterID != 0 { // else it has only just begun
					r.StartsOn = nil
					r.ClusterID = 0
				}
			})
		})
	}
	return hooks.Decide(o)
}

// recordOf is the epoch record of an observation or a decision, to be changed.
func recordOf(all map[string]*corev1.ConfigMap) *corev1.ConfigMap {
	return all[objects.EpochName(clusterName, 1)].DeepCopy()
}

// rollsUnrecorded restarts the member that it has just chosen, as if that had been recorded before.
func rollsUnrecorded(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if d.Reason.Rule != "RollingUpdate" {
		return d
	}
	record := recordOf(o.Children.ConfigMaps)
	recordtest.Edit(record, func(r *rec.Record) { r.Choice = recordtest.Says(d.Children.ConfigMaps[0]).Choice })
	chosen := o
	chosen.Children.ConfigMaps = map[string]*corev1.ConfigMap{record.Name: record}
	if d = hooks.Decide(chosen); len(d.Children.ConfigMaps) > 0 {
		recordtest.Edit(d.Children.ConfigMaps[0], func(r *rec.Record) { r.Choice = rec.Choice{} })
	}
	return d
}

// seesNoExchange takes the image that a pod is given for what runs in it.
func seesNoExchange(o observation.Observation) decision.Decision {
	o.Children.Pods = sees(o.Children.Pods, func(p *corev1.Pod) { delete(p.Annotations, objects.AnnotationExchanged) })
	o.Health = maps.Clone(o.Health)
	for name, h := range o.Health {
		h.Version = tagOf(o.Children.Pods[name].Annotations[objects.AnnotationImage])
		o.Health[name] = h
	}
	return hooks.Decide(o)
}

// hopsEarly records the wanted version while the members are still on their way to the one before it.
func hopsEarly(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	record := recordOf(o.Children.ConfigMaps)
	if d.Reason.Rule == "RollingUpdate" && recordtest.Says(record).Version == releases[usualVersion] {
		recordtest.Edit(d.Children.ConfigMaps[0], func(r *rec.Record) { r.Version = o.Cluster.Spec.Version })
	}
	return d
}

// shrinksAnyway removes a follower that serves whenever there are too many voters.
func shrinksAnyway(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if o.Etcd == nil || o.Taken != nil || len(o.Etcd.Members) <= int(*o.Cluster.Spec.Replicas) {
		return d
	}
	for _, m := range slices.Backward(o.Etcd.Members) {
		if m.ID != o.Etcd.Leader && o.Health[m.Name].Serving() {
			d.Step = decision.Remove{ID: m.ID, Name: m.Name}
			return d
		}
	}
	return d
}

// stopping is the record of the epoch that the one before is stopped for; nil for none.
func stopping(o observation.Observation) *corev1.ConfigMap {
	for _, cm := range o.Children.ConfigMaps {
		if recordtest.Says(cm).Phase == rec.PhaseStopping {
			return cm
		}
	}
	return nil
}

// former are the members before those of the record's epoch.
func former(record *corev1.ConfigMap, name string) bool {
	first := recordtest.Says(record).First
	n, err := strconv.Atoi(strings.TrimPrefix(name, clusterName+"-"))
	return err == nil && n < first
}

// beginsUnwaited takes no notice of the pods that still end.
func beginsUnwaited(o observation.Observation) decision.Decision {
	if record := stopping(o); record != nil {
		o.Children.Pods = maps.Clone(o.Children.Pods)
		maps.DeleteFunc(o.Children.Pods, func(name string, _ *corev1.Pod) bool { return former(record, name) })
	}
	return hooks.Decide(o)
}

// keepsRecord lets the record of the epoch before stay, and goes on.
func keepsRecord(o observation.Observation) decision.Decision {
	first := o.Children.ConfigMaps[objects.EpochName(clusterName, 1)]
	second := o.Children.ConfigMaps[objects.EpochName(clusterName, 2)]
	if first == nil || recordtest.Says(second).Phase == rec.PhasePreparing {
		return hooks.Decide(o)
	}
	o.Children.ConfigMaps = maps.Clone(o.Children.ConfigMaps)
	delete(o.Children.ConfigMaps, first.Name)
	d := hooks.Decide(o)
	d.Children.ConfigMaps = append(slices.Clone(d.Children.ConfigMaps), first)
	return d
}

// opensEarly lets members begin as soon as they are filled.
func opensEarly(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	d.Children.Pods = asks(d.Children.Pods, func(pod *corev1.Pod) { pod.Annotations[objects.AnnotationBegins] = "yes" })
	return d
}

// choosesByName takes all logs for equally long.
func choosesByName(o observation.Observation) decision.Decision {
	o.Children.Pods = sees(o.Children.Pods, func(pod *corev1.Pod) {
		if !strings.HasSuffix(pod.Name, "-inspect") || len(pod.Status.ContainerStatuses) == 0 {
			return
		}
		ended := pod.Status.ContainerStatuses[0].State.Terminated
		report, err := stores.Read[stores.Inspection](ended.Message)
		if err != nil {
			panic(err)
		}
		report.LastTerm = 1
		report.LastIndex = 1
		raw, err := json.Marshal(report)
		if err != nil {
			panic(err)
		}
		ended.Message = string(raw)
	})
	return hooks.Decide(o)
}

// reseeded is the decision with other arguments for what fills the data directories.
func reseeded(d decision.Decision, other func(arg string) string) decision.Decision {
	d.Children.Pods = asks(d.Children.Pods, func(pod *corev1.Pod) {
		for j := range pod.Spec.InitContainers {
			if c := &pod.Spec.InitContainers[j]; c.Name == objects.ContainerSeed && pod.UID == "" {
				for k, arg := range c.Args {
					c.Args[k] = other(arg)
				}
			}
		}
	})
	return d
}

// raisesByTheSame raises every revision by a thousand million, wherever it begins.
func raisesByTheSame(o observation.Observation) decision.Decision {
	return reseeded(hooks.Decide(o), func(arg string) string {
		if strings.HasPrefix(arg, "--begin-after=") {
			return "--begin-after=0"
		}
		return arg
	})
}

// fetchesAnything has every member take whatever is there, and compares nothing.
func fetchesAnything(o observation.Observation) decision.Decision {
	o.Children.Pods = sees(o.Children.Pods, func(pod *corev1.Pod) {
		for i := range pod.Status.InitContainerStatuses {
			if s := &pod.Status.InitContainerStatuses[i]; s.Name == objects.ContainerSeed && s.State.Terminated != nil {
				s.State.Terminated.Message = `{"revision":2000000000,"sha256":"any"}`
			}
		}
	})
	d := hooks.Decide(o)
	d.Children.Pods = asks(d.Children.Pods, func(pod *corev1.Pod) {
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == facts.EnvSHA256 })
		}
	})
	return d
}

// leavesNothing drops the claims in quarantine.
func leavesNothing(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if stopping(o) == nil {
		d.Children.Claims = slices.DeleteFunc(slices.Clone(d.Children.Claims),
			func(c *corev1.PersistentVolumeClaim) bool {
				return c.Annotations[objects.AnnotationQuarantined] != ""
			})
	}
	return d
}

// believesPods takes every view of pods for one that shows all, and puts no mark on them.
func believesPods(o observation.Observation) decision.Decision {
	record := stopping(o)
	if record == nil {
		return hooks.Decide(o)
	}
	o.Children.Pods = sees(o.Children.Pods, func(pod *corev1.Pod) {
		if !former(record, pod.Name) {
			pod.Annotations[objects.AnnotationPredecessorGone] = "yes"
		}
	})
	d := hooks.Decide(o)
	d.Children.Pods = asks(d.Children.Pods,
		func(pod *corev1.Pod) { delete(pod.Annotations, objects.AnnotationPredecessorGone) })
	return d
}

// retiresUnasked takes every spec for one which says that the external members go.
func retiresUnasked(o observation.Observation) decision.Decision {
	return ofAnother(o, func(c *v1beta1.EtcdCluster) {
		c.Spec.RemoveExternalMembers = true
	})
}

// retiresEarly is content with one voter of ours.
func retiresEarly(o observation.Observation) decision.Decision {
	return ofAnother(o, func(c *v1beta1.EtcdCluster) {
		if retires(c) == "retire" && o.Etcd != nil {
			c.Spec.Replicas = new(int32(1))
		}
	})
}

// knowsNoOthers never records who was there before.
func knowsNoOthers(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	d.Children.ConfigMaps = asks(d.Children.ConfigMaps, func(cm *corev1.ConfigMap) {
		recordtest.Edit(cm, func(r *rec.Record) {
			r.External = nil
			r.ExternalSince = time.Time{}
		})
	})
	return d
}

// beginsItsOwn looks at spec.bootstrap.external only once a record says so.
func beginsItsOwn(o observation.Observation) decision.Decision {
	record := o.Children.ConfigMaps[firstRecord.Name]
	return ofAnother(o, func(c *v1beta1.EtcdCluster) {
		if recordtest.Says(record).Source != rec.SourceExternal {
			c.Spec.Bootstrap = nil
		}
	})
}

// signsEarly assumes that each member trusts what the Secrets say.
func signsEarly(o observation.Observation) decision.Decision {
	server := o.Children.Secrets[clusterName+"-server-tls"]
	o.Health = maps.Clone(o.Health)
	for name, h := range o.Health {
		if h.Trusts = nil; h.Err == "" && server != nil {
			for _, c := range server.Trust {
				h.Trusts = append(h.Trusts, c.Subject)
			}
		}
		slices.Sort(h.Trusts)
		o.Health[name] = h
	}
	return hooks.Decide(o)
}

// rollsAll deletes all pods when one should be restarted.
func rollsAll(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if d.Reason.Rule == "RollingUpdate" && d.Step == nil && len(d.Children.Pods) == 2 {
		d.Children.Pods = nil
	}
	return d
}

// serversFirst brings every ca.crt up to the authority's at once.
func serversFirst(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	i := slices.IndexFunc(d.Children.Secrets,
		func(s *decision.DesiredSecret) bool { return s.Name == clusterName+"-server-tls" })
	lags := slices.ContainsFunc(d.Children.Secrets,
		func(s *decision.DesiredSecret) bool { _, bundle := s.Make.(decision.Bundle); return bundle })
	if i >= 0 && lags && d.Children.Secrets[i].Make == nil {
		d.Children.Secrets[i].Make = decision.Bundle{Signer: defaults.CASecret(clusterName)}
	}
	return d
}

// firstRecord is the record of the epoch that joins.
var firstRecord = world.Key{Kind: world.ConfigMapKind, Name: objects.EpochName(clusterName, 1)}

// retires is what the spec says of external members, in a word.
func retires(c *v1beta1.EtcdCluster) string {
	switch {
	case joinedExternal(c) == nil:
		return "none"
	case c.Spec.RemoveExternalMembers:
		return "retire"
	}
	return "beside"
}

// joinedExternal is what the spec says of the etcd that is joined; nil for nothing.
func joinedExternal(c *v1beta1.EtcdCluster) *v1beta1.ExternalCluster {
	if c.Spec.Bootstrap == nil {
		return nil
	}
	return c.Spec.Bootstrap.External
}
