package hooks

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
)

// made is the first pod of a cluster of one whose spec was changed like this.
func made(t *testing.T, version string, change func(*v1beta1.EtcdClusterSpec)) *corev1.Pod {
	t.Helper()
	o := fresh(1)
	o.Cluster.Spec.Version = version
	change(&o.Cluster.Spec)
	observeRecord(&o, 1)
	addClaim(&o, 0)
	neverQuorate(&o)
	d := Decide(o)
	require.NoError(t, verify(o, d))
	require.Len(t, d.Children.Pods, 1)
	return d.Children.Pods[0]
}

func unchanged(*v1beta1.EtcdClusterSpec) {}

func TestDefaultsAreForProduction(t *testing.T) {
	pod := made(t, "3.6.16", unchanged)
	podSpec, etcd := pod.Spec, pod.Spec.Containers[0]
	assert.Equal(t, "gcr.io/etcd-development/etcd:v3.6.16", etcd.Image)
	assert.True(t, *podSpec.SecurityContext.RunAsNonRoot)
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, podSpec.SecurityContext.SeccompProfile.Type)
	assert.False(t, *podSpec.AutomountServiceAccountToken)
	for _, c := range append(podSpec.InitContainers, podSpec.Containers...) {
		assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
		assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
		assert.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
		assert.NotEmpty(t, c.Resources.Requests)
	}
	assert.Equal(t, corev1.LabelHostname,
		podSpec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.TopologyKey)
	assert.Equal(t, corev1.ScheduleAnyway, podSpec.TopologySpreadConstraints[0].WhenUnsatisfiable)
	for _, flag := range []string{
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=5m", "--quota-backend-bytes=268435456",
		"--feature-gates=CompactHashCheck=true,InitialCorruptCheck=true", "--heartbeat-interval=100",
		"--election-timeout=1000",
		"--advertise-client-urls=https://demo-0.demo-peers.default.svc:2379",
	} {
		assert.Contains(t, etcd.Command, flag)
	}
	assert.Contains(t, etcd.Env, corev1.EnvVar{Name: "ETCDCTL_ENDPOINTS", Value: "https://127.0.0.1:2379"},
		"etcdctl works without flags")
	assert.Equal(t, "/readyz", etcd.ReadinessProbe.HTTPGet.Path, "fails on a learner and not on NOSPACE")
}

func TestEveryFieldReachesThePod(t *testing.T) {
	affinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}}}
	pod := made(t, "3.7.3", func(s *v1beta1.EtcdClusterSpec) {
		s.Image = v1beta1.ImageSpec{Repository: "registry.example/etcd", PullPolicy: corev1.PullAlways,
			PullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}}
		s.Affinity, s.NodeSelector, s.PriorityClassName = affinity, map[string]string{"disk": "fast"}, "high"
		s.SchedulerName, s.RuntimeClassName = "packer", "gvisor"
		s.Tolerations = []corev1.Toleration{{Key: "etcd", Operator: corev1.TolerationOpExists}}
		s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "rack",
			WhenUnsatisfiable: corev1.DoNotSchedule}}
		s.AdditionalMetadata = v1beta1.Metadata{Labels: map[string]v1beta1.LabelValue{"team": "db",
			"app.kubernetes.io/instance": "stolen"}, Annotations: map[string]string{"note": "x"}}
		s.Options = v1beta1.Options{
			QuotaBackendBytes: new(int64(1 << 27)), MaxRequestBytes: new(int64(4096)),
			HeartbeatInterval: millis(50), ElectionTimeout: millis(500), LogLevel: "warn",
			AutoCompaction: v1beta1.AutoCompaction{Revisions: new(int64(42))},
		}
	})
	etcd := pod.Spec.Containers[0]
	assert.Equal(t, "registry.example/etcd:v3.7.3", etcd.Image)
	assert.Equal(t, corev1.PullAlways, etcd.ImagePullPolicy)
	assert.Equal(t, "pull", pod.Spec.ImagePullSecrets[0].Name)
	assert.Equal(t, affinity, pod.Spec.Affinity)
	assert.Equal(t, "fast", pod.Spec.NodeSelector["disk"])
	assert.Equal(t, "high", pod.Spec.PriorityClassName)
	assert.Equal(t, "packer", pod.Spec.SchedulerName)
	assert.Equal(t, "gvisor", *pod.Spec.RuntimeClassName)
	assert.Equal(t, "etcd", pod.Spec.Tolerations[0].Key)
	assert.Equal(t, "rack", pod.Spec.TopologySpreadConstraints[0].TopologyKey)
	assert.Equal(t, objects.Selector(fresh(1).Cluster), pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
		"a constraint without a selector gets ours")
	assert.Equal(t, "db", pod.Labels["team"])
	assert.Equal(t, "demo", pod.Labels["app.kubernetes.io/instance"], "our own labels win")
	assert.Equal(t, "x", pod.Annotations["note"])
	for _, flag := range []string{
		"--quota-backend-bytes=134217728", "--snapshot-count=10000", "--max-request-bytes=4096",
		"--heartbeat-interval=50",
		"--election-timeout=500", "--log-level=warn", "--auto-compaction-mode=revision",
		"--auto-compaction-retention=42",
	} {
		assert.Contains(t, etcd.Command, flag)
	}
}

// TestAllowedRepositories: a spec that names another repository than those of the installation is refused as one that
// can't be run: nothing is changed, what runs runs on, and no Job gets its image.
func TestAllowedRepositories(t *testing.T) {
	for _, c := range []struct {
		allowed, repository string // the allowed ones with blanks between them
		fine                bool
	}{
		{"", "", true},
		{"", "anyone.example/etcd", true},
		{"", "localhost:5000/etcd", true},
		{"", "https://r.example/etcd", false},
		{"", "r.example/etcd:v3", false},
		{"", "r.example/$(KEY)", false},
		{"", "r.example/../etcd", false},
		{"", "r.example/etcd@sha256:0", false},
		{"r.example/etcd", "", true},
		{"r.example/etcd", "r.example/etcd", true},
		{"r.example/etcd", objects.DefaultEtcdRepository, true},
		{"r.example/etcd", "r.example/etcd/x", false},
		{"r.example/etcd", "r.example/etcd-evil", false},
		{"r.example/etcd", "evil.example/etcd", false},
		{"a.example/x r.example/mirror/", "r.example/mirror/a/b", true},
		{"r.example/mirror/", "r.example/mirror", false},
		{"r.example/mirror/", "r.example/mirrors/etcd", false},
		{"r.example/mirror/", "r.example/mirror/../etcd", false},
	} {
		o := with(serve(3), withoutPod("demo-1"))
		o.Settings.AllowedRepositories = strings.Fields(c.allowed)
		o.Cluster.Spec.Image.Repository = c.repository
		o.Cluster.Spec.Image.Tags = map[string]v1beta1.ImageTag{ // a tag of one's own, and its digest, are of no other
			o.Cluster.Spec.Version: v1beta1.ImageTag(o.Cluster.Spec.Version + "-r2@sha256:" + strings.Repeat("0", 64))}
		d := Decide(o)
		assert.NoError(t, verify(o, d))
		assert.Equal(t, !c.fine, d.Reason.Rule == "Unsupported", "%v: %s", c, d.Reason)
		assert.Equal(t, c.fine, podIn(d, "demo-1") != nil, c)
		assert.NotNil(t, podIn(d, "demo-0"), "what runs runs on")

		o.Cluster.Status = d.Status
		s := snapshot.Observation{
			Snapshot: &v1beta1.EtcdSnapshot{
				ObjectMeta: metav1.ObjectMeta{Name: "nightly", CreationTimestamp: metav1.NewTime(now)},
				Spec: v1beta1.EtcdSnapshotSpec{ClusterRef: v1beta1.ClusterRef{Name: "demo"},
					Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "backups"}}},
			},
			Clusters: map[string]*v1beta1.EtcdCluster{"demo": o.Cluster}, Images: o.Settings.Images, Now: now,
		}
		taken := snapshot.Decide(s)
		assert.NoError(t, snapshot.Verify(s, taken))
		assert.Equal(t, c.fine, len(taken.Jobs) == 1, "%v: %s", c, taken.Reason)
		if !c.fine {
			assert.Equal(t, v1beta1.SnapshotPending, taken.Status.Phase, "it may be allowed later")
			assert.Contains(t, taken.Status.Message, "spec.image.repository")
		}
	}
	o := serve(3)
	o.Settings.AllowedRepositories, o.Settings.EtcdRepository = []string{"r.example/etcd"}, "mirror.example/etcd"
	o.Cluster.Spec.Image.Repository = objects.DefaultEtcdRepository
	assert.Equal(t, "Unsupported", Decide(o).Reason.Rule, "that of the installation is another one")
	assert.Contains(t, Decide(o).Reason.Message, "leave it out for mirror.example/etcd, or use r.example/etcd")
}

// TestOurOwnKeysAreNotForASpec: labels and annotations of our domain tell Quorate what it did, as that a pod is told
// which members to join (S10). A spec that gives such a key is refused, and it reaches no object either way.
func TestOurOwnKeysAreNotForASpec(t *testing.T) {
	for key, metadata := range map[string]v1beta1.Metadata{
		objects.AnnotationInitialCluster: {Annotations: map[string]string{
			objects.AnnotationInitialCluster: "demo-0=http://elsewhere:2380"}},
		objects.AnnotationQuarantined: {Annotations: map[string]string{objects.AnnotationQuarantined: "x"}},
		objects.AnnotationEpoch:       {Annotations: map[string]string{objects.AnnotationEpoch: "7"}},
		objects.Domain + "unheard-of": {Annotations: map[string]string{objects.Domain + "unheard-of": "x"}},
		objects.LabelMember:           {Labels: map[string]v1beta1.LabelValue{objects.LabelMember: "stolen"}},
		objects.LabelSnapshot:         {Labels: map[string]v1beta1.LabelValue{objects.LabelSnapshot: "nightly"}},
	} {
		for state, o := range map[string]observation.Observation{"fresh": fresh(3), "serving": serve(3)} {
			o.Cluster.Spec.AdditionalMetadata = metadata
			d := Decide(o)
			assert.Equal(t, "Unsupported", d.Reason.Rule, "%s: %s", state, key)
			assert.Contains(t, d.Reason.Message, key)
			for _, pod := range d.Children.Pods {
				old := o.Children.Pods[pod.Name]
				assert.Equal(t, old.Labels[key]+old.Annotations[key], pod.Labels[key]+pod.Annotations[key], "%s: %s",
					pod.Name, key)
			}
			for _, claim := range d.Children.Claims {
				given := string(metadata.Labels[key]) + metadata.Annotations[key]
				assert.NotEqual(t, given, claim.Labels[key]+claim.Annotations[key], "%s: %s", claim.Name, key)
			}
			for _, of := range []map[string]string{objects.Labels(o.Cluster, nil), objects.Annotations(o.Cluster,
				nil)} {
				assert.NotContains(t, of, key)
			}
		}
	}
}

// TestThePlatformChoosesUsers: with idPolicy Platform no pod of ours names a user or group, as OpenShift's
// restricted-v2 wants it; what is said besides is in every pod.
func TestThePlatformChoosesUsers(t *testing.T) {
	for _, c := range []struct {
		says              v1beta1.PodSecurity
		user, group, file *int64
	}{
		{v1beta1.PodSecurity{}, new(int64(10001)), new(int64(10001)), new(int64(10001))},
		{v1beta1.PodSecurity{RunAsUser: new(int64(7))}, new(int64(7)), new(int64(10001)), new(int64(10001))},
		{v1beta1.PodSecurity{IDPolicy: v1beta1.IDsByPlatform}, nil, nil, nil},
		{v1beta1.PodSecurity{IDPolicy: v1beta1.IDsByPlatform, FSGroup: new(int64(8))}, nil, nil, new(int64(8))},
	} {
		c.says.FSGroupChangePolicy = corev1.FSGroupChangeAlways
		pod := made(t, "3.6.16", func(s *v1beta1.EtcdClusterSpec) { s.SecurityContext = &c.says })
		assert.Equal(t, &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: c.user, RunAsGroup: c.group,
			FSGroup: c.file, FSGroupChangePolicy: new(corev1.FSGroupChangeAlways),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}, pod.Spec.SecurityContext)
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			assert.Equal(t, objects.Restricted(), container.SecurityContext, "nothing of it is said twice")
		}
	}
}

// TestNoPodIsMadeThatRestrictedForbids: where the CRD's rules don't hold, such a spec is refused here.
func TestNoPodIsMadeThatRestrictedForbids(t *testing.T) {
	for want, says := range map[string]v1beta1.PodSecurity{
		"user or group 0":  {RunAsUser: new(int64(0))},
		"user or group -1": {RunAsGroup: new(int64(-1))},
	} {
		o := fresh(1)
		o.Cluster.Spec.SecurityContext = &says
		assert.ErrorContains(t, defaults.Validate(&o.Cluster.Spec, o.Settings), want)
	}
	o := serveOn("a", "b", "c", "d")
	o.Cluster.Spec.SecurityContext = &v1beta1.PodSecurity{RunAsUser: new(int64(7))}
	assert.ErrorContains(t, defaults.Validate(&o.Cluster.Spec, o.Settings), "can't choose users and groups with the medium "+
		"HostPath")
}

var (
	meshRuns = corev1.ContainerState{Running: &corev1.ContainerStateRunning{
		StartedAt: metav1.NewTime(now.Add(-time.Hour))}}
	meshCrashed = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137,
		FinishedAt: metav1.NewTime(now)}}
	meshLoops = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
)

// meshed puts what a mesh does into a pod, and what the kubelet tells of that, before all that is ours: a
// container that runs on before prepare, and one beside etcd that has crashed.
func meshed(pod *corev1.Pod) {
	spec, status := &pod.Spec, &pod.Status
	proxy := corev1.Container{Name: "mesh-proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
	spec.InitContainers = append([]corev1.Container{proxy}, spec.InitContainers...)
	spec.Containers = append([]corev1.Container{{Name: "mesh-sidecar"}}, spec.Containers...)
	status.InitContainerStatuses = append([]corev1.ContainerStatus{
		{Name: "mesh-proxy", State: meshRuns, LastTerminationState: meshCrashed, RestartCount: 1},
	}, status.InitContainerStatuses...)
	status.ContainerStatuses = append([]corev1.ContainerStatus{
		{Name: "mesh-sidecar", State: meshRuns, LastTerminationState: meshCrashed, RestartCount: 3,
			ContainerID: "mesh"},
	}, status.ContainerStatuses...)
}

// TestPrepareThatSucceeded: what it did not find once, as on a volume that came late, is there when it has ended well.
func TestPrepareThatSucceeded(t *testing.T) {
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	pod := func(now, before corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
			Name: objects.ContainerPrepare, State: now, LastTerminationState: before}}}}
	}
	assert.True(t, facts.PrepareRefused(pod(ended(objects.ExitDataLost), ended(0))))
	assert.True(t, facts.PrepareRefused(pod(meshLoops, ended(objects.ExitDataLost))))
	assert.False(t, facts.PrepareRefused(pod(ended(0), ended(objects.ExitDataLost))))
}

// TestWhatHoldsEtcdUp: a container of others that keeps etcd from starting is said, by its name.
func TestWhatHoldsEtcdUp(t *testing.T) {
	waiting := func(why string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why}}
	}
	f, waits := facts.New(serve(3)), corev1.ContainerStatus{Name: objects.ContainerEtcd,
		State: waiting("PodInitializing")}
	for says, before := range map[string]corev1.ContainerStatus{
		"the injected container mesh-init, which comes before etcd, crashes: exit 137": {
			Name: "mesh-init", State: meshLoops, LastTerminationState: meshCrashed,
		},
		"the injected container mesh-init's image can't be pulled": {Name: "mesh-init", State: waiting("ErrImagePull")},
		"": {Name: "mesh-proxy", State: meshRuns, LastTerminationState: meshCrashed},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{before},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "mesh-sidecar", State: meshRuns}, waits},
		}}
		assert.Equal(t, says, f.WhyNotServing(&facts.Member{Pod: pod}))
	}
}

// TestInspectionsInAMesh: what an inspection's container has told is found beside a container of others.
func TestInspectionsInAMesh(t *testing.T) {
	inspection := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: objects.ContainerInspectData, State: meshCrashed}}}}
	meshed(inspection)
	assert.Equal(t, meshCrashed.Terminated, facts.InspectEnd(inspection))
	assert.Empty(t, objects.Purpose(&corev1.PodSpec{Containers: []corev1.Container{{Name: "mesh-sidecar"}}}))
}

// TestTheIssuesOwnURL is the way by which the key of an authority came into a status.
func TestTheIssuesOwnURL(t *testing.T) {
	const url = "s3://b/$(tls.key)"
	for _, pod := range fillFrom(record.Resolved{URL: url + "/x.db",
		Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "b", Prefix: "$(tls.key)",
			CredentialsSecretRef: v1beta1.SecretRef{Name: "demo-ca"}}}}, fresh(3)) {
		assert.Empty(t, kubelet.Leaks(&pod.Spec), pod.Name)
		assert.Contains(t, kubelet.Line(&pod.Spec.InitContainers[1]), "--url="+url+"/x.db")
	}
}

// fillFrom are the pods of initial members that are filled from a snapshot, whatever the record
// says of it.
func fillFrom(from record.Resolved, o observation.Observation) []*corev1.Pod {
	r := facts.New(o).NewRecord(0, 3)
	r.Origin = record.Origin{Source: record.SourceSnapshot, Snapshot: &from}
	o.Children.ConfigMaps["demo-epoch-1"] = record.New(o.Cluster, 1, r)
	startsOn("uid-claim-0", "uid-claim-1", "uid-claim-2")(&o)
	for i := range 3 {
		addClaim(&o, i)
	}
	return Decide(o).Children.Pods
}

// FuzzNoTextOfASpecNamesASecret: whatever a spec says, in any field, and though the API server had
// let it through, no value of a Secret comes into a command line, and every text comes to its
// program as it is written.
func FuzzNoTextOfASpecNamesASecret(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		perhaps := func(fields ...*string) {
			for _, field := range fields {
				if r.IntN(3) > 0 {
					*field = kubelet.AnyText(r)
				}
			}
		}
		store := kubelet.AnyStore(r)

		c := fresh(3)
		s := &c.Cluster.Spec
		perhaps(&s.Image.Repository, &s.PriorityClassName, &s.TLS.MinVersion, &s.Options.LogLevel, &c.Cluster.Namespace)
		s.TLS.CipherSuites = []string{kubelet.AnyText(r)}
		from := record.Resolved{URL: kubelet.AnyText(r), Store: store}
		perhaps(&from.SHA256, &from.Identity.Name, &from.Identity.Key, &from.ServiceAccountName)
		for _, pod := range fillFrom(from, c) {
			assert.Empty(t, kubelet.Leaks(&pod.Spec), pod.Name)
		}
		s.Bootstrap = &v1beta1.Bootstrap{Snapshot: &v1beta1.SnapshotSource{Artifact: kubelet.AnyText(r),
			Store: &store}}
		for range 6 {
			d := Decide(c)
			require.NoError(t, verify(c, d))
			for _, pod := range d.Children.Pods {
				assert.Empty(t, kubelet.Leaks(&pod.Spec), pod.Name)
			}
			c = stored(c, d)
		}
	})
}

// TestWhatNoObjectMayHave: a spec of which Kubernetes would take no object, or no etcd that runs, changes nothing and
// says what to correct.
func TestWhatNoObjectMayHave(t *testing.T) {
	labelled := func(key, value string) func(*v1beta1.EtcdClusterSpec) {
		return func(s *v1beta1.EtcdClusterSpec) {
			s.AdditionalMetadata.Labels = map[string]v1beta1.LabelValue{key: v1beta1.LabelValue(value)}
		}
	}
	limited := func(memory string) func(*v1beta1.EtcdClusterSpec) {
		return func(s *v1beta1.EtcdClusterSpec) {
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		}
	}
	annotated := func(key string) func(*v1beta1.EtcdClusterSpec) {
		return func(s *v1beta1.EtcdClusterSpec) {
			s.AdditionalMetadata.Annotations = map[string]string{key: "any text"}
		}
	}
	for name, c := range map[string]struct {
		change func(*v1beta1.EtcdClusterSpec)
		wrong  string // empty for nothing
	}{
		"a key with a space": {labelled("two words", "x"),
			`spec.additionalMetadata.labels has the invalid key "two words": use at most 63 letters`},
		"an empty key":        {labelled("", "x"), `has the invalid key ""`},
		"a long key":          {labelled(strings.Repeat("n", 64), "x"), "at most 63 letters"},
		"a key with a domain": {labelled("example.com/team", "x"), ""},
		"capitals":            {labelled("Team", "DB"), ""},
		"a value with a space": {labelled("team", "two words"),
			"spec.additionalMetadata.labels has an invalid label value for team"},
		"an empty value":      {labelled("team", ""), ""},
		"an annotation's key": {annotated("-x"), "spec.additionalMetadata.annotations has the invalid key"},
		// ValidateAnnotations of Kubernetes looks at its small letters
		"an annotation's key in capitals": {annotated("Example.com/x"), ""},
		"too little memory": {limited("10Mi"), "spec.resources.limits.memory 10Mi is too little for etcd: set 32Mi " +
			"or more"},
		"enough memory":                 {limited("32Mi"), ""},
		"a version with a leading zero": {func(s *v1beta1.EtcdClusterSpec) { s.Version = "3.6.016" }, "is not x.y.z"},
	} {
		o := serve(3)
		c.change(&o.Cluster.Spec)
		d := Decide(o)
		assert.Equal(t, c.wrong != "", d.Reason.Rule == "Unsupported", name)
		assert.Contains(t, d.Reason.Message, c.wrong, name)
	}
}
