package hooks

import (
	"encoding/json"
	"fmt"
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

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
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
func seedWith(o *observation.Observation, name string, report stores.Restore) {
	raw, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	o.Children.Pods[name].Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerSeed,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(raw)}}}}
}

// verified is an EtcdSnapshot that was restored on trial.
func verified(o *observation.Observation, name, clusterID string, age time.Duration) *v1beta1.EtcdSnapshot {
	s := &v1beta1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1beta1.EtcdSnapshotSpec{ClusterRef: v1beta1.ClusterRef{Name: "demo"},
			Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "bucket"}}}}
	s.Status = v1beta1.EtcdSnapshotStatus{Phase: v1beta1.SnapshotSucceeded, URI: "s3://bucket/" + name,
		SHA256: "sum of " + name, ClusterID: clusterID,
		CompletionTime: metav1.NewTime(now.Add(-age)), VerificationTime: metav1.NewTime(now.Add(-age))}
	if o.Related.Snapshots == nil {
		o.Related.Snapshots = map[string]*v1beta1.EtcdSnapshot{}
	}
	o.Related.Snapshots[name] = s
	return s
}

// preparedEpoch is a cluster of three whose next epoch's members have pods, demo-3 to demo-5, of a snapshot with a
// known SHA-256.
func preparedEpoch(t *testing.T) observation.Observation {
	o := serve(3)
	verified(&o, "s1", "c1", time.Hour)
	askSnapshot(&o, "one", "s1")
	for range 6 {
		goOn(t, &o)
	}
	require.Len(t, o.Children.Pods, 6)
	return o
}

// TestTheOwnersOfASnapshotsSecretsMustAgree: no epoch is recorded whose members would have a Secret that has no label.
func TestTheOwnersOfASnapshotsSecretsMustAgree(t *testing.T) {
	for _, name := range []string{"keys", "trust", "age"} {
		o := serve(3)
		s := verified(&o, "s1", "c1", time.Hour)
		s.Spec.Store.S3.CredentialsSecretRef.Name, s.Spec.Store.CASecretRef.Name = "keys", "trust"
		askSnapshot(&o, "one", "s1").Spec.Restore.Snapshot.IdentitySecretRef.Name = "age"
		o.Related.Labelled = map[string]bool{"keys": true, "trust": true, "age": true}
		delete(o.Related.Labelled, name)
		goOn(t, &o)
		require.Len(t, o.Children.ConfigMaps, 1)
		assert.Contains(t, fmt.Sprint(Decide(o).Status.Operations), "the Secret "+name+", which the snapshot's source names, is "+
			"not there or lacks the label that lets pods have it: kubectl label secret -n default "+name+" etcd.quorate.dev/external=")
		o.Related.Labelled[name] = true
		goOn(t, &o)
		require.Len(t, o.Children.ConfigMaps, 2)
	}
}

func seedOf(pod *corev1.Pod) *corev1.Container {
	i := slices.IndexFunc(pod.Spec.InitContainers,
		func(c corev1.Container) bool { return c.Name == objects.ContainerSeed })
	return &pod.Spec.InitContainers[i]
}

// TestWhichSnapshotIsTakenByItself: one of the life that is lost, or what that began with. A person gets another one
// where there is nothing else.
func TestWhichSnapshotIsTakenByItself(t *testing.T) {
	origin := &record.Resolved{URL: "s3://bucket/origin"}
	const own, none = "s3://bucket/own", "it has no verified EtcdSnapshot"
	type snapshots map[string]string // the life of each
	for _, c := range []struct {
		name     string
		there    snapshots
		origin   *record.Resolved
		byItself string // or why not
		asked    string
	}{
		{"none", nil, nil, none, none},
		{"of this life", snapshots{"own": "c1"}, nil, own, own},
		{"the newest of this life", snapshots{"own": "c1", "older": "c1"}, nil, own, own},
		{"a newer one of another life", snapshots{"own": "c1", "other": "c0"}, nil, own, own},
		{"only of another life", snapshots{"other": "c0"}, nil,
			"the newest one, other, is of an earlier etcd cluster, c0", "s3://bucket/other"},
		{"of an unknown life", snapshots{"other": ""}, nil,
			"the newest one, other, is of an earlier etcd cluster, unknown", "s3://bucket/other"},
		{"it was not restored on trial", snapshots{"untried": "c1"}, nil, none, none},
		{"what it began with", nil, origin, origin.URL, origin.URL},
		{"that, rather than another life's", snapshots{"other": "c0"}, origin, origin.URL, origin.URL},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := serve(3)
			age := map[string]time.Duration{"own": time.Hour, "older": 2 * time.Hour, "other": time.Minute}
			for name, life := range c.there {
				if s := verified(&o, name, life, age[name]); name == "untried" {
					s.Status.VerificationTime = metav1.Time{}
				}
			}
			f := facts.New(o)
			f.Epoch.Snapshot = c.origin
			for asked, want := range map[bool]string{false: c.byItself, true: c.asked} {
				from, why := f.WayBack(v1beta1.RecoverFromSnapshot, asked)
				if strings.HasPrefix(want, "s3://") {
					assert.Empty(t, why, asked)
					assert.Equal(t, want, from.Snapshot.URL, asked)
				} else {
					assert.Contains(t, why, want, asked)
				}
			}
		})
	}
	f := facts.New(serve(3))
	f.Epoch.Snapshot, f.Epoch.Sum, f.Epoch.Until = origin, "found by the first member", 4711
	from, _ := f.WayBack(v1beta1.RecoverFromSnapshot, false)
	assert.Equal(t, "found by the first member", from.Snapshot.SHA256, "what is there now may be something else")
	assert.Empty(t, origin.SHA256)
	assert.Equal(t, int64(4711), from.Snapshot.Until, "as much of the stream as it began with")
	o := serve(3)
	verified(&o, "other", "", time.Minute)
	from, _ = facts.New(o).WayBack(v1beta1.RecoverFromSnapshot, true)
	assert.Empty(t, from.Snapshot.Tail, "it is not known of which etcd a stream would be")
}

// inspecting is a cluster of three that lost its quorum by this data, while the volumes that are left are looked at.
func inspecting(t *testing.T, recovery v1beta1.Recovery, lost ...string) observation.Observation {
	o := serve(3)
	o.Cluster.Spec.Recovery = recovery
	for _, name := range lost {
		lose(&o, name)
	}
	loseQuorum(&o)
	askRecover(&o, v1beta1.RecoverFromSurvivor, 1)
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
func tell(o *observation.Observation, name string, report stores.Inspection) {
	raw, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	o.Children.Pods[name+facts.InspectSuffix].Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: objects.ContainerInspectData, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: string(raw)},
		}}}
}

// past has the record of the second epoch say what the first one was.
func past(o *observation.Observation, first record.Past) {
	recordtest.Edit(o.Children.ConfigMaps["demo-epoch-2"],
		func(r *record.Record) { r.Past = map[int]record.Past{1: first} })
}

// TestAMajorityThatHasToldIsEnough: what was acknowledged is on one of them. One that did not vote does not count.
func TestAMajorityThatHasToldIsEnough(t *testing.T) {
	for _, c := range []struct {
		voters []int
		goesOn bool
	}{{[]int{0, 1, 2}, true}, {[]int{0, 1}, true}, {[]int{0, 2}, false}, {[]int{0, 2, 3}, false}, {nil, false}} {
		o := inspecting(t, v1beta1.Recovery{})
		past(&o, record.Past{ClusterID: 0xc1, Voters: c.voters})
		tell(&o, "demo-0", stores.Inspection{LastTerm: 2, LastIndex: 7, ClusterID: "c1"})
		tell(&o, "demo-1", stores.Inspection{LastTerm: 2, LastIndex: 9, ClusterID: "c1"})
		pass(&o, now.Add(10*time.Minute))
		said := goOn(t, &o).Reason.Message
		assert.Equal(t, c.goesOn, strings.HasPrefix(said, "demo-1 has the newest data"), "%v: %s", c.voters, said)
	}
}

// TestWhoseVolumesCount: those of the etcd that the epoch was. Where it is not known which one that was, they must
// agree.
func TestWhoseVolumesCount(t *testing.T) {
	for cluster, want := range map[uint64]string{
		0xc1: "demo-0 has the newest data (demo-0: term 2, index 7; demo-1: its volume is of another etcd " +
			"cluster, bad instead of c1, and does not count; demo-2: term 1, index 9)",
		0: "the volumes are of different etcd clusters, and nothing records which one epoch 1 was: demo-0: term " +
			"2, index 7, of etcd cluster c1; demo-1: term 3, index 5, of etcd cluster bad; demo-2: term 1, index 9, " +
			"of etcd cluster c1; to continue without those to leave out, kubectl annotate -n default pvc/<name> " +
			"etcd.quorate.dev/failed-member=true",
	} {
		o := inspecting(t, v1beta1.Recovery{})
		past(&o, record.Past{ClusterID: cluster})
		tell(&o, "demo-0", stores.Inspection{LastTerm: 2, LastIndex: 7, ClusterID: "c1"})
		tell(&o, "demo-1", stores.Inspection{LastTerm: 3, LastIndex: 5, ClusterID: "bad"})
		tell(&o, "demo-2", stores.Inspection{LastTerm: 1, LastIndex: 9, ClusterID: "c1"})
		assert.Equal(t, want, goOn(t, &o).Reason.Message)
	}
	o := inspecting(t, v1beta1.Recovery{})
	assert.Equal(t, map[int]record.Past{1: {ClusterID: 0xc1}},
		recordtest.Says(o.Children.ConfigMaps["demo-epoch-2"]).Past,
		"it is known from the record, and who voted is not")
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
	assert.Equal(t, "demo-0: term 5, index 0; demo-2: term 3, index 2", facts.New(o).Answering())
}

// TestRevisionsAreNotedInSteps: so nothing is written at rest, nor with each write.
func TestRevisionsAreNotedInSteps(t *testing.T) {
	for revision, want := range map[int64]int64{-5: facts.RevisionStep, 0: facts.RevisionStep,
		facts.RevisionStep - 1: facts.RevisionStep, facts.RevisionStep: 2 * facts.RevisionStep,
		3*facts.RevisionStep + 1: 4 * facts.RevisionStep} {
		assert.Equal(t, want, facts.Noted(revision))
	}
	for _, revision := range []int64{record.MostRevisions, record.MostRevisions + 1, 1<<63 - 1} {
		assert.LessOrEqual(t, facts.Noted(revision), int64(record.MostRevisions))
		assert.Greater(t, facts.Noted(revision), int64(record.MostRevisions-2*facts.RevisionStep))
	}
	o := serve(3)
	for _, c := range []struct {
		revision int64
		noted    int64
	}{{1, 0}, {facts.RevisionStep - 1, 0}, {facts.RevisionStep, 1_000_000_000},
		{2*facts.RevisionStep - 1, 1_000_000_000}, {3*facts.RevisionStep + 7, 2_000_000_000}, {5, 2_000_000_000}} {
		everyone(func(h *observation.Health) { h.Revision = c.revision })(&o)
		goOn(t, &o)
		copied := o.Children.Services["demo-peers"].Annotations[objects.AnnotationHighestRevision]
		assert.Equal(t, c.noted, facts.RevisionIn(copied))
		assert.Equal(t, c.noted, recordtest.Says(o.Children.ConfigMaps["demo-epoch-1"]).Highest)
	}
	answering("demo-1", func(h *observation.Health) { h.ClusterID, h.Revision = 0xbad, 9*facts.RevisionStep })(&o)
	assert.EqualValues(t, 5, facts.New(o).ObservedRevision(), "what another etcd says is nothing")
	o.Etcd = nil
	answering("demo-1", func(h *observation.Health) { h.ClusterID = 0xc1 })(&o)
	assert.EqualValues(t, 9*facts.RevisionStep, facts.New(o).ObservedRevision(),
		"without a quorum, what a member says is something")
}

// TestVerifySeesWhereAnEpochBegins: what the rules of epochs must not do.
func TestVerifySeesWhereAnEpochBegins(t *testing.T) {
	type wrong = func() (observation.Observation, decision.Decision)
	good := stores.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "sum of s1"}
	asks := func(revision int64) (observation.Observation, decision.Decision) {
		o := with(serve(3), everyone(func(h *observation.Health) { h.Revision = revision }))
		verified(&o, "s1", "c1", time.Hour)
		askSnapshot(&o, "one", "s1")
		return o, Decide(o)
	}
	for words, decide := range map[string]wrong{
		"S21: epoch 2 begins above revision 0, and epoch 1 has come to 1000": func() (observation.Observation,
			decision.Decision) {
			o, d := asks(1000)
			recordtest.Edit(d.Children.ConfigMaps[1], func(r *record.Record) { r.Floor = 0 })
			return o, d
		},
		"S21: the highest revision that is noted goes back from 3000000000 to 0": func() (observation.Observation,
			decision.Decision) {
			o := with(serve(3), noted(func(r *record.Record) { r.Highest = 3_000_000_000 }))
			d := Decide(o)
			recordtest.Edit(d.Children.ConfigMaps[0], func(r *record.Record) { r.Highest = 0 })
			return o, d
		},
		"S21: demo-3 is not told at which revision its epoch begins": func() (observation.Observation,
			decision.Decision) {
			o := preparedEpoch(t)
			d := Decide(o)
			seedOf(podIn(d, "demo-3")).Args = nil
			return o, d
		},
		"S21: epoch 2 begins with {Revision:1500000000 Keys:7 Hash:aaaa SHA256:sum of s1 UntilRevision:0 " +
			"Replayed:0 UntilTime:0001-01-01 00:00:00 " +
			"+0000 UTC Ended: Doubt: Reason: Error:} and": func() (observation.Observation, decision.Decision) {
			o := preparedEpoch(t)
			for _, name := range []string{"demo-3", "demo-4", "demo-5"} {
				seedWith(&o, name, good)
			}
			for range 12 {
				if next := Decide(o); strings.HasPrefix(next.Reason.Message, "epoch 2 begins") {
					break
				}
				goOn(t, &o)
				o = with(o, withoutPod("demo-0"), withoutPod("demo-1"), withoutPod("demo-2"), blinded)
			}
			d := Decide(o)
			other := good
			other.Hash = "bbbb"
			seedWith(&o, "demo-5", other)
			return o, d
		},
		"S8: epoch 2 answers the restore \"one\", which was answered before": func() (observation.Observation,
			decision.Decision) {
			o, d := asks(1)
			o.Children.Services["demo-peers"].Annotations[objects.AnnotationAnswered] = "one=1"
			return o, d
		},
		"S8: epoch 2 takes the record of another one": func() (observation.Observation, decision.Decision) {
			o, d := asks(1)
			was := d.Children.ConfigMaps[1].DeepCopy()
			recordtest.Edit(was, func(r *record.Record) { r.Restore = "zero" })
			o.Children.ConfigMaps[was.Name] = was
			return o, d
		},
	} {
		t.Run(words, func(t *testing.T) { assert.ErrorContains(t, verify(decide()), words) })
	}
}

// TestWhatAnEpochIsFilledFrom: what the program that fills the first member is told, and which members have pods until
// it has reported. What is not known before, it decides: the others are filled with the same.
func TestWhatAnEpochIsFilledFrom(t *testing.T) {
	bucket := &v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "bucket"}}
	other := &v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "copy", Prefix: "far", Region: "eu-west-1"}}
	base := v1beta1.SnapshotRef{Name: "base"}
	for name, c := range map[string]struct {
		from  v1beta1.SnapshotSource
		told  []string // by a part of each argument
		not   string
		pods  int
		noted string // of the report, for the other members
	}{
		"a copy of a snapshot": {v1beta1.SnapshotSource{SnapshotRef: base, Store: other},
			[]string{"--url=s3://copy/far/demo/base.db?region=eu-west-1", "--sha256=sum of base"}, "--tail", 6, ""},
		"a URL": {v1beta1.SnapshotSource{Artifact: "latest.db", Store: bucket}, nil, "--sha256", 4,
			objects.AnnotationSHA256},
		"until a revision": {v1beta1.SnapshotSource{SnapshotRef: base, Until: &v1beta1.Until{Revision: 4711}},
			[]string{"--tail-url=", "/tail/c1", "--until-revision=4711"}, "", 6, ""},
		"until a time": {v1beta1.SnapshotSource{SnapshotRef: base,
			Until: &v1beta1.Until{Time: "2026-11-22T14:59:00.25+01:00"}},
			[]string{"--until-time=2026-11-22T13:59:00.25Z"}, "--until-revision", 4, objects.AnnotationUntil},
		"a stream that is written still": {v1beta1.SnapshotSource{Artifact: "shop/demo/base.db", Store: bucket,
			Until: &v1beta1.Until{Latest: true, ClusterID: "c1"}},
			[]string{"--tail-url=s3://bucket/shop/demo/tail/c1"}, "--until-revision", 4, objects.AnnotationUntil},
	} {
		t.Run(name, func(t *testing.T) {
			o := serve(3)
			verified(&o, "base", "c1", time.Hour).Status.Artifact = "demo/base.db"
			askRestore(&o, "one", v1beta1.RestoreOperation{Snapshot: &c.from})
			for range 6 {
				goOn(t, &o)
			}
			require.Len(t, o.Children.Pods, c.pods)
			args := strings.Join(seedOf(o.Children.Pods["demo-3"]).Args, " ")
			for _, part := range c.told {
				assert.Contains(t, args, part)
			}
			if c.not != "" {
				assert.NotContains(t, args, c.not)
			}
			if c.noted == "" {
				return
			}
			report := stores.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "4711"}
			report.UntilRevision = 4711
			seedWith(&o, "demo-3", report)
			goOn(t, &o)
			require.Len(t, o.Children.Pods, 4, "it is written down first")
			goOn(t, &o)
			require.Len(t, o.Children.Pods, 6)
			env := map[string]string{objects.AnnotationSHA256: facts.EnvSHA256, objects.AnnotationUntil: facts.EnvUntil}
			for _, name := range []string{"demo-3", "demo-4", "demo-5"} {
				assert.Equal(t, "4711", o.Children.Pods[name].Annotations[c.noted], name)
				assert.True(t, facts.Insists(o.Children.Pods[name], env[c.noted]), name)
			}

			// The first one is filled once more, as after a reboot of its node, and finds something else.
			report.SHA256, report.UntilRevision = "4712", 4712
			seedWith(&o, "demo-3", report)
			d := goOn(t, &o)
			says := recordtest.Says(o.Children.ConfigMaps["demo-epoch-2"])
			found := map[string]string{objects.AnnotationSHA256: says.Sum,
				objects.AnnotationUntil: fmt.Sprint(says.Until)}
			assert.Equal(t, "4711", found[c.noted])
			assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1beta1.Restored).Message,
				"demo-3 was filled")
		})
	}
}

// TestWhatARestoreBelieves: of a stream that was stored in this namespace what its own keys have signed, and of another
// what keys have that a person names. The Secret of its own stays as long as a pod may name it.
func TestWhatARestoreBelieves(t *testing.T) {
	const own = "demo-restore-key"
	bucket := &v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "bucket"}}
	base := v1beta1.SnapshotRef{Name: "base"}
	latest := &v1beta1.Until{Latest: true, ClusterID: "c1"}
	theirs := &v1beta1.Until{Latest: true, ClusterID: "c1",
		KeysSecretRef: v1beta1.SecretKeyRef{Name: "copied", Key: "k"}}
	for name, c := range map[string]struct {
		keyed    bool
		from     v1beta1.SnapshotSource
		believed string
	}{
		"an EtcdSnapshot alone":            {true, v1beta1.SnapshotSource{SnapshotRef: base}, ""},
		"an EtcdSnapshot and a stream":     {true, v1beta1.SnapshotSource{SnapshotRef: base, Until: latest}, own},
		"by other keys":                    {true, v1beta1.SnapshotSource{SnapshotRef: base, Until: theirs}, "copied"},
		"an installation without keys":     {false, v1beta1.SnapshotSource{SnapshotRef: base, Until: latest}, ""},
		"a store":                          {true, v1beta1.SnapshotSource{Artifact: "a.db", Store: bucket, Until: latest}, ""},
		"a store with keys":                {true, v1beta1.SnapshotSource{Artifact: "a.db", Store: bucket, Until: theirs}, "copied"},
		"one with keys, and no others are": {false, v1beta1.SnapshotSource{Artifact: "a.db", Store: bucket, Until: theirs}, "copied"},
	} {
		t.Run(name, func(t *testing.T) {
			o := serve(3)
			o.Settings.Keyed = c.keyed
			verified(&o, "base", "c1", time.Hour).Status.Artifact = "demo/base.db"
			askRestore(&o, "one", v1beta1.RestoreOperation{Snapshot: &c.from})
			if c.believed == "copied" {
				unlabelled := goOn(t, &o)
				assert.Contains(t, unlabelled.Reason.Message, "the Secret copied, which the snapshot's source names")
				o.Related.Labelled = map[string]bool{"copied": true}
			}
			for range 6 {
				goOn(t, &o)
			}
			pod := o.Children.Pods["demo-3"]
			believes := slices.Contains(seedOf(pod).Args, "--stream-keys=/etc/quorate-store/stream/stream.key")
			assert.Equal(t, c.believed != "", believes)
			mounted := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
				return v.Secret != nil && v.Secret.SecretName == c.believed && v.Secret.Items[0].Path == objects.KeyStream
			})
			assert.Equal(t, c.believed != "", mounted)
			assert.Equal(t, c.believed == own, o.Children.Secrets[own] != nil)

			o.Settings.Keyed = false // someone starts Quorate without
			goOn(t, &o)
			assert.Equal(t, c.believed == own, o.Children.Secrets[own] != nil)
		})
	}
}

// TestWhatDiffers: initial members that were filled with different data never begin, and nothing is deleted for that.
// In the middle of a compaction a report has neither keys nor a hash: those that have one must agree.
func TestWhatDiffers(t *testing.T) {
	known := stores.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "sum of s1"}
	but := func(change func(*stores.Restore)) stores.Restore {
		other := known
		change(&other)
		return other
	}
	another := but(func(r *stores.Restore) { r.SHA256 = "another" })
	bare := but(func(r *stores.Restore) { r.Keys, r.Hash = 0, "" })
	hash := but(func(r *stores.Restore) { r.Hash = "bbbb" })
	for name, c := range map[string]struct {
		reports [3]stores.Restore
		differ  bool
	}{
		"no report":     {[3]stores.Restore{known, {}, known}, false},
		"nothing":       {[3]stores.Restore{known, known, known}, false},
		"the database":  {[3]stores.Restore{known, another, known}, true},
		"the revision":  {[3]stores.Restore{known, but(func(r *stores.Restore) { r.Revision++ }), known}, true},
		"the keys":      {[3]stores.Restore{known, but(func(r *stores.Restore) { r.Keys++ }), known}, true},
		"the hash":      {[3]stores.Restore{known, hash, known}, true},
		"one is bare":   {[3]stores.Restore{known, bare, known}, false},
		"the first is":  {[3]stores.Restore{bare, known, known}, false},
		"beside a bare": {[3]stores.Restore{bare, known, hash}, true},
		"around a bare": {[3]stores.Restore{known, bare, hash}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := preparedEpoch(t)
			for i, member := range []string{"demo-3", "demo-4", "demo-5"} {
				seedWith(&o, member, c.reports[i])
			}
			assert.Equal(t, c.differ, facts.New(o).Next.Differing() != "")
			pods, claims := len(o.Children.Pods), len(o.Children.Claims)
			d := goOn(t, &o)
			if name == "no report" {
				assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1beta1.Restored).Message,
					"waiting for the report of what was written to the volumes of demo-4")
				assert.False(t, meta.IsStatusConditionTrue(d.Status.Conditions, v1beta1.Stalled))
				return
			}
			if !c.differ {
				assert.Equal(t, "epoch 2 is ready: stopping epoch 1; its volumes are kept", d.Reason.Message)
				return
			}
			for range 5 {
				d = goOn(t, &o)
			}
			assert.Equal(t, "PrepareRestore", d.Reason.Rule)
			assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1beta1.Restored).Message,
				"were filled with different data, so the epoch does not begin")
			assert.True(t, meta.IsStatusConditionTrue(d.Status.Conditions, v1beta1.Stalled), "you decide")
			assert.Len(t, o.Children.Pods, pods)
			assert.Len(t, o.Children.Claims, claims)
		})
	}
}

// loseQuorum has no member answer for a day, in which Quorate looked.
func loseQuorum(o *observation.Observation) {
	for name := range o.Health {
		silence(o, name)
	}
	o.Etcd = nil
	meta.SetStatusCondition(&o.Cluster.Status.Conditions, metav1.Condition{Type: v1beta1.Available,
		Status: metav1.ConditionFalse, Reason: "Blind", LastTransitionTime: metav1.NewTime(now.Add(-24 * time.Hour))})
	watch(o, 24*time.Hour)
}

// TestARevertedRestoreUsesNothing: an ID that an earlier epoch has answered, as after a Git revert, keeps no snapshot
// from being deleted. A new one does, until the cluster has said that it is answered.
func TestARevertedRestoreUsesNothing(t *testing.T) {
	o := serve(3)
	o.Children.Services["demo-peers"].Annotations = map[string]string{objects.AnnotationAnswered: "monday=1,tuesday=1"}
	s1 := &v1beta1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "s1"},
		Spec:   v1beta1.EtcdSnapshotSpec{Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "b"}}},
		Status: v1beta1.EtcdSnapshotStatus{Phase: v1beta1.SnapshotSucceeded, URI: "s3://b/s1.db"}}
	used := func(by *v1beta1.EtcdCluster) bool {
		d := snapshot.Decide(snapshot.Observation{Snapshot: s1, Clusters: map[string]*v1beta1.EtcdCluster{by.Name: by},
			Now: now})
		return len(d.Status.UsedBy) > 0
	}
	o.Related.Snapshots = map[string]*v1beta1.EtcdSnapshot{"s1": s1}
	for _, id := range []string{"monday", "new", "tuesday"} {
		askSnapshot(&o, id, "s1")
		o.Cluster.Status = Decide(o).Status
		assert.Equal(t, id == "new", used(o.Cluster), "%s: %v", id,
			meta.FindStatusCondition(o.Cluster.Status.Conditions, v1beta1.Restored))
	}
}

// TestWhatIsRestoring: a cluster tells which artifacts its members read, until they have had a quorum.
func TestWhatIsRestoring(t *testing.T) {
	from := func(url string) *facts.Epoch {
		origin := record.Origin{Source: record.SourceSnapshot, Snapshot: &record.Resolved{URL: url}}
		return &facts.Epoch{Bootstrap: record.Bootstrap{Origin: origin}}
	}
	f := facts.New(observation.Observation{Cluster: fresh(3).Cluster})
	f.Epoch = from("s3://a")
	assert.Equal(t, []string{"s3://a"}, answer.Restoring(f))
	f.Epoch.ClusterID = 1
	assert.Empty(t, answer.Restoring(f))
	f.Next = facts.New(observation.Observation{Cluster: f.Cluster})
	f.Next.Epoch = from("s3://b")
	assert.Equal(t, []string{"s3://b"}, answer.Restoring(f))
	f.Next.Epoch.Phase = record.PhaseCancelled
	assert.Empty(t, answer.Restoring(f))
}

// TestWhatTheAPIServerLetThrough: no pod is made of a spec that it should have refused,
// the message says what is wrong, and it repeats nothing of it.
func TestWhatTheAPIServerLetThrough(t *testing.T) {
	source := v1beta1.SnapshotSource{Artifact: "$(tls.key)",
		Store: &v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "b"}}}
	reached := v1beta1.SnapshotSource{Artifact: "x.db",
		Store: &v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "b", Endpoint: "http://me:tls.key@x"}}}
	for _, s := range []*v1beta1.SnapshotSource{&source, &reached} {
		for _, o := range []observation.Observation{fresh(3), serve(3)} {
			o.Cluster.Spec.Bootstrap = &v1beta1.Bootstrap{Snapshot: s}
			d := Decide(o)
			assert.Equal(t, "Unsupported", d.Reason.Rule)
			assert.Contains(t, d.Reason.Message, "spec.bootstrap.snapshot")
			assert.NotContains(t, d.Reason.Message, "tls.key")
			assert.Len(t, d.Children.Pods, len(o.Children.Pods))
			require.NoError(t, verify(o, d))

			o.Cluster.Spec.Bootstrap = nil
			askRestore(&o, "a", v1beta1.RestoreOperation{Snapshot: s})
			op := Decide(o).Status.Operations[0]
			assert.Equal(t, v1beta1.OperationFailed, op.Phase)
			assert.Contains(t, op.Message, "spec.restore.snapshot")
			assert.NotContains(t, op.Message, "tls.key")
		}
	}

	o := serve(3) // an EtcdSnapshot whose status a user has written
	askSnapshot(&o, "a", "nightly")
	o.Related.Snapshots = map[string]*v1beta1.EtcdSnapshot{"nightly": {
		Spec:   v1beta1.EtcdSnapshotSpec{Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "b"}}},
		Status: v1beta1.EtcdSnapshotStatus{Phase: v1beta1.SnapshotSucceeded, URI: "s3://b/$(tls.key)"},
	}}
	_, message := told(t, o)
	assert.Contains(t, message, "the status of EtcdSnapshot nightly can't be used")
	assert.NotContains(t, message, "tls.key")
	require.NoError(t, verify(o, Decide(o)))
}

// TestAFirstEpochBeginsWhenAllHaveTheSame: it has no gate, but what differs is said.
func TestAFirstEpochBeginsWhenAllHaveTheSame(t *testing.T) {
	for hash, same := range map[string]bool{"aaaa": true, "bbbb": false} {
		o := fresh(3)
		verified(&o, "s1", "c0", time.Hour)
		o.Cluster.Spec.Bootstrap = &v1beta1.Bootstrap{Snapshot: &v1beta1.SnapshotSource{
			SnapshotRef: v1beta1.SnapshotRef{Name: "s1"}}}
		for range 5 {
			goOn(t, &o)
		}
		report := stores.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "sum of s1"}
		seedWith(&o, "demo-0", report)
		seedWith(&o, "demo-2", report)
		report.Hash = hash
		seedWith(&o, "demo-1", report)
		d := goOn(t, &o)
		assert.Equal(t, !same, meta.IsStatusConditionTrue(d.Status.Conditions, v1beta1.Stalled))
		if !same {
			assert.Contains(t, d.Reason.Message, "demo-0 and demo-1 were filled with different data")
		}
		serving := serve(3)
		o.Etcd, o.Health = serving.Etcd, serving.Health
		everyone(func(h *observation.Health) { h.Revision = 1_500_000_009 })(&o)
		goOn(t, &o)
		assert.EqualValues(t, 2_000_000_000, recordtest.Says(o.Children.ConfigMaps["demo-epoch-1"]).Highest)
	}
}

// TestWhatAInspectTells: a volume that was read and is not whole does not count. One whose pod has ended without a word
// is looked at again.
func TestWhatAInspectTells(t *testing.T) {
	for _, told := range []stores.Inspection{{Reason: "Damaged", Error: "the log ends midway"},
		{Reason: "Failed", Error: "input/output error"}} {
		o := inspecting(t, v1beta1.Recovery{}, "demo-0")
		tell(&o, "demo-1", stores.Inspection{LastTerm: 2, LastIndex: 7, ClusterID: "c1"})
		tell(&o, "demo-2", told)
		o.Children.Pods["demo-2-inspect"].Status.Phase = corev1.PodFailed
		said := goOn(t, &o).Reason.Message
		if told.Reason == "Damaged" {
			assert.Equal(t, "demo-1 has the newest data (demo-1: term 2, index 7; demo-2: the log ends midway)", said)
			continue
		}
		assert.Equal(t, "inspecting the volumes of demo-2", said)
		pass(&o, now.Add(facts.InspectAgain))
		goOn(t, &o)
		assert.Nil(t, o.Children.Pods["demo-2-inspect"])
		goOn(t, &o)
		assert.NotNil(t, o.Children.Pods["demo-2-inspect"])
		pass(&o, now.Add(facts.InspectAtLeast))
		assert.Contains(t, goOn(t, &o).Reason.Message, "demo-2 may have the newest data, and could not be reached",
			"the wait did not begin again")
	}
}

// TestARecoveryFollowsTheStream: as far as the first member can; how far, and what ended that, is said.
func TestARecoveryFollowsTheStream(t *testing.T) {
	o := serve(3)
	verified(&o, "own", "c1", time.Hour)
	loseQuorum(&o)
	askRecover(&o, v1beta1.RecoverFromSnapshot, 1)
	for range 6 {
		goOn(t, &o)
	}
	require.Len(t, o.Children.Pods, 4)
	assert.Subset(t, seedOf(o.Children.Pods["demo-4"]).Args,
		[]string{"--tail-url=s3://bucket/default/demo/tail/c1", "--as-far-as-possible"})
	report := stores.Restore{Revision: 1_500_000_000, Keys: 7, Hash: "aaaa", SHA256: "sum of own", UntilRevision: 4711,
		Replayed: 37}
	first := report
	first.UntilTime, first.Ended = now.Add(-time.Minute), "users or roles have changed"
	seedWith(&o, "demo-4", first)
	goOn(t, &o)
	goOn(t, &o)
	for _, name := range []string{"demo-5", "demo-6"} {
		assert.Equal(t, "4711", o.Children.Pods[name].Annotations[objects.AnnotationUntil], name)
		seedWith(&o, name, report) // they end there because they are told to
	}
	said := ""
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

// TestWhoWasGivenUpIsNoSurvivor: in no epoch, however its claim came to its mark.
func TestWhoWasGivenUpIsNoSurvivor(t *testing.T) {
	o := serve(3)
	note(o.Children.Claims["demo-1"], objects.AnnotationFailedMember, "true")
	note(o.Children.Claims["demo-2"], objects.AnnotationQuarantined, ago(0))
	o.Children.Claims["demo-2"].Annotations[objects.AnnotationFailedMember] = "true"
	assert.Equal(t, []string{"demo-0"}, facts.New(o).Survivors(1))
	f := facts.New(o)
	for name, claim := range o.Children.Claims { // as a later epoch has them, and what it leaves behind
		claim = claim.DeepCopy()
		answer.LeaveBehind(f, claim, 1)
		o.Children.Claims[name] = claim
	}
	assert.Equal(t, []string{"demo-0"}, facts.New(o).Survivors(1))
	wal := o.Children.Claims["demo-1"].DeepCopy()
	wal.Name = facts.WALClaim("demo-0")
	o.Children.Claims[wal.Name] = wal
	assert.Empty(t, facts.New(o).Survivors(1), "its log is on another volume, and that is marked")
}
