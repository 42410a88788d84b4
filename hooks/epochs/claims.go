package epochs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/reports"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// A new cluster may begin with claims that are there: of a cluster of ours that was deleted and left them, or of an
// etcd that was run otherwise. They are looked at before the first record is written, each by a pod of its own, since
// volumes may be on different nodes. The record names the one whose log is ahead, and the first member copies that.
// Nothing is written to any of them, so that the way back is open.
//
// Whatever was acknowledged is in the log of a majority of those whose votes counted. Of a majority, the log that is
// ahead has all of it. So fewer claims are refused, unless the spec accepts the loss. Who could vote is in the database
// and in the log behind it. A majority is asked by the last change of members that is known to be committed, by each
// later one, and of all members with learners: etcd 3.5.1 to 3.5.19 do not write promotions to the database
// (etcd-io/etcd#19557). An etcd that still runs on a volume holds a lock on its database, where locks reach it.
//
// Members that run on the old claims under their old IDs would need no copy, and would have no way back.

// formerClaims are what a new cluster should begin with; nil for something else.
func formerClaims(v *state.View) *v1alpha1.FormerClaims {
	if b := v.Cluster.Spec.Bootstrap; b != nil && BeginsWith(v) == nil && !spec.Joins(v.Cluster) {
		return b.Claims
	}
	return nil
}

// volumesOf are the claims, in the order of the spec.
func volumesOf(c *v1alpha1.FormerClaims) []record.FormerClaim {
	var list []record.FormerClaim
	for _, name := range c.Names {
		of := record.FormerClaim{Name: name, Path: cmp.Or(c.Path, defaultDataPath)}
		if c.WAL {
			of.WAL = name + spec.WALSuffix
		}
		list = append(list, of)
	}
	return list
}

// claimSurvey is the pod that looks at the claim of this place. Its name is that of a survey of a member, of which
// there is none yet.
func claimSurvey(v *state.View, place int, of record.FormerClaim) *corev1.Pod {
	return surveyPod(v, objects.MemberName(v.Cluster.Name, place)+SurveySuffix, of)
}

// lookedAt is the observed pod that looks at this claim; nil for none. One of an earlier spec looks at another.
func lookedAt(v *state.View, wanted *corev1.Pod) *corev1.Pod {
	old := v.All.Pods[wanted.Name]
	if old == nil || !slices.Equal(state.ClaimsIn(old), state.ClaimsIn(wanted)) {
		return nil
	}
	for i := range old.Spec.Containers {
		if c := &old.Spec.Containers[i]; c.Name == objects.ContainerSurvey &&
			slices.Equal(c.Args, wanted.Spec.Containers[0].Args) {
			return old
		}
	}
	return nil
}

// claimSurveys look at the claims that a new cluster should begin with, until one is chosen.
func claimSurveys(v *state.View) []*corev1.Pod {
	c := formerClaims(v)
	if c == nil || v.Replicas == 0 || state.RanBefore(v) || chooseClaim(v, c).chosen != nil {
		return nil
	}
	var pods []*corev1.Pod
	for place, of := range volumesOf(c) {
		wanted := claimSurvey(v, place, of)
		switch old := lookedAt(v, wanted); {
		case old == nil && v.All.Pods[wanted.Name] == nil:
			pods = append(pods, wanted)
		case old != nil && (!saysNothing(old) || v.Now.Sub(old.CreationTimestamp.Time) < SurveyAgain):
			pods = append(pods, state.Kept(v.Cluster, old))
		}
	}
	return pods
}

// saysNothing reports whether the pod has ended without a word of its volume.
func saysNothing(pod *corev1.Pod) bool { return state.Finished(pod) && surveyReport(pod) == nil }

// claimChoice is what is said of the claims that a new cluster should begin with.
type claimChoice struct {
	// chosen is nil while none is; evidence names it first.
	chosen            *record.FormerClaim
	evidence, message string
	outlook           rule.Outlook
}

// claimsKnown is what the pods have told of the claims.
type claimsKnown struct {
	best     *record.FormerClaim
	most     *reports.Survey
	evidence []string // one line for each that told something
	waits    []string
	stuck    bool // one of those that are waited for has said why it can't be read
	clusters []string
	members  []string // IDs of those that the claims are of
}

func chooseClaim(v *state.View, c *v1alpha1.FormerClaims) claimChoice {
	k := claimsAsTold(v, c)
	evidence := strings.Join(k.evidence, "; ")
	switch lacks := k.lacks(); {
	case len(k.waits) > 0:
		choice := claimChoice{message: "inspecting the claims " + strings.Join(k.waits, ", ")}
		if k.stuck {
			choice.outlook = rule.Waits
		}
		return choice
	case k.best == nil:
		return claimChoice{message: "no claim can be used: " + evidence + "; is spec.bootstrap.claims.path right?",
			outlook: rule.Waits}
	case len(k.clusters) > 1:
		return claimChoice{message: "the claims are of different etcd clusters: " + evidence +
			"; name those of one of them in spec.bootstrap.claims.names", outlook: rule.Waits}
	case lacks != "" && !c.WithoutQuorum:
		return claimChoice{message: lacks + "; name their claims in spec.bootstrap.claims.names too, or set " +
			"spec.bootstrap.claims.withoutQuorum to true: then what only they have is lost; " + evidence,
			outlook: rule.Waits}
	}
	i := slices.IndexFunc(k.evidence, func(e string) bool { return strings.HasPrefix(e, k.best.Name+":") })
	k.evidence[0], k.evidence[i] = k.evidence[i], k.evidence[0]
	return claimChoice{chosen: k.best, evidence: strings.Join(k.evidence, "; ")}
}

func claimsAsTold(v *state.View, c *v1alpha1.FormerClaims) claimsKnown {
	var k claimsKnown
	for place, of := range volumesOf(c) {
		pod := lookedAt(v, claimSurvey(v, place, of))
		report := (*reports.Survey)(nil)
		if pod != nil {
			report = surveyReport(pod)
		}
		switch {
		case report == nil:
			k.waits = append(k.waits, of.Name+whyNotReported(v, pod))
			k.stuck = k.stuck || pod != nil && saysNothing(pod)
			continue
		case report.Error != "":
			k.evidence = append(k.evidence, fmt.Sprintf("%s: %s", of.Name, report.Error))
			continue
		}
		k.evidence = append(k.evidence, fmt.Sprintf("%s: term %d, index %d, of etcd cluster %s", of.Name,
			report.LastTerm, report.LastIndex, report.ClusterID))
		k.members = append(k.members, report.MemberID)
		if !slices.Contains(k.clusters, report.ClusterID) {
			k.clusters = append(k.clusters, report.ClusterID)
		}
		if k.best == nil || ahead(report, k.most) {
			k.best, k.most = &of, report
		}
	}
	return k
}

// lacks says which members' claims are missing for a quorum; empty for none.
func (k *claimsKnown) lacks() string {
	if k.most == nil {
		return ""
	}
	if len(k.most.Electorates) == 0 {
		return fmt.Sprintf("the claim %s does not tell who the members were", k.best.Name)
	}
	for _, electorate := range k.most.Electorates {
		absent := wording.Filter(electorate, func(id string) bool { return !slices.Contains(k.members, id) })
		if there := len(electorate) - len(absent); there < state.Quorum(len(electorate)) {
			names := slices.Clone(absent)
			for i, id := range absent {
				names[i] = cmp.Or(k.most.Members[id], id)
			}
			slices.Sort(names)
			return fmt.Sprintf("the claims are of %d of the %d former members, which is no quorum, and those of %s "+
				"are missing", there, len(electorate), strings.Join(names, ", "))
		}
	}
	return ""
}

// beginningWithClaims is where the data comes from when it comes from claims, or what that waits for.
func beginningWithClaims(v *state.View, from record.Origin) (record.Origin, string) {
	c := formerClaims(v)
	if c == nil {
		return from, ""
	}
	choice := chooseClaim(v, c)
	if choice.chosen != nil {
		from.Source, from.Claim, from.Bump = record.SourceClaims, choice.chosen, c.BumpRevision
	}
	return from, choice.message
}

// ClaimsOutlook is whether the claims that a new cluster should begin with can be used without a person; empty when
// there are none.
func ClaimsOutlook(v *state.View) rule.Outlook {
	c := formerClaims(v)
	if c == nil {
		return ""
	}
	return cmp.Or(chooseClaim(v, c).outlook, rule.Works)
}

// claimsRecord is the first record of a cluster that begins with a claim. Its one member has a number above those that
// the claims may be named by: they may be of a cluster of the same name.
func claimsRecord(v *state.View) record.Record {
	first := aboveRemains(v)
	c := formerClaims(v)
	for _, name := range c.Names {
		member, _ := state.MemberOfClaim(v.Cluster.Name, name)
		if n, ours := objects.Ordinal(v.Cluster.Name, member); ours {
			first = max(first, n+1)
		}
	}
	r := state.NewRecord(v, first, 1)
	r.Chosen(chooseClaim(v, c).evidence)
	return r
}
