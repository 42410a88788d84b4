package hooks

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// led: while blind, clients are led to no pod where another etcd answers or has, and to none that has come back
// otherwise than ready, and on what the record names for its member (S8).
func (j *judgement) led() {
	if j.v.Etcd != nil || j.v.epoch == nil || j.v.epoch.record == nil || !j.v.epoch.hadQuorum() {
		return
	}
	others := strings.Split(j.v.epoch.record.Annotations[objects.AnnotationMismatched], ",")
	for _, pod := range j.d.Children.Pods {
		if _, ours := objects.Ordinal(j.o.Cluster.Name, pod.Name); !ours || pod.Labels[objects.LabelRole] != "voter" {
			continue
		}
		h := j.o.Health[pod.Name]
		itself := h.MemberID == 0 || h.Err == "" && h.ClusterID == j.v.epoch.clusterID
		j.require(itself && !slices.Contains(others, pod.Name), "S8",
			"clients are led to %s, where another member answers or has", pod.Name)
		if old := j.o.Children.Pods[pod.Name]; old == nil || old.Labels[objects.LabelRole] != "voter" {
			j.require(old != nil && old.Labels[objects.LabelRole] != "fenced" && isReady(old), "S8",
				"clients are led to %s, which is fenced or not ready", pod.Name)
			j.onRecord(pod)
		}
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// onRecord: all that the pod stands on is what the record names for its member.
func (j *judgement) onRecord(pod *corev1.Pod) {
	recorded := strings.Split(j.v.epoch.record.Annotations[objects.AnnotationStartsOn], ",")
	var stands []string
	for _, name := range claimsIn(pod) {
		if claim := j.o.Children.Claims[name]; claim != nil && claim.DeletionTimestamp == nil {
			name += ":" + string(claim.UID)
		}
		stands = append(stands, name)
	}
	switch {
	case j.v.memory():
		stands = []string{pod.Name + ":" + string(pod.UID)}
	case onNodes(&j.o.Cluster.Spec):
		stands = []string{pod.Name + ":" + pinnedTo(pod)}
	}
	for _, on := range stands {
		j.require(slices.Contains(recorded, on), "S8",
			"clients are led to %s before it has answered, and the record does not name %s", pod.Name, on)
	}
	j.require(len(stands) > 0, "S8", "clients are led to %s before it has answered, and it stands on nothing", pod.Name)
}

// mismatched: the record goes on naming the members at whose addresses another etcd answers or has, until they
// answer themselves.
func (j *judgement) mismatched(old, now *epoch) {
	for _, name := range old.mismatched {
		m := j.v.find(name)
		over := j.v.Etcd != nil && (m == nil || m.serving() && !j.masked(name))
		j.require(over || slices.Contains(now.mismatched, name), "S8",
			"the record forgets that another member has answered as %s", name)
	}
	for _, m := range j.v.members {
		j.require(m.name == "" || !j.masked(m.name) || slices.Contains(now.mismatched, m.name), "S8",
			"the record does not name %s, where another member answers", m.name)
	}
}
