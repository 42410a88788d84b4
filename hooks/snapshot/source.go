package snapshot

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/stores"
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
	way := WayTo(v.cluster)
	s := source{image: v.Images.Etcd(&c.Spec, cmp.Or(c.Status.Version, c.Spec.Version)),
		pullPolicy: c.Spec.Image.PullPolicy, pull: c.Spec.Image.PullSecrets,
		args: way.Args, mounts: way.Mounts, volumes: way.Volumes}
	for _, m := range c.Status.Members {
		if m.DBSize != nil {
			s.size = max(s.size, m.DBSize.Value())
		}
	}
	return s
}

// Way is how a container of quorate-snapshot comes to the members of an etcd: flags, with the Secrets that these name.
type Way struct {
	Args    []string
	Mounts  []corev1.VolumeMount
	Volumes []corev1.Volume
}

// WayTo is that to an EtcdCluster.
func WayTo(c *v1beta1.EtcdCluster) (w Way) {
	for _, endpoint := range clientEndpoints(c) {
		w.Args = append(w.Args, "--endpoint="+endpoint)
	}
	if secret := objects.OperatorSecret(c); secret != "" {
		w.Args = append(w.Args, objects.OperatorFlags()...)
		w.Mounts = append(w.Mounts, objects.OperatorMount())
		w.Volumes = append(w.Volumes, objects.OperatorVolume(secret))
	}
	if objects.NeedsToken(c) {
		w.Args = append(w.Args, objects.TokenFlags()...)
		w.Mounts = append(w.Mounts, objects.TokenMount())
		w.Volumes = append(w.Volumes, objects.TokenVolume(c.Name))
	}
	return w
}

// externalDir holds the Secrets by which a pod comes to an etcd that Quorate does not run.
const externalDir = objects.CertificateDir + "/external/"

func (v *view) sourceOutside(external *v1beta1.ExternalSource) source {
	way := WayOutside(&external.ExternalEtcd, v.AllowedEndpoints, v.Snapshot.Namespace)
	return source{image: v.Images.Etcd(&v1beta1.EtcdClusterSpec{}, external.Version),
		args: append([]string{"--only-endpoints"}, way.Args...), mounts: way.Mounts, volumes: way.Volumes}
}

// WayOutside is the way to an etcd that Quorate does not run. The program looks at each address that it connects to, as
// what the endpoints' names lead to may change.
func WayOutside(external *v1beta1.ExternalEtcd, allowed *objects.AllowedEndpoints, namespace string) (w Way) {
	w.Args = []string{"--within=" + allowed.String(), "--namespace=" + namespace}
	for _, endpoint := range external.Endpoints {
		w.Args = append(w.Args, "--endpoint="+endpoint)
	}
	if external.ServerName != "" {
		w.Args = append(w.Args, "--server-name="+external.ServerName)
	}
	add := func(secret v1beta1.SecretRef, dir string, flags map[string]string, order ...string) {
		if secret.Name == "" {
			return
		}
		volume := corev1.SecretVolumeSource{SecretName: secret.Name, DefaultMode: new(int32(0o440))}
		for _, key := range order {
			volume.Items = append(volume.Items, corev1.KeyToPath{Key: key, Path: key})
			w.Args = append(w.Args, flags[key]+"="+externalDir+dir+"/"+key)
		}
		w.Mounts = append(w.Mounts, corev1.VolumeMount{Name: dir, MountPath: externalDir + dir, ReadOnly: true})
		w.Volumes = append(w.Volumes, corev1.Volume{Name: dir, VolumeSource: corev1.VolumeSource{Secret: &volume}})
	}
	add(external.CASecretRef, "authority", map[string]string{objects.KeyTrust: "--ca"}, objects.KeyTrust)
	add(external.ClientSecretRef, "client", map[string]string{objects.KeyCertificate: "--cert",
		objects.KeyPrivate: "--cert-key"}, objects.KeyCertificate, objects.KeyPrivate)
	add(external.UserSecretRef, "user", map[string]string{corev1.BasicAuthUsernameKey: "--username-file",
		corev1.BasicAuthPasswordKey: "--password-file"}, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
	return w
}

// Secrets are those that a snapshot names.
func Secrets(s *v1beta1.EtcdSnapshotSpec) []string {
	all := stores.Secrets(&s.Store)
	if s.External != nil {
		all = append(all, SecretsOutside(&s.External.ExternalEtcd)...)
	}
	return all
}

// SecretsOutside are the Secrets that the way to an etcd names which Quorate does not run.
func SecretsOutside(e *v1beta1.ExternalEtcd) []string {
	return []string{e.CASecretRef.Name, e.ClientSecretRef.Name, e.UserSecretRef.Name}
}

// Disallowed says which of these endpoints no pod of the namespace may be sent to; empty for none.
func Disallowed(allowed *objects.AllowedEndpoints, field string, urls []string, namespace string) string {
	for i, url := range urls {
		if why := allowed.Refuses(url, namespace); why != "" {
			return fmt.Sprintf("%s.endpoints[%d] can't be used: %s (quorate install --allowed-etcd-endpoints)", field, i,
				why)
		}
	}
	return ""
}

// blocked says what the Job that takes the snapshot can't begin without; empty for nothing.
func (v *view) blocked() string {
	if external := v.Snapshot.Spec.External; external != nil {
		return cmp.Or(Disallowed(v.AllowedEndpoints, "spec.external", external.Endpoints, v.Snapshot.Namespace),
			v.unagreed(Secrets(&v.Snapshot.Spec)))
	}
	c := v.cluster
	name := v.Snapshot.Spec.ClusterRef.Name
	if c != nil && c.DeletionTimestamp == nil {
		if err := v.Images.Validate(&c.Spec); err != nil { // the Job runs in that image
			return fmt.Sprintf("EtcdCluster %s can't be used: %s", name, err)
		}
	}
	return cmp.Or(Unavailable(name, c), v.unagreed(Secrets(&v.Snapshot.Spec)))
}

// unagreed says the owner of which of these Secrets has not agreed that a Job has it; empty for none.
func (v *view) unagreed(secrets []string) string {
	return objects.Unagreed(v.Labelled, v.Snapshot.Namespace, "spec", secrets...)
}

// storeUnagreed says it of those that the store needs alone.
func (v *view) storeUnagreed() string { return v.unagreed(stores.Secrets(&v.Snapshot.Spec.Store)) }

// Unavailable says why no client can come to the EtcdCluster of this name, which is nil where there is none; empty when
// one can.
func Unavailable(name string, c *v1beta1.EtcdCluster) string {
	switch {
	case c == nil:
		return fmt.Sprintf("EtcdCluster %s does not exist in this namespace", name)
	case c.DeletionTimestamp != nil:
		return fmt.Sprintf("EtcdCluster %s is being deleted", name)
	}
	available := meta.FindStatusCondition(c.Status.Conditions, v1beta1.Available)
	if available == nil {
		return fmt.Sprintf("EtcdCluster %s is new", name)
	}
	// The owner of the Secret that it names for Quorate has agreed where Quorate has reached the members with it.
	if objects.TLSMode(c) == v1beta1.TLSSecrets && c.Status.ObservedGeneration != c.Generation {
		return fmt.Sprintf("EtcdCluster %s has changed, and Quorate has not looked at it yet", name)
	}
	if available.Status != metav1.ConditionTrue {
		return fmt.Sprintf("EtcdCluster %s is not available: %s", name, available.Message)
	}
	if len(clientEndpoints(c)) == 0 {
		return fmt.Sprintf("EtcdCluster %s has no voter to ask", name)
	}
	return ""
}
