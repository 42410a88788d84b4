package manifests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

func ordersWith(spec string) string {
	return "apiVersion: etcd.quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: orders, namespace: " +
		"shop}\nspec: {version: 3.6.16" + spec + "}\n"
}

func joining(endpoints ...string) string {
	return ordersWith(`, bootstrap: {existing: {endpoints: ["` + strings.Join(endpoints, `", "`) + `"]}}`)
}

// TestPolicyForExistingEndpoints: the policy refuses what the server would not ask, by the same list, and what an
// object has already stays.
func TestPolicyForExistingEndpoints(t *testing.T) {
	const policy = "ValidatingAdmissionPolicy/quorate-existing-endpoints"
	if base := render(t, "base")[policy]; judged(t, base, admission.Create, "", joining("https://10.1.2.3:2379"),
		"{}") == "" {
		t.Error("manifests/base lets an etcd be joined")
	} else if why := judged(t, base, admission.Create, "", ordersWith(""), "{}"); why != "" {
		t.Error(why)
	}
	raw := fileOf(t, "../../../hooks/cluster/testdata/endpoints.json")
	var cases []struct{ Allowed, Host, Refused string }
	must(t, json.Unmarshal(raw, &cases))
	policies := map[string][]byte{}
	for _, c := range cases {
		if policies[c.Allowed] == nil {
			policies[c.Allowed] = install(t, "--existing-endpoints="+c.Allowed)[policy]
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
