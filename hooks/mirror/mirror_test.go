package mirror

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// serving is an EtcdCluster that serves.
func serving(name string) *v1beta1.EtcdCluster {
	return &v1beta1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
		Spec:       v1beta1.EtcdClusterSpec{Version: "3.6.16"},
		Status: v1beta1.EtcdClusterStatus{
			Conditions: []metav1.Condition{{Type: v1beta1.Available, Status: metav1.ConditionTrue}},
			Members: []v1beta1.MemberStatus{{Name: name + "-1", Role: v1beta1.Voter},
				{Name: name + "-0", Role: v1beta1.Voter}},
		},
	}
}

// aMirror is one from the cluster orders to the cluster spare.
func aMirror() Observation {
	return Observation{
		Mirror: &v1beta1.EtcdMirror{
			ObjectMeta: metav1.ObjectMeta{Name: "standby", Namespace: "shop", UID: "77aa00ed-1234", Generation: 3},
			Spec: v1beta1.EtcdMirrorSpec{ClusterRef: v1beta1.ClusterRef{Name: "spare"},
				Source: v1beta1.MirrorSource{ClusterRef: v1beta1.ClusterRef{Name: "orders"}}},
		},
		Pods:     map[string]*corev1.Pod{},
		Clusters: map[string]*v1beta1.EtcdCluster{"orders": serving("orders"), "spare": serving("spare")},
		Images:   objects.Images{Image: "quorate:v1"}, Now: noon,
	}
}

// decided is a decision that says the same when its status is sent back.
func decided(t *testing.T, o Observation) Decision {
	t.Helper()
	d := Decide(o)
	require.NoError(t, snapshot.VerifyPods(o.Images, o.Pods, d.Pods))
	again := o
	again.Mirror = o.Mirror.DeepCopy()
	again.Mirror.Status = d.Status
	rest := Decide(again)
	require.Equal(t, d.Status, rest.Status, "at rest")
	require.Equal(t, d.Pods, rest.Pods)
	return d
}

// made has the pods of a decision run. They are not ready.
func (o *Observation) made(t *testing.T) {
	t.Helper()
	for _, pod := range decided(t, *o).Pods {
		if o.Pods[pod.Name] != nil {
			continue
		}
		pod = pod.DeepCopy()
		pod.UID = "uid"
		purpose := objects.Purpose(&pod.Spec)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: purpose,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}}}}
		o.Pods[pod.Name] = pod
	}
}

const copier, promoter = "standby-77aa00ed-mirror-1", "standby-77aa00ed-promote-1"

func isReady(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// ends has the container of a pod end, and the kubelet start it again.
func ends(pod *corev1.Pod, report string) {
	pod.Status.Conditions = nil
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1,
		Message: report}
}

func podsOf(d Decision) string {
	var names []string
	for _, pod := range d.Pods {
		if pod.UID == "" {
			names = append(names, "+"+pod.Name)
		} else {
			names = append(names, pod.Name)
		}
	}
	return strings.Join(names, " ")
}

func conditions(d Decision) string {
	var all []string
	for _, c := range d.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			all = append(all, c.Type)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestMirrors: each case is what happens to a mirror that mirrors, and what is decided then.
func TestMirrors(t *testing.T) {
	promote := func(p v1beta1.MirrorPromotion) func(o *Observation) {
		return func(o *Observation) { o.Mirror.Spec.Promote = &p }
	}
	for _, c := range []struct {
		what       string
		happens    func(o *Observation)
		pods       string // of the answer; + is new
		conditions string // those that are True
		message    string // its beginning
	}{
		{"nothing", func(*Observation) {}, copier, "Mirroring Ready",
			"pod standby-77aa00ed-mirror-1 copies each change to EtcdCluster spare"},
		{"the pod goes", func(o *Observation) { delete(o.Pods, copier) }, "+" + copier, "Reconciling", "the pod is created"},
		{"it lags", func(o *Observation) { o.Pods[copier].Status.Conditions = nil }, copier, "Reconciling",
			"pod standby-77aa00ed-mirror-1 runs, and what was written 30 seconds ago is not at the destination"},
		{"it still copies", func(o *Observation) {
			o.Pods[copier].Status.Conditions = nil
			o.Mirror.Status = v1beta1.EtcdMirrorStatus{}
		}, copier, "Reconciling", "pod standby-77aa00ed-mirror-1 copies all keys; until that is done"},
		{"its pod failed", func(o *Observation) {
			o.Pods[copier].Status.Phase, o.Pods[copier].Status.Conditions = corev1.PodFailed, nil
		}, "", "Reconciling", ""},
		{"its node is lost", func(o *Observation) {
			o.Pods[copier].DeletionTimestamp = &metav1.Time{Time: noon.Add(-6 * time.Minute)}
		}, copier + " +standby-77aa00ed-mirror-2", "Reconciling", "the pod is created"},
		{"it ends slowly", func(o *Observation) {
			o.Pods[copier].DeletionTimestamp = &metav1.Time{Time: noon.Add(-4 * time.Minute)}
		}, copier, "Reconciling", "the pod is created"},
		{"members change", func(o *Observation) { o.Clusters["spare"].Status.Members[0].Name = "spare-7" }, "",
			"Reconciling", "the pod is created"},
		{"members in another order", func(o *Observation) { slices.Reverse(o.Clusters["spare"].Status.Members) }, copier,
			"Mirroring Ready", ""},
		{"the source is away, and its members change", func(o *Observation) {
			o.Clusters["orders"].Status.Members[0].Name = "orders-7"
			o.Clusters["orders"].Status.Conditions[0].Status = metav1.ConditionFalse
		}, copier, "Mirroring Ready", ""},
		{"another source, which is not there", func(o *Observation) {
			o.Mirror.Spec.Source.ClusterRef.Name = "other"
		}, "", "Reconciling", "EtcdCluster other does not exist in this namespace"},
		{"another source, which is not allowed", func(o *Observation) {
			o.Mirror.Spec.Source = v1beta1.MirrorSource{External: &v1beta1.ExternalEtcd{
				Endpoints: []string{"http://10.1.2.3:2379"}}}
		}, "", "Reconciling", "spec.source.external.endpoints[0] can't be used"},
		{"suspended", func(o *Observation) { o.Mirror.Spec.Suspend = true }, "", "Ready",
			"SUSPENDED: nothing is copied until spec.suspend is false"},
		{"the source can't be reached", func(o *Observation) {
			ends(o.Pods[copier], `{"reason":"Unreachable","error":"the source does not answer"}`)
		}, copier, "Reconciling", "nothing is copied: the source does not answer"},
		{"it was so a while ago", func(o *Observation) {
			ends(o.Pods[copier], `{"reason":"Unreachable","error":"the source does not answer"}`)
			o.Now = noon.Add(2 * time.Minute)
		}, copier, "Reconciling", "pod standby-77aa00ed-mirror-1 runs, and what was written"},
		{"others write to the destination", func(o *Observation) {
			ends(o.Pods[copier], "a line\n"+`{"reason":"Occupied","error":"the destination has keys"}`)
		}, copier, "Stalled", "nothing is copied: the destination has keys"},
		{"the source was restored", func(o *Observation) {
			ends(o.Pods[copier], `{"reason":"OtherCluster","error":"the source is not what was mirrored"}`)
		}, copier, "Stalled", "nothing is copied: the source is not what was mirrored"},
		{"no memory", func(o *Observation) {
			ends(o.Pods[copier], "")
			o.Pods[copier].Status.ContainerStatuses[0].LastTerminationState.Terminated.Reason = "OOMKilled"
		}, copier, "Reconciling", "container mirror was killed because it ran out of memory: raise spec.resources.limits.memory"},
		{"it is deleted", func(o *Observation) { o.Mirror.DeletionTimestamp = &metav1.Time{Time: noon} }, "",
			"Mirroring Ready", ""},
		{"promoted", promote(v1beta1.MirrorPromotion{}), copier + " +" + promoter, "Mirroring Reconciling",
			"ending at the last revision of the source: pod standby-77aa00ed-promote-1 is created"},
		{"promoted at a revision", func(o *Observation) {
			promote(v1beta1.MirrorPromotion{Revision: 4711})(o)
			o.made(t)
		}, copier + " " + promoter, "Mirroring Reconciling",
			"ending at revision 4711 of the source: waiting until the destination has it"},
		{"promoted otherwise than before", func(o *Observation) {
			promote(v1beta1.MirrorPromotion{})(o)
			o.made(t)
			promote(v1beta1.MirrorPromotion{Force: true})(o)
		}, copier, "Mirroring Reconciling", "ending at the last revision that the destination had whole"},
		{"promoted, and the source is away", func(o *Observation) {
			promote(v1beta1.MirrorPromotion{})(o)
			delete(o.Clusters, "orders")
		}, copier, "Mirroring Reconciling",
			"ending at the last revision of the source: EtcdCluster orders does not exist in this namespace"},
		{"promoted as it is, and the source is lost", func(o *Observation) {
			promote(v1beta1.MirrorPromotion{Force: true})(o)
			delete(o.Clusters, "orders")
			delete(o.Pods, copier)
		}, "+" + promoter, "Reconciling", "ending at the last revision that the destination had whole: pod"},
		{"promoted while suspended", func(o *Observation) {
			promote(v1beta1.MirrorPromotion{Force: true})(o)
			o.Mirror.Spec.Suspend = true
		}, "+" + promoter, "Reconciling", "ending at"},
		{"it has ended", func(o *Observation) {
			promote(v1beta1.MirrorPromotion{})(o)
			o.made(t)
			o.Pods[promoter].Status.ContainerStatuses[0].State = corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Message: `{"revision":4711,"ended":true}`}}
			o.Pods[promoter].Status.Phase = corev1.PodSucceeded
		}, "", "Promoted Ready", "promoted at revision 4711 of the source: EtcdCluster spare is yours to write to"},
		{"it was ended by hand", func(o *Observation) {
			ends(o.Pods[copier], `{"revision":4711,"ended":true,"reason":"Ended","error":"this mirror was ended"}`)
		}, "", "Promoted Ready", "promoted at revision 4711 of the source"},
		{"a spec that can't be", func(o *Observation) { o.Mirror.Spec.Source.ClusterRef.Name = "spare" }, "",
			"Stalled", "spec.source.clusterRef is the destination itself"},
	} {
		t.Run(c.what, func(t *testing.T) {
			o := aMirror()
			o.made(t)
			isReady(o.Pods[copier])
			o.Mirror.Status = decided(t, o).Status
			require.Equal(t, metav1.NewTime(noon), o.Mirror.Status.CopiedTime)
			c.happens(&o)
			d := decided(t, o)
			assert.Equal(t, c.pods, podsOf(d))
			assert.Equal(t, c.conditions, conditions(d))
			assert.True(t, strings.HasPrefix(d.Status.Message, c.message), d.Status.Message)
			assert.Len(t, d.Status.Conditions, 5)
		})
	}
}

// TestTheEndIsRemembered: a mirror that has ended is not begun again, and one whose status is lost is asked once more.
func TestTheEndIsRemembered(t *testing.T) {
	o := aMirror()
	o.Mirror.Spec.Promote = &v1beta1.MirrorPromotion{}
	o.made(t)
	o.Pods[promoter].Status.ContainerStatuses[0].State = corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Message: `{"revision":4711,"ended":true}`}}
	o.Mirror.Status = decided(t, o).Status
	o.Pods = map[string]*corev1.Pod{}
	d := decided(t, o)
	assert.Empty(t, d.Pods)
	assert.Equal(t, int64(4711), d.Status.PromotedRevision)
	assert.True(t, meta.IsStatusConditionTrue(d.Status.Conditions, v1beta1.Promoted))
	o.Mirror.Status = v1beta1.EtcdMirrorStatus{}
	assert.Equal(t, "+"+copier+" +"+promoter, podsOf(decided(t, o)))
}

// TestBeforeThePod: what a mirror waits for.
func TestBeforeThePod(t *testing.T) {
	for message, change := range map[string]func(*Observation){
		"EtcdCluster spare does not exist in this namespace":  func(o *Observation) { delete(o.Clusters, "spare") },
		"EtcdCluster orders does not exist in this namespace": func(o *Observation) { delete(o.Clusters, "orders") },
		"EtcdCluster spare is new": func(o *Observation) {
			o.Clusters["spare"].Status.Conditions = nil
		},
		"spec.source.external.endpoints[0] can't be used: this installation of Quorate allows no endpoints": func(
			o *Observation) {
			o.Mirror.Spec.Source = v1beta1.MirrorSource{External: &v1beta1.ExternalEtcd{
				Endpoints: []string{"http://10.1.2.3:2379"}}}
		},
		"spec.source.external.caSecretRef is for endpoints that begin with https://": func(o *Observation) {
			o.Mirror.Spec.Source = v1beta1.MirrorSource{External: &v1beta1.ExternalEtcd{
				Endpoints: []string{"https://10.1.2.3:2379"}}}
		},
		"set exactly one of spec.source.clusterRef, spec.source.external and spec.source.stored": func(o *Observation) {
			o.Mirror.Spec.Source = v1beta1.MirrorSource{}
		},
		"spec.source.stored.store": func(o *Observation) {
			o.Mirror.Spec.Source = v1beta1.MirrorSource{Stored: &v1beta1.StoredSource{Folder: "shop/orders"}}
		},
	} {
		o := aMirror()
		change(&o)
		d := decided(t, o)
		assert.Empty(t, d.Pods, message)
		assert.True(t, strings.HasPrefix(d.Status.Message, message), "%s: %s", message, d.Status.Message)
		assert.False(t, meta.IsStatusConditionTrue(d.Status.Conditions, v1beta1.Ready), message)
	}
}

// pod is that of a purpose in a decision.
func pod(t *testing.T, o Observation, name string) *corev1.Pod {
	t.Helper()
	all := decided(t, o).Pods
	i := slices.IndexFunc(all, func(p *corev1.Pod) bool { return p.Name == name })
	require.GreaterOrEqual(t, i, 0, podsOf(Decision{Pods: all}))
	return all[i]
}

func TestPodsOfAMirror(t *testing.T) {
	o := aMirror()
	o.Mirror.Spec.Prefix, o.Mirror.Spec.ToPrefix = "/a $(x)/", new("")
	o.Mirror.Spec.ExcludePrefixes, o.Mirror.Spec.CompareOnStart = []string{"/a $(x)/z", "/a $(x)/b"}, true
	o.Mirror.Spec.Promote = &v1beta1.MirrorPromotion{}
	o.Clusters["spare"].Spec.Options.ExtraArgs = map[string]v1beta1.ExtraArg{"max-txn-ops": "1000"}
	pull := []corev1.LocalObjectReference{{Name: "registry"}}
	o.Clusters["spare"].Spec.Image.PullSecrets = pull
	main := pod(t, o, copier).Spec.Containers[0]
	assert.Equal(t, []string{"/quorate-snapshot", "mirror",
		"--ca=/etc/etcd/pki/operator/ca.crt", "--cert-key=/etc/etcd/pki/operator/tls.key",
		"--cert=/etc/etcd/pki/operator/tls.crt", "--endpoint=https://orders-0.orders-peers.shop.svc:2379",
		"--endpoint=https://orders-1.orders-peers.shop.svc:2379",
		"--to-ca=/etc/etcd/pki/to/operator/ca.crt", "--to-cert-key=/etc/etcd/pki/to/operator/tls.key",
		"--to-cert=/etc/etcd/pki/to/operator/tls.crt", "--to-endpoint=https://spare-0.spare-peers.shop.svc:2379",
		"--to-endpoint=https://spare-1.spare-peers.shop.svc:2379", "--name=standby", "--to-max-txn-ops=1000",
		"--prefix=/a $(x)/", "--to-prefix=", "--exclude=/a $(x)/b", "--exclude=/a $(x)/z", "--compare-on-start",
		"--listen=:2390"}, kubelet.Line(&main))
	assert.Equal(t, "quorate:v1", main.Image)
	assert.Equal(t, "/health", main.ReadinessProbe.HTTPGet.Path)
	ends := pod(t, o, promoter)
	line := kubelet.Line(&ends.Spec.Containers[0])
	assert.Equal(t, []string{"/quorate-snapshot", "mirror", "promote"}, line[:3])
	assert.Equal(t, []string{"--name=standby", "--to-max-txn-ops=1000"}, line[len(line)-2:])
	assert.Equal(t, corev1.RestartPolicyOnFailure, ends.Spec.RestartPolicy)
	for _, name := range []string{copier, promoter} {
		pod := pod(t, o, name)
		assert.Empty(t, kubelet.Leaks(&pod.Spec))
		assert.Equal(t, map[string]string{"etcd.quorate.dev/mirror": "standby", "app.kubernetes.io/name": "etcd-mirror",
			"app.kubernetes.io/instance": "spare", "app.kubernetes.io/managed-by": "quorate"}, pod.Labels)
		assert.True(t, *pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
		assert.Equal(t, pull, pod.Spec.ImagePullSecrets, "as the members' pods")
		assert.True(t, *pod.Spec.SecurityContext.RunAsNonRoot)
		assert.False(t, *pod.Spec.AutomountServiceAccountToken)
		assert.True(t, mounts(pod), "every volume is mounted, each at a place of its own")
	}
	for flag, promotion := range map[string]v1beta1.MirrorPromotion{"--force": {Force: true},
		"--revision=7": {Revision: 7}} {
		o.Mirror.Spec.Promote = &promotion
		ends := pod(t, o, promoter)
		args := ends.Spec.Containers[0].Args
		assert.Equal(t, flag, args[len(args)-1])
		assert.False(t, slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--endpoint=") }),
			"the source may be lost")
		assert.Len(t, ends.Spec.Volumes, 1)
	}
}

// mounts reports whether a pod's volumes are those of its mounts, and no two are at one place.
func mounts(pod *corev1.Pod) bool {
	var volumes, mounted, places []string
	for _, v := range pod.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		mounted, places = append(mounted, m.Name), append(places, m.MountPath)
	}
	slices.Sort(places)
	return slices.Equal(volumes, mounted) && len(slices.Compact(places)) == len(mounted)
}

func TestAMirrorFromElsewhere(t *testing.T) {
	o := aMirror()
	o.Mirror.Spec.Source = v1beta1.MirrorSource{External: &v1beta1.ExternalEtcd{
		Endpoints: []string{"https://10.1.2.3:2379"}, CASecretRef: v1beta1.SecretRef{Name: "old"},
		ClientSecretRef: v1beta1.SecretRef{Name: "old"}, UserSecretRef: v1beta1.SecretRef{Name: "old-root"},
		ServerName: "old.example"}}
	allowed, err := objects.ParseAllowedEndpoints("10.1.2.0/24")
	require.NoError(t, err)
	o.AllowedEndpoints = allowed
	o.Labelled = map[string]bool{"old": true}
	d := decided(t, o)
	assert.Empty(t, d.Pods, "an owner has not agreed")
	assert.Equal(t, "the Secret old-root, which spec.source names, is not there or lacks the label that lets "+
		"pods have it: kubectl label secret -n shop old-root etcd.quorate.dev/external=", d.Status.Message)
	o.Labelled["old-root"] = true
	made := pod(t, o, copier)
	for _, flag := range []string{"--within=10.1.2.0/24", "--namespace=shop", "--endpoint=https://10.1.2.3:2379", "--server-name=old.example",
		"--ca=/etc/etcd/pki/external/authority/ca.crt", "--username-file=/etc/etcd/pki/external/user/username"} {
		assert.Contains(t, made.Spec.Containers[0].Args, flag)
	}
	assert.NotContains(t, made.Spec.Containers[0].Args, "--only-endpoints", "a mirror asks no other URL")
	assert.True(t, mounts(made))

	o.made(t)
	o.Labelled = nil
	assert.Len(t, decided(t, o).Pods, 1, "it runs, and has them")
	o.AllowedEndpoints = nil
	assert.Empty(t, decided(t, o).Pods, "an endpoint is no longer allowed")
}

func TestNamesOfPodsFit(t *testing.T) {
	m := aMirror().Mirror
	for _, name := range []string{"a", "a.b", strings.Repeat("x", 63), strings.Repeat("x.", 31) + "x"} {
		m.Name = name
		assert.Empty(t, validation.IsDNS1123Label(objects.NumberedName(m, objects.ContainerPromote, 12)), name)
	}
}

// TestStored: a mirror that reads a store has what comes to that, and nothing that comes to the source's etcd. A
// promotion as it is needs neither.
func TestStored(t *testing.T) {
	o := aMirror()
	o.Mirror.Spec.Source = v1beta1.MirrorSource{Stored: &v1beta1.StoredSource{
		Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "backups", Prefix: "etcd",
			CredentialsSecretRef: v1beta1.SecretRef{Name: "s3"}}},
		Folder: "shop/orders", IdentitySecretRef: v1beta1.SecretKeyRef{Name: "age"},
		KeysSecretRef: v1beta1.SecretKeyRef{Name: "orders-stream-key"}, ServiceAccountName: "reader"}}
	delete(o.Clusters, "orders")
	o.Labelled = map[string]bool{}
	for _, name := range []string{"s3", "age", "orders-stream-key"} {
		assert.Empty(t, decided(t, o).Pods)
		assert.Contains(t, decided(t, o).Status.Message, "the Secret "+name+", which spec.source names")
		o.Labelled[name] = true
	}
	main := pod(t, o, copier)
	line := strings.Join(kubelet.Line(&main.Spec.Containers[0]), " ")
	for _, flag := range []string{"--store-url=s3://backups/etcd", "--tail=shop/orders/tail",
		"--identity=/etc/quorate-store/identity/identity",
		"--stream-keys=/etc/quorate-store/stream/stream.key", "--scratch=/var/run/quorate-scratch"} {
		assert.Contains(t, line, flag)
	}
	assert.NotContains(t, line, " --endpoint=")
	assert.Equal(t, "reader", main.Spec.ServiceAccountName)
	assert.Contains(t, main.Spec.Containers[0].Env[0].Name, "AWS_")
	assert.True(t, mounts(main), "every volume is mounted, each at a place of its own")
	assert.Empty(t, kubelet.Leaks(&main.Spec))

	o.Mirror.Spec.Promote = &v1beta1.MirrorPromotion{}
	ends := pod(t, o, promoter)
	assert.Contains(t, strings.Join(kubelet.Line(&ends.Spec.Containers[0]), " "), "--tail=shop/orders/tail")
	o.Mirror.Spec.Promote.Force = true
	ends = pod(t, o, promoter)
	assert.NotContains(t, strings.Join(kubelet.Line(&ends.Spec.Containers[0]), " "), "--tail")
	assert.Len(t, ends.Spec.Containers[0].Env, 1, "GOMEMLIMIT")
}
