package install

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// may are the rights of a role in words, as in "create pods".
func may(t *testing.T, document string) []string {
	t.Helper()
	var role rbacv1.Role // a ClusterRole reads the same
	require.NoError(t, yaml.UnmarshalStrict([]byte(document), &role))
	var all []string
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, verb+" "+resource)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestOnlyNamespaces: Metacontroller may read everywhere, write in the namespaces alone, and in them no less than
// elsewhere without this.
func TestOnlyNamespaces(t *testing.T) {
	whole := installed(t, existing)
	objects := installed(t, existing, "--namespaces=shop,billing,shop")
	everywhere := may(t, objects["ClusterRole/quorate-metacontroller"])
	for _, right := range everywhere {
		require.Regexp(t, "^(get|list|watch) ", right)
	}
	there := append(may(t, objects["Role/quorate-metacontroller in shop"]), everywhere...)
	slices.Sort(there)
	require.Equal(t, may(t, whole["ClusterRole/quorate-metacontroller"]), there)
	for _, namespace := range []string{"shop", "billing"} {
		require.Contains(t, objects["RoleBinding/quorate-metacontroller in "+namespace],
			"name: metacontroller\n  namespace: metacontroller")
		require.Equal(t, may(t, objects["Role/quorate-metacontroller in shop"]),
			may(t, objects["Role/quorate-metacontroller in "+namespace]))
	}
	policy := objects["ValidatingAdmissionPolicy/quorate-namespaces"]
	require.Contains(t, policy, "request.namespace in ['billing', 'shop']")
	require.Contains(t, objects["ValidatingAdmissionPolicyBinding/quorate-namespaces"],
		"policyName: quorate-namespaces")
	require.Contains(t, objects["Deployment/quorate"],
		"- name: QUORATE_NAMESPACES\n          value: billing,shop\n")
	require.Len(t, objects, len(whole)+2*2+2)
	for _, bad := range []string{"a,,b", "A", "a, b", "kube_system"} {
		refuses(t, "must be names of namespaces", "--namespaces="+bad)
	}
}

// TestSideBySide: two installations have no object in common but the kinds, and each asks for its own parents alone.
func TestSideBySide(t *testing.T) {
	blue := installed(t, "--name=blue", "--selector=quorate.dev/by=blue", "--namespaces=shop")
	rest := installed(t, "--selector=!quorate.dev/by", "--namespaces=shop")
	for name, document := range blue {
		kind, _, _ := strings.Cut(name, "/")
		if kind == "CustomResourceDefinition" {
			require.Equal(t, rest[name], document)
			continue
		}
		var o struct {
			Metadata struct{ Name, Namespace string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &o))
		if o.Metadata.Namespace == "quorate-blue" || name == "Namespace/quorate-blue" {
			continue
		}
		require.True(t, strings.HasSuffix(o.Metadata.Name, "-blue"), name)
		require.NotContains(t, rest, name)
	}
	for name, document := range blue {
		if strings.HasPrefix(name, "CompositeController/") {
			require.Contains(t, document, "labelSelector:\n      matchLabels:\n        quorate.dev/by: blue\n")
			require.Contains(t, document, "https://quorate.quorate-blue.svc/")
			require.Contains(t, rest[strings.TrimSuffix(name, "-blue")],
				"key: quorate.dev/by\n        operator: DoesNotExist\n")
		}
	}
	require.Contains(t, blue["Deployment/quorate"], "- name: QUORATE_SELECTOR\n          value: quorate.dev/by=blue\n")
	require.Contains(t, blue["ClusterRoleBinding/quorate-metacontroller-blue"],
		"kind: ClusterRole\n  name: quorate-metacontroller-blue\n")
	require.Contains(t, blue["RoleBinding/quorate-metacontroller-blue in shop"],
		"kind: Role\n  name: quorate-metacontroller-blue\n")
	require.Contains(t, blue["ValidatingAdmissionPolicyBinding/quorate-namespaces-blue"],
		"policyName: quorate-namespaces-blue")
	require.Contains(t, blue["ValidatingAdmissionPolicy/quorate-namespaces-blue"],
		"objectSelector:\n      matchLabels:\n        quorate.dev/by: blue\n")
	elsewhere := installed(t, "--name=blue", "--selector=a=b", "--namespace=etcd-ops")
	require.Contains(t, elsewhere, "Namespace/etcd-ops")

	for args, says := range map[string]string{
		"--name=blue":                "--name needs --selector",
		"--name=Blue --selector=a=b": "lower-case",
		"--selector=a==b=c":          "--selector: ",
		"--selector=a=b --metacontroller-version=1.5.20": "older ones may not know spec.parentResource.labelSelector",
		"--selector=a=b --metacontroller-version=4.15":   "needs --metacontroller-version=4.16",
	} {
		refuses(t, says, strings.Fields(args)...)
	}
}
