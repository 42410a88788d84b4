package wire

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/mirror"
)

// A MirrorCall is a call about an EtcdMirror. What the clock and the installation say is for the caller to add.
type MirrorCall struct {
	mirror.Observation

	Finalizing bool
}

// ReadMirror reads a call about an EtcdMirror. The error is a *Refusal, unless reading the body failed.
func ReadMirror(body io.Reader) (*MirrorCall, error) {
	r := &MirrorCall{}
	f := &form{
		parent:   parentTo(v1alpha1.KindMirror, &r.Mirror),
		children: []group{groupTo("v1", "Pod", &r.Pods)},
		related:  []group{groupTo(v1alpha1.GroupVersion.String(), v1alpha1.Kind, &r.Clusters)},
	}
	var err error
	r.Finalizing, err = f.readAll(body, func() metav1.Object { return r.Mirror })
	return r, err
}

// Answer is the body of the answer; finalized is nil unless the hook finalize is answered.
func (r *MirrorCall) Answer(d mirror.Decision, finalized *bool) ([]byte, error) {
	ns := r.Mirror.Namespace
	return encode(ns, &d.Status, specs(ns, "v1", "Pod", d.Pods, r.Pods), d.ResyncAfter, finalized)
}
