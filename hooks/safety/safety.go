// Package safety is the oracle: the rules S1 to S21 said a second time, from the facts alone. It imports no rule.
// It has the facts in common with the rules (package facts). A wrong fact would deceive both; the
// model and the simulated etcd judge that from outside.
package safety

import (
	"errors"
	"fmt"
	"maps"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Verify checks a decision against the rules of safety, said a second time and independently of the rules that made
// it. It is the oracle of the stories, the model and the fuzzers, and runs on every call when QUORATE_VERIFY=1. The
// error names every rule that is broken; nil is the only acceptable answer.
//
// It judges one observation and one decision. What spans calls (S14 lagging caches, S15 two calls at once) is for the
// model.
func Verify(o observation.Observation, d decision.Decision) error {
	o.Now = earliest(o)
	f := facts.New(o)
	j := judgement{f: f, o: o, d: d}
	newContainers(&j)
	selfHosted(&j)
	unsealed(&j)
	if f.HeldBack() {
		nothingChanges(&j)
		return errors.Join(j.broken...)
	}
	founded(&j)
	complete(&j)
	switchover(&j)
	nextIsClosed(&j)
	children := inEpoch(&j, f)
	j.o.Children = f.Children
	j.d.Children = children
	step(&j)
	remembersMove(&j)
	secrets(&j)
	openMembers(&j)
	if f.Ending() {
		return errors.Join(j.broken...)
	}
	claims(&j)
	checkPods(&j)
	recorded(&j)
	windows(&j)
	return errors.Join(j.broken...)
}

type judgement struct {
	f      *facts.Facts
	o      observation.Observation // its Now is the earliest that it may be
	d      decision.Decision
	broken []error
}

func (j *judgement) require(ok bool, rule, format string, args ...any) {
	if !ok {
		j.broken = append(j.broken, fmt.Errorf("%s: %s", rule, fmt.Sprintf(format, args...)))
	}
}

// newContainers checks those of every pod that an answer makes.
func newContainers(j *judgement) {
	for _, pod := range j.d.Children.Pods {
		if j.o.Children.Pods[pod.Name] == nil {
			j.broken = append(j.broken, objects.Check(j.o.Settings.Images, "pod "+pod.Name, &pod.Spec)...)
		}
	}
}

func nothingChanges(j *judgement) {
	j.require(j.d.Step == nil, "S1", "a step although everything is held back")
	for _, name := range missing(&j.o, &j.d.Children) {
		j.require(false, "S12", "held back, but %s is gone from the answer", name)
	}
}

// neverBegun reports whether a record is of an epoch after the one whose etcd answers.
func neverBegun(j *judgement, name string) bool {
	e := j.f.Epoch
	if j.f.Etcd == nil || e == nil || e.Record == nil || e.ClusterID != j.f.Etcd.ClusterID {
		return false
	}
	n, is := objects.Ordinal(j.o.Cluster.Name+"-epoch", name)
	return is && n > e.N
}

// unsealed: what a record says that no key has sealed moves nothing, and no answer makes it look sealed (S8). It may go
// while an etcd answers that is, by the status, the one of the cluster, or that of the epoch before it.
func unsealed(j *judgement) {
	for _, name := range j.o.Unsealed {
		old := j.o.Children.ConfigMaps[name]
		for _, cm := range j.d.Children.ConfigMaps {
			same := cm.Name != name || maps.Equal(cm.Data, old.Data) &&
				maps.Equal(cm.Annotations, facts.Kept(j.o.Cluster, old).Annotations)
			j.require(same, "S8", "the record %s is changed, which has no seal", name)
		}
		if !neverBegun(j, name) {
			believesNothing(j, name)
		}
	}
}

// believesNothing checks that nothing is done while there is a record that may be of the epoch that runs.
func believesNothing(j *judgement, name string) {
	j.require(j.d.Step == nil, "S8", "%s, and the record %s has no seal", j.d.Step, name)
	answered := j.o.Etcd != nil && objects.Hex(j.o.Etcd.ClusterID) == j.o.Cluster.Status.ClusterID
	for _, left := range missing(&j.o, &j.d.Children) {
		j.require(answered && left == "ConfigMap "+name, "S8", "%s goes, and the record %s has no seal", left, name)
	}
	for _, pod := range j.d.Children.Pods {
		j.require(j.o.Children.Pods[pod.Name] != nil, "S8", "the pod %s is made, and the record %s has no seal",
			pod.Name, name)
	}
}
