package wire

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	r := &OperationCall{}
	f := &form{
		parent:  parentTo(v1alpha1.KindOperation, &r.Operation),
		related: []group{groupTo(v1alpha1.GroupVersion.String(), v1alpha1.Kind, &r.Clusters)},
	}
	var err error
	r.Finalizing, err = f.readAll(body, func() metav1.Object { return r.Operation })
	return r, err
}

// Answer is the body of the answer; finalized is nil unless the hook finalize is answered.
func (r *OperationCall) Answer(status *v1alpha1.EtcdOperationStatus, finalized *bool) ([]byte, error) {
	return encode(r.Operation.Namespace, status, nil, 0, finalized)
}
