package cluster

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/safety"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/status"
)

func window(schedule string, duration time.Duration, zone string) v1alpha1.MaintenanceWindow {
	return v1alpha1.MaintenanceWindow{Schedule: schedule, Duration: metav1.Duration{Duration: duration}, TimeZone: zone}
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
		windows  []v1alpha1.MaintenanceWindow
		open     bool
		opens    string
	}{
		{"before it", "2026-01-02T01:59:59Z", []v1alpha1.MaintenanceWindow{nightly}, false, "2026-01-02T02:00:00Z"},
		{"at its beginning", "2026-01-02T02:00:00Z", []v1alpha1.MaintenanceWindow{nightly}, true, ""},
		{"in its last second", "2026-01-02T02:59:59Z", []v1alpha1.MaintenanceWindow{nightly}, true, ""},
		{"at its end", "2026-01-02T03:00:00Z", []v1alpha1.MaintenanceWindow{nightly}, false, "2026-01-03T02:00:00Z"},
		{"by the clocks of its zone", "2026-01-03T01:00:00Z", []v1alpha1.MaintenanceWindow{weekly}, true, ""},
		{"in summer", "2026-07-04T00:00:00Z", []v1alpha1.MaintenanceWindow{weekly}, true, ""},
		{"after it, by those clocks", "2026-07-04T04:00:00Z", []v1alpha1.MaintenanceWindow{weekly}, false,
			"2026-07-11T00:00:00Z"},
		{"in the time that clocks leave out", "2026-03-29T01:00:00Z",
			[]v1alpha1.MaintenanceWindow{window("30 2 * * *", time.Hour, "Europe/Berlin")}, true, ""},
		{"the first of those that come twice", "2026-10-25T00:30:00Z",
			[]v1alpha1.MaintenanceWindow{window("30 2 * * *", 10*time.Minute, "Europe/Berlin")}, true, ""},
		{"the second of those that come twice", "2026-10-25T01:30:00Z",
			[]v1alpha1.MaintenanceWindow{window("30 2 * * *", 10*time.Minute, "Europe/Berlin")}, false,
			"2026-10-26T01:30:00Z"},
		{"longer than the time between two", "2026-01-02T23:00:00Z",
			[]v1alpha1.MaintenanceWindow{window("0 2 * * *", 168*time.Hour, "")}, true, ""},
		{"the first of several", "2026-01-02T12:00:00Z", []v1alpha1.MaintenanceWindow{nightly, weekly}, false,
			"2026-01-03T01:00:00Z"},
		{"one of several", "2026-01-03T03:30:00Z", []v1alpha1.MaintenanceWindow{nightly, weekly}, true, ""},
		{"beside one that never opens", "2026-01-02T02:00:00Z",
			[]v1alpha1.MaintenanceWindow{window("0 0 30 2 *", time.Hour, ""), nightly}, true, ""},
		{"one that never opens", "2026-01-02T02:00:00Z",
			[]v1alpha1.MaintenanceWindow{window("0 0 30 2 *", time.Hour, "")}, false, ""},
	} {
		o := serve(3)
		o.Now, o.Zones, o.Cluster.Spec.Maintenance.Windows = at(c.at),
			map[string]*time.Location{"Europe/Berlin": berlin}, c.windows
		w := spec.WindowsNow(&o)
		assert.Equal(t, c.open, w.Open, c.name)
		if c.opens == "" {
			assert.True(t, w.Opens.IsZero(), c.name)
		} else {
			assert.Equal(t, c.opens, w.Opens.Format(time.RFC3339), c.name)
		}
		assert.Equal(t, c.open, safety.InWindow(o), "%s, by the oracle", c.name)
	}
	o := serve(3)
	assert.Nil(t, spec.WindowsNow(&o), "none: nothing waits")
}

func TestWindowsThatNeverOpen(t *testing.T) {
	for says, w := range map[string]v1alpha1.MaintenanceWindow{
		"windows[0].schedule never happens": window("0 0 30 2 *", time.Hour,
			""),
		"windows[0].schedule can't be parsed: expected exactly 5 fields": window("nonsense", time.Hour,
			""),
		"windows[0].schedule can't be parsed: put the time zone in": window("TZ=UTC 0 2 * * *",
			time.Hour, ""),
		`windows[0].timeZone: there is no time zone "Europe/Belin"`: window("0 2 * * *", time.Hour,
			"Europe/Belin"),
		"windows[0].duration: 9m0s is not between 10m and 168h": window("* * * * *",
			9*time.Minute, ""),
		"windows[0].duration: 169h0m0s is not between 10m and 168h": window("* * * * *",
			169*time.Hour, ""),
		"windows[0].duration: 0s is not between 10m and 168h; this window never op": window("* * * * *", 0, ""),
	} {
		o := serve(3)
		o.Cluster.Spec.Maintenance.Windows = []v1alpha1.MaintenanceWindow{w}
		d := Decide(o)
		require.NoError(t, verify(o, d))
		assert.Equal(t, "Converged", d.Reason.Rule, says)
		assert.Contains(t, status.Advice(newView(o)), says)

		o.Cluster.Spec.PriorityClassName = "high"
		is, message := told(t, o)
		assert.Equal(t, "Stalled WaitForWindow", is, says)
		assert.Contains(t, message, "correct spec.maintenance.windows (spec.maintenance.windows[0].")
		assert.Zero(t, Decide(o).ResyncAfter, says)
	}
}

// everyone changes what each member of an observation answers.
func everyone(o *observation.Observation, change func(h *observation.Health)) {
	for name, h := range o.Health {
		change(&h)
		o.Health[name] = h
	}
}

// moreQuota lets another quota be wanted.
func moreQuota(o *observation.Observation) {
	o.Cluster.Spec.Options.QuotaBackendBytes = new(int64(100 << 20))
}

func TestWhatWaitsForAWindow(t *testing.T) {
	on := func(o observation.Observation, changes ...func(o *observation.Observation)) observation.Observation {
		for _, change := range changes {
			change(&o)
		}
		return o
	}
	high := func(o *observation.Observation) { o.Cluster.Spec.PriorityClassName = "high" }
	version := func(v string) func(*observation.Observation) {
		return func(o *observation.Observation) { settled(o); o.Cluster.Spec.Version = v }
	}
	for name, c := range map[string]struct {
		o          observation.Observation
		rule, says string
	}{
		"another template": {on(serve(3), high), "RollingUpdate",
			"to restart demo-0, demo-1, demo-2: the template of its pod has changed"},
		"one voter":  {on(serve(1), high), "Grow", "to replace demo-0: the template of its pod has changed"},
		"two voters": {on(serve(2), high), "Grow", "to replace demo-0, demo-1: the template"},
		"another quota": {on(serve(3), moreQuota), "RollingUpdate",
			"to restart demo-0, demo-1, demo-2: it runs with a quota of"},
		"the next version":   {on(serve(3), version("3.7.3")), "Upgrade", "to upgrade etcd from 3.6.16 to 3.7.3"},
		"the version before": {on(serve(3), version("3.5.35")), "Upgrade", "to upgrade etcd from 3.6.16 to 3.5.35"},
		"a version and a flag": {on(serve(3), high, version("3.7.3")), "RollingUpdate",
			"has changed; to upgrade etcd from 3.6.16 to 3.7.3"},
		"other volumes": {on(onVolumes(), func(o *observation.Observation) {
			o.Cluster.Spec.Storage.StorageClassName, o.Cluster.Spec.Storage.Migration = new("fast"),
				v1alpha1.MigrateReplace
		}), "Grow", "to replace demo-0, demo-1, demo-2: its volume should be of the class fast"},
		"a scheduled defragmentation": {on(scheduled("0 3 * * *"), func(o *observation.Observation) {
			o.Cluster.Status.Defragmentation = &v1alpha1.DefragmentationStatus{NextScheduleTime: metav1.NewTime(time.Date(2026, 1,
				2, 3, 0, 0, 0, time.UTC))}
		}), "Defragment", "to defragment, on schedule"},
		"TLS": {on(plainText(3), func(o *observation.Observation) {
			o.Cluster.Spec.TLS.Mode, o.Cluster.Spec.TLS.AllowPlaintextClients = v1alpha1.TLSAuto, true
			withCertificates(o)
		}), "RollingUpdate", "to restart demo-0, demo-1, demo-2: it has no certificates yet"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Cluster.Spec.Maintenance.Windows = []v1alpha1.MaintenanceWindow{closedWindow, openWindow}
			inside := Decide(c.o)
			require.NoError(t, verify(c.o, inside))
			assert.Equal(t, c.rule, inside.Reason.Rule, inside.Reason.Message)

			c.o.Cluster.Spec.Maintenance.Windows = []v1alpha1.MaintenanceWindow{closedWindow}
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
			assert.Equal(t, "Ready WaitForWindow", is)

			observe(&c.o, d)
			c.o.Now = now.Add(time.Hour)
			assert.Equal(t, d.Status, Decide(c.o).Status, "S16: nothing is written while it waits")
		})
	}
}

func TestWhatWaitsForNoWindow(t *testing.T) {
	high := func(o *observation.Observation) { o.Cluster.Spec.PriorityClassName = "high" }
	for name, c := range map[string]struct {
		of   observation.Observation
		do   func(o *observation.Observation)
		rule string
	}{
		"a claim that is being deleted": {serve(3),
			func(o *observation.Observation) {
				o.Children.Claims["demo-1"].DeletionTimestamp = &metav1.Time{Time: now}
			}, "Grow"},
		"scaling": {serve(3), func(o *observation.Observation) { o.Cluster.Spec.Replicas = new(int32(5)) },
			"Grow"},
		"scaling down": {serve(5),
			func(o *observation.Observation) { high(o); o.Cluster.Spec.Replicas = new(int32(3)) }, "Shrink"},
		"a pod that is down": {serve(3), func(o *observation.Observation) {
			high(o)
			silence(o, "demo-1")
		}, "RecreatePod"},
		"a member whose data is lost": {serve(3), func(o *observation.Observation) { high(o); lose(o, "demo-1") },
			"Replace"},
		"a member that is fenced": {serve(3), func(o *observation.Observation) {
			askFence(o, "demo-1")
		}, "Fence"},
		"a defragmentation that a person asks for": {serve(3), func(o *observation.Observation) {
			high(o)
			askDefragment(o, "now")
		}, "Defragment"},
		"one beside a version that waits": {serve(3), func(o *observation.Observation) {
			settled(o)
			o.Cluster.Spec.Version = "3.7.3"
			askDefragment(o, "now")
		}, "Defragment"},
		"authorities that members do not trust": {serve(3), func(o *observation.Observation) {
			everyone(o, func(h *observation.Health) { h.Trusts = []string{"another"} })
		}, "RollingUpdate"},
		"a larger quota while etcd takes no more keys": {serve(3), func(o *observation.Observation) {
			moreQuota(o)
			o.Etcd.Alarms = []observation.Alarm{{MemberID: 2, Kind: observation.AlarmNoSpace}}
		}, "RollingUpdate"},
		"a downgrade that is open": {serve(3), func(o *observation.Observation) {
			settled(o)
			o.Cluster.Spec.Version = "3.5.35"
			everyone(o, func(h *observation.Health) { h.Downgrade, h.StorageVersion = "3.5.0", "3.5.0" })
		}, "Upgrade"},
		"members in a downgrade that is open": {serve(3), func(o *observation.Observation) {
			settled(o)
			o.Cluster.Spec.Version = "3.5.35"
			o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationVersion] = "3.5.35"
			everyone(o, func(h *observation.Health) { h.Downgrade, h.StorageVersion = "3.5.0", "3.5.0" })
		}, "RollingUpdate"},
		"a member that is listed with a URL at which it does not listen": {serve(3), func(o *observation.Observation) {
			o.Etcd.Members[1].PeerURLs[0] = "http" + o.Etcd.Members[1].PeerURLs[0][len("https"):]
		}, "RollingUpdate"},
		"a member that is chosen": {choosing("demo-1 uid-pod-1"), high, "RollingUpdate"},
		"a successor that has joined": {serve(1), func(o *observation.Observation) {
			high(o)
			addMember(o, 1, true)
			o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationNextMember] = "2"
		}, "Promote"},
		"a successor that votes": {serve(2), func(o *observation.Observation) {
			high(o)
			o.Cluster.Spec.Replicas = new(int32(1))
			delete(o.Children.Pods, "demo-1")
			addPod(o, 1, objects.StartResume)
		}, "Replace"},
	} {
		t.Run(name, func(t *testing.T) {
			c.do(&c.of)
			c.of.Cluster.Spec.Maintenance.Windows = []v1alpha1.MaintenanceWindow{closedWindow}
			d := Decide(c.of)
			require.NoError(t, verify(c.of, d), d.Reason.Message)
			assert.Equal(t, c.rule, d.Reason.Rule, d.Reason.Message)
		})
	}
}

// TestUpdatePeerURLsWaitsForAWindow: members that have certificates, and are listed with http.
func TestUpdatePeerURLsWaitsForAWindow(t *testing.T) {
	o := plainText(3)
	o.Cluster.Spec.TLS.Mode, o.Cluster.Spec.TLS.AllowPlaintextClients = v1alpha1.TLSAuto, true
	withCertificates(&o)
	for i := range 60 {
		breathe(&o, i)
		d := Decide(o)
		if _, readdresses := d.Step.(decision.UpdatePeerURL); readdresses {
			o.Cluster.Spec.Maintenance.Windows = []v1alpha1.MaintenanceWindow{window("0 0 1 7 *", time.Hour, "")}
			require.ErrorContains(t, verify(o, d), "maintenance")
			d = Decide(o)
			require.NoError(t, verify(o, d))
			assert.Nil(t, d.Step)
			assert.Contains(t, d.Reason.Message, "to change peer URLs to https")
			return
		}
		if d.Step != nil {
			happen(&o, d.Step)
			o.Taken = &decision.Outcome{Step: d.Step, Rule: d.Reason.Rule}
			d = Decide(o)
			o.Taken = nil
		}
		observe(&o, d)
	}
	t.Error("no member was listed with another URL")
}
