package world

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	selected "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// lastApplied is the annotation in which Metacontroller notes what it applied last (pkg/dynamic/apply).
const lastApplied = "metacontroller.k8s.io/last-applied-configuration"

// childKinds in the order in which Metacontroller is told of them. (Its own order is that of a Go map: any.)
var childKinds = []Kind{PodKind, ClaimKind, ConfigMapKind, ServiceKind, BudgetKind, PolicyKind, SecretKind}

const finalizer = "metacontroller.io/compositecontroller-quorate-etcdcluster"

// Crash is where a call is cut off; the zero value is nowhere.
type Crash struct {
	At Point
	// Writes is after how many creations and updates, for AfterWrites.
	Writes int
	// Object is the one before which the call is cut off, for BeforeObject.
	Object Key
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

// Call is one call of the hooks: what Metacontroller sent, and the answer that it will apply.
type Call struct {
	parent   *v1alpha1.EtcdCluster
	observed map[Key]metav1.Object
	crash    Crash
	// Lost is set when the answer never reached Metacontroller.
	Lost bool
	// Finalizing is set when the finalize hook was called; Finalized is its answer.
	Finalizing, Finalized bool
	// lookedAfter: it is being deleted, and looked after as before.
	lookedAfter bool
	Decision    hooks.Decision
	// lacks is what the cluster lacked when that was decided.
	lacks string
	// secrets are what the decision asks for, made when it was.
	secrets map[string]*hooks.Secret
	Outcome *hooks.Outcome
}

// Sync is one whole sync of Metacontroller. Nil when its cache holds no cluster.
func (w *World) Sync(crash Crash) *Call {
	c := w.Begin(crash)
	w.Apply(c)
	return c
}

// Begin calls the hook on what the caches show now. The answer is in flight until Apply.
func (w *World) Begin(crash Crash) *Call { return w.begin2(&client{w: w, crash: crash}) }

// Look is a call that observes now and takes its step later, when Act is called.
func (w *World) Look() *Held {
	h := &Held{}
	if h.parent = w.cachedCluster(); h.parent == nil {
		return nil
	}
	h.observed, h.related = w.childrenOf(h.parent.UID), w.relatedTo(h.parent)
	o := hooks.Observation{Cluster: h.parent, Children: w.grouped(h.observed), Related: h.related}
	o.WithoutLastApplied = hooks.WithoutLastApplied(o.Children)
	etcd := &client{w: w, operator: operatorOf(h.parent, &o)}
	etcd.Observe(context.Background(), hooks.Endpoints(o))
	h.saw = etcd.seen[0]
	return h
}

// Held is a call that has observed and not acted yet.
type Held struct {
	parent   *v1alpha1.EtcdCluster
	observed map[Key]metav1.Object
	related  hooks.Related
	saw      sight
}

// Act goes on with a held call: it takes the step that it decided on, and answers.
func (w *World) Act(h *Held) *Call {
	return w.answer(h.parent, h.observed, h.related, &client{w: w, recorded: &h.saw})
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
	return w.answer(q.Parent, q.Children, q.Related, etcd)
}

// zones are the time zones that the cluster's spec names.
func zones(c *v1alpha1.EtcdCluster) map[string]*time.Location {
	all := map[string]*time.Location{}
	for _, w := range c.Spec.Maintenance.Windows {
		if zone, err := time.LoadLocation(w.TimeZone); err == nil {
			all[w.TimeZone] = zone
		}
	}
	return all
}

// answer asks the hook.
func (w *World) answer(parent *v1alpha1.EtcdCluster, observed map[Key]metav1.Object, related hooks.Related,
	etcd *client) *Call {
	c := &Call{parent: parent, observed: observed, crash: etcd.crash, Finalizing: parent.DeletionTimestamp != nil}
	o := hooks.Observation{Cluster: parent, Children: w.grouped(c.observed), Related: related, Now: w.Now,
		Resync: w.Resync, Settings: w.Settings, Zones: zones(parent)}
	o.WithoutLastApplied = hooks.WithoutLastApplied(o.Children)
	etcd.operator, etcd.spec = operatorOf(parent, &o), &parent.Spec
	c.lookedAfter = hooks.Protected(parent) || hooks.Leaving(o)
	if c.Finalizing && !c.lookedAfter {
		c.Decision.Children, c.Finalized = hooks.Finalize(o)
		c.Lost = etcd.crash.At == BeforeStep || etcd.crash.At == AfterStep
		w.makeSecrets(c, sources(o))
		return c
	}
	before := w.fingerprint(o)
	c.Decision, c.Outcome = w.decide(o, etcd)
	c.lacks = etcd.lacks
	if c.Decision.Reason.Rule != "WaitForWindow" { // which says of Ready that it may be so
		c.lacks = cmp.Or(c.lacks, etcd.outdated)
	}
	if w.fingerprint(o) != before {
		w.violate("S15", "the hook has changed what it was shown")
	}
	c.Lost = etcd.dead || etcd.crash.At == BeforeStep || etcd.crash.At == AfterStep
	w.judge(o, c, etcd.seen)
	w.makeSecrets(c, sources(o))
	return c
}

// decide is hooks.Sync, with the rules of this world.
func (w *World) decide(o hooks.Observation, etcd *client) (hooks.Decision, *hooks.Outcome) {
	if w.Decide == nil {
		return hooks.Sync(context.Background(), o, etcd)
	}
	endpoints := hooks.Endpoints(o)
	o.Etcd, o.Health = etcd.Observe(context.Background(), endpoints)
	endpoints = hooks.Located(endpoints, o.Etcd, o.Health)
	d := w.Decide(o)
	if d.Step == nil {
		return d, nil
	}
	o.Taken = &hooks.Outcome{Step: d.Step, Rule: d.Reason.Rule}
	if err := etcd.Do(context.Background(), d.Step, o.Etcd, endpoints); err != nil {
		o.Taken.Err = err.Error()
	}
	o.Etcd, o.Health = etcd.Observe(context.Background(), endpoints)
	return w.Decide(o), o.Taken
}

// makeSecrets carries out what the decision asks for. Without it the hook answers with an error, which changes
// nothing (S13).
func (w *World) makeSecrets(c *Call, observed map[string]*hooks.Secret) {
	var err error
	if c.secrets, err = w.forge(c.Decision.Children.Secrets, observed); err != nil {
		w.violate("S13", "no complete answer: %s", err)
		c.Lost = true
	}
}

// sources are the Secrets that recipes read.
func sources(o hooks.Observation) map[string]*hooks.Secret {
	all := maps.Clone(o.Related.Secrets)
	maps.Copy(all, o.Children.Secrets)
	return all
}

// ensureFinalizer is the first thing of every sync. False when the object is gone, or another one has its name.
func (w *World) ensureFinalizer(cached *v1alpha1.EtcdCluster) (*v1alpha1.EtcdCluster, bool) {
	if slices.Contains(cached.Finalizers, finalizer) || cached.DeletionTimestamp != nil {
		return cached, true
	}
	if live := w.Cluster(); live == nil || live.UID != cached.UID {
		return nil, false
	}
	if !slices.Contains(w.Cluster().Finalizers, finalizer) {
		w.editCluster(func(c *v1alpha1.EtcdCluster) { c.Finalizers = append(c.Finalizers, finalizer) })
	}
	return w.Cluster(), true
}

// ---- the caches

// Cached is, by name, what Metacontroller's cache of a kind shows.
func (w *World) Cached(kind Kind) map[string]metav1.Object {
	if seen, frozen := w.Frozen[kind]; frozen {
		return seen
	}
	all := map[string]metav1.Object{}
	for key, o := range w.Objects {
		if key.Kind == kind {
			all[key.Name] = o
		}
	}
	return all
}

func (w *World) cachedCluster() *v1alpha1.EtcdCluster {
	for _, o := range w.Cached(ClusterKind) {
		return o.(*v1alpha1.EtcdCluster)
	}
	return nil
}

func (w *World) childrenOf(parent types.UID) map[Key]metav1.Object {
	children := map[Key]metav1.Object{}
	for _, kind := range childKinds {
		for name, o := range w.Cached(kind) {
			if owned(o, parent) {
				children[Key{kind, name}] = o
			}
		}
	}
	return children
}

// relatedTo are the Secrets that somebody else keeps for the cluster: see hooks.RelatedSelector.
func (w *World) relatedTo(c *v1alpha1.EtcdCluster) hooks.Related {
	chosen, err := metav1.LabelSelectorAsSelector(new(hooks.RelatedSelector(c)))
	if err != nil {
		panic(err) // the selector is ours
	}
	r := hooks.Related{Secrets: map[string]*hooks.Secret{}}
	for name, o := range w.Cached(SecretKind) {
		if chosen.Matches(selected.Set(o.GetLabels())) {
			r.Secrets[name] = o.(*hooks.Secret)
		}
	}
	r.Secrets = hooks.AskedKeys(c).Of(r.Secrets) // what the edge leaves out, no decision may miss
	for name, o := range w.Cached(SnapshotKind) {
		if r.Snapshots == nil {
			r.Snapshots = map[string]*v1alpha1.EtcdSnapshot{}
		}
		r.Snapshots[name] = o.(*v1alpha1.EtcdSnapshot)
	}
	return r
}

// grouped are children by kind. Certificates are there only where the installation has a rule for them.
func (w *World) grouped(all map[Key]metav1.Object) hooks.Children {
	c := group(all)
	if w.CertManager {
		c.Certificates = map[string]*hooks.CertManagerCertificate{}
		for _, made := range w.Certificates {
			noted := *made
			noted.Annotations = maps.Clone(made.Annotations)
			if noted.Annotations == nil {
				noted.Annotations = map[string]string{}
			}
			noted.Annotations[objects.AnnotationLastApplied] = "{}"
			c.Certificates[made.Name] = &noted
		}
	}
	return c
}

func group(all map[Key]metav1.Object) hooks.Children {
	c := hooks.Children{
		Pods: map[string]*corev1.Pod{}, Claims: map[string]*corev1.PersistentVolumeClaim{},
		ConfigMaps: map[string]*corev1.ConfigMap{},
		Services:   map[string]*corev1.Service{}, Budgets: map[string]*policyv1.PodDisruptionBudget{},
		Policies: map[string]*networkingv1.NetworkPolicy{}, Secrets: map[string]*hooks.Secret{},
	}
	for key, o := range all {
		switch t := o.(type) {
		case *corev1.Pod:
			c.Pods[key.Name] = t
		case *corev1.PersistentVolumeClaim:
			c.Claims[key.Name] = t
		case *corev1.ConfigMap:
			c.ConfigMaps[key.Name] = t
		case *corev1.Service:
			c.Services[key.Name] = t
		case *policyv1.PodDisruptionBudget:
			c.Budgets[key.Name] = t
		case *networkingv1.NetworkPolicy:
			c.Policies[key.Name] = t
		case *hooks.Secret:
			c.Secrets[key.Name] = t
		}
	}
	return c
}

func ungroup(d hooks.Desired, secrets map[string]*hooks.Secret) map[Key]metav1.Object {
	all := map[Key]metav1.Object{}
	for _, o := range d.Pods {
		all[Key{PodKind, o.Name}] = o
	}
	for _, o := range d.Claims {
		all[Key{ClaimKind, o.Name}] = o
	}
	for _, o := range d.ConfigMaps {
		all[Key{ConfigMapKind, o.Name}] = o
	}
	for _, o := range d.Services {
		all[Key{ServiceKind, o.Name}] = o
	}
	for _, o := range d.Budgets {
		all[Key{BudgetKind, o.Name}] = o
	}
	for _, o := range d.Policies {
		all[Key{PolicyKind, o.Name}] = o
	}
	for name, o := range secrets {
		all[Key{SecretKind, name}] = o
	}
	return all
}

// ---- applying the answer

// Apply does with the answer what Metacontroller does: deletions, then creations and updates going on past errors,
// then the status. A finalized parent loses its finalizer first, and its children are then left to the garbage
// collector.
func (w *World) Apply(c *Call) {
	if c == nil || c.Lost {
		return
	}
	w.apply(c, ungroup(c.Decision.Children, c.secrets))
}

// apply is Apply, of these children.
func (w *World) apply(c *Call, desired map[Key]metav1.Object) {
	if c.Finalized {
		if live := w.Cluster(); live != nil && live.UID == c.parent.UID {
			w.note("finalizer removed")
			w.dropFinalizer(finalizer)
		}
		return
	}
	if c.Finalizing && (!slices.Contains(c.parent.Finalizers, finalizer) ||
		slices.Contains(c.parent.Finalizers, metav1.FinalizerOrphanDependents)) {
		return
	}
	if !w.deleteOmitted(c, desired) || c.crash.At == AfterDeletes {
		return
	}
	if w.CertManager {
		w.Certificates = c.Decision.Children.Certificates
	}
	if !w.writeChildren(c, desired) || c.crash.At == BeforeStatus || c.Finalizing && !c.lookedAfter {
		return
	}
	w.writeStatus(c)
}

// deleteOmitted deletes the observed children that the answer omits, by UID; false when the crash cut it off.
func (w *World) deleteOmitted(c *Call, desired map[Key]metav1.Object) bool {
	before := w.health()
	for _, key := range c.crash.order(c.observed) {
		o := c.observed[key]
		if o.GetDeletionTimestamp() != nil || desired[key] != nil {
			continue
		}
		if c.crash.before(key) {
			return false
		}
		w.Oracle.beforeDelete(w, c, key, o)
		w.written("- %s %s", key, w.remove(key.Kind, key.Name, o.GetUID()))
	}
	w.Oracle.afterDeletes(w, c, before)
	return true
}

func (c Crash) before(key Key) bool { return c.At == BeforeObject && c.Object == key }

// writeChildren creates and updates; false when the crash cut it off.
func (w *World) writeChildren(c *Call, desired map[Key]metav1.Object) bool {
	writes, before := 0, w.health()
	defer func() { w.Oracle.afterDeletes(w, c, before) }()
	for _, key := range c.crash.order(desired) {
		if c.crash.At == AfterWrites && writes >= c.crash.Writes || c.crash.before(key) {
			return false
		}
		old, exists := c.observed[key]
		if w.ServerSideApply {
			w.applyOnServer(c.parent, key, old, desired[key])
			writes++
			continue
		}
		if !exists {
			err := w.create(key.Kind, created(c.parent, desired[key]))
			if errors.Is(err, ErrForbidden) {
				w.refused(key, desired)
				continue
			}
			if err == nil {
				w.Oracle.seeRecord(c, key)
			}
			w.written("+ %s %s", key, err)
			writes++
			continue
		}
		merged, changed := merge(old, desired[key])
		if len(changed) == 0 || old.GetDeletionTimestamp() != nil {
			continue
		}
		w.written("~ %s %s "+strings.ReplaceAll(strings.Join(changed, " "), "%", "%%"), key, w.update(key.Kind, merged))
		writes++
	}
	return true
}

// written notes a write; format begins with its sign, the kind and the name.
func (w *World) written(format string, key Key, err error) {
	w.Writes++
	line := fmt.Sprintf(format, key.Kind, key.Name)
	if err != nil {
		line = "! " + line + ": " + err.Error()
	}
	w.note("%s", line)
}

// writeStatus replaces the status of the live parent, if it is the same object.
func (w *World) writeStatus(c *Call) {
	live := w.Cluster()
	status := c.Decision.Status
	status.ObservedGeneration = c.parent.Generation
	if live == nil || live.UID != c.parent.UID {
		return
	}
	w.Lacked = c.lacks
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.Ready) && c.lacks != "" {
		w.violate("Ready", "Ready is True (%s), and %s", c.Decision.Reason.Rule, c.lacks)
	}
	if reflect.DeepEqual(live.Status, status) {
		return
	}
	changes, looks := w.Changes, w.looks(c.parent.Status, live.Status, status)
	w.editCluster(func(e *v1alpha1.EtcdCluster) { e.Status = status })
	if w.Writes++; looks {
		w.Changes, w.Writes = changes, w.Writes-1
	}
}

// looks reports whether a status only tells of another look, which is no change. That is written seldom (S16).
func (w *World) looks(shown, old, status v1alpha1.EtcdClusterStatus) bool {
	if old.Watched == nil || status.Watched == nil || old.Watched.Until.Equal(&status.Watched.Until) {
		return false
	}
	until := status.Watched.Until
	status.Watched = &v1alpha1.WatchedStatus{Since: status.Watched.Since, Until: old.Watched.Until}
	if !reflect.DeepEqual(old, status) {
		return false
	}
	if shown.Watched != nil && until.Sub(shown.Watched.Until.Time) < 2*w.Resync {
		w.violate("S16", "a look is written %s after another", until.Sub(shown.Watched.Until.Time))
	}
	return true
}

// order is that in which the children are deleted or written.
func (c Crash) order(objects map[Key]metav1.Object) []Key {
	keys := inOrder(objects)
	if c.Backwards {
		slices.Reverse(keys)
	}
	return keys
}

func inOrder(objects map[Key]metav1.Object) []Key {
	return slices.SortedFunc(maps.Keys(objects), func(a, b Key) int {
		if a.Kind != b.Kind {
			return slices.Index(childKinds, a.Kind) - slices.Index(childKinds, b.Kind)
		}
		if len(a.Name) != len(b.Name) {
			return len(a.Name) - len(b.Name)
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// applied is what Metacontroller notes on an object: what it applied last. Only what this world merges is noted.
type applied struct {
	Labels, Annotations []string
	// Owners were told, and go when they are told no more.
	Owners bool
}

func appliedOf(o metav1.Object) applied {
	var a applied
	_ = json.Unmarshal([]byte(o.GetAnnotations()[lastApplied]), &a)
	return a
}

func (a applied) String() string {
	raw, err := json.Marshal(a)
	if err != nil {
		return ""
	}
	return string(raw)
}

// created is the object as it is sent to be created, with the parent that the cache showed as its owner.
func created(parent *v1alpha1.EtcdCluster, answer metav1.Object) metav1.Object {
	o := copyOf(answer)
	labels := clone(o.GetLabels())
	labels["controller-uid"] = string(parent.UID)
	note := applied{Labels: sorted(labels), Annotations: sorted(o.GetAnnotations())}
	annotations := clone(o.GetAnnotations())
	annotations[lastApplied] = note.String()
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdCluster",
		Name: parent.Name, UID: parent.UID, Controller: new(true), BlockOwnerDeletion: new(true)}})
	o.SetUID("")
	o.SetResourceVersion("")
	return o
}

// applyOnServer is what Metacontroller 4 does with --apply-strategy=server-side-apply: the API server merges. It
// makes what is not there, asks for no version, takes over what others have made, and keeps the owner; what was
// applied before and is not any more goes. The note of dynamic apply is taken away first. What the server package
// answers for a child without a note, the API server refuses.
func (w *World) applyOnServer(parent *v1alpha1.EtcdCluster, key Key, observed, answer metav1.Object) {
	if observed != nil && observed.GetDeletionTimestamp() != nil {
		return
	}
	live := w.Objects[key]
	if observed != nil && observed.GetAnnotations()[lastApplied] == "" {
		w.note("! ~ %s %s: field not declared in schema", key.Kind, key.Name)
		return
	}
	if observed != nil && live != nil && live.GetAnnotations()[lastApplied] != "" {
		stripped := copyOf(live)
		annotations := clone(live.GetAnnotations())
		delete(annotations, lastApplied)
		stripped.SetAnnotations(annotations)
		w.put(key.Kind, stripped)
		live = stripped
	}
	if live == nil {
		o := onServer(created(parent, answer))
		w.written("+ %s %s", key, w.create(key.Kind, o))
		return
	}
	last := appliedOnServer(live)
	want := onServer(created(parent, answer))
	o := copyOf(live)
	labels, changed := mergeMap("label", live.GetLabels(), last.Labels, want.GetLabels())
	annotations, more := mergeMap("", live.GetAnnotations(), last.Annotations, want.GetAnnotations())
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	o.SetManagedFields(want.GetManagedFields())
	changed = append(append(changed, more...), mergeSpec(o, answer)...)
	if !owned(live, parent.UID) {
		o.SetOwnerReferences(append(slices.Clone(live.GetOwnerReferences()), want.GetOwnerReferences()...))
		changed = append(changed, "+owner")
	}
	if len(changed) == 0 && reflect.DeepEqual(live.GetManagedFields(), o.GetManagedFields()) {
		return
	}
	if err := w.admit(live, o); err != nil {
		w.written("~ %s %s", key, err)
		return
	}
	w.put(key.Kind, o)
	w.written("~ %s %s "+strings.ReplaceAll(strings.Join(append(changed, "without a note"), " "), "%", "%%"), key, nil)
}

// onServer moves the note of what is applied to where the API server keeps it.
func onServer(o metav1.Object) metav1.Object {
	annotations := clone(o.GetAnnotations())
	note := annotations[lastApplied]
	delete(annotations, lastApplied)
	o.SetAnnotations(annotations)
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "metacontroller",
		Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(note)}})
	return o
}

func appliedOnServer(o metav1.Object) applied {
	var a applied
	for _, f := range o.GetManagedFields() {
		_ = json.Unmarshal(f.FieldsV1.GetRawBytes(), &a)
	}
	return a
}

// merge is Metacontroller's three-way merge, and what it changed in words.
func merge(old, answer metav1.Object) (metav1.Object, []string) {
	o := copyOf(old)
	labels := clone(answer.GetLabels())
	labels["controller-uid"] = old.GetLabels()["controller-uid"]
	last := appliedOf(old)
	newLabels, changed := mergeMap("label", old.GetLabels(), last.Labels, labels)
	own := clone(answer.GetAnnotations())
	delete(own, lastApplied)
	newAnnotations, more := mergeMap("", old.GetAnnotations(), last.Annotations, own)
	changed = append(changed, more...)
	claim, isClaim := answer.(*corev1.PersistentVolumeClaim)
	owners := isClaim && len(hooks.ToldOwners(claim)) > 0
	newAnnotations[lastApplied] = applied{sorted(labels), sorted(own), owners}.String()
	if last.Owners && !owners {
		o.SetOwnerReferences(nil)
		changed = append(changed, "-owner")
	}
	if old.GetAnnotations()[lastApplied] == "" {
		changed = append(changed, "noted")
	} else if newAnnotations[lastApplied] != old.GetAnnotations()[lastApplied] && len(changed) == 0 {
		changed = append(changed, "last-applied")
	}
	o.SetLabels(newLabels)
	o.SetAnnotations(newAnnotations)
	return o, append(changed, mergeSpec(o, answer)...)
}

// mergeMap is the three-way merge of labels or annotations.
func mergeMap(noun string, old map[string]string, last []string, want map[string]string) (map[string]string, []string) {
	merged := clone(old)
	var changed []string
	for _, k := range last {
		if _, stays := want[k]; !stays && merged[k] != "" {
			delete(merged, k)
			changed = append(changed, "-"+noun+short(k))
		}
	}
	for _, k := range sorted(want) {
		if old[k] == want[k] {
			continue
		}
		merged[k] = want[k]
		what := short(k)
		if noun != "" || what == "next-member" {
			what += "=" + want[k]
		}
		changed = append(changed, what)
	}
	return merged, changed
}

func short(key string) string { return key[strings.LastIndex(key, "/")+1:] }

// mergeSpec takes over what the answer says of the spec.
func mergeSpec(o, answer metav1.Object) []string {
	var changed []string
	replace := func(is, want any, what string, set func()) {
		if !reflect.DeepEqual(is, want) {
			changed = append(changed, what)
			set()
		}
	}
	switch t := o.(type) {
	case *corev1.Pod:
		want := answer.(*corev1.Pod).Spec
		if len(t.Spec.SchedulingGates) > 0 && len(want.SchedulingGates) == 0 {
			changed = append(changed, "gate dropped")
			t.Spec.SchedulingGates = nil
		}
		want.NodeName = t.Spec.NodeName
		if t.Spec.Containers[0].Image != want.Containers[0].Image {
			changed = append(changed, "image="+want.Containers[0].Image)
			t.Spec.Containers = want.Containers
		}
		replace(t.Spec, want, "spec", func() { t.Spec = want })
	case *corev1.ConfigMap:
		want := answer.(*corev1.ConfigMap)
		replace(t.Data, want.Data, "data", func() { t.Data = want.Data })
	case *corev1.PersistentVolumeClaim:
		want := answer.(*corev1.PersistentVolumeClaim).Spec
		replace(t.Spec, want, "size="+want.Resources.Requests.Storage().String(), func() { t.Spec = want })
	case *corev1.Service:
		want := answer.(*corev1.Service).Spec
		replace(t.Spec, want, "spec", func() { t.Spec = want })
	case *policyv1.PodDisruptionBudget:
		want := answer.(*policyv1.PodDisruptionBudget).Spec
		replace(t.Spec, want, "min-available="+want.MinAvailable.String(), func() { t.Spec = want })
	case *networkingv1.NetworkPolicy:
		want := answer.(*networkingv1.NetworkPolicy).Spec
		replace(t.Spec, want, "spec", func() { t.Spec = want })
	case *hooks.Secret:
		changed = mergeSecret(t, answer.(*hooks.Secret))
	}
	return changed
}

// mergeSecret takes over the data of a Secret, and says what is new about it.
func mergeSecret(o, want *hooks.Secret) []string {
	var changed []string
	if !reflect.DeepEqual(o.Certificate, want.Certificate) {
		changed = append(changed, Describe(want))
	}
	if !reflect.DeepEqual(o.Trust, want.Trust) {
		changed = append(changed, "trusts "+IDs(want.Trust))
	}
	if o.Previous != nil && want.Previous == nil {
		changed = append(changed, "without the previous one")
	}
	if len(changed) == 0 && !reflect.DeepEqual([]any{o.Type, o.Keys, o.Flaw}, []any{want.Type, want.Keys, want.Flaw}) {
		changed = append(changed, "data")
	}
	meta := o.ObjectMeta
	*o = *want
	o.ObjectMeta = meta
	return changed
}

func clone(m map[string]string) map[string]string {
	if c := maps.Clone(m); c != nil {
		return c
	}
	return map[string]string{}
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
