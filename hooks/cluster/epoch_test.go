package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/reports"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// goOn decides, and lets what was decided be observed.
func goOn(t *testing.T, o *observation.Observation) decision.Decision {
	t.Helper()
	d := Decide(*o)
	require.NoError(t, verify(*o, d))
	observe(o, d)
	for name, claim := range o.Children.Claims {
		if claim.UID == "" {
			claim.UID, claim.OwnerReferences = types.UID("uid-claim-"+name),
				[]metav1.OwnerReference{{UID: o.Cluster.UID}}
		}
	}
	for name, pod := range o.Children.Pods {
		if pod.UID == "" {
			pod.UID, pod.CreationTimestamp = types.UID("uid-pod-"+name), metav1.NewTime(o.Now)
		}
	}
	return d
}

// seedWith lets a member's data directory be filled.
func seedWith(o *observation.Observation, name string, report reports.Restore) {
	raw, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	o.Children.Pods[name].Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerSeed,
		State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(raw)},
		}}}
}

// verified is an EtcdSnapshot that was restored on trial.
func verified(o *observation.Observation, name, clusterID string, age time.Duration) *v1alpha1.EtcdSnapshot {
	s := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1alpha1.EtcdSnapshotSpec{ClusterRef: v1alpha1.ClusterRef{Name: "demo"},
			Store: v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "bucket"}}}}
	s.Status = v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotSucceeded, URI: "s3://bucket/" + name,
		SHA256: "sum of " + name, ClusterID: clusterID,
		CompletionTime: metav1.NewTime(now.Add(-age)), VerificationTime: metav1.NewTime(now.Add(-age))}
	if o.Related.Snapshots == nil {
		o.Related.Snapshots = map[string]*v1alpha1.EtcdSnapshot{}
	}
	o.Related.Snapshots[name] = s
	return s
}

// stagedEpoch is a cluster of three whose next epoch's members have pods, demo-3 to demo-5, of a snapshot with a
// known SHA-256.
func stagedEpoch(t *testing.T) observation.Observation {
	o := serve(3)
	verified(&o, "s1", "c1", time.Hour)
	askRestore(&o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: "s1"}}})
	for range 6 {
		goOn(t, &o)
	}
	require.Len(t, o.Children.Pods, 6)
	return o
}

// TestACopyOfASnapshotIsRestored: of an EtcdSnapshot and a store, the artifact is fetched from that store, and must be
// the one that the EtcdSnapshot recorded.
func TestACopyOfASnapshotIsRestored(t *testing.T) {
	o := serve(3)
	verified(&o, "s1", "c1", time.Hour).Status.Artifact = "demo/s1.db"
	askRestore(&o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{
		SnapshotRef: v1alpha1.SnapshotRef{Name: "s1"},
		Store:       &v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "copy", Prefix: "far", Region: "eu-west-1"}}}})
	for range 6 {
		goOn(t, &o)
	}
	require.Len(t, o.Children.Pods, 6)
	var args []string
	for i := range o.Children.Pods["demo-3"].Spec.InitContainers {
		args = append(args, o.Children.Pods["demo-3"].Spec.InitContainers[i].Args...)
	}
	assert.Contains(t, args, "--url=s3://copy/far/demo/s1.db?region=eu-west-1")
	assert.Contains(t, args, "--sha256=sum of s1")
}

// TestTheGateOpensWhenAllHaveTheSame: initial members that were filled with different data never begin, and nothing
// is deleted for that.
func TestTheGateOpensWhenAllHaveTheSame(t *testing.T) {
	good := reports.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "sum of s1"}
	for what, change := range map[string]func(*reports.Restore){
		"the database": func(r *reports.Restore) { r.SHA256 = "another" },
		"the revision": func(r *reports.Restore) { r.Revision++ },
		"the keys":     func(r *reports.Restore) { r.Keys++ },
		"the hash":     func(r *reports.Restore) { r.Hash = "bbbb" },
		"no report":    func(r *reports.Restore) { *r = reports.Restore{} },
		"nothing":      func(*reports.Restore) {},
	} {
		t.Run(what, func(t *testing.T) {
			o := stagedEpoch(t)
			other := good
			change(&other)
			seedWith(&o, "demo-3", good)
			seedWith(&o, "demo-4", other)
			seedWith(&o, "demo-5", good)
			pods, claims := len(o.Children.Pods), len(o.Children.Claims)
			d := goOn(t, &o)
			c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.Restored)
			if what == "nothing" {
				assert.Equal(t, "epoch 2 is ready: stopping epoch 1; its volumes are kept", d.Reason.Message)
				return
			}
			for range 5 {
				d = goOn(t, &o)
			}
			assert.Equal(t, "PrepareRestore", d.Reason.Rule)
			words := "demo-3 and demo-4 were filled with different data, so the epoch does not begin"
			if what == "no report" {
				words = "waiting for the report of what was written to the volumes of demo-4"
			}
			assert.Contains(t, c.Message, words)
			assert.Equal(t, metav1.ConditionFalse, c.Status)
			assert.Equal(t, what != "no report", meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.Stalled),
				"you decide")
			assert.Len(t, o.Children.Pods, pods)
			assert.Len(t, o.Children.Claims, claims)
		})
	}
}

// TestAFirstEpochIsRestoredWhenAllHaveTheSame: it has no gate, but nothing else is said before.
func TestAFirstEpochIsRestoredWhenAllHaveTheSame(t *testing.T) {
	good := reports.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "sum of s1"}
	for _, same := range []bool{true, false} {
		o := fresh(3)
		verified(&o, "s1", "c0", time.Hour)
		askRestore(&o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: "s1"}}})
		for range 4 {
			goOn(t, &o)
		}
		d := goOn(t, &o)
		assert.False(t, meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.Restored), "nothing is filled yet")
		other := good
		if !same {
			other.Hash = "bbbb"
		}
		seedWith(&o, "demo-0", good)
		seedWith(&o, "demo-1", other)
		seedWith(&o, "demo-2", good)
		d = goOn(t, &o)
		assert.False(t, meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.Restored),
			"no quorum has answered yet")
		if !same {
			assert.Equal(t, "Start", d.Reason.Rule)
			assert.Contains(t, d.Reason.Message, "demo-0 and demo-1 were filled with different data")
			assert.True(t, meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.Stalled))
		}
		o.Etcd = &observation.Membership{ClusterID: 0xc1, Leader: 1}
		for i := range 3 {
			name := objects.MemberName("demo", i)
			o.Etcd.Members = append(o.Etcd.Members,
				observation.Member{ID: uint64(i + 1), Name: name, PeerURLs: []string{objects.PeerURL(o.Cluster, name,
					"")},
					ClientURLs: []string{objects.ClientURL(o.Cluster, name, "")}})
			o.Health[name] = observation.Health{ClusterID: 0xc1, MemberID: uint64(i + 1), Leader: 1, Version: "3.6.16",
				Revision: 1_500_000_009}
		}
		d = goOn(t, &o)
		assert.Equal(t, same, meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.Restored))
		assert.Equal(t, "2000000000",
			o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationHighestRevision])
	}
}

// TestTheFirstMemberDecidesWhichDatabase: no other is filled before its SHA-256 is written down, which stays.
func TestTheFirstMemberDecidesWhichDatabase(t *testing.T) {
	o := serve(3)
	askRestore(&o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{Artifact: "latest.db",
		Store: &v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "bucket"}}}})
	for range 6 {
		goOn(t, &o)
	}
	started := func() []string { return slices.Sorted(maps.Keys(o.Children.Pods)) }
	require.Equal(t, []string{"demo-0", "demo-1", "demo-2", "demo-3"}, started())
	report := reports.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "first"}
	seedWith(&o, "demo-3", report)
	goOn(t, &o)
	require.Len(t, started(), 4, "it is written down first")
	goOn(t, &o)
	require.Len(t, started(), 6)
	for _, name := range []string{"demo-3", "demo-4", "demo-5"} {
		assert.Equal(t, "first", o.Children.Pods[name].Annotations[objects.AnnotationSHA256], name)
		assert.True(t, epochs.Insists(o.Children.Pods[name], epochs.EnvSHA256), name)
	}
	// The first one is filled once more, as after a reboot of its node, with what is at the URL now.
	other := report
	other.SHA256 = "second"
	seedWith(&o, "demo-3", other)
	d := goOn(t, &o)
	assert.Equal(t, "first", o.Children.ConfigMaps["demo-epoch-2"].Annotations[objects.AnnotationSHA256])
	assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1alpha1.Restored).Message,
		"demo-3 was filled with different data from the first member's")
}

// TestTheFirstMemberDecidesWhereTheStreamEnds: a stream that is still written has one end for all.
func TestTheFirstMemberDecidesWhereTheStreamEnds(t *testing.T) {
	o := serve(3)
	askRestore(&o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{Artifact: "shop/demo/base.db",
		Store: &v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "bucket"}},
		Until: &v1alpha1.Until{Latest: true, ClusterID: "c1"}}})
	for range 6 {
		goOn(t, &o)
	}
	started := func() []string { return slices.Sorted(maps.Keys(o.Children.Pods)) }
	require.Equal(t, []string{"demo-0", "demo-1", "demo-2", "demo-3"}, started())
	first := seedOf(o.Children.Pods["demo-3"]).Args
	assert.Contains(t, first, "--tail-url=s3://bucket/shop/demo/tail/c1")
	assert.NotContains(t, strings.Join(first, " "), "--until-revision")
	report := reports.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "first", UntilRevision: 4711}
	seedWith(&o, "demo-3", report)
	goOn(t, &o)
	require.Len(t, started(), 4, "it is written down first")
	goOn(t, &o)
	require.Len(t, started(), 6)
	for _, name := range []string{"demo-3", "demo-4", "demo-5"} {
		assert.Equal(t, "4711", o.Children.Pods[name].Annotations[objects.AnnotationUntil], name)
		assert.True(t, epochs.Insists(o.Children.Pods[name], epochs.EnvUntil), name)
	}
	// The first one is filled once more, and ends elsewhere.
	other := report
	other.UntilRevision = 4712
	seedWith(&o, "demo-3", other)
	d := goOn(t, &o)
	assert.Equal(t, "4711", o.Children.ConfigMaps["demo-epoch-2"].Annotations[objects.AnnotationUntil])
	assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1alpha1.Restored).Message,
		"demo-3 was filled until revision 4712 and not until 4711")
}

// TestUntilARevision: which one is known, so all are filled at once.
func TestUntilARevision(t *testing.T) {
	o := serve(3)
	verified(&o, "base", "c1", time.Hour)
	askRestore(&o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{
		SnapshotRef: v1alpha1.SnapshotRef{Name: "base"}, Until: &v1alpha1.Until{Revision: 4711}}})
	for range 6 {
		goOn(t, &o)
	}
	require.Len(t, o.Children.Pods, 6)
	for _, name := range []string{"demo-3", "demo-4", "demo-5"} {
		args := strings.Join(seedOf(o.Children.Pods[name]).Args, " ")
		assert.Contains(t, args, "--tail-url=", name)
		assert.Contains(t, args, "/tail/c1 --until-revision=4711", name)
	}
}

// TestUntilATime: the first member finds the revision.
func TestUntilATime(t *testing.T) {
	o := serve(3)
	verified(&o, "base", "c1", time.Hour)
	askRestore(&o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{
		SnapshotRef: v1alpha1.SnapshotRef{Name: "base"}, Until: &v1alpha1.Until{Time: "2026-11-22T14:59:00.25+01:00"}}})
	said := goOn(t, &o).Reason.Message
	assert.Contains(t, said, "and what its stream has stored since, until 2026-11-22T13:59:00Z")
	for range 5 {
		goOn(t, &o)
	}
	require.Len(t, o.Children.Pods, 4)
	args := seedOf(o.Children.Pods["demo-3"]).Args
	assert.Contains(t, args, "--until-time=2026-11-22T13:59:00.25Z")
	assert.NotContains(t, strings.Join(args, " "), "--until-revision")
	seedWith(&o, "demo-3", reports.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "sum of base",
		UntilRevision: 4711})
	goOn(t, &o)
	goOn(t, &o)
	require.Len(t, o.Children.Pods, 6)
	assert.Equal(t, "4711", o.Children.Pods["demo-4"].Annotations[objects.AnnotationUntil])
}

// TestARecoveryFollowsTheStream: as far as the first member can; how far, and what ended that, is said.
func TestARecoveryFollowsTheStream(t *testing.T) {
	o := serve(3)
	verified(&o, "own", "c1", time.Hour)
	for name := range o.Health {
		silence(&o, name)
	}
	o.Etcd = nil
	meta.SetStatusCondition(&o.Cluster.Status.Conditions, metav1.Condition{Type: v1alpha1.Available,
		Status: metav1.ConditionFalse, Reason: "Blind", LastTransitionTime: metav1.NewTime(now.Add(-24 * time.Hour))})
	watch(&o, 24*time.Hour)
	askRecover(&o, v1alpha1.RecoverFromSnapshot, 1)
	said := goOn(t, &o).Reason.Message
	assert.Contains(t, said, "begins with EtcdSnapshot own in s3://bucket and what a stream has stored since, if there "+
		"is one")
	for range 5 {
		goOn(t, &o)
	}
	require.Len(t, o.Children.Pods, 4)
	args := seedOf(o.Children.Pods["demo-3"]).Args
	assert.Contains(t, args, "--tail-url=s3://bucket/default/demo/tail/c1")
	assert.Contains(t, args, "--as-far-as-possible")
	report := reports.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "sum of own", UntilRevision: 4711,
		Replayed: 37}
	first := report
	first.UntilTime, first.Ended = now.Add(-time.Minute), "users or roles have changed"
	seedWith(&o, "demo-3", first)
	goOn(t, &o)
	require.Len(t, o.Children.Pods, 4, "it is written down first")
	goOn(t, &o)
	require.Len(t, o.Children.Pods, 6)
	for _, name := range []string{"demo-4", "demo-5"} {
		assert.Equal(t, "4711", o.Children.Pods[name].Annotations[objects.AnnotationUntil], name)
		assert.True(t, epochs.Insists(o.Children.Pods[name], epochs.EnvUntil), name)
		seedWith(&o, name, report) // they end there because they are told to
	}
	for range 12 {
		if said = goOn(t, &o).Reason.Message; strings.HasPrefix(said, "epoch 2 begins") {
			break
		}
		for _, name := range []string{"demo-0", "demo-1", "demo-2"} {
			delete(o.Children.Pods, name)
			delete(o.Health, name)
		}
	}
	came := "37 revisions came from its stream, the last is 4711, of " +
		now.Add(-time.Minute).UTC().Format("2006-01-02 15:04:05 UTC") + "; no more, because users or roles have changed"
	assert.Equal(t, "epoch 2 begins: its data comes from EtcdSnapshot own in s3://bucket; "+came, said)
	assert.Equal(t, came, goOn(t, &o).Status.Origin.Evidence)
}

func seedOf(pod *corev1.Pod) *corev1.Container {
	i := slices.IndexFunc(pod.Spec.InitContainers,
		func(c corev1.Container) bool { return c.Name == objects.ContainerSeed })
	return &pod.Spec.InitContainers[i]
}

// TestWhichSnapshotIsTakenByItself: one of the life that is lost, or what that began with. A person
// gets another one where there is nothing else.
func TestWhichSnapshotIsTakenByItself(t *testing.T) {
	origin := &state.Resolved{URL: "s3://bucket/origin"}
	for _, c := range []struct {
		name  string
		given func(o *observation.Observation, e *state.Epoch)
		by    string // itself, or why not
		asked string
	}{
		{"none", func(*observation.Observation, *state.Epoch) {}, "it has no verified EtcdSnapshot",
			"it has no verified EtcdSnapshot"},
		{"of this life", func(o *observation.Observation, _ *state.Epoch) { verified(o, "own", "c1", time.Hour) },
			"s3://bucket/own",
			"s3://bucket/own"},
		{"the newest of this life", func(o *observation.Observation, _ *state.Epoch) {
			verified(o, "own", "c1", time.Hour)
			verified(o, "older", "c1", 2*time.Hour)
		}, "s3://bucket/own", "s3://bucket/own"},
		{"a newer one of another life", func(o *observation.Observation, _ *state.Epoch) {
			verified(o, "own", "c1", time.Hour)
			verified(o, "other", "c0", time.Minute)
		}, "s3://bucket/own", "s3://bucket/own"},
		{"only of another life", func(o *observation.Observation, _ *state.Epoch) {
			verified(o, "other", "c0",
				time.Minute)
		},
			"the newest one, other, is of an earlier etcd cluster, c0", "s3://bucket/other"},
		{"of an unknown life", func(o *observation.Observation, _ *state.Epoch) {
			verified(o, "other", "",
				time.Minute)
		},
			"the newest one, other, is of an earlier etcd cluster, unknown", "s3://bucket/other"},
		{"it was not restored on trial",
			func(o *observation.Observation, _ *state.Epoch) {
				verified(o, "own", "c1", time.Hour).Status.VerificationTime = metav1.Time{}
			},
			"it has no verified EtcdSnapshot", "it has no verified EtcdSnapshot"},
		{"what it began with", func(o *observation.Observation, e *state.Epoch) { e.Snapshot = origin },
			"s3://bucket/origin",
			"s3://bucket/origin"},
		{"what it began with, rather than another life's", func(o *observation.Observation, e *state.Epoch) {
			e.Snapshot = origin
			verified(o, "other", "c0", time.Minute)
		}, "s3://bucket/origin", "s3://bucket/origin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := serve(3)
			v := newView(o)
			c.given(&o, v.Epoch)
			v.Related = o.Related
			for _, asked := range []bool{false, true} {
				want := c.by
				if asked {
					want = c.asked
				}
				from, why := epochs.WayBack(v, v1alpha1.RecoverFromSnapshot, asked)
				if strings.HasPrefix(want, "s3://") {
					assert.Empty(t, why, asked)
					assert.Equal(t, want, from.Snapshot.URL, asked)
				} else {
					assert.Contains(t, why, want, asked)
				}
			}
		})
	}
	v := newView(serve(3))
	v.Epoch.Snapshot, v.Epoch.Sum = origin, "found by the first member"
	from, _ := epochs.WayBack(v, v1alpha1.RecoverFromSnapshot, false)
	assert.Equal(t, "found by the first member", from.Snapshot.SHA256, "what is there now may be something else")
	assert.Empty(t, origin.SHA256)
	v.Epoch.Until = 4711
	from, _ = epochs.WayBack(v, v1alpha1.RecoverFromSnapshot, false)
	assert.Equal(t, int64(4711), from.Snapshot.Until, "as much of the stream as it began with")
	o := serve(3)
	verified(&o, "other", "", time.Minute)
	from, _ = epochs.WayBack(newView(o), v1alpha1.RecoverFromSnapshot, true)
	assert.Empty(t, from.Snapshot.Tail, "it is not known of which etcd a stream would be")
}

// surveying is a cluster of three that lost its quorum by this data, while the volumes that are left are looked at.
func surveying(t *testing.T, recovery v1alpha1.Recovery, lost ...string) observation.Observation {
	o := serve(3)
	o.Cluster.Spec.Recovery = recovery
	for _, name := range lost {
		lose(&o, name)
	}
	for name := range o.Health {
		silence(&o, name)
	}
	o.Etcd = nil
	meta.SetStatusCondition(&o.Cluster.Status.Conditions,
		metav1.Condition{Type: v1alpha1.Available, Status: metav1.ConditionFalse, Reason: "Blind",
			LastTransitionTime: metav1.NewTime(now.Add(-24 * time.Hour))})
	watch(&o, 24*time.Hour)
	askRecover(&o, v1alpha1.RecoverFromSurvivor, 1)
	for range 8 {
		goOn(t, &o)
		for _, name := range []string{"demo-0", "demo-1", "demo-2"} { // the nodes answer
			delete(o.Children.Pods, name)
			delete(o.Health, name)
		}
	}
	noAsk(&o)
	return o
}

// tell lets the look at a member's volume end.
func tell(o *observation.Observation, name string, report reports.Survey) {
	raw, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	o.Children.Pods[name+epochs.SurveySuffix].Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: objects.ContainerSurvey, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(raw)},
		}}}
}

// TestHowLongAVolumeIsWaitedFor: longer than Kubernetes takes to detach it, and then for a person.
func TestHowLongAVolumeIsWaitedFor(t *testing.T) {
	for after, wait := range map[time.Duration]time.Duration{0: 10 * time.Minute, 30 * time.Second: 10 * time.Minute,
		20 * time.Minute: 20 * time.Minute} {
		o := surveying(t, v1alpha1.Recovery{After: metav1.Duration{Duration: after}}, "demo-0")
		tell(&o, "demo-1", reports.Survey{LastTerm: 2, LastIndex: 7, ClusterID: "c1"})
		pass(&o, now.Add(wait-time.Second))
		assert.Equal(t, "inspecting the volumes of demo-2", goOn(t, &o).Reason.Message)
		pass(&o, now.Add(wait))
		d := goOn(t, &o)
		assert.Contains(t, d.Reason.Message, fmt.Sprintf("demo-2 may have the newest data, and could not be reached "+
			"within %s", wording.Brief(wait)))
		assert.True(t, meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.Stalled))
		for range 3 {
			pass(&o, o.Now.Add(time.Hour))
			assert.Equal(t, d.Reason.Message, goOn(t, &o).Reason.Message, "it waits for a person")
		}
		askRecover(&o, v1alpha1.RecoverFromSnapshot, 1)
		assert.NotContains(t, goOn(t, &o).Reason.Message, "has the most", "that is no word about survivors")
		askRecover(&o, v1alpha1.RecoverFromSurvivor, 1)
		assert.NotContains(t, goOn(t, &o).Reason.Message, "has the most", "that was said before demo-2 was known")
		o.Children.Claims["demo-2"].Annotations[objects.AnnotationFailedMember] = "true"
		assert.Equal(t, "demo-1 has the newest data (demo-1: term 2, index 7; demo-2: was replaced before, and does "+
			"not count)", goOn(t, &o).Reason.Message)
	}
}

// TestAMajorityThatHasToldIsEnough: what was acknowledged is on one of them. One that did not vote does not count.
func TestAMajorityThatHasToldIsEnough(t *testing.T) {
	for voters, goesOn := range map[string]bool{"0.1.2": true, "0.1": true, "0.2": false, "0.2.3": false, "": false} {
		o := surveying(t, v1alpha1.Recovery{})
		record := o.Children.ConfigMaps["demo-epoch-2"]
		record.Data[objects.EpochKeyPast] = "1=c1/" + voters
		tell(&o, "demo-0", reports.Survey{LastTerm: 2, LastIndex: 7, ClusterID: "c1"})
		tell(&o, "demo-1", reports.Survey{LastTerm: 2, LastIndex: 9, ClusterID: "c1"})
		pass(&o, now.Add(10*time.Minute))
		said := goOn(t, &o).Reason.Message
		assert.Equal(t, goesOn, strings.HasPrefix(said, "demo-1 has the newest data"), "%s: %s", voters, said)
	}
}

// TestWhoseVolumesCount: those of the etcd that the epoch was. Where it is not known which one that was, they must
// agree.
func TestWhoseVolumesCount(t *testing.T) {
	for past, want := range map[string]string{
		"1=c1/": "demo-0 has the newest data (demo-0: term 2, index 7; demo-1: its volume is of another etcd " +
			"cluster, bad instead of c1, and does not count; demo-2: term 1, index 9)",
		"1=0/": "the volumes are of different etcd clusters, and nothing records which one epoch 1 was: demo-0: term " +
			"2, index 7, of etcd cluster c1; demo-1: term 3, index 5, of etcd cluster bad; demo-2: term 1, index 9, " +
			"of etcd cluster c1; to continue without those to leave out, kubectl annotate -n default pvc/<name> " +
			"etcd.quorate.dev/failed-member=true",
	} {
		o := surveying(t, v1alpha1.Recovery{})
		o.Children.ConfigMaps["demo-epoch-2"].Data[objects.EpochKeyPast] = past
		tell(&o, "demo-0", reports.Survey{LastTerm: 2, LastIndex: 7, ClusterID: "c1"})
		tell(&o, "demo-1", reports.Survey{LastTerm: 3, LastIndex: 5, ClusterID: "bad"})
		tell(&o, "demo-2", reports.Survey{LastTerm: 1, LastIndex: 9, ClusterID: "c1"})
		assert.Equal(t, want, goOn(t, &o).Reason.Message)
	}
	o := surveying(t, v1alpha1.Recovery{})
	assert.Equal(t, "1=c1/", o.Children.ConfigMaps["demo-epoch-2"].Data[objects.EpochKeyPast],
		"it is known from the record, and who voted is not")
}

// TestWhoWasGivenUpIsNoSurvivor: in no epoch, however its claim came to its mark.
func TestWhoWasGivenUpIsNoSurvivor(t *testing.T) {
	o := serve(3)
	marks := map[string]map[string]string{
		"demo-0": {},
		"demo-1": {objects.AnnotationFailedMember: "true"},
		"demo-2": {objects.AnnotationFailedMember: "true", objects.AnnotationQuarantined: now.Format(time.RFC3339)},
	}
	for name, own := range marks {
		o.Children.Claims[name].Annotations = own
	}
	assert.Equal(t, []string{"demo-0"}, epochs.Survivors(newView(o), 1))
	for _, own := range marks { // as a later epoch has them, and what it leaves behind
		own[objects.AnnotationEpoch] = "1"
	}
	assert.Equal(t, []string{"demo-0"}, epochs.Survivors(newView(o), 1))
	v := newView(o)
	for name := range marks {
		claim := *o.Children.Claims[name]
		epochs.LeaveBehind(v, &claim, 1)
		o.Children.Claims[name] = &claim
	}
	assert.Equal(t, []string{"demo-0"}, epochs.Survivors(newView(o), 1))
	wal := *o.Children.Claims["demo-1"]
	wal.Name = state.WALClaim("demo-0")
	o.Children.Claims[wal.Name] = &wal
	assert.Empty(t, epochs.Survivors(newView(o), 1), "its log is on another volume, and that is marked")
}

// TestWhatWasNeverBoundIsNoSurvivor: every other claim may have data, whatever its phase.
func TestWhatWasNeverBoundIsNoSurvivor(t *testing.T) {
	bare := serve(3)
	cases := []struct {
		what   string
		change func(claim, wal *corev1.PersistentVolumeClaim)
		counts bool
	}{
		{"waits for the first pod", func(c, _ *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending },
			false},
		{"bound", func(c, _ *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }, true},
		{"its volume is gone, or is not seen",
			func(c, _ *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }, true},
		{"nothing tells", func(c, _ *corev1.PersistentVolumeClaim) { c.Status.Phase = "" }, true},
		{"is about to be bound to a volume that a user chose", func(c, _ *corev1.PersistentVolumeClaim) {
			c.Status.Phase, c.Spec.VolumeName = corev1.ClaimPending, "pv-from-a-backup"
		}, true},
		{"is about to be filled", func(c, _ *corev1.PersistentVolumeClaim) {
			c.Status.Phase, c.Spec.DataSource = corev1.ClaimPending,
				&corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "good"}
		}, true},
		{"only its write-ahead log's waits", func(c, wal *corev1.PersistentVolumeClaim) {
			c.Status.Phase, wal.Status.Phase = corev1.ClaimBound, corev1.ClaimPending
		}, true},
	}
	for _, c := range cases {
		o := bare
		claim, wal := *bare.Children.Claims["demo-1"], *bare.Children.Claims["demo-1"]
		wal.Name = state.WALClaim("demo-1")
		c.change(&claim, &wal)
		o.Children.Claims = maps.Clone(bare.Children.Claims)
		o.Children.Claims[claim.Name], o.Children.Claims[wal.Name] = &claim, &wal
		assert.Equal(t, c.counts, slices.Contains(epochs.Survivors(newView(o), 1), "demo-1"), c.what)
	}
}

// TestAnotherEtcdIsNoSource: on Memory, what answers at a member's address may be another etcd.
func TestAnotherEtcdIsNoSource(t *testing.T) {
	o := serve(3)
	o.Etcd = nil
	for i, name := range []string{"demo-0", "demo-1", "demo-2"} {
		o.Health[name] = observation.Health{ClusterID: []uint64{0xc1, 0xbad, 0xc1}[i], MemberID: uint64(i),
			RaftTerm: uint64(5 - i), RaftIndex: uint64(i)}
	}
	h := o.Health["demo-1"]
	h.RaftTerm = 9
	o.Health["demo-1"] = h
	assert.Equal(t, "demo-0: term 5, index 0; demo-2: term 3, index 2", epochs.Answering(newView(o)))
}

// TestRevisionsAreNotedInSteps: so nothing is written at rest, nor with each write.
func TestRevisionsAreNotedInSteps(t *testing.T) {
	for revision, want := range map[int64]int64{-5: epochs.RevisionStep, 0: epochs.RevisionStep,
		epochs.RevisionStep - 1: epochs.RevisionStep,
		epochs.RevisionStep:     2 * epochs.RevisionStep, 3*epochs.RevisionStep + 1: 4 * epochs.RevisionStep} {
		assert.Equal(t, want, epochs.Noted(revision))
	}
	for _, revision := range []int64{state.MostRevisions, state.MostRevisions + 1, 1<<63 - 1} {
		assert.LessOrEqual(t, epochs.Noted(revision), int64(state.MostRevisions))
		assert.Greater(t, epochs.Noted(revision), int64(state.MostRevisions-2*epochs.RevisionStep))
	}
	o := serve(3)
	at := func(revision int64) string {
		for name, h := range o.Health {
			h.Revision = revision
			o.Health[name] = h
		}
		goOn(t, &o)
		peers := o.Children.Services["demo-peers"].Annotations[objects.AnnotationHighestRevision]
		assert.Equal(t, o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationHighestRevision], peers,
			"the copy is like it")
		return peers
	}
	assert.Empty(t, at(1))
	assert.Empty(t, at(epochs.RevisionStep-1))
	assert.Equal(t, "1000000000", at(epochs.RevisionStep))
	assert.Equal(t, "1000000000", at(2*epochs.RevisionStep-1))
	assert.Equal(t, "2000000000", at(3*epochs.RevisionStep+7))
	assert.Equal(t, "2000000000", at(5), "it never goes back")

	h := o.Health["demo-1"]
	h.ClusterID, h.Revision = 0xbad, 9*epochs.RevisionStep
	o.Health["demo-1"] = h
	assert.EqualValues(t, 5, epochs.ObservedRevision(newView(o)), "what another etcd says is nothing")
	o.Etcd = nil
	h.ClusterID = 0xc1
	o.Health["demo-1"] = h
	assert.EqualValues(t, 9*epochs.RevisionStep, epochs.ObservedRevision(newView(o)),
		"without a quorum, what a member says is something")

	o = serve(3)
	for name, member := range o.Health {
		member.Revision = 7 * epochs.RevisionStep
		o.Health[name] = member
	}
	goOn(t, &o)
	o.Etcd, o.Health, o.Cluster.Status = nil, map[string]observation.Health{}, v1alpha1.EtcdClusterStatus{}
	delete(o.Children.ConfigMaps, "demo-epoch-1")
	d := Decide(o)
	assert.Equal(t, "Record", d.Reason.Rule)
	assert.Equal(t, "4000000000", d.Children.ConfigMaps[0].Annotations[objects.AnnotationHighestRevision],
		"the record was deleted, and the copy is there")
}

// TestWhatARecordRemembers is written and read again, the latest 32.
func TestWhatARecordRemembers(t *testing.T) {
	list, answers := map[int]state.Past{}, map[string]int{}
	for n := 1; n <= 40; n++ {
		list[n], answers[fmt.Sprint("id.", n, ":x")] = state.Past{ClusterID: uint64(n), Voters: "0.1.2"}, n
	}
	read := state.ReadPast(state.FormatPast(list))
	assert.Len(t, read, 32)
	assert.Equal(t, state.Past{}, read[8])
	assert.Equal(t, state.Past{ClusterID: 0x28, Voters: "0.1.2"}, read[40])
	given := state.ReadAnswered(state.FormatAnswered(answers))
	assert.Len(t, given, 32)
	assert.Zero(t, given["id.8:x"])
	assert.Equal(t, 9, given["id.9:x"])
	assert.Equal(t, "id.39:x", state.LastAnswer(given, 40))
	assert.Empty(t, state.LastAnswer(nil, 40))
}

// TestVerifySeesWhereAnEpochBegins: what the rules of epochs must not do.
func TestVerifySeesWhereAnEpochBegins(t *testing.T) {
	good := reports.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "sum of s1"}
	for words, wrong := range map[string]func(o *observation.Observation, d *decision.Decision){
		"S21: epoch 2 begins above revision 0, and epoch 1 has come to 1000": func(o *observation.Observation,
			d *decision.Decision) {
			*o = serve(3)
			for name, h := range o.Health {
				h.Revision = 1000
				o.Health[name] = h
			}
			verified(o, "s1", "c1", time.Hour)
			askRestore(o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: "s1"}}})
			*d = Decide(*o)
			d.Children.ConfigMaps[1].Data[objects.EpochKeyRevisionFloor] = "0"
		},
		"S21: the highest revision that is noted goes back from 3000000000 to 0": func(o *observation.Observation,
			d *decision.Decision) {
			*o = serve(3)
			o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationHighestRevision] = "3000000000"
			*d = Decide(*o)
			delete(d.Children.ConfigMaps[0].Annotations, objects.AnnotationHighestRevision)
		},
		"S21: demo-3 is not told at which revision its epoch begins": func(o *observation.Observation,
			d *decision.Decision) {
			*d = Decide(*o)
			for _, pod := range d.Children.Pods {
				if pod.Name == "demo-3" {
					seedOf(pod).Args = nil
				}
			}
		},
		"S21: epoch 2 begins with {Revision:1500000000 Keys:7 Hash:aaaa SHA256:sum of s1 UntilRevision:0 " +
			"Replayed:0 UntilTime:0001-01-01 00:00:00 +0000 UTC Ended: Reason: Error:} and": func(o *observation.Observation, d *decision.Decision) {
			for _, name := range []string{"demo-3", "demo-4", "demo-5"} {
				seedWith(o, name, good)
			}
			for range 12 {
				if next := Decide(*o); strings.HasPrefix(next.Reason.Message, "epoch 2 begins") {
					break
				}
				goOn(t, o)
				for _, name := range []string{"demo-0", "demo-1", "demo-2"} {
					delete(o.Children.Pods, name)
				}
				o.Etcd, o.Health = nil, map[string]observation.Health{}
			}
			*d = Decide(*o)
			other := good
			other.Hash = "bbbb"
			seedWith(o, "demo-5", other)
		},
		"S8: epoch 2 answers the restore \"one\", which was answered before": func(o *observation.Observation,
			d *decision.Decision) {
			*o = serve(3)
			verified(o, "s1", "c1", time.Hour)
			askRestore(o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: "s1"}}})
			*d = Decide(*o)
			o.Children.Services["demo-peers"].Annotations[objects.AnnotationAnswered] = "one=1"
		},
		"S8: epoch 2 takes the record of another one": func(o *observation.Observation, d *decision.Decision) {
			*o = serve(3)
			verified(o, "s1", "c1", time.Hour)
			askRestore(o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: "s1"}}})
			*d = Decide(*o)
			was := d.Children.ConfigMaps[1].DeepCopy()
			was.Data[objects.EpochKeyRestore] = "zero"
			o.Children.ConfigMaps[was.Name] = was
		},
	} {
		t.Run(words, func(t *testing.T) {
			o := stagedEpoch(t)
			var d decision.Decision
			wrong(&o, &d)
			assert.ErrorContains(t, verify(o, d), words)
		})
	}
}

// TestHowAnEpochIsFilledOnceMore: what a person is told to do works where it is told.
func TestHowAnEpochIsFilledOnceMore(t *testing.T) {
	for want, e := range map[string]*state.Epoch{
		"create another EtcdOperation to restore again": {N: 3, Origin: state.Origin{Restore: "b"},
			Succession: state.Succession{After: 2}, Answered: map[string]int{"a": 2, "b": 3}},
		"choose another way by an EtcdOperation of type Recover": {N: 3,
			Origin:     state.Origin{Restore: "a"},
			Succession: state.Succession{After: 2}, Answered: map[string]int{"a": 2}},
		"delete one of their pods to fill all of them again": {N: 2, Origin: state.Origin{Member: "demo-0"},
			Succession: state.Succession{After: 1}},
		"delete the EtcdCluster and create it again": {N: 1},
	} {
		assert.Equal(t, want, epochs.OtherwiseFilled((&state.View{Epoch: e})))
	}
}

// TestAPodThatEndsWithoutAWord says nothing of its volume: it is made again, and the volume is waited for. Only what
// was read, and is not whole, does not count.
func TestAPodThatEndsWithoutAWord(t *testing.T) {
	for name, end := range map[string]*corev1.ContainerStateTerminated{
		"evicted":       nil,
		"out of memory": {ExitCode: 137, Reason: "OOMKilled"},
		"never started": {ExitCode: 128, Reason: "StartError", Message: "failed to create containerd task"},
		"unknown":       {ExitCode: 137, Reason: "ContainerStatusUnknown"},
		"could not":     {ExitCode: 1, Message: `{"reason":"Failed","error":"input/output error"}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := surveying(t, v1alpha1.Recovery{}, "demo-0")
			tell(&o, "demo-1", reports.Survey{LastTerm: 2, LastIndex: 7, ClusterID: "c1"})
			pod := o.Children.Pods["demo-2-survey"]
			pod.Status.Phase = corev1.PodFailed
			if end != nil {
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerSurvey,
					State: corev1.ContainerState{Terminated: end}}}
			}
			assert.Equal(t, "inspecting the volumes of demo-2", goOn(t, &o).Reason.Message)
			pass(&o, now.Add(epochs.SurveyAgain))
			goOn(t, &o)
			assert.Nil(t, o.Children.Pods["demo-2-survey"])
			goOn(t, &o)
			assert.NotEqual(t, corev1.PodFailed, o.Children.Pods["demo-2-survey"].Status.Phase)
			pass(&o, now.Add(epochs.SurveyAtLeast))
			assert.Contains(t, goOn(t, &o).Reason.Message, "demo-2 may have the newest data, and could not be reached", "the wait did not begin again")
		})
	}
	o := surveying(t, v1alpha1.Recovery{}, "demo-0")
	tell(&o, "demo-1", reports.Survey{LastTerm: 2, LastIndex: 7, ClusterID: "c1"})
	tell(&o, "demo-2", reports.Survey{Reason: "Damaged", Error: "the log ends midway"})
	assert.Equal(t, "demo-1 has the newest data (demo-1: term 2, index 7; demo-2: the log ends midway)",
		goOn(t, &o).Reason.Message)
}

// TestAHashThatIsNotKnownIsNoOther: in the middle of a compaction a report has neither keys nor a hash. Those that
// have one must agree.
func TestAHashThatIsNotKnownIsNoOther(t *testing.T) {
	o := stagedEpoch(t)
	known := reports.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "sum of s1"}
	bare, other := known, known
	bare.Keys, bare.Hash, other.Hash = 0, "", "bbbb"
	for _, c := range []struct {
		reports [3]reports.Restore
		differ  bool
	}{
		{[3]reports.Restore{known, bare, known}, false},
		{[3]reports.Restore{bare, known, known}, false},
		{[3]reports.Restore{bare, known, other}, true},
		{[3]reports.Restore{known, bare, other}, true},
	} {
		for i, name := range []string{"demo-3", "demo-4", "demo-5"} {
			seedWith(&o, name, c.reports[i])
		}
		assert.Equal(t, c.differ, epochs.Differing(newView(o).Next) != "", c.reports)
	}
}
