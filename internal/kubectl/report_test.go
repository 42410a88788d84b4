package kubectl

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// unpacked are the files of a bundle.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	require.NoError(t, err)
	archive := tar.NewReader(zipped)
	files := map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[strings.TrimPrefix(header.Name, "quorate-report/")] = string(content)
	}
}

const (
	// kept is in a Secret: it must not be found anywhere, whatever is around it.
	kept = `Zebra/77+"quoted" & more`
	// loose is in no Secret that can be read: it must not be found where its surroundings tell that it is one.
	loose = "LooseHippo4711xyz"
	// key is the body of a private key in PEM.
	key = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgLeakedKeyMaterial"
)

var pem = "-----BEGIN PRIVATE KEY-----\n" + key + "\n-----END PRIVATE KEY-----\n"

// traces are the forms in which any of these would be found.
func traces() []string {
	var all []string
	for _, secret := range []string{kept, loose, pem} {
		quoted, _ := json.Marshal(secret)
		all = append(all, secret, strings.Trim(string(quoted), `"`), base64.StdEncoding.EncodeToString([]byte(secret)), url.QueryEscape(secret), url.PathEscape(secret))
	}
	return append(all, key, "Zebra/77", "LooseHippo")
}

// secretive is shop/orders with secrets in every place that we can think of.
func secretive(t *testing.T) *kube {
	k := steady(t)
	within(k.cluster, "metadata", "annotations")["example.com/db-password"] = loose
	within(k.cluster, "metadata", "annotations")["example.com/note"] = "we call it " + kept
	within(k.cluster, "metadata", "annotations")["kubectl.kubernetes.io/last-applied-configuration"] = `{"password":"` +
		loose + `"}`
	within(k.cluster, "metadata")["labels"] = map[string]any{"api-key": loose}
	conditions, _ := within(k.cluster, "status")["conditions"].([]any)
	within(map[string]any{"c": conditions[1]}, "c")["message"] = "etcd says: password=" + loose + " is wrong"

	pod := k.child("Pod orders-0")
	containers, _ := within(pod, "spec")["containers"].([]any)
	container, _ := containers[0].(map[string]any)
	container["env"] = []any{
		map[string]any{"name": "DB_PASSWORD", "value": loose},
		map[string]any{"name": "HARMLESS", "value": "it is " + kept},
		map[string]any{"name": "FROM",
			"valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "reference-stays", "key": "password"}}},
	}
	container["command"] = []any{"etcd", "--password", loose, "--token=" + loose, "--initial-cluster-token=stays",
		"--url=https://user:" + loose + "@host/path", pem}
	within(pod, "status")["message"] = "Authorization: Bearer " + loose
	within(pod, "metadata", "annotations")["metacontroller.k8s.io/last-applied-configuration"] = `{"env":"` + loose +
		`"}`

	secret := map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"stringData": map[string]any{"more": loose},
		"data": map[string]any{"password": base64.StdEncoding.EncodeToString([]byte(kept)),
			"tls.key": base64.StdEncoding.EncodeToString([]byte(pem))},
		"metadata": map[string]any{"name": "orders-user.app", "namespace": "shop", "uid": "u",
			"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"x":"` +
				loose + `"}}`, "note": loose}}}
	list := string(listOf(secret))
	k.says["get secrets -l"], k.says["get secrets -n shop -o"], k.says["get secrets -n shop -l "+controllerUID] = list,
		list, list
	k.says["get secrets -l etcd.quorate.dev/cluster=orders"] = list
	config := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"},
		"data":       map[string]any{"api_key": loose, "conf": "password: " + loose + "\nuser: x\n" + pem},
		"binaryData": map[string]any{"x": base64.StdEncoding.EncodeToString([]byte(loose))}}
	k.says["get configmaps"] = string(listOf(config))
	k.says["get pods -l"] = string(listOf(k.ofKind("Pod")...))
	k.says["get pods -n"] = string(listOf(k.ofKind("Pod")...))
	k.says["get events"] = "5m Warning Failed pod/orders-0 can't pull: https://robot:" + loose + "@registry/v2, said " +
		kept + "\n"
	k.says["get nodes"] = "node1 token=" + loose + "\n"
	k.says["version"] = "v1.36 " + kept
	k.says["logs "] = strings.Join([]string{
		`{"level":"info","password":"` + loose + `","initial-cluster-token":"stays"}`,
		`{"msg":"request {\"token\": \"` + loose + `\"}"}`,
		"Authorization: Bearer " + loose, "header [authorization: Basic " + loose + "=]", "bearer " + loose,
		"api-key=" + loose + "&x=1",
		"PGPASSWORD='" + loose + "'", "eyJhbGciOiJFUzI1NiJ9.eyJ" + loose + "." + loose, "GET https://quorate:" + loose +
			"@quorate.svc/sync",
		"said " + kept, "as JSON " + fmt.Sprintf("%q", kept),
		"as base64 " + base64.StdEncoding.EncodeToString([]byte(kept)), "in a URL " + url.QueryEscape(kept), pem,
		fmt.Sprintf("%q", pem), "the end\n",
	}, "\n")
	webhook := map[string]any{"webhook": map[string]any{"url": "https://quorate:" + loose +
		"@quorate.quorate-system.svc/sync",
		"authorization": map[string]any{"secretRef": map[string]any{"name": "quorate-caller", "key": "token"}}}}
	var controllers map[string]any
	require.NoError(t, json.Unmarshal([]byte(k.says["get compositecontrollers"]), &controllers))
	items, _ := controllers["items"].([]any)
	within(map[string]any{"o": items[0]}, "o", "spec")["hooks"] = map[string]any{"sync": webhook}
	raw, err := json.Marshal(controllers)
	require.NoError(t, err)
	k.says["get compositecontrollers"] = string(raw)
	k.says["get statefulsets,deployments"] = `{"apiVersion":"v1","kind":"List","items":[{"kind":"StatefulSet","spec":{"template":{"metadata":{"annotations":{"secret-note":"` + loose + `"}},"spec":{"containers":[{"args":["--token","` + loose + `"]}]}}}}]}`
	observed := observation.Observation{Cluster: &v1beta1.EtcdCluster{}, Now: noon}
	for object, into := range map[*map[string]any]any{&k.cluster: observed.Cluster,
		&pod: intoMap(&observed.Children.Pods, "orders-0"), &config: intoMap(&observed.Children.ConfigMaps, "c")} {
		raw, err := json.Marshal(*object)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, into))
	}
	k.says[execJournal] = journalBy(t, observed)
	k.fails["get customresourcedefinition"] = "error: https://user:" + loose + "@server said " + kept
	return k
}

// intoMap is a new object in a map that has no other.
func intoMap[T any](all *map[string]*T, name string) *T {
	object := new(T)
	*all = map[string]*T{name: object}
	return object
}

// TestReportHoldsNoSecret: so it can be sent to a stranger.
func TestReportHoldsNoSecret(t *testing.T) {
	k := secretive(t)
	file := filepath.Join(t.TempDir(), "r.tar.gz")
	code, out, errs := k.runs(healthy(), "report", "-o", file)
	require.Zero(t, code, errs)
	files := unpacked(t, file)
	for name, content := range files {
		for _, trace := range traces() {
			assert.NotContains(t, content, trace, name)
		}
	}
	for _, trace := range traces() {
		assert.NotContains(t, out+errs, trace)
	}

	for _, name := range []string{"status.txt", "explain.txt", "etcdcluster.yaml", "children/pods.yaml",
		"children/secrets.yaml", "children/configmaps.yaml", "events.txt", "nodes.txt",
		"versions.txt", "versions-kubernetes.txt", "logs/orders-0.etcd.log", "quorate/deployment.yaml",
		"quorate/compositecontroller.yaml", "metacontroller/workloads.yaml", "problems.txt", "journal"} {
		assert.Contains(t, files, name)
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// TestReportKeepsWhatHelps: references, names and ordinary words are not taken for secrets.
func TestReportKeepsWhatHelps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.tar.gz")
	code, _, errs := secretive(t).runs(healthy(), "report", "-o", file)
	require.Zero(t, code, errs)
	files := unpacked(t, file)
	for name, words := range map[string][]string{
		"children/pods.yaml": {"reference-stays", "--initial-cluster-token=stays", "name: DB_PASSWORD",
			"https://[removed]@host/path", "HARMLESS", "gcr.io/etcd-development/etcd:v3.6.16"},
		"children/secrets.yaml": {"name: orders-user.app", "namespace: shop", "type: Opaque",
			"password: 24 bytes", "tls.key: 120 bytes", "more: 17 bytes"},
		"quorate/compositecontroller.yaml": {"https://[removed]@quorate.quorate-system.svc/sync",
			"name: quorate-caller", "networkpolicies"},
		"logs/orders-0.etcd.log": {`"level":"info"`, `"initial-cluster-token":"stays"`, "the end"},
		"events.txt":             {"Warning Failed pod/orders-0 can't pull: https://[removed]@registry/v2, said [removed]"},
		"problems.txt":           {"crd.yaml: `kubectl get customresourcedefinition", "said [removed]"},
		"status.txt":             {"orders in namespace shop: 3/3 ready"},
		"explain.txt":            {"RULES, IN ORDER"},
		"versions.txt":           {"v1.2.3"},
	} {
		for _, word := range words {
			assert.Contains(t, files[name], word, name)
		}
	}
}

// TestReportWithoutSecrets: without the right to read Secrets there is a report still, and it says so.
func TestReportWithoutSecrets(t *testing.T) {
	k := secretive(t)
	for call := range k.says {
		if strings.HasPrefix(call, "get secrets") {
			delete(k.says, call)
		}
	}
	k.fails["get secrets"], k.fails["get pods,"] = "Error from server (Forbidden): secrets is forbidden",
		"Error from server (Forbidden): secrets is forbidden"
	file := filepath.Join(t.TempDir(), "r.tar.gz")
	code, out, errs := k.runs(healthy(), "report", "-o", file)
	require.Zero(t, code, errs)
	assert.Contains(t, out, "could not be had: see problems.txt")
	files := unpacked(t, file)
	assert.Contains(t, files["problems.txt"], "secrets could be recognised only by their form")
	assert.Contains(t, files["problems.txt"], "explain.txt: the objects of EtcdCluster shop/orders can't be read")
	for name, content := range files {
		assert.NotContains(t, content, loose, name)
		assert.NotContains(t, content, key, name)
	}

	code, _, errs = k.runs(healthy(), "report", "-o", "/no/such/folder/r.tar.gz")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "the report about EtcdCluster shop/orders can't be written")
}

// TestLogsOfEveryRun: init containers, and the run before a restart.
func TestLogsOfEveryRun(t *testing.T) {
	k := steady(t)
	pod := corev1.Pod{}
	pod.Name = "orders-0"
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "prepare"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "etcd", RestartCount: 2},
		{Name: "waits", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}}
	raw, err := json.Marshal(corev1.PodList{Items: []corev1.Pod{pod}})
	require.NoError(t, err)
	k.says["get pods -n shop -o json -l"] = string(raw)
	a := &invocation{Program: k.waiting(func() {}), kube: k}
	b := &bundle{redactor: newRedactor(nil), files: map[string][]byte{}}
	a.logs(t.Context(), b, "shop", "x=y", "logs")
	var names []string
	for name := range b.files {
		names = append(names, name)
	}
	slices.Sort(names)
	assert.Equal(t, []string{"logs/orders-0.etcd.log", "logs/orders-0.etcd.previous.log", "logs/orders-0.prepare.log"},
		names)
}

func TestHarmlessTextStays(t *testing.T) {
	r := newRedactor([]corev1.Secret{{Data: map[string][]byte{"username": []byte("orders-app"),
		"namespace": []byte("shop-of-all"), "short": []byte("root")}}})
	for _, text := range []string{
		"orders-app of shop-of-all is root", "the Secret orders-ca holds tls.key",
		"--auth-token=jwt,pub-key=/etc/etcd/pki/token/token.pub", `"initial-cluster-token":"orders-1"`,
		"secretName: orders-ca", "https://orders.shop.svc:2379/path?at=a@b", "automountServiceAccountToken: false",
		"bearer of news", "the password of user x was changed",
	} {
		assert.Equal(t, text, r.text(text))
	}
}
