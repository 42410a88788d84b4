package safety

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// What must be in every answer: Metacontroller deletes what is not.

// complete checks that an answer has what each has, whatever else is so (S13).
func complete(j *judgement) {
	c := j.o.Cluster
	names := func(kind string) map[string]bool {
		all := map[string]bool{}
		for _, k := range observation.Kinds {
			if k.Kind != kind {
				continue
			}
			for o := range k.Wanted(&j.d.Children) {
				all[o.GetName()] = true
			}
		}
		return all
	}
	must := func(kind, name string) {
		j.require(names(kind)[name], "S13", "the %s %s is not in the answer", kind, name)
	}
	must("Service", objects.ClientService(c.Name))
	must("Service", objects.PeerService(c.Name))
	must("PodDisruptionBudget", c.Name)
	if objects.Encrypted(c) {
		must("Secret", defaults.TokenSecret(c.Name))
	}
	if keys := objects.RestoreSecret(c.Name); j.o.Children.Secrets[keys] != nil { // pods that start again may name it
		must("Secret", keys)
	}
	if list := defaults.CRLSecret(c.Name); j.o.Children.Secrets[list] != nil { // as may one that is not seen yet
		must("Secret", list)
	}
	if c.Spec.NetworkPolicy.Mode != v1beta1.NetworkPolicyDisabled && c.Spec.HostNetwork == nil {
		must("NetworkPolicy", c.Name)
	}
}

// missing are the observed children that are not in an answer, such as "Pod demo-0".
func missing(o *observation.Observation, d *decision.Desired) []string {
	var list []string
	for _, k := range observation.Kinds {
		kept := map[string]bool{}
		for child := range k.Wanted(d) {
			kept[child.GetName()] = true
		}
		for child := range k.Observed(&o.Children) {
			if !kept[child.GetName()] {
				list = append(list, observation.ChildName(k.Kind, child))
			}
		}
	}
	return list
}

// Finalize is Verify of the answer while a cluster is being deleted (S17): it takes nothing away and makes nothing, and
// it waits only for claims that must be kept.
func Finalize(o observation.Observation, remaining decision.Desired, finalized bool) error {
	var broken []error
	add := func(format string, args ...any) { broken = append(broken, fmt.Errorf("S17: "+format, args...)) }
	for _, name := range missing(&o, &remaining) {
		add("%s goes before its owner", name)
	}
	for _, k := range observation.Kinds {
		for child := range k.Wanted(&remaining) {
			if !k.Sees(&o.Children, child.GetName()) {
				add("%s is made for a cluster that is being deleted", observation.ChildName(k.Kind, child))
			}
		}
	}
	owned := false
	for _, claim := range o.Children.Claims {
		owned = owned || claim.DeletionTimestamp == nil && slices.ContainsFunc(claim.OwnerReferences,
			func(r metav1.OwnerReference) bool { return r.UID == o.Cluster.UID })
	}
	retains := o.Cluster.Spec.DeletionPolicy != v1beta1.DeletionDelete
	if !finalized && !retains {
		add("the deletion is held up")
	}
	if finalized && retains && owned {
		add("the cluster goes, and takes claims along that must be kept")
	}
	return errors.Join(broken...)
}
