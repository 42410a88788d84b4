package server

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/quorate-dev/quorate/server/wire"
)

// Scope says which objects of our kinds a server answers for; the zero value is all.
// Metacontroller should not ask about others. If it does all the same, an error changes nothing, and an answer could.
// No version of it can be told namespaces, and one with an old CRD drops a label selector without a word.
//
// An object whose labels no longer match is let go: the hook finalize answers it as it is, and the finalizer goes. Else
// no Quorate would take that away once another one looks after the object.
type Scope struct {
	// Namespaces that they may be in; none is any.
	Namespaces []string
	// Selector of their labels, so that several Quorates can share a Kubernetes; nil selects all.
	Selector labels.Selector
}

// elsewhere is the error about an object in a namespace that is not looked after.
func (s *Scope) elsewhere(kind string, o metav1.Object) error {
	if len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, o.GetNamespace()) {
		return nil
	}
	return wire.Refuse(http.StatusForbidden,
		"%s %s/%s is in a namespace that this Quorate does not look after, so nothing is changed: "+
			"it was installed with --namespaces=%s",
		kind, o.GetNamespace(), o.GetName(), strings.Join(s.Namespaces, ","))
}

func (s *Scope) selects(o metav1.Object) bool {
	return s.Selector == nil || s.Selector.Matches(labels.Set(o.GetLabels()))
}

// check is the error about an object that this server does not look after.
func (s *Scope) check(kind string, o metav1.Object) error {
	if err := s.elsewhere(kind, o); err != nil || s.selects(o) {
		return err
	}
	return wire.Refuse(http.StatusForbidden,
		"%s %s/%s lacks the labels that this Quorate selects by, so nothing is changed: "+
			"it was installed with --selector=%s. If Metacontroller keeps asking, it does not know "+
			"spec.parentResource.labelSelector of the CompositeController: it needs version 4.16 or later, "+
			"with the CRDs of that version", kind, o.GetNamespace(), o.GetName(), s.Selector)
}

// handedDown are the labels of a schedule that its snapshots need as well, or no Quorate would look after them.
func (s *Scope) handedDown(o metav1.Object) map[string]string {
	all := map[string]string{}
	if s.Selector == nil {
		return all
	}
	requirements, _ := s.Selector.Requirements()
	for _, r := range requirements {
		if value, has := o.GetLabels()[r.Key()]; has {
			all[r.Key()] = value
		}
	}
	return all
}
