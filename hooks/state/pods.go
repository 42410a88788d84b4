package state

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/spec"
)

const (
	// VolumeData is the volume of a member's pod with its data.
	VolumeData = "data"
	// VolumeState is a volume of its own for what prepare remembers of having started here.
	VolumeState = "state"
	// StateMount is where that is mounted.
	StateMount = "/var/run/quorate"
)

// Environment makes etcdctl work without flags, and tells the Go runtime its limits.
func Environment(c *v1alpha1.EtcdCluster) []corev1.EnvVar {
	s := &c.Spec
	port, _, _ := objects.Ports(c)
	env := []corev1.EnvVar{{Name: "ETCDCTL_ENDPOINTS", Value: spec.URLOn(objects.Scheme(c), "127.0.0.1", port)}}
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
func goLimits(s *v1alpha1.EtcdClusterSpec) (env []corev1.EnvVar) {
	if _, limited := s.Resources.Limits[corev1.ResourceCPU]; limited {
		env = append(env, corev1.EnvVar{Name: "GOMAXPROCS", ValueFrom: objects.LimitOf(corev1.ResourceCPU, "1")})
	}
	memory, limited := s.Resources.Limits[corev1.ResourceMemory]
	switch {
	case !limited:
	case s.Storage.Medium == v1alpha1.Memory:
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

// RecordEnv is the initial cluster and the token of the epoch with this record, as it has them.
func RecordEnv(name string) []corev1.EnvVar {
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
