package manifests

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

// ways are those that quorate install knows apart: with a Metacontroller of its own, and for others that are there,
// of these versions.
var ways = []string{own, existing + "4.16", existing + "4.0", existing + "1.5.20"}

const (
	own      = ""
	existing = "--metacontroller-namespace=metacontroller --metacontroller-version="
)

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "quorate")
	if err != nil {
		return "", err
	}
	built = dir
	file := filepath.Join(dir, "quorate")
	build := exec.Command("go", "build", "-o", file, ".")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
})

// built is the folder of the binary, if a test needed it.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// install is what quorate install prints, by "Kind/name".
func install(t *testing.T, args ...string) map[string][]byte {
	t.Helper()
	file, err := binary()
	must(t, err)
	out, err := exec.Command(file, append([]string{"install"}, strings.Fields(strings.Join(args, " "))...)...).Output()
	must(t, err)
	objects := map[string][]byte{}
	for document := range strings.SplitSeq(strings.TrimPrefix(string(out), "---\n"), "\n---\n") {
		o := parse(t, document)
		objects[o["kind"].(string)+"/"+o["metadata"].(map[string]any)["name"].(string)] = []byte(document)
	}
	return objects
}

// everything that a user may apply, by a name for it.
func everything(t *testing.T) map[string]map[string][]byte {
	t.Helper()
	all := map[string]map[string][]byte{}
	for _, dir := range kustomizations(t) {
		all[dir] = render(t, dir)
	}
	for _, way := range ways {
		all["install "+way] = install(t, way)
	}
	return all
}

// TestInstallIsTheBase: except what is named here, quorate install prints what kubectl apply -k applies:
// manifests/crds and manifests/default, or for a Metacontroller that is there, Quorate's kinds and
// manifests/without-metacontroller.
func TestInstallIsTheBase(t *testing.T) {
	controller := func(o map[string]any) {
		delete(within(o, "metadata"), "annotations")
		for _, hook := range within(o, "spec", "hooks") {
			for _, field := range []string{"url", "caBundle", "authorization"} {
				delete(within(hook.(map[string]any), "webhook"), field)
			}
		}
	}
	knownVersion := false // of Metacontroller, to a folder of manifests
	differ := map[string]func(o map[string]any){
		"CompositeController/quorate-etcdcluster":          controller,
		"CompositeController/quorate-etcdsnapshot":         controller,
		"CompositeController/quorate-etcdoperation":        controller,
		"CompositeController/quorate-etcdmirror":           controller,
		"CompositeController/quorate-etcdsnapshotschedule": controller,
		"Deployment/quorate": func(o map[string]any) {
			template := within(o, "spec", "template")
			delete(within(template, "metadata"), "annotations")
			spec := within(template, "spec")
			delete(spec, "volumes")
			delete(within(spec, "securityContext"), "fsGroup")
			c := spec["containers"].([]any)[0].(map[string]any)
			delete(c, "volumeMounts")
			c["env"] = slices.DeleteFunc(c["env"].([]any), func(e any) bool {
				name := e.(map[string]any)["name"].(string)
				return strings.HasPrefix(name, "QUORATE_TLS_") || name == "QUORATE_TOKEN_FILE" ||
					name == "QUORATE_RECORD_KEYS" || name == "QUORATE_METACONTROLLER_VERSION" && !knownVersion
			})
			slices.SortFunc(c["env"].([]any), func(a, b any) int {
				return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
			})
		},
		"Service/quorate": func(o map[string]any) {
			port := within(o, "spec")["ports"].([]any)[0].(map[string]any)
			delete(port, "name")
			delete(port, "port")
		},
	}
	forBearer := []string{"Role/quorate-caller", "RoleBinding/quorate-caller", "Secret/quorate-caller",
		"Secret/quorate-hooks"}
	forOld := []string{"ConfigMap/quorate-hook-ca", "Secret/quorate-hooks"}
	for _, way := range ways {
		base, added := render(t, "crds"), forOld
		folder := "without-metacontroller"
		if knownVersion = way == own; knownVersion {
			folder = "default"
		} else {
			maps.DeleteFunc(base, func(name string, _ []byte) bool {
				return strings.HasSuffix(name, ".metacontroller.k8s.io")
			})
		}
		if way == own || way == existing+"4.16" {
			added = forBearer
		}
		maps.Copy(base, render(t, folder))
		printed := install(t, way)
		if got, want := slices.Sorted(maps.Keys(printed)),
			slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(base)), added))); !slices.Equal(got,
			want) {
			t.Errorf("install %s: %v, not %v", way, got, want)
		}
		for name, text := range base {
			got, want := parse(t, string(printed[name])), parse(t, string(text))
			if expected := differ[name]; expected != nil {
				expected(got)
				expected(want)
			}
			if !equality.Semantic.DeepEqual(got, want) {
				g, _ := yaml.Marshal(got)
				w, _ := yaml.Marshal(want)
				t.Errorf("%s by install %s differs:\n%s\nfrom manifests/%s:\n%s", name, way, g, folder, w)
			}
		}
	}
}

// TestKindsApart: no folder that has anything else has a kind, so that no kind is deleted with it.
func TestKindsApart(t *testing.T) {
	for _, dir := range kustomizations(t) {
		for name := range render(t, dir) {
			if strings.HasPrefix(name, "CustomResourceDefinition/") != (dir == "crds") {
				t.Errorf("manifests/%s has %s", dir, name)
			}
		}
	}
}

func within(o map[string]any, path ...string) map[string]any {
	for _, name := range path {
		o = o[name].(map[string]any)
	}
	return o
}

// TestInstallElsewhere: no object stays in the namespaces that are the defaults.
func TestInstallElsewhere(t *testing.T) {
	for _, way := range ways {
		way = strings.Replace(way, "=metacontroller", "=mc", 1)
		for name, text := range install(t, way, "--namespace=etcd-ops") {
			for _, left := range []string{"quorate-system", "namespace: metacontroller",
				"metadata.name: metacontroller"} {
				if strings.Contains(string(text), left) && !strings.HasPrefix(name, "CustomResourceDefinition/") {
					t.Errorf("%s by install %s still says %q:\n%s", name, way, left, text)
				}
			}
		}
	}
}

// TestNoCredentials: Quorate's pods get no credentials for the Kubernetes API, and its service account no rights, in
// whatever way it is installed; and the binary has no client that could use them.
func TestNoCredentials(t *testing.T) {
	seen := 0
	for way, objects := range everything(t) {
		for name, text := range objects {
			switch kind, _, _ := strings.Cut(name, "/"); kind {
			case "ServiceAccount":
				account := native(t, text).(*corev1.ServiceAccount)
				if account.Name == "quorate" && (account.AutomountServiceAccountToken == nil ||
					*account.AutomountServiceAccountToken) {
					t.Errorf("%s: the service account's token is mounted", way)
				}
			case "Deployment":
				if name != "Deployment/quorate" {
					continue // Metacontroller calls the API server
				}
				seen++
				noToken(t, way, native(t, text).(*appsv1.Deployment).Spec.Template.Spec)
			case "ClusterRoleBinding":
				noRights(t, way, name, native(t, text).(*rbacv1.ClusterRoleBinding).Subjects)
			case "RoleBinding":
				noRights(t, way, name, native(t, text).(*rbacv1.RoleBinding).Subjects)
			}
		}
	}
	if seen != 3+len(ways) { // base, default, without-metacontroller, and each install
		t.Errorf("%d Deployments were looked at", seen)
	}

	list := exec.Command("go", "list", "-deps", ".")
	list.Dir = "../../.."
	out, err := list.Output()
	must(t, err)
	for dependency := range strings.Lines(string(out)) {
		for _, client := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "k8s.io/kubectl",
			"k8s.io/cli-runtime"} {
			if strings.HasPrefix(dependency, client) {
				t.Errorf("the binary has a client of the Kubernetes API: %s", dependency)
			}
		}
	}
}

// ofTraces: of the Secret for traces, which need not be there, the collector's authority and no more is a file.
func ofTraces(s *corev1.SecretVolumeSource) bool {
	return s.SecretName == "quorate-traces" && *s.Optional && len(s.Items) == 1 && s.Items[0].Key == "CA"
}

func noToken(t *testing.T, way string, pod corev1.PodSpec) {
	t.Helper()
	if pod.ServiceAccountName != "quorate" || pod.AutomountServiceAccountToken == nil ||
		*pod.AutomountServiceAccountToken {
		t.Errorf("%s: the pods of %q have its token mounted", way, pod.ServiceAccountName)
	}
	for _, volume := range pod.Volumes {
		if s := volume.Secret; s == nil || s.SecretName != "quorate-hooks" && !ofTraces(s) {
			t.Errorf("%s: volume %s is none that the server needs", way, volume.Name)
		}
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Errorf("%s: the pods share the node's namespaces", way)
	}
}

func noRights(t *testing.T, way, binding string, subjects []rbacv1.Subject) {
	t.Helper()
	for _, s := range subjects {
		if s.Kind != "ServiceAccount" || s.Name != "metacontroller" {
			t.Errorf("%s: %s gives rights to %s %s", way, binding, s.Kind, s.Name)
		}
	}
}

// TestWhoReaches: Metacontroller reaches the hooks' port and no other; scrapers reach the metrics' port and no other;
// the kubelet's probes are where no secret is needed.
func TestWhoReaches(t *testing.T) {
	for way, objects := range everything(t) {
		text := objects["NetworkPolicy/quorate"]
		if text == nil {
			continue
		}
		var reached []string
		for _, rule := range native(t, text).(*networkingv1.NetworkPolicy).Spec.Ingress {
			for _, peer := range rule.From {
				for _, port := range rule.Ports {
					who := "namespace " + peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
					if len(peer.NamespaceSelector.MatchLabels) == 0 {
						t.Errorf("%s: pods of every namespace are let in", way)
					}
					if peer.PodSelector != nil && who == "namespace " {
						who = fmt.Sprint(peer.PodSelector.MatchLabels)
					} else if peer.PodSelector != nil {
						who = fmt.Sprint(peer.PodSelector.MatchLabels, " of ", who)
					}
					reached = append(reached, who+" -> "+port.Port.String())
				}
			}
		}
		want := []string{"namespace metacontroller -> hooks", "map[quorate.dev/scrape:true] -> metrics"}
		if slices.Contains([]string{"base", "default", "install " + own}, way) {
			want[0] = "map[app.kubernetes.io/name:metacontroller] of namespace quorate-system -> hooks"
		}
		if !slices.Equal(reached, want) {
			t.Errorf("%s: %v", way, reached)
		}
		c := native(t, objects["Deployment/quorate"]).(*appsv1.Deployment).Spec.Template.Spec.Containers[0]
		for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
			if probe.HTTPGet.Port.String() != "metrics" || probe.HTTPGet.Scheme == corev1.URISchemeHTTPS {
				t.Errorf("%s: the probe %v", way, probe.HTTPGet)
			}
		}
	}
}
