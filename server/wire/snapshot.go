package wire

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// A SnapshotCall is a call about an EtcdSnapshot. Now and Settings are for the caller to say.
type SnapshotCall struct {
	snapshot.Observation

	Finalizing bool
}

// ReadSnapshot reads a call about an EtcdSnapshot. The error is a *Refusal, unless reading the body failed.
func ReadSnapshot(body io.Reader) (*SnapshotCall, error) {
	r := &SnapshotCall{}
	f := &form{
		parent:   parentTo(v1alpha1.KindSnapshot, &r.Snapshot),
		children: []group{groupTo("batch/v1", "Job", &r.Jobs)},
		related: []group{
			groupTo(v1alpha1.GroupVersion.String(), v1alpha1.Kind, &r.Clusters),
			groupTo("v1", "Pod", &r.Pods),
		},
	}
	var err error
	r.Finalizing, err = f.readAll(body, func() metav1.Object { return r.Snapshot })
	return r, err
}

// Answer is the body of the answer; finalized is nil unless the hook finalize is answered.
func (r *SnapshotCall) Answer(d snapshot.Decision, finalized *bool) ([]byte, error) {
	ns := r.Snapshot.Namespace
	jobs := specs(ns, "batch/v1", "Job", d.Jobs, r.Jobs)
	return encode(ns, &d.Status, jobs, d.ResyncAfter, finalized)
}
