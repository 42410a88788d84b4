package wire

import (
	"io"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/operation"
)

// An OperationCall is a call about an EtcdOperation. Now is for the caller to say.
type OperationCall struct {
	operation.Observation

	Finalizing bool
}

// ReadOperation reads a call about an EtcdOperation. The error is a *Refusal, unless reading the body failed.
func ReadOperation(body io.Reader) (*OperationCall, error) {
	in, err := newSource(body)
	if err != nil {
		return nil, err
	}
	r := &OperationCall{}
	f := &form{
		parent:  parentTo(v1alpha1.KindOperation, &r.Operation),
		related: []group{groupTo(v1alpha1.GroupVersion.String(), v1alpha1.Kind, &r.Clusters)},
	}
	if r.Finalizing, err = f.read(in); err != nil {
		return nil, err
	}
	if err := f.within(r.Operation.Namespace); err != nil {
		return nil, err
	}
	return r, nil
}

// Answer is the body of the answer; finalized is nil unless the hook finalize is answered.
func (r *OperationCall) Answer(status *v1alpha1.EtcdOperationStatus, finalized *bool) ([]byte, error) {
	return encode(r.Operation.Namespace, status, nil, 0, finalized)
}
