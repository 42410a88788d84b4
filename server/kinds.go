package server

import (
	"context"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/mirror"
	"github.com/quorate-dev/quorate/hooks/operation"
	"github.com/quorate-dev/quorate/hooks/schedule"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/server/metrics"
	"github.com/quorate-dev/quorate/server/wire"
)

// kinds are the parents that are asked about: where calls about them come to, and how one is read.
var kinds = []struct {
	kind string // as the API names it
	path string // what stands before the name of a hook
	read func(ctx context.Context, s *Server, body io.Reader) (*call, error)
}{
	{v1beta1.Kind, "", clusterCall},
	{v1beta1.KindSnapshot, "snapshots/", snapshots.call},
	{v1beta1.KindSchedule, "schedules/", schedules.call},
	{v1beta1.KindOperation, "operations/", operations.call},
	{v1beta1.KindMirror, "mirrors/", mirrors.call},
}

// A kind is what differs between the parents that are no EtcdClusters. O is what is observed of one, and D what is
// decided about it.
type kind[O, D any] struct {
	name string // as the API names it
	word string // as the metrics call it and, in small letters, the log
	// foreground: with --cascade=foreground the hook sync is sent while Kubernetes deletes the children, and then
	// finalize.
	foreground bool
	read       func(body io.Reader) (*wire.Call[O], error)
	parent     func(o *O) metav1.Object
	decide     func(s *Server, o *O, finalizing bool, now time.Time) *verdict[D]
	// asItIs is the decision that leaves everything as it is.
	asItIs func(o *O) *D
	answer func(s *Server, o *O, d *D, finalized *bool) ([]byte, error)
	// letGo is the answer to that; nil for the same.
	letGo func(s *Server, o *O, d *D, finalized *bool) ([]byte, error)
}

// verdict is what is told of a decision.
type verdict[D any] struct {
	decision D
	because  decision.Reason
	quiet    bool         // nothing has happened
	goes     bool         // one that is being deleted may go
	verify   func() error // nil for what has no rules of safety
	note     func(m *metrics.Metrics)
}

// call reads a call about a parent of this kind.
func (k *kind[O, D]) call(_ context.Context, s *Server, body io.Reader) (*call, error) {
	r, err := k.read(body)
	if err != nil {
		return nil, err
	}
	o := &r.Observation
	parent := k.parent(o)
	deleted := parent.GetDeletionTimestamp() != nil
	early := r.Finalizing && !deleted
	late := deleted && !r.Finalizing
	return &call{
		kind: k.name, parent: parent, finalizing: r.Finalizing,
		untimely: early || late && !k.foreground,
		decide:   func(_ context.Context, began time.Time) (*decided, error) { return k.decided(s, r, began) },
		letGo: func(time.Time) *decided {
			answer := k.answer
			if k.letGo != nil {
				answer = k.letGo
			}
			return &decided{gone: true, encode: func() ([]byte, error) { return answer(s, o, k.asItIs(o), new(true)) }}
		},
	}, nil
}

func (k *kind[O, D]) decided(s *Server, r *wire.Call[O], began time.Time) (*decided, error) {
	o := &r.Observation
	v := k.decide(s, o, r.Finalizing, began)
	if s.options.Verify && v.verify != nil {
		if err := v.verify(); err != nil {
			s.metrics.Violated()
			return nil, err
		}
	}
	var finalized *bool
	if r.Finalizing {
		finalized = &v.goes
	}
	return &decided{
		encode: func() ([]byte, error) { return k.answer(s, o, &v.decision, finalized) },
		gone:   r.Finalizing && v.goes,
		log: &answered{
			hook: "sync", kind: strings.ToLower(k.word), parent: k.parent(o), because: v.because, quiet: v.quiet,
			began: began,
		},
		tell: func() {
			s.metrics.Decided(k.word + v.because.Rule)
			if v.note != nil {
				v.note(s.metrics)
			}
		},
	}, nil
}

var snapshots = kind[snapshot.Observation, snapshot.Decision]{
	name: v1beta1.KindSnapshot, word: "Snapshot", foreground: true,
	read:   wire.ReadSnapshot,
	parent: func(o *snapshot.Observation) metav1.Object { return o.Snapshot },
	decide: func(s *Server, o *snapshot.Observation, _ bool, now time.Time) *verdict[snapshot.Decision] {
		o.Now = now
		o.Images = s.options.Settings.Images
		o.AllowedEndpoints = s.options.Settings.AllowedEndpoints
		d := snapshot.Decide(*o)
		return &verdict[snapshot.Decision]{
			decision: d, because: d.Reason, goes: d.Finalized,
			quiet:  d.Status.Phase == o.Snapshot.Status.Phase && !d.Finalized,
			verify: func() error { return snapshot.Verify(*o, d) },
			note:   func(m *metrics.Metrics) { m.Snapshot(o.Snapshot, &d) },
		}
	},
	answer: func(_ *Server, o *snapshot.Observation, d *snapshot.Decision, finalized *bool) ([]byte, error) {
		return wire.AnswerSnapshot(o, d, finalized)
	},
	asItIs: func(o *snapshot.Observation) *snapshot.Decision {
		return &snapshot.Decision{Jobs: byName(o.Jobs), Status: o.Snapshot.Status}
	},
}

var schedules = kind[schedule.Observation, schedule.Decision]{
	name: v1beta1.KindSchedule, word: "Schedule",
	read:   wire.ReadSchedule,
	parent: func(o *schedule.Observation) metav1.Object { return o.Schedule },
	decide: func(s *Server, o *schedule.Observation, finalizing bool, now time.Time) *verdict[schedule.Decision] {
		o.Now = now
		o.Zone = wire.Zone(o.Schedule.Spec.TimeZone)
		o.Images = s.options.Settings.Images
		o.AllowedEndpoints = s.options.Settings.AllowedEndpoints
		o.Keyed = s.options.Settings.Keyed
		v := &verdict[schedule.Decision]{}
		if finalizing {
			v.decision.Status = o.Schedule.Status
			v.decision.Reason = decision.Reason{Rule: "Finalize", Message: "the schedule is being deleted"}
			v.decision.Snapshots, v.goes, v.decision.ResyncAfter = schedule.Finalize(*o)
		} else {
			v.decision = schedule.Decide(*o)
		}
		v.because = v.decision.Reason
		v.quiet = v.because.Message == o.Schedule.Status.Message
		v.verify = func() error { return snapshot.VerifyPods(o.Images, o.Pods, v.decision.Pods) }
		v.note = func(m *metrics.Metrics) { m.Schedule(o.Schedule, &v.decision) }
		return v
	},
	// The labels that say who looks after its snapshots are the schedule's.
	answer: func(s *Server, o *schedule.Observation, d *schedule.Decision, finalized *bool) ([]byte, error) {
		labels := func(*v1beta1.EtcdSnapshot) map[string]string { return s.options.Scope.handedDown(o.Schedule) }
		return wire.AnswerSchedule(o, d, labels, s.options.RecordKeys.get(), finalized)
	},
	asItIs: func(o *schedule.Observation) *schedule.Decision {
		return &schedule.Decision{Snapshots: byName(o.Snapshots), Pods: byName(o.Pods), Secrets: byName(o.Secrets),
			Status: o.Schedule.Status}
	},
	// Its snapshots keep the labels that they have: the Quorate that takes over gives them its own.
	letGo: func(s *Server, o *schedule.Observation, d *schedule.Decision, finalized *bool) ([]byte, error) {
		labels := func(o *v1beta1.EtcdSnapshot) map[string]string { return s.options.Scope.handedDown(o) }
		return wire.AnswerSchedule(o, d, labels, nil, finalized)
	},
}

var operations = kind[operation.Observation, operation.Decision]{
	name: v1beta1.KindOperation, word: "Operation",
	read:   wire.ReadOperation,
	parent: func(o *operation.Observation) metav1.Object { return o.Operation },
	decide: func(_ *Server, o *operation.Observation, _ bool, now time.Time) *verdict[operation.Decision] {
		o.Now = now
		d := operation.Decide(*o)
		return &verdict[operation.Decision]{
			decision: d, because: d.Reason, goes: d.Finalized, quiet: d.Status.Phase == o.Operation.Status.Phase,
		}
	},
	answer: func(_ *Server, o *operation.Observation, d *operation.Decision, finalized *bool) ([]byte, error) {
		return wire.AnswerOperation(o, d, finalized)
	},
	asItIs: func(o *operation.Observation) *operation.Decision {
		return &operation.Decision{Status: o.Operation.Status}
	},
}

var mirrors = kind[mirror.Observation, mirror.Decision]{
	name: v1beta1.KindMirror, word: "Mirror", foreground: true,
	read:   wire.ReadMirror,
	parent: func(o *mirror.Observation) metav1.Object { return o.Mirror },
	decide: func(s *Server, o *mirror.Observation, _ bool, now time.Time) *verdict[mirror.Decision] {
		o.Now = now
		o.Images = s.options.Settings.Images
		o.AllowedEndpoints = s.options.Settings.AllowedEndpoints
		d := mirror.Decide(*o)
		return &verdict[mirror.Decision]{
			decision: d, because: d.Reason, quiet: d.Reason.Message == o.Mirror.Status.Message,
			goes:   true, // its pods go with it, and what they have written stays
			verify: func() error { return snapshot.VerifyPods(o.Images, o.Pods, d.Pods) },
			note:   func(m *metrics.Metrics) { m.Mirror(o.Mirror, &d.Status) },
		}
	},
	answer: func(_ *Server, o *mirror.Observation, d *mirror.Decision, finalized *bool) ([]byte, error) {
		return wire.AnswerMirror(o, d, finalized)
	},
	asItIs: func(o *mirror.Observation) *mirror.Decision {
		return &mirror.Decision{Pods: byName(o.Pods), Status: o.Mirror.Status}
	},
}
