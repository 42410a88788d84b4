package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/users"
)

// The groups of children in Metacontroller's requests, "Kind.version" or "Kind.group/version".
const (
	groupPods       = "Pod.v1"
	groupClaims     = "PersistentVolumeClaim.v1"
	groupConfigMaps = "ConfigMap.v1"
	groupServices   = "Service.v1"
	groupBudgets    = "PodDisruptionBudget.policy/v1"
	groupSecrets    = "Secret.v1"
	groupPolicies   = "NetworkPolicy.networking.k8s.io/v1"
	// groupCertificates is there only where the CompositeController has a rule for it.
	groupCertificates = "Certificate.cert-manager.io/v1"
	// groupSnapshots are related to a cluster.
	groupSnapshots = "EtcdSnapshot.etcd.quorate.dev/v1alpha1"
)

// requiredGroups are there in every call, be they empty.
var requiredGroups = []string{groupPods, groupClaims, groupConfigMaps, groupServices, groupBudgets, groupSecrets, groupPolicies}

// request is what Metacontroller sends to the hooks sync and finalize of a CompositeController (hook version v1). Of the
// controller itself only the resync period is read.
type request struct {
	Cluster    *v1alpha1.EtcdCluster
	Children   hooks.Children
	Related    hooks.Related
	Finalizing bool
	// Resync is how often Metacontroller calls while nothing happens; 0 for never, or when the request does not say.
	Resync time.Duration
	// secrets and related are what the Secrets of Children and Related hold. It goes nowhere but into the answer (children) and
	// to the members (a client's certificate and key).
	secrets, related map[string]map[string][]byte
	snapshots        []*v1alpha1.EtcdSnapshot // related, of whatever namespace
	made             int64                    // bytes that it takes in memory, by weigh
}

// password is what is under a key of a Secret. The error says what is wrong with it and not what it is.
func (r *request) password(secret, key string) (string, error) {
	data := r.data(secret)
	if flaw := users.PasswordFlaw(string(data[key])); flaw != "" {
		return "", fmt.Errorf("what is under %q in Secret %s %s", key, secret, flaw)
	}
	return string(data[key]), nil
}

// sources are the Secrets that a recipe may read: the cluster's own, and that which it names of others.
func (r *request) sources(recipe hooks.Recipe) map[string]map[string][]byte {
	adopt, is := recipe.(hooks.Adopt)
	if !is {
		return r.secrets
	}
	all := maps.Clone(r.secrets)
	all[adopt.From] = r.data(adopt.From)
	return all
}

// badRequest is an error of the sender, in one sentence that names the field. It is answered with its code.
type badRequest struct {
	code     int
	sentence string
}

func (e *badRequest) Error() string { return e.sentence }

func bad(format string, args ...any) error {
	return &badRequest{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// decode reads a request. It fails rather than take anything for absent that could be there: a group of children that
// is missing is a CompositeController without that childResources rule, and one that we don't know would be deleted by
// an answer that omits it. The error is a *badRequest, unless reading the body failed, or ctx has ended.
func decode(ctx context.Context, body io.Reader) (*request, error) {
	in, err := newSource(body)
	if err != nil {
		return nil, err
	}
	r := &request{}
	err = object(in, "the request", func(key string) error {
		switch key {
		case "controller":
			return decodeController(in, r)
		case "parent":
			return decodeParent(in, r)
		case "children":
			return decodeChildren(in, r, &secretReader{ctx: ctx, request: r, body: in.all})
		case "related":
			return decodeRelated(in, r, &secretReader{ctx: ctx, request: r, body: in.all})
		case "finalizing":
			return value(in, "finalizing", &r.Finalizing)
		default:
			return skip(in, key)
		}
	})
	if err == nil {
		err = in.end()
	}
	if err != nil {
		return nil, err
	}
	r.made = in.made
	in.done()
	return r, r.check()
}

// decodeController reads of the CompositeController how often it calls while nothing happens.
func decodeController(in *source, r *request) error {
	var controller struct {
		Spec struct {
			ResyncPeriodSeconds int32 `json:"resyncPeriodSeconds"`
		} `json:"spec"`
	}
	if err := value(in, "controller", &controller); err != nil {
		return err
	}
	r.Resync = time.Duration(max(0, controller.Spec.ResyncPeriodSeconds)) * time.Second
	return nil
}

// decodeAsked reads a request to the hook customize: the parent.
func decodeAsked(body io.Reader) (*v1alpha1.EtcdCluster, error) {
	in, err := newSource(body)
	if err != nil {
		return nil, err
	}
	r := &request{}
	err = object(in, "the request", func(key string) error {
		if key == "parent" {
			return decodeParent(in, r)
		}
		return skip(in, key)
	})
	if err != nil {
		return nil, err
	}
	if r.Cluster == nil {
		return nil, bad("parent is missing")
	}
	return r.Cluster, nil
}

// relatedRule is one of the answer to the hook customize: objects of the parent's namespace by label or by name; all without either. The
// namespace is said too where it may be: Metacontroller else looks for names in all namespaces.
type relatedRule struct {
	APIVersion    string                `json:"apiVersion"`
	Resource      string                `json:"resource"`
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	Namespace     string                `json:"namespace,omitempty"`
	Names         []string              `json:"names,omitempty"`
}

// encodeRelated answers the hook customize of an EtcdCluster: which objects to send besides the children. Where Metacontroller remembers answers by
// the name alone, they depend on nothing else: then all EtcdSnapshots of the namespace are asked for, and those that matter are picked (see check).
func encodeRelated(c *v1alpha1.EtcdCluster, byUID bool) ([]byte, error) {
	secrets := relatedRule{APIVersion: "v1", Resource: "secrets", LabelSelector: new(hooks.RelatedSelector(c))}
	snapshots := relatedRule{APIVersion: v1alpha1.GroupVersion.String(), Resource: "etcdsnapshots"}
	if !byUID {
		return encodeRules(secrets, snapshots)
	}
	labelled, named := snapshots, snapshots
	labelled.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{objects.LabelCluster: c.Name}}
	if named.Names = hooks.SnapshotsNamed(c); len(named.Names) == 0 {
		return encodeRules(secrets, labelled)
	}
	named.Namespace = c.Namespace
	return encodeRules(secrets, labelled, named)
}

// encodeRules answers the hook customize.
func encodeRules(rules ...relatedRule) ([]byte, error) {
	return json.Marshal(map[string]any{"relatedResources": rules})
}

// check finds what is missing in a request, and children that are not the parent's.
func (r *request) check() error {
	if r.Cluster == nil {
		return bad("parent is missing")
	}
	c := r.Children
	for _, group := range []struct {
		name    string
		present bool
	}{
		{groupPods, c.Pods != nil}, {groupClaims, c.Claims != nil}, {groupConfigMaps, c.ConfigMaps != nil},
		{groupServices, c.Services != nil}, {groupBudgets, c.Budgets != nil}, {groupSecrets, c.Secrets != nil},
		{groupPolicies, c.Policies != nil},
	} {
		if !group.present {
			return bad("children[%q] is missing: the CompositeController has no such rule in spec.childResources", group.name)
		}
	}
	ns := r.Cluster.Namespace
	for name, s := range r.Related.Secrets { // of the parent's namespace alone, whatever was sent
		if s.Namespace != ns {
			delete(r.Related.Secrets, name)
			delete(r.related, name)
		}
	}
	named := hooks.SnapshotsNamed(r.Cluster)
	for _, s := range r.snapshots {
		if s.Namespace != ns || s.Labels[objects.LabelCluster] != r.Cluster.Name && !slices.Contains(named, s.Name) {
			continue
		}
		if r.Related.Snapshots == nil {
			r.Related.Snapshots = map[string]*v1alpha1.EtcdSnapshot{}
		}
		r.Related.Snapshots[s.Name] = s
	}
	return cmp.Or(sameNamespace(groupPods, ns, c.Pods), sameNamespace(groupClaims, ns, c.Claims),
		sameNamespace(groupConfigMaps, ns, c.ConfigMaps), sameNamespace(groupServices, ns, c.Services),
		sameNamespace(groupBudgets, ns, c.Budgets), sameNamespace(groupSecrets, ns, c.Secrets),
		sameNamespace(groupPolicies, ns, c.Policies), sameNamespace(groupCertificates, ns, c.Certificates))
}

func sameNamespace[T metav1.Object](group, namespace string, objects map[string]T) error {
	for name, o := range objects {
		if o.GetNamespace() != namespace {
			return bad("children[%q][%q].metadata.namespace is not the parent's", group, name)
		}
	}
	return nil
}

func decodeParent(in *source, r *request) error {
	var w wire[v1alpha1.EtcdClusterSpec, v1alpha1.EtcdClusterStatus]
	if err := value(in, "parent", &w); err != nil {
		return err
	}
	if err := identified("parent", &w.TypeMeta, &w.Metadata.ObjectMeta, v1alpha1.GroupVersion.String(), v1alpha1.Kind); err != nil {
		return err
	}
	if w.Metadata.Namespace == "" {
		return bad("parent.metadata.namespace is missing")
	}
	r.Cluster = &v1alpha1.EtcdCluster{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
	return nil
}

func decodeChildren(in *source, r *request, secrets *secretReader) error {
	c := &r.Children
	return object(in, "children", func(key string) error {
		switch key {
		case groupPods:
			return group(in, field(key), "v1", "Pod", &c.Pods, func(w *wire[corev1.PodSpec, corev1.PodStatus]) *corev1.Pod {
				return &corev1.Pod{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
			})
		case groupClaims:
			return group(in, field(key), "v1", "PersistentVolumeClaim", &c.Claims, func(w *wire[corev1.PersistentVolumeClaimSpec, corev1.PersistentVolumeClaimStatus]) *corev1.PersistentVolumeClaim {
				return &corev1.PersistentVolumeClaim{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
			})
		case groupConfigMaps:
			return group(in, field(key), "v1", "ConfigMap", &c.ConfigMaps, func(w *wireConfigMap) *corev1.ConfigMap {
				return &corev1.ConfigMap{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Data: w.Data, BinaryData: w.BinaryData, Immutable: w.Immutable}
			})
		case groupServices:
			return group(in, field(key), "v1", "Service", &c.Services, func(w *wire[corev1.ServiceSpec, corev1.ServiceStatus]) *corev1.Service {
				return &corev1.Service{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
			})
		case groupBudgets:
			return group(in, field(key), "policy/v1", "PodDisruptionBudget", &c.Budgets, func(w *wire[policyv1.PodDisruptionBudgetSpec, policyv1.PodDisruptionBudgetStatus]) *policyv1.PodDisruptionBudget {
				return &policyv1.PodDisruptionBudget{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
			})
		case groupPolicies:
			return group(in, field(key), "networking.k8s.io/v1", "NetworkPolicy", &c.Policies, func(w *wire[networkingv1.NetworkPolicySpec, struct{}]) *networkingv1.NetworkPolicy {
				return &networkingv1.NetworkPolicy{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec}
			})
		case groupCertificates:
			return group(in, field(key), "cert-manager.io/v1", "Certificate", &c.Certificates, func(w *wire[hooks.CertManagerSpec, hooks.CertManagerStatus]) *hooks.CertManagerCertificate {
				return &hooks.CertManagerCertificate{ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
			})
		case groupSecrets:
			return secrets.children(in, field(key))
		default:
			return bad("children[%q] is a group that this version does not know: an answer without it would delete these objects; remove the rule from spec.childResources or upgrade Quorate", key)
		}
	})
}

// decodeRelated reads the related objects; Metacontroller sends what the hook customize asked for.
func decodeRelated(in *source, r *request, secrets *secretReader) error {
	return object(in, "related", func(key string) error {
		where := fmt.Sprintf("related[%q]", key)
		switch key {
		case groupSecrets:
			return secrets.others(in, where)
		case groupSnapshots:
			return object(in, where, func(key string) error { return decodeSnapshot(in, fmt.Sprintf("%s[%q]", where, key), r) })
		}
		return skip(in, key)
	})
}

// decodeSnapshot reads one related EtcdSnapshot. Asked for by name alone, Metacontroller (1.5.20, and 4.17.2) sends those of all namespaces;
// check leaves only those of the parent's.
func decodeSnapshot(in *source, where string, r *request) error {
	var w wire[v1alpha1.EtcdSnapshotSpec, v1alpha1.EtcdSnapshotStatus]
	if err := value(in, where, &w); err != nil {
		return err
	}
	if err := identified(where, &w.TypeMeta, &w.Metadata.ObjectMeta, v1alpha1.GroupVersion.String(), v1alpha1.KindSnapshot); err != nil {
		return err
	}
	r.snapshots = append(r.snapshots, &v1alpha1.EtcdSnapshot{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status})
	return nil
}

// field names a group of children.
func field(group string) string { return fmt.Sprintf("children[%q]", group) }

// group reads the objects of one kind into *all, by metadata.name: the key may carry the namespace.
func group[W any, P interface {
	*W
	header() (*metav1.TypeMeta, *metav1.ObjectMeta)
}, T any](in *source, where, apiVersion, kind string, all *map[string]*T, made func(*W) *T) error {
	*all = map[string]*T{}
	return object(in, where, func(key string) error {
		field := fmt.Sprintf("%s[%q]", where, key)
		w := new(W)
		if err := value(in, field, w); err != nil {
			return err
		}
		t, m := P(w).header()
		return add(*all, field, t, m, apiVersion, kind, func() (*T, error) { return made(w), nil })
	})
}

// add puts an object among those of its kind.
func add[T any](all map[string]*T, field string, t *metav1.TypeMeta, m *metav1.ObjectMeta, apiVersion, kind string, made func() (*T, error)) error {
	if err := identified(field, t, m, apiVersion, kind); err != nil {
		return err
	}
	if _, twice := all[m.Name]; twice {
		return bad("%s.metadata.name is there twice", field)
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
		return bad("%s.apiVersion must be %s", field, apiVersion)
	case t.Kind != kind:
		return bad("%s.kind must be %s", field, kind)
	case m.Name == "":
		return bad("%s.metadata.name is missing", field)
	case m.UID == "":
		return bad("%s.metadata.uid is missing", field)
	}
	return nil
}

// wire is an object with a spec and a status as it comes in, without metadata.managedFields, which are a third of its
// size and of no use here.
type wire[Spec, Status any] struct {
	metav1.TypeMeta
	Metadata wireMeta `json:"metadata"`
	Spec     Spec     `json:"spec"`
	Status   Status   `json:"status"`
}

type wireConfigMap struct {
	metav1.TypeMeta
	Metadata   wireMeta          `json:"metadata"`
	Data       map[string]string `json:"data"`
	BinaryData map[string][]byte `json:"binaryData"`
	Immutable  *bool             `json:"immutable"`
}

type wireMeta struct {
	metav1.ObjectMeta
	ManagedFields skipped `json:"managedFields"`
}

func (w *wire[Spec, Status]) header() (*metav1.TypeMeta, *metav1.ObjectMeta) {
	return &w.TypeMeta, &w.Metadata.ObjectMeta
}

func (w *wireConfigMap) header() (*metav1.TypeMeta, *metav1.ObjectMeta) {
	return &w.TypeMeta, &w.Metadata.ObjectMeta
}

// skipped reads over a value of any kind.
type skipped struct{}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (*skipped) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	_, err := in.ReadValue()
	return err
}

// object reads a JSON object and calls member for each of its keys; member reads the value.
func object(in *source, field string, member func(key string) error) error {
	seen := map[string]bool{}
	return objectOf(in, field, func(key []byte) error {
		if seen[string(key)] {
			return twice(field, string(key))
		}
		name := string(key)
		seen[name] = true
		return member(name)
	})
}

// objectOf is object for keys that are not kept, and may be there twice: their bytes are those of now.
func objectOf(in *source, field string, member func(key []byte) error) error {
	token, err := in.ReadToken()
	if err != nil {
		return unreadable(field, err)
	}
	if token.Kind() != jsontext.KindBeginObject {
		return bad("%s must be an object", field)
	}
	for in.PeekKind() != jsontext.KindEndObject {
		quoted, err := in.ReadValue()
		if err != nil {
			return unreadable(field, err)
		}
		key := []byte(quoted[1 : len(quoted)-1])
		if bytes.IndexByte(key, '\\') >= 0 {
			if key, err = jsontext.AppendUnquote(nil, quoted); err != nil {
				return unreadable(field, err)
			}
		}
		if err := member(key); err != nil {
			return err
		}
	}
	if _, err := in.ReadToken(); err != nil {
		return unreadable(field, err)
	}
	return nil
}

// twice is the error of a key that an object has twice.
func twice(field, key string) error {
	switch {
	case field == "the request":
		return bad("%s is there twice", key)
	case field == "children", strings.HasSuffix(field, `"]`) && strings.Count(field, "[") == 1:
		return bad("%s[%q] is there twice", field, key)
	}
	return bad("%s.%s is there twice", field, key)
}

// value reads one JSON value into v.
func value(in *source, field string, v any) error {
	text, err := in.ReadValue()
	if err != nil {
		return unreadable(field, err)
	}
	if err := in.charge(field, text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return unreadable(field, err)
	}
	return nil
}

// skip reads over one JSON value of any kind.
func skip(in *source, field string) error {
	if _, err := in.ReadValue(); err != nil {
		return unreadable(field, err)
	}
	return nil
}

// unreadable says why a field can't be read, without repeating what is in it.
func unreadable(field string, err error) error {
	if size := (*http.MaxBytesError)(nil); errors.As(err, &size) {
		return &badRequest{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is larger than %d bytes; raise --max-body", size.Limit)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &badRequest{http.StatusRequestTimeout, "the request did not arrive in time"}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return bad("%s can't be read: the request ends in the middle", field)
	}
	if syntax := (*jsontext.SyntacticError)(nil); errors.As(err, &syntax) {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return bad("%s is there twice", within(field, syntax.JSONPointer))
		}
		return bad("%s can't be read: %v", field, syntax.Err)
	}
	if meaning := (*json.SemanticError)(nil); errors.As(err, &meaning) {
		if meaning.Err == nil {
			return bad("%s can't be %s", within(field, meaning.JSONPointer), aKind(meaning.JSONKind))
		}
		return bad("%s can't be read: %v", within(field, meaning.JSONPointer), meaning.Err)
	}
	return bad("%s can't be read: %v", field, err)
}

// within names what is in a field as all sentences do, such as children["Pod.v1"]["orders-0"].spec.containers.0.name.
func within(field string, pointer jsontext.Pointer) string {
	for key := range pointer.Tokens() {
		field += "." + key
	}
	return field
}

// aKind is a kind of JSON value with its article.
func aKind(k jsontext.Kind) string {
	switch k {
	case jsontext.KindBeginObject:
		return "an object"
	case jsontext.KindBeginArray:
		return "an array"
	default:
		return "a " + k.String()
	}
}

// answer is what the hooks answer. Its bytes are equal for equal decisions.
type answer struct {
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
	// DynamicApplyOnly is told for a child without Metacontroller's note. No kind has such a field: the API server refuses it in a
	// server-side apply, with its name in the error, and drops it from the update by which Metacontroller otherwise writes the note
	// (docs/decisions/0029-server-side-apply.md).
	DynamicApplyOnly bool `json:"setApplyStrategyToDynamicApply,omitempty"`
}

// encode writes an answer. It fails when the children can't be what was meant: without a name, twice, or in another
// namespace.
func encode(r *request, d hooks.Desired, status *v1alpha1.EtcdClusterStatus, resync time.Duration, finalized *bool) ([]byte, error) {
	a := answer{Status: status, Children: []answerChild{}, ResyncAfterSeconds: resync.Seconds(), Finalized: finalized}
	c := r.Children
	a.Children = append(a.Children, specs(r.Cluster.Namespace, "v1", "Service", d.Services, c.Services, func(o *corev1.Service) *corev1.ServiceSpec { return &o.Spec })...)
	a.Children = append(a.Children, specs(r.Cluster.Namespace, "policy/v1", "PodDisruptionBudget", d.Budgets, c.Budgets, func(o *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudgetSpec { return &o.Spec })...)
	a.Children = append(a.Children, specs(r.Cluster.Namespace, "networking.k8s.io/v1", "NetworkPolicy", d.Policies, c.Policies, func(o *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicySpec { return &o.Spec })...)
	for _, o := range d.Secrets {
		secret, err := r.secret(o)
		if err != nil {
			return nil, err
		}
		a.Children = append(a.Children, secret)
	}
	for _, o := range d.Certificates { // whole: whoever adds fields that we don't set keeps them
		a.Children = append(a.Children, asking(child(r.Cluster.Namespace, "cert-manager.io/v1", "Certificate", &o.ObjectMeta, answerChild{Spec: &o.Spec}), c.Certificates[o.Name]))
	}
	for _, o := range d.ConfigMaps {
		a.Children = append(a.Children, asking(child(r.Cluster.Namespace, "v1", "ConfigMap", &o.ObjectMeta, answerChild{Data: o.Data, Immutable: o.Immutable}), c.ConfigMaps[o.Name]))
	}
	a.Children = append(a.Children, specs(r.Cluster.Namespace, "v1", "PersistentVolumeClaim", d.Claims, c.Claims, func(o *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec { return &o.Spec })...)
	a.Children = append(a.Children, specs(r.Cluster.Namespace, "v1", "Pod", d.Pods, c.Pods, func(o *corev1.Pod) *corev1.PodSpec { return &o.Spec })...)
	if err := distinct(r.Cluster.Namespace, a.Children); err != nil {
		return nil, err
	}
	return json.Marshal(a, jsonv1.DefaultOptionsV1()) // the bytes of encoding/json: omitempty as it means it, maps in order
}

// child is an object in an answer, with its content.
func child(namespace, apiVersion, kind string, m *metav1.ObjectMeta, content answerChild) answerChild {
	content.APIVersion, content.Kind = apiVersion, kind
	content.Metadata = answerMeta{Name: m.Name, Namespace: cmp.Or(m.Namespace, namespace), Labels: m.Labels, Annotations: m.Annotations, OwnerReferences: m.OwnerReferences}
	return content
}

// specs are the objects of one kind that have a spec; those that are kept, with what was answered of it before (keptSpec).
func specs[Spec any, O interface {
	comparable
	metav1.Object
}](namespace, apiVersion, kind string, decided []O, observed map[string]O, of func(O) *Spec) []answerChild {
	var list []answerChild
	for _, o := range decided {
		spec := of(o)
		if old := observed[o.GetName()]; kept(o, old) {
			spec = keptSpec(old.GetAnnotations()[lastApplied], spec)
		}
		m := metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace(), Labels: o.GetLabels(), Annotations: o.GetAnnotations()}
		if claim, is := any(o).(*corev1.PersistentVolumeClaim); is {
			m.OwnerReferences = hooks.ToldOwners(claim)
		}
		list = append(list, asking(child(namespace, apiVersion, kind, &m, answerChild{Spec: spec}), observed[o.GetName()]))
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
			return fmt.Errorf("the decision has %s %s in namespace %q, the parent is in %q", k.kind, k.name, c.Metadata.Namespace, namespace)
		case seen[k]:
			return fmt.Errorf("the decision has %s %s twice", k.kind, k.name)
		}
		seen[k] = true
	}
	return nil
}
