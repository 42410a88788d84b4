package answer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

const (
	gracePeriod = 30 // seconds; etcd hands its leadership on within one of them
	// ProvisionGate is the scheduling gate of a pod that provisions a claim's volume and runs nothing.
	ProvisionGate      = objects.Domain + "create-volumes"
	volumeCertificates = "certificates"
)

// NewPod is the pod of a member that has none, at this address on the hosts' network, with so much room.
// speaks says how it is dialled, env how etcd begins without data.
func NewPod(o observation.Observation, name, address, version, start string, room defaults.Room,
	speaks defaults.Speech, env []corev1.EnvVar) *corev1.Pod {
	c := o.Cluster
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: objects.Labels(c, map[string]string{objects.LabelMember: name}),
			Annotations: objects.Annotations(c, map[string]string{
				objects.AnnotationStart: start,
			}),
		},
		Spec: podSpec(o, facts.TemplateOf(c, version), name, address, version, room, speaks),
	}
	etcd := &pod.Spec.Containers[0]
	prepare := &pod.Spec.InitContainers[0]
	etcd.Env = append(etcd.Env, env...)
	prepare.Args = append(prepare.Args, "--start="+start)
	return pod
}

// podSpec is how the pod of every member looks that is made from this template.
func podSpec(o observation.Observation, t *defaults.Template, name, address, version string, room defaults.Room,
	speaks defaults.Speech) corev1.PodSpec {
	constraints := t.Spread
	if constraints == nil {
		constraints = facts.OverZones(o.Cluster)
	}
	podSpec := corev1.PodSpec{
		Hostname:                      name,
		Subdomain:                     objects.PeerService(o.Cluster.Name),
		RestartPolicy:                 corev1.RestartPolicyAlways,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(gracePeriod)),
		SecurityContext:               cmp.Or(t.Security, objects.PodSecurity(nil)),
		ImagePullSecrets:              t.PullSecrets,
		Affinity:                      cmp.Or(t.Affinity, facts.Apart(o.Cluster)),
		NodeSelector:                  t.NodeSelector,
		Tolerations:                   t.Tolerations,
		TopologySpreadConstraints:     constraints,
		PriorityClassName:             t.PriorityClass,
		SchedulerName:                 t.Scheduler,
		ServiceAccountName:            t.ServiceAccount,
		InitContainers:                []corev1.Container{prepareContainer(o, objects.Before(t.Resources))},
		Containers: []corev1.Container{
			etcdContainer(o, t, name, address, version, room, speaks), trimContainer(o, t.Resources)},
		Volumes: append([]corev1.Volume{
			dataVolume(t, name),
			// On the node's disk even when the data is in memory: prepare's memory of having started here.
			{Name: facts.VolumeState, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}, certificateVolume(o.Cluster.Name, t, speaks.Revokes)...),
	}
	if t.Runtime != "" {
		podSpec.RuntimeClassName = &t.Runtime
	}
	if t.Ports != nil {
		// Names are for what fills a data directory: etcd itself is told addresses alone.
		podSpec.HostNetwork = true
		podSpec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
		// Kubernetes would put no second pod with the same ports on a node, and that of the next epoch is made ready
		// beside the one that runs. Which member is on which node is decided here.
		podSpec.Containers[0].Ports = nil
	}
	return podSpec
}

// certificateVolume holds what the member shows and what it trusts; none when it speaks plain text.
func certificateVolume(cluster string, t *defaults.Template, revokes bool) []corev1.Volume {
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
	sources := []corev1.VolumeProjection{
		from(t.Server, "server", objects.KeyCertificate, objects.KeyPrivate, objects.KeyTrust),
		from(t.Peer, "peer", objects.KeyCertificate, objects.KeyPrivate, objects.KeyTrust),
		from(defaults.TokenSecret(cluster), "token", objects.KeyTokenPrivate, objects.KeyTokenPublic),
	}
	if revokes {
		sources = append(sources, from(defaults.CRLSecret(cluster), "clients", objects.KeyCRL))
	}
	return []corev1.Volume{{Name: volumeCertificates, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(int32(0o440)), Sources: sources}}}}
}

func dataVolume(t *defaults.Template, name string) corev1.Volume {
	if t.Tmpfs != nil {
		return corev1.Volume{Name: facts.VolumeData, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: t.Tmpfs},
		}}
	}
	return objects.ClaimVolume(facts.VolumeData, name)
}

func prepareContainer(o observation.Observation, resources corev1.ResourceRequirements) corev1.Container {
	return corev1.Container{
		Name:            objects.ContainerPrepare,
		Image:           o.Settings.Image,
		ImagePullPolicy: o.Settings.ImagePullPolicy,
		Args:            []string{"prepare", "--data-dir=" + objects.DataDir, "--marker=" + objects.MarkerFile},
		SecurityContext: objects.Restricted(),
		Resources:       resources,
		VolumeMounts: []corev1.VolumeMount{
			{Name: facts.VolumeData, MountPath: "/var/lib/etcd"},
			{Name: facts.VolumeState, MountPath: facts.StateMount},
		},
	}
}

// trimContainer keeps etcd's log as short as the account of a volume says (defaults.Room).
func trimContainer(o observation.Observation, beside corev1.ResourceRequirements) corev1.Container {
	trim := prepareContainer(o, objects.Beside(beside))
	trim.Name = objects.ContainerTrim
	trim.Command = []string{objects.TrimProgram}
	trim.Args = []string{"--data-dir=" + objects.DataDir}
	trim.VolumeMounts = trim.VolumeMounts[:1]
	return trim
}

func etcdContainer(o observation.Observation, t *defaults.Template, name, address, version string,
	room defaults.Room, speaks defaults.Speech) corev1.Container {
	c := o.Cluster
	_, _, metricsPort := objects.Ports(c)
	return corev1.Container{
		Name:            objects.ContainerEtcd,
		Image:           o.Settings.Etcd(&c.Spec, version),
		ImagePullPolicy: t.PullPolicy,
		Command: append([]string{"/usr/local/bin/etcd"},
			defaults.Flags(c, t, name, address, version, room, speaks)...),
		Env: environment(c),
		Ports: []corev1.ContainerPort{
			{Name: "client", ContainerPort: objects.ClientPort},
			{Name: "peer", ContainerPort: objects.PeerPort},
			{Name: "metrics", ContainerPort: objects.MetricsPort},
		},
		Resources:       t.Resources,
		SecurityContext: objects.Restricted(),
		VolumeMounts:    etcdMounts(t),
		// The end of its log is in its pod's status when it dies: pods.DiskFull reads there why.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		// /readyz fails on a learner, which refuses most requests, and not on the alarm NOSPACE, so that neither sends
		// clients to the wrong place nor empties the Service.
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz",
				Port: intstr.FromInt(metricsPort)}},
			PeriodSeconds: 2, TimeoutSeconds: 3, FailureThreshold: 3,
		},
		// No liveness probe, and so no startup probe. A member with a large database opens its ports late, and one that
		// defragments does not answer: killing either makes it start again from the beginning. The kubelet knows when a
		// process ends, and a member that is up and does not serve is seen by Quorate, which asks every member itself.
	}
}

func etcdMounts(t *defaults.Template) []corev1.VolumeMount {
	list := []corev1.VolumeMount{{Name: facts.VolumeData, MountPath: "/var/lib/etcd"}}
	if t.Server != "" {
		list = append(list, corev1.VolumeMount{Name: volumeCertificates, MountPath: objects.CertificateDir,
			ReadOnly: true})
	}
	return list
}

// joinEnv tells a new member what it joins, by an annotation that is taken away once the member has begun: if its
// directory is emptied under it, in a pod that stays and so is not prepared again, it knows no cluster to join a second
// time (S10).
func joinEnv() []corev1.EnvVar {
	return append(ResumeEnv(),
		corev1.EnvVar{Name: "ETCD_INITIAL_CLUSTER", ValueFrom: objects.FromInitialCluster()})
}

// AllowAnyPeer lets a new pod's member take every certificate of its authorities for a peer's: external ones have
// other names in theirs.
func AllowAnyPeer(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Command = slices.DeleteFunc(pod.Spec.Containers[i].Command,
			func(flag string) bool { return strings.HasPrefix(flag, "--peer-cert-allowed-cn=") })
	}
}

// advertise puts a URL on a new pod that its member advertises beside its own.
func advertise(pod *corev1.Pod, url string) {
	if i, j := facts.Advertised(pod); i >= 0 && url != "" {
		pod.Spec.Containers[i].Command[j] += "," + url
	}
}

// environment makes etcdctl work without flags, and tells the Go runtime its limits.
func environment(c *v1beta1.EtcdCluster) []corev1.EnvVar {
	s := &c.Spec
	port, _, _ := objects.Ports(c)
	env := []corev1.EnvVar{{Name: "ETCDCTL_ENDPOINTS", Value: defaults.URLOn(objects.Scheme(c), "127.0.0.1", port)}}
	if objects.Encrypted(c) {
		env = append(env,
			corev1.EnvVar{Name: "ETCDCTL_CACERT", Value: objects.CertificateDir + "/server/" + objects.KeyTrust},
			corev1.EnvVar{Name: "ETCDCTL_CERT", Value: objects.CertificateDir + "/server/" + objects.KeyCertificate},
			corev1.EnvVar{Name: "ETCDCTL_KEY", Value: objects.CertificateDir + "/server/" + objects.KeyPrivate})
	}
	return append(env, goLimits(s)...)
}

// goLimits tell the Go runtime what the container may use. The kubelet works them out each time the container starts,
// so they follow a limit that was changed in place.
func goLimits(s *v1beta1.EtcdClusterSpec) (env []corev1.EnvVar) {
	if _, limited := s.Resources.Limits[corev1.ResourceCPU]; limited {
		env = append(env, corev1.EnvVar{Name: "GOMAXPROCS", ValueFrom: objects.LimitOf(corev1.ResourceCPU, "1")})
	}
	memory, limited := s.Resources.Limits[corev1.ResourceMemory]
	switch {
	case !limited:
	case s.Storage.Medium == v1beta1.Memory:
		// The container's limit has room for the tmpfs too.
		env = append(env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: fmt.Sprint(memory.Value() / 10 * 9)})
	default:
		env = append(env,
			corev1.EnvVar{Name: objects.VariableMemory, ValueFrom: objects.LimitOf(corev1.ResourceMemory, "1Mi")},
			corev1.EnvVar{Name: "GOMEMLIMIT", Value: objects.MostOfTheMemory})
	}
	return env
}

// BootstrapEnv is the environment of an etcd that begins the epoch with this record. It reads the initial cluster
// from its pod, which can take it back once the member has begun: with its directory emptied, in a pod that stays and
// so is not prepared again, etcd would begin a second time when no peer answers it within a second (S10;
// isMemberBootstrapped in etcd's server/etcdserver/cluster_util.go). It reads the token from the record itself, so
// nothing begins without that.
func BootstrapEnv(record string) []corev1.EnvVar {
	return initialEnv(record, objects.FromInitialCluster())
}

// recordEnv is the initial cluster and the token of the epoch with this record, as it has them.
func recordEnv(name string) []corev1.EnvVar {
	return initialEnv(name, fromRecord(name, record.KeyInitialCluster))
}

func initialEnv(name string, cluster *corev1.EnvVarSource) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "ETCD_INITIAL_CLUSTER_STATE", Value: "new"},
		{Name: "ETCD_INITIAL_CLUSTER", ValueFrom: cluster},
		{Name: "ETCD_INITIAL_CLUSTER_TOKEN", ValueFrom: fromRecord(name, record.KeyToken)},
	}
}

func fromRecord(name, key string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}}
}

// ResumeEnv is the environment of an etcd that has data, or joins others.
func ResumeEnv() []corev1.EnvVar {
	return []corev1.EnvVar{{Name: "ETCD_INITIAL_CLUSTER_STATE", Value: "existing"}}
}

// WithWAL gives a new pod the volume for its write-ahead log.
func WithWAL(pod *corev1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, objects.ClaimVolume(facts.VolumeWAL, facts.WALClaim(pod.Name)))
	mount := corev1.VolumeMount{Name: facts.VolumeWAL, MountPath: facts.WALMount}
	etcd := &pod.Spec.Containers[0]
	trim := &pod.Spec.Containers[1]
	prepare := &pod.Spec.InitContainers[0]
	for _, c := range []*corev1.Container{etcd, trim, prepare} {
		c.VolumeMounts = append(c.VolumeMounts, mount)
	}
	etcd.Command = append(etcd.Command, "--wal-dir="+facts.WALDir)
	trim.Args = append(trim.Args, "--wal-dir="+facts.WALDir)
	prepare.Args = append(prepare.Args, "--wal-dir="+facts.WALDir)
}
