//go:build e2e

// Package e2e tells the stories of the README on a real Kubernetes: the lab's, with Metacontroller and Quorate
// installed from manifests as a user would. `make all-stories` brings all of that up.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// kubectl runs kubectl against the lab and returns what it prints. An error holds what it said.
func kubectl(stdin string, args ...string) (string, error) {
	// what kubectl waits for itself, it tells of
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// kube runs kubectl and fails the test when kubectl fails.
func kube(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kubectl("", args...)
	require.NoError(t, err)
	return out
}

// paths of the API that the stories read. They read it directly: a kubectl for every look would keep both cores busy.
var paths = map[string]string{
	"etcdcluster":          "/apis/etcd.quorate.dev/v1beta1/namespaces/%s/etcdclusters",
	"pods":                 "/api/v1/namespaces/%s/pods",
	"pvc":                  "/api/v1/namespaces/%s/persistentvolumeclaims",
	"svc":                  "/api/v1/namespaces/%s/services",
	"cm":                   "/api/v1/namespaces/%s/configmaps",
	"secrets":              "/api/v1/namespaces/%s/secrets",
	"pdb":                  "/apis/policy/v1/namespaces/%s/poddisruptionbudgets",
	"etcdsnapshot":         "/apis/etcd.quorate.dev/v1beta1/namespaces/%s/etcdsnapshots",
	"etcdsnapshotschedule": "/apis/etcd.quorate.dev/v1beta1/namespaces/%s/etcdsnapshotschedules",
	"etcdoperation":        "/apis/etcd.quorate.dev/v1beta1/namespaces/%s/etcdoperations",
	"etcdmirror":           "/apis/etcd.quorate.dev/v1beta1/namespaces/%s/etcdmirrors",
	"netpol":               "/apis/networking.k8s.io/v1/namespaces/%s/networkpolicies",
}

// read gets an API path into an object; false when there is none.
func read(t *testing.T, path string, into any) bool {
	t.Helper()
	found, err := api.read(path, into)
	require.NoError(t, err)
	return found
}

// read gets a path into an object; false when there is none.
func (a *apiServer) read(path string, into any) (bool, error) {
	code, answer, err := a.request(http.MethodGet, path, "", "")
	switch {
	case err != nil || code == http.StatusNotFound:
		return false, err
	case code != http.StatusOK:
		return false, fmt.Errorf("%s: %d %s: %s", path, code, http.StatusText(code), answer)
	}
	return true, json.Unmarshal([]byte(answer), into)
}

// send asks the API server to change something, which must do no harm when it is done twice. An error is what it
// refused, and why.
func (a *apiServer) send(method, path, contentType, body string) error {
	code, answer, err := a.request(method, path, contentType, body)
	if err == nil && code >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %d %s: %s", method, path, code, http.StatusText(code), answer)
	}
	return err
}

// request makes a request. As long as the API server gives no answer of its own (its own etcd may elect) it is asked
// again.
func (a *apiServer) request(method, path, contentType, body string) (int, string, error) {
	for deadline := time.Now().Add(patience); ; <-time.After(time.Second) {
		request, err := http.NewRequest(method, a.server+path, strings.NewReader(body))
		if err != nil {
			return 0, "", err
		}
		if contentType != "" {
			request.Header.Set("Content-Type", contentType)
		}
		code, answer, err := said(a.client, request)
		if err == nil && (code >= http.StatusInternalServerError || code == http.StatusTooManyRequests) {
			err = fmt.Errorf("%s %s: %d %s", method, path, code, http.StatusText(code))
		}
		if err == nil || time.Now().After(deadline) {
			return code, answer, err
		}
	}
}

// namespace makes one.
func (a *apiServer) namespace(name string) error {
	return a.send(http.MethodPatch, "/api/v1/namespaces/"+name+"?fieldManager=e2e", applied,
		"{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
}

// said is the whole answer to a request.
func said(client *http.Client, request *http.Request) (code int, text string, err error) {
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

// page is what is said to a GET.
func page(client *http.Client, url string) (code int, text string, err error) {
	request, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	return said(client, request)
}

// get reads an object of the API server into a typed one; false when there is none.
func get[T any](t *testing.T, namespace, resource, name string) (*T, bool) {
	t.Helper()
	object := new(T)
	return object, read(t, fmt.Sprintf(paths[resource], namespace)+"/"+name, object)
}

// list reads all objects of a resource in a namespace.
func list[T any](t *testing.T, namespace, resource string) []T {
	t.Helper()
	var l struct{ Items []T }
	read(t, fmt.Sprintf(paths[resource], namespace), &l)
	return l.Items
}

// apiServer is one of the lab, as its administrator.
type apiServer struct {
	server string
	client *http.Client
}

// newAPI reads the kubeconfig that kubectl uses.
func newAPI() (*apiServer, error) {
	raw, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG: %w; run the stories with `make all-stories`", err)
	}
	return apiOf(raw)
}

// apiOf is the API server of a kubeconfig.
func apiOf(kubeconfig []byte) (*apiServer, error) {
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			}
		}
	}
	if err := yaml.Unmarshal(kubeconfig, &config); err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(config.Users[0].User.Cert, config.Users[0].User.Key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(config.Clusters[0].Cluster.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert},
		MinVersion: tls.VersionTLS12}}
	return &apiServer{server: config.Clusters[0].Cluster.Server,
		client: &http.Client{Transport: transport, Timeout: time.Minute}}, nil
}

// patience is how long a wait may last before it counts as one without end. How fast the machine is must not decide:
// waits end by their states, and what things took is in the log. How long they may take is measured where nothing
// else runs (measure_test.go).
const patience = 15 * time.Minute

// eventually waits for a condition, which says what it still waits for; an empty string is success.
func eventually(t *testing.T, what string, waitsFor func() string) time.Duration {
	t.Helper()
	return within(t, patience, what, waitsFor)
}

// while is what a wait still sees while something holds; empty once it does not.
func while(holds bool, sees ...any) string {
	if !holds {
		return ""
	}
	return cmp.Or(fmt.Sprint(sees...), "not yet")
}

// failure is what an error says; empty without one.
func failure(err error) string { return while(err != nil, err) }

// within waits as long as that.
func within(t *testing.T, limit time.Duration, what string, waitsFor func() string) time.Duration {
	t.Helper()
	begin, end := time.Now(), time.Now().Add(limit)
	if d, ok := t.Deadline(); ok && d.Before(end.Add(time.Minute)) {
		end = d.Add(-time.Minute) // so that it can still say what it saw
	}
	for pause := 100 * time.Millisecond; ; pause = min(pause+pause/4, 400*time.Millisecond) { // others want the cores
		last := waitsFor()
		took := time.Since(begin)
		if last == "" {
			t.Logf("%s after %.1f s", what, took.Seconds())
			return took
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not after %.0f s: %s", what, took.Seconds(), last)
		}
		<-time.After(pause)
	}
}

var longFlag = flag.Bool("long", false, "tell stories whole where that takes long")

// newLab enters node 1's network namespace, where pod addresses, Services and cluster DNS exist.
func newLab() (*network, error) {
	n, err := newNetwork(os.Getenv("QUORATE_LAB_NETNS"), 32)
	if err != nil {
		return nil, fmt.Errorf("QUORATE_LAB_NETNS: %w; run the stories with `make all-stories`", err)
	}
	return n, nil
}

var (
	lab *network
	api *apiServer
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if lab, err = newLab(); err == nil {
		api, err = newAPI()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	err = errors.Join(noViolations(), replaysAlike())
	if !apiServerRestarted { // one that has just been started refuses what it has not read yet
		err = errors.Join(err, neverForbidden())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// noViolations asks every replica of Quorate whether one of its decisions broke a rule of safety. A replica that has
// just been started may not answer yet.
func noViolations() error {
	for deadline := time.Now().Add(patience); ; <-time.After(time.Second) {
		all, err := quorateMetrics()
		for pod, metrics := range all {
			if !strings.Contains(metrics, "\nquorate_violations_total 0\n") {
				return fmt.Errorf("%s has withheld decisions that broke a rule of safety: see its log", pod)
			}
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// replaysAlike decides once more about all that is in the journals of Quorate: it must come to the same, byte for byte.
func replaysAlike() error {
	all, err := quorateMetrics()
	if err != nil {
		return err
	}
	var files []io.Reader
	for pod := range all {
		text, err := kubectl("", "exec", pod, "-n", quorateNamespace, "-c", "quorate", "--", "/quorate", "journal")
		if err != nil {
			return err
		}
		files = append(files, strings.NewReader(text))
	}
	entries, objects, err := journal.Read(files...)
	if err != nil {
		return err
	}
	var told strings.Builder
	others, err := journal.Replay(&told, "the same release", hooks.Decide, entries, objects)
	if err == nil && others > 0 {
		err = errors.New(told.String())
	}
	fmt.Fprint(os.Stderr, "journals: ", told.String())
	return err
}

// quorateMetrics is what each replica of Quorate shows Prometheus, by pod.
func quorateMetrics() (map[string]string, error) {
	var pods corev1.PodList
	if _, err := api.read("/api/v1/namespaces/"+quorateNamespace+"/pods?labelSelector=app.kubernetes.io/name=quorate",
		&pods); err != nil {
		return nil, err
	}
	client := lab.httpClient()
	client.Timeout = 30 * time.Second
	all := map[string]string{}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			continue
		}
		_, metrics, err := page(client, "http://"+objects.HostPort(pod.Status.PodIP, 8081)+"/metrics")
		if err != nil {
			return nil, err
		}
		all[pod.Name] = metrics
	}
	return all, nil
}
