package kubectl

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// explained is what explain prints, by section.
func (k *kube) explained(e *etcd, flags ...string) map[string]string {
	k.t.Helper()
	code, out, errs := k.runs(e, append([]string{"explain"}, flags...)...)
	require.Zero(k.t, code, errs)
	require.Empty(k.t, e.did, "explain carries nothing out")
	for _, call := range k.calls {
		assert.True(k.t, strings.HasPrefix(call, "get ") || strings.HasPrefix(call, "config view"),
			"explain reads and does nothing else: %s", call)
	}
	sections := map[string]string{}
	for i, part := range strings.Split(out, "\n\n") {
		title, text, _ := strings.Cut(part, "\n")
		if i == 0 {
			title, text = "HEAD", title
		}
		sections[title] = text
	}
	for line := range strings.Lines(out) {
		assert.LessOrEqual(k.t, len([]rune(line)), width+1, line)
	}
	return sections
}

func TestExplainConverged(t *testing.T) {
	s := steady(t).explained(healthy())
	assert.Contains(t, s["HEAD"], "orders in namespace shop, as the hooks would decide at 2026-03-01T12:00:00Z. "+
		"Nothing is carried out.")
	assert.Contains(t, s["RULES, IN ORDER"], "do not apply: WaitForCertificates, SwitchEpoch, ")
	assert.Contains(t, s["MODE"], "HasQuorum. A quorum has answered in this call")
	assert.Equal(t, "  none", s["STEP IN ETCD"])
	assert.Contains(t, s["SAFETY"], "breaks none of the rules of safety")
}

func TestExplainGrowth(t *testing.T) {
	k := steady(t)
	within(k.cluster, "spec")["replicas"] = 5
	s := k.explained(healthy())
	assert.Contains(t, s["RULES, IN ORDER"], "Grow applies.")
	assert.Contains(t, s["SAYS"], "Grow: ")
	assert.Contains(t, s["STEP IN ETCD"], "add learner orders-3 (not carried out")
	assert.Contains(t, s["OBJECTS IN KUBERNETES"], "change  PodDisruptionBudget orders")
	assert.Contains(t, s["OBJECTS IN KUBERNETES"], "spec.minAvailable")
	assert.Contains(t, s["ASKS AGAIN"], "at the latest")
}

func TestExplainLostPod(t *testing.T) {
	k, e := steady(t), healthy()
	k.lose("Pod orders-1")
	delete(e.health, "orders-1")
	s := k.explained(e)
	assert.Contains(t, s["OBJECTS IN KUBERNETES"], "make    Pod orders-1")
	assert.NotContains(t, s["OBJECTS IN KUBERNETES"], "delete")
}

func TestExplainPause(t *testing.T) {
	k := steady(t)
	within(k.cluster, "spec")["replicas"] = 0
	s := k.explained(healthy())
	for _, pod := range []string{"orders-0", "orders-1", "orders-2"} {
		assert.Contains(t, s["OBJECTS IN KUBERNETES"], "delete  Pod "+pod)
	}
}

func TestExplainWhenEtcdIsNotReached(t *testing.T) {
	k, e := steady(t), healthy()
	k.closed, e.blind = []string{"orders-0", "orders-1", "orders-2"}, true
	s := k.explained(e)
	assert.Contains(t, s["KEEP IN MIND"], "No quorum answered this machine")
	assert.Contains(t, s["KEEP IN MIND"], "orders-2 did not answer: this version can't pod/orders-2")
	assert.Contains(t, s["SAYS"], "Blind: ")
}

func TestExplainWithoutQuorate(t *testing.T) {
	k := steady(t)
	delete(k.says, "get deployment quorate -n quorate-system")
	k.fails["get deployment"] = `Error from server (NotFound): deployments.apps "quorate" not found`
	k.fails["get compositecontrollers"] = `Error from server (Forbidden): compositecontrollers.metacontroller.k8s.io is forbidden`
	s := k.explained(healthy())
	assert.Contains(t, s["KEEP IN MIND"], "the CompositeController can't be read")
	assert.Contains(t, s["KEEP IN MIND"], `(image "ghcr.io/quorate-dev/quorate:v0.1.0")`)
	assert.Equal(t, "  none", s["STEP IN ETCD"])

	k = steady(t)
	k.says["get compositecontrollers"] = `{"items":[]}`
	assert.Contains(t, k.explained(healthy())["KEEP IN MIND"], "does not call Quorate")
}

func TestExplainDeletion(t *testing.T) {
	k := steady(t)
	within(k.cluster, "metadata")["deletionTimestamp"] = "2026-03-01T11:00:00Z"
	within(k.cluster, "spec")["deletionPolicy"] = "Delete"
	s := k.explained(healthy())
	assert.Contains(t, s["DELETION"], "Quorate lets it go: yes.")
	assert.NotContains(t, s["OBJECTS IN KUBERNETES"], "delete")

	within(k.cluster, "spec")["deletionProtection"] = true
	s = k.explained(healthy())
	assert.Contains(t, s["KEEP IN MIND"], "its deletion waits for spec.deletionProtection")
	assert.NotContains(t, s, "DELETION")
	assert.Contains(t, s, "SAYS")
}

// TestExplainRefusal: what the server would refuse is said in its words.
func TestExplainRefusal(t *testing.T) {
	k := steady(t)
	k.says["get compositecontrollers"] = strings.Replace(k.says["get compositecontrollers"],
		`,{"apiVersion":"networking.k8s.io/v1","resource":"networkpolicies"}`, "", 1)
	code, _, errs := k.runs(healthy(), "explain")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "EtcdCluster shop/orders")
	assert.Contains(t, errs, `children["NetworkPolicy.networking.k8s.io/v1"] is missing: the CompositeController has no such rule`)

	k = steady(t)
	k.fails["get pods,"] = `Error from server (Forbidden): secrets is forbidden: User "dba" cannot list resource "secrets"`
	code, _, errs = k.runs(healthy(), "explain")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "the objects of EtcdCluster shop/orders can't be read")
	assert.Contains(t, errs, "ask your Kubernetes administrator for that right")
}

// TestBrokenSafetyIsSaid: in capitals, so that it is not overlooked.
func TestBrokenSafetyIsSaid(t *testing.T) {
	assert.Contains(t, verdict(hooks.Verify(observation.Observation{Cluster: orders(t)},
		decision.Decision{Step: decision.Remove{Name: "orders-0"}})), "THE DECISION BREAKS RULES OF SAFETY")
}

func TestOtherVersion(t *testing.T) {
	for image, same := range map[string]bool{
		"ghcr.io/quorate-dev/quorate:v0.1.0": true, "ghcr.io/quorate-dev/quorate:v0.2.0": false,
		"registry:5000/quorate": true, "ghcr.io/quorate-dev/quorate:v0.2.0@sha256:0123": false,
		"ghcr.io/quorate-dev/quorate:v0.1.0@sha256:0123": true,
		"ghcr.io/quorate-dev/quorate@sha256:0123":        true, "": true,
	} {
		assert.Equal(t, same, otherVersion("v0.1.0 (commit 0123abc)", image) == "", image)
	}
	assert.Contains(t, steady(t).explained(healthy())["KEEP IN MIND"],
		"this plugin is v1.2.3 and Quorate's image is ghcr.io/quorate-dev/quorate:v0.1.0")
}

// TestObjectsOfOthersAreNoChildren: only what is ours, or would be adopted, is in the call.
func TestObjectsOfOthersAreNoChildren(t *testing.T) {
	k := steady(t)
	for _, name := range []string{"orders-7", "orders-8", "orders-9"} {
		raw, err := json.Marshal(k.child("Pod orders-0"))
		require.NoError(t, err)
		var pod map[string]any
		require.NoError(t, json.Unmarshal(raw, &pod))
		metadata := within(pod, "metadata")
		metadata["name"], metadata["uid"] = name, "of "+name
		switch name {
		case "orders-7": // another controller's
			metadata["ownerReferences"] = []any{map[string]any{"uid": "another", "controller": true,
				"kind": "EtcdCluster", "name": "orders", "apiVersion": "v1"}}
		case "orders-8": // without a controller: Metacontroller adopts it, and the hooks delete it
			delete(metadata, "ownerReferences")
		default: // without a controller, and going
			delete(metadata, "ownerReferences")
			metadata["deletionTimestamp"] = "2026-03-01T11:59:59Z"
		}
		k.children = append(k.children, pod)
	}
	s := k.explained(healthy())
	assert.NotContains(t, s["OBJECTS IN KUBERNETES"], "orders-7")
	assert.Contains(t, s["OBJECTS IN KUBERNETES"], "delete  Pod orders-8")
	assert.NotContains(t, s["OBJECTS IN KUBERNETES"], "orders-9")
}

func TestChanges(t *testing.T) {
	is := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(`{"kind":"Pod","metadata":{"name":"a","labels":{"controller-uid":"u","ours":"1","theirs":"2"},"annotations":{
		"metacontroller.k8s.io/last-applied-configuration":"{\"metadata\":{\"labels\":{\"controller-uid\":\"u\",\"ours\":\"1\",\"old\":\"\"}},\"spec\":{\"nodeSelector\":{\"x\":\"y\"}}}"}},
		"spec":{"nodeName":"n","nodeSelector":{"x":"y"},"containers":[{"name":"etcd","image":"a","env":[{"name":"A","value":"1"},{"name":"theirs"}]}],"args":["a","b"]}}`), &is))
	for want, answer := range map[string]string{
		"":                    `{"metadata":{"labels":{"ours":"1"}},"spec":{"nodeSelector":{"x":"y"},"containers":[{"name":"etcd","image":"a"}]}}`,
		"metadata.labels.new": `{"metadata":{"labels":{"new":"1","ours":"1"}},"spec":{"nodeSelector":{"x":"y"}}}`,
		"metadata.labels.ours, spec.nodeSelector": `{"metadata":{},"spec":{}}`,
		"spec.containers.etcd.env.A.value, " +
			"spec.containers.etcd.image": `{"metadata":{"labels":{"ours":"1"}},"spec":{"nodeSelector":{"x":"y"},"containers":[{"name":"etcd","image":"b","env":[{"name":"A","value":"2"}]}]}}`,
		"spec.args": `{"metadata":{"labels":{"ours":"1"}},"spec":{"nodeSelector":{"x":"y"},"args":["a"],"empty":{},"none":null}}`,
	} {
		var o map[string]any
		require.NoError(t, json.Unmarshal([]byte(answer), &o))
		assert.Equal(t, want, strings.Join(changed(is, o, "u"), ", "))
	}
	assert.Equal(t, [][]string{{"change", "Pod a", "a"}, {" ", " ", "b"}, {" ", " ", "c"}, {" ", " ", "d"},
		{" ", " ", "and 2 more"}}, change{"change", "Pod a", []string{"a", "b", "c", "d", "e", "f"}}.lines())
}

// TestTheDomainOfTheCluster is read from the certificate that the server has made: with another one explain would say
// that the certificate changes.
func TestTheDomainOfTheCluster(t *testing.T) {
	c := &v1beta1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop"}}
	o := observation.Observation{Cluster: c}
	assert.Empty(t, domainOf(o))
	certificate := &observation.Certificate{Names: []string{"*.orders-peers.shop.svc",
		"*.orders-peers.shop.svc.lab.internal", "localhost"}}
	o.Children.Secrets = map[string]*observation.Secret{defaults.ServerSecret(c): {Certificate: certificate}}
	assert.Equal(t, "lab.internal", domainOf(o))
	certificate.Names = certificate.Names[:1]
	assert.Empty(t, domainOf(o))
}
