package manifests

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const root = "../../../manifests"

// render builds one kustomization and returns its objects as YAML by "Kind/name".
func render(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
		filepath.Join(root, dir))
	must(t, err)
	objects := map[string][]byte{}
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		must(t, err)
		objects[resource.GetKind()+"/"+resource.GetName()] = text
	}
	return objects
}

// native reads an object of Kubernetes itself strictly.
func native(t *testing.T, text []byte) runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, admissionv1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
		rbacv1.AddToScheme,
	} {
		must(t, add(scheme))
	}
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(text,
		nil, nil)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return object
}

// kustomizations are all folders that a user may apply.
func kustomizations(t *testing.T) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "kustomization.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(text), "kind: Component") {
			dir, _ := filepath.Rel(root, filepath.Dir(path))
			dirs = append(dirs, dir)
		}
		return err
	})
	if err != nil || len(dirs) == 0 {
		t.Fatal("no kustomizations", err)
	}
	return dirs
}

// TestEverythingIsTaken: all that kustomizations render and quorate install prints are objects that the API server
// takes as they are, without unknown fields, and of workloads only what the strictest Pod Security Standard lets run.
func TestEverythingIsTaken(t *testing.T) {
	controller := newKind(t, readCRD(t,
		render(t, "crds")["CustomResourceDefinition/compositecontrollers.metacontroller.k8s.io"]))
	for where, objects := range everything(t) {
		for name, text := range objects {
			switch kind, _, _ := strings.Cut(name, "/"); kind {
			case "CustomResourceDefinition":
				newKind(t, readCRD(t, text))
			case "CompositeController":
				object := parse(t, string(text))
				if errs := controller.schemaErrors(object); len(errs) > 0 {
					t.Errorf("%s, %s: %v", where, name, errs)
				}
				if fields := controller.unknown(object); len(fields) > 0 {
					t.Errorf("%s, %s: unknown fields: %v", where, name, fields)
				}
			case "PodMonitor", "PrometheusRule": // kinds of Prometheus' operator: test/tools/monitoring
			default:
				restricted(t, where+", "+name, native(t, text))
			}
		}
	}
}

// schemaErrors is admit for a kind without CEL rules.
func (k kind) schemaErrors(object map[string]any) []string {
	var errs []string
	for _, err := range k.schema.Validate(object).Errors {
		errs = append(errs, err.Error())
	}
	return errs
}

// restricted fails the test when a workload breaks the strictest Pod Security Standard.
func restricted(t *testing.T, name string, object runtime.Object) {
	t.Helper()
	var template corev1.PodTemplateSpec
	switch o := object.(type) {
	case *appsv1.Deployment:
		template = o.Spec.Template
	case *appsv1.StatefulSet:
		template = o.Spec.Template
	default:
		return
	}
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	must(t, err)
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, result := range checks.EvaluatePod(level, &template.ObjectMeta, &template.Spec) {
		if !result.Allowed {
			t.Errorf("%s: not restricted: %s: %s", name, result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
}

// TestSameImage: members' pods prepare with the image that the server runs.
func TestSameImage(t *testing.T) {
	server := native(t, render(t,
		"default")["Deployment/quorate"]).(*appsv1.Deployment).Spec.Template.Spec.Containers[0]
	for _, env := range server.Env {
		if env.Name == "QUORATE_IMAGE" {
			if env.Value != server.Image {
				t.Errorf("QUORATE_IMAGE is %q, the container's image %q", env.Value, server.Image)
			}
			return
		}
	}
	t.Error("no QUORATE_IMAGE")
}

// controllerSpec is what these tests read of a CompositeController.
type controllerSpec struct {
	parent   resource
	children []resource
	urls     []string
}

type resource struct{ group, name string }

func readController(t *testing.T, text []byte) controllerSpec {
	t.Helper()
	spec := parse(t, string(text))["spec"].(map[string]any)
	read := func(rule any) resource {
		version := rule.(map[string]any)["apiVersion"].(string)
		group, _, found := strings.Cut(version, "/")
		if !found {
			group = ""
		}
		return resource{group, rule.(map[string]any)["resource"].(string)}
	}
	c := controllerSpec{parent: read(spec["parentResource"])}
	children, _ := spec["childResources"].([]any) // an EtcdOperation has none
	for _, rule := range children {
		c.children = append(c.children, read(rule))
	}
	for _, hook := range spec["hooks"].(map[string]any) {
		c.urls = append(c.urls, hook.(map[string]any)["webhook"].(map[string]any)["url"].(string))
	}
	return c
}

// TestMetacontrollerMay: the rights that we grant Metacontroller cover what it does for every CompositeController.
func TestMetacontrollerMay(t *testing.T) {
	objects := render(t, "default")
	role := native(t, objects["ClusterRole/quorate-metacontroller"]).(*rbacv1.ClusterRole)
	may := func(r resource, verbs ...string) {
		t.Helper()
		for _, verb := range verbs {
			if !slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
				return slices.Contains(rule.APIGroups, r.group) && slices.Contains(rule.Resources, r.name) &&
					slices.Contains(rule.Verbs, verb)
			}) {
				t.Errorf("Metacontroller may not %s %s", verb, r.name)
			}
		}
	}
	for name, text := range objects {
		if !strings.HasPrefix(name, "CompositeController/") {
			continue
		}
		c := readController(t, text)
		may(c.parent, "get", "list", "watch", "update") // update: the finalizer
		may(resource{c.parent.group, c.parent.name + "/status"}, "update")
		// blockOwnerDeletion, where that is enforced
		may(resource{c.parent.group, c.parent.name + "/finalizers"}, "update")
		for _, child := range c.children {
			may(child, "get", "list", "watch", "create", "update", "delete")
		}
	}
}

// TestRightsSayWhy: every rule that gives Metacontroller a right has a comment above it, and its service account has
// no other.
func TestRightsSayWhy(t *testing.T) {
	for _, file := range []string{"base/rbac-metacontroller.yaml", "metacontroller/rbac.yaml"} {
		text := fileOf(t, filepath.Join(root, file))
		lines := strings.Split(string(text), "\n")
		for n, line := range lines {
			if strings.HasPrefix(line, "- apiGroups:") && !strings.HasPrefix(lines[n-1], "# ") {
				t.Errorf("%s:%d: no comment shows why: %s", file, n+1, line)
			}
		}
	}
	var bound []string
	for name, text := range render(t, "default") {
		if strings.HasPrefix(name, "ClusterRoleBinding/") || strings.HasPrefix(name, "RoleBinding/") {
			bound = append(bound, native(t, text).(interface{ GetName() string }).GetName())
		}
	}
	slices.Sort(bound)
	if want := []string{"quorate-metacontroller", "quorate-metacontroller-core",
		"quorate-metacontroller-leader"}; !slices.Equal(bound, want) {
		t.Errorf("rights are given by %v, not %v", bound, want)
	}
}

// TestMetacontrollerServesQuorate: the label by which Metacontroller chooses is that of all CompositeControllers, and
// its flags are such that quorate check is content.
func TestMetacontrollerServesQuorate(t *testing.T) {
	objects := render(t, "default")
	d := native(t, objects["Deployment/metacontroller"]).(*appsv1.Deployment)
	args := d.Spec.Template.Spec.Containers[0].Args
	const flag = "--target-label-selector="
	i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, flag) })
	key, value, _ := strings.Cut(strings.TrimPrefix(args[i], flag), "=")
	for name, text := range objects {
		if strings.HasPrefix(name, "CompositeController/") {
			if got := within(parse(t, string(text)), "metadata", "labels")[key]; got != value {
				t.Errorf("%s has the label %s=%v, and Metacontroller looks for %s", name, key, got, value)
			}
		}
	}
	if *d.Spec.Replicas < 2 || !slices.Contains(args, "--leader-election") ||
		!slices.Contains(args, "--zap-log-level=info") {
		t.Errorf("%d replicas with %v", *d.Spec.Replicas, args)
	}
}

// TestHooksReachTheServer: the URLs name the Service, the Service the pods, the policy lets Metacontroller in. What
// quorate install prints speaks TLS.
func TestHooksReachTheServer(t *testing.T) {
	objects := render(t, "default")
	service := native(t, objects["Service/quorate"]).(*corev1.Service)
	pods := native(t, objects["Deployment/quorate"]).(*appsv1.Deployment).Spec.Template
	for key, value := range service.Spec.Selector {
		if pods.Labels[key] != value {
			t.Errorf("the Service selects %s=%s, the pods have %q", key, value, pods.Labels[key])
		}
	}
	for name, text := range objects {
		if !strings.HasPrefix(name, "CompositeController/") {
			continue
		}
		prefix := fmt.Sprintf("http://%s.%s.svc/", service.Name, service.Namespace)
		for _, url := range readController(t, text).urls {
			if !strings.HasPrefix(url, prefix) {
				t.Errorf("%s: the hook %s does not lead to the Service, %s", name, url, prefix)
			}
		}
	}
	leadsFrom := func(where string, service *corev1.Service, port int32) {
		if p := service.Spec.Ports[0]; p.Port != port || p.TargetPort.String() != "hooks" {
			t.Errorf("%s: the Service's port is %d -> %s", where, p.Port, p.TargetPort.String())
		}
	}
	leadsFrom("manifests/default", service, 80)
	for _, way := range ways {
		leadsFrom("install "+way, native(t, install(t, way)["Service/quorate"]).(*corev1.Service), 443)
	}
}

// TestPodMonitorsFindPods: what they select are the pods that we make, at a port that these have.
func TestPodMonitorsFindPods(t *testing.T) {
	quorate := native(t, render(t, "default")["Deployment/quorate"]).(*appsv1.Deployment).Spec.Template
	metacontroller := native(t, render(t, "default")["Deployment/metacontroller"]).(*appsv1.Deployment).Spec.Template
	monitors := render(t, "monitoring")
	for name, pods := range map[string]corev1.PodTemplateSpec{"quorate": quorate,
		"quorate-metacontroller": metacontroller} {
		var monitor struct {
			Spec struct {
				Selector            struct{ MatchLabels map[string]string }
				PodMetricsEndpoints []struct{ Port string }
			}
		}
		must(t, yaml.Unmarshal(monitors["PodMonitor/"+name], &monitor))
		if len(monitor.Spec.Selector.MatchLabels) == 0 || len(monitor.Spec.PodMetricsEndpoints) != 1 {
			t.Fatalf("%s selects nothing, or scrapes nothing: %+v", name, monitor)
		}
		for key, value := range monitor.Spec.Selector.MatchLabels {
			if pods.Labels[key] != value {
				t.Errorf("the PodMonitor %s selects %s=%s, the pods have %q", name, key, value, pods.Labels[key])
			}
		}
		if !slices.ContainsFunc(pods.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
			return p.Name == monitor.Spec.PodMetricsEndpoints[0].Port
		}) {
			t.Errorf("the PodMonitor %s scrapes the port %q, which the pods don't have", name,
				monitor.Spec.PodMetricsEndpoints[0].Port)
		}
	}
}

// withComponent renders manifests/default with a component, as a user's own kustomization does.
func withComponent(t *testing.T, component string) map[string]map[string]any {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs(root)
	must(t, err)
	there, err := filepath.Rel(dir, here)
	must(t, err)
	text := fmt.Sprintf("resources: [%s/default]\ncomponents: [%s/%s]\n", there, there, component)
	must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	must(t, err)
	objects := map[string]map[string]any{}
	for _, r := range built.Resources() {
		o, err := r.Map()
		must(t, err)
		objects[r.GetKind()+"/"+r.GetName()] = o
	}
	return objects
}

// TestCertManager: the component adds one kind and the right to write it, and nothing else; quorate install
// --cert-manager adds the same; and without either, cert-manager is not needed.
func TestCertManager(t *testing.T) {
	base, component, printed := render(t, "default"), withComponent(t, "components/cert-manager"),
		install(t, own, "--cert-manager")
	if got, want := slices.Sorted(maps.Keys(component)), slices.Sorted(maps.Keys(base)); !slices.Equal(got, want) {
		t.Errorf("with the component there are %v, not %v", got, want)
	}
	added := map[string]struct {
		path []string
		item string
	}{
		"CompositeController/quorate-etcdcluster": {[]string{"spec", "childResources"},
			`{apiVersion: cert-manager.io/v1, resource: certificates, updateStrategy: {method: InPlace}}`},
		"ClusterRole/quorate-metacontroller": {[]string{"rules"},
			`{apiGroups: [cert-manager.io], resources: [certificates], verbs: [get, list, watch, create, update, delete]}`},
	}
	for name, text := range base {
		o := parse(t, string(text))
		a, more := added[name]
		if more {
			within := within(o, a.path[:len(a.path)-1]...)
			last := a.path[len(a.path)-1]
			within[last] = append(within[last].([]any), any(parse(t, a.item)))
			if got := list(parse(t, string(printed[name])), a.path); !equality.Semantic.DeepEqual(got,
				list(o, a.path)) {
				t.Errorf("quorate install --cert-manager: %s has %v, not %v", name, got, list(o, a.path))
			}
		} else if strings.Contains(string(text), "cert-manager") &&
			!strings.HasPrefix(name, "CustomResourceDefinition/") &&
			name != "ValidatingAdmissionPolicy/quorate-shared-issuers" {
			t.Errorf("%s speaks of cert-manager without the component", name)
		}
		if !equality.Semantic.DeepEqual(asRead(t, component[name]), o) {
			t.Errorf("%s with the component:\n%v\nnot\n%v", name, component[name], o)
		}
	}
}

// list is the list at a path.
func list(o map[string]any, path []string) []any {
	found, _ := within(o, path[:len(path)-1]...)[path[len(path)-1]].([]any)
	return found
}

// asRead is an object with its numbers as YAML reads them.
func asRead(t *testing.T, o map[string]any) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(o)
	must(t, err)
	return parse(t, string(text))
}
