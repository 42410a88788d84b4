// Package metacontroller is the order in which Metacontroller applies the answer of a hook, and where that may be cut
// off. All who stand in for it have it from here; they differ in what they apply:
//
//   - the world of the stories (test/simulated/world), which `make try` uses too, has whole objects. It merges each with
//     what is stored and what was applied before (merge.go), or has the API server do that;
//   - the model (test/simulated/model) has a few numbers for each object, and writes no notes: an answer says in bits
//     what an update changes;
//   - the bench (test/real/bench/scale) applies no children, as all its clusters are at rest: it writes statuses, and
//     counts every other write.
package metacontroller

import (
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Cut is where a call is cut off; the zero value is nowhere. K is what objects are known by.
type Cut[K comparable] struct {
	At Point
	// Writes is after how many creations and updates, for AfterWrites.
	Writes int
	// Object is the one before which the call is cut off, for BeforeObject.
	Object K
	// Backwards: the children are gone through in the opposite order. (Metacontroller's is that of a Go map.)
	Backwards bool
}

// Point in a call.
type Point string

// Points at which a call may be cut off: in the hook, or in Metacontroller while it applies the answer.
const (
	BeforeStep   Point = "before-step"
	AfterStep    Point = "step"
	AfterDeletes Point = "deletes"
	AfterWrites  Point = "writes"
	BeforeStatus Point = "before-status"
	// BeforeObject is before one child is deleted, created or updated.
	BeforeObject Point = "before"
)

// Answered reports whether Metacontroller gets the answer.
func (c Cut[K]) Answered() bool { return c.At != BeforeStep && c.At != AfterStep }

// Apply does with an answer what Metacontroller does: it deletes by UID what the answer omits, creates and updates the
// rest, and writes the status. Errors of single objects stop nothing.
func (c Cut[K]) Apply(deleteOmitted, write func() (whole bool), writeStatus func()) {
	if !deleteOmitted() || c.At == AfterDeletes {
		return
	}
	if write() && c.At != BeforeStatus {
		writeStatus()
	}
}

// Delete goes through the objects that an answer omits, until the cut; false when that came before the end.
func (c Cut[K]) Delete(objects []K, do func(K)) (whole bool) {
	for _, o := range c.order(objects) {
		if c.before(o) {
			return false
		}
		do(o)
	}
	return true
}

// Write goes through the objects that an answer has, until the cut; false when that came before the end. What is done
// with one says whether that was a write.
func (c Cut[K]) Write(objects []K, do func(K) bool) (whole bool) {
	writes := 0
	for _, o := range c.order(objects) {
		if c.At == AfterWrites && writes >= c.Writes || c.before(o) {
			return false
		}
		if do(o) {
			writes++
		}
	}
	return true
}

func (c Cut[K]) before(o K) bool { return c.At == BeforeObject && c.Object == o }

func (c Cut[K]) order(objects []K) []K {
	if c.Backwards {
		objects = slices.Clone(objects)
		slices.Reverse(objects)
	}
	return objects
}

// Observed is a status as Metacontroller writes it, of the parent that the hook was shown.
func Observed(status v1beta1.EtcdClusterStatus, shown int64) v1beta1.EtcdClusterStatus {
	status.ObservedGeneration = shown
	return status
}
