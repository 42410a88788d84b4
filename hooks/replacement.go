package hooks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// How members that do not serve are healed. A voter that is silent for too long is given up: removed, and succeeded
// under a new name. Its data may be all that is left of something one day, so its claim is kept for a while, in
// quarantine. A learner that does not come to anything is tried again, ever more slowly. Whoever answers as somebody
// else is fenced off, and left to a person.
//
// The clock is the status: since when a member is not ready, and since when the others have quorum, as far as Quorate
// has looked (since.go). Losing it only delays.

// What holds where the spec says nothing.
const (
	defaultAfter        = 5 * time.Minute
	defaultKeepClaimFor = 24 * time.Hour
)

// replaceAfter is how long a voter may be silent.
func replaceAfter(s *v1alpha1.EtcdClusterSpec) time.Duration {
	if d := s.MemberReplacement.After.Duration; d > 0 {
		return d
	}
	return defaultAfter
}

// keepClaimFor is how long the claim of a voter that was given up is kept.
func keepClaimFor(s *v1alpha1.EtcdClusterSpec) time.Duration {
	if d := s.MemberReplacement.KeepClaimFor; d != nil {
		return max(0, d.Duration)
	}
	return defaultKeepClaimFor
}

func manual(s *v1alpha1.EtcdClusterSpec) bool {
	return s.MemberReplacement.Policy == v1alpha1.ReplaceManual
}

// ---- silent voters

func replaceDead(v *view) *verdict {
	for _, m := range v.voters {
		if v.overdue(m) && v.whyNotReplaced(m) == "" {
			why := fmt.Sprintf("%s is replaced: it has not served for %s%s", m.name,
				brief(replaceAfter(&v.Cluster.Spec)), wording.Colon(v.whyNotServing(m)))
			return cmp.Or(v.pausedReplacement(m, why), v.replaceDeadVoter(m, why))
		}
	}
	return nil
}

// replaceDeadVoter removes a voter and keeps its claim.
func (v *view) replaceDeadVoter(m *member, why string) *verdict {
	return v.keepingClaim(m, why, objects.FailedSilent, v.removeVoter(m, why))
}

// keepingClaim removes a member as was said, and keeps its claim: the claim is marked first, so that who sees it
// later without its member knows that it is to be kept. The mark stays while the member is about to be removed, even
// if it serves. One that is only silent is not marked while its removal has to wait: it may have more than the others
// when these are lost.
func (v *view) keepingClaim(m *member, why, failure string, decision *verdict) *verdict {
	unmarked := func(c *corev1.PersistentVolumeClaim) bool { return v.ours(c) && !ofFailedMember(c) }
	_, removes := decision.step.(Remove)
	removes = removes || decision.recordsRemoval()
	if !removes && failure == objects.FailedSilent {
		return decision
	}
	switch {
	case removes && slices.ContainsFunc(v.memberClaims(m.name), unmarked):
		decision = &verdict{message: why + "; marking its claim first, so that it is kept", choose: decision.choose,
			resync: rule.ResyncSoon}
	case removes && failure == objects.FailedSilent && v.replacements("").Voter != m.name:
		decision = &verdict{message: why + "; noting that first", choose: decision.choose, resync: rule.ResyncSoon}
	}
	decision.failed, decision.failure = m.name, failure
	return decision
}

// overdue reports whether a voter of ours has been silent for longer than the policy allows.
func (v *view) overdue(m *member) bool {
	return m.name != "" && !m.Learner && !m.serving() && !v.fenced(m.name) && !v.busy(m) &&
		v.silentFor(m) >= replaceAfter(&v.Cluster.Spec)
}

// silentFor is how long a member has not served while the others had quorum, as far as the status tells.
func (v *view) silentFor(m *member) time.Duration {
	s := v.lastStatus(m)
	if s == nil || s.Ready || s.Since.IsZero() {
		return 0
	}
	return v.whileAvailable(s.Since)
}

// busyFor is how long a member is left alone that gives free space back to its file system: a second for 100 MB or
// so, on a disk that is not slow, and it does not answer meanwhile.
const busyFor = 10 * time.Minute

// busy reports whether a member may still be at that.
func (v *view) busy(m *member) bool {
	if !v.underWay() || len(v.defragRun.Done) == 0 {
		return false
	}
	return v.defragRun.Done[len(v.defragRun.Done)-1] == m.name && v.Now.Before(v.defragRun.Last.Add(busyFor))
}

// onHold reports whether a person keeps a member from being brought back: then its time does not count.
func (v *view) onHold(name string) bool { return v.Cluster.Spec.Suspend || v.fenced(name) }

// lastStatus is what the status says of a member; nil for nothing.
func (v *view) lastStatus(m *member) *v1alpha1.MemberStatus {
	i := slices.IndexFunc(v.Cluster.Status.Members, func(s v1alpha1.MemberStatus) bool { return s.ID == hex(m.ID) })
	if i < 0 {
		return nil
	}
	return &v.Cluster.Status.Members[i]
}

// whileAvailable is how much time we have seen pass since then with a quorum that answered us: while we are blind, it
// is not known who serves.
func (v *view) whileAvailable(since metav1.Time) time.Duration {
	c := meta.FindStatusCondition(v.Cluster.Status.Conditions, v1alpha1.Available)
	if c == nil || c.Status != metav1.ConditionTrue {
		return 0
	}
	return v.observed(later(since.Time, c.LastTransitionTime.Time))
}

// whyNotReplaced is why an overdue voter is not given up all the same, and what a person can do; empty when it is.
func (v *view) whyNotReplaced(m *member) string {
	switch {
	case v.mismatched(m):
		return "a person decides"
	case v.changeAtFault(m):
		return "it was restarted into the last change of the spec, which others that serve have not had yet: the " +
			"change is at fault, and taking it back mends the member; or " + v.toHaveReplaced() + " to have it replaced"
	case v.refusesPod(m):
		return "it stays a member, as Kubernetes would not make its successor's pod either; or " + v.toHaveReplaced() +
			" to have it replaced"
	case manual(&v.Cluster.Spec):
		return fmt.Sprintf("a person decides, as spec.memberReplacement.policy is Manual: set it to Automatic, or %s "+
			"to have it replaced", v.toHaveReplaced())
	case v.crowded() && v.crashes(m) == "":
		return "it stays a member, as no node is free for a successor: add one to spec.storage.hostPath.nodes, or " +
			"bring its own back"
	}
	return ""
}

// changeAtFault reports whether a silent member served until it was restarted into what the spec wants now, and no
// other voter serves with that: then a roll has just begun, and going on with it, or with new members, would only
// spread what does not work. A node that is gone is no change's fault.
func (v *view) changeAtFault(m *member) bool {
	ours := filter(v.voters, func(o *member) bool { return o.name != "" && o.serving() && !o.restarting() })
	return v.epoch != nil && m.pod != nil && !nodeGone(m.pod, v.Now) && servedBefore(m.pod) && !v.differs(m) &&
		len(ours) > 0 && !slices.ContainsFunc(ours, func(o *member) bool { return !v.differs(o) })
}

// differs reports whether the member's pod was made from another template or image than the spec's.
func (v *view) differs(m *member) bool {
	_, image := v.imageDiffers(m)
	return image || v.hasOutdatedTemplate(m)
}

// ---- what a pod shows of why its member does not serve

// whyNotServing says what the member's pod shows; empty when that is nothing in particular, or passes by itself.
func (v *view) whyNotServing(m *member) string {
	if m.pod == nil || m.serving() {
		return ""
	}
	if prepareRefused(m.pod) {
		return "its data directory was found empty"
	}
	for _, shows := range []func(*member) string{v.lostNode, v.unscheduled, unpulled, v.crashes, crashesBefore} {
		if what := shows(m); what != "" {
			return what
		}
	}
	if v.distrustsPeers(m.health) {
		return "it does not trust the authority of the others"
	}
	return ""
}

func (v *view) lostNode(m *member) string {
	if nodeGone(m.pod, v.Now) {
		return "its node no longer answers"
	}
	return ""
}

// nodeGone reports whether the pod's node did not do what it was asked to, or Kubernetes says that it is lost.
func nodeGone(pod *corev1.Pod, now time.Time) bool {
	return pod.Spec.NodeName != "" && (graceOver(pod, now) || pod.Status.Reason == "NodeLost")
}

func (v *view) unscheduled(m *member) string {
	for _, c := range m.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			c.Reason == corev1.PodReasonUnschedulable {
			return "no node takes its pod" + wording.Colon(wording.Scheduler(c.Message)) + v.withoutVolume(m.pod,
				c.Message)
		}
	}
	return ""
}

// crashes tells of a container of Quorate's that has ended since the member went silent, also while it is just trying
// again.
func (v *view) crashes(m *member) string {
	if m.pod == nil {
		return ""
	}
	for _, t := range failures(m.pod) {
		if r := v.lastStatus(m); r == nil || t.FinishedAt.IsZero() ||
			!t.FinishedAt.Add(time.Minute).Before(r.Since.Time) {
			return "it crashes: " + endOf(m.pod, t)
		}
	}
	return ""
}

// explain is all that is to be said of a member that does not serve; empty when that is nothing in particular.
func (v *view) explain(m *member) string {
	words := []string{v.whyNotServing(m), v.needsNode(m)}
	if v.mismatched(m) {
		words = []string{v.mismatch(m)}
	} else if v.overdue(m) {
		words = append(words, v.whyNotReplaced(m))
	}
	return strings.Join(filter(words, func(s string) bool { return s != "" }), "; ")
}

// brief is a duration as people write it: 5m, not 5m0s.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ---- claims in quarantine

func ofFailedMember(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.Annotations[objects.AnnotationFailedMember] != ""
}

func quarantined(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.Annotations[objects.AnnotationQuarantined] != ""
}

// claimKept reports whether a claim is kept although etcd no longer lists its member. What a person writes in place
// of the time keeps it for good.
func (v *view) claimKept(claim *corev1.PersistentVolumeClaim) bool {
	keep := keepClaimFor(&v.Cluster.Spec)
	if keep == 0 || !quarantined(claim) {
		return keep > 0 && ofFailedMember(claim)
	}
	since, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined])
	return err != nil || v.Now.Before(since.Add(keep))
}

// quarantine puts on the claims, with etcd's list in hand, which members are given up and which claims are kept
// without theirs. A member that serves again, and is not given up for something else, is no longer marked.
func (v *view) quarantine(claims []*corev1.PersistentVolumeClaim, decision *verdict) {
	for _, claim := range claims {
		member, _ := memberOfClaim(v.Cluster.Name, claim.Name)
		m := v.find(member)
		switch {
		case member == decision.failed && v.ours(claim):
			if old := claim.Annotations[objects.AnnotationFailedMember]; old == "" || old == objects.FailedSilent {
				claim.Annotations[objects.AnnotationFailedMember] = decision.failure
			}
		case m != nil && m.serving():
			delete(claim.Annotations, objects.AnnotationFailedMember)
		case m == nil && ofFailedMember(claim) && !quarantined(claim):
			claim.Annotations[objects.AnnotationQuarantined] = v.Now.UTC().Format(time.RFC3339)
			claim.Labels[objects.LabelQuarantined] = "true"
		}
	}
}

// ---- learners that come to nothing

func learnerLate(v *view) *verdict {
	l := v.late()
	if l == nil {
		return nil
	}
	if noted := v.Cluster.Status.Replacement; noted == nil || noted.Learner != l.name {
		return &verdict{message: fmt.Sprintf("noting that the learner %s has not caught up within %s, before it is "+
			"removed%s", l.name, brief(v.timeFor()), wording.Colon(v.whyNotServing(l))), resync: rule.ResyncLater}
	}
	return v.removeMember(l, fmt.Sprintf("removing the learner %s, which has not caught up within %s; the next one "+
		"gets a new name%s", l.name, brief(v.timeFor()), wording.Colon(v.whyNotServing(l))))
}

// late is the learner that has not caught up in time; nil when there is none.
func (v *view) late() *member {
	l := v.learner()
	if l == nil || l.name == "" || v.mismatched(l) {
		return nil
	}
	s := v.lastStatus(l)
	if s == nil || s.Joined.IsZero() || v.whileAvailable(s.Joined) < v.timeFor() {
		return nil
	}
	return l
}

// timeFor is how long a learner has to catch up: it must get all of the leader's data.
func (v *view) timeFor() time.Duration {
	given := replaceAfter(&v.Cluster.Spec)
	if lead := v.leader(); lead != nil {
		given += time.Duration(lead.health.DBSize>>20) * time.Minute / 1024
	}
	return given.Truncate(time.Second)
}

// The pauses between learners that come to nothing, and between voters that are given up.
const (
	firstPause   = 10 * time.Second
	longestPause = time.Hour
)

// pauseAfter this many failures in a row.
func pauseAfter(failures int32) time.Duration {
	return min(longestPause, firstPause<<min(max(failures, 1)-1, 16))
}

// replacements is what is remembered of learners that came to nothing, and of voters that were given up, with the
// voter that is given up now; empty for none. Each is counted before it is removed: the call that removes it has seen
// that, and so has every call that could add or remove the next one, however old the status is that it is shown. All
// is forgotten when the spec changes: that may be what mends it.
func (v *view) replacements(givenUp string) v1alpha1.ReplacementStatus {
	var r v1alpha1.ReplacementStatus
	if old := v.Cluster.Status.Replacement; old != nil {
		r = *old
	}
	if v.Etcd == nil || v.epoch == nil {
		return r
	}
	if v.Cluster.Generation != v.Cluster.Status.ObservedGeneration {
		r = v1alpha1.ReplacementStatus{}
	}
	v.countLate(&r)
	v.countGivenUp(&r, givenUp)
	return r
}

// countLate counts learners that came to nothing. They are forgotten when one becomes a voter or none is wanted.
func (v *view) countLate(r *v1alpha1.ReplacementStatus) {
	if v.promoted() || v.learner() == nil && len(v.replicaVoters()) >= v.wanted() {
		r.Failures, r.Learner, r.NotBefore = 0, "", metav1.Time{}
	}
	if late := v.late(); late != nil && late.name != r.Learner {
		r.Failures, r.Learner = r.Failures+1, late.name
		r.NotBefore = metav1.NewTime(v.nowInSeconds().Add(pauseAfter(r.Failures)))
	}
}

// countGivenUp counts voters that are given up. Their successors may vote and be silent in turn, for the same reason,
// and of each a claim is kept: so they are forgotten only an hour after the pause.
func (v *view) countGivenUp(r *v1alpha1.ReplacementStatus, name string) {
	if !r.NextGivenUp.IsZero() && !v.Now.Before(r.NextGivenUp.Add(longestPause)) {
		r.GivenUp, r.Voter, r.NextGivenUp = 0, "", metav1.Time{}
	}
	if name != "" && name != r.Voter {
		r.GivenUp, r.Voter = r.GivenUp+1, name
		r.NextGivenUp = metav1.NewTime(v.nowInSeconds().Add(pauseAfter(r.GivenUp)))
	}
}

// pausedReplacement says why a voter is not given up now, although its time is over; nil when it is.
func (v *view) pausedReplacement(m *member, why string) *verdict {
	r := v.replacements("")
	if r.Voter == m.name || !v.Now.Before(r.NextGivenUp.Time) {
		return nil
	}
	return &verdict{message: fmt.Sprintf("%s; after %s given up in a row it stays a member until %s, or until the "+
		"spec changes", why,
		wording.Count(int(r.GivenUp), "voter"), r.NextGivenUp.UTC().Format(time.RFC3339)),
		resync: r.NextGivenUp.Sub(v.Now)}
}

// promoted reports whether this call has made a learner a voter.
func (v *view) promoted() bool {
	if v.Taken == nil || v.Taken.Err != "" {
		return false
	}
	_, is := v.Taken.Step.(Promote)
	return is
}

// pausedGrowth says why no learner is added now; nil when one may be.
func (v *view) pausedGrowth(why string) *verdict {
	a := v.replacements("")
	if !v.Now.Before(a.NotBefore.Time) {
		return nil
	}
	return &verdict{message: fmt.Sprintf("%s; %s did not catch up, so the next one is added at %s, or when the spec "+
		"changes", why, wording.Count(int(a.Failures), "learner"),
		a.NotBefore.UTC().Format(time.RFC3339)), resync: a.NotBefore.Sub(v.Now)}
}

// ---- members that answer as somebody else

// impostor reports whether an etcd answered at the member's address that is not the member.
func (m *member) impostor() bool { return m.asked && m.health.Err != "" && m.health.MemberID != 0 }

// mismatched reports whether the member answers as somebody else, or did and has not answered as itself since.
func (v *view) mismatched(m *member) bool {
	return m.impostor() || m.pod != nil && m.pod.Labels[objects.LabelRole] == roleFenced && !m.serving()
}

// mismatch says who answers at the address of a mismatched member.
func (v *view) mismatch(m *member) string {
	who := "somebody else and does not answer now"
	if m.impostor() {
		who = fmt.Sprintf("member %s of cluster %s", hex(m.health.MemberID), hex(m.health.ClusterID))
	}
	return fmt.Sprintf("it answers as %s, and is listed as member %s of cluster %s: it is fenced, gets no clients "+
		"and is left as it is until a person decides: see Mismatch in docs/failure-modes.md",
		who, hex(m.ID), hex(v.Etcd.ClusterID))
}

// strange says what to do about a member that is not of Quorate's making. It may be on purpose: a cluster that moves.
func (v *view) strange(m *member) string {
	role := "votes"
	if m.Learner {
		role = "is a learner"
	}
	return fmt.Sprintf("stranger %s (%s) %s in this cluster and is none of Quorate's members, so it is left alone: "+
		"if nobody knows it, remove it with etcdctl member remove %s",
		hex(m.ID), strings.Join(m.PeerURLs, ", "), role, hex(m.ID))
}

// troubleWord is the reason of the condition Degraded.
func (v *view) troubleWord() string {
	switch {
	case v.Etcd == nil && v.longUnmade() && (v.epoch == nil || !v.neverBegins()):
		return failedCreate
	case v.Etcd == nil && !v.epoch.hadQuorum():
		return "BootstrapStalled"
	case v.Etcd == nil:
	case v.mismatchedPods() > 0:
		return "MemberMismatch"
	case slices.ContainsFunc(v.voters, func(m *member) bool { return v.overdue(m) && v.whyNotReplaced(m) != "" }):
		return "PersonDecides"
	case v.longUnmade():
		return failedCreate
	}
	return "MembersInTrouble"
}

// The values of LabelRole. The client Service leads to voters.
const (
	roleVoter   = "voter"
	roleLearner = "learner"
	roleFenced  = "fenced"
)

// roleOf is the role that the member's observed pod is to show. A pod that resumes a member shows it once the member
// has answered as itself: before that it is not known whose data it found. While blind, see roles.go.
func (v *view) roleOf(m *member) string {
	was := m.pod.Labels[objects.LabelRole]
	switch {
	case v.mismatched(m):
		return roleFenced
	case m.Learner:
		return roleLearner
	case m.serving(), podStart(m.pod) == objects.StartBootstrap && was == "":
		return roleVoter
	}
	return was
}

// clientSelector chooses the pods that clients are led to. A Service that leads to all pods still, as an earlier
// release made it, follows when everybody who serves shows that he votes.
func (v *view) clientSelector() map[string]string {
	wanted := selector(v.Cluster)
	wanted[objects.LabelRole] = roleVoter
	old := v.Children.Services[objects.ClientService(v.Cluster.Name)]
	if old == nil || old.Spec.Selector[objects.LabelRole] == roleVoter {
		return wanted
	}
	if v.Etcd == nil || slices.ContainsFunc(v.voters, func(m *member) bool {
		return m.serving() && m.pod != nil && m.pod.Labels[objects.LabelRole] != roleVoter
	}) {
		return old.Spec.Selector
	}
	return wanted
}

// mismatchedPods are how many pods look healthy to Kubernetes and count for nothing in the cluster.
func (v *view) mismatchedPods() int { return len(filter(v.members, v.mismatched)) }
