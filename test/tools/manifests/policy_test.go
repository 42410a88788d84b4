package manifests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// expression is one of a policy, and what it must be.
type expression struct {
	text string
	is   *cel.Type
}

func (e expression) GetExpression() string    { return e.text }
func (e expression) ReturnTypes() []*cel.Type { return []*cel.Type{e.is} }

// deletion is what a policy says when an object is deleted: empty when it may be, or the words of the refusal.
func deletion(t *testing.T, policy, object, options string) string {
	t.Helper()
	return judged(t, render(t, "base")["ValidatingAdmissionPolicy/"+policy], admission.Delete, object, "", options)
}

// judged is what a policy says to a request about an object: the object before and after; empty where there is none.
func judged(t *testing.T, policy []byte, operation admission.Operation, before, after, options string) string {
	t.Helper()
	spec := native(t, policy).(*admissionv1.ValidatingAdmissionPolicy).Spec
	var old, object runtime.Object
	var about *unstructured.Unstructured
	if before != "" {
		about = &unstructured.Unstructured{Object: parse(t, before)}
		old = about
	}
	if after != "" {
		about = &unstructured.Unstructured{Object: parse(t, after)}
		object = about
	}
	kind := about.GroupVersionKind()
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(object, old, kind, about.GetNamespace(), about.GetName(),
			schema.GroupVersionResource{Group: kind.Group, Version: kind.Version}, "", operation, nil, false, nil),
		VersionedKind: kind,
	}
	if old != nil {
		attributes.VersionedOldObject.Set(old)
	}
	if object != nil {
		attributes.VersionedObject.Set(object)
	}
	request := plugin.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource{},
		metav1.GroupVersionKind(kind))
	raw, err := json.Marshal(parse(t, options))
	must(t, err)
	request.Options = runtime.RawExtension{Raw: raw}
	// the first that has policies without being told to
	compiler := plugin.NewConditionCompiler(environment.MustBaseEnvSet(utilversion.MustParse("1.30")))
	evaluate := func(text string, is *cel.Type) any {
		results, _, err := compiler.CompileCondition([]plugin.ExpressionAccessor{expression{text, is}},
			plugin.OptionalVariableDeclarations{}, environment.NewExpressions).
			ForInput(t.Context(), attributes, request, plugin.OptionalVariableBindings{}, nil,
				celconfig.RuntimeCELCostBudget)
		if err != nil || results[0].Error != nil {
			t.Fatal(err, results[0].Error)
		}
		return results[0].EvalResult.Value()
	}
	for _, v := range spec.Validations {
		if evaluate(v.Expression, cel.BoolType) != true {
			if v.MessageExpression == "" {
				return v.Message
			}
			return fmt.Sprint(evaluate(v.MessageExpression, cel.StringType))
		}
	}
	return ""
}

// TestPolicies: what is protected is refused in words that say what to do, and nothing else is.
func TestPolicies(t *testing.T) {
	const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
	ours := func(annotations string) string {
		return crd + "metadata: {name: etcdclusters.etcd.quorate.dev" + annotations +
			"}\nspec: {group: etcd.quorate.dev}\n"
	}
	const refused = "deleting the kind etcdclusters.etcd.quorate.dev would delete all its objects, in all " +
		"namespaces, and with EtcdClusters their members and their data; " +
		"if that is what you want: kubectl annotate crd etcdclusters.etcd.quorate.dev " +
		"etcd.quorate.dev/allow-deletion=true"
	cluster := func(spec string) string {
		return "apiVersion: etcd.quorate.dev/v1beta1\nkind: EtcdCluster\nmetadata: {name: orders, namespace: " +
			"shop}\nspec: {" + spec + "}\n"
	}
	schedule := func(spec string) string {
		return "apiVersion: etcd.quorate.dev/v1beta1\nkind: EtcdSnapshotSchedule\nmetadata: {name: nightly, " +
			"namespace: shop}\nspec: {" + spec + "}\n"
	}
	for _, c := range []struct{ policy, object, options, want string }{
		{"quorate-kind-protection", ours(""), "{}", refused},
		{"quorate-kind-protection", ours(", annotations: {a: b}"), "{}", refused},
		{"quorate-kind-protection", ours(`, annotations: {etcd.quorate.dev/allow-deletion: "false"}`), "{}", refused},
		{"quorate-kind-protection", ours(`, annotations: {etcd.quorate.dev/allow-deletion: "true"}`), "{}", ""},
		{"quorate-kind-protection", crd + "metadata: {name: others.example.com}\nspec: {group: example.com}\n", "{}",
			""},
		{"quorate-deletion-protection", cluster("deletionProtection: true"), "{}",
			"EtcdCluster shop/orders is protected against deletion; set spec.deletionProtection to false first"},
		{"quorate-deletion-protection", cluster("deletionProtection: false"), "{}", ""},
		{"quorate-deletion-protection", cluster(""), "{}", ""},
		{"quorate-retention", schedule(""), "{}", ""},
		{"quorate-retention", schedule("deletionPolicy: Delete"), "{propagationPolicy: Foreground}", ""},
		{"quorate-retention", schedule("deletionPolicy: Retain"), "{propagationPolicy: Foreground}",
			"deleting EtcdSnapshotSchedule shop/nightly in the foreground would delete what spec.deletionPolicy Retain " +
				"leaves; delete it without --cascade=foreground, or set spec.deletionPolicy to Delete first"},
		{"quorate-retention", cluster("deletionPolicy: Delete"), "{propagationPolicy: Foreground}", ""},
		{"quorate-retention", cluster(""), "{propagationPolicy: Background}", ""},
		{"quorate-retention", cluster(""), "{propagationPolicy: Foreground}",
			"deleting EtcdCluster shop/orders in the foreground would delete what spec.deletionPolicy Retain " +
				"leaves; delete it without --cascade=foreground, or set spec.deletionPolicy to Delete first"},
	} {
		if got := deletion(t, c.policy, c.object, c.options); got != c.want {
			t.Errorf("%s of\n%s%s: %q, not %q", c.policy, c.object, c.options, got, c.want)
		}
	}
}

func ordersWith(spec string) string {
	return "apiVersion: etcd.quorate.dev/v1beta1\nkind: EtcdCluster\nmetadata: {name: orders, namespace: " +
		"shop}\nspec: {version: 3.6.16" + spec + "}\n"
}

func joining(endpoints ...string) string {
	return ordersWith(`, bootstrap: {external: {endpoints: ["` + strings.Join(endpoints, `", "`) + `"]}}`)
}

// TestPolicyForAllowedEtcdEndpoints: the policy refuses what the server would not ask, by the same list, and what an
// object has already stays.
func TestPolicyForAllowedEtcdEndpoints(t *testing.T) {
	const policy = "ValidatingAdmissionPolicy/quorate-allowed-etcd-endpoints"
	if base := render(t, "base")[policy]; judged(t, base, admission.Create, "", joining("https://10.1.2.3:2379"),
		"{}") == "" {
		t.Error("manifests/base lets an etcd be joined")
	} else if why := judged(t, base, admission.Create, "", ordersWith(""), "{}"); why != "" {
		t.Error(why)
	}
	raw := fileOf(t, "../../../hooks/objects/testdata/endpoints.json")
	var cases []struct{ Allowed, Host, Refused string }
	must(t, json.Unmarshal(raw, &cases))
	policies := map[string][]byte{}
	for _, c := range cases {
		if policies[c.Allowed] == nil {
			policies[c.Allowed] = install(t, "--allowed-etcd-endpoints="+c.Allowed)[policy]
		}
		text, url := policies[c.Allowed], "https://"+c.Host+":2379"
		said := judged(t, text, admission.Create, "", joining(url), "{}")
		// to Kubernetes' functions
		unknown := strings.HasPrefix(c.Host, "[::ffff:") || strings.HasPrefix(c.Host, "[64:") ||
			strings.HasPrefix(c.Host, "0.1.") || strings.HasSuffix(c.Host, ".")
		if (c.Refused == "") != (said == "") && !unknown {
			t.Errorf("the server says %+v, the policy %q", c, said)
		}
		if said := judged(t, text, admission.Update, joining(url), joining(url), "{}"); said != "" {
			t.Errorf("%+v was there already: %s", c, said)
		}
		if got := judged(t, text, admission.Update, joining("https://10.9.9.9:2379"),
			joining("https://10.9.9.9:2379", url), "{}"); got != said {
			t.Errorf("%+v, added: %q", c, got)
		}
	}
}

// TestPolicyForSharedIssuers: an issuer that others can use is refused, unless the object has it already.
func TestPolicyForSharedIssuers(t *testing.T) {
	policy := render(t, "base")["ValidatingAdmissionPolicy/quorate-shared-issuers"]
	from := func(ref string) string {
		return ordersWith(fmt.Sprintf(", tls: {mode: CertManager, certManager: {issuerRef: {name: ours%s}}}", ref))
	}
	for ref, refused := range map[string]bool{
		"": false, ", kind: Issuer": false, ", kind: Issuer, group: cert-manager.io": false,
		", kind: '', group: ''": false,
		", kind: ClusterIssuer": true, ", kind: ClusterIssuer, group: cert-manager.io": true,
		", kind: Issuer, group: example.com": true, ", kind: VaultIssuer, group: example.com": true,
	} {
		said := judged(t, policy, admission.Create, "", from(ref), "{}")
		if refused != strings.Contains(said, "other namespaces can have certificates of this issuer too") {
			t.Errorf("%q: %q", ref, said)
		}
		if said := judged(t, policy, admission.Update, from(ref), from(ref), "{}"); said != "" {
			t.Errorf("%q was there already: %s", ref, said)
		}
		if got := judged(t, policy, admission.Update, from(""), from(ref), "{}"); got != said {
			t.Errorf("%q, added: %q", ref, got)
		}
	}
	for _, spec := range []string{"", ", tls: {mode: Auto}"} {
		if said := judged(t, policy, admission.Create, "", ordersWith(spec), "{}"); said != "" {
			t.Error(spec, said)
		}
	}
}
