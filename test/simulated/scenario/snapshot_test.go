package scenario

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	rec "github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// snapshotVerbs are what a story about a snapshot can say. In values, _ is a space.
var snapshotVerbs = map[string]func(*snapshotStory, args) string{
	// snapshot [name=nightly] [policy=Delete] [unless=7] [verify=false] [deadline=10m] [retries=1]: kubectl apply
	"snapshot": does((*snapshotStory).create),
	// cluster [gone] [unavailable=why] [tls=Disabled] [version=3.6.16] [restore=nightly] [bootstrap=nightly]
	// [filling] [restored] [deleted]
	"cluster": does((*snapshotStory).isThere),
	"delete":  does((*snapshotStory).remove), // delete snapshot | job=name | pod=name: kubectl delete
	// kubectl annotate
	"abandon": does(func(s *snapshotStory, _ args) {
		s.snapshot.Annotations = map[string]string{objects.AnnotationAbandon: "true"}
	}),
	"status": does(func(s *snapshotStory, _ args) { s.snapshot.Status = neverWritten }), // status wipe
	// pod runs | stores [revision=7] [warning=why] [alone] | keeps [fails=why] | skips | looks | discards
	// | fails=why [locked]
	// | disproves=why | unplaced=why | stuck=reason message=why | killed=reason
	"pod":   (*snapshotStory).podDoes,
	"job":   does((*snapshotStory).aboutToFail), // job about-to-fail: the Job controller has begun to end it
	"cache": does((*snapshotStory).cache),       // cache freeze=jobs,pods,snapshot | thaw
	"tick":  does(func(s *snapshotStory, a args) { s.tick(a) }),
	// the Job controller, the kubelet and the garbage collector
	"pass":  does(func(s *snapshotStory, _ args) { s.pass() }),
	"sync":  func(s *snapshotStory, _ args) string { return s.sync() },
	"check": func(s *snapshotStory, _ args) string { return s.check() },
}

// aside is what the stories beside clusters have in common: the time, how many objects were made, what was broken since
// that was asked last, and their words.
type aside struct {
	now    time.Time
	made   int
	broken []string
	words
}

func newAside(w words) aside {
	return aside{now: time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC), words: w}
}

func (s *aside) breaches() []string { defer func() { s.broken = nil }(); return s.broken }

func (s *aside) breaks(format string, about ...any) {
	s.broken = append(s.broken, fmt.Sprintf(format, about...))
}

func (s *aside) tick(a args) {
	for d := range a {
		s.now = s.now.Add(duration(d))
	}
}

// follow does with an answer what Metacontroller does: what it has seen and the answer leaves out goes, and what it has
// not seen is made, if it is not there.
func follow[T metav1.Object](s *aside, kind string, seen, live map[string]T, answer []T,
	more func(made T) string) (out string) {
	stays := map[string]bool{}
	for _, o := range answer {
		stays[o.GetName()] = true
	}
	for _, name := range sortedKeys(seen) {
		if stays[name] {
			continue
		}
		out += fmt.Sprintf("- %s %s\n", kind, name)
		if o, there := live[name]; there && o.GetUID() == seen[name].GetUID() {
			delete(live, name)
		}
	}
	for _, o := range answer {
		name := o.GetName()
		_, saw := seen[name]
		if _, there := live[name]; saw || there {
			continue
		}
		s.made++
		o.SetUID(types.UID(fmt.Sprint(kind, s.made)))
		o.SetNamespace("default")
		o.SetCreationTimestamp(metav1.NewTime(s.now))
		live[name] = o
		out += fmt.Sprintf("+ %s %s%s\n", kind, name, more(o))
	}
	return out
}

// snapshotStory is one EtcdSnapshot with what is around it.
type snapshotStory struct {
	aside
	snapshot *v1beta1.EtcdSnapshot // nil when it is gone
	cluster  *v1beta1.EtcdCluster
	jobs     map[string]*batchv1.Job
	pods     map[string]*corev1.Pod
	// seen is what Metacontroller's caches show while they are frozen.
	seen map[string]any
	// store holds what is whole, by key; taken counts how often etcd was asked.
	store map[string]stores.Snapshot
	taken int
}

// neverWritten is a status as the API server shows it before it was written.
var neverWritten = v1beta1.EtcdSnapshotStatus{ObservedGeneration: -1}

func newSnapshotStory(w words) *snapshotStory {
	s := &snapshotStory{aside: newAside(w),
		jobs: map[string]*batchv1.Job{}, pods: map[string]*corev1.Pod{}, seen: map[string]any{},
		store: map[string]stores.Snapshot{}}
	s.isThere(args{})
	return s
}

func (s *snapshotStory) statuses() []recorded {
	if s.snapshot == nil {
		return nil
	}
	lacks := ""
	if (s.snapshot.Status.Phase == v1beta1.SnapshotSucceeded || s.snapshot.Status.Phase == v1beta1.SnapshotUnverified) &&
		len(s.store) == 0 {
		lacks = "nothing is stored"
	}
	return []recorded{{Kind: "EtcdSnapshot", Object: s.snapshot, Lacks: lacks}}
}

func (s *snapshotStory) create(a args) {
	s.made++
	snapshot := &v1beta1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Name: cmp.Or(a["name"], "nightly"), Namespace: "default", UID: types.UID(fmt.Sprintf("%08d-0000", s.made)),
			Generation:        1,
			CreationTimestamp: metav1.NewTime(s.now),
		},
		Spec: v1beta1.EtcdSnapshotSpec{
			ClusterRef: v1beta1.ClusterRef{Name: "demo"},
			Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "backups", Prefix: "etcd",
				CredentialsSecretRef: v1beta1.SecretRef{Name: "keys"}}},
		},
		Status: neverWritten,
	}
	if a.has("unless") {
		snapshot.Annotations = map[string]string{objects.AnnotationUnless: fmt.Sprintf(
			"revision=%d,auth-revision=2,cluster=2c119c3b", a.number("unless", 0))}
	}
	put(&snapshot.Spec, map[string]string{"policy": "DeletionPolicy", "verify": "Verify", "deadline": "Job.Deadline",
		"retries": "Job.Retries"}, a)
	s.snapshot = snapshot
}

func (s *snapshotStory) isThere(a args) {
	if s.cluster = nil; a.has("gone") {
		return
	}
	c := &v1beta1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "demo"},
		Spec: v1beta1.EtcdClusterSpec{Version: cmp.Or(a["version"], "3.6.16")}}
	c.Spec.TLS.Mode = v1beta1.TLSMode(a["tls"])
	available := metav1.Condition{Type: v1beta1.Available, Status: metav1.ConditionTrue, Message: "a quorum answers"}
	if a.has("unavailable") {
		available.Status, available.Message = metav1.ConditionFalse, a["unavailable"]
	}
	c.Status.Conditions = []metav1.Condition{available}
	for _, name := range []string{"demo-0", "demo-1", "demo-2"} {
		c.Status.Members = append(c.Status.Members, v1beta1.MemberStatus{Name: name, Role: v1beta1.Voter})
	}
	from := func(name string) *v1beta1.SnapshotSource {
		return &v1beta1.SnapshotSource{SnapshotRef: v1beta1.SnapshotRef{Name: name}}
	}
	if a.has("bootstrap") {
		c.Spec.Bootstrap = &v1beta1.Bootstrap{Snapshot: from(a["bootstrap"])}
	}
	asked := s.snapshot != nil && a["restore"] == s.snapshot.Name && !a.has("restored") // by an EtcdOperation
	if (asked || a.has("filling")) && s.snapshot.Status.URI != "" {
		c.Status.Internal.Restoring = []string{s.snapshot.Status.URI}
	}
	if a.has("restored") {
		c.Status.Epoch, c.Status.ClusterID, c.Status.Origin = 2, "7f00aa12",
			&v1beta1.OriginStatus{Source: rec.SourceSnapshot, Restore: "one"}
	}
	if a.has("deleted") {
		c.DeletionTimestamp = &metav1.Time{Time: s.now}
	}
	s.cluster = c
}

func (s *snapshotStory) remove(a args) {
	if a.has("snapshot") && s.snapshot.DeletionTimestamp == nil {
		s.snapshot.DeletionTimestamp = &metav1.Time{Time: s.now}
	}
	delete(s.jobs, a["job"])
	delete(s.pods, a["pod"])
}

func (s *snapshotStory) aboutToFail(args) {
	for _, job := range s.jobs {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobFailureTarget,
			Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded})
	}
	clear(s.pods)
}

func (s *snapshotStory) cache(a args) {
	if a.has("thaw") {
		clear(s.seen)
	}
	for what := range strings.SplitSeq(a["freeze"], ",") {
		switch what {
		case "jobs":
			s.seen[what] = copied(s.jobs)
		case "pods":
			s.seen[what] = copied(s.pods)
		case "snapshot":
			s.seen[what] = s.snapshot.DeepCopy()
		}
	}
}

func copied[T any, P interface {
	*T
	DeepCopy() *T
}](all map[string]P) map[string]P {
	list := map[string]P{}
	for name, o := range all {
		list[name] = P(o.DeepCopy())
	}
	return list
}

// shown is what a cache shows.
func shown[T any](s *snapshotStory, what string, now T) T {
	if old, frozen := s.seen[what]; frozen {
		return old.(T)
	}
	return now
}

// pass lets the Job controller, the kubelet and the garbage collector do what they do.
func (s *snapshotStory) pass() {
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		if owner := metav1.GetControllerOf(s.pods[name]); s.jobs[owner.Name] == nil ||
			s.jobs[owner.Name].UID != owner.UID {
			delete(s.pods, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.jobs)) {
		s.run(s.jobs[name])
	}
}

// run is the Job controller.
func (s *snapshotStory) run(job *batchv1.Job) {
	for _, c := range job.Status.Conditions {
		if c.Type != batchv1.JobFailureTarget {
			return
		}
	}
	failed, active, done := 0, "", false
	for name, pod := range s.pods {
		if owner := metav1.GetControllerOf(pod); owner.UID != job.UID {
			continue
		}
		switch pod.Status.Phase {
		case corev1.PodSucceeded:
			done = true
		case corev1.PodFailed:
			failed++
		default:
			active = name
		}
	}
	end := func(how batchv1.JobConditionType, reason string) {
		job.Status.Conditions = append(job.Status.Conditions,
			batchv1.JobCondition{Type: how, Status: corev1.ConditionTrue, Reason: reason,
				LastTransitionTime: metav1.NewTime(s.now)})
	}
	switch {
	case done:
		job.Status.CompletionTime = &metav1.Time{Time: s.now}
		end(batchv1.JobComplete, "CompletionsReached")
	case !s.now.Before(job.CreationTimestamp.Add(time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second)):
		delete(s.pods, active)
		end(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	case active == "" && failed > int(*job.Spec.BackoffLimit):
		end(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
	case active == "":
		s.made++
		pod := &corev1.Pod{ObjectMeta: job.Spec.Template.ObjectMeta, Spec: job.Spec.Template.Spec}
		pod.Name, pod.Namespace, pod.UID, pod.CreationTimestamp = fmt.Sprintf("%s-%d", job.Name, failed+1), "default",
			types.UID(fmt.Sprint("pod", s.made)), metav1.NewTime(s.now)
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job.Name, UID: job.UID,
			Controller: new(true)}}
		pod.Status.Phase = corev1.PodPending
		s.pods[pod.Name] = pod
	}
}

// podDoes is what happens in the one pod that has not ended.
func (s *snapshotStory) podDoes(a args) string {
	pod := s.active()
	if pod == nil {
		return "there is no pod\n"
	}
	container := pod.Spec.Containers[0].Name
	pod.Status.Conditions = nil
	state := func(phase corev1.PodPhase, state corev1.ContainerState) {
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: state}}
	}
	ends := func(phase corev1.PodPhase, code int32, report any) {
		message, err := json.Marshal(report)
		if err != nil {
			panic(err)
		}
		state(phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code,
			Message: string(message)}})
	}
	switch {
	case a.has("runs"):
		state(corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	case a.has("looks"), a.has("stores") && container == objects.ContainerInspect:
		ends(corev1.PodSucceeded, 0, s.look(pod))
	case a.has("stores"):
		r := s.take(pod, int64(a.number("revision", 7)), true)
		if r.Warning = a["warning"]; a.has("alone") {
			r.HashOf = ""
		}
		ends(corev1.PodSucceeded, 0, r)
	case a.has("keeps"):
		if r := s.take(pod, int64(a.number("revision", 7)), false); a.has("fails") {
			r.Error = a["fails"]
			ends(corev1.PodFailed, 1, r)
		}
	case a.has("disproves"):
		clear(s.store)
		ends(corev1.PodFailed, 1, stores.Snapshot{Absent: true, Error: a["disproves"]})
	case a.has("skips"):
		ends(corev1.PodSucceeded, 0,
			stores.Snapshot{Skipped: true, Artifact: stores.Artifact{Revision: 42, AuthRevision: 2,
				ClusterID: "2c119c3b"}})
	case a.has("discards"):
		clear(s.store)
		ends(corev1.PodSucceeded, 0, struct{}{})
	case a.has("fails"):
		ends(corev1.PodFailed, 1, stores.Snapshot{Error: a["fails"], Locked: a.has("locked")})
	case a.has("killed"):
		state(corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137,
			Reason: a["killed"]}})
	case a.has("stuck"):
		state(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: a["stuck"],
			Message: a["message"]}})
	case a.has("unplaced"):
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: a["unplaced"]}}
	}
	return ""
}

// asked is what the container of a Job is asked for.
func asked(pod *corev1.Pod) (key string, verify bool) {
	verify = true
	for _, arg := range slices.Concat(pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args) {
		if k, is := strings.CutPrefix(arg, "--key="); is {
			key = k
		}
		verify = verify && arg != "--verify=false"
	}
	return key, verify
}

// look is what quorate-snapshot inspect does.
func (s *snapshotStory) look(pod *corev1.Pod) stores.Snapshot {
	key, _ := asked(pod)
	if r, whole := s.store[key]; whole {
		return r
	}
	return stores.Snapshot{Absent: true}
}

// take is what quorate-snapshot snapshot does: what is whole is verified, if it comes to that, else a snapshot is
// taken.
func (s *snapshotStory) take(pod *corev1.Pod, revision int64, verifies bool) stores.Snapshot {
	key, verify := asked(pod)
	if r, whole := s.store[key]; whole {
		if verify && verifies && r.VerifiedAt.IsZero() {
			r.VerifiedAt, r.HashOf = s.now.Add(5*time.Second), "demo-2"
			s.store[key] = r
		}
		return r
	}
	s.taken++
	// what a pod stores that is being stopped is discarded once more
	if s.taken > 1 && s.snapshot.DeletionTimestamp == nil {
		s.breaks("a second snapshot was taken")
	}
	r := stores.Snapshot{Artifact: stores.Artifact{
		URI: "s3://backups/etcd/" + key, Size: 20 << 20, StoredSize: 3 << 20, Revision: revision, Keys: 5, Hash: "abc",
		Member:  "demo-1",
		Started: s.now, Completed: s.now.Add(3 * time.Second),
	}}
	if verify && verifies {
		r.VerifiedAt, r.HashOf = s.now.Add(5*time.Second), "demo-2"
	}
	s.store[key] = r
	return r
}

// sync is one call, and its answer applied.
func (s *snapshotStory) sync() string {
	if s.snapshot == nil {
		return "it is gone\n"
	}
	o := snapshot.Observation{Labelled: map[string]bool{"keys": true},
		Snapshot: shown(s, "snapshot", s.snapshot).DeepCopy(), Jobs: copied(shown(s, "jobs", s.jobs)),
		Pods:     copied(shown(s, "pods", s.pods)),
		Clusters: map[string]*v1beta1.EtcdCluster{}, Now: s.now, Images: objects.Images{Image: "quorate:v1"},
	}
	if s.cluster != nil {
		o.Clusters["demo"] = s.cluster
	}
	d := snapshot.Decide(o)
	out := s.decided("EtcdSnapshot", "", d.Reason)
	if err := snapshot.Verify(o, d); err != nil {
		out += fmt.Sprintf("VIOLATION %s\n", err)
	}
	out += follow(&s.aside, "job", o.Jobs, s.jobs, d.Jobs, func(job *batchv1.Job) string {
		if job.Spec.Template.Spec.Containers[0].Name == objects.ContainerDelete && s.inUse() {
			s.breaks("what a cluster restores is deleted")
		}
		return ""
	})
	if s.snapshot.Status.Phase != d.Status.Phase {
		out += fmt.Sprintf("~ %s\n", d.Status.Phase)
	}
	s.snapshot.Status = d.Status
	if d.ResyncAfter > 0 {
		out += fmt.Sprintf("again in %s\n", d.ResyncAfter)
	}
	s.oracle(d)
	if d.Finalized {
		s.snapshot = nil
		out += "it goes\n"
	}
	return out
}

// oracle says what must never be, without asking the rules.
func (s *snapshotStory) oracle(d snapshot.Decision) {
	taking := 0
	for _, pod := range s.pods {
		if pod.Spec.Containers[0].Name == objects.ContainerSnapshot &&
			(pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning) {
			taking++
		}
	}
	if taking > 1 {
		s.breaks("%d pods take the snapshot", taking)
	}
	if d.Finalized && taking > 0 && s.snapshot.Spec.DeletionPolicy == v1beta1.DeletionDelete &&
		s.snapshot.Annotations[objects.AnnotationAbandon] == "" {
		s.breaks("it goes while a pod takes it")
	}
	if (d.Status.Phase == v1beta1.SnapshotSucceeded || d.Status.Phase == v1beta1.SnapshotUnverified) &&
		len(s.store) == 0 {
		s.breaks("it has succeeded, and nothing is stored")
	}
}

// inUse reports whether the cluster restores what is stored, or is about to.
func (s *snapshotStory) inUse() bool {
	c := s.cluster
	if c == nil || c.DeletionTimestamp != nil || s.snapshot.Status.Phase != v1beta1.SnapshotSucceeded &&
		s.snapshot.Status.Phase != v1beta1.SnapshotUnverified {
		return false
	}
	return len(c.Status.Internal.Restoring) > 0 || c.Spec.Bootstrap != nil && c.Status.ClusterID == ""
}

// check is how things are.
func (s *snapshotStory) check() string {
	var out strings.Builder
	if s.snapshot == nil {
		out.WriteString("no snapshot\n")
	} else {
		st := s.snapshot.Status
		fmt.Fprintf(&out, "%s %s%s\n", s.snapshot.Name, st.Phase, s.more("EtcdSnapshot", st.Message))
		out.WriteString(s.conditions(st.Conditions))
		if len(st.UsedBy) > 0 {
			fmt.Fprintf(&out, "  used by %s\n", strings.Join(st.UsedBy, ", "))
		}
		if st.URI != "" {
			fmt.Fprintf(&out, "  %s, %s of %s, took %s\n", st.URI, st.StoredSize, st.Size, st.Duration.Duration)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.jobs)) {
		job, how := s.jobs[name], "active"
		for _, c := range job.Status.Conditions {
			how = string(c.Type)
		}
		fmt.Fprintf(&out, "job %s %s\n", name, how)
	}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		fmt.Fprintf(&out, "pod %s %s\n", name, s.pods[name].Status.Phase)
	}
	for _, key := range slices.Sorted(maps.Keys(s.store)) {
		fmt.Fprintf(&out, "stored %s\n", key)
	}
	return out.String()
}
