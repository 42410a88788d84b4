package answer

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// claimInspections look at the claims that a new cluster should begin with, until one is chosen.
func claimInspections(f *facts.Facts) []*corev1.Pod {
	c := f.FormerClaims()
	if c == nil || f.Replicas == 0 || f.RanBefore() || f.ChooseClaim(c).Chosen != nil {
		return nil
	}
	var pods []*corev1.Pod
	for place, of := range facts.VolumesOf(c) {
		name := f.ClaimInspection(place)
		switch old := f.LookedAt(place, of); {
		case old == nil && f.All.Pods[name] == nil:
			pods = append(pods, inspectPod(f, name, of))
		case old != nil && (!facts.SaysNothing(old) || f.Now.Sub(old.CreationTimestamp.Time) < facts.InspectAgain):
			pods = append(pods, facts.Kept(f.Cluster, old))
		}
	}
	return pods
}

// storeInspection looks into the store whose newest snapshot a new cluster should begin with, until that is decided.
func storeInspection(f *facts.Facts) []*corev1.Pod {
	l := f.LatestSnapshot()
	if l == nil || f.Replicas == 0 || f.RanBefore() || f.ChooseLatest(l).Decided {
		return nil
	}
	if why, _ := f.EarlierLife(); why != "" || !f.MayLook(l) {
		return nil
	}
	switch old := f.LooksIn(l); {
	case old == nil && f.All.Pods[f.LookPod()] == nil:
		return []*corev1.Pod{lookPod(f, l)}
	case old != nil && !f.LooksOnceMore(old):
		return []*corev1.Pod{facts.Kept(f.Cluster, old)}
	}
	return nil
}

// lookPod looks for the newest snapshot in a store, as a member's pod would reach it.
func lookPod(f *facts.Facts, l *v1beta1.LatestSnapshot) *corev1.Pod {
	access := stores.AccessTo(l.Store, l.ServiceAccountName, true)
	pod := inspectionPod(f, f.LookPod(), objects.ContainerInspect, f.LookArgs(l), access.Volumes, access.Mounts)
	pod.Spec.Containers[0].Env = access.Env
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure // the kubelet looks again, and nothing is written
	pod.Spec.ServiceAccountName = l.ServiceAccountName
	maps.Copy(pod.Labels, access.Labels)
	return pod
}

// inspectPods look at the survivors' volumes, while none is chosen.
func inspectPods(f *facts.Facts, plan *decision.Plan) []*corev1.Pod {
	if f.Epoch == nil {
		return append(claimInspections(f), storeInspection(f)...)
	}
	if f.Next == nil || f.Cancelled() || f.Next.Epoch.Source != record.SourceSurvivor {
		return nil
	}
	if f.Next.Epoch.Survivor != "" || plan.Record.Evidence != "" {
		return nil
	}
	if f.Ending() && f.Lingering() != "" {
		return nil
	}
	var pods []*corev1.Pod
	for _, name := range f.Survivors(f.Next.Epoch.SurvivorsOf) {
		switch old := f.All.Pods[name+facts.InspectSuffix]; {
		case old == nil:
			pods = append(pods, inspectPod(f, name+facts.InspectSuffix, survivorVolume(f, name)))
		case !f.ReportedNothing(old):
			pods = append(pods, facts.Kept(f.Cluster, old))
		}
	}
	return pods
}

func inspectPod(f *facts.Facts, name string, of record.FormerClaim) *corev1.Pod {
	volumes, mounts := mountsOf(of)
	return inspectionPod(f, name, objects.ContainerInspectData, facts.InspectArgs(of), volumes, mounts)
}

// inspectionPod runs quorate-snapshot once, in a container of this name.
func inspectionPod(f *facts.Facts, name, container string, args []string, volumes []corev1.Volume,
	mounts []corev1.VolumeMount) *corev1.Pod {
	s := &f.Cluster.Spec
	inspection := corev1.Container{
		Name: container, Image: f.Settings.Image, ImagePullPolicy: f.Settings.ImagePullPolicy,
		Command:                  []string{objects.SnapshotProgram},
		Args:                     args,
		SecurityContext:          objects.Restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                objects.Little(s.Resources.Limits),
		VolumeMounts:             mounts,
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: inspectLabels(f.Cluster),
			Annotations: objects.Annotations(f.Cluster, nil)},
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: new(false),
			EnableServiceLinks:           new(false),
			SecurityContext:              objects.PodSecurity(s.SecurityContext),
			ImagePullSecrets:             s.Image.PullSecrets,
			NodeSelector:                 s.NodeSelector,
			Tolerations:                  s.Tolerations,
			PriorityClassName:            s.PriorityClassName,
			Containers:                   []corev1.Container{inspection},
			Volumes:                      volumes,
		},
	}
}

// inspectLabels are not those of a member: neither Services nor budgets are meant.
func inspectLabels(c *v1beta1.EtcdCluster) map[string]string {
	all := objects.Labels(c, nil)
	delete(all, objects.LabelCluster)
	return all
}
