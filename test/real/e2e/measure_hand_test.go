//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	certs "github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks/decision"
)

// judge says from outside when a cluster is as it was asked to be, no matter who changes it: by a watch of its pods, and by
// what its members tell.
type judge struct {
	*cluster
	config *tls.Config // nil for plain text

	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	changed chan struct{} // closed when pods are others
}

func judges(c *cluster, config *tls.Config) *judge {
	c.t.Helper()
	j := &judge{cluster: c, config: config, pods: map[string]*corev1.Pod{}, changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			j.watch(ctx)
		}
	})
	c.t.Cleanup(func() { cancel(); done.Wait() })
	return j
}

// watch is told of all pods until it is cut off.
func (j *judge) watch(ctx context.Context) {
	path := fmt.Sprintf(paths["pods"], j.ns)
	var all corev1.PodList
	if _, err := api.read(path, &all); err != nil {
		return
	}
	pods := map[string]*corev1.Pod{}
	for i := range all.Items {
		pods[all.Items[i].Name] = &all.Items[i]
	}
	j.sees(func() { j.pods = pods })
	url := api.server + path + "?watch=1&resourceVersion=" + all.ResourceVersion
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return
	}
	client := http.Client{Transport: api.client.Transport} // a watch has no end
	answer, err := client.Do(request)
	if err != nil {
		return
	}
	defer func() { _ = answer.Body.Close() }()
	for events := json.NewDecoder(answer.Body); ; {
		var event struct {
			Type   string
			Object corev1.Pod
		}
		if err := events.Decode(&event); err != nil || event.Type == "ERROR" {
			return
		}
		j.sees(func() {
			if event.Type == "DELETED" {
				delete(j.pods, event.Object.Name)
			} else {
				j.pods[event.Object.Name] = &event.Object
			}
		})
	}
}

func (j *judge) sees(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
	close(j.changed)
	j.changed = make(chan struct{})
}

// until waits for what is so of the pods, and looks as soon as they are others. An empty string is success.
func (j *judge) until(what string, waitsFor func(pods map[string]*corev1.Pod) string) {
	j.t.Helper()
	const etcdTellsNothingUnasked = 20 * time.Millisecond
	for deadline := time.Now().Add(othersMay); ; {
		j.mu.Lock()
		last := waitsFor(j.pods)
		changed := j.changed
		j.mu.Unlock()
		if last == "" {
			return
		}
		require.Less(j.t, time.Now(), deadline, "%s: %s", what, last)
		select {
		case <-changed:
		case <-time.After(etcdTellsNothingUnasked):
		}
	}
}

// serves waits for so many pods, all ready, which are the voters of an etcd and answer, with that version; "" is any.
func (j *judge) serves(n int, version string) {
	j.t.Helper()
	j.until(fmt.Sprintf("%d members serve", n), func(pods map[string]*corev1.Pod) string {
		if len(pods) != n {
			return fmt.Sprintf("%d pods", len(pods))
		}
		for name, pod := range pods {
			if pod.DeletionTimestamp != nil || !ready(pod) {
				return name + " is not ready"
			}
		}
		return j.disagrees(pods, version)
	})
}

// disagrees is in what the members differ from these pods and this version.
func (j *judge) disagrees(pods map[string]*corev1.Pod, version string) string {
	client, err := j.client(pods)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	told, err := client.MemberList(ctx)
	switch {
	case err != nil:
		return err.Error()
	case len(told.Members) != len(pods):
		return fmt.Sprintf("%d members", len(told.Members))
	}
	for _, m := range told.Members {
		if m.IsLearner || m.Name == "" {
			return fmt.Sprintf("%s does not vote", m.Name)
		}
	}
	for _, pod := range pods {
		if why := j.runs(pod, version); why != "" {
			return why
		}
	}
	return ""
}

// client talks to the members in these pods.
func (j *judge) client(pods map[string]*corev1.Pod) (*clientv3.Client, error) {
	scheme := "http"
	if j.config != nil {
		scheme = "https"
	}
	settings := clientv3.Config{TLS: j.config, DialTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(j.dialMember)}}
	for pod := range pods {
		settings.Endpoints = append(settings.Endpoints, fmt.Sprintf("%s://%s.demo-peers.%s.svc:2379", scheme, pod, j.ns))
	}
	return clientv3.New(settings)
}

// leads reports whether a member leads.
func (j *judge) leads(member string) bool {
	j.t.Helper()
	var leads bool
	j.until(member+" says who leads", func(pods map[string]*corev1.Pod) string {
		client, err := j.client(map[string]*corev1.Pod{member: pods[member]})
		if err != nil {
			return err.Error()
		}
		defer func() { _ = client.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		status, err := client.Status(ctx, client.Endpoints()[0])
		if err != nil {
			return err.Error()
		}
		leads = status.Leader == status.Header.MemberId
		return while(status.Leader == 0, "none leads")
	})
	return leads
}

// any is the name of a pod of which that holds.
func (j *judge) any(holds func(pod string) bool) string {
	j.t.Helper()
	j.mu.Lock()
	names := slices.Sorted(maps.Keys(j.pods))
	j.mu.Unlock()
	i := slices.IndexFunc(names, holds)
	require.GreaterOrEqual(j.t, i, 0, "none of %s", names)
	return names[i]
}

// loses deletes pods or claims at once.
func (j *judge) loses(resource, object string) {
	j.t.Helper()
	require.NoError(j.t, api.send(http.MethodDelete, fmt.Sprintf(paths[resource], j.ns)+"/"+object, "", ""))
}

// hand changes the members of a cluster that no operator runs, without a moment of thought.
type hand struct {
	*judge
	secured bool
	members []int // their numbers
	next    int
}

// byHand founds a cluster of three.
func byHand(c *cluster, secured bool) *hand {
	c.t.Helper()
	h := &hand{secured: secured, members: []int{0, 1, 2}, next: 3}
	manifest := servicesByHand
	var config *tls.Config
	if secured {
		config = rereading(c.ns, "demo-client-tls")
		manifest += secretByHand(c)
	}
	h.judge = judges(c, config)
	for i := range 3 {
		manifest += h.member(i, []int{0, 1, 2}, "new")
	}
	h.applies(manifest)
	h.serves(3, "")
	return h
}

var kinds = map[string]string{"Pod": "pods", "PersistentVolumeClaim": "pvc", "Service": "svc", "Secret": "secrets"}

// applies objects.
func (j *judge) applies(manifests string) {
	j.t.Helper()
	for _, text := range strings.Split(manifests, "---\n") {
		var object metav1.PartialObjectMetadata
		require.NoError(j.t, yaml.Unmarshal([]byte(text), &object))
		if object.Kind == "" {
			continue
		}
		path := fmt.Sprintf(paths[kinds[object.Kind]], j.ns) + "/" + object.Name + "?fieldManager=hand&force=true"
		require.NoError(j.t, api.send(http.MethodPatch, path, applied, text))
	}
}

const servicesByHand = `---
apiVersion: v1
kind: Service
metadata: {name: demo}
spec: {selector: {app: etcd}, ports: [{name: client, port: 2379}]}
---
apiVersion: v1
kind: Service
metadata: {name: demo-peers}
spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app: etcd}, ports: [{name: client, port: 2379}, {name: peer, port: 2380}]}
`

// secretByHand has one certificate for members and clients.
func secretByHand(c *cluster) string {
	c.t.Helper()
	begins, ends := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	made := map[string]map[string][]byte{}
	makes := func(name string, r decision.Recipe) {
		data, err := certs.Make(name, r, made)
		require.NoError(c.t, err)
		made[name] = data
	}
	makes("ca", decision.Authority{CommonName: "by hand", NotBefore: begins, NotAfter: ends})
	names := []string{"*.demo-peers." + c.ns + ".svc", "demo." + c.ns + ".svc",
		"*.demo-peers." + c.ns + ".svc.lab.internal"} // etcd looks up the name of a peer's address
	makes("leaf", decision.Leaf{Signer: "ca", Names: names,
		Server: true, Client: true, NotBefore: begins, NotAfter: ends})
	secret := corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "demo-client-tls"}, Data: made["leaf"]}
	text, err := yaml.Marshal(secret)
	require.NoError(c.t, err)
	return "---\n" + string(text)
}

func nameByHand(n int) string { return fmt.Sprintf("demo-%d", n) }

// url is where a member listens.
func (h *hand) url(i, port int) string {
	scheme := "http"
	if h.secured {
		scheme = "https"
	}
	return fmt.Sprintf("%s://demo-%d.demo-peers.%s.svc:%d", scheme, i, h.ns, port)
}

// memberByHand is what an engineer writes without an operator.
var memberByHand = template.Must(template.New("").Parse(`---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{.Name}}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: {{.Name}}, labels: {app: etcd}}
spec:
  hostname: {{.Name}}
  subdomain: demo-peers
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 10001, fsGroup: 10001}
  containers:
  - name: etcd
    image: gcr.io/etcd-development/etcd:v3.6.16
    command:
    - /usr/local/bin/etcd
    - --name={{.Name}}
    - --data-dir=/var/lib/etcd/data
    - --listen-client-urls={{.Scheme}}://0.0.0.0:2379
    - --listen-peer-urls={{.Scheme}}://0.0.0.0:2380
    - --listen-metrics-urls=http://0.0.0.0:2381
    - --advertise-client-urls={{.ClientURL}}
    - --initial-advertise-peer-urls={{.PeerURL}}
    - --initial-cluster={{.Initial}}
    - --initial-cluster-state={{.State}}
{{- range .TLS}}
    - {{.}}
{{- end}}
    resources: {requests: {cpu: 100m, memory: 256Mi}}
    readinessProbe: {httpGet: {path: /readyz, port: 2381}, periodSeconds: 2}
    volumeMounts:
    - {name: data, mountPath: /var/lib/etcd}
{{- if .TLS}}
    - {name: tls, mountPath: /tls}
{{- end}}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: {{.Name}}}}
{{- if .TLS}}
  - {name: tls, secret: {secretName: demo-client-tls}}
{{- end}}
`))

// member is the claim and the pod of one.
func (h *hand) member(i int, members []int, state string) string {
	h.t.Helper()
	var initial []string
	for _, m := range members {
		initial = append(initial, nameByHand(m)+"="+h.url(m, 2380))
	}
	scheme, _, _ := strings.Cut(h.url(i, 2379), ":")
	values := map[string]any{"Name": nameByHand(i), "Scheme": scheme, "ClientURL": h.url(i, 2379),
		"PeerURL": h.url(i, 2380), "Initial": strings.Join(initial, ","), "State": state}
	if h.secured {
		var flags []string
		for _, of := range []string{"", "peer-"} {
			flags = append(flags, "--"+of+"cert-file=/tls/tls.crt", "--"+of+"key-file=/tls/tls.key",
				"--"+of+"trusted-ca-file=/tls/ca.crt", "--"+of+"client-cert-auth")
		}
		values["TLS"] = flags
	}
	var text bytes.Buffer
	require.NoError(h.t, memberByHand.Execute(&text, values))
	return text.String()
}

func (h *hand) scalesTo(n int) {
	h.t.Helper()
	for len(h.members) < n {
		h.adds()
	}
	for len(h.members) > n {
		last := h.members[len(h.members)-1]
		if h.leads(nameByHand(last)) {
			last = h.members[len(h.members)-2]
		}
		h.removes(last)
		h.loses("pods", nameByHand(last))
		h.loses("pvc", nameByHand(last))
	}
	h.serves(n, "")
}

func (h *hand) losesMember(leads bool) {
	h.t.Helper()
	gone := h.members[slices.IndexFunc(h.members, func(m int) bool { return h.leads(nameByHand(m)) == leads })]
	h.loses("pvc", nameByHand(gone))
	h.loses("pods", nameByHand(gone))
	h.removes(gone)
	h.adds()
	h.serves(len(h.members), "")
}

func (h *hand) losesPod() {
	h.t.Helper()
	h.loses("pods", "demo-1")
	h.until("demo-1 is gone", func(pods map[string]*corev1.Pod) string { return while(pods["demo-1"] != nil) })
	h.applies(h.member(1, h.members, "new")) // it has its data
	h.serves(len(h.members), "")
}

// upgrades gives one pod after the other the new image, and waits until it serves with that.
func (h *hand) upgrades(version string) {
	h.t.Helper()
	for _, m := range h.members {
		pod := nameByHand(m)
		image := `{"spec":{"containers":[{"name":"etcd","image":"gcr.io/etcd-development/etcd:v` + version + `"}]}}`
		err := api.send(http.MethodPatch, fmt.Sprintf(paths["pods"], h.ns)+"/"+pod,
			"application/strategic-merge-patch+json", image)
		require.NoError(h.t, err)
		h.until(pod+" runs "+version, func(pods map[string]*corev1.Pod) string {
			if !ready(pods[pod]) {
				return "it is not ready"
			}
			return h.runs(pods[pod], version)
		})
	}
	h.serves(len(h.members), version)
}

// runs is why a member does not run that version.
func (j *judge) runs(pod *corev1.Pod, version string) string {
	client, err := j.client(map[string]*corev1.Pod{pod.Name: pod})
	if err != nil {
		return err.Error()
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	status, err := client.Status(ctx, client.Endpoints()[0])
	switch {
	case err != nil:
		return err.Error()
	case version != "" && status.Version != version:
		return pod.Name + " runs " + status.Version
	}
	return ""
}

// asks the members that there are, until one does it.
func (h *hand) asks(what string, request func(ctx context.Context, client *clientv3.Client) error) {
	h.t.Helper()
	h.until(what, func(pods map[string]*corev1.Pod) string {
		others := map[string]*corev1.Pod{}
		for _, m := range h.members {
			if pod := pods[nameByHand(m)]; pod != nil && ready(pod) {
				others[pod.Name] = pod
			}
		}
		client, err := h.client(others)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = client.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return failure(request(ctx, client))
	})
}

// adds a member as a learner, and promotes it once etcd allows that.
func (h *hand) adds() {
	h.t.Helper()
	n := h.next
	h.next++
	var id uint64
	h.asks("a learner is added", func(ctx context.Context, client *clientv3.Client) error {
		r, err := client.MemberAddAsLearner(ctx, []string{h.url(n, 2380)})
		if err == nil {
			id = r.Member.ID
		}
		return err
	})
	all := append(slices.Clone(h.members), n)
	h.applies(h.member(n, all, "existing"))
	h.asks("it votes", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.MemberPromote(ctx, id)
		return err
	})
	h.members = all
	h.until("it is ready", func(pods map[string]*corev1.Pod) string {
		pod := pods[nameByHand(n)]
		return while(pod == nil || !ready(pod))
	})
}

// removes a member from etcd.
func (h *hand) removes(n int) {
	h.t.Helper()
	h.members = slices.DeleteFunc(h.members, func(m int) bool { return m == n })
	h.asks(nameByHand(n)+" is removed", func(ctx context.Context, client *clientv3.Client) error {
		told, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range told.Members {
			if slices.Contains(m.PeerURLs, h.url(n, 2380)) {
				_, err = client.MemberRemove(ctx, m.ID)
			}
		}
		return err
	})
}
