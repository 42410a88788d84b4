package check

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Answer is what kubectl said to a reading.
type Answer struct {
	Out []byte
	// Err is empty when it could be read.
	Err string
	// Forbidden: a right lacks. NoKind: the API server knows no such kind.
	Forbidden, NoKind bool
}

// Seen is all that was read.
type Seen struct {
	Options
	answers map[string]Answer

	server        string // Kubernetes' version
	kinds         map[string]kind
	controllers   []controller
	inNamespace   []workload // in Metacontroller's namespace
	labelled      []workload // with Metacontroller's label, anywhere
	pods          []corev1.Pod
	trusted       *corev1.ConfigMap
	roles         map[string][]policyRule
	bindings      []binding
	rolesThere    map[string][]policyRule // in Metacontroller's namespace
	bindingsThere []binding
	deployments   []workload // Quorate's
	services      []corev1.Service
	networks      []networkPolicyObject
	quoratePods   []corev1.Pod
	secrets       map[string]corev1.Secret
	namespaces    map[string]map[string]string // their labels
	clusters      []v1beta1.EtcdCluster
	policies      map[string]bool // kind/name
	classes       []object
	apiServers    []corev1.Pod // those that are pods
	log           []string
}

// object is one of which only the metadata matters.
type object struct {
	metav1.TypeMeta
	Metadata metav1.ObjectMeta `json:"metadata"`
}

// See puts together what was read. What can't be understood counts as not read.
func See(o Options, answers map[string]Answer) *Seen {
	s := &Seen{Options: o, answers: answers, kinds: map[string]kind{}, roles: map[string][]policyRule{},
		rolesThere: map[string][]policyRule{}, secrets: map[string]corev1.Secret{},
		namespaces: map[string]map[string]string{}, policies: map[string]bool{}}
	for _, d := range []struct {
		name string
		take func(kind string, raw json.RawMessage) error
	}{
		{kinds, each(func(k kind) { s.kinds[k.Metadata.Name] = k })},
		{controllers, each(func(c controller) { s.controllers = append(s.controllers, c) })},
		{metacontroller, s.takeMetacontroller},
		{workloads, each(func(w workload) { s.labelled = append(s.labelled, w) })},
		{trusted, each(func(c corev1.ConfigMap) { s.trusted = &c })},
		{rights, s.takeRights},
		{quorate, s.takeQuorate},
		{secrets, each(func(o corev1.Secret) { s.secrets[o.Name] = o })},
		{namespaces, each(func(o object) { s.namespaces[o.Metadata.Name] = o.Metadata.Labels })},
		{clusters, each(func(c v1beta1.EtcdCluster) { s.clusters = append(s.clusters, c) })},
		{policies, each(func(o object) { s.policies[o.Kind+"/"+o.Metadata.Name] = true })},
		{classes, each(func(o object) { s.classes = append(s.classes, o) })},
		{apiServers, each(func(p corev1.Pod) { s.apiServers = append(s.apiServers, p) })},
	} {
		s.understand(d.name, d.take)
	}
	var v struct{ ServerVersion struct{ GitVersion string } }
	if a := answers[version]; a.Err == "" {
		s.not(version, objects.Read(a.Out, &v))
	}
	s.server = v.ServerVersion.GitVersion
	s.log = strings.Split(string(answers[log].Out), "\n")
	return s
}

func (s *Seen) takeMetacontroller(kind string, raw json.RawMessage) error {
	if kind == "Pod" {
		return take(raw, func(p corev1.Pod) { s.pods = append(s.pods, p) })
	}
	return take(raw, func(w workload) { s.inNamespace = append(s.inNamespace, w) })
}

func (s *Seen) takeRights(kind string, raw json.RawMessage) error {
	switch kind {
	case "ClusterRole":
		return take(raw, func(r role) { s.roles[r.Metadata.Name] = r.Rules })
	case "Role":
		return take(raw, func(r role) { s.rolesThere[r.Metadata.Name] = r.Rules })
	case "RoleBinding":
		return take(raw, func(b binding) { s.bindingsThere = append(s.bindingsThere, b) })
	}
	return take(raw, func(b binding) { s.bindings = append(s.bindings, b) })
}

func (s *Seen) takeQuorate(kind string, raw json.RawMessage) error {
	switch kind {
	case "Deployment":
		return take(raw, func(w workload) { s.deployments = append(s.deployments, w) })
	case "Service":
		return take(raw, func(o corev1.Service) { s.services = append(s.services, o) })
	case "NetworkPolicy":
		return take(raw, func(p networkPolicyObject) { s.networks = append(s.networks, p) })
	}
	return take(raw, func(p corev1.Pod) { s.quoratePods = append(s.quoratePods, p) })
}

// understand takes the objects of one answer: a List, one object, or nothing at all.
func (s *Seen) understand(name string, take func(kind string, raw json.RawMessage) error) {
	a, read := s.answers[name]
	if !read || a.Err != "" || len(a.Out) == 0 {
		return
	}
	var list struct{ Items []json.RawMessage }
	err := objects.Read(a.Out, &list)
	if err == nil && list.Items == nil {
		list.Items = []json.RawMessage{a.Out}
	}
	for _, raw := range list.Items {
		var head metav1.TypeMeta
		if err == nil {
			err = objects.Read(raw, &head)
		}
		if err == nil && head.Kind != "" && head.Kind != "List" {
			err = take(head.Kind, raw)
		}
	}
	s.not(name, err)
}

// not says that an answer could not be understood.
func (s *Seen) not(name string, err error) {
	if err != nil {
		a := s.answers[name]
		a.Err = "what kubectl printed can't be understood: " + err.Error()
		s.answers[name] = a
	}
}

// each takes objects of one kind.
func each[T any](with func(T)) func(string, json.RawMessage) error {
	return func(_ string, raw json.RawMessage) error { return take(raw, with) }
}

func take[T any](raw json.RawMessage, with func(T)) error {
	var o T
	if err := objects.Read(raw, &o); err != nil {
		return err
	}
	with(o)
	return nil
}

// without says which of these readings could not be had; ok when all could.
func (s *Seen) without(names []string) Finding {
	var flaws []Finding
	for _, name := range names {
		a, asked := s.answers[name]
		switch right := s.right(name); {
		case !asked:
			flaws = append(flaws, Finding{State: Unknown, Found: "not checked"})
		case a.Forbidden:
			flaws = append(flaws, Finding{State: Unknown, Found: "you may not " + right,
				Do: "ask your Kubernetes administrator for the right to " + right})
		case a.NoKind:
			flaws = append(flaws, unchecked("the kind does not exist ("+right+")"))
		case a.Err != "":
			flaws = append(flaws, Finding{State: Unknown, Found: a.Err})
		}
	}
	return together(ok(""), flaws)
}

// right is what one must be allowed for a reading, with the names of the namespaces.
func (s *Seen) right(name string) string {
	all := append(s.Readings(), s.Later()...)
	i := slices.IndexFunc(all, func(r Reading) bool { return r.Name == name })
	if i < 0 {
		return name
	}
	return strings.NewReplacer("Metacontroller's namespace", "namespace "+s.Metacontroller, "Quorate's namespace",
		"namespace "+s.Namespace).Replace(all[i].Right)
}
