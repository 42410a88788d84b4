package world

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// applied is what Metacontroller notes on an object: what it applied last. Only what this world merges is noted.
type applied struct {
	Labels, Annotations []string
	// Owners were told, and go when they are told no more.
	Owners bool
}

func appliedOf(o metav1.Object) applied {
	var a applied
	_ = json.Unmarshal([]byte(o.GetAnnotations()[objects.AnnotationLastApplied]), &a)
	return a
}

func (a applied) String() string {
	raw, err := json.Marshal(a)
	if err != nil {
		return ""
	}
	return string(raw)
}

// created is the object as it is sent to be created, with the parent that the cache showed as its owner.
func created(parent *v1beta1.EtcdCluster, answer metav1.Object) metav1.Object {
	o := copyOf(answer)
	labels := clone(o.GetLabels())
	labels["controller-uid"] = string(parent.UID)
	note := applied{Labels: sorted(labels), Annotations: sorted(o.GetAnnotations())}
	annotations := clone(o.GetAnnotations())
	annotations[objects.AnnotationLastApplied] = note.String()
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: "EtcdCluster",
		Name: parent.Name, UID: parent.UID, Controller: new(true), BlockOwnerDeletion: new(true)}})
	o.SetUID("")
	o.SetResourceVersion("")
	return o
}

// applyOnServer is what Metacontroller 4 does with --apply-strategy=server-side-apply: the API server merges. It
// makes what is not there, asks for no version, takes over what others have made, and keeps the owner; what was
// applied before and is not any more goes. The note of dynamic apply is taken away first. What the server package
// answers for a child without a note, the API server refuses.
func (w *World) applyOnServer(parent *v1beta1.EtcdCluster, key Key, observed, answer metav1.Object) {
	if observed != nil && observed.GetDeletionTimestamp() != nil {
		return
	}
	live := w.Objects[key]
	if observed != nil && observed.GetAnnotations()[objects.AnnotationLastApplied] == "" {
		w.note("! ~ %s %s: field not declared in schema", key.Kind, key.Name)
		return
	}
	if observed != nil && live != nil && live.GetAnnotations()[objects.AnnotationLastApplied] != "" {
		stripped := copyOf(live)
		annotations := clone(live.GetAnnotations())
		delete(annotations, objects.AnnotationLastApplied)
		stripped.SetAnnotations(annotations)
		w.put(key.Kind, stripped)
		live = stripped
	}
	if live == nil {
		o := onServer(created(parent, answer))
		w.written("+ %s %s", key, w.create(key.Kind, o))
		return
	}
	last := appliedOnServer(live)
	want := onServer(created(parent, answer))
	o := copyOf(live)
	labels, changed := mergeMap("label", live.GetLabels(), last.Labels, want.GetLabels())
	annotations, more := mergeMap("", live.GetAnnotations(), last.Annotations, want.GetAnnotations())
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	o.SetManagedFields(want.GetManagedFields())
	changed = append(append(changed, more...), mergeSpec(o, answer)...)
	if !owned(live, parent.UID) {
		o.SetOwnerReferences(append(slices.Clone(live.GetOwnerReferences()), want.GetOwnerReferences()...))
		changed = append(changed, "+owner")
	}
	if len(changed) == 0 && reflect.DeepEqual(live.GetManagedFields(), o.GetManagedFields()) {
		return
	}
	if err := w.admit(live, o); err != nil {
		w.written("~ %s %s", key, err)
		return
	}
	w.put(key.Kind, o)
	w.written("~ %s %s "+strings.ReplaceAll(strings.Join(append(changed, "without a note"), " "), "%", "%%"), key, nil)
}

// onServer moves the note of what is applied to where the API server keeps it.
func onServer(o metav1.Object) metav1.Object {
	annotations := clone(o.GetAnnotations())
	note := annotations[objects.AnnotationLastApplied]
	delete(annotations, objects.AnnotationLastApplied)
	o.SetAnnotations(annotations)
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "metacontroller",
		Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(note)}})
	return o
}

func appliedOnServer(o metav1.Object) applied {
	var a applied
	for _, f := range o.GetManagedFields() {
		_ = json.Unmarshal(f.FieldsV1.GetRawBytes(), &a)
	}
	return a
}

// merge is Metacontroller's three-way merge, and what it changed in words.
func merge(old, told metav1.Object) (metav1.Object, []string) {
	o := copyOf(old)
	labels := clone(told.GetLabels())
	labels["controller-uid"] = old.GetLabels()["controller-uid"]
	last := appliedOf(old)
	newLabels, changed := mergeMap("label", old.GetLabels(), last.Labels, labels)
	own := clone(told.GetAnnotations())
	delete(own, objects.AnnotationLastApplied)
	newAnnotations, more := mergeMap("", old.GetAnnotations(), last.Annotations, own)
	changed = append(changed, more...)
	claim, isClaim := told.(*corev1.PersistentVolumeClaim)
	owners := isClaim && len(answer.ToldOwners(claim)) > 0
	newAnnotations[objects.AnnotationLastApplied] = applied{sorted(labels), sorted(own), owners}.String()
	if last.Owners && !owners {
		o.SetOwnerReferences(nil)
		changed = append(changed, "-owner")
	}
	if old.GetAnnotations()[objects.AnnotationLastApplied] == "" {
		changed = append(changed, "noted")
	} else if newAnnotations[objects.AnnotationLastApplied] != old.GetAnnotations()[objects.AnnotationLastApplied] && len(changed) == 0 {
		changed = append(changed, "last-applied")
	}
	o.SetLabels(newLabels)
	o.SetAnnotations(newAnnotations)
	return o, append(changed, mergeSpec(o, told)...)
}

// mergeMap is the three-way merge of labels or annotations.
func mergeMap(noun string, old map[string]string, last []string, want map[string]string) (map[string]string, []string) {
	merged := clone(old)
	var changed []string
	for _, k := range last {
		if _, stays := want[k]; !stays && merged[k] != "" {
			delete(merged, k)
			changed = append(changed, "-"+noun+short(k))
		}
	}
	for _, k := range sorted(want) {
		if old[k] == want[k] {
			continue
		}
		merged[k] = want[k]
		what := short(k)
		if what == "state" {
			changed = append(changed, recordChanges(old[k], want[k])...)
			slices.Sort(changed)
			continue
		}
		if noun != "" || what == "next-member" {
			what += "=" + want[k]
		}
		changed = append(changed, what)
	}
	return merged, changed
}

// recordChanges are the fields of a record's state that change, as words with dashes.
func recordChanges(old, want string) (changed []string) {
	was, is := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	_, _ = json.Unmarshal([]byte(old), &was), json.Unmarshal([]byte(want), &is)
	for field, value := range is {
		switch {
		case field == "evidence" || bytes.Equal(was[field], value): // a survivor comes with it
		case field == "nextMember":
			changed = append(changed, dashed(field)+"="+string(value))
		default:
			changed = append(changed, dashed(field))
		}
	}
	for field := range was {
		if _, stays := is[field]; !stays && field != "evidence" {
			changed = append(changed, "-"+dashed(field))
		}
	}
	return changed
}

// dashed is a field's name as words with dashes.
func dashed(field string) string {
	field = strings.ReplaceAll(field, "ID", "Id")
	return strings.ToLower(regexp.MustCompile("[A-Z]").ReplaceAllString(field, "-$0"))
}

func short(key string) string { return key[strings.LastIndex(key, "/")+1:] }

// mergeSpec takes over what the answer says of the spec.
func mergeSpec(o, answer metav1.Object) []string {
	var changed []string
	replace := func(is, want any, what string, set func()) {
		if !reflect.DeepEqual(is, want) {
			changed = append(changed, what)
			set()
		}
	}
	switch t := o.(type) {
	case *corev1.Pod:
		want := answer.(*corev1.Pod).Spec
		if len(t.Spec.SchedulingGates) > 0 && len(want.SchedulingGates) == 0 {
			changed = append(changed, "gate dropped")
			t.Spec.SchedulingGates = nil
		}
		want.NodeName = t.Spec.NodeName
		if t.Spec.Containers[0].Image != want.Containers[0].Image {
			changed = append(changed, "image="+want.Containers[0].Image)
			t.Spec.Containers = want.Containers
		}
		replace(t.Spec, want, "spec", func() { t.Spec = want })
	case *corev1.ConfigMap:
		want := answer.(*corev1.ConfigMap)
		replace(t.Data, want.Data, "data", func() { t.Data = want.Data })
	case *corev1.PersistentVolumeClaim:
		want := answer.(*corev1.PersistentVolumeClaim).Spec
		replace(t.Spec, want, "size="+want.Resources.Requests.Storage().String(), func() { t.Spec = want })
	case *corev1.Service:
		want := answer.(*corev1.Service).Spec
		if exposed := want.Type != corev1.ServiceTypeClusterIP; exposed && want.Ports[0].NodePort == 0 {
			want.Ports = slices.Clone(want.Ports)
			want.Ports[0].NodePort = t.Spec.Ports[0].NodePort // an answer that is unreachable takes nothing back
		}
		replace(t.Spec, want, "spec", func() { t.Spec = want })
	case *policyv1.PodDisruptionBudget:
		want := answer.(*policyv1.PodDisruptionBudget).Spec
		replace(t.Spec, want, "min-available="+want.MinAvailable.String(), func() { t.Spec = want })
	case *networkingv1.NetworkPolicy:
		want := answer.(*networkingv1.NetworkPolicy).Spec
		replace(t.Spec, want, "spec", func() { t.Spec = want })
	case *observation.Secret:
		changed = mergeSecret(t, answer.(*observation.Secret))
	}
	return changed
}

// mergeSecret takes over the data of a Secret, and says what is new about it.
func mergeSecret(o, want *observation.Secret) []string {
	var changed []string
	if !reflect.DeepEqual(o.Certificate, want.Certificate) {
		changed = append(changed, Describe(want))
	}
	if !reflect.DeepEqual(o.Trust, want.Trust) {
		changed = append(changed, "trusts "+IDs(want.Trust))
	}
	if o.Previous != nil && want.Previous == nil {
		changed = append(changed, "without the previous one")
	}
	if len(changed) == 0 && !reflect.DeepEqual([]any{o.Type, o.Keys, o.Flaw}, []any{want.Type, want.Keys, want.Flaw}) {
		changed = append(changed, "data")
	}
	meta := o.ObjectMeta
	*o = *want
	o.ObjectMeta = meta
	return changed
}

func clone(m map[string]string) map[string]string {
	if c := maps.Clone(m); c != nil {
		return c
	}
	return map[string]string{}
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
