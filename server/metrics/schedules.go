package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/schedule"
)

// scheduleTimes are the times of schedules as metrics, with their names among the labels: an alert on the age of a
// backup must say where it is. A schedule that was not asked about for 15 minutes is dropped.
type scheduleTimes struct {
	mu        sync.Mutex
	schedules map[types.UID]scheduleTime
	now       func() time.Time
}

type scheduleTime struct {
	labels [3]string // namespace, name, cluster
	status v1alpha1.EtcdSnapshotScheduleStatus
	due    metav1.Time
	made   metav1.Time
	seen   time.Time
}

// scheduleMetrics are told when their time is not zero.
var scheduleMetrics = []struct {
	desc *prometheus.Desc
	of   func(s *scheduleTime) metav1.Time
}{
	{scheduleMetric("quorate_schedule_verified_timestamp_seconds",
		"Until when everything that was written is in the newest snapshot of a schedule that was restored on trial, "+
			"in seconds since 1970."),
		func(s *scheduleTime) metav1.Time { return referred(s.status.LastVerified) }},
	{scheduleMetric("quorate_schedule_success_timestamp_seconds",
		"Until when everything that was written is in the newest snapshot of a schedule, in seconds since 1970."),
		func(s *scheduleTime) metav1.Time { return referred(s.status.LastSuccess) }},
	{scheduleMetric("quorate_schedule_failure_timestamp_seconds",
		"When the newest failed snapshot of a schedule was taken, if none has succeeded since, in seconds since 1970."),
		func(s *scheduleTime) metav1.Time { return referred(s.status.LastFailure) }},
	{scheduleMetric("quorate_schedule_due_timestamp_seconds",
		"When a schedule should have a newer snapshot at the latest, in seconds since 1970: the second run after the "+
			"newest, verified if its template asks for it."),
		func(s *scheduleTime) metav1.Time { return s.due }},
	{scheduleMetric("quorate_schedule_next_timestamp_seconds",
		"When a schedule next takes a snapshot, in seconds since 1970."),
		func(s *scheduleTime) metav1.Time { return s.status.NextScheduleTime }},
	{scheduleMetric("quorate_schedule_created_timestamp_seconds",
		"When a schedule was created, in seconds since 1970."),
		func(s *scheduleTime) metav1.Time { return s.made }},
}

// streaming is told of schedules with spec.stream alone.
var streaming = scheduleMetric("quorate_schedule_streaming",
	"1 while the stream of a schedule stores what changes between its snapshots, else 0.")

func scheduleMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"namespace", "schedule", "cluster"}, nil)
}

func referred(r *v1alpha1.SnapshotReference) metav1.Time {
	if r == nil {
		return metav1.Time{}
	}
	return r.Time
}

// Schedule notes what was decided about a schedule.
func (m *Metrics) Schedule(s *v1alpha1.EtcdSnapshotSchedule, d *schedule.Decision) {
	m.schedules.note(s, d)
}

// ForgetSchedule drops a schedule that is gone.
func (m *Metrics) ForgetSchedule(schedule types.UID) { m.schedules.forget(schedule) }

func (t *scheduleTimes) note(s *v1alpha1.EtcdSnapshotSchedule, d *schedule.Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.schedules == nil {
		t.schedules = map[types.UID]scheduleTime{}
	}
	t.schedules[s.UID] = scheduleTime{
		labels: [3]string{s.Namespace, s.Name, s.Spec.Template.Spec.SourceName()}, status: d.Status,
		due:  metav1.NewTime(d.Due),
		made: s.CreationTimestamp, seen: t.now(),
	}
}

func (t *scheduleTimes) forget(schedule types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.schedules, schedule)
}

// Describe implements prometheus.Collector.
func (t *scheduleTimes) Describe(to chan<- *prometheus.Desc) {
	for _, m := range scheduleMetrics {
		to <- m.desc
	}
	to <- streaming
}

// Collect implements prometheus.Collector.
func (t *scheduleTimes) Collect(to chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := map[[3]string]bool{} // a schedule and its successor of the same name may both be known for a while
	for uid, s := range t.schedules {
		if t.now().Sub(s.seen) > forgetAfter {
			delete(t.schedules, uid)
			continue
		}
		if told[s.labels] {
			continue
		}
		told[s.labels] = true
		if c := meta.FindStatusCondition(s.status.Conditions, v1alpha1.Streaming); c != nil {
			is := map[metav1.ConditionStatus]float64{metav1.ConditionTrue: 1}[c.Status]
			to <- prometheus.MustNewConstMetric(streaming, prometheus.GaugeValue, is, s.labels[:]...)
		}
		for _, m := range scheduleMetrics {
			if at := m.of(&s); !at.IsZero() {
				to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(at.Unix()), s.labels[:]...)
			}
		}
	}
}
