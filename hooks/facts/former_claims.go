package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/stores"
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

// FormerClaims are what a new cluster should begin with; nil for something else.
func (f *Facts) FormerClaims() *v1beta1.FormerClaims {
	if b := f.Cluster.Spec.Bootstrap; b != nil && f.BeginsWith() == nil && !defaults.Joins(f.Cluster) {
		return b.Claims
	}
	return nil
}

// VolumesOf are the claims, in the order of the spec.
func VolumesOf(c *v1beta1.FormerClaims) []record.FormerClaim {
	var list []record.FormerClaim
	for _, name := range c.Names {
		of := record.FormerClaim{Name: name, Path: cmp.Or(c.Path, DefaultDataPath)}
		if c.WAL {
			of.WAL = name + defaults.WALSuffix
		}
		list = append(list, of)
	}
	return list
}

// ClaimInspection is the name of the pod that looks at the claim of this place: that of an inspection of a member, of
// which there is none yet.
func (f *Facts) ClaimInspection(place int) string {
	return objects.MemberName(f.Cluster.Name, place) + InspectSuffix
}

// LookedAt is the observed pod that looks at the claim of this place; nil for none. One of an earlier spec looks at
// another.
func (f *Facts) LookedAt(place int, of record.FormerClaim) *corev1.Pod {
	old := f.All.Pods[f.ClaimInspection(place)]
	if old == nil || !slices.Equal(ClaimsIn(old), claimsOf(of)) {
		return nil
	}
	looks := slices.ContainsFunc(old.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == objects.ContainerInspectData && slices.Equal(c.Args, InspectArgs(of))
	})
	if !looks {
		return nil
	}
	return old
}

// claimsOf are the claims of a volume that is looked at.
func claimsOf(of record.FormerClaim) []string {
	if of.WAL == "" {
		return []string{of.Name}
	}
	return []string{of.Name, of.WAL}
}

// SaysNothing reports whether the pod has ended without a word of its volume.
func SaysNothing(pod *corev1.Pod) bool { return Finished(pod) && inspectReport(pod) == nil }

// ClaimChoice is what is said of the claims that a new cluster should begin with.
type ClaimChoice struct {
	// Chosen is nil while none is; Evidence names it first.
	Chosen            *record.FormerClaim
	Evidence, Message string
	Outlook           decision.Outlook
}

// claimsKnown is what the pods have told of the claims.
type claimsKnown struct {
	best     *record.FormerClaim
	most     *stores.Inspection
	evidence []string // one line for each that told something
	waits    []string
	stuck    bool // one of those that are waited for has said why it can't be read
	clusters []string
	members  []string // IDs of those that the claims are of
}

// ChooseClaim has a look at what was told of all claims, and takes the one whose log is ahead.
func (f *Facts) ChooseClaim(c *v1beta1.FormerClaims) ClaimChoice {
	k := f.claimsAsTold(c)
	evidence := strings.Join(k.evidence, "; ")
	switch lacks := k.lacks(); {
	case len(k.waits) > 0:
		choice := ClaimChoice{Message: "inspecting the claims " + strings.Join(k.waits, ", ")}
		if k.stuck {
			choice.Outlook = decision.Waits
		}
		return choice
	case k.best == nil:
		return ClaimChoice{Message: "no claim can be used: " + evidence + "; is spec.bootstrap.claims.path right?",
			Outlook: decision.Waits}
	case len(k.clusters) > 1:
		return ClaimChoice{Message: "the claims are of different etcd clusters: " + evidence +
			"; name those of one of them in spec.bootstrap.claims.names", Outlook: decision.Waits}
	case lacks != "" && !c.WithoutQuorum:
		return ClaimChoice{Message: lacks + "; name their claims in spec.bootstrap.claims.names too, or set " +
			"spec.bootstrap.claims.withoutQuorum to true: then what only they have is lost; " + evidence,
			Outlook: decision.Waits}
	}
	i := slices.IndexFunc(k.evidence, func(e string) bool { return strings.HasPrefix(e, k.best.Name+":") })
	k.evidence[0], k.evidence[i] = k.evidence[i], k.evidence[0]
	return ClaimChoice{Chosen: k.best, Evidence: strings.Join(k.evidence, "; ")}
}

func (f *Facts) claimsAsTold(c *v1beta1.FormerClaims) claimsKnown {
	var k claimsKnown
	for place, of := range VolumesOf(c) {
		pod := f.LookedAt(place, of)
		report := (*stores.Inspection)(nil)
		if pod != nil {
			report = inspectReport(pod)
		}
		switch {
		case report == nil:
			k.waits = append(k.waits, of.Name+f.whyNotReported(pod))
			k.stuck = k.stuck || pod != nil && SaysNothing(pod)
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
			k.best = &of
			k.most = report
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
		absent := objects.Filter(electorate, func(id string) bool { return !slices.Contains(k.members, id) })
		if there := len(electorate) - len(absent); there < Quorum(len(electorate)) {
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
func (f *Facts) beginningWithClaims(from record.Origin) (record.Origin, string) {
	c := f.FormerClaims()
	if c == nil {
		return from, ""
	}
	choice := f.ChooseClaim(c)
	if choice.Chosen != nil {
		from.Source = record.SourceClaims
		from.Claim = choice.Chosen
	}
	return from, choice.Message
}

// FoundOutlook is whether what a new cluster should begin with is found without a person, where it looks for that;
// empty when it does not.
func (f *Facts) FoundOutlook() decision.Outlook {
	if l := f.LatestSnapshot(); l != nil {
		return f.ChooseLatest(l).Outlook
	}
	c := f.FormerClaims()
	if c == nil {
		return ""
	}
	return cmp.Or(f.ChooseClaim(c).Outlook, decision.Works)
}
