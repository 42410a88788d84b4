package model

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// sight is all that one decision depends on: what the caches show, and what etcd said.
type sight struct {
	view      view
	list      memberList
	published set
	answering set // who answered its own status
	following set // who of them follows a leader
	behind    set // who of them is a learner that has not caught up
	leader    uint8
	blind     bool
	nospace   bool
	versions  [maxMembers]uint8 // of those that answer
	agreed    uint8             // what they tell of the cluster's version
	lowered   uint8
	done      step // what this call has done already
	failed    bool // and etcd refused
	budget    budget
}

// verdict is a decision as the model needs it.
type verdict struct {
	plain
	// broken are the rules of safety that the decision itself breaks.
	broken []string
}

// plain is what there is to most verdicts.
type plain struct {
	answer reply
	step   step
	rule   string
	// settled: nothing is left to do.
	settled bool
}

// observe is what a call of the hooks gets to know that is shown v.
func (s *worldState) observe(v *view) sight {
	o := sight{view: *v, budget: s.budget, nospace: s.nospace, agreed: s.Agreed, lowered: s.Downgrade}
	o.view.record.rev = 0
	for n := range maxMembers {
		o.view.pods[n].rev = 0
	}
	for n := range maxMembers {
		if p := &v.pods[n]; p.uid == 0 || !p.bound || s.down || s.unreachable.Has(n) || !s.Running.Has(n) ||
			s.live.pods[n].uid != p.uid || !s.Members().Has(n) {
			continue
		}
		o.answering, o.versions[n] = o.answering.With(n), s.proc[n]
		if s.Learners.Has(n) && s.data[n] != whole {
			o.behind = o.behind.With(n)
		}
	}
	o.following = o.answering & s.Following()
	if o.blind = o.following&s.Voters == 0; !o.blind {
		o.list, o.published, o.leader = s.list(), s.Started&s.Members(), s.Leader
	}
	return o
}

// ---- deciding

// judge decides as the shipped hooks do, or as a mutant of them does, and remembers.
type judge struct {
	medium v1beta1.Medium
	decide func(observation.Observation) decision.Decision
	verify bool
	// selfHosted is what the spec says of the API server's data.
	selfHosted bool
	// spares is what the spec says of learners that stay.
	spares int
	// evictions: the budget counts.
	evictions bool

	// memory is of verdicts by what was seen, and most is seen with the same verdict.
	mu       [64]sync.Mutex
	memory   [64]map[key]*verdict
	verdicts once[plain, *verdict]

	// What the hooks are shown is made once and used again: they leave it as it is.
	pods    once[numbered[pod], *corev1.Pod]
	claims  once[numbered[claim], *corev1.PersistentVolumeClaim]
	records once[record, *corev1.ConfigMap]
	parents once[parent, *v1beta1.EtcdCluster]
}

// numbered is what belongs to a member.
type numbered[T comparable] struct {
	n int
	t T
}

// once remembers what was made of something.
type once[K comparable, V any] struct {
	mu  sync.RWMutex
	all map[K]V
}

func (o *once[K, V]) of(k K, made func() V) V {
	o.mu.RLock()
	v, found := o.all[k]
	o.mu.RUnlock()
	if found {
		return v
	}
	v = made()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[K]V{}
	}
	o.all[k] = v
	return v
}

func newJudge(medium v1beta1.Medium, decide func(observation.Observation) decision.Decision, verify bool) *judge {
	j := &judge{medium: medium, decide: decide, verify: verify}
	for i := range j.memory {
		j.memory[i] = map[key]*verdict{}
	}
	return j
}

func (j *judge) on(o sight) *verdict {
	k := keyOf(o)
	shard := k[0] % 64
	j.mu[shard].Lock()
	known, found := j.memory[shard][k]
	j.mu[shard].Unlock()
	if found {
		return known
	}
	v := j.think(&o)
	if v.broken == nil {
		v = j.verdicts.of(v.plain, func() *verdict { return v })
	}
	j.mu[shard].Lock()
	j.memory[shard][k] = v
	j.mu[shard].Unlock()
	return v
}

// decisions is how many different observations were decided.
func (j *judge) decisions() int {
	n := 0
	for i := range j.memory {
		n += len(j.memory[i])
	}
	return n
}

func (j *judge) think(s *sight) *verdict {
	o := j.observation(s)
	d := j.decide(o)
	v := &verdict{plain: plain{rule: d.Reason.Rule, settled: d.ResyncAfter == 0 && d.Step == nil}}
	if j.verify {
		if err := hooks.Verify(o, d); err != nil {
			v.broken = strings.Split(err.Error(), "\n")
		}
	}
	v.step = stepOf(d.Step)
	j.read(s, &d, &v.answer)
	return v
}

func stepOf(s decision.Step) step {
	switch t := s.(type) {
	case decision.AddLearner:
		return step{addLearner, number(t.Name)}
	case decision.Promote:
		return step{promote, number(t.Name)}
	case decision.Remove:
		return step{remove, number(t.Name)}
	case decision.MoveLeader:
		return step{moveLeader, number(t.Name)}
	case decision.EnableDowngrade:
		return step{enableDowngrade, minor(t.Version)}
	case decision.CancelDowngrade:
		return step{kind: cancelDowngrade}
	}
	return step{}
}

// ---- what the hooks answer

// read takes a decision's children down.
func (j *judge) read(s *sight, d *decision.Decision, a *reply) {
	for _, p := range d.Children.Pods {
		n := number(p.Name)
		if seen := &s.view.pods[n]; seen.uid == 0 {
			a.podDo[n], a.pods[n] = create, j.newPod(p)
		} else {
			a.podDo[n] = kept(seen, p)
			if a.podDo[n]&newImage != 0 {
				a.pods[n].version = versionOf(tagOf(p.Spec.Containers[0].Image))
			}
			if a.podDo[n]&admit != 0 {
				a.pods[n].told = toldIn(p)
			}
		}
	}
	for _, c := range d.Children.Claims {
		n := number(c.Name)
		a.claims[n] = keep
		if s.view.claims[n].uid == 0 {
			a.claims[n] = create
		}
	}
	for _, r := range d.Children.ConfigMaps {
		a.record = readRecord(r)
		a.write = a.record != s.view.record
	}
	for _, b := range d.Children.Budgets {
		if j.evictions {
			a.budget = budget{uint8(b.Spec.MinAvailable.IntValue()),
				*b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow}
		}
	}
	a.status = statusOf(&d.Status)
}

func statusOf(said *v1beta1.EtcdClusterStatus) clusterStatus {
	s := clusterStatus{hasID: said.ClusterID != ""}
	for i := range said.Members {
		m := &said.Members[i]
		n := int(number(m.Name))
		if m.Role != v1beta1.Voter {
			s.learners = s.learners.With(n)
		} else {
			s.voters = s.voters.With(n)
		}
		if m.JoinTime.Time.Before(now) {
			s.old = s.old.With(n)
		}
	}
	return s
}

func kept(seen *pod, p *corev1.Pod) uint8 {
	do := keep
	if seen.gated && len(p.Spec.SchedulingGates) == 0 {
		do |= release
	}
	if p.Spec.Containers[0].Image != image(seen.version) {
		do |= newImage
	}
	if seen.start == joins && seen.told != 0 && p.Annotations[objects.AnnotationInitialCluster] == "" {
		do |= forget
	}
	if seen.waits && !facts.WaitsToJoin(p) {
		do |= admit
	}
	switch withdrawn := p.Annotations[objects.AnnotationWithdrawn] != ""; {
	case withdrawn && seen.withdrawn == notWithdrawn:
		do |= withdraw
	case !withdrawn && seen.withdrawn != notWithdrawn:
		do |= unwithdraw
	}
	return do
}

// starts are what pods say of how they start their member.
var starts = []string{bootstraps: objects.StartBootstrap, joins: objects.StartJoin, resumes: objects.StartResume}

func (j *judge) newPod(p *corev1.Pod) pod {
	version := versionOf(tagOf(p.Annotations[objects.AnnotationImage]))
	start := uint8(slices.Index(starts, p.Annotations[objects.AnnotationStart]))
	var told set
	if start == joins { // one that bootstraps is told what the record has
		told = toldIn(p)
	}
	return pod{
		start:    start,
		told:     told,
		template: uint8(slices.Index(j.templates(), p.Annotations[objects.AnnotationTemplate])),
		version:  version,
		oldFlags: oldFlags(version),
		gated:    len(p.Spec.SchedulingGates) > 0,
		waits:    facts.WaitsToJoin(p),
	}
}

// toldIn is the membership that a pod says.
func toldIn(p *corev1.Pod) set {
	return membersOf(objects.ParsePairs(p.Annotations[objects.AnnotationInitialCluster], "="))
}

func membersOf[V any](byName map[string]V) (all set) {
	for member := range byName {
		all = all.With(int(number(member)))
	}
	return all
}

// readRecord reads a record as the hooks do.
func readRecord(o *corev1.ConfigMap) record {
	e, err := facts.ParseEpoch(1, o)
	if err != nil {
		panic(err)
	}
	r := record{exists: true, initial: membersOf(e.Initial), next: uint8(e.NextOrdinal),
		version: versionOf(e.Version), founded: e.Provisioned(), quorate: e.HadQuorum(), choice: readChoice(e.Choice)}
	for member, uid := range e.StartsOn {
		if uid == facts.NothingStarts {
			r.dropped = r.dropped.With(int(number(member)))
			continue
		}
		r.startsOn[number(member)] = lastNumber(string(uid))
	}
	return r
}
