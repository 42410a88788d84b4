package safety

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// led: while blind, clients are led to no pod where another etcd answers or has, and to none that has come back
// otherwise than ready, and on what the record names for its member (S8).
func led(j *judgement) {
	if j.f.Etcd != nil || j.f.Epoch == nil || j.f.Epoch.Record == nil || !j.f.Epoch.HadQuorum() {
		return
	}
	others := j.f.Epoch.Mismatched
	for _, pod := range j.d.Children.Pods {
		if _, ours := objects.Ordinal(j.o.Cluster.Name, pod.Name); !ours || pod.Labels[objects.LabelRole] != "voter" {
			continue
		}
		h := j.o.Health[pod.Name]
		itself := h.MemberID == 0 || h.Err == "" && h.ClusterID == j.f.Epoch.ClusterID
		j.require(itself && !slices.Contains(others, pod.Name), "S8",
			"clients are led to %s, where another member answers or has", pod.Name)
		if old := j.o.Children.Pods[pod.Name]; old == nil || old.Labels[objects.LabelRole] != "voter" {
			j.require(old != nil && old.Labels[objects.LabelRole] != "fenced" && isReady(old), "S8",
				"clients are led to %s, which is fenced or not ready", pod.Name)
			onRecord(j, pod)
		}
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// onRecord: all that the pod's data is on is what the record names for its member.
func onRecord(j *judgement, pod *corev1.Pod) {
	stands := map[string]types.UID{}
	switch {
	case j.f.Memory():
		stands[pod.Name] = pod.UID
	case defaults.OnNodes(&j.o.Cluster.Spec):
		stands[pod.Name] = types.UID(facts.PinnedTo(pod))
	default:
		for _, name := range facts.OwnClaims(j.o.Cluster.Name, pod) {
			stands[name] = ""
			if claim := j.o.Children.Claims[name]; claim != nil && claim.DeletionTimestamp == nil {
				stands[name] = claim.UID
			}
		}
	}
	for name, on := range stands {
		j.require(on != "" && j.f.Epoch.StartsOn[name] == on, "S8",
			"clients are led to %s before it has answered, and the record does not name %s", pod.Name, name)
	}
	j.require(len(stands) > 0, "S8", "clients are led to %s before it has answered, and it stands on nothing", pod.Name)
}

// mismatched: the record goes on naming the members at whose addresses another etcd answers or has, until they
// answer themselves.
func mismatched(j *judgement, old, now *facts.Epoch) {
	for _, name := range old.Mismatched {
		m := j.f.Find(name)
		over := j.f.Etcd != nil && (m == nil || m.Answers() && !masked(j, name))
		j.require(over || slices.Contains(now.Mismatched, name), "S8",
			"the record forgets that another member has answered as %s", name)
	}
	for _, m := range j.f.Members {
		j.require(m.PodName == "" || !masked(j, m.PodName) || slices.Contains(now.Mismatched, m.PodName), "S8",
			"the record does not name %s, where another member answers", m.PodName)
	}
}

// ledAway: clients are led away from a voter that serves only while another one has them (S2).
func ledAway(j *judgement) {
	has := func(pod *corev1.Pod) bool { return pod != nil && pod.Labels[objects.LabelRole] == "voter" }
	for _, pod := range j.d.Children.Pods {
		if pod.Labels[objects.LabelRole] != "leaving" || !has(j.o.Children.Pods[pod.Name]) {
			continue
		}
		j.require(slices.ContainsFunc(j.d.Children.Pods, func(other *corev1.Pod) bool {
			old := j.o.Children.Pods[other.Name]
			return has(other) && has(old) && isReady(old)
		}), "S2", "clients are led away from %s, and to no one else", pod.Name)
	}
}

// guarded: in an epoch that began with data, clients are led to no pod for the first time before users and roles of the
// spec are applied, if it asks for auth: they may not be in the data (S20).
func guarded(j *judgement) {
	s := &j.o.Cluster.Spec
	if s.Auth == nil || !s.Auth.Enabled || s.SelfHosted || j.f.Epoch == nil {
		return
	}
	for _, f := range []*facts.Facts{j.f, j.f.Next} {
		if f == nil || f.Epoch.Source == record.SourceEmpty || f.Epoch.Source == record.SourceExternal || authApplied(f) {
			continue
		}
		for _, pod := range j.d.Children.Pods {
			old := j.o.Children.Pods[pod.Name]
			first := old == nil || old.Labels[objects.LabelRole] == ""
			j.require(!f.InEpoch(pod.Name) || !first || pod.Labels[objects.LabelRole] != "voter", "S20",
				"clients are led to %s before users and roles are applied to the data of epoch %d", pod.Name, f.Epoch.N)
		}
	}
}

// authApplied: the status says of this epoch's etcd what was applied, or this call has done it.
func authApplied(f *facts.Facts) bool {
	if f.Taken != nil && f.Taken.Err == "" {
		if _, did := f.Taken.Step.(decision.Authorize); did {
			return true
		}
	}
	has := f.Cluster.Status.Auth
	return has != nil && f.Epoch.HadQuorum() && has.ClusterID == objects.Hex(f.Epoch.ClusterID) &&
		f.Cluster.Status.Internal.AppliedAuth != ""
}
