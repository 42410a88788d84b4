package hooks

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// children are everything that should exist now. Where pods and claims come from depends on how much is known: etcd's list
// when a quorum answered, what is visible while blind, the epoch record before there is a cluster.
func children(v *view, said *verdict) Desired {
	if v.Cluster.Spec.Suspend || validate(&v.Cluster.Spec) != nil {
		return asObserved(v.ofAllEpochs())
	}
	d := Desired{Services: services(v), Budgets: []*policyv1.PodDisruptionBudget{budget(v)}, Policies: policies(v), Secrets: secrets(v), Certificates: certificates(v), ConfigMaps: records(v, said)}
	d.Claims, d.Pods = v.claimsAndPods(said)
	d.Claims = append(v.formerClaims(), d.Claims...)
	if v.heir != nil && !v.forsakes() {
		claims, pods := v.heir.heirs()
		d.Claims, d.Pods = append(d.Claims, claims...), append(d.Pods, pods...)
	}
	d.Pods = append(d.Pods, v.surveyPods(said)...)
	if len(v.lacking) > 0 {
		d.Pods = filter(d.Pods, func(pod *corev1.Pod) bool { return pod.UID != "" }) // a pod is made when what it names is there
	}
	d.Pods = append(d.Pods, v.strangePods()...)
	return d
}

// claimsAndPods are those of the epoch's members.
func (v *view) claimsAndPods(said *verdict) ([]*corev1.PersistentVolumeClaim, []*corev1.Pod) {
	switch {
	case v.ending():
		return v.endedClaims(), nil
	case v.epoch == nil || v.epoch.record == nil:
		return v.keptClaims(v.names), v.keptPods(v.names)
	case v.replicas == 0 && !v.beside():
		return v.keptClaims(v.names), v.keptPods(v.lastHolds())
	case !v.epoch.founded():
		return v.foundingClaims(), v.foundingPods()
	case v.Etcd == nil:
		return v.keptClaims(v.names), v.blindPods(said.roll)
	}
	return v.listedClaims(said), v.listedPods(said)
}

// ---- what every cluster has

func services(v *view) []*corev1.Service {
	c := v.Cluster
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: labels(c, nil), Annotations: annotations(c, nil)}
	}
	client := corev1.ServicePort{Name: "client", Port: ClientPort, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("client")}
	peers := meta(PeerService(c.Name))
	if n := v.next(); n > 0 {
		peers.Annotations[AnnotationNextMember] = strconv.Itoa(n)
	}
	if nodes := v.noteNodes(); nodes != "" {
		peers.Annotations[AnnotationNodes] = nodes
	}
	peer := corev1.ServicePort{Name: "peer", Port: PeerPort, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("peer")}
	return []*corev1.Service{
		{
			ObjectMeta: meta(ClientService(c.Name)),
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: v.clientSelector(), Ports: []corev1.ServicePort{client}},
		},
		{
			ObjectMeta: peers,
			// Members must find each other before they are ready: a quorum is what makes them ready.
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
				Selector: selector(c), Ports: []corev1.ServicePort{client, peer},
			},
		},
	}
}

// budget lets Kubernetes evict as many serving members as quorum can spare, and any member that does not serve.
func budget(v *view) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: v.Cluster.Name, Labels: labels(v.Cluster, nil), Annotations: annotations(v.Cluster, nil)},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector:                   &metav1.LabelSelector{MatchLabels: selector(v.Cluster)},
			MinAvailable:               new(intstr.FromInt(v.minAvailable() + v.mismatchedPods())),
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
	if old := v.Children.Budgets[v.Cluster.Name]; v.Etcd == nil && old != nil && old.Spec.MinAvailable != nil {
		b.Spec.MinAvailable = old.Spec.MinAvailable // blind, the number of voters is not known
	}
	return b
}

// records are the epoch's record, with annotations that only ever move forward, and whatever other ConfigMaps are ours.
func records(v *view, said *verdict) []*corev1.ConfigMap {
	var current *corev1.ConfigMap
	switch {
	case v.ending():
		// no pod of this epoch is to start any more
	case v.epoch != nil && v.epoch.record != nil:
		current = v.advance(said)
	case v.epoch != nil || v.relics():
		current = v.relicRecord()
	case v.replicas > 0:
		current = v.firstRecord()
	}
	heir := v.heirRecord(said)
	var list []*corev1.ConfigMap
	for _, name := range slices.Sorted(maps.Keys(v.Children.ConfigMaps)) {
		cm := v.Children.ConfigMaps[name]
		if (current == nil || current.Name != name) && (heir == nil || heir.Name != name) && !v.leftover(cm) {
			list = append(list, kept(v.Cluster, cm))
		}
	}
	for _, record := range []*corev1.ConfigMap{current, heir, said.heir} {
		if record != nil {
			record.Labels = labels(v.Cluster, nil)
			record.Annotations = annotations(v.Cluster, record.Annotations)
			list = append(list, record)
		}
	}
	return list
}

// firstRecord is that of a new cluster; nil while its data is not there.
func (v *view) firstRecord() *corev1.ConfigMap {
	from, waits := v.beginning()
	if waits != "" {
		return nil
	}
	record := newRecord(v.Cluster, 1, 0, v.replicas)
	if from.source == SourceExisting {
		record = joiningRecord(v.Cluster)
	}
	originate(record, from)
	return record
}

// advance is the observed record with what has become known since.
func (v *view) advance(said *verdict) *corev1.ConfigMap {
	old := v.epoch.record
	ann := map[string]string{}
	for _, key := range []string{AnnotationStartsOn, AnnotationClusterID, AnnotationNextMember, AnnotationVersion, AnnotationPhase, AnnotationSurvivor} {
		if value := old.Annotations[key]; value != "" {
			ann[key] = value
		}
	}
	ann[AnnotationNextMember] = strconv.Itoa(v.next())
	if uids := v.startsOn(); uids != nil {
		ann[AnnotationStartsOn] = or(formatPairs(uids, ":"), startsOnNothing)
	}
	if v.Etcd != nil && v.unfit() == "" {
		ann[AnnotationClusterID] = hex(v.Etcd.ClusterID)
	}
	if foreign := v.noteForeign(); foreign != "" {
		ann[AnnotationForeign], ann[AnnotationForeignSince] = foreign, v.foreignSince(foreign)
	}
	if names := v.readdressed(); len(names) > 0 {
		ann[AnnotationReaddressed] = strings.Join(names, ",")
	}
	if !v.epoch.quorate() && v.Etcd == nil {
		ann[AnnotationVersion] = v.Cluster.Spec.Version // nothing has run yet that the version could harm
	}
	if said.version != "" {
		ann[AnnotationVersion] = said.version
	}
	if chosen := v.renewing(said); chosen != "" {
		ann[AnnotationRenewing] = chosen
	}
	if log := v.nextOldLog(said).String(); log != "" {
		ann[AnnotationOldLog] = log
	}
	record := kept(v.Cluster, old)
	record.Annotations = ann
	return record
}

// relicRecord takes the place of a record that somebody deleted. Nobody may bootstrap in it any more.
func (v *view) relicRecord() *corev1.ConfigMap {
	record := v.lostRecord()
	record.Annotations[AnnotationStartsOn] = startsOnNothing
	record.Annotations[AnnotationNextMember] = strconv.Itoa(v.next())
	record.Annotations[AnnotationVersion] = or(v.Cluster.Status.Version, v.Cluster.Spec.Version)
	record.Annotations[AnnotationOldLog] = oldLog{there: true}.String() // for all that is known now
	if s := &v.Cluster.Status; s.ClusterID != "" && (s.Epoch == 0 || record.Name == EpochName(v.Cluster.Name, int(s.Epoch))) {
		record.Annotations[AnnotationClusterID] = s.ClusterID
	}
	if foreign := v.relicForeign(); foreign != "" {
		record.Annotations[AnnotationForeign] = foreign
	}
	return record
}

// lostRecord is a record of the epoch that the next one is to take over from, or else of the one that the status and the claims tell of. That
// one is taken to have what spec.restore asks for: nobody restores anything for want of a record.
func (v *view) lostRecord() *corev1.ConfigMap {
	n, first := v.lostEpoch()
	from := origin{source: SourceEmpty}
	if v.epoch != nil {
		n, first = v.epoch.n, v.epoch.first
	}
	if n == 1 && joins(v.Cluster) {
		return joiningRecord(v.Cluster)
	}
	if r := v.Cluster.Spec.Restore; v.epoch == nil && r != nil {
		from.restore = r.ID
	}
	record := newRecord(v.Cluster, n, first, v.replicas)
	originate(record, from)
	if first > 0 {
		record.Data[EpochKeyFirst] = strconv.Itoa(first)
	}
	return record
}

// lostEpoch is the number of the epoch that runs, and the lowest of its members': above those whose claims an epoch has left behind.
func (v *view) lostEpoch() (n, first int) {
	lowest, behind := 0, map[int]int{}
	for name, claim := range v.all.Claims {
		member, _ := standsOn(v.Cluster.Name, name)
		i, ours := ordinal(v.Cluster.Name, member)
		of := max(1, markIn(claim.Annotations[AnnotationEpoch]))
		switch {
		case !ours || !v.ours(claim):
		case !quarantined(claim) && (lowest == 0 || of < lowest):
			lowest = of
		case quarantined(claim) && claim.Annotations[AnnotationEpoch] != "":
			behind[of] = max(behind[of], i+1)
		}
	}
	n = max(1, int(v.Cluster.Status.Epoch), lowest)
	for of, above := range behind {
		if of < n {
			first = max(first, above)
		}
	}
	return n, first
}

// ---- before there is a cluster

// startsOn is what the record should say that members may start on: nil until everything for the initial members is observed,
// then that, then for each new learner what was made for it, as long as etcd lists the member.
func (v *view) startsOn() map[string]types.UID {
	uids := map[string]types.UID{}
	switch {
	case !v.epoch.founded() && v.hostPath():
		return v.allot(v.epoch.initialNames())
	case !v.epoch.founded():
		for _, name := range v.epoch.initialNames() {
			grounds := v.groundsOf(name)
			if grounds == nil {
				return nil
			}
			maps.Copy(uids, grounds)
		}
	case v.Etcd == nil:
		return v.epoch.startsOn
	default:
		for _, m := range v.members {
			if v.mayBeMade(m) {
				maps.Copy(uids, v.groundsOf(m.name))
			}
			maps.Copy(uids, keep(v.epoch.startsOn, m.name, WALClaim(m.name)))
		}
	}
	return uids
}

// foundingClaims are the claims of the initial members. None is made when etcd answers: then the cluster runs, and the record
// that we see is an old one.
func (v *view) foundingClaims() []*corev1.PersistentVolumeClaim {
	if !v.onClaims() || v.Etcd != nil {
		return v.keptClaims(v.names)
	}
	return v.claims(union(v.names, v.epoch.initialNames()), func(name string) bool { return v.epoch.initial[name] != "" })
}

// foundingPods are, on Memory, the initial members' pods, held back by a scheduling gate until the record holds their UIDs.
// Until then they have not run, so making one twice does no harm; afterwards none is made again.
func (v *view) foundingPods() []*corev1.Pod {
	pods := v.keptPods(v.names)
	if !v.memory() || v.Etcd != nil {
		return pods
	}
	for _, name := range v.epoch.initialNames() {
		if v.Children.Pods[name] == nil {
			pods = append(pods, heldBack(v.bootstrapPod(name)))
		}
	}
	return sortPods(pods)
}

func (v *view) bootstrapPod(name string) *corev1.Pod {
	pod := v.pod(name, StartBootstrap, bootstrapEnv(v.epoch.record.Name))
	pod.Labels[LabelRole] = roleVoter
	if v.hostPath() {
		pod.Annotations[AnnotationInitialCluster] = v.epoch.record.Data[EpochKeyInitialCluster]
	}
	v.fill(pod)
	v.await(pod)
	return pod
}

// heirs are the claims and pods of an epoch that is to take over. A survivor's volume is copied when it is known which.
func (v *view) heirs() ([]*corev1.PersistentVolumeClaim, []*corev1.Pod) {
	if v.epoch.source == SourceSurvivor && v.epoch.survivor == "" {
		return v.keptClaims(v.names), v.keptPods(v.names)
	}
	claims, pods := v.claimsAndPods(&verdict{})
	for _, pod := range pods {
		if v.unopposed && awaits(pod) {
			pod.Annotations[AnnotationSucceeds] = "yes"
		}
	}
	return claims, pods
}

// ---- blind

// blindPods keep or bring back the pod of every claim that we see, and on HostPath of every member that is recorded (S11). Whether the member has ever run is not known now, so
// a new pod insists on finding data, except where the record still allows the member to begin.
func (v *view) blindPods(roll string) []*corev1.Pod {
	pods := v.keptPods(filter(v.names, func(name string) bool { return name != roll }))
	for _, name := range v.names {
		switch {
		case name == roll || v.memory() || v.Children.Pods[name] != nil || !v.grounded(name) || v.fenced(name):
		case !v.epoch.quorate() && v.mayBegin(name) && !v.mayNotBegin():
			pods = append(pods, v.bootstrapPod(name))
		case !v.epoch.began(): // nobody resumes in an epoch that is to come
		default:
			pods = append(pods, v.pod(name, StartResume, resumeEnv()))
		}
	}
	return sortPods(pods)
}

// ---- with etcd's list

// listedClaims are the claims of the listed members, and those of members that etcd has let go but whose numbers are not yet
// recorded as used (S7, S9), or that are kept in quarantine.
func (v *view) listedClaims(said *verdict) []*corev1.PersistentVolumeClaim {
	all := v.claims(v.names, func(name string) bool {
		m := v.find(name)
		return v.onClaims() && m != nil && v.mayBeMade(m)
	})
	list := filter(all, func(c *corev1.PersistentVolumeClaim) bool {
		member, _ := standsOn(v.Cluster.Name, c.Name)
		old := v.Children.Claims[c.Name]
		return old == nil || v.find(member) != nil || !v.pastMark(member) || !v.ours(old) || v.withheld(old)
	})
	v.quarantine(list, said)
	return list
}

// listedPods are the pods of the listed members but for the one that is being rolled. A pod is made only on what is observed
// as ours.
func (v *view) listedPods(said *verdict) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, m := range v.members {
		switch {
		case m.name == "" || m.name == said.roll:
		case m.pod == nil && v.fenced(m.name) && !m.Learner:
		case m.pod != nil:
			pods = append(pods, v.keptListed(m, said)...)
		case v.memory() && v.mayBeMade(m):
			pods = append(pods, heldBack(v.podOf(m)))
		case !v.memory() && v.grounded(m.name) && !v.mayBeMade(m) && !v.joinsElsewhere(m):
			pods = append(pods, v.podOf(m))
		}
	}
	return sortPods(pods)
}

// joinsElsewhere reports whether a learner that has not started yet was recorded to start on another claim than this one.
func (v *view) joinsElsewhere(m *member) bool {
	return v.onClaims() && v.startOf(m) == StartJoin && v.claimGone(m)
}

func (v *view) keptListed(m *member, said *verdict) []*corev1.Pod {
	pods := v.keptPods([]string{m.name})
	for _, pod := range pods {
		if m.Started() {
			delete(pod.Annotations, AnnotationInitialCluster)
		}
		if role := v.roleOf(m); role != "" {
			pod.Labels[LabelRole] = role
		}
		if m.name == said.spare && pod.Annotations[AnnotationSpared] == "" {
			pod.Annotations[AnnotationSpared] = v.Now.UTC().Format(time.RFC3339)
		}
		if m.name == said.patch {
			v.exchange(pod)
		}
	}
	return pods
}

// podOf is a new pod for a listed member.
func (v *view) podOf(m *member) *corev1.Pod {
	var pod *corev1.Pod
	switch start := v.startOf(m); start {
	case StartJoin:
		pod = v.pod(m.name, start, joinEnv())
		pod.Annotations[AnnotationInitialCluster] = v.joinCluster(m)
	case StartBootstrap:
		pod = v.bootstrapPod(m.name)
	default:
		pod = v.pod(m.name, StartResume, resumeEnv())
	}
	if m.Learner {
		pod.Labels[LabelRole] = roleLearner
	}
	if v.mismatched(m) {
		pod.Labels[LabelRole] = roleFenced
	}
	return pod
}

// heldBack keeps a memory pod from running until the record holds its UID.
func heldBack(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: foundingGate}}
	return pod
}

// joinCluster is the membership as a joining member must be told it: all of the list, itself by our name for it.
func (v *view) joinCluster(joining *member) string {
	var fields []string
	for _, m := range v.members {
		name := or(m.Name, m.name)
		if m.alias != "" {
			name = "foreign-" + hex(m.ID) // its own may be that of one of ours
		}
		if m.ID == joining.ID {
			name = joining.name
		}
		for _, u := range m.PeerURLs {
			fields = append(fields, name+"="+u)
		}
	}
	return strings.Join(fields, ",")
}

// ---- one object

func (v *view) pod(name, start string, env []corev1.EnvVar) *corev1.Pod {
	volume := storageSize(&v.Cluster.Spec)
	if claim := v.Children.Claims[name]; claim != nil {
		if size := volumeSize(claim); !size.IsZero() {
			volume = size
		}
	}
	pod := newPod(v.Observation, name, v.versionNow(), start, volume, v.peersDial(name), env)
	if v.hasWAL(name) {
		withWAL(pod)
	}
	if v.hostPath() {
		v.onNode(pod)
	}
	prepare := prepareOf(pod)
	prepare.Env = append(prepare.Env, ofEpoch(EpochName(v.Cluster.Name, v.epoch.n)))
	if v.beside() {
		openWide(pod)
	}
	pod.Annotations[AnnotationTemplate] = v.template
	pod.Annotations[AnnotationImage] = image(&v.Cluster.Spec, v.versionNow())
	v.noteServed(pod)
	if provided(v.Cluster) {
		pod.Annotations[AnnotationTrusts] = formatPairs(v.trusted(), ":")
	}
	return pod
}

// noteServed puts on a pod which certificates its member is to show.
func (v *view) noteServed(pod *corev1.Pod) {
	if v.serves != "" {
		pod.Annotations[AnnotationServes] = v.serves
	}
}

// keptPods are the observed pods of these names but for those that have ended, which are made anew (on Memory, replaced).
func (v *view) keptPods(names []string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, name := range names {
		if pod := v.Children.Pods[name]; pod != nil && !finished(pod) {
			pods = append(pods, v.keptPod(pod))
		}
	}
	return pods
}

// keptPod is an observed pod with its observed spec. Only the labels, the image of an etcd that never ran, and the gate of a
// recorded memory pod may differ.
func (v *view) keptPod(old *corev1.Pod) *corev1.Pod {
	pod := *old
	own := map[string]string{LabelMember: old.Name}
	if r := old.Labels[LabelRole]; r != "" {
		own[LabelRole] = r
	}
	pod.Labels = labels(v.Cluster, own)
	pod.Annotations = annotations(v.Cluster, keep(old.Annotations, AnnotationStart, AnnotationTemplate, AnnotationInitialCluster, AnnotationImage, AnnotationServes, AnnotationTrusts, AnnotationFlagsFor, AnnotationExchanged))
	v.noteServed(&pod)
	if v.epoch == nil {
		return &pod
	}
	v.noteSuccession(&pod, old)
	if since := old.Annotations[AnnotationSpared]; since != "" && v.epoch.renewing.name == old.Name {
		pod.Annotations[AnnotationSpared] = since
	}
	if gated(old) && v.epoch.mayStartEmpty(old.Name, old.UID) {
		pod.Spec.SchedulingGates = nil
	}
	wanted, idle := v.versionNow(), neverRan(old) || v.Etcd == nil && v.epoch.quorate() && !running(old)
	if idle && old.Annotations[AnnotationImage] != image(&v.Cluster.Spec, wanted) && (!v.epoch.quorate() || sameFlags(madeForVersion(old), wanted)) {
		v.exchange(&pod)
	}
	return &pod
}

// noteSuccession puts on a pod that was made before its epoch began that the one before is over, and that its member may begin.
func (v *view) noteSuccession(pod, old *corev1.Pod) {
	if awaits(old) && v.epoch.began() && namesRecord(old) == EpochName(v.Cluster.Name, v.epoch.n) {
		pod.Annotations[AnnotationBegins] = "yes"
	}
	if old.Annotations[AnnotationSucceeds] != "" {
		pod.Annotations[AnnotationSucceeds] = "yes"
	}
}

// strangePods carry our labels but no member's name: not ours to delete.
func (v *view) strangePods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(v.Children.Pods)) {
		if _, ours := ordinal(v.Cluster.Name, name); !ours && !v.surveys(name) {
			pods = append(pods, kept(v.Cluster, v.Children.Pods[name]))
		}
	}
	return pods
}

// surveys reports whether the pod of this name looks at a member's volumes.
func (v *view) surveys(name string) bool {
	of, is := strings.CutSuffix(name, surveySuffix)
	_, ours := ordinal(v.Cluster.Name, of)
	return is && ours
}

func (v *view) keptClaims(names []string) []*corev1.PersistentVolumeClaim {
	return v.claims(names, func(string) bool { return false })
}

// claims are the observed claims of these members, and new ones where create says so.
func (v *view) claims(names []string, create func(string) bool) []*corev1.PersistentVolumeClaim {
	var list []*corev1.PersistentVolumeClaim
	for _, name := range v.claimNames(names, create) {
		member, _ := standsOn(v.Cluster.Name, name)
		if old := v.Children.Claims[name]; old != nil {
			claim := *old
			claim.Labels = labels(v.Cluster, map[string]string{LabelMember: member})
			claim.Annotations = annotations(v.Cluster, keep(old.Annotations, AnnotationCondemned, AnnotationQuarantined, AnnotationEpoch))
			if quarantined(old) {
				claim.Labels[LabelQuarantined] = "true"
			}
			v.sized(&claim)
			list = append(list, &claim)
		} else if create(member) {
			list = append(list, v.newClaim(name))
		}
	}
	return list
}

func (v *view) newClaim(name string) *corev1.PersistentVolumeClaim {
	member, _ := standsOn(v.Cluster.Name, name)
	size, class, _ := v.claimSpec(name)
	own := map[string]string{}
	if v.epoch != nil && v.epoch.n > 1 {
		own[AnnotationEpoch] = strconv.Itoa(v.epoch.n)
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(v.Cluster, map[string]string{LabelMember: member}), Annotations: annotations(v.Cluster, own)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: size},
			},
		},
	}
}

// kept is an observed object as it is, with those of its labels and annotations that are ours.
func kept[T any, P interface {
	*T
	metav1.Object
}](c *v1alpha1.EtcdCluster, old P) P {
	object := *old
	p := P(&object)
	p.SetLabels(ours(old.GetLabels(), labels(c, nil)))
	p.SetAnnotations(ours(old.GetAnnotations(), annotations(c, nil)))
	return p
}

// ours are the labels or annotations that Quorate sets: those of its own domain, and those of these names.
func ours(all, names map[string]string) map[string]string {
	some := map[string]string{}
	for k, value := range all {
		if _, named := names[k]; named || strings.HasPrefix(k, domain) {
			some[k] = value
		}
	}
	return some
}

func keep[V any](all map[string]V, keys ...string) map[string]V {
	some := map[string]V{}
	for _, k := range keys {
		if value, set := all[k]; set {
			some[k] = value
		}
	}
	return some
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.SortFunc(all, byOrdinal)
	return slices.Compact(all)
}

func sortPods(pods []*corev1.Pod) []*corev1.Pod {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return byOrdinal(a.Name, b.Name) })
	return pods
}
