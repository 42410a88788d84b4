package manifests

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

const chart = root + "/chart"

// helm renders the chart, and returns its objects by "Kind/namespace/name", or what helm says against it.
func helm(t *testing.T, args ...string) (map[string]map[string]any, error) {
	t.Helper()
	return helmAs(t, "quorate", args...)
}

func helmAs(t *testing.T, release string, args ...string) (map[string]map[string]any, error) {
	t.Helper()
	command := exec.Command("../../../bin/helm",
		append([]string{"template", release, chart, "--kube-version=1.36", "--include-crds"}, args...)...)
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	return byName(t, string(out)), nil
}

func rendered(t *testing.T, args ...string) map[string]map[string]any {
	t.Helper()
	objects, err := helm(t, args...)
	must(t, err)
	return objects
}

// printed is what quorate install prints, by the same names.
func printed(t *testing.T, args ...string) map[string]map[string]any {
	t.Helper()
	file, err := binary()
	must(t, err)
	out, err := exec.Command(file, append([]string{"install"}, args...)...).Output()
	must(t, err)
	return byName(t, string(out))
}

func byName(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	objects := map[string]map[string]any{}
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		o := parse(t, document)
		if o["kind"] == nil {
			continue
		}
		meta := within(o, "metadata")
		namespace, _ := meta["namespace"].(string)
		name := fmt.Sprint(o["kind"], "/", namespace, "/", meta["name"])
		if objects[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		objects[name] = o
	}
	return objects
}

// withoutCredentials takes from an object what is another one in each installation.
func withoutCredentials(o map[string]any) {
	switch o["kind"] {
	case "Secret", "ConfigMap":
		for key := range within(o, "data") {
			within(o, "data")[key] = "made"
		}
	case "Deployment":
		if annotations, _ := within(o, "spec", "template",
			"metadata")["annotations"].(map[string]any); annotations != nil {
			annotations["quorate.dev/certificate"] = "made"
		}
	case "CompositeController":
		within(o, "metadata", "annotations")["quorate.dev/credentials"] = "made"
		for _, hook := range within(o, "spec", "hooks") {
			webhook := within(hook.(map[string]any), "webhook")
			if webhook["caBundle"] != nil {
				within(webhook, "caBundle")["inline"] = "made"
			}
			if scheme, rest, found := strings.Cut(webhook["url"].(string), "quorate:"); found {
				_, host, _ := strings.Cut(rest, "@")
				webhook["url"] = scheme + "quorate:made@" + host
			}
		}
	}
}

// external is a Metacontroller that is there.
const external = "--set metacontroller.enabled=false "

// ofRelease are the labels that every object of a release has, and what quorate install prints has not. It takes them
// from an object, and from what was printed for it.
func ofRelease(t *testing.T, name string, o, printed map[string]any) {
	t.Helper()
	if name == "" || strings.HasSuffix(name, ".metacontroller.k8s.io") { // helm does not render what is in crds
		return
	}
	labels, other := within(o, "metadata", "labels"), within(printed, "metadata", "labels")
	want := map[string]any{
		"helm.sh/chart": "quorate-0.1.0", "app.kubernetes.io/instance": "quorate", "app.kubernetes.io/managed-by": "Helm",
		"app.kubernetes.io/name": "quorate", "app.kubernetes.io/version": "v0.1.0", "app.kubernetes.io/part-of": "quorate",
	}
	if other["app.kubernetes.io/name"] == "metacontroller" {
		maps.Copy(want, other)
	}
	for label, value := range want {
		if labels[label] != value {
			t.Errorf("%s: the label %s is %v, not %v", name, label, labels[label], value)
		}
		delete(labels, label)
		delete(other, label)
	}
}

// TestChartIsTheInstallation: with the same settings, helm renders what quorate install prints, except the
// namespace, which helm makes, the annotation helm.sh/resource-policy of the kinds, and labels of the release.
func TestChartIsTheInstallation(t *testing.T) {
	const existing = "--metacontroller-namespace=metacontroller "
	for flags, values := range map[string]string{
		"": "",
		"--metacontroller-version=4.18.0 --registry=registry.example:5000/mirror": "--set " +
			"metacontroller.version=4.18.0 --set registry=registry.example:5000/mirror",
		"--namespace=etcd-ops --cert-manager": "--namespace=etcd-ops --set certManager=true",
		"--name=blue --selector=a=b,c=d --namespaces=shop": "--namespace=quorate-blue --set " +
			"name=blue --set selector.a=b --set selector.c=d --set namespaces={shop}",
		"--replicas=4 --memory=512Mi --metacontroller-workers=100 --metacontroller-qps=1000 --metacontroller-memory=4Gi": "" +
			"--set replicas=4 --set resources.limits.memory=512Mi --set metacontroller.workers=100 " +
			"--set metacontroller.qps=1000 --set metacontroller.resources.limits.memory=4Gi",
		existing: external,
		existing + "--metacontroller-version=1.5.20": external + "--set metacontroller.version=1.5.20",
		existing + "--metacontroller-version=4.0":    external + "--set metacontroller.version=4.0",
		"--namespace=etcd-ops --metacontroller-namespace=mc": external +
			"--namespace=etcd-ops --set metacontroller.namespace=mc",
		existing + "--cert-manager": external + "--set certManager=true",
		"--allowed-image-repositories=r.example/etcd,mirror.example/a/": "--set " +
			"allowedImageRepositories={r.example/etcd,mirror.example/a/}",
		"--allowed-etcd-endpoints=10.1.0.0/16,.example.com,etcd.example.org --shared-issuers": "--set " +
			"allowedEtcdEndpoints={10.1.0.0/16,.example.com,etcd.example.org} --set sharedIssuers=true",
		existing + "--allowed-etcd-endpoints=fd00:1::/64 --selector=a=b": external +
			"--set allowedEtcdEndpoints={fd00:1::/64} --set selector.a=b",
		existing + "--namespaces=shop,billing": external +
			"--set namespaces={shop,billing}",
		existing + "--namespaces=shop --cert-manager --metacontroller-version=1.5": external +
			"--set namespaces={shop} --set certManager=true --set metacontroller.version=1.5",
		existing + "--registry=registry.example:5000/mirror": external +
			"--set registry=registry.example:5000/mirror",
		"--image=example.com/quorate:v9 --etcd-repository=example.com/etcd --registry=r.example": "--set " +
			"image.repository=example.com/quorate --set image.tag=v9 --set etcdRepository=example.com/etcd --set registry=r.example",
		existing + "--name=blue --selector=a=b,c=d --namespace=quorate-blue --namespaces=shop": external +
			`--set name=blue --set selector.a=b --set selector.c=d --namespace=quorate-blue --set namespaces={shop}`,
	} {
		t.Run(flags, func(t *testing.T) {
			if !strings.Contains(values, "--namespace=") {
				values = "--namespace=quorate-system " + values
			}
			want, got := printed(t, strings.Fields(flags)...), rendered(t, strings.Fields(values)...)
			maps.DeleteFunc(want, func(name string, _ map[string]any) bool {
				return strings.HasPrefix(name, "Namespace/")
			})
			if strings.Contains(values, external) { // helm leaves Metacontroller's kinds alone where they are
				maps.DeleteFunc(got, func(name string, _ map[string]any) bool {
					return strings.HasSuffix(name, ".metacontroller.k8s.io")
				})
			}
			if w, g := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(w, g) {
				t.Fatalf("helm renders\n\t%v\nand quorate install prints\n\t%v", g, w)
			}
			for name, o := range got {
				if o["kind"] == "CustomResourceDefinition" && !strings.HasSuffix(name, ".metacontroller.k8s.io") {
					annotations := within(o, "metadata", "annotations")
					if annotations["helm.sh/resource-policy"] != "keep" {
						t.Errorf("%s would be deleted with the release, and all clusters with it", name)
					}
					delete(annotations, "helm.sh/resource-policy")
				}
				ofRelease(t, name, o, want[name])
				withoutCredentials(o)
				withoutCredentials(want[name])
				if !equality.Semantic.DeepEqual(o, want[name]) {
					t.Errorf("%s: the chart and quorate install (+) differ; make generate?\n%s", name,
						cmp.Diff(o, want[name]))
				}
			}
		})
	}
}

// TestChartMonitoring: with all of it switched on, helm renders what manifests/monitoring has, in its own namespace.
func TestChartMonitoring(t *testing.T) {
	got := rendered(t, "--namespace=quorate-system", "--set",
		"monitoring.podMonitors=true,monitoring.prometheusRules=true,monitoring.dashboard=true")
	maps.DeleteFunc(got, func(name string, _ map[string]any) bool {
		return !strings.HasPrefix(name, "PodMonitor/") && !strings.HasPrefix(name, "PrometheusRule/") &&
			!strings.HasPrefix(name, "ConfigMap/")
	})
	want := render(t, "monitoring")
	if len(got) != len(want) {
		t.Errorf("helm renders %v of %d objects", slices.Sorted(maps.Keys(got)), len(want))
	}
	for name, o := range got {
		kind, rest, _ := strings.Cut(name, "/quorate-system/")
		if rest == "quorate-metacontroller" { // the manifests do not know which of two namespaces it is in
			within(o, "spec", "namespaceSelector")["matchNames"] = []any{"quorate-system", "metacontroller"}
		}
		w := parse(t, string(want[kind+"/"+rest]))
		ofRelease(t, name, o, w)
		if kind == "PrometheusRule" {
			within(o)["spec"] = everywhere(within(o, "spec"), func(text string) string {
				return strings.ReplaceAll(text, `, namespace="quorate-system"`, "")
			})
		}
		if !equality.Semantic.DeepEqual(o, w) {
			t.Errorf("%s: the chart and manifests/monitoring (+) differ; make generate?\n%s", name, cmp.Diff(o, w))
		}
	}
	moved := rendered(t, "--namespace=etcd-ops", "--set",
		"monitoring.podMonitors=true,metacontroller.enabled=false,metacontroller.namespace=mc,monitoring.labels.release=prometheus")["PodMonitor/etcd-ops/quorate-metacontroller"]
	if text, _ := yaml.Marshal(moved); !strings.Contains(string(text), "matchNames:\n    - mc\n") ||
		!strings.Contains(string(text), "release: prometheus\n") {
		t.Errorf("the monitor of a Metacontroller elsewhere:\n%s", text)
	}
}

// everywhere is a part of an object with all its texts changed.
func everywhere(part any, change func(text string) string) any {
	switch part := part.(type) {
	case map[string]any:
		for key, value := range part {
			part[key] = everywhere(value, change)
		}
	case []any:
		for n, value := range part {
			part[n] = everywhere(value, change)
		}
	case string:
		return change(part)
	}
	return part
}

// TestChartElsewhere: a release of another name in another namespace says nothing of the usual one, and its alerts
// are about its own pods.
func TestChartElsewhere(t *testing.T) {
	about := map[string]string{"quorate": "etcd-ops", "metacontroller": "mc"}
	job := regexp.MustCompile(`job="(quorate|metacontroller)"(, namespace="([^"]*)")?`)
	asked := 0
	objects, err := helmAs(t, "etcd", "--namespace=etcd-ops", "--set", "metacontroller.enabled=false,"+
		"metacontroller.namespace=mc,monitoring.podMonitors=true,monitoring.prometheusRules=true")
	must(t, err)
	for name, o := range objects {
		everywhere(o, func(text string) string {
			if strings.Contains(text, "quorate-system") {
				t.Errorf("%s: %s", name, text)
			}
			for _, m := range job.FindAllStringSubmatch(text, -1) {
				if asked++; m[3] != about[m[1]] {
					t.Errorf("%s asks for %s, not in namespace %s", name, m[0], about[m[1]])
				}
			}
			return text
		})
	}
	if asked < 6 {
		t.Errorf("only %d questions about Quorate and Metacontroller", asked)
	}
}

// TestChartVersion: the chart is of the version whose image it installs.
func TestChartVersion(t *testing.T) {
	text := fileOf(t, chart+"/Chart.yaml")
	d := native(t, render(t, "base")["Deployment/quorate"]).(*appsv1.Deployment)
	_, tag, _ := strings.Cut(d.Spec.Template.Spec.Containers[0].Image, ":")
	if c := parse(t, string(text)); c["appVersion"] != tag || "v"+c["version"].(string) != tag {
		t.Errorf("the chart is of %s and installs %s, and the manifests install %s", c["version"], c["appVersion"], tag)
	}
}

// TestChartForArtifactHub: what the chart says of itself is what it installs, and its icon is there.
func TestChartForArtifactHub(t *testing.T) {
	text := fileOf(t, chart+"/Chart.yaml")
	c := parse(t, string(text))
	const at = "https://raw.githubusercontent.com/quorate-dev/quorate/main/"
	icon := fileOf(t, "../../../"+strings.TrimPrefix(c["icon"].(string), at))
	if err := xml.Unmarshal(icon, &struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
	}{}); err != nil {
		t.Error("the icon: ", err)
	}
	listed := func(annotation string) []map[string]string {
		var all []map[string]string
		if err := yaml.UnmarshalStrict([]byte(within(c, "annotations")["artifacthub.io/"+annotation].(string)),
			&all); err != nil {
			t.Fatal(annotation, err)
		}
		return all
	}
	var kinds, want []string
	for _, k := range listed("crds") {
		kinds = append(kinds, fmt.Sprint(k["name"], " ", k["kind"], " ", k["version"]))
	}
	for name, o := range rendered(t) {
		if kind, _ := o["spec"].(map[string]any); strings.HasPrefix(name, "CustomResourceDefinition/") &&
			kind["group"] == "etcd.quorate.dev" {
			version := kind["versions"].([]any)[0].(map[string]any)["name"]
			want = append(want, fmt.Sprint(within(o, "metadata")["name"], " ", within(kind, "names")["kind"], " ",
				version))
		}
	}
	slices.Sort(want)
	if !slices.Equal(kinds, want) {
		t.Errorf("the kinds are %v, not %v", kinds, want)
	}
	for _, image := range listed("images") {
		d := rendered(t)["Deployment/default/"+image["name"]]
		if got := within(d, "spec", "template",
			"spec")["containers"].([]any)[0].(map[string]any)["image"]; got != image["image"] {
			t.Errorf("%s runs %s, not %s", image["name"], got, image["image"])
		}
	}
}

var digest = "sha256:" + strings.Repeat("0123456789abcdef", 4)

// TestChartValues: each value does what it is for, and none is left out here.
func TestChartValues(t *testing.T) {
	deployment, cluster, metacontroller := "Deployment/default/quorate", "CompositeController//quorate-etcdcluster",
		"Deployment/default/metacontroller"
	effects := map[string]struct{ set, object, want string }{
		"metacontroller.enabled": {"metacontroller.enabled=false", metacontroller, ""},
		"metacontroller.version": {"metacontroller.version=4.18.0",
			metacontroller, "image: ghcr.io/metacontroller/metacontroller:v4.18.0"},
		"metacontroller.image.repository": {"metacontroller.image.repository=r.example/mc", metacontroller,
			"image: r.example/mc:v4.17.2"},
		"metacontroller.image.tag": {"metacontroller.image.tag=ours", metacontroller,
			"image: ghcr.io/metacontroller/metacontroller:ours"},
		"metacontroller.image.digest": {"metacontroller.image.digest=" + digest, metacontroller,
			"image: ghcr.io/metacontroller/metacontroller@" + digest},
		"metacontroller.image.pullPolicy": {"metacontroller.image.pullPolicy=Always", metacontroller,
			"imagePullPolicy: Always"},
		"metacontroller.workers": {"metacontroller.workers=100", metacontroller, "--workers=100\n"},
		"metacontroller.qps": {"metacontroller.qps=1000000", metacontroller,
			"--client-go-qps=1000000\n        - --client-go-burst=2000000\n"},
		"metacontroller.namespace": {"metacontroller.enabled=false,metacontroller.namespace=mc",
			"ClusterRoleBinding//quorate-metacontroller", "namespace: mc"},
		"metacontroller.resources.requests.cpu": {"metacontroller.resources.requests.cpu=1", metacontroller, "cpu: 1"},
		"metacontroller.resources.requests.memory": {"metacontroller.resources.requests.memory=99Mi",
			metacontroller, "memory: 99Mi"},
		"metacontroller.resources.limits.memory": {"metacontroller.resources.limits.memory=1Gi",
			metacontroller, "memory: 1Gi"},
		"registry":         {"registry=r.example", deployment, "image: r.example/quorate-dev/quorate:"},
		"image.repository": {"image.repository=r.example/q", deployment, "value: r.example/q:v0.1.0"},
		"image.tag": {"image.tag=v9,image.digest=" + digest, deployment, "image: ghcr.io/quorate-dev/quorate:v9@" +
			digest},
		"image.digest":     {"registry=r.example,image.digest=" + digest, deployment, "value: r.example/quorate-dev/quorate@" + digest},
		"image.pullPolicy": {"image.pullPolicy=Never", deployment, "imagePullPolicy: Never"},
		"etcdRepository":   {"etcdRepository=r.example/etcd", deployment, "value: r.example/etcd"},
		"allowedImageRepositories": {"allowedImageRepositories={r.example/etcd,mirror.example/}",
			deployment, "QUORATE_ALLOWED_IMAGE_REPOSITORIES\n          value: mirror.example/,r.example/etcd"},
		"allowedEtcdEndpoints": {"allowedEtcdEndpoints={10.1.0.0/16,.example.com}",
			deployment, "QUORATE_ALLOWED_ETCD_ENDPOINTS\n          value: .example.com,10.1.0.0/16"},
		"sharedIssuers":    {"sharedIssuers=true", "ValidatingAdmissionPolicy//quorate-shared-issuers", ""},
		"imagePullSecrets": {"imagePullSecrets[0].name=pull", deployment, "imagePullSecrets:\n      - name: pull"},
		"crds.install":     {"crds.install=false", "CustomResourceDefinition//etcdclusters.etcd.quorate.dev", ""},
		"credentials.existingSecret": {"credentials.existingSecret=mine,credentials.ca=PEM",
			deployment, "secretName: mine"},
		"credentials.ca":      {"credentials.existingSecret=mine,credentials.ca=PEM", cluster, "inline: PEM"},
		"namespaces":          {"namespaces={shop}", deployment, "name: QUORATE_NAMESPACES\n          value: shop"},
		"selector":            {"selector.by=blue", cluster, "by: blue"},
		"name":                {"selector.by=blue,name=blue", cluster + "-blue", "kind: CompositeController"},
		"certManager":         {"certManager=true", cluster, "resource: certificates"},
		"resyncPeriodSeconds": {"resyncPeriodSeconds=60", cluster, "resyncPeriodSeconds: 60"},
		"logLevel":            {"logLevel=debug", deployment, "name: QUORATE_LOG_LEVEL\n          value: debug"},
		"verify":              {"verify=true", deployment, "name: QUORATE_VERIFY\n          value: \"true\""},
		"journal.volume":      {"journal.volume.emptyDir.sizeLimit=1Gi", deployment, "- emptyDir:\n          sizeLimit: 1Gi\n        name: journal"},
		"journal.bytes": {"journal.volume.emptyDir.medium=,journal.bytes=9000000", deployment,
			"name: QUORATE_JOURNAL_BYTES\n          value: \"9000000\""},
		"monitoring.podMonitors":     {"monitoring.podMonitors=true", "PodMonitor/default/quorate", "port: metrics"},
		"monitoring.prometheusRules": {"monitoring.prometheusRules=true", "PrometheusRule/default/quorate", "alert: "},
		"monitoring.dashboard":       {"monitoring.dashboard=true", "ConfigMap/default/quorate-dashboard", "quorate.json"},
		"monitoring.labels": {"monitoring.dashboard=true,monitoring.labels.release=x",
			"ConfigMap/default/quorate-dashboard", "release: x"},
		"replicas":                  {"replicas=3", deployment, "replicas: 3"},
		"resources.requests.cpu":    {"resources.requests.cpu=1", deployment, "cpu: 1"},
		"resources.requests.memory": {"resources.requests.memory=99Mi", deployment, "memory: 99Mi"},
		"resources.limits.memory":   {"resources.limits.memory=1Gi", deployment, "memory: 1Gi"},
		"priorityClassName":         {"priorityClassName=high", deployment, "priorityClassName: high"},
		"nodeSelector":              {"nodeSelector.role=infra", deployment, "role: infra"},
		"tolerations":               {"tolerations[0].operator=Exists", deployment, "tolerations:\n      - operator: Exists"},
		"affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution": {"affinity.nodeAffinity.x=y",
			deployment, "x: \"y\""},
	}
	text := fileOf(t, chart+"/values.yaml")
	if got, want := slices.Sorted(maps.Keys(effects)), leaves(parse(t, string(text)), ""); !slices.Equal(got, want) {
		t.Errorf("values.yaml has\n\t%v\nand here are\n\t%v", want, got)
	}
	for value, e := range effects {
		objects := rendered(t, "--set", e.set)
		o := objects[e.object]
		if e.want == "" {
			if o != nil {
				t.Errorf("%s: %s is still there", value, e.object)
			}
			continue
		}
		if out, _ := yaml.Marshal(o); !strings.Contains(string(out), e.want) {
			t.Errorf("%s: %s has no %q:\n%s", value, e.object, e.want, out)
		}
	}
}

// leaves are the names of the values, as in crds.install.
func leaves(values map[string]any, prefix string) []string {
	var all []string
	for name, value := range values {
		if deeper, is := value.(map[string]any); is && len(deeper) > 0 {
			all = append(all, leaves(deeper, prefix+name+".")...)
			continue
		}
		all = append(all, prefix+name)
	}
	slices.Sort(all)
	return all
}

// TestChartRefuses: a wrong value is refused before anything is installed, with its name.
func TestChartRefuses(t *testing.T) {
	for set, want := range map[string]string{
		"replica=3":                                    "replica",
		"replicas=0":                                   "replicas",
		"replicas=two":                                 "replicas",
		"--set-json metacontroller.version=4.16":       "metacontroller/version", // a number
		"metacontroller.version=newest":                "metacontroller/version",
		"image=example.com/quorate:v9":                 "got string, want object",
		"image.repository=https://example.com/quorate": "image/repository",
		"image.tag=v9@sha256:0":                        "image/tag",
		"image.digest=0123":                            "image/digest",
		"image.pullPolicy=Often":                       "image/pullPolicy",
		"metacontroller.workers=0":                     "metacontroller/workers",
		"goMemoryLimit=100MiB":                         "goMemoryLimit",
		"registry=registry.example/":                   "registry",
		"etcdRepository=example.com/etcd:v3":           "etcdRepository",
		"allowedImageRepositories={https://r.example}": "allowedImageRepositories",
		"allowedEtcdEndpoints={*}":                     "allowedEtcdEndpoints",
		"allowedEtcdEndpoints={10.1.2.3}":              "allowedEtcdEndpoints",
		"allowedEtcdEndpoints={former.shop.svc}":       "can't be allowed by name",
		"namespaces=shop":                              "namespaces",
		"namespaces={Shop}":                            "namespaces",
		"logLevel=verbose":                             "logLevel",
		"resyncPeriodSeconds=0":                        "resyncPeriodSeconds",
		"name=blue":                                    "name needs selector",
		"metacontroller.version=1.5.20":                "metacontroller.enabled needs metacontroller.version 4.16.0 or later, not 1.5.20",
		"metacontroller.version=4.17":                  "needs a whole metacontroller.version",
		"metacontroller.image.repository=r/mc:v1":      "metacontroller/image/repository",
		"metacontroller.enabled=false,selector.a=b,metacontroller.version=1.5.20":                                     "selector needs metacontroller.version 4.16",
		"credentials.existingSecret=mine":                                                                             "set credentials.ca",
		"metacontroller.enabled=false,credentials.existingSecret=mine,metacontroller.version=1.5.20,credentials.ca=x": "needs its token in the URLs",
	} {
		args := []string{"--set", set}
		if strings.HasPrefix(set, "--") {
			args = strings.Fields(set)
		}
		_, err := helm(t, args...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not refused with %q but: %v", set, want, err)
		}
	}
}

// TestChartCredentials: the parts of one rendering fit each other and the host, and quorate install could keep them.
func TestChartCredentials(t *testing.T) {
	objects := rendered(t, "--namespace=etcd-ops")
	secret := func(name string) map[string][]byte {
		text, _ := yaml.Marshal(objects["Secret/etcd-ops/"+name])
		return native(t, text).(*corev1.Secret).Data
	}
	hooks, caller := secret("quorate-hooks"), secret("quorate-caller")
	if token := strings.TrimSpace(string(hooks["tokens"])); len(token) != 43 || token != string(caller["token"]) {
		t.Errorf("the server knows %d letters of a token, Metacontroller sends %d", len(token), len(caller["token"]))
	}
	roots := x509.NewCertPool()
	inline := within(objects["CompositeController//quorate-etcdcluster"], "spec", "hooks", "sync", "webhook",
		"caBundle")["inline"].(string)
	roots.AppendCertsFromPEM([]byte(inline))
	block, _ := pem.Decode(hooks["tls.crt"])
	certificate, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: "quorate.etcd-ops.svc"}); err != nil {
		t.Error(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(hooks["tls.crt"]))[:16]
	if got := within(objects["Deployment/etcd-ops/quorate"], "spec", "template", "metadata",
		"annotations")["quorate.dev/certificate"]; got != sum {
		t.Errorf("the pods' annotation is %v, and the certificate's sum %s", got, sum)
	}
	file, err := binary()
	must(t, err)
	keep := exec.Command(file, "install", "--namespace=etcd-ops", "--keep=-")
	text, _ := yaml.Marshal(objects["Secret/etcd-ops/quorate-hooks"])
	keep.Stdin = bytes.NewReader(text)
	out, err := keep.Output()
	if err != nil {
		t.Fatal("quorate install does not take the chart's credentials: ", err)
	}
	if kept := base64.StdEncoding.EncodeToString(hooks["tls.key"]); !strings.Contains(string(out), kept) {
		t.Error("quorate install --keep has not kept them")
	}
}

// TestChartReadmes: the README of a package is read elsewhere, where nothing is beside it. Its maintainers are named.
func TestChartReadmes(t *testing.T) {
	for _, folder := range []string{chart, clusterChart} {
		for _, m := range regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(string(fileOf(t, folder+"/README.md")),
			-1) {
			if !strings.HasPrefix(m[1], "https://") && !strings.HasPrefix(m[1], "#") {
				t.Errorf("%s/README.md leads to %s", folder, m[1])
			}
		}
		if c := parse(t, string(fileOf(t, folder+"/Chart.yaml"))); c["maintainers"] == nil {
			t.Errorf("%s names no maintainers", folder)
		}
	}
}

// clusters renders the chart of one cluster, below another one if above is a folder.
func clusters(t *testing.T, release, chart string, args ...string) (map[string]map[string]any, string) {
	t.Helper()
	out, err := exec.Command("../../../bin/helm", append([]string{"template", release, chart, "--kube-version=1.36",
		"--namespace=team"}, args...)...).CombinedOutput()
	if err != nil {
		return nil, string(out)
	}
	return byName(t, string(out)), ""
}

// TestChartOfACluster: what it renders is what the API server takes, under the name that Bitnami's chart gives.
func TestChartOfACluster(t *testing.T) {
	hourly := `schedules={"hourly":{"schedule":"0 * * * *","template":{"spec":{"store":{"claim":{"name":"backups"}}}}}}`
	below := above(t, "{name: etcd-cluster, version: 0.1.0}")
	twice := above(t, "{name: etcd-cluster, version: 0.1.0, alias: orders}, "+
		"{name: etcd-cluster, version: 0.1.0, alias: sessions}")
	for _, c := range []struct {
		release, chart, prefix, name string
		args                         []string
	}{
		{"shop", clusterChart, "", "shop-etcd", nil},
		{"my-etcd", clusterChart, "", "my-etcd", []string{"--set", "labels.team=shop", "--set", "annotations.of=it"}},
		{"shop", clusterChart, "", "other", []string{"--set", "fullnameOverride=other"}},
		{"shop", below, "etcd-cluster.", "shop-etcd", nil},
		{"shop", twice, "orders.", "shop-orders", nil},
		{"shop", twice, "sessions.", "shop-sessions", nil},
	} {
		objects, refused := clusters(t, c.release, c.chart, append(c.args, "--set-json", c.prefix+hourly,
			"--set", c.prefix+"spec.options.quotaBackendBytes=134217728")...)
		if refused != "" {
			t.Fatal(refused)
		}
		for kind, name := range map[string]string{"EtcdCluster": c.name, "EtcdSnapshotSchedule": c.name + "-hourly"} {
			object, judge := objects[kind+"/team/"+name], kindOf(t, kind)
			if object == nil {
				t.Fatalf("%v has no %s %s: %v", c, kind, name, objects)
			}
			if fields := judge.unknown(object); len(fields) > 0 {
				t.Errorf("unknown fields: %v", fields)
			}
			if errs := judge.admit(object, nil); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		}
		for name, o := range objects {
			labels := within(o, "metadata", "labels")
			for label, want := range map[string]string{"helm.sh/chart": "-0.1.0", "app.kubernetes.io/name": "etcd",
				"app.kubernetes.io/instance": c.release, "app.kubernetes.io/version": "3.6.16",
				"app.kubernetes.io/managed-by": "Helm"} {
				if got, _ := labels[label].(string); !strings.HasSuffix(got, want) {
					t.Errorf("%s: the label %s is %q, not %q", name, label, got, want)
				}
			}
		}
		of := within(objects["EtcdSnapshotSchedule/team/"+c.name+"-hourly"], "spec", "template", "spec", "clusterRef")
		if of["name"] != c.name {
			t.Errorf("the schedule is for %v", of)
		}
	}
}

// above is a chart with these dependencies, which are all the chart of a cluster, and with global values.
func above(t *testing.T, dependencies string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [" + dependencies + "]\n",
		"values.yaml": "global: {storageClass: fast}\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	must(t, os.CopyFS(dir+"/charts/etcd-cluster", os.DirFS(clusterChart)))
	return dir
}

// TestChartOfAClusterRefusesMistakes: helm says what is wrong, before anything reaches the API server.
func TestChartOfAClusterRefusesMistakes(t *testing.T) {
	for value, says := range map[string]string{
		"spec.replica=3":         "'replica' not allowed",
		"spec.replicas=12":       "maximum",
		"replicaCount=3":         "'replicaCount' not allowed",
		"spec.storage.medium=No": "/spec/storage/medium",
	} {
		_, refused := clusters(t, "shop", clusterChart, "--set", value)
		if !strings.Contains(refused, says) {
			t.Errorf("%s: %q does not say %q", value, refused, says)
		}
	}
}

const clusterChart = root + "/cluster-chart"
