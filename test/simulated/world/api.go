package world

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Kind of an object.
type Kind string

// The kinds that there are.
const (
	ClusterKind   Kind = "cluster"
	PodKind       Kind = "pod"
	ClaimKind     Kind = "claim"
	ConfigMapKind Kind = "configmap"
	ServiceKind   Kind = "service"
	BudgetKind    Kind = "budget"
	PolicyKind    Kind = "networkpolicy"
	SecretKind    Kind = "secret"
	snapshotKind  Kind = "snapshot"
	OperationKind Kind = "operation"
)

// Key of an object.
type Key struct {
	Kind Kind
	Name string
}

// What the API server refuses.
var (
	errExists    = errors.New("already exists")
	errNotFound  = errors.New("not found")
	errConflict  = errors.New("conflict")
	errImmutable = errors.New("immutable")
)

const gracePeriod = 30 * time.Second

// create stores a new object as the API server does.
func (w *World) create(kind Kind, o metav1.Object) error {
	if _, taken := w.Objects[Key{kind, o.GetName()}]; taken {
		return errExists
	}
	if w.refuses(kind, o) {
		return errForbidden
	}
	w.UIDs++
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.UIDs)))
	o.SetNamespace("default")
	o.SetCreationTimestamp(metav1.NewTime(w.Now))
	if pod, is := o.(*corev1.Pod); is {
		pod.Spec.ServiceAccountName = cmp.Or(pod.Spec.ServiceAccountName, "default")
		w.inject(pod)
	}
	if claim, is := o.(*corev1.PersistentVolumeClaim); is {
		w.mutate(claim)
		claim.Status.Phase = corev1.ClaimPending
		if w.BindsAtOnce {
			claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.Resources.Requests
		}
	}
	w.put(kind, o)
	return nil
}

// mutate is what an admission webhook does to a claim that is made.
func (w *World) mutate(claim *corev1.PersistentVolumeClaim) {
	if class := w.Admitted.Class; class != "" {
		claim.Spec.StorageClassName = &class
	}
	if size := w.Admitted.Size; size != "" {
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
}

// update replaces an object that was read at the resource version that it still carries.
func (w *World) update(kind Kind, o metav1.Object) error {
	old, found := w.Objects[Key{kind, o.GetName()}]
	switch {
	case !found || old.GetUID() != o.GetUID():
		return errNotFound
	case old.GetResourceVersion() != o.GetResourceVersion():
		return errConflict
	}
	if err := w.admit(old, o); err != nil {
		return err
	}
	w.put(kind, o)
	return nil
}

// admit is what validation lets through in an update.
func (w *World) admit(old, new metav1.Object) error {
	switch n := new.(type) {
	case *corev1.ConfigMap:
		o := old.(*corev1.ConfigMap)
		if o.Immutable != nil && *o.Immutable && !reflect.DeepEqual(o.Data, n.Data) {
			return errImmutable
		}
	case *corev1.Pod:
		return admitPod(&old.(*corev1.Pod).Spec, &n.Spec)
	case *corev1.PersistentVolumeClaim:
		return w.admitClaim(old.(*corev1.PersistentVolumeClaim), n)
	}
	return nil
}

// admitPod lets images change and scheduling gates go.
func admitPod(old, new *corev1.PodSpec) error {
	for _, gate := range new.SchedulingGates {
		if !slices.Contains(old.SchedulingGates, gate) {
			return errImmutable
		}
	}
	plain := func(s *corev1.PodSpec) *corev1.PodSpec {
		c := *s
		c.SchedulingGates, c.Containers, c.InitContainers = nil, slices.Clone(s.Containers),
			slices.Clone(s.InitContainers)
		for _, list := range [][]corev1.Container{c.Containers, c.InitContainers} {
			for i := range list {
				list[i].Image = ""
			}
		}
		return &c
	}
	if !reflect.DeepEqual(plain(old), plain(new)) {
		return errImmutable
	}
	return nil
}

// remove deletes an object: at once, or by marking it, when something must end first. An empty UID asks for no
// precondition.
func (w *World) remove(kind Kind, name string, uid types.UID) error {
	o, found := w.Objects[Key{kind, name}]
	switch {
	case !found:
		return errNotFound
	case uid != "" && o.GetUID() != uid:
		return errConflict
	case o.GetDeletionTimestamp() != nil:
		return nil
	case kind == PodKind && o.(*corev1.Pod).Spec.NodeName != "":
		w.markDeleted(kind, o, gracePeriod)
	case kind == ClaimKind && w.inUse(name), kind == ClusterKind && len(o.GetFinalizers()) > 0:
		w.markDeleted(kind, o, 0)
	default:
		w.drop(Key{kind, name})
	}
	return nil
}

func (w *World) markDeleted(kind Kind, o metav1.Object, grace time.Duration) {
	gone := copyOf(o)
	gone.SetDeletionTimestamp(new(metav1.NewTime(w.Now.Add(grace))))
	w.put(kind, gone)
}

// inUse reports whether a scheduled pod names the claim: Kubernetes then keeps it until the pod is gone
// (pvc-protection).
func (w *World) inUse(claim string) bool {
	for _, pod := range w.Pods() {
		if pod.Spec.NodeName != "" && slices.Contains(claimsOf(pod), claim) {
			return true
		}
	}
	return false
}

// put stores the object under a new resource version.
func (w *World) put(kind Kind, o metav1.Object) {
	if s, is := o.(*corev1.Service); is {
		w.allocateNodePort(s)
	}
	if kind == ClusterKind { // the hook reads this of the parent alone
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Time: new(metav1.NewTime(w.Now.Truncate(time.Second)))}})
	}
	w.Version++
	w.Changes++
	o.SetResourceVersion(strconv.FormatInt(w.Version, 10))
	w.Objects[Key{kind, o.GetName()}] = o
}

// allocateNodePort gives a Service that is reached from outside the lowest port that no other one has.
func (w *World) allocateNodePort(s *corev1.Service) {
	if s.Spec.Type != corev1.ServiceTypeNodePort && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	taken := map[int32]bool{}
	for key, o := range w.Objects {
		if key.Kind == ServiceKind && key.Name != s.Name {
			taken[o.(*corev1.Service).Spec.Ports[0].NodePort] = true
		}
	}
	s.Spec.Ports = slices.Clone(s.Spec.Ports)
	for port := int32(30000); s.Spec.Ports[0].NodePort == 0; port++ {
		if !taken[port] {
			s.Spec.Ports[0].NodePort = port
		}
	}
}

// drop takes the object away, and with it what lived in it.
func (w *World) drop(key Key) {
	o := w.Objects[key]
	delete(w.Objects, key)
	w.Version++
	w.Changes++
	switch key.Kind {
	case PodKind:
		w.stop(o.GetUID())
		delete(w.Dirs, memoryOf(o.GetUID()))
		delete(w.Markers, o.GetUID())
		delete(w.Prepared, o.GetUID())
		delete(w.Files, o.GetUID())
	case ClaimKind:
		delete(w.Dirs, volumeOf(o.GetUID()))
	}
}

// Collect is Kubernetes' garbage collector and the protection of claims: what has no owner left goes, orphans are let
// go, and a claim that is being deleted goes when no pod uses it.
func (w *World) Collect() {
	w.orphan()
	for _, key := range w.keys() {
		o := w.Objects[key]
		if key.Kind != ClusterKind && o.GetDeletionTimestamp() == nil && !w.hasOwner(o) {
			_ = w.remove(key.Kind, key.Name, "")
		}
		if key.Kind == ClaimKind && o.GetDeletionTimestamp() != nil && !w.inUse(key.Name) {
			w.drop(key)
		}
	}
}

// hasOwner reports whether one owner of the object is alive, or it has none. Schedules, whose snapshots are, always are.
func (w *World) hasOwner(o metav1.Object) bool {
	owners := o.GetOwnerReferences()
	return len(owners) == 0 || slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool {
		if r.Kind == v1beta1.KindSchedule {
			return true
		}
		c := w.Objects[Key{ClusterKind, r.Name}]
		return c != nil && c.GetUID() == r.UID
	})
}

// orphan lets the children of a cluster go that is being deleted with --cascade=orphan.
func (w *World) orphan() {
	c := w.Cluster()
	if c == nil || c.DeletionTimestamp == nil || !slices.Contains(c.Finalizers, metav1.FinalizerOrphanDependents) {
		return
	}
	for _, key := range w.keys() {
		if o := w.Objects[key]; owned(o, c.UID) {
			free := copyOf(o)
			free.SetOwnerReferences(nil)
			w.put(key.Kind, free)
		}
	}
	w.dropFinalizer(metav1.FinalizerOrphanDependents)
}

func (w *World) dropFinalizer(name string) {
	w.editCluster(func(c *v1beta1.EtcdCluster) {
		c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == name })
	})
	if c := w.Cluster(); c.DeletionTimestamp != nil && len(c.Finalizers) == 0 {
		w.drop(Key{ClusterKind, c.Name})
	}
}

func owned(o metav1.Object, by types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == by })
}

// ---- reading

// Cluster is the one cluster of this world, as stored; nil when there is none.
func (w *World) Cluster() *v1beta1.EtcdCluster {
	for key, o := range w.Objects {
		if key.Kind == ClusterKind {
			return o.(*v1beta1.EtcdCluster)
		}
	}
	return nil
}

// Pods are all pods by name.
func (w *World) Pods() []*corev1.Pod { return list[*corev1.Pod](w, PodKind) }

// Claims are all claims by name.
func (w *World) Claims() []*corev1.PersistentVolumeClaim {
	return list[*corev1.PersistentVolumeClaim](w, ClaimKind)
}

// Pod of this name, or nil.
func (w *World) Pod(name string) *corev1.Pod {
	p, _ := w.Objects[Key{PodKind, name}].(*corev1.Pod)
	return p
}

// Claim of this name, or nil.
func (w *World) Claim(name string) *corev1.PersistentVolumeClaim {
	c, _ := w.Objects[Key{ClaimKind, name}].(*corev1.PersistentVolumeClaim)
	return c
}

func list[T metav1.Object](w *World, kind Kind) []T {
	var all []T
	for _, key := range w.keys() {
		if key.Kind == kind {
			all = append(all, w.Objects[key].(T))
		}
	}
	return all
}

// keys of all objects in one fixed order: by kind, then by name with demo-10 after demo-9.
func (w *World) keys() []Key {
	return slices.SortedFunc(maps.Keys(w.Objects), func(a, b Key) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), len(a.Name)-len(b.Name),
			strings.Compare(a.Name, b.Name))
	})
}

// ---- writing as people and controllers do, without a race

func (w *World) editCluster(change func(*v1beta1.EtcdCluster)) {
	c := w.Cluster().DeepCopy()
	change(c)
	if !reflect.DeepEqual(c, w.Cluster()) {
		w.put(ClusterKind, c)
	}
}

func (w *World) editPod(name string, change func(*corev1.Pod)) {
	pod := *w.Pod(name)
	pod.Status = *pod.Status.DeepCopy()
	change(&pod)
	if !reflect.DeepEqual(&pod, w.Pod(name)) {
		w.put(PodKind, &pod)
	}
}

// copyOf is a copy whose metadata may be set without touching the original.
func copyOf(o metav1.Object) metav1.Object {
	c := reflect.New(reflect.TypeOf(o).Elem())
	c.Elem().Set(reflect.ValueOf(o).Elem())
	return c.Interface().(metav1.Object)
}
