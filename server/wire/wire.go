// Package wire is the format of Metacontroller's calls to the hooks of CompositeControllers (version v1), and of the
// answers to them. It turns calls into observations and decisions into answers, and decides nothing.
//
// Nothing is taken for absent that could be there: Metacontroller deletes the children that an answer omits. So a call
// is read whole, or it is refused (rule S13 in hooks/doc.go).
//
// JSON takes most of a call's time. github.com/go-json-experiment/json, which is becoming encoding/json/v2, reads a
// body in one pass in half the time of encoding/json, and refuses names that are there twice. Answers are written with
// the bytes of encoding/json: v2's own omitempty keeps a false or a zero, and Metacontroller would write it.
package wire

import (
	"fmt"
	"net/http"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// The groups of objects in calls that are read by functions of their own, "Kind.version" or "Kind.group/version".
const (
	groupSecrets    = "Secret.v1"
	groupSnapshots  = "EtcdSnapshot.etcd.quorate.dev/v1beta1"
	groupOperations = "EtcdOperation.etcd.quorate.dev/v1beta1"
)

// lastApplied is the annotation in which Metacontroller notes, on each child, the answer that it applied last.
const lastApplied = objects.AnnotationLastApplied

// A Refusal is why a call is not answered: one sentence for its sender, which names the field and holds nothing of what
// is in it.
type Refusal struct {
	// Code is the HTTP status.
	Code     int
	Sentence string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Sentence }

// Refuse is a refusal with this HTTP status.
func Refuse(code int, format string, args ...any) *Refusal {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}

// Bad is the refusal of a call that is not as it must be (400).
func Bad(format string, args ...any) error { return Refuse(http.StatusBadRequest, format, args...) }
