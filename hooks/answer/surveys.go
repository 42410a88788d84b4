package answer

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// claimSurveys look at the claims that a new cluster should begin with, until one is chosen.
func claimSurveys(v *facts.Facts) []*corev1.Pod {
	c := v.FormerClaims()
	if c == nil || v.Replicas == 0 || v.RanBefore() || v.ChooseClaim(c).Chosen != nil {
		return nil
	}
	var pods []*corev1.Pod
	for place, of := range facts.VolumesOf(c) {
		name := v.ClaimSurvey(place)
		switch old := v.LookedAt(place, of); {
		case old == nil && v.All.Pods[name] == nil:
			pods = append(pods, surveyPod(v, name, of))
		case old != nil && (!facts.SaysNothing(old) || v.Now.Sub(old.CreationTimestamp.Time) < facts.SurveyAgain):
			pods = append(pods, facts.Kept(v.Cluster, old))
		}
	}
	return pods
}

// SurveyPods look at the survivors' volumes, while none is chosen.
func surveyPods(v *facts.Facts, plan *decision.Plan) []*corev1.Pod {
	if v.Epoch == nil {
		return claimSurveys(v)
	}
	if v.Next == nil || v.Cancelled() || v.Next.Epoch.Source != record.SourceSurvivor || v.Next.Epoch.Survivor != "" ||
		plan.Record.Evidence != "" {
		return nil
	}
	if v.Ending() && v.Lingering() != "" {
		return nil
	}
	var pods []*corev1.Pod
	for _, name := range v.Survivors(v.Next.Epoch.SurvivorsOf) {
		switch old := v.All.Pods[name+facts.SurveySuffix]; {
		case old == nil:
			pods = append(pods, surveyPod(v, name+facts.SurveySuffix, survivorVolume(v, name)))
		case !v.ReportedNothing(old):
			pods = append(pods, facts.Kept(v.Cluster, old))
		}
	}
	return pods
}

func surveyPod(v *facts.Facts, name string, of record.FormerClaim) *corev1.Pod {
	s := &v.Cluster.Spec
	volumes, mounts := mountsOf(of)
	survey := corev1.Container{
		Name: objects.ContainerSurvey, Image: v.Settings.Image, ImagePullPolicy: v.Settings.ImagePullPolicy,
		Command:                  []string{objects.SnapshotProgram},
		Args:                     facts.SurveyArgs(of),
		SecurityContext:          objects.Restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                objects.Little(s.Resources.Limits),
		VolumeMounts:             mounts,
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: surveyLabels(v.Cluster),
			Annotations: objects.Annotations(v.Cluster, nil)},
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: new(false),
			EnableServiceLinks:           new(false),
			SecurityContext:              objects.PodSecurity(s.SecurityContext),
			ImagePullSecrets:             s.Image.PullSecrets,
			NodeSelector:                 s.NodeSelector,
			Tolerations:                  s.Tolerations,
			PriorityClassName:            s.PriorityClassName,
			Containers:                   []corev1.Container{survey},
			Volumes:                      volumes,
		},
	}
}

// surveyLabels are not those of a member: neither Services nor budgets are meant.
func surveyLabels(c *v1alpha1.EtcdCluster) map[string]string {
	all := objects.Labels(c, nil)
	delete(all, objects.LabelCluster)
	return all
}
