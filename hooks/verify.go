package hooks

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/safety"
)

// Verify checks a decision against the rules of safety, said a second time and independently of the rules that made
// it. It is the oracle of the stories, the model and the fuzzers, and runs on every call when QUORATE_VERIFY=1. The
// error names every rule that is broken; nil is the only acceptable answer.
//
// It judges one observation and one decision. What spans calls (S14 lagging caches, S15 two calls at once) is for the
// model.
func Verify(o Observation, d Decision) error {
	v := newView(o)
	j := judgement{v: v, o: o, d: d}
	j.prospects()
	j.newContainers()
	if o.heldBack() {
		j.nothingChanges()
		return errors.Join(j.broken...)
	}
	j.succession()
	j.o.Children, j.d.Children = v.Children, j.inEpoch(v)
	j.step()
	j.secrets()
	if v.ending() {
		return errors.Join(j.broken...)
	}
	j.claims()
	j.pods()
	j.record()
	j.windows()
	return errors.Join(j.broken...)
}

type judgement struct {
	v      *view
	o      Observation
	d      Decision
	broken []error
}

func (j *judgement) require(ok bool, rule, format string, args ...any) {
	if !ok {
		j.broken = append(j.broken, fmt.Errorf("%s: %s", rule, fmt.Sprintf(format, args...)))
	}
}

// newContainers checks those of every pod that an answer makes.
func (j *judgement) newContainers() {
	for _, pod := range j.d.Children.Pods {
		if j.o.Children.Pods[pod.Name] == nil {
			j.broken = append(j.broken, safety.CheckContainers(j.o.Settings.Images, "pod "+pod.Name, &pod.Spec)...)
		}
	}
}

// prospects: tools are told one thing, and what the table of outlooks allows.
func (j *judgement) prospects() {
	var is []string
	for _, c := range j.d.Status.Conditions {
		if c.Status == metav1.ConditionTrue &&
			slices.Contains([]string{v1alpha1.Ready, v1alpha1.Reconciling, v1alpha1.Stalled}, c.Type) {
			is = append(is, c.Type)
		}
	}
	j.require(len(is) == 1, "outlook", "exactly one of Ready, Reconciling and Stalled must be True, and these are: %v",
		is)
	for _, r := range j.v.mode.rules {
		if r.Name != j.d.Reason.Rule {
			continue
		}
		decision := r.Ask(j.v)
		j.require(decision != nil && (decision.outlook == "" || slices.Contains(outlooks[r.Name], decision.outlook)),
			"outlook", "the table does not let rule %s have the outlook of %+v", r.Name, decision)
	}
}

func (j *judgement) nothingChanges() {
	j.require(j.d.Step == nil, "S1", "a step although everything is held back")
	for name := range j.o.Children.Claims {
		j.require(j.hasClaim(name), "S12", "held back, but the claim %s is gone from the answer", name)
	}
	for name := range j.o.Children.Pods {
		j.require(j.pod(name) != nil, "S12", "held back, but the pod %s is gone from the answer", name)
	}
}
