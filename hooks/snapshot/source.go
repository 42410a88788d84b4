package snapshot

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// source is what the Job that takes the snapshot needs to know of its etcd.
type source struct {
	image      string
	pullPolicy corev1.PullPolicy
	pull       []corev1.LocalObjectReference
	// args are the flags of quorate-snapshot snapshot by which it comes to the members, with what these name.
	args    []string
	mounts  []corev1.VolumeMount
	volumes []corev1.Volume
	// size is that of the largest database in bytes; 0 where it is not known.
	size int64
}

// source of the snapshot; nothing blocks it.
func (v *view) source() source {
	if external := v.Snapshot.Spec.External; external != nil {
		return v.sourceOutside(external)
	}
	c := v.cluster
	s := source{image: v.Images.Etcd(&c.Spec, cmp.Or(c.Status.Version, c.Spec.Version)),
		pullPolicy: c.Spec.Image.PullPolicy, pull: c.Spec.Image.PullSecrets}
	for _, endpoint := range clientEndpoints(c) {
		s.args = append(s.args, "--endpoint="+endpoint)
	}
	if secret := objects.OperatorSecret(c); secret != "" {
		s.args = append(s.args, objects.OperatorFlags()...)
		s.mounts, s.volumes = append(s.mounts, objects.OperatorMount()), append(s.volumes, objects.OperatorVolume(secret))
	}
	if objects.NeedsToken(c) {
		s.args = append(s.args, objects.TokenFlags()...)
		s.mounts, s.volumes = append(s.mounts, objects.TokenMount()), append(s.volumes, objects.TokenVolume(c.Name))
	}
	for _, m := range c.Status.Members {
		if m.DBSize != nil {
			s.size = max(s.size, m.DBSize.Value())
		}
	}
	return s
}

// externalDir holds the Secrets by which the Job comes to an etcd that Quorate does not run.
const externalDir = objects.CertificateDir + "/external/"

func (v *view) sourceOutside(external *v1alpha1.ExternalEtcd) source {
	s := source{image: v.Images.Etcd(&v1alpha1.EtcdClusterSpec{}, external.Version), args: []string{"--only-endpoints"}}
	for _, endpoint := range external.Endpoints {
		s.args = append(s.args, "--endpoint="+endpoint)
	}
	if external.ServerName != "" {
		s.args = append(s.args, "--server-name="+external.ServerName)
	}
	add := func(secret v1alpha1.SecretRef, dir string, flags map[string]string, order ...string) {
		if secret.Name == "" {
			return
		}
		volume := corev1.SecretVolumeSource{SecretName: secret.Name, DefaultMode: new(int32(0o440))}
		for _, key := range order {
			volume.Items = append(volume.Items, corev1.KeyToPath{Key: key, Path: key})
			s.args = append(s.args, flags[key]+"="+externalDir+dir+"/"+key)
		}
		s.mounts = append(s.mounts, corev1.VolumeMount{Name: dir, MountPath: externalDir + dir, ReadOnly: true})
		s.volumes = append(s.volumes, corev1.Volume{Name: dir, VolumeSource: corev1.VolumeSource{Secret: &volume}})
	}
	add(external.AuthoritySecretRef, "authority", map[string]string{objects.KeyTrust: "--ca"}, objects.KeyTrust)
	add(external.ClientSecretRef, "client", map[string]string{objects.KeyCertificate: "--cert",
		objects.KeyPrivate: "--cert-key"}, objects.KeyCertificate, objects.KeyPrivate)
	add(external.UserSecretRef, "user", map[string]string{corev1.BasicAuthUsernameKey: "--username-file",
		corev1.BasicAuthPasswordKey: "--password-file"}, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
	return s
}

// blocked says what the Job that takes the snapshot can't begin without; empty for nothing.
func (v *view) blocked() string {
	if external := v.Snapshot.Spec.External; external != nil {
		for i, endpoint := range external.Endpoints {
			if why := v.AllowedEndpoints.Refuses(endpoint, v.Snapshot.Namespace); why != "" {
				return fmt.Sprintf("spec.external.endpoints[%d] can't be used: %s (quorate install "+
					"--existing-endpoints)", i, why)
			}
		}
		return ""
	}
	c, name := v.cluster, v.Snapshot.Spec.ClusterRef.Name
	switch {
	case c == nil:
		return fmt.Sprintf("EtcdCluster %s does not exist in this namespace", name)
	case c.DeletionTimestamp != nil:
		return fmt.Sprintf("EtcdCluster %s is being deleted", name)
	}
	if err := v.Images.Validate(&c.Spec); err != nil { // the Job runs in that image
		return fmt.Sprintf("EtcdCluster %s can't be used: %s", name, err)
	}
	if available := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Available); available == nil {
		return fmt.Sprintf("EtcdCluster %s is new", name)
	} else if available.Status != metav1.ConditionTrue {
		return fmt.Sprintf("EtcdCluster %s is not available: %s", name, available.Message)
	}
	if len(clientEndpoints(c)) == 0 {
		return fmt.Sprintf("EtcdCluster %s has no voter to ask", name)
	}
	return ""
}
