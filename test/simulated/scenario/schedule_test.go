package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // stories are read alike on machines without zone files

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/schedule"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// scheduleVerbs are what a story about a schedule can say. In values, _ is a space.
var scheduleVerbs = map[string]func(*scheduleStory, args) string{
	// schedule at=0_3_*_*_* [zone=Europe/Berlin] [concurrency=Replace] [deadline=10m] [skip=false] [suspend=true]
	// [last=2 daily=7 weekly=4 monthly=12] [stream=10s|none]: kubectl apply, of a new one or of what changes
	"schedule": does((*scheduleStory).apply),
	"delete":   (*scheduleStory).remove, // delete snapshot=nightly-20260301-0300: kubectl delete
	// status wipe
	"status": does(func(s *scheduleStory, _ args) {
		s.schedule.Status = v1beta1.EtcdSnapshotScheduleStatus{ObservedGeneration: -1}
	}),
	"write": does(func(s *scheduleStory, _ args) { s.revision++ }),     // clients change a key
	"grant": does(func(s *scheduleStory, _ args) { s.authRevision++ }), // users or roles are changed
	// the cluster is deleted, made again under its name, and loaded as it was
	"remake":  does(func(s *scheduleStory, _ args) { s.id = "7f00aa12" }),
	"restore": does((*scheduleStory).restore), // restore snapshot=nightly-20260301-0300 | done: an EtcdCluster reads it
	// end [fails=why] [stored=why] [verify=false]: the snapshots that are being taken are stored, or skipped where
	// they may be, or fail
	"end": does((*scheduleStory).end),
	// stream runs | ends=Compacted | fails | lost | gone: what befalls the pod that stores changes
	"stream": does((*scheduleStory).stream),
	// upgrade | done: the cluster waits for a snapshot, and has got it
	"upgrade": does(func(s *scheduleStory, a args) {
		if s.wanted = metav1.NewTime(s.now); a.has("done") {
			s.wanted = metav1.Time{}
		}
	}),
	"cache": does((*scheduleStory).cache), // cache freeze | thaw: Metacontroller sees the snapshots as they were
	"tick":  does(func(s *scheduleStory, a args) { s.tick(a) }),
	"sync":  func(s *scheduleStory, _ args) string { return s.sync() },
	// live 960h [fails=why]: each time when Quorate wants to be asked again it is; clients write, and what is taken
	// ends
	"live":  (*scheduleStory).live,
	"check": func(s *scheduleStory, _ args) string { return s.check() },
}

// scheduleStory is one EtcdSnapshotSchedule with its snapshots.
type scheduleStory struct {
	aside
	schedule  *v1beta1.EtcdSnapshotSchedule
	snapshots map[string]*v1beta1.EtcdSnapshot
	pods      map[string]*corev1.Pod
	// seen is what Metacontroller's cache shows of them while it is frozen; nil while it is not.
	seen map[string]*v1beta1.EtcdSnapshot
	// id of the etcd, and how far it has come.
	id                     string
	revision, authRevision int64
	wanted                 metav1.Time   // since when an upgrade waits
	again                  time.Duration // after which Quorate wants to be asked
	taken                  map[string]int
}

func newScheduleStory(w words) *scheduleStory {
	return &scheduleStory{aside: newAside(w),
		snapshots: map[string]*v1beta1.EtcdSnapshot{}, pods: map[string]*corev1.Pod{}, id: "2c119c3b",
		revision: 7, authRevision: 2, taken: map[string]int{}}
}

func (s *scheduleStory) statuses() []recorded {
	if s.schedule == nil {
		return nil
	}
	return []recorded{{Kind: "EtcdSnapshotSchedule", Object: s.schedule}}
}

func (s *scheduleStory) apply(a args) {
	if s.schedule == nil { // what the API server fills in
		s.schedule = &v1beta1.EtcdSnapshotSchedule{
			ObjectMeta: metav1.ObjectMeta{Name: "nightly", Namespace: "default", UID: "uid-schedule",
				CreationTimestamp: metav1.NewTime(s.now)},
			Spec: v1beta1.EtcdSnapshotScheduleSpec{
				Template: v1beta1.EtcdSnapshotTemplate{Spec: v1beta1.EtcdSnapshotSpec{
					ClusterRef: v1beta1.ClusterRef{Name: "demo"},
					Store:      v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "backups", Prefix: "etcd"}}}},
			},
			Status: v1beta1.EtcdSnapshotScheduleStatus{ObservedGeneration: -1},
		}
	}
	s.schedule.Generation++
	put(&s.schedule.Spec, scheduleFields, a)
}

// scheduleFields are the words of a schedule's spec.
var scheduleFields = map[string]string{
	"at":      "Schedule",
	"daily":   "Retention.Daily",
	"last":    "Retention.Last",
	"monthly": "Retention.Monthly",
	"skip":    "SkipUnchanged",
	"stream":  "Stream.FlushAfter",
	"suspend": "Suspend",
	"weekly":  "Retention.Weekly",
	"zone":    "TimeZone",
}

func (s *scheduleStory) remove(a args) string {
	if s.snapshots[a["snapshot"]] == nil {
		return "there is no such snapshot\n"
	}
	delete(s.snapshots, a["snapshot"])
	return ""
}

func (s *scheduleStory) restore(a args) {
	for name, snapshot := range s.snapshots {
		if snapshot.Status.UsedBy = nil; name == a["snapshot"] {
			snapshot.Status.UsedBy = []string{"demo"}
		}
	}
}

func (s *scheduleStory) stream(a args) {
	for name, pod := range s.pods {
		switch {
		case a.has("runs"):
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		case a.has("ends"):
			pod.Status.Conditions = nil
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerStream,
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1,
					Message: fmt.Sprintf(`{"reason":%q,"error":"the stream has ended"}`, a["ends"])}}}}
		case a.has("fails"):
			pod.Status.Phase, pod.Status.Conditions = corev1.PodFailed, nil
		case a.has("lost"):
			pod.DeletionTimestamp = &metav1.Time{Time: s.now}
		case a.has("gone"):
			delete(s.pods, name)
		}
	}
}

// unchanged reports whether the cluster is still so.
func (s *scheduleStory) unchanged(u *snapshot.Unless) bool {
	return u != nil && *u == snapshot.Unless{Revision: s.revision, ClusterID: s.id, AuthRevision: s.authRevision}
}

func (s *scheduleStory) cache(a args) {
	if s.seen = nil; a.has("freeze") {
		s.seen = copied(s.snapshots)
	}
}

// end is what becomes of the snapshots that are being taken.
func (s *scheduleStory) end(a args) {
	for _, name := range s.unfinished() {
		status := &s.snapshots[name].Status
		status.StartTime = metav1.NewTime(s.now)
		if a.has("fails") {
			status.Phase = v1beta1.SnapshotFailed
			status.Message = a["fails"]
			continue
		}
		status.Revision = s.revision
		status.ClusterID = s.id
		status.AuthRevision = s.authRevision
		switch {
		case s.unchanged(snapshot.UnlessOf(s.snapshots[name])):
			status.Phase = v1beta1.SnapshotSkipped
		case a.has("stored"):
			status.Phase = v1beta1.SnapshotUnverified
			status.URI = "s3://backups/etcd/" + name
			status.Message = a["stored"]
		default:
			status.Phase = v1beta1.SnapshotSucceeded
			if a["verify"] != "false" {
				status.VerificationTime = metav1.NewTime(s.now)
			}
		}
	}
}

// unfinished snapshots have not ended.
func (s *scheduleStory) unfinished() []string {
	return slices.DeleteFunc(sortedKeys(s.snapshots),
		func(name string) bool { return s.snapshots[name].Status.Phase != "" })
}

// sync is one call, and its answer applied.
func (s *scheduleStory) sync() string {
	o := s.observed()
	d := schedule.Decide(o)
	out := s.decided("EtcdSnapshotSchedule", "", d.Reason)
	s.oracle(o, d.Snapshots)
	out += follow(&s.aside, "snapshot", o.Snapshots, s.snapshots, d.Snapshots, s.takes)
	out += follow(&s.aside, "pod", o.Pods, s.pods, d.Pods, func(pod *corev1.Pod) string {
		return ", after " + pod.Annotations[objects.AnnotationBase]
	})
	running := slices.DeleteFunc(sortedKeys(s.pods), func(name string) bool { return s.pods[name].DeletionTimestamp != nil })
	if len(running) > 1 {
		s.breaks("two pods store what changes")
	}
	s.schedule.Status, s.again = d.Status, d.ResyncAfter
	if s.again > 0 {
		out += fmt.Sprintf("again in %s\n", s.again)
	}
	if len(s.unfinished()) > 1 {
		s.breaks("two snapshots are taken at once: %s", strings.Join(s.unfinished(), ", "))
	}
	return out
}

// takes tells of a snapshot that is made.
func (s *scheduleStory) takes(made *v1beta1.EtcdSnapshot) string {
	if s.taken[made.Name]++; s.taken[made.Name] > 1 {
		s.breaks("a second snapshot of one run: %s", made.Name)
	}
	unless := snapshot.UnlessOf(made)
	if unless == nil {
		return ""
	}
	return fmt.Sprintf(", unless etcd %s still has revision %d, and %d of users", unless.ClusterID, unless.Revision,
		unless.AuthRevision)
}

// observed is what Quorate is told in a call.
func (s *scheduleStory) observed() schedule.Observation {
	zone, err := time.LoadLocation(s.schedule.Spec.TimeZone)
	if err != nil {
		zone = nil
	}
	snapshots := s.snapshots
	if s.seen != nil {
		snapshots = s.seen
	}
	demo := &v1beta1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default"},
		Spec:       v1beta1.EtcdClusterSpec{Version: "3.6.16"},
		Status: v1beta1.EtcdClusterStatus{ClusterID: s.id, SnapshotWanted: s.wanted,
			Members:    []v1beta1.MemberStatus{{Name: "demo-0", Role: v1beta1.Voter}},
			Conditions: []metav1.Condition{{Type: v1beta1.Available, Status: metav1.ConditionTrue}}},
	}
	return schedule.Observation{Schedule: s.schedule.DeepCopy(), Snapshots: copied(snapshots), Pods: copied(s.pods),
		Clusters: map[string]*v1beta1.EtcdCluster{"demo": demo}, Images: objects.Images{Image: "quorate:v1"}, Zone: zone,
		Now: s.now}
}

// oracle says what must never be let go, without asking the rules: the newest that is stored, and the newest that was
// restored on trial. A schedule that is held back or can't be read lets nothing go.
func (s *scheduleStory) oracle(o schedule.Observation, answer []*v1beta1.EtcdSnapshot) {
	stored, verified := "", "" // names are times, and later ones come later
	for _, name := range sortedKeys(s.snapshots) {
		if status := s.snapshots[name].Status; status.Phase == v1beta1.SnapshotSucceeded ||
			status.Phase == v1beta1.SnapshotUnverified {
			stored = name
			if !status.VerificationTime.IsZero() {
				verified = name
			}
		}
	}
	for name := range maps.Keys(o.Snapshots) {
		switch {
		case slices.ContainsFunc(answer, func(s *v1beta1.EtcdSnapshot) bool { return s.Name == name }):
		case len(o.Snapshots[name].Status.UsedBy) > 0:
			s.breaks("a snapshot is let go that is being restored: %s", name)
		case name == stored || name == verified:
			s.breaks("the newest snapshot is let go: %s", name)
		case s.schedule.Spec.Suspend || o.Zone == nil:
			s.breaks("held back, but this is let go: %s", name)
		}
	}
}

// live lets time pass, from each time when Quorate wants to be asked to the next.
func (s *scheduleStory) live(a args) string {
	var until time.Time
	for key := range a {
		if key != "fails" {
			until = s.now.Add(duration(key))
		}
	}
	took, went := 0, 0
	for s.sync(); s.again > 0 && !s.now.Add(s.again).After(until); {
		s.now = s.now.Add(s.again)
		s.revision++
		said := s.sync()
		took, went = took+strings.Count(said, "+ snapshot"), went+strings.Count(said, "- snapshot")
		s.end(a)
		went += strings.Count(s.sync(), "- snapshot") // the snapshot tells that it has ended
	}
	s.now = until
	return fmt.Sprintf("%d taken, %d let go\n", took, went)
}

// check is how things are.
func (s *scheduleStory) check() string {
	var out strings.Builder
	st := &s.schedule.Status
	fmt.Fprintf(&out, "now %s\n", clock(s.now))
	out.WriteString(s.conditions(st.Conditions))
	fmt.Fprintf(&out, "last run %s, next %s\n", clock(st.LastScheduleTime.Time), clock(st.NextScheduleTime.Time))
	if r := st.LastSuccess; r != nil {
		fmt.Fprintf(&out, "what was written until %s is in %s\n", clock(r.Time.Time), r.Name)
	}
	for _, name := range sortedKeys(s.snapshots) {
		snapshot := s.snapshots[name]
		fmt.Fprintf(&out, "snapshot %s", name)
		switch status := snapshot.Status; status.Phase {
		case "":
			out.WriteString(" is being taken")
		case v1beta1.SnapshotSucceeded:
			fmt.Fprintf(&out, " Succeeded, revision %d", status.Revision)
			if status.VerificationTime.IsZero() {
				out.WriteString(", not restored on trial")
			}
		case v1beta1.SnapshotUnverified:
			fmt.Fprintf(&out, " Unverified, revision %d", status.Revision)
		default:
			fmt.Fprintf(&out, " %s", status.Phase)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return t.UTC().Format("Mon 2006-01-02 15:04")
}
