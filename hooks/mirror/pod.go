package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// One pod copies: it runs until it is deleted, and begins again by itself. A second one promotes, and ends. They are
// made again when what they are made of has changed, when they failed, and when their node is lost.

// Port is where the pod that copies answers: /health, /status and /metrics.
const Port = 2390

// pods are those of the answer.
func (v *view) pods() []*corev1.Pod {
	if v.over() || v.Mirror.DeletionTimestamp != nil {
		return nil
	}
	var all []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(v.Pods)) {
		if pod := v.Pods[name]; pod.DeletionTimestamp != nil || v.stays(pod) {
			all = append(all, pod)
		}
	}
	for purpose, there := range map[string]*corev1.Pod{objects.ContainerMirror: v.copier,
		objects.ContainerPromote: v.promoter} {
		if there != nil || !v.wants(purpose) {
			continue
		}
		if pod, _ := v.wanted(purpose); pod != nil && v.Pods[pod.Name] == nil {
			all = append(all, pod)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// wants reports whether there should be a pod for this.
func (v *view) wants(purpose string) bool {
	if purpose == objects.ContainerPromote {
		return v.Mirror.Spec.Promote != nil
	}
	return !v.Mirror.Spec.Suspend
}

// stays reports whether a pod goes on. While it is not known what it should be, as when a cluster does not answer, one
// of the same source does.
func (v *view) stays(pod *corev1.Pod) bool {
	purpose := objects.Purpose(&pod.Spec)
	if !v.wants(purpose) || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	want, _ := v.wanted(purpose)
	if want == nil {
		return v.refused(purpose) == "" && pod.Annotations[objects.AnnotationSource] == v.fingerprint()
	}
	return pod.Annotations[objects.AnnotationTemplate] == want.Annotations[objects.AnnotationTemplate]
}

// fingerprint of the source.
func (v *view) fingerprint() string { return objects.Fingerprint(v.Mirror.Spec.Source) }

// asksSource reports whether a pod for this comes to the source.
func (v *view) asksSource(purpose string) bool {
	p := v.Mirror.Spec.Promote
	return purpose == objects.ContainerMirror || p != nil && !p.Force && p.Revision == 0
}

// refused says why there must be no pod for this; empty for nothing.
func (v *view) refused(purpose string) string {
	if err := validate(&v.Mirror.Spec); err != nil {
		return err.Error()
	}
	if e := v.Mirror.Spec.Source.External; e != nil && v.asksSource(purpose) {
		return snapshot.Disallowed(v.AllowedEndpoints, "spec.source.external", e.Endpoints, v.Mirror.Namespace)
	}
	return ""
}

// blocked says what a pod for this can't begin without; empty for nothing.
func (v *view) blocked(purpose string) string {
	to := v.Mirror.Spec.ClusterRef.Name
	from := v.Mirror.Spec.Source.ClusterRef.Name
	why := cmp.Or(v.refused(purpose), snapshot.Unavailable(to, v.Clusters[to]))
	if why != "" || !v.asksSource(purpose) {
		return why
	}
	if secrets := Secrets(&v.Mirror.Spec.Source); secrets != nil { // a pod that has them stays
		return objects.Unagreed(v.Labelled, v.Mirror.Namespace, "spec.source", secrets...)
	}
	if from != "" {
		why = snapshot.Unavailable(from, v.Clusters[from])
	}
	return why
}

// Secrets are those that a source names; nil where it can name none.
func Secrets(source *v1beta1.MirrorSource) []string {
	switch {
	case source.External != nil:
		return snapshot.SecretsOutside(source.External)
	case source.Stored != nil:
		return append(stores.Secrets(&source.Stored.Store), source.Stored.IdentitySecretRef.Name,
			source.Stored.KeysSecretRef.Name)
	}
	return nil
}

// validate says what is wrong with a spec, where the API server did not refuse it.
func validate(s *v1beta1.EtcdMirrorSpec) error {
	sources := 0
	for _, is := range []bool{s.Source.ClusterRef.Name != "", s.Source.External != nil, s.Source.Stored != nil} {
		if is {
			sources++
		}
	}
	switch {
	case sources != 1:
		return errors.New("set exactly one of spec.source.clusterRef, spec.source.external and spec.source.stored")
	case s.Source.External != nil:
		return snapshot.ValidateWay("spec.source.external", s.Source.External)
	case s.Source.Stored != nil:
		return stores.Validate("spec.source.stored.store", &s.Source.Stored.Store)
	}
	if s.Source.ClusterRef.Name == s.ClusterRef.Name {
		return errors.New("spec.source.clusterRef is the destination itself: name another EtcdCluster")
	}
	return nil
}

// wanted is the pod for this as it should be now, or why there can't be one. Equal pods have equal annotations
// [objects.AnnotationTemplate].
func (v *view) wanted(purpose string) (pod *corev1.Pod, why string) {
	if why := v.blocked(purpose); why != "" {
		return nil, why
	}
	m := v.Mirror
	cluster := v.Clusters[m.Spec.ClusterRef.Name]
	way := destination(snapshot.WayTo(cluster))
	var kept stores.Access
	if v.asksSource(purpose) {
		var from snapshot.Way
		from, kept = v.source()
		way.Args = slices.Concat(from.Args, way.Args)
		way.Mounts = slices.Concat(from.Mounts, way.Mounts)
		way.Volumes = slices.Concat(from.Volumes, way.Volumes)
	}
	slices.Sort(way.Args) // in whatever order the status has the members
	main := corev1.Container{
		Name: purpose, Image: v.Images.Image, ImagePullPolicy: v.Images.ImagePullPolicy,
		Command:      []string{objects.SnapshotProgram, "mirror"},
		Args:         slices.Concat(way.Args, v.options(purpose, cluster)),
		Env:          kept.Env,
		VolumeMounts: way.Mounts,
		Resources:    snapshot.Resources(m.Spec.Resources, 0),
	}
	restart := corev1.RestartPolicyAlways
	if purpose == objects.ContainerPromote {
		restart = corev1.RestartPolicyOnFailure
		main.Command = append(main.Command, "promote")
	} else {
		snapshot.Answering(&main, "mirror", Port)
	}
	spec := snapshot.PodSpec(main, way.Volumes, cluster.Spec.SecurityContext)
	spec.RestartPolicy = restart
	spec.ImagePullSecrets = cluster.Spec.Image.PullSecrets
	if stored := m.Spec.Source.Stored; stored != nil && v.asksSource(purpose) {
		spec.ServiceAccountName = stored.ServiceAccountName
	}
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: objects.NumberedName(m, purpose, v.number(purpose)), Namespace: m.Namespace,
		Labels: map[string]string{objects.LabelMirror: m.Name, "app.kubernetes.io/name": "etcd-mirror",
			"app.kubernetes.io/instance": cluster.Name, "app.kubernetes.io/managed-by": "quorate"},
	}, Spec: spec}
	maps.Copy(pod.Labels, kept.Labels)
	pod.Annotations = map[string]string{objects.AnnotationSource: v.fingerprint(),
		objects.AnnotationTemplate: objects.Fingerprint([]any{pod.Labels, pod.Spec})}
	objects.Literal(&pod.Spec)
	return pod, ""
}

// options are the flags that say what is done.
func (v *view) options(purpose string, cluster *v1beta1.EtcdCluster) []string {
	spec := &v.Mirror.Spec
	args := []string{"--name=" + v.Mirror.Name}
	if most := cluster.Spec.Options.ExtraArgs["max-txn-ops"]; most != "" {
		args = append(args, "--to-max-txn-ops="+string(most))
	}
	if p := spec.Promote; purpose == objects.ContainerPromote {
		switch {
		case p.Force:
			args = append(args, "--force")
		case p.Revision > 0:
			args = append(args, fmt.Sprintf("--revision=%d", p.Revision))
		}
		return args
	}
	args = append(args, "--prefix="+spec.Prefix)
	if spec.ToPrefix != nil {
		args = append(args, "--to-prefix="+*spec.ToPrefix)
	}
	for _, prefix := range slices.Sorted(slices.Values(spec.ExcludePrefixes)) {
		args = append(args, "--exclude="+prefix)
	}
	if spec.CompareOnStart {
		args = append(args, "--compare-on-start")
	}
	return append(args, fmt.Sprintf("--listen=:%d", Port))
}

// source is the way to it, and what else a store takes. Nothing blocks that.
func (v *view) source() (snapshot.Way, stores.Access) {
	source := &v.Mirror.Spec.Source
	switch {
	case source.External != nil:
		return snapshot.WayOutside(source.External, v.AllowedEndpoints, v.Mirror.Namespace), stores.Access{}
	case source.Stored == nil:
		return snapshot.WayTo(v.Clusters[source.ClusterRef.Name]), stores.Access{}
	}
	kept := stores.AccessTo(source.Stored.Store, source.Stored.ServiceAccountName, true)
	if source.Stored.IdentitySecretRef.Name != "" {
		kept.Identify(source.Stored.IdentitySecretRef)
	}
	if source.Stored.KeysSecretRef.Name != "" {
		kept.Believe(source.Stored.KeysSecretRef)
	}
	return snapshot.Way{
		Args: append(kept.Args, "--tail="+source.Stored.Folder+"/"+snapshot.TailFolder,
			"--scratch="+objects.ScratchDir),
		Mounts:  append(kept.Mounts, objects.ScratchMount()),
		Volumes: append(kept.Volumes, objects.ScratchVolume()),
	}, kept
}

// destinationDir is where a pod has the Secrets for the destination: it may have others like them for the source.
const destinationDir = objects.CertificateDir + "/to"

// destination is the way to a destination: other flags, folders and volumes than those of the source.
func destination(way snapshot.Way) (to snapshot.Way) {
	for _, arg := range way.Args {
		arg = strings.Replace(arg, objects.CertificateDir, destinationDir, 1)
		to.Args = append(to.Args, "--to-"+strings.TrimPrefix(arg, "--"))
	}
	for _, mount := range way.Mounts {
		mount.Name = "to-" + mount.Name
		mount.MountPath = strings.Replace(mount.MountPath, objects.CertificateDir, destinationDir, 1)
		to.Mounts = append(to.Mounts, mount)
	}
	for _, volume := range way.Volumes {
		volume.Name = "to-" + volume.Name
		to.Volumes = append(to.Volumes, volume)
	}
	return to
}

// number of the next pod for this: another one where the node of the last is lost.
func (v *view) number(purpose string) int {
	number := 1
	for name, pod := range v.Pods {
		n := objects.ReadMark(name[strings.LastIndexByte(name, '-')+1:])
		ends := pod.DeletionTimestamp
		if ends != nil && v.Now.Sub(ends.Time) > podLost && name == objects.NumberedName(v.Mirror, purpose, n) {
			number = max(number, n+1)
		}
	}
	return number
}
