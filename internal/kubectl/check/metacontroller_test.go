package check

import (
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/manifests"
)

// ruleForCertificates makes the CompositeController one with cert-manager, with the rights for it.
func (w *installation) ruleForCertificates() {
	spec := within(w.controller(), "spec")
	spec["childResources"] = append(spec["childResources"].([]any), map[string]any{"apiVersion": "cert-manager.io/v1",
		"resource": "certificates", "updateStrategy": map[string]any{"method": "InPlace"}})
	role := w.object(rights, "ClusterRole", "quorate-metacontroller")
	role["rules"] = append(role["rules"].([]any), map[string]any{"apiGroups": []any{"cert-manager.io"},
		"resources": []any{"certificates"}, "verbs": []any{"*"}})
}

// arguments of Metacontroller.
func arguments(args ...any) func(w *installation) {
	return func(w *installation) { container(w.runs())["args"] = args }
}

func image(name string) func(w *installation) {
	return func(w *installation) { container(w.runs())["image"] = name }
}

func TestMetacontroller(t *testing.T) {
	about := []string{"OneMetacontroller", "MetacontrollerVersion", "MetacontrollerFlags", "MetacontrollerRights",
		"NetworkPolicy", "Trust"}
	test(t, []broken{
		{"no kinds of Metacontroller", func(w *installation) {
			w.lose(kinds, "CustomResourceDefinition", "compositecontrollers.metacontroller.k8s.io")
			w.refused[controllers] = Answer{Err: `error: the server doesn't have a resource type "compositecontrollers"`, NoKind: true}
		}, "Installed", Fail, "there is no compositecontrollers",
			"kubectl apply --server-side -f manifests/crds/metacontroller.yaml",
			[]string{"OneQuorate", "Service", "Certificate", "Trust", "Token", "Asked", "CertManager"}},
		{"none", func(w *installation) {
			w.lose(metacontroller, "StatefulSet", "metacontroller")
			w.lose(workloads, "StatefulSet", "metacontroller")
		}, "Metacontroller", Fail, "no Metacontroller in namespace metacontroller",
			"quorate install --apply", about},
		{"elsewhere", func(w *installation) {
			w.lose(metacontroller, "StatefulSet", "metacontroller")
			set(w.object(workloads, "StatefulSet", "metacontroller"), "mc", "metadata", "namespace")
		}, "Metacontroller", Fail, "there is StatefulSet mc/metacontroller", "--metacontroller-namespace=mc",
			slices.DeleteFunc(slices.Clone(about), func(n string) bool { return n == "OneMetacontroller" })},
		{"not ready", func(w *installation) { set(w.runs(), 0, "status", "readyReplicas") }, "Metacontroller", Fail,
			"0 of 1 ready", "kubectl -n metacontroller describe pods", nil},
		{"two replicas", func(w *installation) {
			for _, o := range []map[string]any{w.runs(), w.object(workloads, "StatefulSet", "metacontroller")} {
				set(o, 2, "spec", "replicas")
			}
			set(w.runs(), 2, "status", "readyReplicas")
		}, "OneMetacontroller", Fail, "has 2 replicas and no --leader-election",
			"scale statefulset/metacontroller --replicas=1", nil},
		{"two of them", func(w *installation) {
			other := w.add(workloads, w.object(workloads, "StatefulSet", "metacontroller"))
			set(other, "tools", "metadata", "namespace")
		}, "OneMetacontroller", Fail, "several serve Quorate's CompositeControllers, and undo each other's work: " +
			"StatefulSet metacontroller/metacontroller, StatefulSet tools/metacontroller", "remove all but one", nil},
		{"two in one namespace", func(w *installation) {
			other := w.add(metacontroller, w.runs())
			set(other, "second", "metadata", "name")
			within(other, "metadata")["labels"] = map[string]any{}
		}, "OneMetacontroller", Fail, "StatefulSet metacontroller/metacontroller, StatefulSet metacontroller/second",
			"--target-label-selector=!quorate.dev/installation", nil},
		{"too old", image("metacontroller/metacontroller:v0.4.0"), "MetacontrollerVersion", Fail,
			"0.4.0 is older than 1.5", "upgrade Metacontroller", nil},
		{"another 1.5", image("metacontrollerio/metacontroller:v1.5.2"), "MetacontrollerVersion", Warn,
			"was never tried", "4.16", nil},
		{"one that can't send a token", image("metacontrollerio/metacontroller:v4.11.6"), "MetacontrollerVersion", Warn,
			"only the NetworkPolicy", "upgrade Metacontroller to 4.16", nil},
		{"newer than any", image("ghcr.io/metacontroller/metacontroller:v5.0.1@sha256:00"), "MetacontrollerVersion",
			Warn, "newer than any that is known here", "try it", nil},
		{"no version", image("registry:5000/metacontroller"), "MetacontrollerVersion", Warn,
			"does not tell its version", "4.16", nil},
		{"its own defaults", arguments("--logtostderr", "-v=4", "--discovery-interval=20s"), "MetacontrollerFlags",
			Warn,
			"--workers=5 is less than 10, --client-go-qps=5 is less than 50, --client-go-burst=10 is less than 100",
			"--workers=20 --client-go-qps=100 --client-go-burst=200", nil},
		{"late discovery", arguments("--workers=20", "--client-go-qps", "100", "--client-go-burst=200",
			"--discovery-interval=10m"), "MetacontrollerFlags", Warn, "--discovery-interval=10m0s",
			"--discovery-interval=20s", nil},
		{"server-side apply", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200",
			"--apply-strategy=server-side-apply"), "MetacontrollerFlags", Fail, "never releases volumes",
			"--apply-strategy=dynamic-apply in StatefulSet metacontroller/metacontroller", nil},
		{"a log with tokens", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200", "-v=6"),
			"MetacontrollerFlags", Fail, "--v=6 has it log what children hold", "change them and the token", nil},
		{"a log with keys", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200",
			"--zap-log-level=5"), "MetacontrollerFlags", Fail, "--zap-log-level=5 has it log", "--zap-log-level=info",
			nil},
		{"a log of some file", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200", "-v=4",
			"-vmodule=controller=2,hooks=6"), "MetacontrollerFlags", Fail, "--vmodule=controller=2,hooks=6 has it log",
			"-v=4", nil},
		{"a log of whole objects", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200",
			"--zap-devel"), "MetacontrollerFlags", Fail, "--zap-devel has it log", "--zap-log-level=info", nil},
		{"a log of whole objects, in levels", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200",
			"--zap-devel=true", "--zap-log-level=info"), "MetacontrollerFlags", Fail, "--zap-devel has it log",
			"--zap-log-level=info", nil},
	})
	for _, well := range []string{"docker.io/metacontrollerio/metacontroller:4.17.2",
		"ghcr.io/metacontroller/metacontroller:v4.16.0-debug"} {
		w := good(t)
		image(well)(w)
		assert.Equal(t, OK, w.judged()["MetacontrollerVersion"].State, well)
	}
	elected := good(t)
	set(elected.runs(), 3, "spec", "replicas")
	set(elected.runs(), 3, "status", "readyReplicas")
	elected.answers[workloads] = map[string]any{"items": []any{}}
	container(elected.runs())["args"] = []any{"--leader-election", "--workers=20", "--client-go-qps=100",
		"--client-go-burst=200"}
	assert.Equal(t, OK, elected.judged()["OneMetacontroller"].State)
}

func TestRights(t *testing.T) {
	rules := func(edit func(rule map[string]any)) func(w *installation) {
		return func(w *installation) {
			for _, rule := range w.object(rights, "ClusterRole", "quorate-metacontroller")["rules"].([]any) {
				edit(rule.(map[string]any))
			}
		}
	}
	without := func(list any, one string) any {
		return slices.DeleteFunc(list.([]any), func(v any) bool { return v == one })
	}
	test(t, []broken{
		{"no binding", func(w *installation) { w.lose(rights, "ClusterRoleBinding", "quorate-metacontroller") },
			"MetacontrollerRights", Fail,
			"service account metacontroller/metacontroller may not, in all namespaces: get, list, watch, update " +
				"etcdclusters.etcd.quorate.dev, etcdsnapshotschedules.etcd.quorate.dev, etcdoperations.etcd.quorate.dev, " +
				"etcdmirrors.etcd.quorate.dev; ", "apply the ClusterRole and ClusterRoleBinding", nil},
		{"no jobs", rules(func(r map[string]any) { r["resources"] = without(r["resources"], "jobs") }),
			"MetacontrollerRights", Fail,
			"may not, in all namespaces: get, list, watch, create, update, delete jobs.batch", "quorate install", nil},
		{"no deletion", rules(func(r map[string]any) { r["verbs"] = without(r["verbs"], "delete") }),
			"MetacontrollerRights", Fail, "delete pods, persistentvolumeclaims, configmaps, services, secrets",
			"quorate install", nil},
		{"one Secret alone", rules(func(r map[string]any) {
			if slices.Contains(r["resources"].([]any), any("secrets")) {
				r["resourceNames"] = []any{"quorate-caller"}
			}
		}), "MetacontrollerRights", Fail, "services, secrets", "quorate install", nil},
		{"another account", func(w *installation) {
			set(w.runs(), "mc-metacontroller", "spec", "template", "spec", "serviceAccountName")
		}, "MetacontrollerRights", Fail, "metacontroller/mc-metacontroller may not",
			"--serviceaccount=metacontroller:mc-metacontroller", nil},
	})
	for what, subject := range map[string]map[string]any{
		"all of the namespace": {"kind": "Group", "name": "system:serviceaccounts:metacontroller"},
		"by its user's name":   {"kind": "User", "name": "system:serviceaccount:metacontroller:metacontroller"},
	} {
		w := good(t)
		w.object(rights, "ClusterRoleBinding", "quorate-metacontroller")["subjects"] = []any{subject}
		assert.Equal(t, OK, w.judged()["MetacontrollerRights"].State, what)
	}
	some := good(t)
	c := container(some.deployment())
	c["env"] = append(c["env"].([]any), map[string]any{"name": "QUORATE_NAMESPACES", "value": "shop,billing"})
	rules(func(r map[string]any) { r["verbs"] = []any{"get", "list", "watch"} })(some)
	assert.Equal(t, OK, some.judged()["MetacontrollerRights"].State)
	assert.Contains(t, some.judged()["MetacontrollerRights"].Found, "its Roles in shop, billing were not checked")

	everything := good(t)
	everything.object(rights, "ClusterRole",
		"quorate-metacontroller")["rules"] = []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"},
		"verbs": []any{"*"}}}
	assert.Equal(t, OK, everything.judged()["MetacontrollerRights"].State)
}

// itsOwn makes it an installation with a Metacontroller of its own, as the manifests have it.
func (w *installation) itsOwn() {
	w.bearer()
	w.options.Metacontroller = "quorate-system"
	var own map[string]any
	text, err := fs.ReadFile(manifests.Files, manifests.Metacontroller+"/deployment.yaml")
	require.NoError(w.t, err)
	before, _, _ := strings.Cut(string(text), "\n---\n")
	require.NoError(w.t, yaml.Unmarshal([]byte(before), &own))
	set(own, map[string]any{nameLabel: "metacontroller", partOf: "quorate", "app.kubernetes.io/version": "4.17.2"},
		"metadata", "labels")
	set(own, map[string]any{"readyReplicas": 2}, "status")
	w.answers[metacontroller] = map[string]any{"items": []any{}}
	w.answers[workloads] = map[string]any{"items": []any{}}
	w.add(metacontroller, own)
	w.add(workloads, own)
	for _, item := range w.answers[controllers]["items"].([]any) {
		set(item.(map[string]any), map[string]any{ofInstallation: "quorate-system"}, "metadata", "labels")
	}
	for _, name := range []string{forAnswers, forItself} {
		w.object(rights, "ClusterRoleBinding",
			name)["subjects"].([]any)[0].(map[string]any)["namespace"] = "quorate-system"
	}
	raw, err := json.Marshal(shipped().leader)
	require.NoError(w.t, err)
	var rules []any
	require.NoError(w.t, json.Unmarshal(raw, &rules))
	w.add(rights, map[string]any{"kind": "Role", "metadata": map[string]any{"name": forElection}, "rules": rules})
	w.add(rights, map[string]any{"kind": "RoleBinding", "metadata": map[string]any{"name": forElection},
		"roleRef": map[string]any{"kind": "Role", "name": forElection},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "metacontroller",
			"namespace": "quorate-system"}}})
	rule := within(w.object(quorate, "NetworkPolicy", "quorate"), "spec")["ingress"].([]any)[0].(map[string]any)
	rule["from"] = []any{map[string]any{
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "quorate-system"}},
		"podSelector":       map[string]any{"matchLabels": map[string]any{nameLabel: "metacontroller"}},
	}}
}

// TestItsOwnMetacontroller: it is found, its few rights are enough, and each that lacks is missed.
func TestItsOwnMetacontroller(t *testing.T) {
	w := good(t)
	w.itsOwn()
	for name, f := range w.judged() {
		assert.Equal(t, OK, f.State, "%s: %s", name, f.Found)
	}
	o := Options{Namespace: "quorate-system"}
	raw, err := json.Marshal(w.answers[workloads])
	require.NoError(t, err)
	assert.Equal(t, "quorate-system", o.Found(Answer{Out: raw}).Metacontroller)
	assert.Equal(t, "metacontroller", o.Found(Answer{Out: []byte(`{"items":[]}`)}).Metacontroller)
	assert.Equal(t, "metacontroller", o.Found(Answer{Err: "forbidden"}).Metacontroller)

	own := func(edit func(w *installation)) func(w *installation) {
		return func(w *installation) {
			w.itsOwn()
			edit(w)
		}
	}
	beside := func(args ...any) func(w *installation) {
		return own(func(w *installation) {
			other := w.add(workloads, good(w.t).runs())
			container(other)["args"] = args
		})
	}
	core := func(resource string) func(w *installation) {
		return own(func(w *installation) {
			role := w.object(rights, "ClusterRole", forItself)
			role["rules"] = slices.DeleteFunc(role["rules"].([]any), func(r any) bool {
				return slices.Contains(r.(map[string]any)["resources"].([]any), any(resource))
			})
		})
	}
	test(t, []broken{
		{"one that serves all beside it", beside(), "OneMetacontroller", Fail,
			"several serve Quorate's CompositeControllers", "--target-label-selector=!quorate.dev/installation", nil},
		{"one that serves no label", own(func(w *installation) {
			for _, reading := range []string{metacontroller, workloads} {
				c := container(w.object(reading, "Deployment", "metacontroller"))
				c["args"] = append(c["args"].([]any), "--target-label-selector=quorate.dev/installation=other")
				c["args"] = slices.DeleteFunc(c["args"].([]any),
					func(a any) bool { return a == "--target-label-selector=quorate.dev/installation=quorate-system" })
			}
		}), "OneMetacontroller", Fail, "none serves Quorate's CompositeControllers",
			"quorate install --apply", nil},
		{"few workers", own(func(w *installation) {
			c := container(w.object(metacontroller, "Deployment", "metacontroller"))
			c["args"] = []any{"--leader-election", "--target-label-selector=quorate.dev/installation=quorate-system",
				"--workers=5", "--client-go-qps=100", "--client-go-burst=200"}
		}), "MetacontrollerFlags", Warn, "--workers=5 is less than 10", "--metacontroller-workers=20", nil},
		{"no kinds seen", core("customresourcedefinitions"), "MetacontrollerRights", Fail,
			"get, list, watch customresourcedefinitions.apiextensions.k8s.io",
			"quorate-metacontroller-core: `quorate install --apply`", nil},
		{"no namespaces seen", core("namespaces"), "MetacontrollerRights", Fail, "get, list, watch namespaces",
			"quorate-metacontroller-core", nil},
		{"no events", core("events"), "MetacontrollerRights", Fail, "create, patch events",
			"quorate-metacontroller-core", nil},
		{"no controllers seen", core("compositecontrollers"), "MetacontrollerRights", Fail,
			"compositecontrollers.metacontroller.k8s.io, decoratorcontrollers", "quorate-metacontroller-core", nil},
		{"no leases", own(func(w *installation) { w.lose(rights, "RoleBinding", forElection) }), "MetacontrollerRights",
			Fail, "no replica ever works", "kubectl -n quorate-system create role quorate-metacontroller-leader", nil},
		{"another lease", own(func(w *installation) {
			w.object(rights, "Role", forElection)["rules"].([]any)[1].(map[string]any)["resourceNames"] = []any{"other"}
		}), "MetacontrollerRights", Fail, "get, update leases.coordination.k8s.io", "leases", nil},
	})
	apart := good(t)
	beside("--target-label-selector=!quorate.dev/installation")(apart)
	assert.Equal(t, OK, apart.judged()["OneMetacontroller"].State)
	assert.Contains(t, apart.judged()["OneMetacontroller"].Found,
		"StatefulSet metacontroller/metacontroller serves others")
}
