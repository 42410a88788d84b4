package check

import (
	"encoding/json"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/manifests"
)

// TestGood: where everything fits, every check says so, and tells nobody to do anything.
func TestGood(t *testing.T) {
	all := good(t).judged()
	require.Len(t, all, len(Checks))
	for _, c := range Checks {
		assert.Equal(t, OK, all[c.Name].State, "%s: %s", c.Name, all[c.Name].Found)
		assert.Empty(t, all[c.Name].Do, c.Name)
		assert.NotEmpty(t, all[c.Name].Found, c.Name)
	}
	assert.True(t, Fine(slices.Collect(maps.Values(all))))
}

// broken is one thing that is wrong in an installation that is otherwise good.
type broken struct {
	what  string
	edit  func(w *installation)
	check string
	state State
	found string // part of it
	do    string // part of it
	// also are checks that can't be well either; of these it matters only that they are not.
	also []string
}

func test(t *testing.T, all []broken) {
	t.Helper()
	for _, c := range all {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			w := good(t)
			c.edit(w)
			found := w.judged()
			assert.Equal(t, c.state, found[c.check].State, found[c.check].Found)
			assert.Contains(t, found[c.check].Found, c.found)
			assert.Contains(t, found[c.check].Do, c.do)
			for name, f := range found {
				if name != c.check && !slices.Contains(c.also, name) {
					assert.Equal(t, OK, f.State, "%s: %s", name, f.Found)
				} else {
					assert.NotEqual(t, OK, f.State, name)
					assert.NotEmpty(t, f.Do, name)
				}
				assert.NotContains(t, f.Found+f.Do, "TOKEN", "%s shows the token", name)
				assert.NotContains(t, f.Found+f.Do, "PRIVATE KEY", name)
			}
		})
	}
}

func set(o map[string]any, value any, path ...string) {
	within(o, path[:len(path)-1]...)[path[len(path)-1]] = value
}

func TestKubernetes(t *testing.T) {
	says := func(v string) func(w *installation) {
		return func(w *installation) { set(w.answers[version], v, "serverVersion", "gitVersion") }
	}
	test(t, []broken{
		{"an old Kubernetes", says("v1.28.15-gke.1"), "Kubernetes", Fail, "1.28.15; Quorate's kinds need 1.29", "upgrade Kubernetes", nil},
		{"a Kubernetes without policies", says("v1.29.9"), "Kubernetes", Warn, "1.29.9 has no ValidatingAdmissionPolicies", "1.30", nil},
		{"a strange Kubernetes", says("unknown"), "Kubernetes", Warn, `says that it is "unknown"`, "1.29 or later", nil},
		{"no default class", func(w *installation) { w.answers[classes] = map[string]any{"items": []any{}} }, "StorageClass", Warn, "no default", "storageClassName", nil},
		{"no policies", func(w *installation) {
			w.lose(policies, "ValidatingAdmissionPolicyBinding", "quorate-schedule-retention")
		}, "AdmissionPolicies", Warn,
			"there is no ValidatingAdmissionPolicyBinding/quorate-schedule-retention", "apply them", nil},
		{"cert-manager named and not there", func(w *installation) { w.ruleForCertificates() }, "CertManager", Fail, "it stands still", "install cert-manager", nil},
		{"cert-manager wanted and not named", func(w *installation) {
			set(w.object(clusters, "EtcdCluster", ""), "CertManager", "spec", "tls", "mode")
		}, "CertManager", Fail, "no rule for them", "quorate install --cert-manager", nil},
		{"HostPath where it is forbidden", func(w *installation) {
			c := w.object(clusters, "EtcdCluster", "")
			set(c, "HostPath", "spec", "storage", "medium")
			set(w.object(namespaces, "Namespace", within(c, "metadata")["namespace"].(string)), "baseline", "metadata", "labels", "pod-security.kubernetes.io/enforce")
		}, "PodSecurity", Fail, "its namespace enforces baseline", "pod-security.kubernetes.io/enforce=privileged", nil},
	})
	newer := good(t)
	says("v1.40.0")(newer)
	assert.Contains(t, newer.judged()["Kubernetes"].Found, "newer than 1.36")
	assert.Equal(t, OK, newer.judged()["Kubernetes"].State)
}

// ruleForCertificates makes the CompositeController one with cert-manager, with the rights for it.
func (w *installation) ruleForCertificates() {
	spec := within(w.controller(), "spec")
	spec["childResources"] = append(spec["childResources"].([]any), map[string]any{"apiVersion": "cert-manager.io/v1", "resource": "certificates", "updateStrategy": map[string]any{"method": "InPlace"}})
	role := w.object(rights, "ClusterRole", "quorate-metacontroller")
	role["rules"] = append(role["rules"].([]any), map[string]any{"apiGroups": []any{"cert-manager.io"}, "resources": []any{"certificates"}, "verbs": []any{"*"}})
}

// arguments of Metacontroller.
func arguments(args ...any) func(w *installation) {
	return func(w *installation) { container(w.runs())["args"] = args }
}

func image(name string) func(w *installation) {
	return func(w *installation) { container(w.runs())["image"] = name }
}

func TestMetacontroller(t *testing.T) {
	about := []string{"OneMetacontroller", "MetacontrollerVersion", "MetacontrollerFlags", "MetacontrollerRights", "NetworkPolicy", "Trust"}
	test(t, []broken{
		{"no kinds of Metacontroller", func(w *installation) {
			w.lose(kinds, "CustomResourceDefinition", "compositecontrollers.metacontroller.k8s.io")
			w.refused[controllers] = Answer{Err: `error: the server doesn't have a resource type "compositecontrollers"`, NoKind: true}
		}, "MetacontrollerKinds", Fail, "there is no compositecontrollers", "kubectl apply --server-side -f manifests/crds/metacontroller.yaml", []string{"Controllers", "OneQuorate", "Service", "Certificate", "Trust", "Token", "Asked", "CertManager"}},
		{"none", func(w *installation) {
			w.lose(metacontroller, "StatefulSet", "metacontroller")
			w.lose(workloads, "StatefulSet", "metacontroller")
		}, "Metacontroller", Fail, "no Metacontroller in namespace metacontroller", "quorate install --with-metacontroller --apply", about},
		{"elsewhere", func(w *installation) {
			w.lose(metacontroller, "StatefulSet", "metacontroller")
			set(w.object(workloads, "StatefulSet", "metacontroller"), "mc", "metadata", "namespace")
		}, "Metacontroller", Fail, "there is StatefulSet mc/metacontroller", "--metacontroller-namespace=mc", slices.DeleteFunc(slices.Clone(about), func(n string) bool { return n == "OneMetacontroller" })},
		{"not ready", func(w *installation) { set(w.runs(), 0, "status", "readyReplicas") }, "Metacontroller", Fail, "0 of 1 ready", "kubectl -n metacontroller describe pods", nil},
		{"two replicas", func(w *installation) {
			for _, o := range []map[string]any{w.runs(), w.object(workloads, "StatefulSet", "metacontroller")} {
				set(o, 2, "spec", "replicas")
			}
			set(w.runs(), 2, "status", "readyReplicas")
		}, "OneMetacontroller", Fail, "has 2 replicas and no --leader-election", "scale statefulset/metacontroller --replicas=1", nil},
		{"two of them", func(w *installation) {
			other := w.add(workloads, w.object(workloads, "StatefulSet", "metacontroller"))
			set(other, "tools", "metadata", "namespace")
		}, "OneMetacontroller", Fail, "several serve Quorate's CompositeControllers, and undo each other's work: StatefulSet metacontroller/metacontroller, StatefulSet tools/metacontroller", "remove all but one", nil},
		{"two in one namespace", func(w *installation) {
			other := w.add(metacontroller, w.runs())
			set(other, "second", "metadata", "name")
			within(other, "metadata")["labels"] = map[string]any{}
		}, "OneMetacontroller", Fail, "StatefulSet metacontroller/metacontroller, StatefulSet metacontroller/second", "--target-label-selector=!quorate.dev/installation", nil},
		{"too old", image("metacontroller/metacontroller:v0.4.0"), "MetacontrollerVersion", Fail, "0.4.0 is older than 1.5", "upgrade Metacontroller", nil},
		{"another 1.5", image("metacontrollerio/metacontroller:v1.5.2"), "MetacontrollerVersion", Warn, "was never tried", "4.16", nil},
		{"one that can't send a token", image("metacontrollerio/metacontroller:v4.11.6"), "MetacontrollerVersion", Warn, "only the NetworkPolicy", "upgrade Metacontroller to 4.16", nil},
		{"newer than any", image("ghcr.io/metacontroller/metacontroller:v5.0.1@sha256:00"), "MetacontrollerVersion", Warn, "newer than any that is known here", "try it", nil},
		{"no version", image("registry:5000/metacontroller"), "MetacontrollerVersion", Warn, "does not tell its version", "4.16", nil},
		{"its own defaults", arguments("--logtostderr", "-v=4", "--discovery-interval=20s"), "MetacontrollerFlags", Warn,
			"--workers=5 is less than 10, --client-go-qps=5 is less than 50, --client-go-burst=10 is less than 100", "--workers=20 --client-go-qps=100 --client-go-burst=200", nil},
		{"late discovery", arguments("--workers=20", "--client-go-qps", "100", "--client-go-burst=200", "--discovery-interval=10m"), "MetacontrollerFlags", Warn, "--discovery-interval=10m0s", "--discovery-interval=20s", nil},
		{"server-side apply", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200", "--apply-strategy=server-side-apply"), "MetacontrollerFlags", Fail, "never lets go of volumes", "--apply-strategy=dynamic-apply in StatefulSet metacontroller/metacontroller", nil},
		{"a log with tokens", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200", "-v=6"), "MetacontrollerFlags", Fail, "--v=6 has it log what children hold", "change them and the token", nil},
		{"a log with keys", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200", "--zap-log-level=5"), "MetacontrollerFlags", Fail, "--zap-log-level=5 has it log", "--zap-log-level=info", nil},
		{"a log of some file", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200", "-v=4", "-vmodule=controller=2,hooks=6"), "MetacontrollerFlags", Fail, "--vmodule=controller=2,hooks=6 has it log", "-v=4", nil},
		{"a log of whole objects", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200", "--zap-devel"), "MetacontrollerFlags", Fail, "--zap-devel has it log", "--zap-log-level=info", nil},
		{"a log of whole objects, in levels", arguments("--workers=20", "--client-go-qps=100", "--client-go-burst=200", "--zap-devel=true", "--zap-log-level=info"), "MetacontrollerFlags", Fail, "--zap-devel has it log", "--zap-log-level=info", nil},
	})
	for _, well := range []string{"docker.io/metacontrollerio/metacontroller:4.17.2", "ghcr.io/metacontroller/metacontroller:v4.16.0-debug"} {
		w := good(t)
		image(well)(w)
		assert.Equal(t, OK, w.judged()["MetacontrollerVersion"].State, well)
	}
	elected := good(t)
	set(elected.runs(), 3, "spec", "replicas")
	set(elected.runs(), 3, "status", "readyReplicas")
	elected.answers[workloads] = map[string]any{"items": []any{}}
	container(elected.runs())["args"] = []any{"--leader-election", "--workers=20", "--client-go-qps=100", "--client-go-burst=200"}
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
		{"no binding", func(w *installation) { w.lose(rights, "ClusterRoleBinding", "quorate-metacontroller") }, "MetacontrollerRights", Fail,
			"service account metacontroller/metacontroller may not, in all namespaces: get, list, watch, update etcdclusters.etcd.quorate.dev, etcdsnapshotschedules.etcd.quorate.dev; ", "apply the ClusterRole and ClusterRoleBinding", nil},
		{"no jobs", rules(func(r map[string]any) { r["resources"] = without(r["resources"], "jobs") }), "MetacontrollerRights", Fail,
			"may not, in all namespaces: get, list, watch, create, update, delete jobs.batch", "quorate install", nil},
		{"no deletion", rules(func(r map[string]any) { r["verbs"] = without(r["verbs"], "delete") }), "MetacontrollerRights", Fail, "delete pods, persistentvolumeclaims, configmaps, services, secrets", "quorate install", nil},
		{"one Secret alone", rules(func(r map[string]any) {
			if slices.Contains(r["resources"].([]any), any("secrets")) {
				r["resourceNames"] = []any{"quorate-caller"}
			}
		}), "MetacontrollerRights", Fail, "services, secrets", "quorate install", nil},
		{"another account", func(w *installation) {
			set(w.runs(), "mc-metacontroller", "spec", "template", "spec", "serviceAccountName")
		}, "MetacontrollerRights", Fail, "metacontroller/mc-metacontroller may not", "--serviceaccount=metacontroller:mc-metacontroller", nil},
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
	c["env"] = append(c["env"].([]any), map[string]any{"name": "QUORATE_ONLY_NAMESPACES", "value": "shop,billing"})
	rules(func(r map[string]any) { r["verbs"] = []any{"get", "list", "watch"} })(some)
	assert.Equal(t, OK, some.judged()["MetacontrollerRights"].State)
	assert.Contains(t, some.judged()["MetacontrollerRights"].Found, "its Roles in shop, billing were not looked at")

	everything := good(t)
	everything.object(rights, "ClusterRole", "quorate-metacontroller")["rules"] = []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}}
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
	set(own, map[string]any{nameLabel: "metacontroller", partOf: "quorate", "app.kubernetes.io/version": "4.17.2"}, "metadata", "labels")
	set(own, map[string]any{"readyReplicas": 2}, "status")
	w.answers[metacontroller] = map[string]any{"items": []any{}}
	w.answers[workloads] = map[string]any{"items": []any{}}
	w.add(metacontroller, own)
	w.add(workloads, own)
	for _, item := range w.answers[controllers]["items"].([]any) {
		set(item.(map[string]any), map[string]any{ofInstallation: "quorate-system"}, "metadata", "labels")
	}
	for _, name := range []string{forAnswers, forItself} {
		w.object(rights, "ClusterRoleBinding", name)["subjects"].([]any)[0].(map[string]any)["namespace"] = "quorate-system"
	}
	raw, err := json.Marshal(shipped().leader)
	require.NoError(w.t, err)
	var rules []any
	require.NoError(w.t, json.Unmarshal(raw, &rules))
	w.add(rights, map[string]any{"kind": "Role", "metadata": map[string]any{"name": forElection}, "rules": rules})
	w.add(rights, map[string]any{"kind": "RoleBinding", "metadata": map[string]any{"name": forElection}, "roleRef": map[string]any{"kind": "Role", "name": forElection},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "metacontroller", "namespace": "quorate-system"}}})
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
		{"one that serves all beside it", beside(), "OneMetacontroller", Fail, "several serve Quorate's CompositeControllers", "--target-label-selector=!quorate.dev/installation", nil},
		{"one that serves no label", own(func(w *installation) {
			for _, reading := range []string{metacontroller, workloads} {
				c := container(w.object(reading, "Deployment", "metacontroller"))
				c["args"] = append(c["args"].([]any), "--target-label-selector=quorate.dev/installation=other")
				c["args"] = slices.DeleteFunc(c["args"].([]any), func(a any) bool { return a == "--target-label-selector=quorate.dev/installation=quorate-system" })
			}
		}), "OneMetacontroller", Fail, "none serves Quorate's CompositeControllers", "quorate install --with-metacontroller --apply", nil},
		{"no kinds seen", core("customresourcedefinitions"), "MetacontrollerRights", Fail, "get, list, watch customresourcedefinitions.apiextensions.k8s.io", "quorate-metacontroller-core: `quorate install --with-metacontroller --apply`", nil},
		{"no namespaces seen", core("namespaces"), "MetacontrollerRights", Fail, "get, list, watch namespaces", "quorate-metacontroller-core", nil},
		{"no events", core("events"), "MetacontrollerRights", Fail, "create, patch events", "quorate-metacontroller-core", nil},
		{"no controllers seen", core("compositecontrollers"), "MetacontrollerRights", Fail, "compositecontrollers.metacontroller.k8s.io, decoratorcontrollers", "quorate-metacontroller-core", nil},
		{"no leases", own(func(w *installation) { w.lose(rights, "RoleBinding", forElection) }), "MetacontrollerRights", Fail, "no replica ever works", "kubectl -n quorate-system create role quorate-metacontroller-leader", nil},
		{"another lease", own(func(w *installation) {
			w.object(rights, "Role", forElection)["rules"].([]any)[1].(map[string]any)["resourceNames"] = []any{"other"}
		}), "MetacontrollerRights", Fail, "get, update leases.coordination.k8s.io", "leases", nil},
	})
	apart := good(t)
	beside("--target-label-selector=!quorate.dev/installation")(apart)
	assert.Equal(t, OK, apart.judged()["OneMetacontroller"].State)
	assert.Contains(t, apart.judged()["OneMetacontroller"].Found, "StatefulSet metacontroller/metacontroller serves others")
}

func TestKinds(t *testing.T) {
	const clustersKind = "etcdclusters.etcd.quorate.dev"
	schema := func(w *installation, path ...string) map[string]any {
		version := within(w.object(kinds, "CustomResourceDefinition", clustersKind), "spec")["versions"].([]any)[0].(map[string]any)
		return within(version, append([]string{"schema", "openAPIV3Schema"}, path...)...)
	}
	spec := func(w *installation) map[string]any { return schema(w, "properties", "spec", "properties") }
	test(t, []broken{
		{"no kinds", func(w *installation) { w.lose(kinds, "CustomResourceDefinition", "etcdsnapshots.etcd.quorate.dev") }, "Kinds", Fail, "there is no etcdsnapshots", "install Quorate", nil},
		{"not established", func(w *installation) {
			delete(w.object(kinds, "CustomResourceDefinition", clustersKind), "status")
		}, "Kinds", Fail, "not established", "kubectl describe crd " + clustersKind, nil},
		{"older kinds", func(w *installation) {
			delete(spec(w), "restore")
			delete(schema(w, "properties", "status", "properties"), "origin")
		}, "Kinds", Fail, "is older than this release: it lacks spec.restore and status.origin", "quorate install --kinds", nil},
		{"newer kinds", func(w *installation) { spec(w)["shiny"] = map[string]any{"type": "string"} }, "Kinds", Warn, "is newer than this quorate: it has spec.shiny", "use the quorate", nil},
		{"kinds of another line", func(w *installation) { delete(spec(w), "restore"); spec(w)["shiny"] = map[string]any{} }, "Kinds", Fail, "is of another release", "quorate install --kinds", nil},
		{"other rules", func(w *installation) { set(spec(w), 5, "replicas", "maximum") }, "Kinds", Warn, "other rules", "quorate install --kinds", nil},
	})
	words := good(t)
	schema(words)["description"] = "Other words."
	assert.Equal(t, OK, words.judged()["Kinds"].State)
}

func TestControllers(t *testing.T) {
	hookOf := func(w *installation, name string) map[string]any {
		return within(w.controller(), "spec", "hooks", name, "webhook")
	}
	url := func(from, to string) func(w *installation) {
		return func(w *installation) {
			hookOf(w, "finalize")["url"] = strings.Replace(hookOf(w, "finalize")["url"].(string), from, to, 1)
		}
	}
	test(t, []broken{
		{"one is missing", func(w *installation) { w.lose(controllers, "CompositeController", "quorate-etcdsnapshot") }, "Controllers", Fail, "there is no CompositeController for etcdsnapshots", "quorate install", nil},
		{"all call another", func(w *installation) {
			w.hooked(func(h map[string]any) {
				h["url"] = strings.Replace(h["url"].(string), "quorate-system", "elsewhere", 1)
			})
		}, "Controllers", Fail, "quorate-etcdcluster for etcdclusters calls quorate.elsewhere.svc, not quorate.quorate-system.svc", "--namespace", []string{"Service", "Certificate", "Trust", "Token"}},
		{"one hook calls another", url("quorate-system", "elsewhere"), "Controllers", Fail, "hook finalize calls quorate.elsewhere.svc", "quorate install", []string{"Certificate"}},
		{"another page", url("/finalize", "/sync"), "Controllers", Fail, "hook finalize calls the page /sync, not /finalize", "quorate install", nil},
		{"no customize", func(w *installation) { delete(within(w.controller(), "spec", "hooks"), "customize") }, "Controllers", Fail, "quorate-etcdcluster has no hook customize", "quorate install", nil},
		{"a short timeout", func(w *installation) { hookOf(w, "sync")["timeout"] = "2s" }, "Controllers", Warn, `gives up after "2s", not after 10s`, "quorate install", nil},
		{"another version of the hook", func(w *installation) { set(w.controller(), "v2", "spec", "hooks", "sync", "version") }, "Controllers", Fail, "of version v2", "quorate install", nil},
		{"no generateSelector", func(w *installation) { set(w.controller(), false, "spec", "generateSelector") }, "Controllers", Fail, "no generateSelector", "quorate install", nil},
		{"a long resync", func(w *installation) { set(w.controller(), 600, "spec", "resyncPeriodSeconds") }, "Controllers", Warn, "asks every 600 s", "quorate install", nil},
		{"a rule for children less", func(w *installation) {
			spec := within(w.controller(), "spec")
			spec["childResources"] = spec["childResources"].([]any)[1:]
		}, "Controllers", Fail, "no rule for its children pods", "quorate install", nil},
		{"a rule for children more", func(w *installation) {
			spec := within(w.controller(), "spec")
			spec["childResources"] = append(spec["childResources"].([]any), map[string]any{"apiVersion": "apps/v1", "resource": "deployments"})
		}, "Controllers", Fail, "a rule for deployments.apps, which this release does not know", "quorate install", nil},
		{"another strategy", func(w *installation) {
			set(within(w.controller(), "spec")["childResources"].([]any)[0].(map[string]any), "Recreate", "updateStrategy", "method")
		}, "Controllers", Fail, `updates pods by "Recreate", not "InPlace"`, "quorate install", nil},
		{"a second Quorate", func(w *installation) {
			second := w.add(controllers, w.controller())
			set(second, "second", "metadata", "name")
			for _, h := range within(second, "spec", "hooks") {
				within(h.(map[string]any), "webhook")["url"] = "http://quorate.other.svc/sync"
			}
		}, "OneQuorate", Fail, "the CompositeControllers quorate-etcdcluster (calls quorate.quorate-system.svc) and second (calls quorate.other.svc) both decide about etcdclusters", "delete one", nil},
	})
}

// TestSecondQuorate: one for other labels is in nobody's way, and clusters that are its own wait for it.
func TestSecondQuorate(t *testing.T) {
	w := good(t)
	set(w.controller(), map[string]any{"matchLabels": map[string]any{"team": "a"}}, "spec", "parentResource", "labelSelector")
	set(w.object(clusters, "EtcdCluster", ""), "a", "metadata", "labels", "team")
	second := w.add(controllers, w.controller())
	set(second, "second", "metadata", "name")
	for _, h := range within(second, "spec", "hooks") {
		within(h.(map[string]any), "webhook")["url"] = "http://quorate.other.svc/sync"
	}
	set(second, map[string]any{"matchExpressions": []any{map[string]any{"key": "team", "operator": "NotIn", "values": []any{"a"}}}}, "spec", "parentResource", "labelSelector")
	waiting := w.add(clusters, w.object(clusters, "EtcdCluster", ""))
	set(waiting, "b", "metadata", "labels", "team")
	delete(waiting, "status")
	for name, f := range w.judged() {
		assert.Equal(t, OK, f.State, "%s: %s", name, f.Found)
	}
}

func TestDisjoint(t *testing.T) {
	labelled := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": value}}
	}
	demand := func(operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: operator, Values: values}}}
	}
	for _, c := range []struct {
		a, b *metav1.LabelSelector
		want bool
	}{
		{nil, nil, false}, {labelled("a"), nil, false}, {labelled("a"), labelled("a"), false}, {labelled("a"), labelled("b"), true},
		{labelled("a"), demand("In", "b", "c"), true}, {labelled("a"), demand("In", "a", "c"), false},
		{labelled("a"), demand("NotIn", "a"), true}, {labelled("a"), demand("NotIn", "b"), false}, {demand("In", "a", "b"), demand("NotIn", "a"), false},
		{labelled("a"), demand("DoesNotExist"), true}, {demand("Exists"), demand("DoesNotExist"), true}, {labelled("a"), demand("Exists"), false},
		{demand("NotIn", "a"), demand("DoesNotExist"), false}, {demand("NotIn", "a"), demand("NotIn", "b"), false},
		{labelled("a"), &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "b"}}, false},
	} {
		assert.Equal(t, c.want, disjoint(c.a, c.b), "%v and %v", c.a, c.b)
		assert.Equal(t, c.want, disjoint(c.b, c.a), "%v and %v", c.b, c.a)
	}
}

func TestQuorate(t *testing.T) {
	test(t, []broken{
		{"no Quorate", func(w *installation) { w.answers[quorate] = map[string]any{"items": []any{}} }, "Quorate", Fail, "no Deployment of Quorate in namespace quorate-system", "--namespace",
			[]string{"QuorateVersion", "Service", "NetworkPolicy", "Token"}},
		{"none available", func(w *installation) { set(w.deployment(), 0, "status", "availableReplicas") }, "Quorate", Fail, "0 of 2 available", "describe pods", nil},
		{"one of two", func(w *installation) { set(w.deployment(), 1, "status", "availableReplicas") }, "Quorate", Warn, "1 of 2 available", "describe pods", nil},
		{"rolling", func(w *installation) { set(w.deployment(), 1, "status", "updatedReplicas") }, "Quorate", Warn, "not all of them are of the newest template", "rollout status", nil},
		{"another release", func(w *installation) { w.options.Version = "v0.2.0" }, "QuorateVersion", Warn, "is of 0.1.0 and this program of 0.2.0", "use the quorate", nil},
		{"members with another image", func(w *installation) {
			for _, e := range container(w.deployment())["env"].([]any) {
				if e := e.(map[string]any); e["name"] == "QUORATE_IMAGE" {
					e["value"] = "example.com/quorate:v9"
				}
			}
		}, "QuorateVersion", Warn, "members' pods are made with the image example.com/quorate:v9", "set QUORATE_IMAGE", nil},
		{"no Service", func(w *installation) { w.lose(quorate, "Service", "quorate") }, "Service", Fail, "no Service quorate-system/quorate", "quorate install", nil},
		{"another port", func(w *installation) {
			w.object(quorate, "Service", "quorate")["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"] = 80
		}, "Service", Fail, "port 443, which the Service", "quorate install", nil},
		{"no pod ready", func(w *installation) { w.lose(quorate, "Pod", ""); w.lose(quorate, "Pod", "") }, "Service", Fail, "no pod behind", "describe pods", nil},
		{"no NetworkPolicy", func(w *installation) { w.lose(quorate, "NetworkPolicy", "quorate") }, "NetworkPolicy", Warn, "everybody in the cluster reaches the hooks", "quorate install", nil},
		{"a NetworkPolicy for another", func(w *installation) {
			rule := within(w.object(quorate, "NetworkPolicy", "quorate"), "spec")["ingress"].([]any)[0].(map[string]any)
			set(rule["from"].([]any)[0].(map[string]any), "mc", "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name")
		}, "NetworkPolicy", Fail, "does not let namespace metacontroller", "quorate install", nil},
	})
	for _, own := range []string{"devel", "v0.1.0-12-gabc"} {
		built := good(t)
		built.options.Version = own
		assert.Equal(t, OK, built.judged()["QuorateVersion"].State)
		assert.Contains(t, built.judged()["QuorateVersion"].Found, "is no release")
	}
}

// bearer makes it the installation for Metacontroller 4.16.
func (w *installation) bearer() {
	ca := within(w.answers[trusted], "data")["ca.crt"]
	w.answers[trusted] = map[string]any{}
	image("metacontrollerio/metacontroller:v4.17.2")(w)
	w.add(secrets, map[string]any{"kind": "Secret", "metadata": map[string]any{"name": forCaller}, "data": encoded(map[string]string{"token": "TOKEN"})})
	w.hooked(func(h map[string]any) {
		h["url"] = strings.Replace(h["url"].(string), "quorate:TOKEN@", "", 1)
		h["caBundle"] = map[string]any{"inline": ca}
		h["authorization"] = map[string]any{"secretRef": map[string]any{"name": forCaller, "namespace": "quorate-system", "key": "token"}}
	})
}

func TestTrust(t *testing.T) {
	mount := func(w *installation) map[string]any { return container(w.runs()) }
	test(t, []broken{
		{"plain HTTP", func(w *installation) {
			w.hooked(func(h map[string]any) { h["url"] = strings.Replace(h["url"].(string), "https://", "http://", 1) })
			w.object(quorate, "Service", "quorate")["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"] = 80
		}, "Certificate", Warn, "hooks are plain HTTP", "quorate install", []string{"Trust"}},
		{"half of them plain", func(w *installation) {
			h := within(w.controller(), "spec", "hooks", "sync", "webhook")
			h["url"] = strings.Replace(h["url"].(string), "https://quorate:TOKEN@quorate.quorate-system.svc", "http://quorate:TOKEN@quorate.quorate-system.svc:443", 1)
		}, "Certificate", Fail, "1 of 8 hooks are called by plain HTTP", "quorate install", []string{"Trust"}},
		{"no Secret", func(w *installation) { w.answers[secrets] = map[string]any{"items": []any{}} }, "Certificate", Fail, "there is no Secret quorate-system/quorate-hooks", "quorate install", []string{"Trust", "Token"}},
		{"another name", func(w *installation) { w.certify("quorate.elsewhere.svc", noon.AddDate(10, 0, 0)) }, "Certificate", Fail, "for quorate.elsewhere.svc, and the hooks are called as quorate.quorate-system.svc", "make another", nil},
		{"expired", func(w *installation) { w.certify("quorate.quorate-system.svc", noon.AddDate(0, 0, -1)) }, "Certificate", Fail, "it has expired on 2026-11-21", "make another", nil},
		{"expires soon", func(w *installation) { w.certify("quorate.quorate-system.svc", noon.AddDate(0, 0, 20)) }, "Certificate", Warn, "it expires on 2026-12-12", "make another", nil},
		{"another key", func(w *installation) {
			set(w.object(secrets, "Secret", forHooks), "", "data", "tls.key")
		}, "Certificate", Fail, "no certificate and its private key", "make another", nil},
		{"another authority", func(w *installation) {
			other := good(w.t)
			within(w.answers[trusted], "data")["ca.crt"] = within(other.answers[trusted], "data")["ca.crt"]
		}, "Trust", Fail, "the authority in the ConfigMap metacontroller/quorate-hook-ca has not signed the hooks' certificate", "rollout restart statefulset/metacontroller", nil},
		{"no ConfigMap", func(w *installation) { w.answers[trusted] = map[string]any{} }, "Trust", Fail, "nor is there a ConfigMap metacontroller/quorate-hook-ca", "quorate install", nil},
		{"not mounted", func(w *installation) { delete(mount(w), "volumeMounts") }, "Trust", Fail, "mounted where SSL_CERT_DIR says", "docs/security.md", nil},
		{"not named", func(w *installation) { delete(mount(w), "env") }, "Trust", Fail, "SSL_CERT_DIR", "upgrade Metacontroller", nil},
		{"not read since it changed", func(w *installation) {
			set(w.answers[trusted], []any{map[string]any{"manager": "kubectl", "time": noon.Format("2006-01-02T15:04:05Z07:00")}}, "metadata", "managedFields")
		}, "Trust", Fail, "reads the ConfigMap quorate-hook-ca once, which has changed at 2026-11-22T12:00:00Z", "rollout restart statefulset/metacontroller", nil},
		{"what an older one does not read", func(w *installation) {
			w.bearer()
			image("metacontrollerio/metacontroller:v1.5.20")(w)
		}, "Trust", Fail, "which Metacontroller 1.5.20 does not read", "--metacontroller=1.5", nil},
		{"another authority in the caBundle", func(w *installation) {
			other := good(w.t)
			w.bearer()
			w.hooked(func(h map[string]any) {
				within(h, "caBundle")["inline"] = within(other.answers[trusted], "data")["ca.crt"]
			})
		}, "Trust", Fail, "the authority in the caBundle of the CompositeControllers has not signed", "quorate install", nil},
		{"another token", func(w *installation) {
			set(w.object(secrets, "Secret", forHooks), base64Of("other\n"), "data", "tokens")
		}, "Token", Fail, "(the URL) is not among the tokens", "quorate install", nil},
		{"another token in the Secret", func(w *installation) {
			w.bearer()
			set(w.object(secrets, "Secret", forCaller), base64Of("other"), "data", "token")
		}, "Token", Fail, "(a Secret) is not among the tokens", "quorate install", nil},
		{"no token sent", func(w *installation) {
			w.hooked(func(h map[string]any) { h["url"] = strings.Replace(h["url"].(string), "quorate:TOKEN@", "", 1) })
		}, "Token", Fail, "is called without: every call is refused with 401", "quorate install", nil},
		{"no token asked", func(w *installation) {
			c := container(w.deployment())
			c["env"] = slices.DeleteFunc(c["env"].([]any), func(e any) bool { return e.(map[string]any)["name"] == "QUORATE_TOKEN_FILE" })
		}, "Token", Warn, "Quorate asks for none", "docs/security.md", nil},
	})
	newer := good(t)
	newer.bearer()
	for name, f := range newer.judged() {
		assert.Equal(t, OK, f.State, "%s: %s", name, f.Found)
	}
}

func base64Of(text string) string { return encoded(map[string]string{"x": text})["x"].(string) }

const (
	oldLog = `E1122 10:00:01.000000       1 controller.go:270] failed to sync EtcdCluster "shop/orders": sync hook failed for EtcdCluster shop/orders: sync hook failed: http error: Post "https://quorate:***@quorate.quorate-system.svc/sync": x509: certificate signed by unknown authority`
	newLog = `{"level":"error","ts":"2026-11-22T11:59:00Z","msg":"Unhandled Error","logger":"UnhandledError","error":"failed to sync EtcdCluster 'shop/orders': sync hook failed: remote error: no token","stacktrace":"metacontroller/pkg/controller"}`
)

func TestAsked(t *testing.T) {
	unlooked := func(w *installation) { // as the API server shows it
		w.object(clusters, "EtcdCluster", "")["status"] = map[string]any{"observedGeneration": -1}
	}
	test(t, []broken{
		{"no status", unlooked, "Asked", Fail, "Metacontroller does not call, or its calls fail: no status has ", "kubectl -n metacontroller logs statefulset/metacontroller", nil},
		{"no status and a log", func(w *installation) { unlooked(w); w.log = "I1122 hello\n" + oldLog + "\nI1122 bye\n" }, "Asked", Fail, "x509: certificate signed by unknown authority", "logs", nil},
		{"calls that fail", func(w *installation) { w.log = newLog }, "Asked", Warn, "calls have failed in the last five minutes; the last error in its log: failed to sync EtcdCluster 'shop/orders': sync hook failed: remote error: no token", "if it goes on", nil},
		{"a log that may not be read", func(w *installation) { w.refused[log] = Answer{Err: "no", Forbidden: true} }, "Asked", Unknown, "you may not list pods, and get pods/log, in namespace metacontroller", "ask whoever administers Kubernetes", nil},
	})
	routine := good(t)
	routine.log = `E1122 1 controller.go:270] failed to sync EtcdCluster "shop/orders": can't update status: the object has been modified; please apply your changes`
	assert.Equal(t, OK, routine.judged()["Asked"].State)
	young := good(t)
	unlooked(young)
	set(young.object(clusters, "EtcdCluster", ""), noon.Format("2006-01-02T15:04:05Z07:00"), "metadata", "creationTimestamp")
	assert.Equal(t, OK, young.judged()["Asked"].State)
	long := good(t)
	long.log = oldLog + strings.Repeat(" and so on", 100)
	assert.Less(t, len(long.judged()["Asked"].Found), 400)
}

// TestForbidden: each reading that is refused makes what needs it unknown, names the right, and nothing else.
func TestForbidden(t *testing.T) {
	w := good(t)
	for _, r := range append(w.options.Readings(), See(w.options, w.said()).Later()...) {
		t.Run(r.Name, func(t *testing.T) {
			w := good(t)
			w.refused[r.Name] = Answer{Err: "Error from server (Forbidden): no", Forbidden: true}
			unknown := 0
			for name, f := range w.judged() {
				assert.NotEqual(t, Fail, f.State, "%s: %s", name, f.Found)
				if f.State == Unknown {
					unknown++
					assert.Contains(t, f.Found+f.Do, "ou may not ", name)
					assert.Contains(t, f.Do, "ask whoever administers Kubernetes for the right to ", name)
				}
			}
			assert.Positive(t, unknown)
		})
	}
}

// TestUnreachable: without an API server there is one finding, which says what kubectl said.
func TestUnreachable(t *testing.T) {
	all := Judge(See(good(t).options, map[string]Answer{version: {Err: "connection refused; see `kubectl config current-context`"}}))
	require.Len(t, all, 1)
	assert.Equal(t, Finding{Name: "Kubernetes", State: Fail, Found: "connection refused; see `kubectl config current-context`"}, all[0])
	assert.False(t, Fine(all))
}

// TestNonsense: what can't be understood is said to be so.
func TestNonsense(t *testing.T) {
	w := good(t)
	w.refused[controllers] = Answer{Out: []byte("<html>")}
	f := w.judged()["Controllers"]
	assert.Equal(t, Unknown, f.State)
	assert.Contains(t, f.Found, "what kubectl printed can't be understood")
}

// TestChecksAreDocumented: names are one word, sentences end, and every reading that a check needs exists.
func TestChecksAreDocumented(t *testing.T) {
	names := []string{version, secrets, log}
	for _, r := range (Options{}).Readings() {
		names = append(names, r.Name)
		raw, err := json.Marshal(r.Args)
		require.NoError(t, err)
		assert.Regexp(t, `^\["get",`, string(raw), "a check only reads")
	}
	for _, c := range Checks {
		assert.Regexp(t, regexp.MustCompile(`^[A-Z][A-Za-z]{3,20}$`), c.Name)
		assert.Regexp(t, regexp.MustCompile(`\.$`), c.Looks)
		for _, n := range c.needs {
			assert.Contains(t, names, n)
		}
	}
}

// TestAdviceKeepsTheSettings: the command that is advised does not change whom Quorate looks after, nor its images.
func TestAdviceKeepsTheSettings(t *testing.T) {
	w := good(t)
	c := container(w.deployment())
	for name, value := range map[string]string{"QUORATE_ONLY_NAMESPACES": "shop,till", "QUORATE_SELECTOR": "shard=a", "QUORATE_ETCD_REPOSITORY": "mirror/etcd"} {
		c["env"] = slices.DeleteFunc(c["env"].([]any), func(e any) bool { return e.(map[string]any)["name"] == name })
		c["env"] = append(c["env"].([]any), map[string]any{"name": name, "value": value})
	}
	set(w.controller(), "quorate-etcdcluster-a", "metadata", "name")
	advice := See(w.options, w.said()).install()
	for _, flag := range []string{" --only-namespaces=shop,till", " --selector='shard=a'", " --etcd-repository=mirror/etcd", " --name=a"} {
		assert.Contains(t, advice, flag)
	}
	plain := See(good(t).options, good(t).said()).install()
	for _, flag := range []string{"--only-namespaces", "--selector", "--etcd-repository", "--name"} {
		assert.NotContains(t, plain, flag)
	}
}
