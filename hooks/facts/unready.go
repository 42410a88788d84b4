package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

const (
	// MissedAfter is how long an object may take to be seen: Metacontroller makes it right after the answer, and its
	// cache follows.
	MissedAfter = 10 * time.Second
	// MissedForLong is when the cluster is Degraded by that, and a person has to do something.
	MissedForLong = time.Minute
)

// refusesPod reports whether Kubernetes does not make the member's pod, as far as calls before this one tell. That is
// no fault of the member's.
func (f *Facts) refusesPod(m *Member) bool {
	return m.Pod == nil && slices.ContainsFunc(f.Cluster.Status.Internal.Awaited, func(a v1beta1.AwaitedStatus) bool {
		return a.Kind == "Pod" && a.Name == m.PodName && !f.Now.Before(a.RequestTime.Add(MissedAfter))
	})
}

// Named are the members that the alarms are about, in words.
func (f *Facts) Named(alarms []observation.Alarm) string {
	var list []string
	for _, a := range alarms {
		switch listed := f.Listed(a.MemberID); {
		case a.MemberID == 0:
			list = append(list, "no named member")
		case listed:
			list = append(list, cmp.Or(f.NameOf(a.MemberID), "the unmanaged member "+objects.Hex(a.MemberID)))
		default:
			list = append(list, "the former member "+objects.Hex(a.MemberID))
		}
	}
	return strings.Join(slices.Compact(list), ", ")
}

// Listed reports whether etcd lists a member with this ID.
func (f *Facts) Listed(id uint64) bool {
	return slices.ContainsFunc(f.Members, func(m *Member) bool { return m.ID == id })
}

// AlarmsOfOthers are those that no listed member has raised, in words.
func (f *Facts) AlarmsOfOthers() []string {
	var list []string
	for _, a := range append(f.Alarms(observation.AlarmNoSpace), f.Alarms(observation.AlarmCorrupt)...) {
		switch {
		case a.MemberID == 0:
			list = append(list, fmt.Sprintf("etcd has the alarm %s and does not say of which member", a.Kind))
		case !f.Listed(a.MemberID):
			list = append(list, fmt.Sprintf("%s has the alarm %s", f.Named([]observation.Alarm{a}), a.Kind))
		}
	}
	return list
}

// ExplainAll is what a message says of members that do not serve, after it has named them; empty for nothing.
func (f *Facts) ExplainAll(unreachable []*Member) string {
	var all objects.GroupedReasons
	for _, m := range unreachable {
		if what := f.Explain(m); what != "" {
			all.Add(m.DisplayName(), what)
		}
	}
	return following(all)
}

func manual(s *v1beta1.EtcdClusterSpec) bool {
	return s.MemberReplacement.Policy == v1beta1.ReplaceManual
}

// Overdue reports whether a voter of ours has been unreachable for longer than the policy allows.
func (f *Facts) Overdue(m *Member) bool {
	if m.PodName == "" || m.Learner || m.Answers() {
		return false
	}
	if f.Fenced(m.PodName) || f.busy(m) {
		return false
	}
	return f.UnreachableFor(m) >= defaults.ReplaceAfter(&f.Cluster.Spec)
}

// UnreachableFor is how long a member has not served while the others had quorum, as far as the status tells.
func (f *Facts) UnreachableFor(m *Member) time.Duration {
	s := f.LastStatus(m)
	if s == nil || s.Ready || s.LastTransitionTime.IsZero() {
		return 0
	}
	return f.WhileAvailable(s.LastTransitionTime)
}

// WhileAvailable is how much time we have seen pass since then with a quorum that answered us: while we are blind, it
// is not known who serves.
func (f *Facts) WhileAvailable(since metav1.Time) time.Duration {
	c := meta.FindStatusCondition(f.Cluster.Status.Conditions, v1beta1.Available)
	if c == nil || c.Status != metav1.ConditionTrue {
		return 0
	}
	return f.Observed(Later(since.Time, c.LastTransitionTime.Time))
}

// WhyNotReplaced is why an overdue voter is not given up all the same, and what a person can do; empty when it is.
func (f *Facts) WhyNotReplaced(m *Member) string {
	switch {
	case f.Mismatched(m):
		return "you decide"
	case f.DiskFull(m) && !f.Roomier(m.PodName):
		return "it stays a member, because a successor would have no more room"
	case f.changeAtFault(m):
		return "it restarted with the last change of the spec, which the serving members don't have yet: that change " +
			"is probably wrong; undo it, or " + f.ToHaveReplaced() +
			" to have it replaced"
	case f.refusesPod(m):
		return "it stays a member: Kubernetes would not create its successor's pod either; to have it replaced all the " +
			"same, " + f.ToHaveReplaced()
	case manual(&f.Cluster.Spec):
		return fmt.Sprintf("you decide, because spec.memberReplacement.policy is Manual: set it to Automatic, or %s "+
			"to have it replaced", f.ToHaveReplaced())
	case f.Crowded() && f.crashes(m) == "":
		return "it stays a member, because no node is free for a successor: add one to " +
			defaults.NodesField(&f.Cluster.Spec) + ", or bring its own back"
	}
	return ""
}

// changeAtFault reports whether an unreachable member served until it was restarted into what the spec wants now, and
// no other voter serves with that: then a roll has just begun, and going on with it, or with new members, would only
// spread what does not work. A node that is gone is no change's fault.
func (f *Facts) changeAtFault(m *Member) bool {
	ours := objects.Filter(f.Voters, func(o *Member) bool {
		return o.PodName != "" && o.Serving() &&
			!o.Restarting()
	})
	if f.Epoch == nil || m.Pod == nil || nodeGone(m.Pod, f.Now) {
		return false
	}
	if !ServedBefore(m.Pod) || f.differs(m) {
		return false
	}
	asBefore := func(o *Member) bool { return !f.differs(o) }
	return len(ours) > 0 && !slices.ContainsFunc(ours, asBefore)
}

// Explain is all that can be said of a member that does not serve; empty when that is nothing in particular.
func (f *Facts) Explain(m *Member) string {
	words := []string{f.WhyNotServing(m), f.needsNode(m)}
	if f.Mismatched(m) {
		words = []string{f.Mismatch(m)}
	} else if f.Overdue(m) {
		words = append(words, f.WhyNotReplaced(m))
	}
	return strings.Join(objects.Filter(words, func(s string) bool { return s != "" }), "; ")
}

// Late is the learner that has not caught up in time; nil when there is none.
func (f *Facts) Late() *Member {
	l := f.Learner()
	if l == nil || l.PodName == "" || f.Mismatched(l) {
		return nil
	}
	if f.wasSpare(l) && f.changeAtFault(l) {
		return nil // without it the change would go on with a voter
	}
	since := f.CatchesUpSince(l)
	if !f.CutOff(l) && (since.IsZero() || f.WhileAvailable(since) < f.TimeFor()) {
		return nil
	}
	return l
}

// CutOff reports whether the learner has not got what the leader writes for as long as one has to catch up, although it
// answers us all that time, as behind a firewall between members.
func (f *Facts) CutOff(l *Member) bool {
	r := f.Cluster.Status.Internal.Replacement
	named := r != nil && r.CutOff != "" && r.CutOff == l.PodName
	return named && f.CaughtUp(l) && f.WhileAvailable(r.CutOffTime) >= f.TimeFor()
}

// TimeFor is how long a learner has to catch up: it must get all of the leader's data.
func (f *Facts) TimeFor() time.Duration {
	given := defaults.ReplaceAfter(&f.Cluster.Spec)
	if lead := f.Leader(); lead != nil {
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
func (f *Facts) Replacements(givenUp string) v1beta1.ReplacementStatus {
	var r v1beta1.ReplacementStatus
	if old := f.Cluster.Status.Internal.Replacement; old != nil {
		r = *old
	}
	for _, next := range []*metav1.Time{&r.NextLearnerTime, &r.NextReplacementTime} {
		if next.After(f.Now.Add(longestPause)) { // the clock was ahead
			*next = metav1.NewTime(f.NowInSeconds().Add(longestPause))
		}
	}
	if f.Etcd == nil || f.Epoch == nil {
		return r
	}
	if f.Cluster.Generation != f.Cluster.Status.ObservedGeneration {
		r = v1beta1.ReplacementStatus{}
	}
	f.noteCutOff(&r)
	f.countLate(&r)
	f.countReplaced(&r, givenUp)
	return r
}

// countLate counts learners that came to nothing. They are forgotten when one becomes a voter or none is wanted, and
// those that were to be spares when a voter is: it waits for none of their pauses.
func (f *Facts) countLate(r *v1beta1.ReplacementStatus) {
	late := f.Late()
	remembered := r.Failures > 0 || r.Learner != "" || !r.NextLearnerTime.IsZero()
	if late == nil && !remembered {
		return
	}
	spare := !f.Short()
	complete := f.Joining() == nil && !f.LacksSpare() && len(f.ReplicaVoters()) >= f.Wanted()
	if f.promoted() || complete || r.Spare && !spare {
		r.Failures = 0
		r.Learner = ""
		r.Spare = false
		r.NextLearnerTime = metav1.Time{}
	}
	if late != nil && late.PodName != r.Learner {
		r.Failures = r.Failures + 1
		r.Learner = late.PodName
		r.Spare = spare
		r.NextLearnerTime = metav1.NewTime(f.NowInSeconds().Add(PauseAfter(r.Failures)))
	}
}

// noteCutOff keeps since when a learner is cut off: for as long as it answers and has caught up.
func (f *Facts) noteCutOff(r *v1beta1.ReplacementStatus) {
	l := f.Learner()
	if l == nil || l.PodName != r.CutOff || !f.CaughtUp(l) {
		r.CutOff = ""
		r.CutOffTime = metav1.Time{}
	}
	refused := f.promotes() && strings.HasPrefix(f.Taken.Err, decision.LearnerCutOff)
	if l != nil && r.CutOff == "" && refused && f.CaughtUp(l) {
		r.CutOff = l.PodName
		r.CutOffTime = f.NowInSeconds()
	}
}

// countReplaced counts voters that are given up. Their successors may vote and be unreachable in turn, for the same
// reason, and of each a claim is kept: so they are forgotten only an hour after the pause.
func (f *Facts) countReplaced(r *v1beta1.ReplacementStatus, name string) {
	if !r.NextReplacementTime.IsZero() && !f.Now.Before(r.NextReplacementTime.Add(longestPause)) {
		r.GivenUp = 0
		r.Voter = ""
		r.NextReplacementTime = metav1.Time{}
	}
	if name != "" && name != r.Voter {
		r.GivenUp = r.GivenUp + 1
		r.Voter = name
		r.NextReplacementTime = metav1.NewTime(f.NowInSeconds().Add(PauseAfter(r.GivenUp)))
	}
}

// promoted reports whether this call has made a learner a voter.
func (f *Facts) promoted() bool { return f.promotes() && f.Taken.Err == "" }

// promotes reports whether this call has tried that.
func (f *Facts) promotes() bool {
	if f.Taken == nil {
		return false
	}
	_, is := f.Taken.Step.(decision.Promote)
	return is
}
