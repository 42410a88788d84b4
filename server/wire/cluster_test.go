package wire

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

// TestResyncIsRead: of the CompositeController, which may have none.
func TestResyncIsRead(t *testing.T) {
	for want, spec := range map[time.Duration]any{
		30 * time.Second: map[string]any{"resyncPeriodSeconds": 30, "generateSelector": true},
		5 * time.Minute:  map[string]any{"resyncPeriodSeconds": 300},
		0:                map[string]any{"resyncPeriodSeconds": nil},
	} {
		r, err := ReadCluster(t.Context(), bytes.NewReader(edited(t,
			func(r map[string]any) { at(r, "controller")["spec"] = spec })))
		require.NoError(t, err)
		require.Equal(t, want, r.Observation(time.Now(), observation.Settings{}).Resync)
	}
	for _, without := range []func(map[string]any){
		func(r map[string]any) { delete(r, "controller") },
		func(r map[string]any) { r["controller"] = nil },
		func(r map[string]any) { at(r, "controller")["spec"] = map[string]any{"resyncPeriodSeconds": -5} },
	} {
		r, err := ReadCluster(t.Context(), bytes.NewReader(edited(t, without)))
		require.NoError(t, err)
		require.Zero(t, r.Resync)
	}
	_, err := ReadCluster(t.Context(), bytes.NewReader(edited(t,
		func(r map[string]any) { at(r, "controller")["spec"] = "soon" })))
	require.ErrorContains(t, err, "controller.spec can't be a string")
}

// TestChildrenAreReadByName: some versions key children by namespace and name.
func TestChildrenAreReadByName(t *testing.T) {
	r, err := ReadCluster(t.Context(), bytes.NewReader(edited(t, func(r map[string]any) {
		pods := at(r, "children", "Pod.v1")
		pods["shop/orders-0"] = pods["orders-0"]
		delete(pods, "orders-0")
	})))
	require.NoError(t, err)
	require.Contains(t, r.Children.Pods, "orders-0")
	require.Len(t, r.Children.Pods, 3)
	require.Nil(t, r.Children.Pods["orders-0"].ManagedFields, "read over")
	written := r.Cluster.ManagedFields
	require.NotEmpty(t, written)
	require.NotZero(t, written[len(written)-1].Time, "when the API server wrote it")
	require.Nil(t, written[0].FieldsV1, "read over")
	require.Equal(t, "10.244.0.7", r.Children.Pods["orders-0"].Status.PodIP)
}

// TestImpossibleDecisionsAreWithheld: an answer that Metacontroller would misread is an error.
func TestImpossibleDecisionsAreWithheld(t *testing.T) {
	r, err := ReadCluster(t.Context(), bytes.NewReader(steady(t)))
	require.NoError(t, err)
	pod := func(namespace, name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	for says, pods := range map[string][]*corev1.Pod{
		"a Pod without a name":         {pod("shop", "")},
		"Pod a twice":                  {pod("shop", "a"), pod("", "a")},
		`Pod a in namespace "default"`: {pod("default", "a")},
	} {
		_, err := r.Answer(decision.Decision{Children: decision.Desired{Pods: pods}, Status: r.Cluster.Status}, nil)
		require.ErrorContains(t, err, says)
	}
}

// TestAnswersAreWrittenAsEncodingJSONDoes: Metacontroller compares what we leave out and what we write as zero.
func TestAnswersAreWrittenAsEncodingJSONDoes(t *testing.T) {
	r, err := ReadCluster(t.Context(), bytes.NewReader(steady(t)))
	require.NoError(t, err)
	var d decision.Desired
	for _, name := range []string{"orders-0", "orders-1", "orders-2"} {
		pod := r.Children.Pods[name]
		delete(pod.Annotations, lastApplied)
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "A", Value: "<&>\u2028"})
		d.Pods = append(d.Pods, pod)
	}
	body, err := r.Answer(decision.Decision{Children: d, Status: r.Cluster.Status}, nil)
	require.NoError(t, err)
	var got struct {
		Status   json.RawMessage
		Children []struct{ Spec json.RawMessage }
	}
	require.NoError(t, json.Unmarshal(body, &got))
	want, err := json.Marshal(r.Cluster.Status)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got.Status))
	for i, pod := range d.Pods {
		want, err := json.Marshal(pod.Spec)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got.Children[i].Spec))
	}
}

// TestGroupsAreWhatACallNeeds: with all of them a call is complete, without any one it is refused.
func TestGroupsAreWhatACallNeeds(t *testing.T) {
	for _, without := range append([]string{""}, Groups()...) {
		var call map[string]any
		require.NoError(t, json.Unmarshal(steady(t), &call))
		children := map[string]any{}
		for _, group := range Groups() {
			if group != without {
				children[group] = map[string]any{}
			}
		}
		call["children"] = children
		body, err := json.Marshal(call)
		require.NoError(t, err)
		_, err = ReadCluster(t.Context(), bytes.NewReader(body))
		if without == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, without)
		}
	}
}

// TestRecordsAreSealed: an answer seals records by the first key. One that no key has sealed as it is says so, is not
// sealed by an answer that keeps it, and neither is a seal of another object or cluster believed.
func TestRecordsAreSealed(t *testing.T) {
	keys := [][]byte{[]byte("the key"), []byte("the key before")}
	sealedBy := func(key int, change func(cm, call map[string]any)) *ClusterCall {
		r := read(t, steady(t))
		seal := record.Seal(keys[key], r.Cluster, r.Children.ConfigMaps["orders-epoch-1"])
		call := read(t, edited(t, func(call map[string]any) {
			m := at(call, "children", "ConfigMap.v1", "orders-epoch-1")
			at(m, "metadata", "annotations")[record.AnnotationSeal] = seal
			if change != nil {
				change(m, call)
			}
		}))
		call.Keys = keys
		return call
	}
	answered := func(r *ClusterCall) string {
		body, err := r.Answer(decision.Decision{Children: answer.AsObserved(r.Observation(time.Now(),
			observation.Settings{})), Status: r.Cluster.Status}, nil)
		require.NoError(t, err)
		var a response
		require.NoError(t, json.Unmarshal(body, &a))
		for _, child := range a.Children {
			if child.Kind == "ConfigMap" {
				return child.Metadata.Annotations[record.AnnotationSeal]
			}
		}
		return ""
	}
	for key := range keys {
		r := sealedBy(key, nil)
		require.Empty(t, r.Observation(time.Now(), observation.Settings{}).Unsealed)
		require.Equal(t, record.Seal(keys[0], r.Cluster, r.Children.ConfigMaps["orders-epoch-1"]), answered(r))
	}
	for name, change := range map[string]func(cm, call map[string]any){
		"data": func(cm, _ map[string]any) { at(cm, "data")["bootstrap"] = "{}" },
		"state": func(cm, _ map[string]any) {
			at(cm, "metadata", "annotations")[objects.Domain+"state"] = `{"nextMember":9}`
		},
		"more":     func(cm, _ map[string]any) { at(cm, "metadata", "annotations")[objects.Domain+"x"] = "" },
		"object":   func(cm, _ map[string]any) { at(cm, "metadata")["uid"] = "another" },
		"no seal":  func(cm, _ map[string]any) { delete(at(cm, "metadata", "annotations"), record.AnnotationSeal) },
		"namesake": func(_, call map[string]any) { at(call, "parent", "metadata")["uid"] = "another" },
	} {
		r := sealedBy(0, change)
		require.Equal(t, []string{"orders-epoch-1"}, r.Observation(time.Now(), observation.Settings{}).Unsealed, name)
		require.Equal(t, r.Children.ConfigMaps["orders-epoch-1"].Annotations[record.AnnotationSeal], answered(r), name)
	}
	r := sealedBy(0, func(cm, _ map[string]any) {
		at(cm, "metadata", "annotations")["example.com/mine"] = "noted by a person"
	})
	require.Empty(t, r.Observation(time.Now(), observation.Settings{}).Unsealed)
}

// TestKeptSpecCarriesWhatIsDecided: what the decision changes reaches the answer, and nothing else does.
func TestKeptSpecCarriesWhatIsDecided(t *testing.T) {
	podSpec := func(annotation string, decided *corev1.PodSpec) *corev1.PodSpec {
		return keptSpec(annotation, decided).(*corev1.PodSpec)
	}
	r := read(t, steady(t))
	observed := r.Children.Pods["orders-1"]
	annotation := observed.Annotations[lastApplied]

	var last struct{ Spec *corev1.PodSpec }
	require.NoError(t, json.Unmarshal([]byte(annotation), &last))
	require.Equal(t, last.Spec, keptSpec(annotation, &observed.Spec), "what was not changed is as it was applied")

	decided := observed.Spec.DeepCopy()
	decided.Containers[0].Image = "etcd:new"
	got := podSpec(annotation, decided)
	require.Equal(t, "etcd:new", got.Containers[0].Image)
	require.Empty(t, got.NodeName, "the scheduler's field is not ours")
	require.Equal(t, observed.Spec.Containers[0].Command, got.Containers[0].Command)

	last.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "etcd.quorate.dev/founded"}}
	gated, err := json.Marshal(map[string]any{"spec": last.Spec})
	require.NoError(t, err)
	require.Empty(t, podSpec(string(gated), decided).SchedulingGates, "the decision lifted the gate")
	decided.SchedulingGates = last.Spec.SchedulingGates
	require.Equal(t, last.Spec.SchedulingGates, podSpec(string(gated), decided).SchedulingGates)

	before := observed.Spec.DeepCopy()
	_ = keptSpec(annotation, &observed.Spec)
	require.Equal(t, before, &observed.Spec, "what was observed must not change")

	claim := r.Children.Claims["orders-1"]
	require.Empty(t, keptSpec(claim.Annotations[lastApplied], &claim.Spec).(*corev1.PersistentVolumeClaimSpec).VolumeName)
}
