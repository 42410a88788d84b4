package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/wire"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// object is one of the API's types.
type object interface {
	metav1.Object
	runtime.Object
}

// kinds are how the wire names what the world holds, and kubectl.
var kinds = []struct {
	kind                     world.Kind
	apiVersion, name, plural string
	empty                    func() object
}{
	{world.PodKind, "v1", "Pod", "pods", func() object { return &corev1.Pod{} }},
	{world.ClaimKind, "v1", "PersistentVolumeClaim", "persistentvolumeclaims",
		func() object { return &corev1.PersistentVolumeClaim{} }},
	{world.ConfigMapKind, "v1", "ConfigMap", "configmaps", func() object { return &corev1.ConfigMap{} }},
	{world.ServiceKind, "v1", "Service", "services", func() object { return &corev1.Service{} }},
	{world.BudgetKind, "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets.policy",
		func() object { return &policyv1.PodDisruptionBudget{} }},
	{world.PolicyKind, "networking.k8s.io/v1", "NetworkPolicy", "networkpolicies.networking.k8s.io",
		func() object { return &networkingv1.NetworkPolicy{} }},
	{world.SecretKind, "v1", "Secret", "secrets", func() object { return &corev1.Secret{} }},
	{world.ClusterKind, v1beta1.GroupVersion.String(), v1beta1.Kind, "etcdclusters.etcd.quorate.dev",
		func() object { return &v1beta1.EtcdCluster{} }},
}

// vault is what the Secrets hold, by name: the world knows only what is public about them.
type vault map[string]map[string][]byte

// wire is an object as the API server would show it.
func (v vault) wire(o metav1.Object) (json.RawMessage, error) {
	if s, is := o.(*observation.Secret); is {
		o = &corev1.Secret{ObjectMeta: s.ObjectMeta, Type: s.Type, Data: v[s.Name]}
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if fmt.Sprintf("%T", k.empty()) == fmt.Sprintf("%T", o) {
			return typed(raw, k.apiVersion, k.name), nil
		}
	}
	return nil, fmt.Errorf("there is no kind for %T", o)
}

// typed is the object with its kind, which Go's types leave out.
func typed(raw []byte, apiVersion, kind string) json.RawMessage {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,%s`, apiVersion, kind, bytes.TrimPrefix(raw, []byte("{")))
}

// asks is the body of a call, as Metacontroller sends it.
func (v vault) asks(q *world.Question) ([]byte, error) {
	parent, err := v.wire(q.Parent)
	if err != nil {
		return nil, err
	}
	call := struct {
		Parent     json.RawMessage                       `json:"parent"`
		Children   map[string]map[string]json.RawMessage `json:"children"`
		Related    map[string]map[string]json.RawMessage `json:"related"`
		Finalizing bool                                  `json:"finalizing"`
	}{parent, map[string]map[string]json.RawMessage{}, map[string]map[string]json.RawMessage{"Secret.v1": {}},
		q.Finalizing}
	for _, group := range wire.Groups() {
		call.Children[group] = map[string]json.RawMessage{}
	}
	for key, o := range q.Children {
		raw, err := v.wire(o)
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			if k.kind == key.Kind {
				call.Children[k.name+"."+k.apiVersion][key.Name] = raw
			}
		}
	}
	for name, s := range q.Related.Secrets {
		if call.Related["Secret.v1"][name], err = v.wire(s); err != nil {
			return nil, err
		}
	}
	return json.Marshal(call)
}

// answer is what the hook server has answered, and what it put into Secrets.
type answer struct {
	world.Reply
	secrets vault
	// again is after how many seconds it wants to be asked again; 0 for when something changes.
	again float64
}

// call asks the hook server, by the bytes that Metacontroller would send.
func call(hook http.Handler, body []byte, held vault, finalizing bool) (*answer, error) {
	path := "/sync"
	if finalizing {
		path = "/finalize"
	}
	said := httptest.NewRecorder()
	hook.ServeHTTP(said, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	if said.Code != http.StatusOK {
		return nil, fmt.Errorf("the hook answers %d: %s", said.Code, bytes.TrimSpace(said.Body.Bytes()))
	}
	return understood(said.Body.Bytes(), held)
}

// understood is an answer. What it does not tell of a Secret stays as the Secret holds it, and what it tells as text
// the API server puts into data.
func understood(body []byte, held vault) (*answer, error) {
	var told struct {
		Status             v1beta1.EtcdClusterStatus
		Children           []json.RawMessage
		ResyncAfterSeconds float64
		Finalized          bool
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return nil, err
	}
	a := &answer{secrets: vault{}, again: told.ResyncAfterSeconds}
	a.Status, a.Finalized, a.Children = told.Status, told.Finalized, map[world.Key]metav1.Object{}
	for _, raw := range told.Children {
		key, o, err := child(raw)
		if err != nil {
			return nil, err
		}
		if s, is := o.(*corev1.Secret); is {
			s.Data = held[s.Name]
			if len(s.StringData) > 0 {
				s.Data = map[string][]byte{}
			}
			for key, value := range s.StringData {
				s.Data[key] = []byte(value)
			}
			a.secrets[s.Name], o = s.Data, pki.Read(s)
		}
		a.Children[key] = o
	}
	return a, nil
}

// child is one of an answer.
func child(raw json.RawMessage) (world.Key, metav1.Object, error) {
	var head metav1.TypeMeta
	if err := json.Unmarshal(raw, &head); err != nil {
		return world.Key{}, nil, err
	}
	for _, k := range kinds {
		if k.name == head.Kind && k.apiVersion == head.APIVersion {
			o := k.empty()
			err := json.Unmarshal(raw, o)
			o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as Go's types have it
			return world.Key{Kind: k.kind, Name: o.GetName()}, o, err
		}
	}
	return world.Key{}, nil, fmt.Errorf("the hook answers with a %s of %s, which is no child of this world", head.Kind,
		head.APIVersion)
}
