package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/schedule"
)

// scheduleTold are the times of a schedule: an alert on the age of a backup must say where it is.
type scheduleTold struct {
	cluster   string
	status    v1beta1.EtcdSnapshotScheduleStatus
	due, made metav1.Time
}

// scheduleMetrics are told when their time is not zero.
var scheduleMetrics = []struct {
	desc *prometheus.Desc
	of   func(s *scheduleTold) metav1.Time
}{
	{scheduleMetric("quorate_schedule_verified_timestamp_seconds",
		"Until when everything that was written is in the newest snapshot of a schedule that was restored on trial, "+
			"in seconds since 1970."),
		func(s *scheduleTold) metav1.Time { return referred(s.status.LastVerified) }},
	{scheduleMetric("quorate_schedule_success_timestamp_seconds",
		"Until when everything that was written is in the newest snapshot of a schedule, in seconds since 1970."),
		func(s *scheduleTold) metav1.Time { return referred(s.status.LastSuccess) }},
	{scheduleMetric("quorate_schedule_failure_timestamp_seconds",
		"When the newest failed snapshot of a schedule was taken, if none has succeeded since, in seconds since 1970."),
		func(s *scheduleTold) metav1.Time { return referred(s.status.LastFailure) }},
	{scheduleMetric("quorate_schedule_due_timestamp_seconds",
		"When a schedule should have a newer snapshot at the latest, in seconds since 1970: the second run after the "+
			"newest, verified if its template asks for it."),
		func(s *scheduleTold) metav1.Time { return s.due }},
	{scheduleMetric("quorate_schedule_next_timestamp_seconds",
		"When a schedule next takes a snapshot, in seconds since 1970."),
		func(s *scheduleTold) metav1.Time { return s.status.NextScheduleTime }},
	{scheduleMetric("quorate_schedule_created_timestamp_seconds",
		"When a schedule was created, in seconds since 1970."),
		func(s *scheduleTold) metav1.Time { return s.made }},
}

// streaming is told of schedules with spec.stream alone.
var streaming = scheduleMetric("quorate_schedule_streaming",
	"1 while the stream of a schedule stores what changes between its snapshots, else 0.")

func scheduleMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"namespace", "schedule", "cluster"}, nil)
}

func referred(r *v1beta1.SnapshotReference) metav1.Time {
	if r == nil {
		return metav1.Time{}
	}
	return r.Time
}

func scheduleGauges() *gauges[scheduleTold] {
	g := &gauges[scheduleTold]{now: time.Now, descs: []*prometheus.Desc{streaming}, tell: tellOfSchedules}
	for _, m := range scheduleMetrics {
		g.descs = append(g.descs, m.desc)
	}
	return g
}

// Schedule notes what was decided about a schedule.
func (m *Metrics) Schedule(s *v1beta1.EtcdSnapshotSchedule, d *schedule.Decision) {
	m.schedules.note(s, scheduleTold{cluster: s.Spec.Template.Spec.SourceName(), status: d.Status,
		due: metav1.NewTime(d.Due), made: s.CreationTimestamp})
}

func tellOfSchedules(_ *gauges[scheduleTold], all []*seen[scheduleTold], to chan<- prometheus.Metric) {
	for _, s := range all {
		if c := meta.FindStatusCondition(s.told.status.Conditions, v1beta1.Streaming); c != nil {
			gauge(to, streaming, one(c.Status == metav1.ConditionTrue), s.namespace, s.name, s.told.cluster)
		}
		for _, m := range scheduleMetrics {
			if at := m.of(&s.told); !at.IsZero() {
				gauge(to, m.desc, float64(at.Unix()), s.namespace, s.name, s.told.cluster)
			}
		}
	}
}
