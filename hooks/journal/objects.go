package journal

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Ref names an object by what it holds. Most objects are the same from one entry to the next.
type Ref string

// Objects are objects in JSON.
type Objects map[Ref]jsontext.Value

// add writes an object, and is its name from now on.
func (all Objects) add(object any) (Ref, error) {
	return all.put(withoutManifest(object), written)
}

func (all Objects) put(object any, how json.Options) (Ref, error) {
	text, err := json.Marshal(object, written, how)
	if err != nil {
		return "", fmt.Errorf("an object can't be written down: %w", err)
	}
	sum := sha256.Sum256(text)
	ref := Ref(base64.RawURLEncoding.EncodeToString(sum[:12]))
	all[ref] = text
	return ref, nil
}

func (all Objects) get(ref Ref, into any, how json.Options) error {
	text, there := all[ref]
	if !there {
		return fmt.Errorf("the journal lacks the object %s", ref)
	}
	return json.Unmarshal(text, into, written, how)
}

// leftOut stands for the value of an annotation of a Secret that is not Quorate's.
const leftOut = "(left out)"

// withoutManifest is a Secret without annotations in which tools keep all of it, and any other object as it is.
func withoutManifest(object any) any {
	switch one := object.(type) {
	case *observation.Secret:
		own := *one
		own.Annotations = ours(own.Annotations)
		return &own
	case *decision.DesiredSecret:
		own := *one
		own.Annotations = ours(own.Annotations)
		return &own
	}
	return object
}

func ours(annotations map[string]string) map[string]string {
	annotations = maps.Clone(annotations)
	for name := range annotations {
		if !strings.HasPrefix(name, "etcd.quorate.dev/") {
			annotations[name] = leftOut
		}
	}
	return annotations
}

// A desk is where entries are written and read: with objects that are there, and those that are added.
type desk struct {
	from, added Objects
	// seen are objects as they were read, and last what was decided last, by name, where they are kept for the next entry.
	seen map[Ref]any
	last map[string]named
	// apart and together are for observations. They take long to make.
	apart, together json.Options
}

// named is an object with its name.
type named struct {
	object any
	ref    Ref
}

// desks are those that are free.
var desks = sync.Pool{New: func() any {
	k := &desk{}
	k.apart = k.refs()
	k.together = k.objects()
	return k
}}

// deskOf is a desk with these objects; leave gives it back.
func deskOf(from, added Objects) *desk {
	k, _ := desks.Get().(*desk)
	k.from = from
	k.added = added
	return k
}

func (k *desk) leave() {
	k.from, k.added, k.seen, k.last = nil, nil, nil, nil
	desks.Put(k)
}

func (k *desk) get(ref Ref, into any, how json.Options) error {
	if _, is := k.added[ref]; is {
		return k.added.get(ref, into, how)
	}
	return k.from.get(ref, into, how)
}

// refs writes the name of an object in its place, and of the children as a whole: they change less than the rest.
func (k *desk) refs() json.Options {
	objects := json.JoinMarshalers(asRef[corev1.Pod](k), asRef[corev1.PersistentVolumeClaim](k),
		asRef[corev1.ConfigMap](k), asRef[corev1.Service](k), asRef[policyv1.PodDisruptionBudget](k),
		asRef[networkingv1.NetworkPolicy](k), asRef[observation.Secret](k),
		asRef[decision.CertManagerCertificate](k), asRef[v1beta1.EtcdCluster](k),
		asRef[v1beta1.EtcdClusterStatus](k), asRef[v1beta1.EtcdSnapshot](k), asRef[v1beta1.EtcdOperation](k),
		asRef[observation.Membership](k), asRef[observation.Settings](k), asRef[history](k), marshalers)
	within := json.WithMarshalers(objects)
	return json.WithMarshalers(json.JoinMarshalers(refOf(func(children *observation.Children) (Ref, error) {
		return k.added.put(children, within)
	}), objects))
}

func asRef[T any](k *desk) *json.Marshalers {
	return refOf(func(object *T) (Ref, error) { return k.added.add(object) })
}

func refOf[T any](put func(*T) (Ref, error)) *json.Marshalers {
	return json.MarshalToFunc(func(out *jsontext.Encoder, object *T) error {
		ref, err := put(object)
		if err != nil {
			return err
		}
		return out.WriteToken(jsontext.String(string(ref)))
	})
}

// objects reads objects where their names are.
func (k *desk) objects() json.Options {
	objects := json.JoinUnmarshalers(fromRef[corev1.Pod](k), fromRef[corev1.PersistentVolumeClaim](k),
		fromRef[corev1.ConfigMap](k), fromRef[corev1.Service](k), fromRef[policyv1.PodDisruptionBudget](k),
		fromRef[networkingv1.NetworkPolicy](k), fromRef[observation.Secret](k),
		fromRef[decision.CertManagerCertificate](k), fromRef[v1beta1.EtcdCluster](k),
		fromRef[v1beta1.EtcdClusterStatus](k), fromRef[v1beta1.EtcdSnapshot](k), fromRef[v1beta1.EtcdOperation](k),
		fromRef[observation.Membership](k), fromRef[observation.Settings](k), fromRef[history](k), unmarshalers)
	within := json.WithUnmarshalers(objects)
	return json.WithUnmarshalers(json.JoinUnmarshalers(ofRef(func(ref Ref, children *observation.Children) error {
		return once(k, ref, children, within)
	}), objects))
}

func fromRef[T any](k *desk) *json.Unmarshalers {
	return ofRef(func(ref Ref, object *T) error { return once(k, ref, object, written) })
}

// once reads an object, unless it was read: nothing changes what was observed.
func once[T any](k *desk, ref Ref, object *T, how json.Options) error {
	if known, is := k.seen[ref].(*T); is {
		*object = *known
		return nil
	}
	if err := k.get(ref, object, how); err != nil || k.seen == nil {
		return err
	}
	known := *object
	k.seen[ref] = &known
	return nil
}

// refTo writes a child of this name, unless it is as the last one was: to compare takes a tenth of it.
func (k *desk) refTo(child string, object any) (Ref, error) {
	if last, is := k.last[child]; is && reflect.DeepEqual(object, last.object) {
		return last.ref, nil
	}
	ref, err := k.added.add(object)
	if k.last != nil {
		k.last[child] = named{object, ref}
	}
	return ref, err
}

func ofRef[T any](get func(Ref, *T) error) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(in *jsontext.Decoder, object *T) error {
		var ref string
		if err := json.UnmarshalDecode(in, &ref); err != nil {
			return err
		}
		return get(Ref(ref), object)
	})
}

// written is how entries are written and read: as Kubernetes does it, with what says of itself that it is left out, and
// each value of a closed set under the name of its type.
var (
	written = json.JoinOptions(jsonv1.DefaultOptionsV1(), json.Deterministic(true), json.WithMarshalers(marshalers),
		json.WithUnmarshalers(unmarshalers))

	marshalers = json.JoinMarshalers(json.MarshalToFunc(writeNamed[decision.Step]),
		json.MarshalToFunc(writeNamed[decision.Recipe]),
		whole(func(w users.Want) any { return want(w) }), whole(func(u users.UserWant) any { return userWant(u) }),
		whole(func(p users.PasswordFrom) any { return passwordFrom(p) }))

	unmarshalers = json.JoinUnmarshalers(json.UnmarshalFromFunc(readStep),
		wholeAgain(func(w want) users.Want { return users.Want(w) }),
		wholeAgain(func(u userWant) users.UserWant { return users.UserWant(u) }),
		wholeAgain(func(p passwordFrom) users.PasswordFrom { return users.PasswordFrom(p) }))
)

// The same without tags: the hash of what is wanted leaves fields out which decisions read.
type (
	want struct {
		Enabled, Prune           bool
		Roles                    []users.RoleWant
		Users                    []users.UserWant
		FormerRoles, FormerUsers []string
	}
	userWant struct {
		Name     string
		Roles    []string
		Password *users.PasswordFrom
		Applied  string
	}
	passwordFrom struct{ Secret, Key, Version, Field string }
)

func whole[T any](plain func(T) any) *json.Marshalers {
	return json.MarshalToFunc(func(out *jsontext.Encoder, value T) error { return json.MarshalEncode(out, plain(value)) })
}

func wholeAgain[P, T any](of func(P) T) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(in *jsontext.Decoder, value *T) error {
		var plain P
		err := json.UnmarshalDecode(in, &plain)
		*value = of(plain)
		return err
	})
}

// writeNamed writes a value of a closed set as {"Promote": {"ID": 7, "Name": "demo-1"}}.
func writeNamed[T any](out *jsontext.Encoder, value T) error {
	of := reflect.Indirect(reflect.ValueOf(value))
	return json.MarshalEncode(out, map[string]any{of.Type().Name(): of.Convert(plain(of.Type())).Interface()})
}

// plain is a struct without methods.
func plain(t reflect.Type) reflect.Type {
	var fields []reflect.StructField
	for i := range t.NumField() {
		fields = append(fields, t.Field(i))
	}
	return reflect.StructOf(fields)
}

var steps = []decision.Step{decision.AddLearner{}, decision.Promote{}, decision.Remove{}, decision.UpdatePeerURL{},
	decision.MoveLeader{}, decision.Authorize{}, decision.EnableDowngrade{}, decision.CancelDowngrade{},
	decision.Compact{}, decision.Defragment{}, decision.Disarm{}}

func readStep(in *jsontext.Decoder, step *decision.Step) error {
	var named map[string]jsontext.Value
	if err := json.UnmarshalDecode(in, &named); err != nil {
		return err
	}
	for _, one := range steps {
		t := reflect.TypeOf(one)
		text, is := named[t.Name()]
		if !is {
			continue
		}
		value := reflect.New(plain(t))
		if err := json.Unmarshal(text, value.Interface(), in.Options()); err != nil {
			return err
		}
		*step, _ = value.Elem().Convert(t).Interface().(decision.Step)
		return nil
	}
	return fmt.Errorf("there is no such step: %v", named)
}
