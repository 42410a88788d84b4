package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// InspectSuffix makes the name of the pod that looks at a member's volumes.
const InspectSuffix = "-inspect"

// SurvivorChoice is what is said of the volumes of all survivors. With evidence one is chosen: that, which names it
// first, is for the record.
type SurvivorChoice struct {
	Message, Evidence string
	Outlook           decision.Outlook
}

// BestSurvivor has a look at the volumes of all survivors, and takes the one whose log is ahead.
//
// One that can't be reached may be ahead of all others. So it is waited for, longer than Kubernetes takes to detach a
// Volume from a dead node; then for a person, unless those that were reached are a majority of the voters: whatever
// was acknowledged is on one of these.
func (f *Facts) BestSurvivor() SurvivorChoice {
	of := f.Survivors(f.Next.Epoch.SurvivorsOf)
	if len(of) == 0 {
		return SurvivorChoice{Message: fmt.Sprintf("no volume of epoch %d is left to begin epoch %d with%s",
			f.Next.Epoch.SurvivorsOf, f.Next.Epoch.N, f.WithoutReplaced(f.Next.Epoch.SurvivorsOf)) + f.Ways(),
			Outlook: decision.Waits}
	}
	s := f.inspectOf(of)
	switch evidence := strings.Join(s.evidence, "; "); {
	case len(s.waits) > 0:
		return SurvivorChoice{Message: fmt.Sprintf("inspecting the volumes of %s", strings.Join(s.waits, ", "))}
	case s.best == "":
		return SurvivorChoice{Message: "no volume can be used: " + evidence + f.Ways(), Outlook: decision.Waits}
	case s.mixed:
		return SurvivorChoice{
			Message: fmt.Sprintf("the volumes are of different etcd clusters, and nothing records which one epoch %d "+
				"was: %s; %s", f.Next.Epoch.SurvivorsOf, evidence,
				f.discount("those to leave out", "<name>")), Outlook: decision.Waits}
	case len(s.unreached) > 0 && !f.goesOnWithout(&s):
		return SurvivorChoice{Message: fmt.Sprintf("%s may have the newest data, and could not be reached within %s: "+
			"bring its node or volume back; %s; %s",
			strings.Join(s.unreached, ", "), objects.Brief(f.InspectFor()), f.discount("it",
				strings.Join(s.unreached, " pvc/")),
			evidence), Outlook: decision.Waits}
	}
	i := slices.IndexFunc(s.evidence, func(e string) bool { return strings.HasPrefix(e, s.best+":") })
	s.evidence[0], s.evidence[i] = s.evidence[i], s.evidence[0]
	evidence := strings.Join(s.evidence, "; ")
	return SurvivorChoice{Message: fmt.Sprintf("%s has the newest data (%s)", s.best, evidence), Evidence: evidence}
}

// inspection is what is known of the volumes of survivors.
type inspection struct {
	// best has the most of those that can be used, most is what it has; empty for none.
	best string
	most stores.Inspection
	// reported have told what they hold, waits may still do so, and unreached were waited for long enough.
	reported, waits, unreached []string
	evidence                   []string
	// mixed: they are of several clusters, and which one it was is not known.
	mixed bool
}

func (f *Facts) inspectOf(of []string) inspection {
	var s inspection
	known := f.clusterIDOf(f.Next.Epoch.SurvivorsOf)
	clusters := map[string]bool{}
	for _, name := range of {
		report, late := f.inspected(name)
		switch {
		case report == nil && !late:
			s.waits = append(s.waits, name)
		case report == nil:
			s.unreached = append(s.unreached, name)
			s.evidence = append(s.evidence, fmt.Sprintf("%s: its volume could not be reached within %s%s", name,
				objects.Brief(f.InspectFor()), f.whyNotReported(f.All.Pods[name+InspectSuffix])))
		case report.Error != "":
			s.evidence = append(s.evidence, fmt.Sprintf("%s: %s", name, report.Error))
		case known != 0 && report.ClusterID != objects.Hex(known):
			s.evidence = append(s.evidence, fmt.Sprintf("%s: its volume is of another etcd cluster, %s instead of "+
				"%s, and does not count", name, report.ClusterID, objects.Hex(known)))
		default:
			s.reported = append(s.reported, name)
			clusters[report.ClusterID] = true
			s.evidence = append(s.evidence, fmt.Sprintf("%s: term %d, index %d", name, report.LastTerm,
				report.LastIndex))
			if s.best == "" || ahead(report, &s.most) {
				s.best = name
				s.most = *report
			}
		}
	}
	if s.mixed = len(clusters) > 1; s.mixed && len(s.waits) == 0 {
		f.nameClusters(&s, of)
	}
	for _, name := range objects.Filter(f.membersWithVolumes(f.Next.Epoch.SurvivorsOf),
		func(member string) bool { return f.givenUp(member) }) {
		s.evidence = append(s.evidence, name+": was replaced before, and does not count")
	}
	return s
}

// nameClusters has the evidence say of which etcd cluster each volume is. There is one line for each of them.
func (f *Facts) nameClusters(s *inspection, of []string) {
	for i, name := range of {
		if report, _ := f.inspected(name); report != nil && report.Error == "" {
			s.evidence[i] += ", of etcd cluster " + report.ClusterID
		}
	}
}

// goesOnWithout reports whether the next epoch begins although a volume was not reached: a majority of the voters has
// told what it has. Else a person says so, on the claim: who asked for a survivor did not know yet which one can't be
// reached.
func (f *Facts) goesOnWithout(s *inspection) bool {
	voters := f.pastOf(f.Next.Epoch.SurvivorsOf).Voters
	reported := objects.Filter(voters,
		func(n int) bool { return slices.Contains(s.reported, objects.MemberName(f.Cluster.Name, n)) })
	return len(voters) > 0 && len(reported) >= Quorum(len(voters))
}

// discount is what a person does so that volumes do not count.
func (f *Facts) discount(which, claims string) string {
	return fmt.Sprintf("to continue without %s, kubectl annotate -n %s pvc/%s %s=true", which, f.Cluster.Namespace,
		claims,
		objects.AnnotationFailedMember)
}

// ahead compares logs as raft does in elections: one that is not behind has everything that a quorum has acknowledged,
// if any here has.
func ahead(a, b *stores.Inspection) bool {
	return a.LastTerm > b.LastTerm || a.LastTerm == b.LastTerm && a.LastIndex > b.LastIndex
}

// InspectAtLeast is how long a volume is waited for that can't be reached: kube-controller-manager detaches it from a
// dead node after 6 minutes (maxWaitForUnmountDuration in its attachdetach controller), and attaching it elsewhere
// takes time, too.
const InspectAtLeast = 10 * time.Minute

// InspectFor is how long a volume is waited for.
func (f *Facts) InspectFor() time.Duration {
	return max(InspectAtLeast, defaults.RecoverAfter(&f.Cluster.Spec))
}

// InspectAgain is how long a pod that has ended without a word of its volume is left before it is made again.
const InspectAgain = 30 * time.Second

// inspected is what a look at the member's volumes has told; nil for nothing yet, and late when that was waited for
// long enough. Only a volume that was read and has nothing whole tells that it does not count: a pod that was killed,
// or could not read what is there, says nothing of it.
func (f *Facts) inspected(name string) (report *stores.Inspection, late bool) {
	if report := inspectReport(f.All.Pods[name+InspectSuffix]); report != nil {
		return report, false
	}
	return nil, f.Observed(f.InspectedSince()) >= f.InspectFor()
}

// inspectReport is what the pod has told of its volume; nil for nothing.
func inspectReport(pod *corev1.Pod) *stores.Inspection {
	t := InspectEnd(pod)
	if t == nil {
		return nil
	}
	report, err := stores.Read[stores.Inspection](t.Message)
	if err != nil {
		return nil
	}
	lasts := report.Reason == "Damaged" || report.Reason == "NotFound"
	if report.Error != "" && !lasts || report.Error == "" && report.ClusterID == "" {
		return nil
	}
	return report
}

// InspectEnd is how the container of the pod has ended; nil when it has not, or nothing tells.
func InspectEnd(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	return objects.StatusOf(pod, objects.ContainerInspectData).State.Terminated
}

// InspectedSince is since when the volumes could be looked at: since the next epoch was recorded, and the volumes of
// the one before were put in quarantine. A pod that is made again does not begin the wait again.
func (f *Facts) InspectedSince() time.Time {
	since := f.Next.Epoch.Record.CreationTimestamp.Time
	for name, claim := range f.All.Claims {
		if _, ours := MemberOfClaim(f.Cluster.Name, name); !ours || !f.Ours(claim) {
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
func (f *Facts) whyNotReported(pod *corev1.Pod) string {
	if pod == nil || !Finished(pod) {
		return f.WhyNotStarted(pod)
	}
	why := pod.Status.Reason
	if t := InspectEnd(pod); t != nil {
		why = cmp.Or(t.Reason, fmt.Sprintf("exit %d", t.ExitCode))
		if report, err := stores.Read[stores.Inspection](t.Message); err == nil && report.Error != "" {
			why = report.Error
		}
	}
	return " (its pod has ended: " + cmp.Or(why, "Failed") + ")"
}

// ReportedNothing reports whether a pod has ended without a word of its volume, and should be made again: soon, and
// rarely once all were waited for long enough.
func (f *Facts) ReportedNothing(pod *corev1.Pod) bool {
	if !Finished(pod) || inspectReport(pod) != nil {
		return false
	}
	after := InspectAgain
	if f.Observed(f.InspectedSince()) >= f.InspectFor() {
		after = f.InspectFor()
	}
	return f.Now.Sub(pod.CreationTimestamp.Time) >= after
}

// InspectArgs have an inspection look at this volume.
func InspectArgs(of record.FormerClaim) []string {
	args := []string{"inspect-data", "--data-dir=" + DataIn(of)}
	if wal := WALIn(of); wal != "" {
		args = append(args, "--wal-dir="+wal)
	}
	return args
}
