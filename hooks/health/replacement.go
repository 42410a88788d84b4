// Package health says how members and objects are doing, and for how long: late, silent, given up, never made.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/rollout"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Named are the members that the alarms are about, in words.
func Named(v *state.View, alarms []observation.Alarm) string {
	var list []string
	for _, a := range alarms {
		switch listed := Listed(v, a.MemberID); {
		case a.MemberID == 0:
			list = append(list, "no single member")
		case listed:
			list = append(list, cmp.Or(v.NameOf(a.MemberID), "the stranger "+wording.Hex(a.MemberID)))
		default:
			list = append(list, "the former member "+wording.Hex(a.MemberID))
		}
	}
	return strings.Join(slices.Compact(list), ", ")
}

// Listed reports whether etcd lists a member with this ID.
func Listed(v *state.View, id uint64) bool {
	return slices.ContainsFunc(v.Members, func(m *state.Member) bool { return m.ID == id })
}

// AlarmsOfOthers are those that no listed member has raised, in words.
func AlarmsOfOthers(v *state.View) []string {
	var list []string
	for _, a := range append(pods.Alarms(v, observation.AlarmNoSpace), pods.Alarms(v, observation.AlarmCorrupt)...) {
		if !Listed(v, a.MemberID) {
			list = append(list, fmt.Sprintf("%s has the alarm %s", Named(v, []observation.Alarm{a}), a.Kind))
		}
	}
	return list
}

// WaitForRestarts says what must end before something is done that needs all of these voters, or more of them than
// stay: another one's restart. The voter that is only chosen for one is let go. Nil when nothing of ours is in the
// way.
func WaitForRestarts(v *state.View, voters []*state.Member, why string) *decision.Plan {
	chosen := v.Chosen()
	var restarting []*state.Member
	for _, m := range voters {
		if m == chosen {
			plan := state.Withdraw(v)
			plan.Message = why + "; " + plan.Message
			return plan
		}
		if m.Restarting() {
			restarting = append(restarting, m)
		}
	}
	if len(restarting) == 0 {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s; waiting for %s to restart%s", why,
			strings.Join(state.Names(restarting), ", "), ExplainAll(v, restarting)),
		Resync: rule.ResyncLater,
	}
}

// ExplainAll is what a message says of members that do not serve, after it has named them; empty for nothing.
func ExplainAll(v *state.View, silent []*state.Member) string {
	var all wording.GroupedReasons
	for _, m := range silent {
		if what := Explain(v, m); what != "" {
			all.Add(m.DisplayName(), what)
		}
	}
	return pods.Following(all)
}

func manual(s *v1alpha1.EtcdClusterSpec) bool {
	return s.MemberReplacement.Policy == v1alpha1.ReplaceManual
}

// Overdue reports whether a voter of ours has been silent for longer than the policy allows.
func Overdue(v *state.View, m *state.Member) bool {
	return m.PodName != "" && !m.Learner && !m.Answers() && !v.Fenced(m.PodName) && !state.Busy(v, m) &&
		SilentFor(v, m) >= spec.ReplaceAfter(&v.Cluster.Spec)
}

// SilentFor is how long a member has not served while the others had quorum, as far as the status tells.
func SilentFor(v *state.View, m *state.Member) time.Duration {
	s := v.LastStatus(m)
	if s == nil || s.Ready || s.LastTransitionTime.IsZero() {
		return 0
	}
	return WhileAvailable(v, s.LastTransitionTime)
}

// WhileAvailable is how much time we have seen pass since then with a quorum that answered us: while we are blind, it
// is not known who serves.
func WhileAvailable(v *state.View, since metav1.Time) time.Duration {
	c := meta.FindStatusCondition(v.Cluster.Status.Conditions, v1alpha1.Available)
	if c == nil || c.Status != metav1.ConditionTrue {
		return 0
	}
	return state.Observed(v, state.Later(since.Time, c.LastTransitionTime.Time))
}

// WhyNotReplaced is why an overdue voter is not given up all the same, and what a person can do; empty when it is.
func WhyNotReplaced(v *state.View, m *state.Member) string {
	switch {
	case pods.Mismatched(v, m):
		return "you decide"
	case pods.DiskFull(v, m) && !volumes.Roomier(v, m.PodName):
		return "it stays a member, because a successor would have no more room"
	case changeAtFault(v, m):
		return "it restarted with the last change of the spec, which the serving members don't have yet: that change " +
			"is probably wrong; undo it, or " + volumes.ToHaveReplaced(v) +
			" to have it replaced"
	case refusesPod(v, m):
		return "it stays a member, because Kubernetes would not create the pod of its successor either; or " +
			volumes.ToHaveReplaced(v) + " to have it replaced"
	case manual(&v.Cluster.Spec):
		return fmt.Sprintf("you decide, because spec.memberReplacement.policy is Manual: set it to Automatic, or %s "+
			"to have it replaced", volumes.ToHaveReplaced(v))
	case volumes.Crowded(v) && pods.Crashes(v, m) == "":
		return "it stays a member, because no node is free for a successor: add one to " +
			spec.NodesField(&v.Cluster.Spec) + ", or bring its own back"
	}
	return ""
}

// changeAtFault reports whether a silent member served until it was restarted into what the spec wants now, and no
// other voter serves with that: then a roll has just begun, and going on with it, or with new members, would only
// spread what does not work. A node that is gone is no change's fault.
func changeAtFault(v *state.View, m *state.Member) bool {
	ours := wording.Filter(v.Voters, func(o *state.Member) bool {
		return o.PodName != "" && o.Serving() &&
			!o.Restarting()
	})
	return v.Epoch != nil && m.Pod != nil && !pods.NodeGone(m.Pod, v.Now) && state.ServedBefore(m.Pod) &&
		!rollout.Differs(v, m) &&
		len(ours) > 0 && !slices.ContainsFunc(ours, func(o *state.Member) bool { return !rollout.Differs(v, o) })
}

// Explain is all that can be said of a member that does not serve; empty when that is nothing in particular.
func Explain(v *state.View, m *state.Member) string {
	words := []string{pods.WhyNotServing(v, m), volumes.NeedsNode(v, m)}
	if pods.Mismatched(v, m) {
		words = []string{pods.Mismatch(v, m)}
	} else if Overdue(v, m) {
		words = append(words, WhyNotReplaced(v, m))
	}
	return strings.Join(wording.Filter(words, func(s string) bool { return s != "" }), "; ")
}

// Late is the learner that has not caught up in time; nil when there is none.
func Late(v *state.View) *state.Member {
	l := v.Learner()
	if l == nil || l.PodName == "" || pods.Mismatched(v, l) {
		return nil
	}
	s := v.LastStatus(l)
	if s == nil || s.JoinTime.IsZero() || WhileAvailable(v, s.JoinTime) < TimeFor(v) {
		return nil
	}
	return l
}

// TimeFor is how long a learner has to catch up: it must get all of the leader's data.
func TimeFor(v *state.View) time.Duration {
	given := spec.ReplaceAfter(&v.Cluster.Spec)
	if lead := v.Leader(); lead != nil {
		given += time.Duration(lead.Health.DBSize>>20) * time.Minute / 1024
	}
	return given.Truncate(time.Second)
}

// The pauses between learners that come to nothing, and between voters that are given up.
const (
	firstPause   = 10 * time.Second
	longestPause = time.Hour
)

// PauseAfter this many failures in a row.
func PauseAfter(failures int32) time.Duration {
	return min(longestPause, firstPause<<min(max(failures, 1)-1, 16))
}

// Replacements is what is remembered of learners that came to nothing, and of voters that were given up, with the
// voter that is given up now; empty for none. Each is counted before it is removed: the call that removes it has seen
// that, and so has every call that could add or remove the next one, however old the status is that it is shown. All
// is forgotten when the spec changes: that may be what mends it.
func Replacements(v *state.View, givenUp string) v1alpha1.ReplacementStatus {
	var r v1alpha1.ReplacementStatus
	if old := v.Cluster.Status.Internal.Replacement; old != nil {
		r = *old
	}
	for _, next := range []*metav1.Time{&r.NextLearnerTime, &r.NextGivenUpTime} {
		if next.After(v.Now.Add(longestPause)) { // the clock was ahead
			*next = metav1.NewTime(v.NowInSeconds().Add(longestPause))
		}
	}
	if v.Etcd == nil || v.Epoch == nil {
		return r
	}
	if v.Cluster.Generation != v.Cluster.Status.ObservedGeneration {
		r = v1alpha1.ReplacementStatus{}
	}
	countLate(v, &r)
	countGivenUp(v, &r, givenUp)
	return r
}

// countLate counts learners that came to nothing. They are forgotten when one becomes a voter or none is wanted.
func countLate(v *state.View, r *v1alpha1.ReplacementStatus) {
	if promoted(v) || v.Learner() == nil && len(v.ReplicaVoters()) >= rollout.Wanted(v) {
		r.Failures, r.Learner, r.NextLearnerTime = 0, "", metav1.Time{}
	}
	if late := Late(v); late != nil && late.PodName != r.Learner {
		r.Failures, r.Learner = r.Failures+1, late.PodName
		r.NextLearnerTime = metav1.NewTime(v.NowInSeconds().Add(PauseAfter(r.Failures)))
	}
}

// countGivenUp counts voters that are given up. Their successors may vote and be silent in turn, for the same reason,
// and of each a claim is kept: so they are forgotten only an hour after the pause.
func countGivenUp(v *state.View, r *v1alpha1.ReplacementStatus, name string) {
	if !r.NextGivenUpTime.IsZero() && !v.Now.Before(r.NextGivenUpTime.Add(longestPause)) {
		r.GivenUp, r.Voter, r.NextGivenUpTime = 0, "", metav1.Time{}
	}
	if name != "" && name != r.Voter {
		r.GivenUp, r.Voter = r.GivenUp+1, name
		r.NextGivenUpTime = metav1.NewTime(v.NowInSeconds().Add(PauseAfter(r.GivenUp)))
	}
}

// promoted reports whether this call has made a learner a voter.
func promoted(v *state.View) bool {
	if v.Taken == nil || v.Taken.Err != "" {
		return false
	}
	_, is := v.Taken.Step.(decision.Promote)
	return is
}
