package hooks

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// looking is a new cluster that looks into a store, whose pod has told this.
func looking(t *testing.T, l v1beta1.LatestSnapshot, told string) (observation.Observation, decision.Decision) {
	t.Helper()
	o := fresh(3)
	o.Cluster.Spec.Bootstrap = &v1beta1.Bootstrap{LatestSnapshot: &l}
	d := Decide(o)
	require.NoError(t, verify(o, d))
	require.Len(t, d.Children.Pods, 1)
	assert.False(t, recorded(d))
	pod := d.Children.Pods[0]
	pod.UID, pod.CreationTimestamp = "uid", metav1.NewTime(now)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerInspect,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: told}}}}
	o.Children.Pods[pod.Name] = pod
	d = Decide(o)
	require.NoError(t, verify(o, d))
	return o, d
}

func inBucket(none v1beta1.IfNone) v1beta1.LatestSnapshot {
	return v1beta1.LatestSnapshot{IfNone: none, Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "b", Prefix: "p"}}}
}

// TestLatestSnapshot: what a cluster begins with is what the store was said to have, and only a word of the store is a
// reason to begin without data.
func TestLatestSnapshot(t *testing.T) {
	found := `{"artifact":"default/demo/a.db.zst","sha256":"5a","clusterID":"c1","revision":7,"snapshots":2,` +
		`"completed":"2026-11-02T00:00:00Z"}`
	for name, c := range map[string]struct {
		ifNone   v1beta1.IfNone
		told     string
		source   string // empty: it waits
		outlook  decision.Outlook
		contains string
	}{
		"found":              {v1beta1.BeginEmpty, found, record.SourceSnapshot, "", "the snapshot in s3://b"},
		"found, in waiting":  {v1beta1.WaitForSnapshot, found, record.SourceSnapshot, "", "the snapshot in s3://b"},
		"none":               {v1beta1.BeginEmpty, `{"snapshots":0,"none":true}`, record.SourceEmpty, "", "begins with no data"},
		"none, and it waits": {v1beta1.WaitForSnapshot, `{"none":true,"error":"x"}`, "", decision.Works, "set that to BeginEmpty"},
		"no answer": {v1beta1.BeginEmpty, `{"reason":"Unreachable","error":"the store does not answer"}`, "", decision.Works,
			"is not known, and is looked at again every few minutes: the store does not answer"},
		"no right": {v1beta1.BeginEmpty, `{"reason":"Denied","error":"no"}`, "", decision.Waits, "is not known"},
		"nothing":  {v1beta1.BeginEmpty, "", "", decision.Works, "looking for the newest snapshot"},
		"a log":    {v1beta1.BeginEmpty, "panic: x", "", decision.Works, "looking for the newest snapshot"},
		"empty":    {v1beta1.BeginEmpty, "{}", "", decision.Works, "looking for the newest snapshot"},
		"both": {v1beta1.BeginEmpty, `{"artifact":"default/demo/a.db","none":true}`, "", decision.Works,
			"looking for the newest snapshot"},
		"another folder's": {v1beta1.BeginEmpty, `{"artifact":"default/other/a.db","snapshots":1}`, "", decision.Waits,
			"can't be a snapshot there"},
		"a command": {v1beta1.BeginEmpty, `{"artifact":"default/demo/$(tls.key)","snapshots":1}`, "", decision.Waits,
			"can't be a snapshot there"},
	} {
		t.Run(name, func(t *testing.T) {
			o, d := looking(t, inBucket(c.ifNone), c.told)
			assert.Contains(t, d.Reason.Message, c.contains)
			require.Equal(t, c.source != "", recorded(d))
			if c.source == "" {
				assert.Len(t, d.Children.Pods, 1, "the same pod looks again")
				assert.Equal(t, c.outlook, d.Outlook)
				return
			}
			assert.Empty(t, d.Children.Pods)
			r, err := record.Read(d.Children.ConfigMaps[0])
			require.NoError(t, err)
			assert.Equal(t, c.source, r.Source)
			assert.Contains(t, r.Evidence, "the folder default/demo in s3://b")
			if r.Snapshot != nil {
				assert.Equal(t, "s3://b/p/default/demo/a.db.zst", r.Snapshot.URL)
				assert.Equal(t, "5a", r.Snapshot.SHA256)
			}

			observe(&o, d) // the store has another one by now, and the spec another wish
			o.Cluster.Spec.Bootstrap.LatestSnapshot.IfNone = v1beta1.WaitForSnapshot
			o.Cluster.Spec.Bootstrap.LatestSnapshot.Folder = "default/other"
			later := Decide(o)
			require.NoError(t, verify(o, later))
			assert.Equal(t, c.source, later.Status.Origin.Source)
			assert.Equal(t, r.Evidence, later.Status.Origin.Evidence)
			assert.Len(t, later.Children.ConfigMaps, 1)
		})
	}
}

// TestWhoLooksIntoAStore has what a pod that restores has, waits for a label as that does, and looks again when it was
// evicted or the spec names another place.
func TestWhoLooksIntoAStore(t *testing.T) {
	l := inBucket(v1beta1.WaitForSnapshot)
	l.Store.S3.CredentialsSecretRef.Name = "keys"
	l.ServiceAccountName, l.Until = "backup", &v1beta1.Until{Latest: true}
	o := fresh(3)
	o.Cluster.Spec.Bootstrap = &v1beta1.Bootstrap{LatestSnapshot: &l}
	d := Decide(o)
	assert.Empty(t, d.Children.Pods)
	assert.Contains(t, d.Reason.Message, "kubectl label secret -n default keys")

	o.Related.Labelled = map[string]bool{"keys": true}
	d = Decide(o)
	require.Len(t, d.Children.Pods, 1)
	pod := d.Children.Pods[0]
	c := pod.Spec.Containers[0]
	assert.Equal(t, []string{"inspect", "--latest=default/demo", "--store-url=s3://b/p", "--wait"}, c.Args)
	assert.Equal(t, "keys", c.Env[0].ValueFrom.SecretKeyRef.Name)
	assert.Equal(t, "backup", pod.Spec.ServiceAccountName)
	assert.Equal(t, corev1.RestartPolicyOnFailure, pod.Spec.RestartPolicy)

	pod.UID, pod.CreationTimestamp = "uid", metav1.NewTime(now)
	o.Children.Pods[pod.Name] = pod
	require.Len(t, Decide(o).Children.Pods, 1)
	pod.Status.Phase = corev1.PodFailed
	assert.Len(t, Decide(o).Children.Pods, 1, "not at once")
	o.Now = now.Add(facts.InspectAgain + time.Second)
	assert.Empty(t, Decide(o).Children.Pods, "it goes, and another one comes")
	pod.Status.Phase = corev1.PodRunning
	l.Folder = "elsewhere"
	assert.Empty(t, Decide(o).Children.Pods, "it looks elsewhere")
	l.Folder = ""

	raw, err := json.Marshal(stores.Latest{Artifact: "default/demo/a.db", SHA256: "5a", ClusterID: "c1", Snapshots: 1})
	require.NoError(t, err)
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerInspect,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(raw)}}}}
	d = Decide(o)
	require.NoError(t, verify(o, d))
	r, err := record.Read(d.Children.ConfigMaps[0])
	require.NoError(t, err)
	assert.Equal(t, "s3://b/p/default/demo/tail/c1", r.Snapshot.Tail)
	assert.True(t, r.Snapshot.AsFar)
	assert.Equal(t, "backup", r.Snapshot.ServiceAccountName)
}
