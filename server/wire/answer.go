package wire

import (
	"cmp"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// response is what the hooks answer. Its bytes are equal for equal decisions.
type response struct {
	// Status replaces the parent's; Metacontroller adds observedGeneration.
	Status any `json:"status"`
	// Children that exist and are not among these are deleted.
	Children []answerChild `json:"children"`
	// ResyncAfterSeconds may have a fraction.
	ResyncAfterSeconds float64 `json:"resyncAfterSeconds,omitempty"`
	// Finalized is only read from the hook finalize.
	Finalized *bool `json:"finalized,omitempty"`
}

// answerChild holds the fields of a child that are ours, and no others.
type answerChild struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   answerMeta        `json:"metadata"`
	Spec       any               `json:"spec,omitempty"`
	Type       corev1.SecretType `json:"type,omitempty"`
	Data       any               `json:"data,omitempty"`
	StringData map[string]string `json:"stringData,omitempty"`
	Immutable  *bool             `json:"immutable,omitempty"`
}

type answerMeta struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// OwnerReferences are told only to have them removed: see hooks.Finalize. Metacontroller adds its own.
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitempty"`
	// DynamicApplyOnly is told for a child without Metacontroller's note. No kind has such a field: the API server
	// refuses it in a server-side apply, with its name in the error, and drops it from the update by which
	// Metacontroller otherwise writes the note (docs/decisions/0029-server-side-apply.md).
	DynamicApplyOnly bool `json:"setApplyStrategyToDynamicApply,omitempty"`
}

// encode writes an answer. It fails when the children can't be what was meant: without a name, twice, or in another
// namespace.
func encode(
	namespace string, status any, children []answerChild, resync time.Duration, finalized *bool,
) ([]byte, error) {
	if err := distinct(namespace, children); err != nil {
		return nil, err
	}
	if children == nil {
		children = []answerChild{} // none, and not null
	}
	a := response{Status: status, Children: children, ResyncAfterSeconds: resync.Seconds(), Finalized: finalized}
	// The bytes are those of encoding/json: omitempty as it means it, maps in order.
	return json.Marshal(a, jsonv1.DefaultOptionsV1())
}

// outgoing is an object in an answer, with its content. One that is observed without Metacontroller's note asks for it.
func outgoing(namespace, apiVersion, kind string, o metav1.Object, content answerChild,
	observed metav1.Object) answerChild {
	content.APIVersion = apiVersion
	content.Kind = kind
	content.Metadata = answerMeta{
		Name: o.GetName(), Namespace: cmp.Or(o.GetNamespace(), namespace), Labels: o.GetLabels(),
		Annotations:      o.GetAnnotations(),
		OwnerReferences:  content.Metadata.OwnerReferences,
		DynamicApplyOnly: observed != nil && observed.GetAnnotations()[lastApplied] == "",
	}
	return content
}

// specs are the objects of one kind that have a spec.
func specs[T any, O objectOf[T]](namespace, apiVersion, kind string, wanted []O, all map[string]O) []answerChild {
	var list []answerChild
	for _, o := range wanted {
		var observed metav1.Object
		if old := all[o.GetName()]; old != nil {
			observed = old
		}
		list = append(list, outgoing(namespace, apiVersion, kind, o, answerChild{Spec: specTold(o, observed)}, observed))
	}
	return list
}

// distinct checks that every child has a name of its own, in the parent's namespace.
func distinct(namespace string, children []answerChild) error {
	type key struct{ kind, name string }
	seen := make(map[key]bool, len(children))
	for _, c := range children {
		k := key{c.Kind, c.Metadata.Name}
		switch {
		case k.name == "":
			return fmt.Errorf("the decision has a %s without a name", k.kind)
		case c.Metadata.Namespace != namespace:
			return fmt.Errorf("the decision has %s %s in namespace %q, the parent is in %q",
				k.kind, k.name, c.Metadata.Namespace, namespace)
		case seen[k]:
			return fmt.Errorf("the decision has %s %s twice", k.kind, k.name)
		}
		seen[k] = true
	}
	return nil
}
