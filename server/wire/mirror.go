package wire

import (
	"io"

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
	in, err := newSource(body)
	if err != nil {
		return nil, err
	}
	r := &MirrorCall{}
	f := &form{
		parent:   parentTo(v1alpha1.KindMirror, &r.Mirror),
		children: []group{groupTo("v1", "Pod", &r.Pods)},
		related:  []group{groupTo(v1alpha1.GroupVersion.String(), v1alpha1.Kind, &r.Clusters)},
	}
	if r.Finalizing, err = f.read(in); err != nil {
		return nil, err
	}
	if err := f.within(r.Mirror.Namespace); err != nil {
		return nil, err
	}
	return r, nil
}

// Answer is the body of the answer; finalized is nil unless the hook finalize is answered.
func (r *MirrorCall) Answer(d mirror.Decision, finalized *bool) ([]byte, error) {
	ns := r.Mirror.Namespace
	return encode(ns, &d.Status, specs(ns, "v1", "Pod", d.Pods, r.Pods), d.ResyncAfter, finalized)
}
