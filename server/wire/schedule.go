package wire

import (
	"io"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/schedule"
)

// A ScheduleCall is a call about an EtcdSnapshotSchedule. What the clock and the installation say is for the
// caller to add.
type ScheduleCall struct {
	schedule.Observation

	Finalizing bool
}

// ReadSchedule reads a call about an EtcdSnapshotSchedule. The error is a *Refusal, unless reading the body failed.
func ReadSchedule(body io.Reader) (*ScheduleCall, error) {
	r := &ScheduleCall{}
	f := &form{
		parent: parentTo(v1alpha1.KindSchedule, &r.Schedule),
		children: []group{
			groupTo(v1alpha1.GroupVersion.String(), v1alpha1.KindSnapshot, &r.Snapshots),
			maybe(groupTo("v1", "Pod", &r.Pods)),
		},
		related: []group{maybe(groupTo(v1alpha1.GroupVersion.String(), v1alpha1.Kind, &r.Clusters))},
	}
	var err error
	if r.Finalizing, err = f.readAll(body, func() metav1.Object { return r.Schedule }); err != nil {
		return nil, err
	}
	if r.Schedule.Spec.Stream != nil && r.Pods == nil {
		return nil, Bad("%s is missing: spec.stream needs the CompositeController of this version", child("Pod.v1"))
	}
	return r, nil
}

// Answer is the body of the answer; finalized is nil unless the hook finalize is answered. Labels are what each
// snapshot is labelled with besides what the decision says.
//
// A snapshot that is kept is told what it was told when it was made, with the values that people have given to that
// since: a template that has changed is for new ones alone.
func (r *ScheduleCall) Answer(
	d schedule.Decision, labels func(*v1alpha1.EtcdSnapshot) map[string]string, finalized *bool,
) ([]byte, error) {
	ns := r.Schedule.Namespace
	var list []answerChild
	for _, snapshot := range d.Snapshots {
		var observed metav1.Object
		if old := r.Snapshots[snapshot.Name]; old != nil {
			observed = old
		}
		spec := specTold(snapshot.DeepCopy(), observed)
		m := schedule.Told(snapshot)
		all := labels(snapshot)
		maps.Copy(all, m.Labels)
		m.Labels = all
		list = append(list, outgoing(ns, v1alpha1.GroupVersion.String(), v1alpha1.KindSnapshot, m,
			answerChild{Metadata: answerMeta{OwnerReferences: m.OwnerReferences}, Spec: spec}, observed))
	}
	list = append(list, specs(ns, "v1", "Pod", d.Pods, r.Pods)...)
	return encode(ns, &d.Status, list, d.ResyncAfter, finalized)
}
