package hooks

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rules"
	"github.com/quorate-dev/quorate/hooks/safety"
)

func window(schedule string, duration time.Duration, zone string) v1beta1.MaintenanceWindow {
	return v1beta1.MaintenanceWindow{Schedule: schedule, Duration: metav1.Duration{Duration: duration}, TimeZone: zone}
}

// Both at the time now, a Friday.
var (
	openWindow   = window("0 2 * * 5", 4*time.Hour, "")
	closedWindow = window("0 2 * * 6", 4*time.Hour, "")
)

func TestWhenAWindowIsOpen(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	at := func(text string) time.Time {
		when, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return when
	}
	nightly, weekly := window("0 2 * * *", time.Hour, ""), window("0 2 * * 6", 4*time.Hour, "Europe/Berlin")
	for _, c := range []struct {
		name, at string
		windows  []v1beta1.MaintenanceWindow
		open     bool
		opens    string
	}{
		{"before it", "2026-01-02T01:59:59Z", []v1beta1.MaintenanceWindow{nightly}, false, "2026-01-02T02:00:00Z"},
		{"at its beginning", "2026-01-02T02:00:00Z", []v1beta1.MaintenanceWindow{nightly}, true, ""},
		{"in its last second", "2026-01-02T02:59:59Z", []v1beta1.MaintenanceWindow{nightly}, true, ""},
		{"at its end", "2026-01-02T03:00:00Z", []v1beta1.MaintenanceWindow{nightly}, false, "2026-01-03T02:00:00Z"},
		{"by the clocks of its zone", "2026-01-03T01:00:00Z", []v1beta1.MaintenanceWindow{weekly}, true, ""},
		{"in summer", "2026-07-04T00:00:00Z", []v1beta1.MaintenanceWindow{weekly}, true, ""},
		{"after it, by those clocks", "2026-07-04T04:00:00Z", []v1beta1.MaintenanceWindow{weekly}, false,
			"2026-07-11T00:00:00Z"},
		{"in the time that clocks leave out", "2026-03-29T01:00:00Z",
			[]v1beta1.MaintenanceWindow{window("30 2 * * *", time.Hour, "Europe/Berlin")}, true, ""},
		{"the first of those that come twice", "2026-10-25T00:30:00Z",
			[]v1beta1.MaintenanceWindow{window("30 2 * * *", 10*time.Minute, "Europe/Berlin")}, true, ""},
		{"the second of those that come twice", "2026-10-25T01:30:00Z",
			[]v1beta1.MaintenanceWindow{window("30 2 * * *", 10*time.Minute, "Europe/Berlin")}, false,
			"2026-10-26T01:30:00Z"},
		{"longer than the time between two", "2026-01-02T23:00:00Z",
			[]v1beta1.MaintenanceWindow{window("0 2 * * *", 168*time.Hour, "")}, true, ""},
		{"the first of several", "2026-01-02T12:00:00Z", []v1beta1.MaintenanceWindow{nightly, weekly}, false,
			"2026-01-03T01:00:00Z"},
		{"one of several", "2026-01-03T03:30:00Z", []v1beta1.MaintenanceWindow{nightly, weekly}, true, ""},
		{"beside one that never opens", "2026-01-02T02:00:00Z",
			[]v1beta1.MaintenanceWindow{window("0 0 30 2 *", time.Hour, ""), nightly}, true, ""},
		{"one that never opens", "2026-01-02T02:00:00Z",
			[]v1beta1.MaintenanceWindow{window("0 0 30 2 *", time.Hour, "")}, false, ""},
	} {
		o := serve(3)
		o.Now, o.Zones, o.Cluster.Spec.Maintenance.Windows = at(c.at),
			map[string]*time.Location{"Europe/Berlin": berlin}, c.windows
		w := defaults.WindowsNow(&o)
		assert.Equal(t, c.open, w.Open, c.name)
		if c.opens == "" {
			assert.True(t, w.Opens.IsZero(), c.name)
		} else {
			assert.Equal(t, c.opens, w.Opens.Format(time.RFC3339), c.name)
		}
		assert.Equal(t, c.open, safety.InWindow(o), "%s, by the oracle", c.name)
	}
	o := serve(3)
	assert.Nil(t, defaults.WindowsNow(&o), "none: nothing waits")
}

func TestWindowsThatNeverOpen(t *testing.T) {
	for says, w := range map[string]v1beta1.MaintenanceWindow{
		"windows[0].schedule never happens":                                         window("0 0 30 2 *", time.Hour, ""),
		"windows[0].schedule can't be parsed: expected exactly 5 fields":            window("nonsense", time.Hour, ""),
		"windows[0].schedule can't be parsed: put the time zone in":                 window("TZ=UTC 0 2 * * *", time.Hour, ""),
		`windows[0].timeZone: there is no time zone "Europe/Belin"`:                 window("0 2 * * *", time.Hour, "Europe/Belin"),
		"windows[0].duration: 9m0s is not between 10m and 168h":                     window("* * * * *", 9*time.Minute, ""),
		"windows[0].duration: 169h0m0s is not between 10m and 168h":                 window("* * * * *", 169*time.Hour, ""),
		"windows[0].duration: 0s is not between 10m and 168h; this window never op": window("* * * * *", 0, ""),
	} {
		o := serve(3)
		o.Cluster.Spec.Maintenance.Windows = []v1beta1.MaintenanceWindow{w}
		d := Decide(o)
		require.NoError(t, verify(o, d))
		assert.Equal(t, "Converged", d.Reason.Rule, says)
		assert.Contains(t, answer.Advice(facts.New(o)), says)

		o.Cluster.Spec.PriorityClassName = "high"
		is, message := told(t, o)
		assert.Equal(t, "Stalled ActionNeeded", is, says)
		assert.Contains(t, message, "correct spec.maintenance.windows (spec.maintenance.windows[0].")
		assert.Zero(t, Decide(o).ResyncAfter, says)
	}
}

// moreQuota lets another quota be wanted.
func moreQuota(o *observation.Observation) {
	o.Cluster.Spec.Options.QuotaBackendBytes = new(int64(100 << 20))
}

func TestWhatWaitsForAWindow(t *testing.T) {
	toVersion := func(v string) observation.Observation { return with(serve(3), settled, version(v)) }
	otherClass := func(o *observation.Observation) {
		o.Cluster.Spec.Storage.StorageClassName, o.Cluster.Spec.Storage.Migration = new("fast"), v1beta1.MigrateReplace
	}
	isDue := func(o *observation.Observation) {
		due := metav1.NewTime(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
		o.Cluster.Status.Defragmentation = &v1beta1.DefragmentationStatus{NextScheduleTime: due}
	}
	for name, c := range map[string]struct {
		o          observation.Observation
		rule, says string
	}{
		"another template": {with(serve(3), high), "RollingUpdate",
			"to restart demo-0, demo-1, demo-2: the template of its pod has changed"},
		"one voter":  {with(serve(1), high), "Grow", "to replace demo-0: the template of its pod has changed"},
		"two voters": {with(serve(2), high), "Grow", "to replace demo-0, demo-1: the template"},
		"another quota": {with(serve(3), moreQuota), "RollingUpdate",
			"to restart demo-0, demo-1, demo-2: it runs with a quota of"},
		"the next version":   {toVersion("3.7.3"), "Upgrade", "to upgrade etcd from 3.6.16 to 3.7.3"},
		"the version before": {toVersion("3.5.35"), "Upgrade", "to upgrade etcd from 3.6.16 to 3.5.35"},
		"a version and a flag": {with(toVersion("3.7.3"), high), "RollingUpdate",
			"has changed; to upgrade etcd from 3.6.16 to 3.7.3"},
		"other volumes": {with(onVolumes(), otherClass), "Grow",
			"to replace demo-0, demo-1, demo-2: its volume should be of the class fast"},
		"a scheduled defragmentation": {with(scheduled("0 3 * * *"), isDue), "Defragment",
			"to defragment, on schedule"},
		"TLS": {learningTLS(), "RollingUpdate", "to restart demo-0, demo-1, demo-2: it has no certificates yet"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Cluster.Spec.Maintenance.Windows = []v1beta1.MaintenanceWindow{closedWindow, openWindow}
			inside := Decide(c.o)
			require.NoError(t, verify(c.o, inside))
			assert.Equal(t, c.rule, inside.Reason.Rule, inside.Reason.Message)

			c.o.Cluster.Spec.Maintenance.Windows = []v1beta1.MaintenanceWindow{closedWindow}
			require.ErrorContains(t, verify(c.o, inside), "maintenance", "the oracle knows that this is too early")
			d := Decide(c.o)
			require.NoError(t, verify(c.o, d))
			assert.Equal(t, "WaitForWindow", d.Reason.Rule, d.Reason.Message)
			assert.Contains(t, d.Reason.Message, "serving; waiting for the maintenance window that opens at "+
				"2026-01-03T02:00:00Z to ")
			assert.Contains(t, d.Reason.Message, c.says)
			assert.Equal(t, time.Date(2026, 1, 3, 2, 0, 0, 0, time.UTC).Sub(now), d.ResyncAfter,
				"asked again when it opens")
			is, _ := told(t, c.o)
			assert.Equal(t, "Ready WaitingForWindow", is)

			observe(&c.o, d)
			c.o.Now = now.Add(time.Hour)
			assert.Equal(t, d.Status, Decide(c.o).Status, "S16: nothing is written while it waits")
		})
	}
}

// TestWhatWaitsForNoWindow: the stories window_*.txt have what else does not wait.
func TestWhatWaitsForNoWindow(t *testing.T) {
	fence := func(o *observation.Observation) { askFence(o, "demo-1") }
	lost := func(o *observation.Observation) { lose(o, "demo-1") }
	defragment := func(o *observation.Observation) { askDefragment(o, "now") }
	listedOtherwise := func(o *observation.Observation) {
		o.Etcd.Members[1].PeerURLs[0] = "http" + o.Etcd.Members[1].PeerURLs[0][len("https"):]
	}
	successorVotes := with(serve(2), high, replicas(1), withoutPod("demo-1"), func(o *observation.Observation) {
		addPod(o, 1, objects.StartResume)
	})
	for name, c := range map[string]struct {
		o    observation.Observation
		rule string
	}{
		"a claim that is being deleted":                {with(serve(3), goingClaim("demo-1")), "Grow"},
		"scaling":                                      {with(serve(3), replicas(5)), "Grow"},
		"scaling down":                                 {with(serve(5), high, replicas(3)), "Shrink"},
		"a member whose data is lost":                  {with(serve(3), high, lost), "Replace"},
		"a member that is fenced":                      {with(serve(3), fence), "Fence"},
		"a defragmentation that a person asks for":     {with(serve(3), high, defragment), "Defragment"},
		"one beside a version that waits":              {with(serve(3), settled, version("3.7.3"), defragment), "Defragment"},
		"a member with a URL at which it is not heard": {with(serve(3), listedOtherwise), "RollingUpdate"},
		"a member that is chosen":                      {with(choosing(restart(1)), high), "RollingUpdate"},
		"a successor that votes":                       {successorVotes, "Replace"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Cluster.Spec.Maintenance.Windows = []v1beta1.MaintenanceWindow{closedWindow}
			d := Decide(c.o)
			require.NoError(t, verify(c.o, d), d.Reason.Message)
			assert.Equal(t, c.rule, d.Reason.Rule, d.Reason.Message)
		})
	}
}

// TestUpdatePeerURLsWaitsForAWindow: members that have certificates, and are listed with http.
func TestUpdatePeerURLsWaitsForAWindow(t *testing.T) {
	o := learningTLS()
	for i := range 60 {
		breathe(&o, i)
		d := Decide(o)
		if _, readdresses := d.Step.(decision.UpdatePeerURL); readdresses {
			o.Cluster.Spec.Maintenance.Windows = []v1beta1.MaintenanceWindow{window("0 0 1 7 *", time.Hour, "")}
			require.ErrorContains(t, verify(o, d), "maintenance")
			d = Decide(o)
			require.NoError(t, verify(o, d))
			assert.Nil(t, d.Step)
			assert.Contains(t, d.Reason.Message, "to change peer URLs to https")
			return
		}
		if move, moves := d.Step.(decision.MoveLeader); moves {
			o.Etcd.Leader = move.To
			o.Taken = &decision.Outcome{Step: d.Step, Rule: d.Reason.Rule}
			d = Decide(o)
			o.Taken = nil
		}
		observe(&o, d)
	}
	t.Error("no member was listed with another URL")
}

// learningTLS is a cluster in plain text that should learn TLS, and whose certificates are there.
func learningTLS() observation.Observation {
	o := plainText(3)
	o.Cluster.Spec.TLS.Mode, o.Cluster.Spec.TLS.AllowPlaintextClients = v1beta1.TLSAuto, true
	withCertificates(&o)
	return o
}

func scheduled(line string) observation.Observation {
	o := serve(3)
	o.Cluster.Spec.Maintenance.Defragmentation = &v1beta1.Defragmentation{Schedule: line}
	return o
}

func TestSchedulesThatBeginNothing(t *testing.T) {
	for line, says := range map[string]string{
		"nonsense": "expected exactly 5 fields", "61 * * * *": "above maximum",
		"TZ=Europe/Paris 0 3 * * *": "without a time zone", "@weekly": "descriptor",
		"0 0 30 2 *": "never happens", "*/0 * * * *": "step of range should be a positive number",
	} {
		o := scheduled(line)
		d := Decide(o)
		assert.Equal(t, "Converged", d.Reason.Rule, line)
		assert.Nil(t, d.Status.Defragmentation, line)
		assert.Zero(t, d.ResyncAfter, line)
		assert.Contains(t, answer.ScheduleAdvice(facts.New(o)), says, line)
	}
	assert.Empty(t, answer.ScheduleAdvice(facts.New(scheduled("0 3 * * 0"))))
}

// inARequest is a cluster whose run by the annotation is under way.
func inARequest(change func(*decision.DefragmentationRun)) observation.Observation {
	o := spaceOut(200, 100)
	o.Etcd.Alarms = nil
	askDefragment(&o, "a")
	return recovering(o, func(s *decision.DefragmentationRun) {
		s.Trigger, s.Request = v1beta1.TriggerRequest, "a"
		change(s)
	})
}

func TestWhatADefragmentationCountsFor(t *testing.T) {
	step := decision.Defragment{ID: 2, Name: "demo-1", DBSize: 200 << 20}
	shrunk := func(o *observation.Observation, to int64) {
		h := o.Health["demo-1"]
		h.DBSize = to << 20
		o.Health["demo-1"] = h
	}
	cases := []struct {
		name      string
		err       string
		then      func(*observation.Observation)
		done      bool
		reclaimed string
	}{
		{"done", "", func(o *observation.Observation) { shrunk(o, 100) }, true, "100Mi"},
		{"the answer was lost", "no answer in time", func(o *observation.Observation) { shrunk(o, 100) }, true,
			"100Mi"},
		{"it is still at it", "no answer in time", func(o *observation.Observation) { silence(o, "demo-1") }, true, ""},
		{"it was refused", "refused", func(*observation.Observation) {}, false, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := inARequest(func(*decision.DefragmentationRun) {})
			require.Equal(t, step, Decide(o).Step)
			c.then(&o)
			o.Taken = &decision.Outcome{Step: step, Rule: "Defragment", Err: c.err}
			s := Decide(o).Status.Defragmentation
			assert.Equal(t, c.done, len(s.Done) == 1)
			if c.reclaimed == "" {
				assert.Nil(t, s.Reclaimed)
			} else {
				assert.Equal(t, c.reclaimed, s.Reclaimed.String())
			}
		})
	}
}

// TestClientsLeaveBeforeALargeMemberIsDefragmented: a run that a person asks for, on databases with so many MiB in use.
func TestClientsLeaveBeforeALargeMemberIsDefragmented(t *testing.T) {
	run := func(members int, inUse int64, facts ...fact) observation.Observation {
		o := serve(members)
		everyDatabase(&o, 900<<20, inUse<<20)
		askDefragment(&o, "a")
		o = recovering(o, func(s *decision.DefragmentationRun) {
			s.Trigger, s.Request = v1beta1.TriggerRequest, "a"
		})
		return with(o, facts...)
	}
	left := func(name string) fact {
		return func(o *observation.Observation) {
			o.Children.Pods[name].Annotations[objects.AnnotationDefragmentation] =
				o.Cluster.Status.Defragmentation.StartTime.UTC().Format(time.RFC3339)
		}
	}
	closed := func(o *observation.Observation) {
		o.Cluster.Spec.Maintenance.Windows = []v1beta1.MaintenanceWindow{closedWindow}
	}
	done := func(names ...string) fact {
		return func(o *observation.Observation) { o.Cluster.Status.Defragmentation.Done = names }
	}
	for name, c := range map[string]struct {
		o    observation.Observation
		says string
	}{
		"as large as is felt":            {run(3, 256), "recording that demo-1 is restarted next: its clients move"},
		"smaller":                        {run(3, 255), "defragmenting: demo-1 now"},
		"of one member":                  {run(1, 300), "defragmenting: demo-0 now"},
		"of two":                         {run(2, 300), "defragmenting: demo-1 now"},
		"outside of a window":            {run(3, 300, closed), "recording that demo-1 is restarted next"},
		"that is chosen":                 {run(3, 300, chosen(restart(1))), "restarting demo-1"},
		"that is another pod now":        {run(3, 300, left("demo-1")), "defragmenting: demo-1 now"},
		"first, although there is more":  {run(3, 300, left("demo-2")), "defragmenting: demo-2 now"},
		"after another":                  {run(3, 300, left("demo-1"), done("demo-1")), "recording that demo-2"},
		"that leads, the last":           {run(3, 300, done("demo-1", "demo-2")), "it leads and hands over first"},
		"beside a change that waits":     {run(3, 300, closed, high), "defragmenting: demo-1 now"},
		"that leads, made in the run":    {run(3, 300, done("demo-1", "demo-2"), left("demo-0")), "hands over first"},
		"while another has to be mended": {run(3, 300, high), "recording that demo-1 is restarted next: the template"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.o)
			require.NoError(t, verify(c.o, d))
			assert.Contains(t, d.Reason.Message, c.says)
		})
	}

	o := run(3, 300, withoutPod("demo-1"), chosen(restart(1)))
	began := o.Cluster.Status.Defragmentation.StartTime.UTC().Format(time.RFC3339)
	assert.Equal(t, began, byName(Decide(o).Children.Pods)["demo-1"].Annotations[objects.AnnotationDefragmentation],
		"so that it is restarted once")
	made := func(o *observation.Observation) {
		o.Children.Pods["demo-1"].CreationTimestamp = metav1.NewTime(now)
	}
	o = run(3, 300, left("demo-1"), haveClients, made)
	labels := func(o observation.Observation) string {
		return byName(Decide(o).Children.Pods)["demo-1"].Labels[objects.LabelRole]
	}
	assert.Equal(t, facts.RoleLeaving, labels(o), "it gets no clients before")
	for why, otherwise := range map[string]fact{
		"another is down": func(o *observation.Observation) { silence(o, "demo-2") },
		"that takes long": func(o *observation.Observation) {
			o.Children.Pods["demo-1"].CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		},
		"it is suspended": suspending,
	} {
		o := run(3, 300, left("demo-1"), haveClients, otherwise)
		assert.Equal(t, facts.RoleVoter, labels(o), why)
	}
	o.Taken = &decision.Outcome{Step: decision.Defragment{ID: 2, Name: "demo-1", DBSize: 900 << 20}, Rule: "Defragment"}
	assert.Equal(t, facts.RoleVoter, labels(o), "and gets them back after")
	o.Children.Pods["demo-1"].Labels[objects.LabelRole] = facts.RoleLeaving
	answering("demo-0", func(h *observation.Health) { h.RaftIndex += facts.MostBehind + 1 })(&o)
	assert.Equal(t, facts.RoleLeaving, labels(o), "once it has caught up")

	o = run(3, 300, chosen(restart(1)), done("demo-1"))
	d := Decide(run(3, 300, chosen(restart(1))))
	assert.ErrorContains(t, verify(o, d), "S1", "the oracle knows that it was done")
}

// settled lets all members have run their version for long enough.
func settled(o *observation.Observation) {
	for name, pod := range o.Children.Pods {
		pod.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{
			StartedAt: metav1.NewTime(now.Add(-time.Hour))}
		h := o.Health[name]
		h.StorageVersion = "3.6.0"
		o.Health[name] = h
	}
}

func TestAMemberWhoseImageHoldsAnotherVersionStopsTheRoll(t *testing.T) {
	o := serve(3)
	o.Cluster.Spec.PriorityClassName = "high"
	h := o.Health["demo-1"]
	h.Version = "3.6.15"
	o.Health["demo-1"] = h
	d := Decide(o)
	assert.Equal(t, "RollingUpdate", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "check what is in the image")
	assert.Len(t, d.Children.Pods, 3)
}

// hashed is a cluster with the alarm CORRUPT of this member, whose voters have these hashes; 0 for none.
func hashed(accused uint64, hashes ...uint32) observation.Observation {
	o := serve(len(hashes))
	o.Etcd.Alarms = []observation.Alarm{{MemberID: accused, Kind: observation.AlarmCorrupt}}
	for i, value := range hashes {
		if value == 0 {
			continue
		}
		name := objects.MemberName("demo", i)
		h := o.Health[name]
		h.Hash = &observation.Hash{Revision: 100, CompactRevision: 50, Value: value}
		o.Health[name] = h
	}
	for _, claim := range o.Children.Claims {
		note(claim, objects.AnnotationFailedMember, "true") // as it is before any member goes
	}
	return o
}

func TestCorruptNeedsProof(t *testing.T) {
	former := uint64(77)
	cases := []struct {
		name  string
		given observation.Observation
		step  decision.Step
	}{
		{"a follower differs from two", hashed(2, 1, 9, 1), decision.Remove{ID: 2, Name: "demo-1"}},
		{"the leader differs from two", hashed(1, 9, 1, 1), decision.MoveLeader{To: 2, Name: "demo-1"}},
		{"no single member is accused", hashed(0, 1, 1, 9), decision.Remove{ID: 3, Name: "demo-2"}},
		{"another is accused than the one that differs", hashed(3, 1, 9, 1), decision.Remove{ID: 2, Name: "demo-1"}},
		{"two of five differ: followers first", hashed(1, 9, 1, 1, 8, 1), decision.Remove{ID: 4, Name: "demo-3"}},
		{"all three differ", hashed(0, 1, 2, 3), nil},
		{"two of four differ", hashed(0, 1, 1, 2, 2), nil},
		{"one of two differs", hashed(0, 1, 2), nil},
		{"one differs, one says nothing", hashed(0, 1, 2, 0), nil},
		{"none says anything", hashed(2, 0, 0, 0), nil},
		{"all agree", hashed(2, 1, 1, 1), decision.Disarm{ID: 2, Name: "demo-1", Kind: observation.AlarmCorrupt}},
		{"all agree, and none was accused", hashed(0, 1, 1, 1), decision.Disarm{Kind: observation.AlarmCorrupt}},
		{"all that say something agree", hashed(2, 1, 0, 1), nil},
		{"the accused has left", hashed(former, 1, 1, 1), decision.Disarm{ID: former, Kind: observation.AlarmCorrupt}},
		{"the accused has left, one says nothing", hashed(former, 1, 1, 0), decision.Disarm{ID: former,
			Kind: observation.AlarmCorrupt}},
		{"the accused has left, the rest differ", hashed(former, 1, 2), nil},
		{"a single voter proves nothing by itself", hashed(1, 1), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(onceChosen(t, c.given))
			assert.Equal(t, "Corrupt", d.Reason.Rule)
			assert.Equal(t, c.step, d.Step, d.Reason.Message)
			assert.NoError(t, verify(c.given, d))
			assert.Equal(t, c.given.Cluster.Status.Members, d.Status.Members)
		})
	}
}

func TestNoMemberJoinsWhileDataIsCorrupt(t *testing.T) {
	o := learnerAt(1000)
	o.Etcd.Alarms = []observation.Alarm{{Kind: observation.AlarmCorrupt}}
	assert.Nil(t, Decide(o).Step, "no promotion")

	proven := hashed(2, 1, 9, 1)
	addMember(&proven, 3, true)
	list(&proven, "demo-3", facts.CallsEnd)
	nextMember(4)(&proven)
	assert.Equal(t, decision.Remove{ID: 4, Name: "demo-3"}, Decide(onceChosen(t, proven)).Step,
		"the learner may have copied what is wrong")

	grown := hashed(2, 1, 9, 1)
	grown.Cluster.Spec.Replicas = new(int32(5))
	d := Decide(grown)
	d.Step = decision.AddLearner{Name: "demo-3", PeerURL: objects.PeerURL(grown.Cluster, "demo-3", "")}
	assert.ErrorContains(t, verify(grown, d), "while data is corrupt")
	d.Step = decision.Remove{ID: 3, Name: "demo-2"}
	assert.ErrorContains(t, verify(grown, d), "neither lost, nor proven wrong")
	d.Step = decision.Disarm{ID: 2, Name: "demo-1", Kind: observation.AlarmCorrupt}
	assert.ErrorContains(t, verify(grown, d), "2 hashes")
}

func TestTheHeirOfACorruptLeaderIsNotCorrupt(t *testing.T) {
	o := hashed(0, 9, 8, 1, 1, 1)
	ahead := o.Health["demo-1"]
	ahead.RaftIndex += 100
	o.Health["demo-1"] = ahead
	f := facts.New(o)
	assert.Equal(t, "demo-2", rules.HandOver(f, f.Find("demo-0")).(decision.MoveLeader).Name)
}

// spaceOut is a cluster of three with a quota of 256 MiB, the alarm NOSPACE, and databases of these sizes in MiB.
func spaceOut(size, inUse int64) observation.Observation {
	o := serve(3)
	everyDatabase(&o, size<<20, inUse<<20)
	o.Etcd.Alarms = []observation.Alarm{{MemberID: 2, Kind: observation.AlarmNoSpace}}
	return o
}

func recovering(o observation.Observation, change func(*decision.DefragmentationRun)) observation.Observation {
	run := &decision.DefragmentationRun{}
	run.Trigger, run.StartTime = v1beta1.TriggerNoSpace, metav1.NewTime(now.Add(-time.Minute))
	return inRun(o, run, change)
}

// inRun is the observation with the run in its status, changed.
func inRun(o observation.Observation, run *decision.DefragmentationRun,
	change func(*decision.DefragmentationRun)) observation.Observation {
	change(run)
	o.Cluster.Status.Defragmentation, o.Cluster.Status.Internal.Defragmentation = run.Told()
	return o
}

func TestVerifyKnowsMaintenance(t *testing.T) {
	o := spaceOut(257, 100)
	d := Decide(o)
	broken := func(o observation.Observation, step decision.Step) string {
		d.Step = step
		if err := verify(o, d); err != nil {
			return err.Error()
		}
		return ""
	}
	require.Empty(t, broken(o, decision.Defragment{ID: 2, Name: "demo-1"}))
	assert.Contains(t, broken(o, decision.Disarm{ID: 2, Name: "demo-1", Kind: observation.AlarmNoSpace}),
		"not below 90 %")
	assert.Contains(t, broken(o, decision.Compact{Revision: 101}), "to which the leader has not come")
	assert.Contains(t, broken(serve(3), decision.Compact{Revision: 0}), "although there is space")

	down := spaceOut(257, 100)
	silence(&down, "demo-2")
	assert.Contains(t, broken(down, decision.Defragment{ID: 2, Name: "demo-1"}), "while demo-2 does not serve")
	learner := learnerAt(500)
	assert.Contains(t, broken(learner, decision.Defragment{ID: 2, Name: "demo-1"}), "while there is a learner")
	asked := recovering(serve(3), func(s *decision.DefragmentationRun) { s.Trigger = v1beta1.TriggerRequest })
	assert.Contains(t, broken(asked, decision.Defragment{ID: 1, Name: "demo-0"}), "which leads, before demo-1")
}

// TestScheduleAsksToBeCalledAtItsTime, and writes nothing before that.
func TestScheduleAsksToBeCalledAtItsTime(t *testing.T) {
	o := scheduled("30 4 * * *")
	want := time.Date(now.Year(), now.Month(), now.Day(), 4, 30, 0, 0, time.UTC)
	first := Decide(o)
	assert.WithinDuration(t, want, first.Status.Defragmentation.NextScheduleTime.Time, 0)
	assert.Equal(t, want.Sub(now), first.ResyncAfter)
	observe(&o, first)
	o.Now = want.Add(-time.Second)
	assert.Equal(t, first.Status, Decide(o).Status)
	assert.Equal(t, time.Second, Decide(o).ResyncAfter)
	o.Now = want
	assert.WithinDuration(t, want.AddDate(0, 0, 1), Decide(o).Status.Defragmentation.NextScheduleTime.Time, 0)
}

// TestTheNextVersionBeginsWithAFact: from 3.6 on members tell what the cluster has agreed on, and whether a downgrade is
// over; how long they have run does not matter.
func TestTheNextVersionBeginsWithAFact(t *testing.T) {
	tell := func(o *observation.Observation, storage, downgrade string) {
		for name, pod := range o.Children.Pods {
			pod.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}
			h := o.Health[name]
			h.StorageVersion = storage
			h.Downgrade = downgrade
			o.Health[name] = h
		}
	}
	for _, c := range []struct{ to, storage, downgrade, says string }{
		{"3.7.3", "3.6.0", "", "the members will run etcd 3.7.3 instead of 3.6.16"},
		{"3.7.3", "3.5.0", "", "waiting for demo-0 to convert its data to the format of 3.6.0"},
		{"3.5.35", "3.6.0", "3.6.0", "waiting until etcd ends the downgrade to 3.6.0"},
		{"3.5.35", "3.6.0", "", "asking etcd to lower the cluster's version"},
	} {
		o := serve(3)
		o.Cluster.Spec.Version = c.to
		tell(&o, c.storage, c.downgrade)
		d := Decide(o)
		assert.Contains(t, d.Reason.Message, c.says, "%+v", c)
		require.NoError(t, Verify(o, d))
	}
}
