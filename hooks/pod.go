package hooks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

const (
	gracePeriod        = 30 // seconds; etcd hands its leadership on within one of them
	provisionGate      = objects.Domain + "provision"
	volumeData         = "data"
	volumeState        = "state"
	stateMount         = "/var/run/quorate"
	volumeCertificates = "certificates"
)

// newPod is the pod of a member that has none, on a volume of this size. peersTLS says how its peers dial it, env how
// etcd is to begin without data.
func newPod(o Observation, name, version, start string, volume resource.Quantity, peersTLS bool,
	env []corev1.EnvVar) *corev1.Pod {
	c := o.Cluster
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: labels(c, map[string]string{objects.LabelMember: name}),
			Annotations: annotations(c, map[string]string{
				objects.AnnotationStart: start,
			}),
		},
		Spec: podSpec(o, templateOf(c, version), name, version, volume, peersTLS),
	}
	etcd, prepare := &pod.Spec.Containers[0], &pod.Spec.InitContainers[0]
	etcd.Env = append(etcd.Env, env...)
	prepare.Args = append(prepare.Args, "--start="+start)
	return pod
}

// podSpec is how the pod of every member looks that is made from this template.
func podSpec(o Observation, t *template, name, version string, volume resource.Quantity, peersTLS bool) corev1.PodSpec {
	constraints := t.Spread
	if constraints == nil {
		constraints = overZones(o.Cluster)
	}
	return corev1.PodSpec{
		Hostname:                      name,
		Subdomain:                     objects.PeerService(o.Cluster.Name),
		RestartPolicy:                 corev1.RestartPolicyAlways,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(gracePeriod)),
		SecurityContext:               objects.PodSecurity(),
		ImagePullSecrets:              t.PullSecrets,
		Affinity:                      cmp.Or(t.Affinity, apart(o.Cluster)),
		NodeSelector:                  t.NodeSelector,
		Tolerations:                   t.Tolerations,
		TopologySpreadConstraints:     constraints,
		PriorityClassName:             t.PriorityClass,
		InitContainers:                []corev1.Container{prepareContainer(o)},
		Containers:                    []corev1.Container{etcdContainer(o, t, name, version, volume, peersTLS)},
		Volumes: append([]corev1.Volume{
			dataVolume(t, name),
			// On the node's disk even when the data is in memory: prepare's memory of having started here.
			{Name: volumeState, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}, certificateVolume(o.Cluster.Name, t)...),
	}
}

// certificateVolume holds what the member shows and whom it trusts; none when it speaks plain text.
func certificateVolume(cluster string, t *template) []corev1.Volume {
	if t.Server == "" {
		return nil
	}
	from := func(secret, dir string, keys ...string) corev1.VolumeProjection {
		p := &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}
		for _, key := range keys {
			p.Items = append(p.Items, corev1.KeyToPath{Key: key, Path: dir + "/" + key})
		}
		return corev1.VolumeProjection{Secret: p}
	}
	return []corev1.Volume{{Name: volumeCertificates,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: new(int32(0o440)),
			Sources: []corev1.VolumeProjection{
				from(t.Server, "server", objects.KeyCertificate, objects.KeyPrivate, objects.KeyTrust),
				from(t.Peer, "peer", objects.KeyCertificate, objects.KeyPrivate, objects.KeyTrust),
				from(TokenSecret(cluster), "token", objects.KeyTokenPrivate, objects.KeyTokenPublic),
			},
		}}}}
}

func dataVolume(t *template, name string) corev1.Volume {
	if t.Tmpfs != nil {
		return corev1.Volume{Name: volumeData, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: t.Tmpfs},
		}}
	}
	return corev1.Volume{Name: volumeData, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}
}

func prepareContainer(o Observation) corev1.Container {
	return corev1.Container{
		Name:            objects.ContainerPrepare,
		Image:           o.Settings.Image,
		ImagePullPolicy: o.Settings.ImagePullPolicy,
		Args:            []string{"prepare", "--data-dir=" + objects.DataDir, "--marker=" + objects.MarkerFile},
		SecurityContext: objects.Restricted(),
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
		}},
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeData, MountPath: "/var/lib/etcd"},
			{Name: volumeState, MountPath: stateMount},
		},
	}
}

func etcdContainer(o Observation, t *template, name, version string, volume resource.Quantity,
	peersTLS bool) corev1.Container {
	c := o.Cluster
	return corev1.Container{
		Name:            objects.ContainerEtcd,
		Image:           o.Settings.Etcd(&c.Spec, version),
		ImagePullPolicy: t.PullPolicy,
		Command:         append([]string{"/usr/local/bin/etcd"}, flags(c, t, name, version, volume, peersTLS)...),
		Env:             environment(c),
		Ports: []corev1.ContainerPort{
			{Name: "client", ContainerPort: objects.ClientPort},
			{Name: "peer", ContainerPort: objects.PeerPort},
			{Name: "metrics", ContainerPort: objects.MetricsPort},
		},
		Resources:       t.Resources,
		SecurityContext: objects.Restricted(),
		VolumeMounts:    etcdMounts(t),
		// /readyz fails on a learner, which refuses most requests, and not on the alarm NOSPACE, so that neither sends
		// clients to the wrong place nor empties the Service.
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz",
				Port: intstr.FromInt32(objects.MetricsPort)}},
			PeriodSeconds: 2, TimeoutSeconds: 3, FailureThreshold: 3,
		},
		// No liveness probe: docs/decisions/0002-probes.md.
	}
}

func etcdMounts(t *template) []corev1.VolumeMount {
	list := []corev1.VolumeMount{{Name: volumeData, MountPath: "/var/lib/etcd"}}
	if t.Server != "" {
		list = append(list, corev1.VolumeMount{Name: volumeCertificates, MountPath: objects.CertificateDir,
			ReadOnly: true})
	}
	return list
}

// environment makes etcdctl work without flags, and tells the Go runtime its limits.
func environment(c *v1alpha1.EtcdCluster) []corev1.EnvVar {
	s := &c.Spec
	env := []corev1.EnvVar{{Name: "ETCDCTL_ENDPOINTS",
		Value: urlOn(objects.Scheme(c), "127.0.0.1", objects.ClientPort)}}
	if objects.Encrypted(c) {
		env = append(env,
			corev1.EnvVar{Name: "ETCDCTL_CACERT", Value: objects.CertificateDir + "/server/" + objects.KeyTrust},
			corev1.EnvVar{Name: "ETCDCTL_CERT", Value: objects.CertificateDir + "/server/" + objects.KeyCertificate},
			corev1.EnvVar{Name: "ETCDCTL_KEY", Value: objects.CertificateDir + "/server/" + objects.KeyPrivate})
	}
	if cpu, ok := s.Resources.Limits[corev1.ResourceCPU]; ok {
		env = append(env, corev1.EnvVar{Name: "GOMAXPROCS", Value: fmt.Sprint(max(1, (cpu.MilliValue()+999)/1000))})
	}
	if memory, ok := s.Resources.Limits[corev1.ResourceMemory]; ok {
		// A tenth is left for what Go does not count: the mapped database's page tables, stacks of the kernel.
		env = append(env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: fmt.Sprint(memory.Value() / 10 * 9)})
	}
	return env
}

// labels of an object of the cluster: the user's, then ours.
func labels(c *v1alpha1.EtcdCluster, own map[string]string) map[string]string {
	all := foreignKeys(c.Spec.AdditionalMetadata.Labels)
	maps.Copy(all, own)
	all[objects.LabelCluster] = c.Name
	all["app.kubernetes.io/name"] = "etcd"
	all["app.kubernetes.io/instance"] = c.Name
	all["app.kubernetes.io/managed-by"] = "quorate"
	return all
}

func annotations(c *v1alpha1.EtcdCluster, own map[string]string) map[string]string {
	all := foreignKeys(c.Spec.AdditionalMetadata.Annotations)
	maps.Copy(all, own)
	return all
}

// fingerprint is a short hash of plain data.
func fingerprint(data any) string {
	raw, err := json.Marshal(data)
	if err != nil { // plain data always encodes
		return "unknown"
	}
	return objects.Digest(string(raw))
}

// bootstrapEnv lets etcd read the initial cluster from the epoch record itself.
func bootstrapEnv(record string) []corev1.EnvVar {
	from := func(key string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: record}, Key: key}}
	}
	return []corev1.EnvVar{
		{Name: "ETCD_INITIAL_CLUSTER_STATE", Value: "new"},
		{Name: "ETCD_INITIAL_CLUSTER", ValueFrom: from(objects.EpochKeyInitialCluster)},
		{Name: "ETCD_INITIAL_CLUSTER_TOKEN", ValueFrom: from(objects.EpochKeyToken)},
	}
}

// joinEnv tells a new member whom it joins, by an annotation that is read whenever the container starts, and is taken
// away once the member has begun: if its directory is emptied under it, in a pod that stays and so is not prepared
// again, it knows nobody to join a second time (S10).
func joinEnv() []corev1.EnvVar {
	source := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1",
		FieldPath: "metadata.annotations['" + objects.AnnotationInitialCluster + "']"}}
	return []corev1.EnvVar{
		{Name: "ETCD_INITIAL_CLUSTER_STATE", Value: "existing"},
		{Name: "ETCD_INITIAL_CLUSTER", ValueFrom: source},
	}
}

func resumeEnv() []corev1.EnvVar {
	return []corev1.EnvVar{{Name: "ETCD_INITIAL_CLUSTER_STATE", Value: "existing"}}
}

func urlOn(scheme, ip string, port int) string {
	if strings.Contains(ip, ":") {
		ip = "[" + ip + "]"
	}
	return fmt.Sprintf("%s://%s:%d", scheme, ip, port)
}
