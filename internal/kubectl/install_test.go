package kubectl

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	both = []Kind{{"etcdclusters.etcd.quorate.dev", []byte("---\nours\n"), false},
		{"compositecontrollers.metacontroller.k8s.io", []byte("---\nits\n"), true}}
	here = Place{Namespace: "quorate-system", Metacontroller: "quorate-system", Own: true}
)

// installing is an installer for a Kubernetes that says this.
func installing(t *testing.T, at Place, edit func(k *kube)) (*kube, *Installer) {
	t.Helper()
	k := &kube{t: t, says: map[string]string{"apply": "namespace/quorate-system serverside-applied\n", "wait": "",
		"rollout": ""}, fails: map[string]string{}}
	edit(k)
	return k, k.waiting(func() {}).Installer(at, nil)
}

// TestInstall: kinds first, and all of them are established before anything else is applied; the pods are waited for.
func TestInstall(t *testing.T) {
	k, i := installing(t, here, func(*kube) {})
	require.NoError(t, i.Kinds(t.Context(), both))
	require.NoError(t, i.Rest(t.Context(), []byte("rest")))
	assert.Equal(t, []string{"---\nours\n---\nits\n", "rest"}, k.applied)
	assert.Equal(t, []string{
		"get customresourcedefinitions compositecontrollers.metacontroller.k8s.io --ignore-not-found -o json",
		"apply",
		"wait --for=condition=Established --timeout=1m0s crd/etcdclusters.etcd.quorate.dev " +
			"crd/compositecontrollers.metacontroller.k8s.io",
		"apply",
		"rollout status deployment/quorate -n quorate-system --timeout=5m0s",
		"rollout status deployment/metacontroller -n quorate-system --timeout=5m0s",
	}, k.calls)
	assert.Contains(t, k.out.String(), "  namespace/quorate-system serverside-applied\n")
}

// TestInstallBesideOthers: kinds that others brought stay as they are, and are waited for all the same.
func TestInstallBesideOthers(t *testing.T) {
	for labels, applied := range map[string]string{
		`{}`: "---\nours\n",
		`{"app.kubernetes.io/part-of":"quorate"}`: "---\nours\n---\nits\n",
	} {
		k, i := installing(t, here, func(k *kube) {
			k.says["get customresourcedefinitions"] = `{"kind":"CustomResourceDefinition","metadata":{"name":"compositecontrollers.metacontroller.k8s.io","labels":` + labels + `},"spec":{"caBundle":{}}}`
		})
		require.NoError(t, i.Kinds(t.Context(), both))
		assert.Equal(t, []string{applied}, k.applied)
		assert.Contains(t, k.calls[2], "crd/compositecontrollers.metacontroller.k8s.io")
		assert.Equal(t, labels == "{}", strings.Contains(k.out.String(), "stays as it is"))
	}
}

// TestInstallOverOthers: an installation that has its own Metacontroller is not cut off from it by a flag that was
// left out, and what helm has installed is helm's.
func TestInstallOverOthers(t *testing.T) {
	elsewhere := Place{Namespace: "quorate-system", Metacontroller: "metacontroller"}
	deployments := func(meta string) func(k *kube) {
		return func(k *kube) {
			k.says["get deployments"] = `{"items":[` + meta + `]}`
			k.says["get secret quorate-hooks"] = "kind: Secret\n"
		}
	}
	const own = `{"metadata":{"name":"quorate"}},{"metadata":{"name":"metacontroller"}}`
	_, i := installing(t, elsewhere, deployments(own))
	_, err := i.Kept(t.Context(), "quorate-hooks")
	require.ErrorContains(t, err, "leave out --metacontroller-namespace=metacontroller")
	require.ErrorContains(t, err, "kubectl -n quorate-system delete deployment metacontroller")

	_, i = installing(t, here,
		deployments(`{"metadata":{"name":"quorate","labels":{"app.kubernetes.io/managed-by":"Helm"},"annotations":{"meta.helm.sh/release-name":"q"}}}`))
	_, err = i.Kept(t.Context(), "quorate-hooks")
	require.ErrorContains(t, err, "belongs to the helm release q: upgrade that with helm")

	_, i = installing(t, here, deployments(own))
	kept, err := i.Kept(t.Context(), "quorate-hooks")
	require.NoError(t, err)
	assert.Equal(t, "kind: Secret\n", string(kept))

	k, i := installing(t, elsewhere, deployments(`{"metadata":{"name":"quorate"}}`))
	_, err = i.Kept(t.Context(), "quorate-hooks")
	require.NoError(t, err)
	require.NoError(t, i.Rest(t.Context(), nil))
	assert.NotContains(t, strings.Join(k.calls, "\n"), "deployment/metacontroller",
		"another's Metacontroller is not waited for")
}

// TestInstallTroubles: a kind that is not served yet is tried again, everything else is said at once, with what to do.
func TestInstallTroubles(t *testing.T) {
	k, i := installing(t, here, func(k *kube) {
		k.fails["apply"] = `no matches for kind "CompositeController" in version "metacontroller.k8s.io/v1alpha1"`
	})
	waits := 0
	i.pause = func(context.Context, time.Duration) {
		if waits++; waits == 3 {
			delete(k.fails, "apply")
		}
	}
	require.NoError(t, i.Rest(t.Context(), []byte("rest")))
	assert.Len(t, k.applied, 4)

	k, i = installing(t, here, func(k *kube) { k.fails["apply"] = "Error from server (Forbidden): no" })
	require.ErrorContains(t, i.Kinds(t.Context(), both), "ask your Kubernetes administrator")
	assert.Len(t, k.applied, 1)

	_, i = installing(t, here, func(k *kube) {
		k.fails["rollout status deployment/metacontroller"] = "error: timed out waiting for the condition"
	})
	require.ErrorContains(t, i.Rest(t.Context(), nil), "`kubectl -n quorate-system describe pods` shows why; all has "+
		"been applied")
}

// TestInstallAlone: before anything is changed, another Quorate's CompositeControllers and a Metacontroller that
// would serve all of them are noticed.
func TestInstallAlone(t *testing.T) {
	const metacontrollers = "get statefulsets,deployments -A"
	names := []string{"quorate-etcdcluster"}
	workload := func(kind, namespace, more string) string {
		return `{"kind":"` + kind + `","metadata":{"name":"metacontroller","namespace":"` + namespace +
			`"},"spec":{"replicas":1,` + more +
			`"template":{"spec":{"containers":[{"image":"metacontroller","args":["ARGS"]}]}}}}`
	}
	for what, c := range map[string]struct{ controllers, workloads, refused string }{
		"nothing there":      {"", `{"items":[]}`, ""},
		"ours":               {`{"metadata":{"name":"quorate-etcdcluster","labels":{"quorate.dev/installation":"quorate-system"}}}`, `{"items":[` + workload("Deployment", "quorate-system", "") + `]}`, ""},
		"another Quorate":    {`{"metadata":{"name":"quorate-etcdcluster","labels":{"quorate.dev/installation":"etcd-ops"}}}`, `{"items":[]}`, "say --namespace=etcd-ops"},
		"another of several": {`{"items":[{"metadata":{"name":"quorate-etcdcluster","labels":{"quorate.dev/installation":"etcd-ops"}}}]}`, `{"items":[]}`, "say --namespace=etcd-ops"},
		"a Metacontroller": {"", `{"items":[` + workload("StatefulSet", "mc", "") + `]}`,
			"add --metacontroller-namespace=mc to use it"},
		"one that is stopped": {"", `{"items":[` + strings.Replace(workload("StatefulSet", "mc", ""), `"replicas":1`,
			`"replicas":0`, 1) + `]}`, ""},
		"one for others": {"", `{"items":[` + strings.Replace(workload("StatefulSet", "mc", ""), "ARGS",
			"--target-label-selector=a=b", 1) + `]}`, ""},
		"one for all of Quorate": {"", `{"items":[` + strings.Replace(workload("Deployment", "mc", ""), "ARGS",
			"--target-label-selector=app.kubernetes.io/part-of=quorate", 1) + `]}`,
			"would call Quorate, beside the one that is installed with it: Deployment mc/metacontroller"},
	} {
		t.Run(what, func(t *testing.T) {
			_, i := installing(t, here, func(k *kube) {
				k.says["get compositecontrollers"], k.says[metacontrollers] = c.controllers, c.workloads
			})
			if err := i.Alone(t.Context(), names); c.refused != "" {
				require.ErrorContains(t, err, c.refused)
			} else {
				require.NoError(t, err)
			}
		})
	}
	_, i := installing(t, here, func(k *kube) {
		k.fails["get compositecontrollers"] = `error: the server doesn't have a resource type "compositecontrollers"`
		k.says[metacontrollers] = `{"items":[]}`
	})
	require.NoError(t, i.Alone(t.Context(), names), "before the kind is there")
	_, i = installing(t, Place{Namespace: "quorate-system", Metacontroller: "mc"},
		func(k *kube) { k.says["get compositecontrollers"] = "" })
	require.NoError(t, i.Alone(t.Context(), names), "the one that is there is the one that is meant")
}

// TestInstallOverOldKinds: kinds of a Metacontroller that knows no caBundle would be told what they drop.
func TestInstallOverOldKinds(t *testing.T) {
	old := `{"metadata":{"name":"compositecontrollers.metacontroller.k8s.io"},"spec":{"versions":[{"schema":{"properties":{"url":{}}}}]}}`
	k, i := installing(t, here, func(k *kube) { k.says["get customresourcedefinitions"] = old })
	require.ErrorContains(t, i.Kinds(t.Context(), both), "replace them first")
	require.Empty(t, k.applied)
	_, i = installing(t, Place{Namespace: "quorate-system", Metacontroller: "mc"},
		func(k *kube) { k.says["get customresourcedefinitions"] = old })
	require.NoError(t, i.Kinds(t.Context(), both), "they are those of the one that is there")
}

// TestInstallOutgrown: rights in namespaces that are no longer meant go, and the policy goes with the list.
func TestInstallOutgrown(t *testing.T) {
	there := func(k *kube) {
		k.says["get roles,rolebindings"] = `{"items":[{"metadata":{"name":"r","namespace":"shop"}},{"metadata":{"name":"r","namespace":"billing"}},{"metadata":{"name":"r","namespace":"billing"}}]}`
		k.says["delete"] = ""
	}
	k, i := installing(t, here, there)
	require.NoError(t, i.Outgrown(t.Context(), "r", "p", []string{"shop"}))
	assert.Equal(t, []string{"delete rolebindings,roles r --ignore-not-found -n billing"}, k.calls[1:])
	k, i = installing(t, here, there)
	require.NoError(t, i.Outgrown(t.Context(), "r", "p", nil))
	assert.Equal(t, []string{
		"delete rolebindings,roles r --ignore-not-found -n shop",
		"delete rolebindings,roles r --ignore-not-found -n billing",
		"delete validatingadmissionpolicybindings,validatingadmissionpolicies p --ignore-not-found",
	}, k.calls[1:])
}
