package snapshot

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/stores"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
)

// aSnapshot that may begin.
func aSnapshot() Observation {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	return Observation{
		Snapshot: &v1beta1.EtcdSnapshot{
			ObjectMeta: metav1.ObjectMeta{Name: "nightly", Namespace: "shop", UID: "12c500ed-0b78-7910",
				CreationTimestamp: metav1.NewTime(now)},
			Spec: v1beta1.EtcdSnapshotSpec{ClusterRef: v1beta1.ClusterRef{Name: "orders"},
				Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "backups", Prefix: "etcd",
					CredentialsSecretRef: v1beta1.SecretRef{Name: "keys"}},
					CASecretRef: v1beta1.SecretKeyRef{Name: "trust"}}},
		},
		Clusters: map[string]*v1beta1.EtcdCluster{"orders": {
			ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop"},
			Spec: v1beta1.EtcdClusterSpec{Version: "3.6.16",
				Image: v1beta1.ImageSpec{PullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}}},
			Status: v1beta1.EtcdClusterStatus{
				Version:    "3.6.15",
				Conditions: []metav1.Condition{{Type: v1beta1.Available, Status: metav1.ConditionTrue}},
				Members: []v1beta1.MemberStatus{{Name: "orders-0", Role: v1beta1.Voter},
					{Name: "orders-3", Role: v1beta1.Learner}, {Name: "orders-4", Role: v1beta1.Voter}},
			},
		}},
		Now: now, Images: objects.Images{Image: "quorate:v1"},
		Labelled: map[string]bool{"keys": true, "trust": true},
	}
}

// theJob that a decision makes.
func theJob(t *testing.T, o Observation) *batchv1.Job {
	t.Helper()
	d := Decide(o)
	require.Len(t, d.Jobs, 1, d.Reason)
	return d.Jobs[0]
}

func TestSnapshotKeys(t *testing.T) {
	s := aSnapshot().Snapshot
	assert.Equal(t, "shop/orders/nightly-12c500ed.db.zst", Key(s))
	s.Spec.Compression = v1beta1.CompressNone
	assert.Equal(t, "shop/orders/nightly-12c500ed.db", Key(s))
	s.Spec.Encryption = &v1beta1.Encryption{Recipients: []string{"age1x"}}
	assert.Equal(t, "shop/orders/nightly-12c500ed.db.age", Key(s))
	s.UID = "1"
	assert.Equal(t, "shop/orders/nightly-1.db.age", Key(s), "whatever a UID looks like")
}

func TestJobNamesFit(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"a", "a.b", strings.Repeat("x", 41), strings.Repeat("x", 42),
		strings.Repeat("x", 99) + "y", strings.Repeat("x", 100), strings.Repeat("x.", 49) + "x"} {
		for _, purpose := range []string{objects.ContainerSnapshot, objects.ContainerDelete} {
			s := aSnapshot().Snapshot
			s.Name = name
			job := objects.NumberedName(s, purpose, 12)
			assert.Empty(t, validation.IsDNS1123Label(job), "%s", job)
			assert.Empty(t, validation.IsValidLabelValue(labelValue(name)), "%s", name)
			assert.False(t, seen[job], "%s is there twice", job)
			seen[job] = true
			assert.Equal(t, 12, jobNumber(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job}}))
			assert.Equal(t, Pods(name).MatchLabels[objects.LabelSnapshot], labelValue(name))
		}
	}
}

func TestTakingJob(t *testing.T) {
	o := aSnapshot()
	o.Snapshot.Spec.Encryption = &v1beta1.Encryption{Recipients: []string{"age1x", "age1y"}}
	o.Snapshot.Annotations = map[string]string{objects.AnnotationUnless: "revision=7,auth-revision=3,cluster=2c119c3b"}
	job := theJob(t, o)
	pod := job.Spec.Template
	main := pod.Spec.Containers[0]
	assert.Equal(t, []string{
		"/var/run/quorate-tools/quorate-snapshot", "snapshot",
		"--endpoint=https://orders-0.orders-peers.shop.svc:2379",
		"--endpoint=https://orders-4.orders-peers.shop.svc:2379",
		"--ca=/etc/etcd/pki/operator/ca.crt", "--cert=/etc/etcd/pki/operator/tls.crt",
		"--cert-key=/etc/etcd/pki/operator/tls.key",
		"--store-url=s3://backups/etcd", "--store-ca=/etc/quorate-store/ca/ca.crt",
		"--key=shop/orders/nightly-12c500ed.db.zst.age", "--compression=zstd", "--recipient=age1x", "--recipient=age1y",
		"--verify=true", "--etcd=/usr/local/bin/etcd", "--etcdutl=/usr/local/bin/etcdutl",
		"--scratch=/var/run/quorate-scratch",
		"--unless-revision=7", "--unless-cluster=2c119c3b", "--unless-auth-revision=3",
	}, main.Command)
	assert.Equal(t, "gcr.io/etcd-development/etcd:v3.6.15", main.Image, "etcdutl of the version that the members run")
	assert.Equal(t, "quorate:v1", pod.Spec.InitContainers[0].Image)
	assert.Empty(t, main.EnvFrom)
	assert.Equal(t, "TMPDIR= AWS_ACCESS_KEY_ID=keys AWS_SECRET_ACCESS_KEY=keys AWS_SESSION_TOKEN=keys? GOMEMLIMIT=",
		secretsIn(main.Env))
	assert.Equal(t, "256Mi", main.Resources.Limits.Memory().String())
	assert.False(t, *pod.Spec.AutomountServiceAccountToken)
	assert.True(t, *main.SecurityContext.ReadOnlyRootFilesystem)
	assert.NotContains(t, pod.Labels, objects.LabelCluster, "it is no member: Services, budgets and policies find "+
		"those by this label")
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, pod.Spec.ImagePullSecrets)
	var volumes []string
	for _, v := range pod.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	assert.Equal(t, []string{"tools", "scratch", "store-ca", "operator"}, volumes)
	for _, mount := range slices.Concat(main.VolumeMounts, pod.Spec.InitContainers[0].VolumeMounts) {
		assert.Contains(t, volumes, mount.Name)
	}
	assert.Equal(t, int64(3600), *job.Spec.ActiveDeadlineSeconds)
	assert.Equal(t, int32(3), *job.Spec.BackoffLimit)
}

func TestDiscardJobRunsTheProgramOfStores(t *testing.T) {
	main := newView(aSnapshot()).deleteJob(1).Spec.Template.Spec.Containers[0]
	assert.Equal(t, "quorate:v1", main.Image)
	assert.Equal(t, []string{"/quorate-snapshot"}, main.Command)
	assert.Equal(t, "delete", main.Args[0])
}

func TestTakingJobInPlainText(t *testing.T) {
	o := aSnapshot()
	o.Clusters["orders"].Spec.TLS.Mode = v1beta1.TLSDisabled
	o.Snapshot.Spec.Store = v1beta1.Store{Claim: &v1beta1.ClaimStore{Name: "backups", Path: "etcd"}}
	o.Snapshot.Spec.Job.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
	pod := theJob(t, o).Spec.Template.Spec
	main := pod.Containers[0]
	assert.Contains(t, main.Command, "--endpoint=http://orders-0.orders-peers.shop.svc:2379")
	assert.NotContains(t, strings.Join(main.Command, " "), "--ca=")
	assert.Equal(t, "backups", pod.Volumes[2].PersistentVolumeClaim.ClaimName)
	assert.Len(t, pod.Volumes, 3)
	assert.Equal(t, "32Mi", main.Resources.Requests.Memory().String(), "no more is asked for than is allowed")
}

func TestWhatAPodSays(t *testing.T) {
	exited := func(reason, message string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed,
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "snapshot", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1,
					Reason: reason, Message: message}},
			}}}}
	}
	for says, pod := range map[string]*corev1.Pod{
		"the bucket is not there":                exited("Error", `{"error":"the bucket is not there"}`),
		"panic: a bug":                           exited("Error", "goroutine 1\n\npanic: a bug\n"),
		"container snapshot ended with code 1":   exited("Error", ""),
		"raise spec.job.resources.limits.memory": exited("OOMKilled", ""),
		"Evicted: The node was low on resource": {Status: corev1.PodStatus{Phase: corev1.PodFailed,
			Reason: "Evicted", Message: "The node was low on resource"}},
		"container tools ended with code 2 without a": {Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{Name: "tools",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2}}}}}},
	} {
		assert.Contains(t, lastWords(pod), says)
	}
	assert.Empty(t, lastWords(&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}))
}

func TestWordsForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m",
		30 * time.Second: "30s", 61 * time.Second: "1m1s"} {
		assert.Equal(t, want, duration(d))
	}
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1536: "1.5 KiB", 5 << 40: "5.0 TiB"} {
		assert.Equal(t, want, bytesText(n))
	}
	for n, want := range map[int64]string{0: "0", 760: "760", 10239: "10239", 20512: "21Ki", 20971552: "21Mi",
		1 << 30: "1Gi", 20<<30 + 1: "21Gi"} {
		assert.Equal(t, want, legible(n).String())
	}
	assert.LessOrEqual(t, len(objects.Clipped(strings.Repeat("ä", 2000))), 1004)
}

// TestAFinishedSnapshotFollowsTheGeneration: kubectl wait compares the generation in each condition with that of the
// spec, which may change later.
func TestAFinishedSnapshotFollowsTheGeneration(t *testing.T) {
	o := aSnapshot()
	o.Snapshot.Generation = 2
	o.Snapshot.Status = v1beta1.EtcdSnapshotStatus{Phase: v1beta1.SnapshotSucceeded, ObservedGeneration: 1,
		Conditions: []metav1.Condition{{Type: v1beta1.Complete, Status: metav1.ConditionTrue, ObservedGeneration: 1}}}
	s := Decide(o).Status
	assert.EqualValues(t, 2, s.ObservedGeneration)
	assert.EqualValues(t, 2, s.Conditions[0].ObservedGeneration)
}

// TestLookJob: it asks the store alone, with the same name of the artifact.
func TestLookJob(t *testing.T) {
	o := aSnapshot()
	delete(o.Clusters, "orders")
	o.Snapshot.Spec.Job.Deadline.Duration = time.Minute
	o.Now = o.Now.Add(2 * time.Minute)
	job := theJob(t, o)
	main := job.Spec.Template.Spec.Containers[0]
	assert.Equal(t, "nightly-12c500ed-inspect-1", job.Name)
	assert.Equal(t, "quorate:v1", main.Image)
	assert.Equal(t, []string{"inspect", "--store-url=s3://backups/etcd", "--store-ca=/etc/quorate-store/ca/ca.crt",
		"--key=" + Key(o.Snapshot)}, main.Args)
	assert.Equal(t, "256Mi", main.Resources.Limits.Memory().String())
	assert.Equal(t, int64(90), *job.Spec.ActiveDeadlineSeconds)
}

// TestMemoryOfATrial: etcd on trial has an index of all keys, as the members have.
func TestMemoryOfATrial(t *testing.T) {
	o := aSnapshot()
	limit := func() string {
		return theJob(t, o).Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String()
	}
	o.Clusters["orders"].Status.Members[0].DBSize = new(resource.MustParse("2Gi"))
	o.Clusters["orders"].Status.Members[2].DBSize = new(resource.MustParse("8Gi"))
	assert.Equal(t, "2304Mi", limit())
	o.Clusters["orders"].Status.Members[2].DBSize = new(resource.MustParse("20Mi"))
	assert.Equal(t, "768Mi", limit())
	o.Snapshot.Spec.Verify = new(false)
	assert.Equal(t, "256Mi", limit())
	o.Snapshot.Spec.Verify = nil
	o.Snapshot.Spec.Job.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("300Mi")}
	assert.Equal(t, "300Mi", limit(), "what the spec says counts")
}

// TestRestorable: what could not be verified is restored by its name once a person says so.
func TestRestorable(t *testing.T) {
	s := aSnapshot().Snapshot
	s.Status.Phase, s.Status.URI = v1beta1.SnapshotUnverified, "s3://backups/nightly"
	assert.False(t, Restorable(s))
	assert.Contains(t, Unrestorable(s),
		`kubectl patch -n shop etcdsnapshot/nightly --type=merge -p '{"spec":{"verify":false}}'`)
	s.Spec.Verify = new(false)
	assert.True(t, Restorable(s))
	s.Status.Phase = v1beta1.SnapshotSucceeded
	assert.True(t, Restorable(s))
	s.Status.URI = ""
	assert.False(t, Restorable(s))
	for _, phase := range []v1beta1.SnapshotPhase{"", v1beta1.SnapshotPending, v1beta1.SnapshotRunning,
		v1beta1.SnapshotSkipped, v1beta1.SnapshotFailed, v1beta1.SnapshotDeleting} {
		s.Status.Phase, s.Status.URI = phase, "s3://backups/nightly"
		assert.False(t, Restorable(s), phase)
	}
}

// secretsIn are variables with the Secrets that they are of; one with ? may be missing there.
func secretsIn(env []corev1.EnvVar) string {
	var all []string
	for _, e := range env {
		named := ""
		if e.ValueFrom != nil {
			named = e.ValueFrom.SecretKeyRef.Name
			if of := e.ValueFrom.SecretKeyRef.Optional; of != nil && *of {
				named += "?"
			}
		}
		all = append(all, e.Name+"="+named)
	}
	return strings.Join(all, " ")
}

// TestASnapshotThatTheAPIServerLetThrough: no Job is made of a spec that it should have refused,
// the message says what is wrong, and it repeats nothing of it.
func TestASnapshotThatTheAPIServerLetThrough(t *testing.T) {
	for _, change := range []func(s *v1beta1.EtcdSnapshotSpec){
		func(s *v1beta1.EtcdSnapshotSpec) { s.Store.S3.Prefix = "$(tls.key)" },
		func(s *v1beta1.EtcdSnapshotSpec) { s.Store.S3.Endpoint = "tls.key.example" },
		func(s *v1beta1.EtcdSnapshotSpec) {
			s.Store = v1beta1.Store{Claim: &v1beta1.ClaimStore{Name: "", Path: "tls.key"}}
		},
		func(s *v1beta1.EtcdSnapshotSpec) { s.ClusterRef.Name = "../tls.key" },
		func(s *v1beta1.EtcdSnapshotSpec) {
			s.Job.SecurityContext = &v1beta1.PodSecurity{RunAsUser: new(int64(0))}
		},
	} {
		o := aSnapshot()
		change(&o.Snapshot.Spec)
		o.Clusters[o.Snapshot.Spec.ClusterRef.Name] = o.Clusters["orders"]
		d := Decide(o)
		assert.Equal(t, "Unsupported", d.Reason.Rule)
		assert.Empty(t, d.Jobs)
		assert.Equal(t, v1beta1.SnapshotFailed, d.Status.Phase)
		assert.Contains(t, d.Status.Message, "spec.")
		assert.NotContains(t, d.Status.Message, "tls.key")

		o.Snapshot.DeletionTimestamp, o.Snapshot.Spec.DeletionPolicy = &o.Snapshot.CreationTimestamp,
			v1beta1.DeletionDelete
		d = Decide(o)
		assert.True(t, d.Finalized)
		assert.Empty(t, d.Jobs)
	}
}

// TestJobsRunAsTheirClustersUser: unless the snapshot says another; those of a cluster that is gone as Quorate's own.
func TestJobsRunAsTheirClustersUser(t *testing.T) {
	user := func(change func(*Observation)) *int64 {
		o := aSnapshot()
		change(&o)
		jobs := Decide(o).Jobs
		require.NotEmpty(t, jobs)
		return jobs[0].Spec.Template.Spec.SecurityContext.RunAsUser
	}
	platform := &v1beta1.PodSecurity{IDPolicy: v1beta1.IDsByPlatform}
	ofCluster := func(o *Observation) { o.Clusters["orders"].Spec.SecurityContext = platform }
	assert.Equal(t, new(int64(10001)), user(func(*Observation) {}))
	assert.Nil(t, user(ofCluster))
	assert.Equal(t, new(int64(7)), user(func(o *Observation) {
		ofCluster(o)
		o.Snapshot.Spec.Job.SecurityContext = &v1beta1.PodSecurity{RunAsUser: new(int64(7))}
	}))
}

// TestReportsInAMesh: what a Job's container has told is found beside containers that a mesh puts before it.
func TestReportsInAMesh(t *testing.T) {
	crashed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}
	for _, container := range []string{objects.ContainerSnapshot, objects.ContainerInspect, objects.ContainerDelete} {
		end := &corev1.ContainerStateTerminated{ExitCode: 1, Message: `{"error": "the store refuses"}`}
		pod := &corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "mesh-sidecar"}, {Name: container}}},
			Status: corev1.PodStatus{
				InitContainerStatuses: []corev1.ContainerStatus{{Name: "mesh-proxy", State: crashed}},
				ContainerStatuses: []corev1.ContainerStatus{
					{Name: "mesh-sidecar", State: crashed},
					{Name: container, State: corev1.ContainerState{Terminated: end}},
				},
			},
		}
		assert.Equal(t, container, objects.Purpose(&pod.Spec))
		assert.Equal(t, end, terminated(pod, objects.Purpose(&pod.Spec)))
		assert.Equal(t, "the store refuses", lastWords(pod))
		pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		assert.Contains(t, lastWords(pod), "container mesh-proxy ended with code 137", "where ours say nothing")
	}
}

// TestTheIssuesOwnURLInAJob is the way by which the key of an authority came into a status.
func TestTheIssuesOwnURLInAJob(t *testing.T) {
	o := aSnapshot()
	o.Snapshot.Spec.Store = v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "b", Prefix: "$(tls.key)",
		CredentialsSecretRef: v1beta1.SecretRef{Name: "demo-ca"}}}
	v := newView(o)
	for _, job := range []*corev1.PodSpec{&v.takingJob(1).Spec.Template.Spec, &v.deleteJob(1).Spec.Template.Spec} {
		assert.Empty(t, kubelet.Leaks(job))
		assert.Contains(t, kubelet.Line(&job.Containers[0]), "--store-url=s3://b/$(tls.key)",
			"its program is told what is written")
	}
}

// FuzzNoTextOfASnapshotNamesASecret: whatever a spec says, in any field, and though the API server had
// let it through, no value of a Secret comes into a command line, and every text comes to its
// program as it is written.
func FuzzNoTextOfASnapshotNamesASecret(f *testing.F) {
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

		o := aSnapshot()
		o.Snapshot.Spec.Store = store
		recipient := "age1x"
		cluster := o.Clusters["orders"]
		perhaps(&recipient, &o.Snapshot.Spec.Job.ServiceAccountName, &cluster.Spec.Image.Repository,
			&cluster.Status.Version, &cluster.Status.Members[0].Name)
		o.Snapshot.Spec.Encryption = &v1beta1.Encryption{Recipients: []string{recipient}}
		perhaps(&o.Snapshot.Spec.ClusterRef.Name)
		v := newView(o)
		v.cluster = cluster // though it had this name
		for _, pod := range []*corev1.PodSpec{&v.takingJob(1).Spec.Template.Spec, &v.deleteJob(1).Spec.Template.Spec} {
			assert.Empty(t, kubelet.Leaks(pod))
			assert.Contains(t, kubelet.Line(&pod.Containers[0]), "--store-url="+stores.URLOf(&store).String())
			assert.Contains(t, kubelet.Line(&pod.Containers[0]), "--key="+Key(o.Snapshot))
		}
		if err := Verify(o, Decide(o)); err != nil {
			t.Error(err)
		}
	})
}

// ofAnother is a snapshot of an etcd that Quorate does not run, at addresses that the installation allows.
func ofAnother(t *testing.T) Observation {
	t.Helper()
	o := aSnapshot()
	o.Clusters = nil
	o.Snapshot.Spec.ClusterRef = v1beta1.ClusterRef{}
	o.Snapshot.Spec.External = &v1beta1.ExternalSource{Name: "old", Version: "3.5.9", ExternalEtcd: v1beta1.ExternalEtcd{
		Endpoints:   []string{"https://10.1.2.3:2379", "https://10.1.2.4:2379"},
		CASecretRef: v1beta1.SecretRef{Name: "old-ca"}, ClientSecretRef: v1beta1.SecretRef{Name: "old-client"},
		UserSecretRef: v1beta1.SecretRef{Name: "old-root"}, ServerName: "old.example"}}
	allowed, err := objects.ParseAllowedEndpoints("10.1.2.0/24")
	require.NoError(t, err)
	o.AllowedEndpoints = allowed
	for _, name := range []string{"old-ca", "old-client", "old-root"} {
		o.Labelled[name] = true
	}
	return o
}

func TestTakingJobOfAnotherEtcd(t *testing.T) {
	o := ofAnother(t)
	require.NoError(t, Verify(o, Decide(o)))
	pod := theJob(t, o).Spec.Template.Spec
	main := pod.Containers[0]
	assert.Equal(t, "gcr.io/etcd-development/etcd:v3.5.9", main.Image)
	assert.Equal(t, []string{
		"--only-endpoints", "--within=10.1.2.0/24", "--namespace=shop", "--endpoint=https://10.1.2.3:2379", "--endpoint=https://10.1.2.4:2379",
		"--server-name=old.example",
		"--ca=/etc/etcd/pki/external/authority/ca.crt",
		"--cert=/etc/etcd/pki/external/client/tls.crt", "--cert-key=/etc/etcd/pki/external/client/tls.key",
		"--username-file=/etc/etcd/pki/external/user/username", "--password-file=/etc/etcd/pki/external/user/password",
	}, main.Command[2:13])
	assert.Contains(t, main.Command, "--key=shop/old/nightly-12c500ed.db.zst")
	mounted := map[string]bool{}
	for _, mount := range main.VolumeMounts {
		mounted[mount.Name] = true
	}
	for _, volume := range pod.Volumes {
		assert.True(t, mounted[volume.Name], volume.Name)
	}
	assert.Equal(t, "old-root", pod.Volumes[len(pod.Volumes)-1].Secret.SecretName)

	o.Snapshot.Spec.External.ClientSecretRef, o.Snapshot.Spec.External.UserSecretRef = v1beta1.SecretRef{},
		v1beta1.SecretRef{}
	assert.NotContains(t, theJob(t, o).Spec.Template.Spec.Containers[0].Command,
		"--cert=/etc/etcd/pki/external/client/tls.crt", "it shows nothing")
}

func TestAnotherEtcdMustBeAllowed(t *testing.T) {
	o := ofAnother(t)
	o.Snapshot.Spec.External.Endpoints[1] = "https://10.1.3.4:2379"
	d := Decide(o)
	assert.Empty(t, d.Jobs)
	assert.Equal(t, v1beta1.SnapshotPending, d.Status.Phase)
	assert.Equal(t, "spec.external.endpoints[1] can't be used: this installation of Quorate allows only 10.1.2.0/24 "+
		"(quorate install --allowed-etcd-endpoints)", d.Status.Message)
	o.AllowedEndpoints = nil
	assert.Contains(t, Decide(o).Status.Message, "allows no endpoints")
}

// TestTheOwnersOfSecretsMustAgree: a pod would have them at an address of the snapshot's author.
func TestTheOwnersOfSecretsMustAgree(t *testing.T) {
	for _, name := range []string{"old-ca", "old-client", "old-root", "keys", "trust"} {
		o := ofAnother(t)
		delete(o.Labelled, name)
		why := "the Secret " + name + ", which spec names, is not there or lacks the label that lets pods have it: kubectl " +
			"label secret -n shop " + name + " etcd.quorate.dev/external="
		d := Decide(o)
		assert.Empty(t, d.Jobs)
		assert.Equal(t, v1beta1.SnapshotPending, d.Status.Phase)
		assert.Equal(t, why, d.Status.Message)
		_, said := StreamPod(o, Streams{Schedule: &v1beta1.EtcdSnapshotSchedule{}})
		assert.Equal(t, why, said)

		o.Now = o.Now.Add(2 * time.Hour)
		d = Decide(o)
		assert.Contains(t, d.Status.Message, why)
		if strings.HasPrefix(name, "old-") { // the store needs none of these
			continue
		}
		assert.Equal(t, v1beta1.SnapshotFailed, d.Status.Phase)
		assert.Empty(t, d.Jobs, "none looks what is stored")
		o.Snapshot.DeletionTimestamp, o.Snapshot.Spec.DeletionPolicy = new(metav1.NewTime(o.Now)), v1beta1.DeletionDelete
		d = Decide(o)
		assert.Empty(t, d.Jobs, "none deletes what is stored")
		assert.Equal(t, "the stored artifact can't be deleted: "+why, d.Status.Message)
		o.Snapshot.Status, o.Now = d.Status, o.Now.Add(6*time.Minute)
		d = Decide(o)
		assert.True(t, d.Finalized)
		assert.Equal(t, "the stored artifact stays: for 5m "+why, d.Reason.Message)
	}
}

func TestAnotherEtcdThatTheAPIServerLetThrough(t *testing.T) {
	for what, change := range map[string]func(*v1beta1.EtcdSnapshotSpec){
		"both":            func(s *v1beta1.EtcdSnapshotSpec) { s.ClusterRef.Name = "orders" },
		"neither":         func(s *v1beta1.EtcdSnapshotSpec) { s.External = nil },
		"name":            func(s *v1beta1.EtcdSnapshotSpec) { s.External.Name = "../old" },
		"version":         func(s *v1beta1.EtcdSnapshotSpec) { s.External.Version = "3.5.9@sha256:0" },
		"no endpoints":    func(s *v1beta1.EtcdSnapshotSpec) { s.External.Endpoints = nil },
		"plain text":      func(s *v1beta1.EtcdSnapshotSpec) { s.External.Endpoints[1] = "http://10.1.2.4:2379" },
		"a bare password": func(s *v1beta1.EtcdSnapshotSpec) { barePassword(s.External) },
	} {
		o := ofAnother(t)
		change(&o.Snapshot.Spec)
		d := Decide(o)
		assert.Equal(t, "Unsupported", d.Reason.Rule, what)
		assert.Empty(t, d.Jobs, what)
	}
}

func barePassword(external *v1beta1.ExternalSource) {
	external.Endpoints = []string{"http://10.1.2.3:2379"}
	external.CASecretRef, external.ClientSecretRef = v1beta1.SecretRef{}, v1beta1.SecretRef{}
}

// TestTheSecretOfAClustersOperator: a Job has the Secret that the cluster names for Quorate once Quorate has reached
// the members with that: then its owner has agreed.
func TestTheSecretOfAClustersOperator(t *testing.T) {
	o := aSnapshot()
	c := o.Clusters["orders"]
	c.Spec.TLS = v1beta1.TLSSpec{Mode: v1beta1.TLSSecrets, Secrets: &v1beta1.SecretsTLS{
		OperatorSecretRef: v1beta1.SecretRef{Name: "another"}}}
	c.Generation = 2
	assert.Empty(t, Decide(o).Jobs)
	assert.Equal(t, "EtcdCluster orders has changed, and Quorate has not looked at it yet", Decide(o).Status.Message)
	c.Status.ObservedGeneration = 2
	assert.Len(t, Decide(o).Jobs, 1)
}
