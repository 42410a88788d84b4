package model

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	rec "github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (j *judge) observation(s *sight) observation.Observation {
	c := j.parents.of(s.view.parent, func() *v1beta1.EtcdCluster { return j.cluster(&s.view.parent) })
	o := observation.Observation{Cluster: c, Now: now, Settings: observation.Settings{
		Images: objects.Images{Image: "quorate"}}, Health: map[string]observation.Health{}}
	o.Children = observation.Children{Pods: map[string]*corev1.Pod{},
		Claims: map[string]*corev1.PersistentVolumeClaim{}, ConfigMaps: map[string]*corev1.ConfigMap{}}
	for n := range maxMembers {
		if p := s.view.pods[n]; p.uid != 0 {
			o.Children.Pods[name(n)] = j.pods.of(numbered[pod]{n, p}, func() *corev1.Pod { return j.pod(c, n, &p) })
			if p.bound {
				o.Health[name(n)] = s.health(n)
			}
		}
		if c := &s.view.claims[n]; c.uid != 0 {
			o.Children.Claims[name(n)] = j.claims.of(numbered[claim]{n, *c},
				func() *corev1.PersistentVolumeClaim { return claimObject(n, c) })
		}
	}
	if s.view.record.exists {
		r := j.records.of(s.view.record, func() *corev1.ConfigMap { return j.recordObject(c, &s.view.record) })
		o.Children.ConfigMaps[r.Name] = r
	}
	if s.budget != (budget{}) {
		o.Children.Budgets = map[string]*policyv1.PodDisruptionBudget{clusterName: {
			ObjectMeta: metav1.ObjectMeta{Name: clusterName},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt(int(s.budget.least)))}}}
	}
	if !s.blind {
		o.Etcd = s.membership(c)
	}
	if s.done.kind != noStep {
		o.Taken = &decision.Outcome{Step: s.done.as(c)}
		if s.failed {
			o.Taken.Err = "refused"
		}
	}
	return o
}

func (j *judge) cluster(p *parent) *v1beta1.EtcdCluster {
	c := &v1beta1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName, Namespace: "default", UID: clusterUID,
		Generation: 1}}
	c.Spec = v1beta1.EtcdClusterSpec{
		DeletionPolicy: v1beta1.DeletionDelete,
		Replicas:       new(int32(p.replicas)), Version: releases[p.version], PriorityClassName: template(p.template),
		UpgradePolicy: v1beta1.UpgradeStep,
		Storage:       v1beta1.StorageSpec{Medium: j.medium, Size: oneGi},
		TLS:           v1beta1.TLSSpec{Mode: v1beta1.TLSDisabled},
	}
	c.Spec.SelfHosted, c.Spec.DeletionProtection = j.selfHosted, j.selfHosted
	c.Spec.Spares = int32(j.spares)
	p.refused.ask(&c.Spec)
	if p.status.hasID {
		c.Status.ClusterID = strconv.FormatUint(clusterID, 16)
	}
	for n := range (p.status.voters | p.status.learners).All {
		m := v1beta1.MemberStatus{Name: name(n), ID: hexID(n), Role: v1beta1.Voter, JoinTime: metav1.NewTime(now)}
		if p.status.learners.Has(n) {
			m.Role = v1beta1.Learner
			if j.spares > 0 {
				m.Role = v1beta1.Spare // and not late, as long as it is not known since when it does not serve
			}
		}
		if p.status.old.Has(n) {
			m.JoinTime.Time = now.Add(-time.Hour)
		}
		c.Status.Members = append(c.Status.Members, m)
	}
	return c
}

var oneGi = resource.MustParse("1Gi")

func owned(n int, uid types.UID, leaving bool) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name(n), Namespace: "default", UID: uid,
		OwnerReferences: []metav1.OwnerReference{{UID: clusterUID}}}
	if leaving {
		m.DeletionTimestamp = &metav1.Time{Time: now.Add(30 * time.Second)}
	}
	return m
}

func claimObject(n int, c *claim) *corev1.PersistentVolumeClaim {
	o := &corev1.PersistentVolumeClaim{ObjectMeta: owned(n, claimUID(n, c.uid), c.deleting)}
	o.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: oneGi}
	o.Status.Phase, o.Status.Capacity = corev1.ClaimBound, o.Spec.Resources.Requests
	return o
}

func (j *judge) pod(c *v1beta1.EtcdCluster, n int, p *pod) *corev1.Pod {
	o := &corev1.Pod{ObjectMeta: owned(n, podUID(n, p.uid), p.deleting != stays)}
	if p.deleting == overdue {
		o.DeletionTimestamp.Time = now.Add(-time.Hour)
	}
	o.Annotations = map[string]string{
		objects.AnnotationStart:    starts[p.start],
		objects.AnnotationTemplate: j.templates()[p.template],
		objects.AnnotationImage:    image(p.version),
	}
	if p.start == joins && p.told != 0 {
		o.Annotations[objects.AnnotationInitialCluster] = objects.FormatPairs(initialCluster(c, p.told), "=")
	}
	if p.oldFlags != oldFlags(p.version) {
		o.Annotations[objects.AnnotationFlagsFor] = releases[map[bool]uint8{true: minorBefore,
			false: usualVersion}[p.oldFlags]]
	}
	if p.exchanged {
		o.Annotations[objects.AnnotationExchanged] = container(p.turn)
	}
	if p.withdrawn != notWithdrawn {
		o.Annotations[objects.AnnotationWithdrawn] = withdrawnSince(p.withdrawn).Format(time.RFC3339)
	}
	o.Spec.Containers = []corev1.Container{{Name: objects.ContainerEtcd, Image: image(p.version)}}
	if p.gated {
		o.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}}
	}
	if p.waits {
		o.Spec.Volumes = []corev1.Volume{{Name: facts.VolumeGate}, objects.ClaimVolume(facts.VolumeData, name(n))}
		o.Spec.InitContainers = []corev1.Container{{Name: objects.ContainerPrepare, Env: ofFirstEpoch}}
	}
	if p.bound {
		o.Spec.NodeName, o.Status.PodIP = "node", "10.0.0.1"
	}
	o.Status.Phase = corev1.PodPending
	if p.waits && p.bound {
		prepare, etcd := kubelet.AtGate.Report("", corev1.ContainerStatus{})
		o.Status.InitContainerStatuses = []corev1.ContainerStatus{prepare}
		o.Status.ContainerStatuses = []corev1.ContainerStatus{etcd}
	}
	if p.status != pending {
		was := corev1.ContainerStatus{}
		if p.ran() {
			was.ContainerID = container(p.turn)
		}
		prepare, etcd := stages[p.status].Report("", was)
		if p.fresh {
			etcd.State.Running.StartedAt = metav1.NewTime(now)
		}
		o.Status.InitContainerStatuses = []corev1.ContainerStatus{prepare}
		o.Status.ContainerStatuses = []corev1.ContainerStatus{etcd}
		o.Status.Phase = kubelet.Phase(etcd)
	}
	return o
}

// ofFirstEpoch is how a pod names its epoch's record.
var ofFirstEpoch = []corev1.EnvVar{{Name: facts.EnvEpoch, ValueFrom: &corev1.EnvVarSource{
	ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: objects.EpochName(clusterName, 1)}}}}}

// stages are those of a pod of which more than nothing is reported.
var stages = [...]kubelet.Stage{runs: kubelet.Running, crashes: kubelet.Crashing, refused: kubelet.Refused,
	refusedAgain: kubelet.Refused, unpulled: kubelet.Unpulled, unpulledAgain: kubelet.Unpulled}

// withdrawnSince is the time of which a pod, or a removal, says so.
func withdrawnSince(withdrawn uint8) time.Time {
	return map[uint8]time.Time{justWithdrawn: now, longWithdrawn: now.Add(-time.Hour)}[withdrawn]
}

// container is the ID of the container that was reported last.
func container(turn uint8) string { return fmt.Sprintf("containerd://%d", turn) }

func image(version uint8) string { return "gcr.io/etcd-development/etcd:v" + releases[version] }

func (j *judge) recordObject(c *v1beta1.EtcdCluster, r *record) *corev1.ConfigMap {
	starts := map[string]types.UID{}
	for n := range r.started().All {
		starts[name(n)] = j.ground(n, r.startsOn[n])
	}
	for n := range r.dropped.All {
		starts[name(n)] = facts.NothingStarts
	}
	var says rec.Record
	says.Source = rec.SourceEmpty
	says.Initial = initialCluster(c, r.initial)
	says.NextOrdinal = int(r.next)
	says.Version = releases[r.version]
	if r.choice.member > 0 {
		says.Choice = r.choice.recorded()
	}
	if r.founded {
		says.StartsOn = starts
	}
	if r.quorate {
		says.ClusterID = clusterID
	}
	o := rec.New(c, 1, says)
	o.Namespace = "default"
	o.UID = "record"
	return o
}

// recorded is a choice as the record says it.
func (c choice) recorded() rec.Choice {
	n := int(c.member) - 1
	if c.removes {
		return rec.Choice{Name: name(n), Removes: true, Withdrawn: withdrawnSince(c.withdrawn)}
	}
	r := rec.Choice{Name: name(n), Pod: string(podUID(n, c.pod))}
	switch {
	case c.turn == unseenTurn:
		r.Container = noContainer
	case c.turn > 0:
		r.Container = container(c.turn - 1)
	}
	return r
}

// noContainer is the container of a pod in which none was seen yet.
const noContainer = "-"

// readChoice is a choice that the record says.
func readChoice(r rec.Choice) (c choice) {
	if r.Name == "" {
		return choice{}
	}
	c.member = number(r.Name) + 1
	c.removes = r.Removes
	switch {
	case r.Removes && r.Withdrawn.Equal(now):
		c.withdrawn = justWithdrawn
	case r.Removes && !r.Withdrawn.IsZero():
		c.withdrawn = longWithdrawn
	case r.Removes:
	default:
		c.pod = lastNumber(r.Pod)
	}
	switch r.Container {
	case "":
	case noContainer:
		c.turn = unseenTurn
	default:
		c.turn = lastNumber(r.Container) + 1
	}
	return c
}

// lastNumber is the last part of a UID, or of the ID of a container.
func lastNumber(id string) uint8 {
	n, err := strconv.Atoi(id[strings.LastIndex(id, "/")+1:])
	if err != nil {
		panic(fmt.Sprintf("%q ends with no number", id))
	}
	return uint8(n)
}

// ground is the UID of what a member starts on.
func (j *judge) ground(n int, uid uint8) types.UID {
	if j.medium == v1beta1.Memory {
		return podUID(n, uid)
	}
	return claimUID(n, uid)
}

// initialCluster is the list as etcd is told it.
func initialCluster(c *v1beta1.EtcdCluster, members set) map[string]string {
	urls := map[string]string{}
	for n := range members.All {
		urls[name(n)] = objects.PeerURL(c, name(n), "")
	}
	return urls
}

func (s *sight) health(n int) observation.Health {
	if !s.answering.Has(n) {
		return observation.Health{Err: "connection refused"}
	}
	h := observation.Health{ClusterID: clusterID, MemberID: memberID(n), RaftTerm: 1, RaftIndex: 100,
		Version: releases[s.versions[n]]}
	if s.agreed != 0 && minorOf(s.versions[n]) >= 6 {
		h.StorageVersion = base(s.agreed)
	}
	if s.agreed != 0 && s.lowered != 0 && minorOf(s.versions[n]) >= 6 {
		h.Downgrade = base(s.lowered)
	}
	if s.behind.Has(n) {
		h.RaftIndex = 1
	}
	h.Learner = s.list.learners.Has(n) || s.behind.Has(n)
	if s.following.Has(n) {
		h.Leader = memberID(max(0, int(s.leader)-1))
	}
	if s.nospace {
		h.Alarms = []string{"NOSPACE"}
	}
	return h
}

// base is a minor version as etcd's own protocols say it.
func base(minor uint8) string { return fmt.Sprintf("3.%d.0", minor) }

func (s *sight) membership(c *v1beta1.EtcdCluster) *observation.Membership {
	m := &observation.Membership{ClusterID: clusterID}
	if s.leader > 0 {
		m.Leader = memberID(int(s.leader) - 1)
	}
	for n := range (s.list.voters | s.list.learners).All {
		e := observation.Member{ID: memberID(n), PeerURLs: []string{objects.PeerURL(c, name(n), "")},
			Learner: s.list.learners.Has(n)}
		if s.published.Has(n) {
			e.Name, e.ClientURLs = name(n), []string{objects.ClientURL(c, name(n), "")}
		}
		m.Members = append(m.Members, e)
	}
	return m
}

func (t step) as(c *v1beta1.EtcdCluster) decision.Step {
	who, id := name(int(t.member)), memberID(int(t.member))
	switch t.kind {
	case addLearner, addVoter:
		return decision.AddLearner{Name: who, PeerURL: objects.PeerURL(c, who, "")}
	case promote:
		return decision.Promote{ID: id, Name: who}
	case remove:
		return decision.Remove{ID: id, Name: who}
	case enableDowngrade:
		return decision.EnableDowngrade{Version: base(t.member)}
	case cancelDowngrade:
		return decision.CancelDowngrade{}
	}
	return decision.MoveLeader{To: id, Name: who}
}

// templates are the hashes that the hooks give the two templates.
var templates = sync.OnceValue(func() map[v1beta1.Medium][]string {
	all := map[v1beta1.Medium][]string{}
	for _, medium := range []v1beta1.Medium{v1beta1.Persistent, v1beta1.Memory} {
		for n := range uint8(unplaced + 1) {
			all[medium] = append(all[medium], templateOf(medium, n))
		}
	}
	return all
})

func (j *judge) templates() []string { return templates()[j.medium] }

// templateOf lets the hooks make a pod, which says of which template it is.
func templateOf(medium v1beta1.Medium, n uint8) string {
	j := &judge{medium: medium}
	c := j.cluster(&parent{replicas: 1, template: n})
	r := record{exists: true, initial: one(0), next: 1, founded: medium == v1beta1.Persistent}
	r.startsOn[0] = 1
	if !r.founded {
		r.startsOn[0] = 0
	}
	o := observation.Observation{Cluster: c, Now: now, Children: observation.Children{
		ConfigMaps: map[string]*corev1.ConfigMap{objects.EpochName(clusterName, 1): j.recordObject(c, &r)},
		Claims:     map[string]*corev1.PersistentVolumeClaim{name(0): claimObject(0, &claim{uid: 1})},
	}}
	return hooks.Decide(o).Children.Pods[0].Annotations[objects.AnnotationTemplate]
}
