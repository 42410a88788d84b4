package check

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGood: where everything fits, every check says so, and advises nothing.
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
		{"an old Kubernetes", says("v1.28.15-gke.1"), "Kubernetes", Fail, "1.28.15; Quorate's kinds need 1.29",
			"upgrade Kubernetes", nil},
		{"a Kubernetes without policies", says("v1.29.9"), "Kubernetes", Warn,
			"1.29.9 has no ValidatingAdmissionPolicies", "1.30", nil},
		{"a strange Kubernetes", says("unknown"), "Kubernetes", Warn, `reports "unknown"`, "1.29 or later", nil},
		{"no default class", func(w *installation) { w.answers[classes] = map[string]any{"items": []any{}} },
			"StorageClass", Warn, "no default", "storageClassName", nil},
		{"no policies", func(w *installation) {
			w.lose(policies, "ValidatingAdmissionPolicyBinding", "quorate-retention")
		}, "Installed", Warn,
			"there is no ValidatingAdmissionPolicyBinding/quorate-retention", "apply them", nil},
		{"cert-manager named and not there", func(w *installation) { w.ruleForCertificates() }, "CertManager", Fail,
			"it has stopped", "install cert-manager", nil},
		{"cert-manager wanted and not named", func(w *installation) {
			set(w.object(clusters, "EtcdCluster", ""), "CertManager", "spec", "tls", "mode")
		}, "CertManager", Fail, "no rule for them", "quorate install --cert-manager", nil},
		{"HostPath where it is forbidden", func(w *installation) {
			c := w.object(clusters, "EtcdCluster", "")
			set(c, "HostPath", "spec", "storage", "medium")
			set(w.object(namespaces, "Namespace", within(c, "metadata")["namespace"].(string)), "baseline", "metadata",
				"labels", "pod-security.kubernetes.io/enforce")
		}, "PodSecurity", Fail, "its namespace enforces baseline", "pod-security.kubernetes.io/enforce=privileged",
			nil},
	})
	hosts := func(spec string) func(w *installation) {
		return func(w *installation) {
			pod := w.object(apiServers, "Pod", "")
			container := within(pod, "spec")["containers"].([]any)[0].(map[string]any)
			container["command"] = []any{"kube-apiserver", "--etcd-servers=https://10.0.0.9:2379,https://10.0.0.1:4379"}
			c := w.object(clusters, "EtcdCluster", "")
			set(c, []any{"https://10.0.0.1:4379"}, "status", "connection", "endpoints")
			set(c, spec != "", "spec", "selfHosted")
			if spec == "hostNetwork" {
				set(c, map[string]any{}, "spec", "hostNetwork")
			}
		}
	}
	test(t, []broken{
		{"an API server's own etcd, unprotected", hosts(""), "SelfHosted", Fail, "may be paused, restored and deleted",
			`"selfHosted":true`, nil},
		{"an API server's own etcd behind kube-proxy", hosts("selfHosted"), "SelfHosted", Warn, "without kube-proxy",
			"spec.hostNetwork", nil},
		{"an API server that does not know every node", func(w *installation) {
			hosts("hostNetwork")(w)
			nodes := []any{map[string]any{"name": "a", "address": "10.0.0.1"}, map[string]any{"name": "b",
				"address": "10.0.0.4"}}
			set(w.object(clusters, "EtcdCluster", ""), map[string]any{"clientPort": int64(4379), "nodes": nodes}, "spec",
				"hostNetwork")
		}, "SelfHosted", Fail, "where its members may be next", "https://10.0.0.4:4379", nil},
		{"the hosts' network where it is forbidden", func(w *installation) {
			hosts("hostNetwork")(w)
			c := w.object(clusters, "EtcdCluster", "")
			set(w.object(namespaces, "Namespace", within(c, "metadata")["namespace"].(string)), "baseline", "metadata",
				"labels", "pod-security.kubernetes.io/enforce")
		}, "PodSecurity", Fail, "is on the hosts' network, and its namespace enforces baseline", "privileged", nil},
	})
	newer := good(t)
	says("v1.40.0")(newer)
	assert.Contains(t, newer.judged()["Kubernetes"].Found, "newer than 1.36")
	assert.Equal(t, OK, newer.judged()["Kubernetes"].State)
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
					assert.Contains(t, f.Do, "ask your Kubernetes administrator for the right to ", name)
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
	assert.Equal(t, Finding{Name: "Kubernetes", State: Fail, Found: "connection refused; see `kubectl config " +
		"current-context`"}, all[0])
	assert.False(t, Fine(all))
}

// TestNonsense: what can't be understood is said to be so.
func TestNonsense(t *testing.T) {
	w := good(t)
	w.refused[controllers] = Answer{Out: []byte("<html>")}
	f := w.judged()["Installed"]
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

// TestAdviceKeepsTheSettings: the command that is advised does not change what Quorate looks after, nor its images.
func TestAdviceKeepsTheSettings(t *testing.T) {
	w := good(t)
	c := container(w.deployment())
	for name, value := range map[string]string{"QUORATE_NAMESPACES": "shop,till", "QUORATE_SELECTOR": "shard=a",
		"QUORATE_ETCD_REPOSITORY": "mirror/etcd"} {
		c["env"] = slices.DeleteFunc(c["env"].([]any), func(e any) bool { return e.(map[string]any)["name"] == name })
		c["env"] = append(c["env"].([]any), map[string]any{"name": name, "value": value})
	}
	set(w.controller(), "quorate-etcdcluster-a", "metadata", "name")
	advice := See(w.options, w.said()).install()
	for _, flag := range []string{" --namespaces=shop,till", " --selector='shard=a'",
		" --etcd-repository=mirror/etcd", " --name=a"} {
		assert.Contains(t, advice, flag)
	}
	plain := See(good(t).options, good(t).said()).install()
	for _, flag := range []string{"--namespaces", "--selector", "--etcd-repository", "--name"} {
		assert.NotContains(t, plain, flag)
	}
}

// TestInstallingAgainKeepsSizes: the flags for what has more or less than the manifests are in the advice, too.
func TestInstallingAgainKeepsSizes(t *testing.T) {
	w := good(t)
	set(w.deployment(), 4, "spec", "replicas")
	set(container(w.deployment()), "512Mi", "resources", "limits", "memory")
	assert.Contains(t, See(w.options, w.said()).install(),
		" --metacontroller-version=1.5 --replicas=4 --memory=512Mi --apply", "those of others are not ours to set")

	w = good(t)
	w.itsOwn()
	c := container(w.object(metacontroller, "Deployment", "metacontroller"))
	set(c, "1Gi", "resources", "limits", "memory")
	c["args"] = []any{"--workers=100", "--client-go-qps=200", "--client-go-burst=400"}
	assert.Contains(t, See(w.options, w.said()).install(),
		"quorate install --metacontroller-workers=100 --metacontroller-qps=200 --metacontroller-memory=1Gi --apply")
}

// TestWhatIsAllowedNeedsNoPolicy: an installation with --shared-issuers has no policy against them, and installing
// again keeps what it allows.
func TestWhatIsAllowedNeedsNoPolicy(t *testing.T) {
	w := good(t)
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		w.lose(policies, kind, "quorate-shared-issuers")
	}
	f := w.judged()["Installed"]
	assert.Equal(t, Warn, f.State)
	assert.Contains(t, f.Found, "quorate-shared-issuers")
	assert.NotContains(t, f.Do, "--shared-issuers")

	c := container(w.deployment())
	c["env"] = append(c["env"].([]any), map[string]any{"name": "QUORATE_SHARED_ISSUERS", "value": "true"},
		map[string]any{"name": "QUORATE_ALLOWED_ETCD_ENDPOINTS", "value": "10.1.0.0/16"})
	assert.Equal(t, OK, w.judged()["Installed"].State)
	w.lose(policies, "ValidatingAdmissionPolicy", "quorate-deletion-protection")
	assert.Contains(t, w.judged()["Installed"].Do, " --allowed-etcd-endpoints=10.1.0.0/16 --shared-issuers --apply")
}
