package hooks

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// The words of the scheduler and of the kubelet about a pod, as far as they are said again in a status: one line,
// bounded, without what a URL may hold in secret, and without what differs from one try to the next (S16). What
// whyNotServing a member is said by whyNotServing, in replacement.go, in every rule that waits for one.

// explainAll is what a message says of members that do not serve, after it has named them; empty for nothing.
func (v *view) explainAll(silent []*member) string {
	var all groupedReasons
	for _, m := range silent {
		if what := v.explain(m); what != "" {
			all.add(m.displayName(), what)
		}
	}
	return following(all)
}

// whyPodsNotServing is what a message says of the pods of these members while etcd's list is not known.
func (v *view) whyPodsNotServing(names []string) string {
	var all groupedReasons
	for _, name := range names {
		m := &member{name: name, pod: v.Children.Pods[name], health: v.Health[name]}
		for _, s := range v.Cluster.Status.Members {
			if id, err := strconv.ParseUint(s.ID, 16, 64); err == nil && s.Name == name {
				m.ID = id
			}
		}
		if what := v.whyNotServing(m); what != "" && !v.distrustsPeers(m.health) {
			all.add(name, what)
		}
	}
	return following(all)
}

func following(all groupedReasons) string {
	if len(all) == 0 {
		return ""
	}
	return "; " + all.String()
}

// withoutVolume says that a pod waits for the volumes of its claims, when the scheduler does; empty when it waits for
// something else.
func (v *view) withoutVolume(pod *corev1.Pod, scheduler string) string {
	if !strings.Contains(strings.ToLower(strings.ReplaceAll(scheduler, " ", "")), "persistentvolume") {
		return ""
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim := v.all.Claims[volume.PersistentVolumeClaim.ClaimName]
		if claim == nil || claim.Status.Phase != corev1.ClaimPending {
			continue
		}
		class := "the default storage class"
		if name := claim.Spec.StorageClassName; name != nil {
			class = "storage class " + *name
		}
		return fmt.Sprintf("; its claim has no volume of %s: `kubectl describe pvc -n %s -l %s=%s` tells why",
			class, v.Cluster.Namespace, objects.LabelCluster, v.Cluster.Name)
	}
	return ""
}

// endOf is how a container of the pod ended, and which, unless it is etcd's.
func endOf(pod *corev1.Pod, t *corev1.ContainerStateTerminated) string {
	words := fmt.Sprintf("exit %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" { // such as OOMKilled
		words += ", " + t.Reason
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if s.LastTerminationState.Terminated == t || s.State.Terminated == t {
			words += " of its init container " + s.Name
		}
	}
	return words
}
