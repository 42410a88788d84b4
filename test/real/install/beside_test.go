//go:build e2e

package install

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

// at walks to an object within an object.
func at(o any, path ...string) object {
	for _, name := range path {
		o = o.(object)[name]
	}
	return o.(object)
}

// forOld makes what quorate install prints for Metacontroller 4.16 and later fit the 1.5.20 of the lab, which has no
// selector for parents, and no CA and token for single webhooks: the hooks are plain HTTP, and Metacontroller asks
// every Quorate about everything. What each then refuses is the same.
func forOld(t *testing.T, text string) string {
	t.Helper()
	if !isOld {
		return text
	}
	var all []string
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o object
		require.NoError(t, yaml.Unmarshal([]byte(document), &o))
		switch o["kind"] {
		case "CompositeController":
			delete(at(o, "spec", "parentResource"), "labelSelector")
			for _, hook := range at(o, "spec", "hooks") {
				webhook := at(hook, "webhook")
				delete(webhook, "caBundle")
				delete(webhook, "authorization")
				webhook["url"] = strings.Replace(webhook["url"].(string), "https:", "http:", 1)
			}
		case "Service":
			at(o, "spec")["ports"].([]any)[0].(object)["port"] = 80
		case "Deployment":
			container := at(o, "spec", "template", "spec")["containers"].([]any)[0].(object)
			var env []any
			for _, e := range container["env"].([]any) {
				if name := at(e)["name"].(string); !strings.HasPrefix(name, "QUORATE_TLS_") && !slices.Contains(
					[]string{"QUORATE_TOKEN_FILE", "QUORATE_RECORD_KEYS", "QUORATE_METACONTROLLER_VERSION"}, name) {
					env = append(env, e)
				}
			}
			container["env"] = env
			at(o, "spec")["replicas"] = 1
		case nil:
			continue
		}
		out, err := yaml.Marshal(o)
		require.NoError(t, err)
		all = append(all, string(out))
	}
	return strings.Join(all, "---\n")
}

// TestSideBySide: two Quorates share a Kubernetes, each looks after the clusters with its labels, also under a
// Metacontroller that asks both about all. While one is away, the other's clusters are looked after as ever. A
// cluster changes hands by its label.
func TestSideBySide(t *testing.T) {
	removesQuorate(t, "quorate-red", "quorate-blue", "both")
	first := forOld(t, printed(t, existing, "--namespace=quorate-red", "--selector=!quorate.dev/by"))
	second := forOld(t, printed(t, existing, "--name=blue", "--selector=quorate.dev/by=blue"))
	apply(t, first)
	apply(t, second)
	for _, namespace := range []string{"quorate-red", "quorate-blue"} {
		kube(t, "-n", namespace, "rollout", "status", "deployment/quorate", patient)
	}
	kube(t, "create", "namespace", "both")
	apply(t, inMemory("both", "plain"))
	apply(t, inMemory("both", "blue", "quorate.dev/by: blue"))
	converges(t, "both", "plain", "1/1")
	converges(t, "both", "blue", "1/1")

	kube(t, "-n", "quorate-red", "scale", "deployment/quorate", "--replicas=0")
	becomes(t, "", "-n", "quorate-red", "get", "pods", "-o", "name")
	scale := func(name, replicas string) {
		kube(t, "-n", "both", "patch", "etcdcluster", name, "--type=merge", "-p", `{"spec":{"replicas":`+replicas+`}}`)
	}
	scale("plain", "3")
	scale("blue", "3")
	converges(t, "both", "blue", "3/3")
	require.Len(t, strings.Split(members(t, "both", "plain"), "\n"), 1, "no other Quorate looks after it")

	kube(t, "-n", "both", "label", "etcdcluster", "plain", "quorate.dev/by=blue")
	converges(t, "both", "plain", "3/3")
	kube(t, "-n", "quorate-red", "scale", "deployment/quorate", "--replicas=1")
	kube(t, "-n", "quorate-red", "rollout", "status", "deployment/quorate", patient)
	// each has finalizers of both under a Metacontroller that asks both
	for _, name := range []string{"plain", "blue"} {
		kube(t, "-n", "both", "delete", "etcdcluster", name, patient)
	}
}
