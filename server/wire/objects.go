package wire

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// object is one of a kind, as it comes in.
type object interface {
	metav1.Object
	GetObjectKind() schema.ObjectKind
}

// objectOf is one of type T.
type objectOf[T any] interface {
	*T
	object
}

// one reads an object of this kind.
func one[T any, O objectOf[T]](in *source, where, apiVersion, kind string) (*T, error) {
	o := new(T)
	return o, readInto(in, where, apiVersion, kind, O(o))
}

// readInto reads an object of this kind into o.
func readInto(in *source, where, apiVersion, kind string, o object) error {
	if err := value(in, where, o); err != nil {
		return err
	}
	t := metav1.TypeMeta{}
	t.APIVersion, t.Kind = o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return identified(where, t, o, apiVersion, kind)
}

// parentTo reads the parent of a call, which is of this kind, into *to.
func parentTo[T any, O objectOf[T]](kind string, to **T) func(in *source) (namespace string, err error) {
	return func(in *source) (string, error) {
		o, err := one[T, O](in, theParent, v1beta1.GroupVersion.String(), kind)
		if err != nil {
			return "", err
		}
		namespace := O(o).GetNamespace()
		if namespace == "" {
			return "", Bad("parent.metadata.namespace is missing")
		}
		*to = o
		return namespace, nil
	}
}

// groupTo reads the objects of one kind into *all, by metadata.name: the key may carry the namespace.
func groupTo[T any, O objectOf[T]](apiVersion, kind string, all *map[string]*T) group {
	name := kind + "." + apiVersion
	return group{
		name: name,
		read: func(in *source, where string) error {
			*all = map[string]*T{}
			return members(in, where, func(key string) error {
				field := member(where, key)
				o, err := one[T, O](in, field, apiVersion, kind)
				if err != nil {
					return err
				}
				if _, twice := (*all)[O(o).GetName()]; twice {
					return thereTwice(field)
				}
				(*all)[O(o).GetName()] = o
				return nil
			})
		},
		within: func(namespace string) error {
			for key, o := range *all {
				if err := sameNamespace(name, namespace, key, O(o)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// childrenOf reads the observed children of one kind.
func childrenOf(k *observation.Kind, c *observation.Children) group {
	return group{
		name: k.Group(), optional: k.Optional,
		read: func(in *source, where string) error {
			k.Begin(c)
			return members(in, where, func(key string) error {
				field := member(where, key)
				o, _ := k.New().(object)
				if err := readInto(in, field, k.APIVersion, k.Kind, o); err != nil {
					return err
				}
				if k.Sees(c, o.GetName()) {
					return thereTwice(field)
				}
				k.Add(c, o)
				return nil
			})
		},
		within: func(namespace string) error {
			for o := range k.Observed(c) {
				if err := sameNamespace(k.Group(), namespace, o.GetName(), o); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// member names an object of a group.
func member(group, key string) string { return fmt.Sprintf("%s[%q]", group, key) }

// identified checks what every object must have.
func identified(field string, t metav1.TypeMeta, m metav1.Object, apiVersion, kind string) error {
	switch {
	case t.APIVersion != apiVersion:
		return Bad("%s.apiVersion must be %s", field, apiVersion)
	case t.Kind != kind:
		return Bad("%s.kind must be %s", field, kind)
	case m.GetName() == "":
		return Bad("%s.metadata.name is missing", field)
	case m.GetUID() == "":
		return Bad("%s.metadata.uid is missing", field)
	}
	return nil
}

func thereTwice(field string) error { return Bad("%s.metadata.name is there twice", field) }

func sameNamespace(group, namespace, name string, o metav1.Object) error {
	if o.GetNamespace() != namespace {
		return Bad("children[%q][%q].metadata.namespace is not the parent's", group, name)
	}
	return nil
}
