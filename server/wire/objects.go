package wire

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
)

// incoming is an object with a spec and a status as it comes in, without metadata.managedFields, which are a third of
// its size and of no use here.
type incoming[Spec, Status any] struct {
	metav1.TypeMeta
	Metadata incomingMeta `json:"metadata"`
	Spec     Spec         `json:"spec"`
	Status   Status       `json:"status"`
}

type incomingConfigMap struct {
	metav1.TypeMeta
	Metadata   incomingMeta      `json:"metadata"`
	Data       map[string]string `json:"data"`
	BinaryData map[string][]byte `json:"binaryData"`
	Immutable  *bool             `json:"immutable"`
}

type incomingMeta struct {
	metav1.ObjectMeta
	ManagedFields skipped `json:"managedFields"`
}

func (w *incoming[Spec, Status]) header() (*metav1.TypeMeta, *metav1.ObjectMeta) {
	return &w.TypeMeta, &w.Metadata.ObjectMeta
}

func (w *incomingConfigMap) header() (*metav1.TypeMeta, *metav1.ObjectMeta) {
	return &w.TypeMeta, &w.Metadata.ObjectMeta
}

// The kinds of parents, as they come in.
type (
	incomingCluster   = incoming[v1alpha1.EtcdClusterSpec, v1alpha1.EtcdClusterStatus]
	incomingSnapshot  = incoming[v1alpha1.EtcdSnapshotSpec, v1alpha1.EtcdSnapshotStatus]
	incomingSchedule  = incoming[v1alpha1.EtcdSnapshotScheduleSpec, v1alpha1.EtcdSnapshotScheduleStatus]
	incomingOperation = incoming[v1alpha1.EtcdOperationSpec, v1alpha1.EtcdOperationStatus]
	incomingMirror    = incoming[v1alpha1.EtcdMirrorSpec, v1alpha1.EtcdMirrorStatus]
)

func clusterOf(w *incomingCluster) *v1alpha1.EtcdCluster {
	return &v1alpha1.EtcdCluster{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec,
		Status: w.Status}
}

func snapshotOf(w *incomingSnapshot) *v1alpha1.EtcdSnapshot {
	return &v1alpha1.EtcdSnapshot{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec,
		Status: w.Status}
}

func scheduleOf(w *incomingSchedule) *v1alpha1.EtcdSnapshotSchedule {
	return &v1alpha1.EtcdSnapshotSchedule{
		TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status,
	}
}

func operationOf(w *incomingOperation) *v1alpha1.EtcdOperation {
	return &v1alpha1.EtcdOperation{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec,
		Status: w.Status}
}

func mirrorOf(w *incomingMirror) *v1alpha1.EtcdMirror {
	return &v1alpha1.EtcdMirror{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
}

func podOf(w *incoming[corev1.PodSpec, corev1.PodStatus]) *corev1.Pod {
	return &corev1.Pod{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
}

func podSpec(o *corev1.Pod) *corev1.PodSpec { return &o.Spec }

func claimOf(
	w *incoming[corev1.PersistentVolumeClaimSpec, corev1.PersistentVolumeClaimStatus],
) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status,
	}
}

func claimSpec(o *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec { return &o.Spec }

func configMapOf(w *incomingConfigMap) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta,
		Data: w.Data, BinaryData: w.BinaryData, Immutable: w.Immutable,
	}
}

func serviceOf(w *incoming[corev1.ServiceSpec, corev1.ServiceStatus]) *corev1.Service {
	return &corev1.Service{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
}

func serviceSpec(o *corev1.Service) *corev1.ServiceSpec { return &o.Spec }

func budgetOf(
	w *incoming[policyv1.PodDisruptionBudgetSpec, policyv1.PodDisruptionBudgetStatus],
) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status,
	}
}

func budgetSpec(o *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudgetSpec { return &o.Spec }

func policyOf(w *incoming[networkingv1.NetworkPolicySpec, struct{}]) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec}
}

func policySpec(o *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicySpec { return &o.Spec }

func certificateOf(w *incoming[decision.CertManagerSpec, decision.CertManagerStatus]) *decision.CertManagerCertificate {
	return &decision.CertManagerCertificate{ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
}

func jobOf(w *incoming[batchv1.JobSpec, batchv1.JobStatus]) *batchv1.Job {
	return &batchv1.Job{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
}

func jobSpec(o *batchv1.Job) *batchv1.JobSpec { return &o.Spec }

// headed is an object as it comes in, of type W.
type headed[W any] interface {
	*W
	header() (*metav1.TypeMeta, *metav1.ObjectMeta)
}

// one reads an object of this kind.
func one[W any, P headed[W]](in *source, where, apiVersion, kind string) (*W, error) {
	w := new(W)
	if err := value(in, where, w); err != nil {
		return nil, err
	}
	t, m := P(w).header()
	return w, identified(where, t, m, apiVersion, kind)
}

// parentTo reads the parent of a call, which is of this kind, into *to.
func parentTo[W any, P headed[W], T any](
	kind string, to **T, made func(*W) *T,
) func(in *source) (namespace string, err error) {
	return func(in *source) (string, error) {
		w, err := one[W, P](in, "parent", v1alpha1.GroupVersion.String(), kind)
		if err != nil {
			return "", err
		}
		_, m := P(w).header()
		if m.Namespace == "" {
			return "", Bad("parent.metadata.namespace is missing")
		}
		*to = made(w)
		return m.Namespace, nil
	}
}

// groupTo reads the objects of one kind into *all, by metadata.name: the key may carry the namespace.
func groupTo[W any, P headed[W], T any, O interface {
	*T
	metav1.Object
}](apiVersion, kind string, all *map[string]*T, made func(*W) *T) group {
	name := kind + "." + apiVersion
	return group{
		name: name,
		read: func(in *source, where string) error {
			*all = map[string]*T{}
			return object(in, where, func(key string) error {
				w, field := new(W), member(where, key)
				if err := value(in, field, w); err != nil {
					return err
				}
				t, m := P(w).header()
				return add(*all, field, t, m, apiVersion, kind, func() (*T, error) { return made(w), nil })
			})
		},
		within: func(namespace string) error { return sameNamespace[T, O](name, namespace, *all) },
	}
}

// member names an object of a group.
func member(group, key string) string { return fmt.Sprintf("%s[%q]", group, key) }

// add puts an object among those of its kind.
func add[T any](
	all map[string]*T, field string, t *metav1.TypeMeta, m *metav1.ObjectMeta, apiVersion, kind string,
	made func() (*T, error),
) error {
	if err := identified(field, t, m, apiVersion, kind); err != nil {
		return err
	}
	if _, twice := all[m.Name]; twice {
		return Bad("%s.metadata.name is there twice", field)
	}
	o, err := made()
	if err == nil {
		all[m.Name] = o
	}
	return err
}

// identified checks what every object must have.
func identified(field string, t *metav1.TypeMeta, m *metav1.ObjectMeta, apiVersion, kind string) error {
	switch {
	case t.APIVersion != apiVersion:
		return Bad("%s.apiVersion must be %s", field, apiVersion)
	case t.Kind != kind:
		return Bad("%s.kind must be %s", field, kind)
	case m.Name == "":
		return Bad("%s.metadata.name is missing", field)
	case m.UID == "":
		return Bad("%s.metadata.uid is missing", field)
	}
	return nil
}

func sameNamespace[T any, O interface {
	*T
	metav1.Object
}](group, namespace string, objects map[string]*T) error {
	for name, o := range objects {
		if O(o).GetNamespace() != namespace {
			return Bad("children[%q][%q].metadata.namespace is not the parent's", group, name)
		}
	}
	return nil
}
