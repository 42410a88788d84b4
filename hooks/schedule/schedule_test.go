package schedule

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// clock is a time of November 2026 in UTC, such as "22 03:00".
func clock(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", "2026-11-"+text+":00"[max(0, len(text)-8):])
	if err != nil {
		panic(err)
	}
	return t
}

// everyHour is a schedule of every hour that was made on the first of November, without any snapshot yet.
func everyHour() Observation {
	return Observation{
		Schedule: &v1beta1.EtcdSnapshotSchedule{
			ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop", UID: "uid-schedule", Generation: 1,
				CreationTimestamp: metav1.NewTime(clock("01 00:10"))},
			Spec: v1beta1.EtcdSnapshotScheduleSpec{
				Schedule: "0 * * * *",
				Template: v1beta1.EtcdSnapshotTemplate{Spec: v1beta1.EtcdSnapshotSpec{ClusterRef: v1beta1.ClusterRef{Name: "orders"},
					Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "backups", Prefix: "orders"}}}},
			},
		},
		Snapshots: map[string]*v1beta1.EtcdSnapshot{},
		Pods:      map[string]*corev1.Pod{},
		Clusters:  map[string]*v1beta1.EtcdCluster{"orders": anEtcd()},
		Zone:      time.UTC,
		Now:       clock("22 03:00:20"),
	}
}

// anEtcd is the cluster orders, which serves.
func anEtcd() *v1beta1.EtcdCluster {
	return &v1beta1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop", UID: "uid-orders"},
		Spec:       v1beta1.EtcdClusterSpec{Version: "3.6.16"},
		Status: v1beta1.EtcdClusterStatus{ClusterID: "c1",
			Members:    []v1beta1.MemberStatus{{Name: "orders-0", Role: v1beta1.Voter}},
			Conditions: []metav1.Condition{{Type: v1beta1.Available, Status: metav1.ConditionTrue}}},
	}
}

// add a snapshot of a run, as far as it has come; verified if it succeeded.
func (o *Observation) add(run string, phase v1beta1.SnapshotPhase) *v1beta1.EtcdSnapshot {
	s := snapshotOf(o.Schedule, clock(run), clock(run).Add(time.Second))
	finish(s, phase, clock(run).Unix(), clock(run).Add(10*time.Second))
	o.Snapshots[s.Name] = s
	return s
}

func snapshotOf(schedule *v1beta1.EtcdSnapshotSchedule, run, created time.Time) *v1beta1.EtcdSnapshot {
	name := snapshotName(schedule.Name, run)
	return &v1beta1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: schedule.Namespace, UID: types.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(created)},
		Spec: *v1beta1.Copy(&schedule.Spec.Template.Spec),
	}
}

func finish(s *v1beta1.EtcdSnapshot, phase v1beta1.SnapshotPhase, revision int64, when time.Time) {
	s.Status = v1beta1.EtcdSnapshotStatus{Phase: phase}
	switch phase {
	case v1beta1.SnapshotSucceeded:
		s.Status.StartTime, s.Status.VerificationTime = metav1.NewTime(when), metav1.NewTime(when.Add(time.Second))
	case v1beta1.SnapshotUnverified:
		s.Status.StartTime, s.Status.URI = metav1.NewTime(when), "s3://backups/"+s.Name
	case v1beta1.SnapshotSkipped:
	default:
		return
	}
	s.Status.Revision, s.Status.ClusterID, s.Status.AuthRevision = revision, "c1", 1
}

// changes says what a decision makes and lets go, such as "+orders-20261122-0300 -orders-20261121-0300".
func changes(o Observation, d Decision) string {
	var all []string
	stays := map[string]bool{}
	for _, s := range d.Snapshots {
		if stays[s.Name] = true; s.UID == "" {
			all = append(all, "+"+s.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Snapshots)) {
		if !stays[name] {
			all = append(all, "-"+name)
		}
	}
	return strings.Join(all, " ")
}

// edit is something that is the case in an observation.
type edit = func(o *Observation)

// ran is a snapshot that is as far as this.
func ran(run string, phase v1beta1.SnapshotPhase) edit {
	return func(o *Observation) { o.add(run, phase) }
}

// lastRun is the run that the status knows as the last.
func lastRun(run string) edit {
	return func(o *Observation) { o.Schedule.Status.LastScheduleTime = metav1.NewTime(clock(run)) }
}

// says changes the spec of the schedule.
func says(change func(s *v1beta1.EtcdSnapshotScheduleSpec)) edit {
	return func(o *Observation) { change(&o.Schedule.Spec) }
}

func keepsLast(o *Observation) { o.Schedule.Spec.Retention.Last = new(int32(1)) }

func TestDecideSchedule(t *testing.T) {
	const ok, running = v1beta1.SnapshotSucceeded, v1beta1.SnapshotRunning
	times := func(line string) edit {
		return says(func(s *v1beta1.EtcdSnapshotScheduleSpec) { s.Schedule = line })
	}
	at := func(when time.Time) edit { return func(o *Observation) { o.Now = when } }
	createdAt := func(when string) edit {
		return func(o *Observation) { o.Schedule.CreationTimestamp = metav1.NewTime(clock(when)) }
	}
	deleted := func(run string, phase v1beta1.SnapshotPhase) edit {
		return func(o *Observation) { o.add(run, phase).DeletionTimestamp = &metav1.Time{Time: o.Now} }
	}
	suspended := says(func(s *v1beta1.EtcdSnapshotScheduleSpec) { s.Suspend = true })
	noZone := func(o *Observation) { o.Zone, o.Schedule.Spec.TimeZone = nil, "Europe/Belin" }
	pending := func(o *Observation) {
		o.add("22 02:00", v1beta1.SnapshotPending).Status.Message = "the cluster has no quorum"
	}
	knownToBeStored := func(o *Observation) {
		o.Schedule.Status.LastSuccess = &v1beta1.SnapshotReference{Name: "orders-20261122-0200"}
	}
	byAFastClock := func(o *Observation) {
		o.add("23 03:00", ok).CreationTimestamp = metav1.NewTime(clock("22 02:30"))
	}
	const due = "+orders-20261122-0300"
	for _, c := range []struct {
		what    string
		given   []edit
		rule    string
		changes string
		message string // a part of it
	}{
		{"the first run, of all since it was made the latest alone", nil, "Take", due, "taking orders-20261122-0300"},
		{"made a moment ago: nothing was missed", []edit{createdAt("22 03:00:05")}, "Waiting", "",
			"no snapshot has been taken yet"},
		{"made on the minute of a run", []edit{createdAt("22 03:00:00")}, "Waiting", "", ""},
		{"a run that was taken", []edit{ran("22 03:00", ok)}, "Waiting", "",
			"orders-20261122-0300 is the newest snapshot"},
		{"the status is lost, the snapshots are not", []edit{ran("22 03:00", v1beta1.SnapshotFailed)}, "Failing", "",
			"orders-20261122-0300 failed; none has succeeded yet"},
		{"a person deleted the snapshot", []edit{lastRun("22 03:00")}, "Waiting", "", ""},
		{"a person is deleting it", []edit{deleted("22 03:00", ok)}, "Waiting", "", "no snapshot has been taken yet"},
		{"on time", []edit{ran("22 02:00", ok), at(clock("22 03:00:00"))}, "Take", due, ""},
		{"a moment too early", []edit{ran("22 02:00", ok), at(clock("22 03:00:00").Add(-time.Millisecond))}, "Waiting",
			"", ""},
		{"down for a day: once", []edit{ran("21 02:00", ok)}, "Take", due, ""},

		{"suspended", []edit{suspended, keepsLast, ran("22 01:00", ok), ran("22 02:00", ok)}, "Suspended", "",
			"SUSPENDED"},
		{"no such zone: nothing changes", []edit{noZone, keepsLast, ran("22 01:00", ok), ran("22 02:00", ok)},
			"Unreadable", "",
			`spec.timeZone: there is no time zone "Europe/Belin"; until you correct that, no snapshot ` +
				`is taken or deleted`},
		{"no such schedule: nothing changes", []edit{times("0 24 * * *"), keepsLast, ran("22 01:00", ok),
			ran("22 02:00", ok)}, "Unreadable", "", "spec.schedule can't be parsed: "},
		{"never happens", []edit{times("0 0 31 2 *")}, "Unreadable", "", "spec.schedule never happens"},

		{"one at a time", []edit{ran("22 02:00", running)}, "Wait", "",
			"orders-20261122-0300 waits, because this is not finished: orders-20261122-0200"},
		{"and says what that waits for", []edit{pending}, "Wait", "",
			"orders-20261122-0200 (the cluster has no quorum)"},
		{"one that was just made counts", []edit{ran("22 02:00", "")}, "Wait", "", ""},
		{"one that is being deleted does not", []edit{deleted("22 02:00", running)}, "Take", due, ""},
		{"nor does one that the status knows to be stored: the list lags", []edit{ran("22 02:00", running),
			knownToBeStored}, "Take", due, ""},

		{"a clock of another replica that is ahead a little", []edit{at(clock("22 02:59:58")), ran("22 03:00",
			running)}, "Running", "", ""},
		{"a clock that was ahead for a day stops nothing", []edit{byAFastClock, lastRun("23 03:00")}, "Take", due, ""},
		{"with all of its snapshots out of view", []edit{lastRun("22 03:00"), keepsLast}, "Waiting", "", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			o := everyHour()
			for _, edit := range c.given {
				edit(&o)
			}
			d := decided(t, o)
			assert.Equal(t, c.rule, d.Reason.Rule, d.Reason.Message)
			assert.Equal(t, c.changes, changes(o, d))
			assert.Contains(t, d.Reason.Message, c.message)
			assert.Equal(t, d.Reason.Message, d.Status.Message)
		})
	}
}

func TestUnless(t *testing.T) {
	last := func(change func(s *v1beta1.EtcdSnapshot)) edit {
		return func(o *Observation) { change(o.Snapshots["orders-20261122-0100"]) }
	}
	unverified := last(func(s *v1beta1.EtcdSnapshot) { s.Status.VerificationTime = metav1.Time{} })
	encrypted := &v1beta1.Encryption{Recipients: []string{"age1"}}
	for what, c := range map[string]struct {
		given edit
		want  int64
	}{
		"by default":               {says(func(*v1beta1.EtcdSnapshotScheduleSpec) {}), 7},
		"asked for":                {says(func(s *v1beta1.EtcdSnapshotScheduleSpec) { s.SkipUnchanged = new(true) }), 7},
		"not wanted":               {says(func(s *v1beta1.EtcdSnapshotScheduleSpec) { s.SkipUnchanged = new(false) }), 0},
		"the last is not verified": {unverified, 0},
		"and need not be": {func(o *Observation) {
			unverified(o)
			o.Schedule.Spec.Template.Spec.Verify = new(false)
		}, 7},
		"another cluster": {says(func(s *v1beta1.EtcdSnapshotScheduleSpec) { s.Template.Spec.ClusterRef.Name = "other" }),
			0},
		"another bucket": {says(func(s *v1beta1.EtcdSnapshotScheduleSpec) { s.Template.Spec.Store.S3.Bucket = "other" }),
			0},
		"encrypted from now on": {says(func(s *v1beta1.EtcdSnapshotScheduleSpec) { s.Template.Spec.Encryption = encrypted }),
			0},
		"it is being deleted": {last(func(s *v1beta1.EtcdSnapshot) { s.DeletionTimestamp = &metav1.Time{} }), 0},
		"it failed":           {last(func(s *v1beta1.EtcdSnapshot) { s.Status.Phase = v1beta1.SnapshotFailed }), 0},
		"it could not be verified": {last(func(s *v1beta1.EtcdSnapshot) { s.Status.Phase = v1beta1.SnapshotUnverified }),
			0},
		"it does not say of which etcd it is": {last(func(s *v1beta1.EtcdSnapshot) { s.Status.ClusterID = "" }), 0},
		"nor with which users":                {last(func(s *v1beta1.EtcdSnapshot) { s.Status.AuthRevision = 0 }), 0},
	} {
		t.Run(what, func(t *testing.T) {
			o := everyHour()
			o.add("22 01:00", v1beta1.SnapshotSucceeded).Status.Revision = 7
			o.add("22 02:00", v1beta1.SnapshotSkipped).Status.Revision = 7
			c.given(&o)
			d := decided(t, o)
			made := d.Snapshots[len(d.Snapshots)-1]
			var want *snapshot.Unless
			if c.want > 0 {
				want = &snapshot.Unless{Revision: c.want, ClusterID: "c1", AuthRevision: 1}
			}
			assert.Equal(t, "orders-20261122-0300", made.Name)
			assert.Equal(t, want, snapshot.UnlessOf(made))
		})
	}
}

func TestANewSnapshotIsAsTheTemplateSays(t *testing.T) {
	o := everyHour()
	o.Schedule.Spec.Template.Spec.DeletionPolicy = v1beta1.DeletionDelete
	o.Schedule.Spec.SkipUnchanged = new(false)
	made := decided(t, o).Snapshots[0]
	if !reflect.DeepEqual(made.Spec, o.Schedule.Spec.Template.Spec) {
		t.Errorf("%+v", made.Spec)
	}
	if made.Namespace != "shop" || made.Labels[objects.LabelCluster] != "orders" ||
		made.Labels[objects.LabelSchedule] != "orders" {
		t.Errorf("%+v", made.ObjectMeta)
	}
}

func zoneOf(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	require.NoError(t, err)
	return zone
}
