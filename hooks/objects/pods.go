package objects

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Literal has the containers of a new pod get every command, argument and variable as it is
// written. Without it a kubelet takes $(NAME) in them for the value of that variable, which may be
// a secret, and what a spec says reaches them. It takes $$ for $ (the field args of Container in
// k8s.io/api/core/v1/types.go; third_party/forked/golang/expansion in Kubernetes). So nothing that
// we make refers to a variable by $(NAME), except [MostOfTheMemory].
//
// It is called where a decision is complete, once for each pod: for members and inspections in package hooks, for
// Jobs in package snapshot.
func Literal(pod *corev1.PodSpec) {
	for _, list := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range list {
			c := &list[i]
			c.Command = doubled(c.Command)
			c.Args = doubled(c.Args)
			for k := range c.Env {
				if c.Env[k].Value != MostOfTheMemory {
					c.Env[k].Value = dollars.Replace(c.Env[k].Value)
				}
			}
		}
	}
}

var dollars = strings.NewReplacer("$", "$$")

func doubled(words []string) []string {
	var all []string
	for _, word := range words {
		all = append(all, dollars.Replace(word))
	}
	return all
}

const (
	// operatorDir holds the certificate by which a program is etcd's root.
	operatorDir    = CertificateDir + "/operator"
	volumeOperator = "operator"
)

// OperatorFlags are those of quorate-snapshot by which it shows that certificate.
func OperatorFlags() []string {
	return []string{
		"--ca=" + operatorDir + "/" + KeyTrust,
		"--cert=" + operatorDir + "/" + KeyCertificate,
		"--cert-key=" + operatorDir + "/" + KeyPrivate,
	}
}

// OperatorMount is where a container finds [OperatorVolume].
func OperatorMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeOperator, MountPath: operatorDir, ReadOnly: true}
}

// OperatorVolume holds the certificate that Quorate shows to members.
func OperatorVolume(secret string) corev1.Volume {
	return corev1.Volume{Name: volumeOperator, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: secret, DefaultMode: new(int32(0o440)),
		Items: []corev1.KeyToPath{{Key: KeyCertificate, Path: KeyCertificate}, {Key: KeyPrivate, Path: KeyPrivate},
			{Key: KeyTrust, Path: KeyTrust}},
	}}}
}

const (
	// tokenDir holds the key that signs etcd's tokens.
	tokenDir    = CertificateDir + "/token"
	volumeToken = "token"
)

// NeedsToken reports whether a member may ask clients for no certificate: a program comes to it with a token.
func NeedsToken(c *v1beta1.EtcdCluster) bool {
	return Encrypted(c) && (c.Spec.TLS.ClientAuth == v1beta1.ClientAuthNone ||
		c.Status.TLS.ClientAuth == v1beta1.ClientAuthNone)
}

// TokenFlags are those of quorate-snapshot by which it signs tokens.
func TokenFlags() []string { return []string{"--token-key=" + tokenDir + "/" + KeyTokenPrivate} }

// TokenMount is where a container finds [TokenVolume].
func TokenMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeToken, MountPath: tokenDir, ReadOnly: true}
}

// TokenVolume holds the key that signs etcd's tokens.
func TokenVolume(cluster string) corev1.Volume {
	return corev1.Volume{Name: volumeToken, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: TokenSecret(cluster), DefaultMode: new(int32(0o440)),
		Items: []corev1.KeyToPath{{Key: KeyTokenPrivate, Path: KeyTokenPrivate}},
	}}}
}

// TokenSecret names the Secret with the keys that sign etcd's tokens.
func TokenSecret(cluster string) string { return cluster + "-token" }

// AnnotationField is an annotation of the pod, as it is when it is read.
func AnnotationField(annotation string) *corev1.ObjectFieldSelector {
	return &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + annotation + "']"}
}

// FromInitialCluster has a variable of a container be the pod's [AnnotationInitialCluster], as it is when the container
// starts.
func FromInitialCluster() *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: AnnotationField(AnnotationInitialCluster)}
}

// ClaimVolume is a pod's volume of this name on a claim.
func ClaimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

const (
	// VariableMemory is the container's limit of memory in MiB.
	VariableMemory = "MEMORY_LIMIT_MIB"
	// MostOfTheMemory is 95 % of it in bytes: a million for each MiB, the only product that Kubernetes can make here.
	// The rest is for what Go does not count, such as the page tables of the mapped database.
	MostOfTheMemory = "$(" + VariableMemory + ")000000"
)

// LimitOf is the container's own limit of this resource, in whole units of this size.
func LimitOf(name corev1.ResourceName, unit string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
		Resource: "limits." + string(name), Divisor: resource.MustParse(unit),
	}}
}

// Before are the resources of a container that runs before this one: the same. So the scheduler asks for no more, a
// quota on limits lets the pod in, and a pod whose main container has requests equal to its limits is Guaranteed.
func Before(main corev1.ResourceRequirements) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: main.Requests, Limits: main.Limits}
}

// Beside are the resources of a container that runs beside this one and needs little: with a limit of all that this one
// has a limit of, and requests equal to them, for the same reasons.
func Beside(main corev1.ResourceRequirements) corev1.ResourceRequirements {
	r := Little(nil)
	for name, enough := range map[corev1.ResourceName]string{corev1.ResourceCPU: "50m", corev1.ResourceMemory: "32Mi",
		corev1.ResourceEphemeralStorage: "16Mi"} {
		if _, limited := main.Limits[name]; !limited {
			continue
		}
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[name] = resource.MustParse(enough)
		r.Requests[name] = r.Limits[name]
	}
	return r
}

// Little is what a container asks for that needs nearly nothing, within these limits.
func Little(limits corev1.ResourceList) corev1.ResourceRequirements {
	requests := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
	}
	for name, request := range requests {
		if limit, limited := limits[name]; limited && limit.Cmp(request) < 0 {
			requests[name] = limit
		}
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// MayBegin reports whether the pod's etcd may still join or begin a cluster when its data directory is empty.
func MayBegin(pod *corev1.Pod) bool {
	cluster := pod.Annotations[AnnotationInitialCluster]
	return cluster != "" && cluster != InitialClusterBegun
}
