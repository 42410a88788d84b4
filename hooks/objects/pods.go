package hooks

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// literal has the containers of a new pod get every command, argument and variable as it is
// written. Without it a kubelet takes $(NAME) in them for the value of that variable, which may be
// a secret, and what a spec says reaches them. It takes $$ for $ (the field args of Container in
// k8s.io/api/core/v1/types.go; third_party/forked/golang/expansion in Kubernetes). So nothing that
// we make refers to a variable by $(NAME).
//
// It is called where pods leave this package, once for each: in children for members and surveys,
// in job for Jobs.
func literal(pod *corev1.PodSpec) {
	for _, list := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range list {
			c := &list[i]
			c.Command, c.Args = doubled(c.Command), doubled(c.Args)
			for k := range c.Env {
				c.Env[k].Value = dollars.Replace(c.Env[k].Value)
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

func restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// userID is whom the programs in pods run as.
const userID = 10001

// podSecurity lets a pod read and write the members' volumes, as nobody who is root.
func podSecurity() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot:        new(true),
		RunAsUser:           new(int64(userID)),
		RunAsGroup:          new(int64(userID)),
		FSGroup:             new(int64(userID)),
		FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

const (
	// operatorDir holds the certificate by which a program is etcd's root.
	operatorDir    = CertificateDir + "/operator"
	volumeOperator = "operator"
)

// operatorFlags are those of quorate-snapshot by which it shows that certificate.
func operatorFlags() []string {
	return []string{
		"--ca=" + operatorDir + "/" + KeyTrust,
		"--cert=" + operatorDir + "/" + KeyCertificate,
		"--cert-key=" + operatorDir + "/" + KeyPrivate,
	}
}

func operatorMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeOperator, MountPath: operatorDir, ReadOnly: true}
}

// operatorVolume holds the certificate that Quorate shows to members.
func operatorVolume(secret string) corev1.Volume {
	return corev1.Volume{Name: volumeOperator, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: secret, DefaultMode: new(int32(0o440)),
		Items: []corev1.KeyToPath{{Key: KeyCertificate, Path: KeyCertificate}, {Key: KeyPrivate, Path: KeyPrivate}, {Key: KeyTrust, Path: KeyTrust}},
	}}}
}
