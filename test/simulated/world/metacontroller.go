package world

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/test/simulated/metacontroller"
)

// childKinds in the order in which Metacontroller is told of them. (Its own order is that of a Go map: any.)
var childKinds = []Kind{PodKind, ClaimKind, ConfigMapKind, ServiceKind, BudgetKind, PolicyKind, SecretKind}

const finalizer = "metacontroller.io/compositecontroller-quorate-etcdcluster"

// Crash is where a call is cut off, and Point in which part of it.
type (
	Crash = metacontroller.Cut[Key]
	Point = metacontroller.Point
)

// The points in a call.
const (
	BeforeStep   = metacontroller.BeforeStep
	AfterStep    = metacontroller.AfterStep
	AfterDeletes = metacontroller.AfterDeletes
	AfterWrites  = metacontroller.AfterWrites
	BeforeStatus = metacontroller.BeforeStatus
	BeforeObject = metacontroller.BeforeObject
)

// Call is one call of the hooks: what Metacontroller sent, and the answer that it will apply.
type Call struct {
	parent   *v1beta1.EtcdCluster
	observed map[Key]metav1.Object
	crash    Crash
	// Lost is set when the answer never reached Metacontroller.
	Lost bool
	// Finalizing is set when the finalize hook was called; Finalized is its answer.
	Finalizing, Finalized bool
	// lookedAfter: it is being deleted, and looked after as before.
	lookedAfter bool
	Decision    decision.Decision
	// lacks is what the cluster lacked when that was decided.
	lacks string
	// secrets are what the decision asks for, made when it was.
	secrets map[string]*observation.Secret
	Outcome *decision.Outcome
}

// Sync is one whole sync of Metacontroller. Nil when its cache holds no cluster. One that does no more than ask the API
// server for the time is followed by another at once, because the status has changed.
func (w *World) Sync(crash Crash) *Call {
	c := w.Begin(crash)
	if c != nil && c.Outcome == nil && !c.Finalizing && !c.Decision.Status.Internal.ClockTime.Equal(
		&c.parent.Status.Internal.ClockTime) {
		c.crash, c.Lost = Crash{}, false
		w.Apply(c)
		c = w.Begin(crash)
	}
	w.Apply(c)
	return c
}

// Begin calls the hook on what the caches show now. The answer is in flight until Apply.
func (w *World) Begin(crash Crash) *Call { return w.begin2(&client{w: w, crash: crash}) }

// Look is a call that observes now and takes its step later, when Act is called.
func (w *World) Look() *Held {
	parent := w.cachedCluster()
	if parent == nil {
		return nil
	}
	h := &Held{question: w.about(parent)}
	o := w.observation(h.question)
	etcd := &client{w: w, operator: operatorOf(parent, &o)}
	etcd.Observe(context.Background(), facts.Endpoints(o))
	h.saw = etcd.seen[0]
	return h
}

// Held is a call that has observed and not acted yet.
type Held struct {
	question *Question
	saw      sight
}

// Act goes on with a held call: it takes the step that it decided on, and answers.
func (w *World) Act(h *Held) *Call {
	return w.answer(h.question, &client{w: w, recorded: &h.saw})
}

// BeginTwo makes two overlapping calls: both observe before either takes its step, the second comes first with that,
// and both steps reach etcd, as when both calls have looked at the member list at the same moment.
func (w *World) BeginTwo() (first, second *Call) {
	late := &client{w: w, racing: true}
	late.before = func() { second = w.begin2(&client{w: w, racing: true}) }
	first = w.begin2(late)
	if second == nil {
		second = w.Begin(Crash{})
	}
	return first, second
}

func (w *World) begin2(etcd *client) *Call {
	q := w.Ask()
	if q == nil {
		return nil
	}
	return w.answer(q, etcd)
}

// observation is what the hook is shown.
func (w *World) observation(q *Question) observation.Observation {
	o := observation.Observation{Cluster: q.Parent, Children: w.grouped(q.Children), Related: q.Related,
		Now: w.Now.Add(w.Ahead), Resync: w.Resync, Settings: w.Settings, Zones: zones(q.Parent)}
	o.WithoutLastApplied = observation.WithoutLastApplied(o.Children)
	o.Unsealed, o.Fresh = record.Seals(w.RecordKeys, q.Parent, o.Children.ConfigMaps,
		o.Children.Services[objects.PeerService(q.Parent.Name)])
	return o
}

// seal puts the installation's seal on the records of an answer, as the edge does.
func (w *World) seal(c *Call) {
	seen := group(c.observed)
	unsealed, _ := record.Seals(w.RecordKeys, c.parent, seen.ConfigMaps,
		seen.Services[objects.PeerService(c.parent.Name)])
	for i, cm := range c.Decision.Children.ConfigMaps {
		c.Decision.Children.ConfigMaps[i] = record.Sealed(w.RecordKeys, c.parent, cm, unsealed)
	}
}

// zones are the time zones that the cluster's spec names.
func zones(c *v1beta1.EtcdCluster) map[string]*time.Location {
	all := map[string]*time.Location{}
	for _, w := range c.Spec.Maintenance.Windows {
		if zone, err := time.LoadLocation(w.TimeZone); err == nil {
			all[w.TimeZone] = zone
		}
	}
	return all
}

// answer asks the hook.
func (w *World) answer(q *Question, etcd *client) *Call {
	c := &Call{parent: q.Parent, observed: q.Children, crash: etcd.crash, Finalizing: q.Finalizing}
	o := w.observation(q)
	etcd.operator, etcd.spec = operatorOf(q.Parent, &o), &q.Parent.Spec
	c.lookedAfter = defaults.Protected(q.Parent) || facts.Leaving(o)
	if c.Finalizing && !c.lookedAfter {
		c.Decision.Children, c.Finalized = answer.Finalize(o)
		if err := hooks.VerifyFinalize(o, c.Decision.Children, c.Finalized); err != nil {
			w.Oracle.Broken = append(w.Oracle.Broken, strings.Split(err.Error(), "\n")...)
		}
		c.Lost = !etcd.crash.Answered()
		w.makeSecrets(c, sources(o))
		return c
	}
	w.answered++
	watched := w.Watch && w.answered%watchEvery == 1
	var before string
	if watched {
		before = fingerprint(o)
	}
	c.Decision, c.Outcome = w.decide(o, etcd)
	c.lacks = etcd.lacks
	if c.Decision.Reason.Rule != "WaitForWindow" { // which says of Ready that it may be so
		c.lacks = cmp.Or(c.lacks, etcd.outdated)
	}
	if watched && fingerprint(o) != before {
		w.violate("S15", "the hook has changed what it was shown")
	}
	c.Lost = etcd.dead || !etcd.crash.Answered()
	w.judge(o, c, etcd.seen)
	w.makeSecrets(c, sources(o))
	return c
}

// decide is hooks.Sync, with the rules of this world.
func (w *World) decide(o observation.Observation, etcd *client) (decision.Decision, *decision.Outcome) {
	if w.Decide == nil {
		return hooks.Sync(context.Background(), o, etcd)
	}
	endpoints := facts.Endpoints(o)
	o.Etcd, o.Health = etcd.Observe(context.Background(), endpoints)
	endpoints = facts.Located(endpoints, o.Etcd, o.Health)
	d := w.Decide(o)
	if d.Step == nil {
		return d, nil
	}
	o.Taken = &decision.Outcome{Step: d.Step, Rule: d.Reason.Rule}
	if err := etcd.Do(context.Background(), d.Step, o.Etcd, endpoints); err != nil {
		o.Taken.Err = err.Error()
	}
	o.Etcd, o.Health = etcd.Observe(context.Background(), endpoints)
	return w.Decide(o), o.Taken
}

// makeSecrets carries out what the decision asks for. Without it the hook answers with an error, which changes
// nothing (S13).
func (w *World) makeSecrets(c *Call, observed map[string]*observation.Secret) {
	var err error
	if c.secrets, err = w.forge(c.Decision.Children.Secrets, observed); err != nil {
		w.violate("S13", "no complete answer: %s", err)
		c.Lost = true
	}
}

// sources are the Secrets that recipes read.
func sources(o observation.Observation) map[string]*observation.Secret {
	all := maps.Clone(o.Related.Secrets)
	maps.Copy(all, o.Children.Secrets)
	return all
}

// ensureFinalizer is the first thing of every sync. False when the object is gone, or another one has its name.
func (w *World) ensureFinalizer(cached *v1beta1.EtcdCluster) (*v1beta1.EtcdCluster, bool) {
	if slices.Contains(cached.Finalizers, finalizer) || cached.DeletionTimestamp != nil {
		return cached, true
	}
	if live := w.Cluster(); live == nil || live.UID != cached.UID {
		return nil, false
	}
	if !slices.Contains(w.Cluster().Finalizers, finalizer) {
		w.editCluster(func(c *v1beta1.EtcdCluster) { c.Finalizers = append(c.Finalizers, finalizer) })
	}
	return w.Cluster(), true
}

// For those who put real parts in the place of parts of this world: a hook that answers elsewhere, and a kubelet that
// runs processes. They take Collect with them, and neither Sync nor Pass.

// Question is a call of the hook sync or finalize. What it holds may only be read.
type Question struct {
	Parent     *v1beta1.EtcdCluster
	Children   map[Key]metav1.Object
	Related    observation.Related
	Finalizing bool
}

// Reply is the answer to a Question. Finalized counts while it is being deleted only.
type Reply struct {
	Children  map[Key]metav1.Object
	Status    v1beta1.EtcdClusterStatus
	Finalized bool
}

// Ask is the call that Metacontroller would make now; nil when there is no cluster.
func (w *World) Ask() *Question {
	parent := w.cachedCluster()
	if parent == nil {
		return nil
	}
	parent, alive := w.ensureFinalizer(parent)
	if !alive {
		return nil
	}
	return w.about(parent)
}

func (w *World) about(parent *v1beta1.EtcdCluster) *Question {
	return &Question{Parent: parent, Children: w.childrenOf(parent.UID), Related: w.relatedTo(parent),
		Finalizing: parent.DeletionTimestamp != nil}
}

// Take applies the answer, whatever has changed since the question. Its objects are kept.
func (w *World) Take(q *Question, r Reply) {
	w.apply(&Call{
		parent: q.Parent, observed: q.Children, Finalizing: q.Finalizing, Finalized: q.Finalizing && r.Finalized,
		lookedAfter: true,
		Decision:    decision.Decision{Status: r.Status},
	}, r.Children)
}

// OfKind are the objects of one kind, in the order of their names.
func (w *World) OfKind(kind Kind) []metav1.Object { return list[metav1.Object](w, kind) }

// Schedule binds the pod to a node and gives it an address, unless something holds it back; false when it has none.
func (w *World) Schedule(pod *corev1.Pod) bool { return w.scheduled(pod) }

// Report writes the status of a pod that is there.
func (w *World) Report(name string, status corev1.PodStatus) {
	w.editPod(name, func(p *corev1.Pod) { p.Status = status })
}
