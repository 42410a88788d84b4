package epochs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/reports"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// SurveySuffix makes the name of the pod that looks at a member's volumes.
const SurveySuffix = "-survey"

// SurvivorChoice is what is said of the volumes of all survivors. With evidence one is chosen: that, which names it
// first, is for the record.
type SurvivorChoice struct {
	message, evidence string
	Outlook           rule.Outlook
}

// ChooseSurvivor notes on the record whose log is ahead, once that is known.
func ChooseSurvivor(v *state.View) *decision.Verdict {
	c := BestSurvivor(v)
	if c.evidence == "" {
		return &decision.Verdict{Message: c.message, Outlook: c.Outlook, Resync: rule.ResyncLater}
	}
	return &decision.Verdict{Message: c.message, Survivor: c.evidence, Resync: rule.ResyncSoon}
}

// BestSurvivor has a look at the volumes of all survivors, and takes the one whose log is ahead.
//
// One that can't be reached may be ahead of all others. So it is waited for, longer than Kubernetes takes to detach a
// volume from a dead node; then for a person, unless those that were reached are a majority of the voters: whatever
// was acknowledged is on one of these.
func BestSurvivor(v *state.View) SurvivorChoice {
	of := Survivors(v, v.Next.Epoch.SurvivorsOf)
	if len(of) == 0 {
		return SurvivorChoice{message: fmt.Sprintf("no volume of epoch %d is left to begin epoch %d with%s",
			v.Next.Epoch.SurvivorsOf, v.Next.Epoch.N, WithoutGivenUp(v, v.Next.Epoch.SurvivorsOf)) + Ways(v),
			Outlook: rule.Waits}
	}
	s := surveyOf(v, of)
	switch evidence := strings.Join(s.evidence, "; "); {
	case len(s.waits) > 0:
		return SurvivorChoice{message: fmt.Sprintf("inspecting the volumes of %s", strings.Join(s.waits, ", "))}
	case s.best == "":
		return SurvivorChoice{message: "no volume can be used: " + evidence + Ways(v), Outlook: rule.Waits}
	case s.mixed:
		return SurvivorChoice{
			message: fmt.Sprintf("the volumes are of different etcd clusters, and nothing records which one epoch %d "+
				"was: %s; %s", v.Next.Epoch.SurvivorsOf, evidence,
				discount(v, "those to leave out", "<name>")), Outlook: rule.Waits}
	case len(s.unreached) > 0 && !goesOnWithout(v, &s):
		return SurvivorChoice{message: fmt.Sprintf("%s may have the newest data, and could not be reached within %s: "+
			"bring its node or volume back; %s; %s",
			strings.Join(s.unreached, ", "), wording.Brief(SurveyFor(v)), discount(v, "it",
				strings.Join(s.unreached, " pvc/")),
			evidence), Outlook: rule.Waits}
	}
	i := slices.IndexFunc(s.evidence, func(e string) bool { return strings.HasPrefix(e, s.best+":") })
	s.evidence[0], s.evidence[i] = s.evidence[i], s.evidence[0]
	evidence := strings.Join(s.evidence, "; ")
	return SurvivorChoice{message: fmt.Sprintf("%s has the newest data (%s)", s.best, evidence), evidence: evidence}
}

// survey is what is known of the volumes of survivors.
type survey struct {
	// best has the most of those that can be used, most is what it has; empty for none.
	best string
	most reports.Survey
	// reported have told what they hold, waits may still do so, and unreached were waited for long enough.
	reported, waits, unreached []string
	evidence                   []string
	// mixed: they are of several clusters, and which one it was is not known.
	mixed bool
}

func surveyOf(v *state.View, of []string) survey {
	var s survey
	known, clusters := clusterIDOf(v, v.Next.Epoch.SurvivorsOf), map[string]bool{}
	for _, name := range of {
		report, late := surveyed(v, name)
		switch {
		case report == nil && !late:
			s.waits = append(s.waits, name)
		case report == nil:
			s.unreached = append(s.unreached, name)
			s.evidence = append(s.evidence, fmt.Sprintf("%s: its volume could not be reached within %s%s", name,
				wording.Brief(SurveyFor(v)), whyNotReported(v, v.All.Pods[name+SurveySuffix])))
		case report.Error != "":
			s.evidence = append(s.evidence, fmt.Sprintf("%s: %s", name, report.Error))
		case known != 0 && report.ClusterID != wording.Hex(known):
			s.evidence = append(s.evidence, fmt.Sprintf("%s: its volume is of another etcd cluster, %s instead of "+
				"%s, and does not count", name, report.ClusterID, wording.Hex(known)))
		default:
			s.reported = append(s.reported, name)
			clusters[report.ClusterID] = true
			s.evidence = append(s.evidence, fmt.Sprintf("%s: term %d, index %d", name, report.LastTerm,
				report.LastIndex))
			if s.best == "" || ahead(report, &s.most) {
				s.best, s.most = name, *report
			}
		}
	}
	if s.mixed = len(clusters) > 1; s.mixed && len(s.waits) == 0 {
		nameClusters(v, &s, of)
	}
	for _, name := range wording.Filter(membersWithVolumes(v, v.Next.Epoch.SurvivorsOf),
		func(member string) bool { return givenUp(v, member) }) {
		s.evidence = append(s.evidence, name+": was replaced before, and does not count")
	}
	return s
}

// nameClusters has the evidence say of which etcd cluster each volume is. There is one line for each of them.
func nameClusters(v *state.View, s *survey, of []string) {
	for i, name := range of {
		if report, _ := surveyed(v, name); report != nil && report.Error == "" {
			s.evidence[i] += ", of etcd cluster " + report.ClusterID
		}
	}
}

// goesOnWithout reports whether the next epoch begins although a volume was not reached: a majority of the voters has
// told what it has. Else a person says so, on the claim: who asked for a survivor did not know yet which one can't be
// reached.
func goesOnWithout(v *state.View, s *survey) bool {
	voters := pastOf(v, v.Next.Epoch.SurvivorsOf).Voters
	reported := wording.Filter(voters,
		func(n int) bool { return slices.Contains(s.reported, objects.MemberName(v.Cluster.Name, n)) })
	return len(voters) > 0 && len(reported) >= state.Quorum(len(voters))
}

// discount is what a person does so that volumes do not count.
func discount(v *state.View, which, claims string) string {
	return fmt.Sprintf("to continue without %s, kubectl annotate -n %s pvc/%s %s=true", which, v.Cluster.Namespace,
		claims,
		objects.AnnotationFailedMember)
}

// ahead compares logs as raft does in elections: one that is not behind has everything that a quorum has acknowledged,
// if any here has.
func ahead(a, b *reports.Survey) bool {
	return a.LastTerm > b.LastTerm || a.LastTerm == b.LastTerm && a.LastIndex > b.LastIndex
}

// SurveyAtLeast is how long a volume is waited for that can't be reached: kube-controller-manager detaches it from a
// dead node after 6 minutes (maxWaitForUnmountDuration in its attachdetach controller), and attaching it elsewhere
// takes time, too.
const SurveyAtLeast = 10 * time.Minute

// SurveyFor is how long a volume is waited for.
func SurveyFor(v *state.View) time.Duration {
	return max(SurveyAtLeast, spec.RecoverAfter(&v.Cluster.Spec))
}

// SurveyAgain is how long a pod that has ended without a word of its volume is left before it is made again.
const SurveyAgain = 30 * time.Second

// surveyed is what a look at the member's volumes has told; nil for nothing yet, and late when that was waited for
// long enough. Only a volume that was read and has nothing whole tells that it does not count: a pod that was killed,
// or could not read what is there, says nothing of it.
func surveyed(v *state.View, name string) (report *reports.Survey, late bool) {
	if report := surveyReport(v.All.Pods[name+SurveySuffix]); report != nil {
		return report, false
	}
	return nil, state.Observed(v, SurveyedSince(v)) >= SurveyFor(v)
}

// surveyReport is what the pod has told of its volume; nil for nothing.
func surveyReport(pod *corev1.Pod) *reports.Survey {
	t := SurveyEnd(pod)
	if t == nil {
		return nil
	}
	report, err := reports.Read[reports.Survey](t.Message)
	if err != nil || report.Error == "" && report.ClusterID == "" || report.Error != "" && report.Reason != "Damaged" &&
		report.Reason != "NotFound" {
		return nil
	}
	return report
}

// SurveyEnd is how the container of the pod has ended; nil when it has not, or nothing tells.
func SurveyEnd(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	return objects.StatusOf(pod, objects.ContainerSurvey).State.Terminated
}

// SurveyedSince is since when the volumes could be looked at: since the next epoch was recorded, and the volumes of the
// one before were put in quarantine. A pod that is made again does not begin the wait again.
func SurveyedSince(v *state.View) time.Time {
	since := v.Next.Epoch.Record.CreationTimestamp.Time
	for name, claim := range v.All.Claims {
		if _, ours := state.MemberOfClaim(v.Cluster.Name, name); !ours || !v.Ours(claim) {
			continue
		}
		if at, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined]); err == nil &&
			at.After(since) {
			since = at
		}
	}
	return since
}

// whyNotReported is why a pod has not told anything of its volume, in brackets; empty for nothing known.
func whyNotReported(v *state.View, pod *corev1.Pod) string {
	if pod == nil || !state.Finished(pod) {
		return WhyNotStarted(v, pod)
	}
	why := pod.Status.Reason
	if t := SurveyEnd(pod); t != nil {
		why = cmp.Or(t.Reason, fmt.Sprintf("exit %d", t.ExitCode))
		if report, err := reports.Read[reports.Survey](t.Message); err == nil && report.Error != "" {
			why = report.Error
		}
	}
	return " (its pod has ended: " + cmp.Or(why, "Failed") + ")"
}

// reportedNothing reports whether a pod has ended without a word of its volume, and should be made again: soon, and
// rarely once all were waited for long enough.
func reportedNothing(v *state.View, pod *corev1.Pod) bool {
	if !state.Finished(pod) || surveyReport(pod) != nil {
		return false
	}
	after := SurveyAgain
	if state.Observed(v, SurveyedSince(v)) >= SurveyFor(v) {
		after = SurveyFor(v)
	}
	return v.Now.Sub(pod.CreationTimestamp.Time) >= after
}

// SurveyPods look at the survivors' volumes, while none is chosen.
func SurveyPods(v *state.View, verdict *decision.Verdict) []*corev1.Pod {
	if v.Epoch == nil {
		return claimSurveys(v)
	}
	if v.Next == nil || Cancelled(v) || v.Next.Epoch.Source != record.SourceSurvivor || v.Next.Epoch.Survivor != "" ||
		verdict.Survivor != "" {
		return nil
	}
	if v.Ending() && Lingering(v) != "" {
		return nil
	}
	var pods []*corev1.Pod
	for _, name := range Survivors(v, v.Next.Epoch.SurvivorsOf) {
		switch old := v.All.Pods[name+SurveySuffix]; {
		case old == nil:
			pods = append(pods, surveyPod(v, name+SurveySuffix, survivorVolume(v, name)))
		case !reportedNothing(v, old):
			pods = append(pods, state.Kept(v.Cluster, old))
		}
	}
	return pods
}

func surveyPod(v *state.View, name string, of record.FormerClaim) *corev1.Pod {
	s := &v.Cluster.Spec
	data, wal, volumes, mounts := mountsOf(of)
	survey := corev1.Container{
		Name: objects.ContainerSurvey, Image: v.Settings.Image, ImagePullPolicy: v.Settings.ImagePullPolicy,
		Command:                  []string{objects.SnapshotProgram},
		Args:                     []string{"survey", "--data-dir=" + data},
		SecurityContext:          objects.Restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                objects.Little(s.Resources.Limits),
		VolumeMounts:             mounts,
	}
	if wal != "" {
		survey.Args = append(survey.Args, "--wal-dir="+wal)
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
