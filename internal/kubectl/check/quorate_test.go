package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestKinds(t *testing.T) {
	const clustersKind = "etcdclusters.etcd.quorate.dev"
	schema := func(w *installation, path ...string) map[string]any {
		version := within(w.object(kinds, "CustomResourceDefinition", clustersKind),
			"spec")["versions"].([]any)[0].(map[string]any)
		return within(version, append([]string{"schema", "openAPIV3Schema"}, path...)...)
	}
	spec := func(w *installation) map[string]any { return schema(w, "properties", "spec", "properties") }
	test(t, []broken{
		{"no kinds", func(w *installation) {
			w.lose(kinds, "CustomResourceDefinition", "etcdsnapshots.etcd.quorate.dev")
		}, "Installed", Fail, "there is no etcdsnapshots", "install Quorate", nil},
		{"not established", func(w *installation) {
			delete(w.object(kinds, "CustomResourceDefinition", clustersKind), "status")
		}, "Installed", Fail, "not established", "kubectl describe crd " + clustersKind, nil},
		{"another version", func(w *installation) {
			within(w.object(kinds, "CustomResourceDefinition", clustersKind),
				"spec")["versions"].([]any)[0].(map[string]any)["name"] = "v1"
		}, "Installed", Fail, "has no version v1beta1", "quorate install --kinds", nil},
		{"older kinds", func(w *installation) {
			delete(spec(w), "recovery")
			delete(schema(w, "properties", "status", "properties"), "origin")
		}, "Installed", Fail, "is older than this release: it does not have spec.recovery and status.origin",
			"quorate install --kinds", nil},
		{"newer kinds", func(w *installation) { spec(w)["shiny"] = map[string]any{"type": "string"} }, "Installed", Warn,
			"is newer than this quorate: it has spec.shiny", "use the quorate", nil},
		{"kinds of another line",
			func(w *installation) { delete(spec(w), "recovery"); spec(w)["shiny"] = map[string]any{} }, "Installed", Fail,
			"is of another release", "quorate install --kinds", nil},
		{"other rules", func(w *installation) { set(spec(w), 5, "replicas", "maximum") }, "Installed", Warn, "other rules for spec.replicas",
			"quorate install --kinds", nil},
	})
	words := good(t)
	schema(words)["description"] = "Other words."
	assert.Equal(t, OK, words.judged()["Installed"].State)
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
		{"one is missing", func(w *installation) { w.lose(controllers, "CompositeController", "quorate-etcdsnapshot") },
			"Installed", Fail, "no CompositeController exists for etcdsnapshots", "quorate install", nil},
		{"all call another", func(w *installation) {
			w.hooked(func(h map[string]any) {
				h["url"] = strings.Replace(h["url"].(string), "quorate-system", "elsewhere", 1)
			})
		}, "Installed", Fail, "quorate-etcdcluster for etcdclusters calls quorate.elsewhere.svc, not " +
			"quorate.quorate-system.svc", "--namespace", []string{"Service", "Certificate", "Trust", "Token"}},
		{"one hook calls another", url("quorate-system", "elsewhere"), "Installed", Fail,
			"hook finalize is quorate.elsewhere.svc/finalize, not quorate.quorate-system.svc/finalize", "quorate install", []string{"Certificate"}},
		{"another page", url("/finalize", "/sync"), "Installed", Fail,
			"hook finalize is quorate.quorate-system.svc/sync, not", "quorate install", nil},
		{"no sync", func(w *installation) { delete(within(w.controller(), "spec", "hooks"), "sync") }, "Installed",
			Fail, "quorate-etcdcluster for etcdclusters calls no host", "--namespace", nil},
		{"another Service", func(w *installation) {
			h := hookOf(w, "finalize")
			delete(h, "url")
			h["path"] = "/finalize"
			h["service"] = map[string]any{"name": "quorate", "namespace": "elsewhere", "port": 443, "protocol": "https"}
		}, "Installed", Fail, "hook finalize is quorate.elsewhere.svc/finalize", "quorate install",
			[]string{"Certificate", "Token"}},
		{"no customize", func(w *installation) { delete(within(w.controller(), "spec", "hooks"), "customize") },
			"Installed", Fail, "quorate-etcdcluster has no hook customize", "quorate install", nil},
		{"a short timeout", func(w *installation) { hookOf(w, "sync")["timeout"] = "2s" }, "Installed", Warn,
			`time for the hook sync is "2s", not "10s"`, "quorate install", nil},
		{"another version of the hook",
			func(w *installation) { set(w.controller(), "v2", "spec", "hooks", "sync", "version") }, "Installed",
			Fail, "version of the hook sync is v2, not v1", "quorate install", nil},
		{"no generateSelector", func(w *installation) { set(w.controller(), false, "spec", "generateSelector") },
			"Installed", Fail, "generateSelector is false, not true", "quorate install", nil},
		{"a long resync", func(w *installation) { set(w.controller(), 600, "spec", "resyncPeriodSeconds") },
			"Installed", Warn, "time between two calls is 600 s, not 30 s", "quorate install", nil},
		{"a rule for children less", func(w *installation) {
			spec := within(w.controller(), "spec")
			spec["childResources"] = spec["childResources"].([]any)[1:]
		}, "Installed", Fail, "no rule for its children pods", "quorate install", nil},
		{"a rule for children more", func(w *installation) {
			spec := within(w.controller(), "spec")
			spec["childResources"] = append(spec["childResources"].([]any),
				map[string]any{"apiVersion": "apps/v1", "resource": "deployments"})
		}, "Installed", Fail, "a rule for its children deployments.apps, which this release does not know", "quorate install",
			nil},
		{"another strategy", func(w *installation) {
			set(within(w.controller(), "spec")["childResources"].([]any)[0].(map[string]any), "Recreate",
				"updateStrategy", "method")
		}, "Installed", Fail, "rule for its children pods is Recreate, not InPlace", "quorate install", nil},
		{"a second Quorate", func(w *installation) {
			second := w.add(controllers, w.controller())
			set(second, "second", "metadata", "name")
			for _, h := range within(second, "spec", "hooks") {
				within(h.(map[string]any), "webhook")["url"] = "http://quorate.other.svc/sync"
			}
		}, "OneQuorate", Fail, "the CompositeControllers quorate-etcdcluster (calls quorate.quorate-system.svc) and " +
			"second (calls quorate.other.svc) both decide about etcdclusters", "delete one", nil},
	})
}

// TestSecondQuorate: one for other labels does no harm, and clusters that are its own wait for it.
func TestSecondQuorate(t *testing.T) {
	w := good(t)
	set(w.controller(), map[string]any{"matchLabels": map[string]any{"team": "a"}}, "spec", "parentResource",
		"labelSelector")
	set(w.object(clusters, "EtcdCluster", ""), "a", "metadata", "labels", "team")
	second := w.add(controllers, w.controller())
	set(second, "second", "metadata", "name")
	for _, h := range within(second, "spec", "hooks") {
		within(h.(map[string]any), "webhook")["url"] = "http://quorate.other.svc/sync"
	}
	set(second, map[string]any{"matchExpressions": []any{map[string]any{"key": "team", "operator": "NotIn",
		"values": []any{"a"}}}}, "spec", "parentResource", "labelSelector")
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
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team",
			Operator: operator, Values: values}}}
	}
	for _, c := range []struct {
		a, b *metav1.LabelSelector
		want bool
	}{
		{nil, nil, false}, {labelled("a"), nil, false}, {labelled("a"), labelled("a"), false},
		{labelled("a"), labelled("b"), true},
		{labelled("a"), demand("In", "b", "c"), true}, {labelled("a"), demand("In", "a", "c"), false},
		{labelled("a"), demand("NotIn", "a"), true}, {labelled("a"), demand("NotIn", "b"), false},
		{demand("In", "a", "b"), demand("NotIn", "a"), false},
		{labelled("a"), demand("DoesNotExist"), true}, {demand("Exists"), demand("DoesNotExist"), true},
		{labelled("a"), demand("Exists"), false},
		{demand("NotIn", "a"), demand("DoesNotExist"), false}, {demand("NotIn", "a"), demand("NotIn", "b"), false},
		{labelled("a"), &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "b"}}, false},
	} {
		assert.Equal(t, c.want, disjoint(c.a, c.b), "%v and %v", c.a, c.b)
		assert.Equal(t, c.want, disjoint(c.b, c.a), "%v and %v", c.b, c.a)
	}
}

func TestQuorate(t *testing.T) {
	test(t, []broken{
		{"no Quorate", func(w *installation) { w.answers[quorate] = map[string]any{"items": []any{}} }, "Quorate", Fail,
			"no Deployment of Quorate exists in namespace quorate-system", "--namespace",
			[]string{"QuorateVersion", "Service", "NetworkPolicy", "Token"}},
		{"none available", func(w *installation) { set(w.deployment(), 0, "status", "availableReplicas") }, "Quorate",
			Fail, "0 of 2 available", "describe pods", nil},
		{"one of two", func(w *installation) { set(w.deployment(), 1, "status", "availableReplicas") }, "Quorate", Warn,
			"1 of 2 available", "describe pods", nil},
		{"rolling", func(w *installation) { set(w.deployment(), 1, "status", "updatedReplicas") }, "Quorate", Warn,
			"not all of them are of the newest template", "rollout status", nil},
		{"another release", func(w *installation) { w.options.Version = "v0.2.0" }, "QuorateVersion", Warn,
			"is of 0.1.0 and this program of 0.2.0", "use the quorate", nil},
		{"members with another image", func(w *installation) {
			for _, e := range container(w.deployment())["env"].([]any) {
				if e := e.(map[string]any); e["name"] == "QUORATE_IMAGE" {
					e["value"] = "example.com/quorate:v9"
				}
			}
		}, "QuorateVersion", Warn, "members' pods use the image example.com/quorate:v9", "set QUORATE_IMAGE", nil},
		{"no Service", func(w *installation) { w.lose(quorate, "Service", "quorate") }, "Service", Fail,
			"no such Service: quorate-system/quorate", "quorate install", nil},
		{"another port", func(w *installation) {
			w.object(quorate, "Service",
				"quorate")["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"] = 80
		}, "Service", Fail, "port 443, which the Service", "quorate install", nil},
		{"no pod ready", func(w *installation) { w.lose(quorate, "Pod", ""); w.lose(quorate, "Pod", "") }, "Service",
			Fail, "no pod behind", "describe pods", nil},
		{"no NetworkPolicy", func(w *installation) { w.lose(quorate, "NetworkPolicy", "quorate") }, "NetworkPolicy",
			Warn, "every pod in the cluster can reach the hooks", "quorate install", nil},
		{"a NetworkPolicy for another", func(w *installation) {
			rule := within(w.object(quorate, "NetworkPolicy", "quorate"), "spec")["ingress"].([]any)[0].(map[string]any)
			set(rule["from"].([]any)[0].(map[string]any), "mc", "namespaceSelector", "matchLabels",
				"kubernetes.io/metadata.name")
		}, "NetworkPolicy", Fail, "does not allow namespace metacontroller", "quorate install", nil},
	})
	for _, own := range []string{"devel", "v0.1.0-12-gabc"} {
		built := good(t)
		built.options.Version = own
		assert.Equal(t, OK, built.judged()["QuorateVersion"].State)
		assert.Contains(t, built.judged()["QuorateVersion"].Found, "is not a release")
	}
}

// bearer makes it the installation for Metacontroller 4.16.
func (w *installation) bearer() {
	ca := within(w.answers[trusted], "data")["ca.crt"]
	w.answers[trusted] = map[string]any{}
	image("metacontrollerio/metacontroller:v4.17.2")(w)
	w.add(secrets, map[string]any{"kind": "Secret", "metadata": map[string]any{"name": forCaller},
		"data": encoded(map[string]string{"token": "TOKEN"})})
	w.hooked(func(h map[string]any) {
		h["url"] = strings.Replace(h["url"].(string), "quorate:TOKEN@", "", 1)
		h["caBundle"] = map[string]any{"inline": ca}
		h["authorization"] = map[string]any{"secretRef": map[string]any{"name": forCaller,
			"namespace": "quorate-system", "key": "token"}}
	})
}

func TestTrust(t *testing.T) {
	mount := func(w *installation) map[string]any { return container(w.runs()) }
	test(t, []broken{
		{"plain HTTP", func(w *installation) {
			w.hooked(func(h map[string]any) { h["url"] = strings.Replace(h["url"].(string), "https://", "http://", 1) })
			w.object(quorate, "Service",
				"quorate")["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"] = 80
		}, "Certificate", Warn, "hooks are plain HTTP", "quorate install", []string{"Trust"}},
		{"half of them plain", func(w *installation) {
			h := within(w.controller(), "spec", "hooks", "sync", "webhook")
			h["url"] = strings.Replace(h["url"].(string), "https://quorate:TOKEN@quorate.quorate-system.svc",
				"http://quorate:TOKEN@quorate.quorate-system.svc:443", 1)
		}, "Certificate", Fail, "1 of 15 hooks are called by plain HTTP", "quorate install", []string{"Trust"}},
		{"no Secret", func(w *installation) { w.answers[secrets] = map[string]any{"items": []any{}} }, "Certificate",
			Fail, "no such Secret: quorate-system/quorate-hooks", "quorate install", []string{"Trust", "Token"}},
		{"another name", func(w *installation) { w.certify("quorate.elsewhere.svc", noon.AddDate(10, 0, 0)) },
			"Certificate", Fail, "for quorate.elsewhere.svc, and the hooks are called as quorate.quorate-system.svc",
			"make another", nil},
		{"expired", func(w *installation) { w.certify("quorate.quorate-system.svc", noon.AddDate(0, 0, -1)) },
			"Certificate", Fail, "it has expired on 2026-11-21", "make another", nil},
		{"expires soon", func(w *installation) { w.certify("quorate.quorate-system.svc", noon.AddDate(0, 0, 20)) },
			"Certificate", Warn, "it expires on 2026-12-12", "make another", nil},
		{"another key", func(w *installation) {
			set(w.object(secrets, "Secret", forHooks), "", "data", "tls.key")
		}, "Certificate", Fail, "no certificate and its private key", "make another", nil},
		{"another authority", func(w *installation) {
			other := good(w.t)
			within(w.answers[trusted], "data")["ca.crt"] = within(other.answers[trusted], "data")["ca.crt"]
		}, "Trust", Fail, "the authority in the ConfigMap metacontroller/quorate-hook-ca has not signed the hooks' " +
			"certificate", "rollout restart statefulset/metacontroller", nil},
		{"no ConfigMap", func(w *installation) { w.answers[trusted] = map[string]any{} }, "Trust", Fail,
			"nor is there a ConfigMap metacontroller/quorate-hook-ca", "quorate install", nil},
		{"not mounted", func(w *installation) { delete(mount(w), "volumeMounts") }, "Trust", Fail,
			"where SSL_CERT_DIR points", "docs/explanation/security.md", nil},
		{"not named", func(w *installation) { delete(mount(w), "env") }, "Trust", Fail, "SSL_CERT_DIR",
			"upgrade Metacontroller", nil},
		{"not read since it changed", func(w *installation) {
			set(w.answers[trusted], []any{map[string]any{"manager": "kubectl",
				"time": noon.Format("2006-01-02T15:04:05Z07:00")}}, "metadata", "managedFields")
		}, "Trust", Fail, "reads the ConfigMap quorate-hook-ca once, which has changed at 2026-11-22T12:00:00Z",
			"rollout restart statefulset/metacontroller", nil},
		{"what an older one does not read", func(w *installation) {
			w.bearer()
			image("metacontrollerio/metacontroller:v1.5.20")(w)
		}, "Trust", Fail, "which Metacontroller 1.5.20 does not read", "--metacontroller-version=1.5", nil},
		{"another authority in the caBundle", func(w *installation) {
			other := good(w.t)
			w.bearer()
			w.hooked(func(h map[string]any) {
				within(h, "caBundle")["inline"] = within(other.answers[trusted], "data")["ca.crt"]
			})
		}, "Trust", Fail, "the authority in the caBundle of the CompositeControllers has not signed", "quorate install",
			nil},
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
			c["env"] = slices.DeleteFunc(c["env"].([]any),
				func(e any) bool { return e.(map[string]any)["name"] == "QUORATE_TOKEN_FILE" })
		}, "Token", Warn, "Quorate asks for none", "docs/explanation/security.md", nil},
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
		{"no status", unlooked, "Asked", Fail, "Metacontroller does not call, or its calls fail: no status has ",
			"kubectl -n metacontroller logs statefulset/metacontroller", nil},
		{"no status and a log", func(w *installation) {
			unlooked(w)
			w.log = "I1122 hello\n" + oldLog + "\nI1122 bye\n"
		}, "Asked", Fail, "x509: certificate signed by unknown authority", "logs", nil},
		{"calls that fail", func(w *installation) { w.log = newLog }, "Asked", Warn,
			"calls have failed in the last five minutes; the last error in its log: failed to sync EtcdCluster " +
				"'shop/orders': sync hook failed: remote error: no token", "if it continues", nil},
		{"a log that may not be read", func(w *installation) { w.refused[log] = Answer{Err: "no", Forbidden: true} },
			"Asked", Unknown, "you may not list pods, and get pods/log, in namespace metacontroller",
			"ask your Kubernetes administrator", nil},
	})
	routine := good(t)
	routine.log = `E1122 1 controller.go:270] failed to sync EtcdCluster "shop/orders": can't update status: the object has been modified; please apply your changes`
	assert.Equal(t, OK, routine.judged()["Asked"].State)
	young := good(t)
	unlooked(young)
	set(young.object(clusters, "EtcdCluster", ""), noon.Format("2006-01-02T15:04:05Z07:00"), "metadata",
		"creationTimestamp")
	assert.Equal(t, OK, young.judged()["Asked"].State)
	long := good(t)
	long.log = oldLog + strings.Repeat(" and so on", 100)
	assert.Less(t, len(long.judged()["Asked"].Found), 400)
}
