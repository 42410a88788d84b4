package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Which member is restarted or removed. The epoch record names it first. It is written with the version that was
// observed, so of two calls only one can choose.
//
// A restart (rules Fence, RecreatePod and RollingUpdate) names the very pod or container that ends. It holds as long
// as a call that we don't see may still act on it: until another pod or container is seen in its place, or its end. A
// deletion of the old pod, which names its UID, then fails, and so does a new image for it, which names its version.
// When others wait, or there is no need to restart it any more, the pod gets a mark that withdraws the choice. That
// write fails as long as our view of the pod is old; no call acts on a choice that sees the mark; and a call that has
// not seen it is done when calls end (S2, S14).
//
// A removal names the member, for that is all that etcd asks for. It holds while the member is listed, whatever
// becomes of its pod. One that is no longer wanted is withdrawn in the record, and is over when calls end (S1, S3).
// Until then the member is not restarted either: on Memory that would take its data.

const (
	// noContainer is the container of a pod in which none was seen yet.
	noContainer = "-"
	// wasDown is said of a voter that did not serve when it was chosen.
	wasDown = "down"
)

// same reports whether both end the same pod, or the same container.
func same(a, b record.Choice) bool {
	a.Down = b.Down
	return a == b
}

// restartChoice is that of a member's pod, or of the container in it.
func restartChoice(pod *corev1.Pod, inPlace bool) record.Choice {
	r := record.Choice{Name: pod.Name, Pod: string(pod.UID)}
	if inPlace {
		r.Container = cmp.Or(ContainerOf(pod), noContainer)
	}
	return r
}

// Chosen is the member that was chosen, as long as a call that we don't see may still restart or remove it; nil for
// none.
func (v *View) Chosen() *Member {
	if v.Epoch == nil { // its record is gone
		return nil
	}
	if v.Epoch.Choice.Removes {
		return chosenForRemoval(v)
	}
	m := v.Find(v.Epoch.Choice.Name)
	if m == nil || m.Pod == nil || m.Restarting() || Finished(m.Pod) || withdrawnLong(v, m.Pod) {
		return nil
	}
	if !same(v.Epoch.Choice, restartChoice(m.Pod, v.Epoch.Choice.Container != "")) {
		return nil
	}
	return m
}

func chosenForRemoval(v *View) *Member {
	recorded := v.Epoch.Choice
	if !recorded.Withdrawn.IsZero() && CallsLeft(v, recorded.Withdrawn) <= 0 {
		return nil
	}
	return wording.First(v.Members, func(m *Member) bool { return m.DisplayName() == recorded.Name })
}

// withdrawnLong reports whether the calls are over that have not seen that the restart was withdrawn.
func withdrawnLong(v *View, pod *corev1.Pod) bool {
	since, err := time.Parse(time.RFC3339, pod.Annotations[objects.AnnotationWithdrawn])
	return err == nil && CallsLeft(v, since) <= 0
}

// ChosenForDeletion reports whether the member was chosen to be restarted by the deletion of its pod. That can't be
// taken back: another image would be another container in the same pod, which a late call still deletes.
func ChosenForDeletion(v *View, m *Member) bool {
	return m == v.Chosen() && !v.Epoch.Choice.Removes && v.Epoch.Choice.Container == ""
}

// ChosenFirst are the members, with the one first that was chosen already.
func ChosenFirst(v *View, list []*Member) []*Member {
	chosen := v.Chosen()
	if chosen == nil {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *Member) int {
		switch chosen {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	return list
}

// ChooseForRestart says what must happen before the voter is restarted in this way; nil when nothing must, for it was
// chosen for it.
func ChooseForRestart(v *View, m *Member, inPlace bool, reason string) *decision.Verdict {
	chosen, wanted := v.Chosen(), restartChoice(m.Pod, inPlace)
	// one without a role has not served since
	wanted.Down = !m.Answers() && (!ServedBefore(m.Pod) || m.Pod.Labels[objects.LabelRole] != "")
	switch {
	case chosen != nil && (chosen != m || v.Epoch.Choice.Removes ||
		m.Pod.Annotations[objects.AnnotationWithdrawn] != ""):
		return Withdraw(v)
	case m.Pod.Annotations[objects.AnnotationWithdrawn] != "":
		return &decision.Verdict{
			Message: fmt.Sprintf("waiting until the withdrawn restart of %s is forgotten: %s",
				m.PodName, reason), Resync: rule.ResyncSoon}
	case same(v.Epoch.Choice, wanted):
		return nil
	}
	return &decision.Verdict{Message: fmt.Sprintf("recording that %s is restarted next: %s", m.PodName, reason),
		Choose: wanted, Resync: rule.ResyncSoon}
}

// ChooseForRemoval says what must happen before the member is removed; nil when nothing must, for it was chosen for
// it. One that was chosen to be restarted needs no wait: it is out of the count all the same.
func ChooseForRemoval(v *View, m *Member, why string) *decision.Verdict {
	chosen, recorded := v.Chosen(), v.Epoch.Choice
	switch {
	case chosen == m && recorded.Removes && recorded.Withdrawn.IsZero():
		return nil
	case chosen != nil && (chosen != m || recorded.Removes):
		verdict := Withdraw(v)
		verdict.Message = why + "; " + verdict.Message
		return verdict
	}
	return &decision.Verdict{Message: why + "; recording that first",
		Choose: record.Choice{Name: m.DisplayName(), Removes: true}, Resync: rule.ResyncSoon}
}

// Withdraw lets go of the member that was chosen; nil when none is.
func Withdraw(v *View) *decision.Verdict {
	chosen, recorded := v.Chosen(), v.Epoch.Choice
	switch {
	case chosen == nil:
		return nil
	case !recorded.Removes:
		since, _ := time.Parse(time.RFC3339, chosen.Pod.Annotations[objects.AnnotationWithdrawn])
		return &decision.Verdict{
			Message: fmt.Sprintf("waiting for earlier calls that may still restart %s, %.0f seconds after that was "+
				"withdrawn", chosen.PodName, CallsEnd.Seconds()), Withdraw: chosen.PodName,
			Resync: rule.ResyncLater, Due: CallsLeft(v, since)}
	case recorded.Withdrawn.IsZero():
		recorded.Withdrawn = v.Now
	}
	return &decision.Verdict{
		Message: fmt.Sprintf("waiting for earlier calls that may still remove %s, %.0f seconds after that was "+
			"withdrawn", chosen.DisplayName(), CallsEnd.Seconds()), Choose: recorded,
		Resync: rule.ResyncLater, Due: CallsLeft(v, recorded.Withdrawn)}
}

// NextChoice is what the record names from now on.
func NextChoice(v *View, verdict *decision.Verdict) record.Choice {
	switch {
	case verdict.Choose.Name != "":
		return verdict.Choose
	case v.Etcd == nil || v.Chosen() != nil:
		return v.Epoch.Choice
	}
	if m := v.Find(v.Epoch.Choice.Name); m != nil && m.Pod != nil && string(m.Pod.UID) == v.Epoch.Choice.Pod &&
		m.Pod.DeletionTimestamp != nil {
		return v.Epoch.Choice // whether it served, the next pod is to tell
	}
	return record.Choice{}
}

// NoteRestart puts on the pod of a voter, new or with another image, whether that served when it was chosen for it.
func NoteRestart(v *View, pod *corev1.Pod) {
	recorded := v.Epoch.Choice
	served := recorded.Name == pod.Name && !recorded.Down && !recorded.Removes
	switch exchanged := pod.Annotations[objects.AnnotationExchanged] != ""; {
	case exchanged && !served:
		pod.Annotations[objects.AnnotationRestarted] = wasDown
	case exchanged && pod.Annotations[objects.AnnotationRestarted] == wasDown:
		delete(pod.Annotations, objects.AnnotationRestarted)
	case exchanged: // that it was says it all
	case served:
		pod.Annotations[objects.AnnotationRestarted] = "serving"
	}
}

// ServedBefore reports whether the member served until it was restarted into this pod, or into the image that is in it.
func ServedBefore(pod *corev1.Pod) bool {
	noted := pod.Annotations[objects.AnnotationRestarted]
	return noted != wasDown && (noted != "" || pod.Annotations[objects.AnnotationExchanged] != "")
}

// Voters that may be down because of us: restarted, stopped by a fence, or defragmented, or chosen for it. A call
// that we don't see may carry such a choice out in a moment, so a rule that takes a voter away or down, or makes the
// quorum larger, counts none of them among those that serve (S1, S2).

// disrupted reports whether the voter may be down because of us, now or in a moment, although it may serve still.
func disrupted(v *View, m *Member) bool {
	return m.Restarting() || m == v.Chosen() || !m.Serving() && Busy(v, m)
}

// Leaves reports whether the member is restarted or removed in a moment: it has been, or is chosen for it now.
func Leaves(v *View, m *Member, verdict *decision.Verdict) bool {
	if chosen := verdict.Choose; chosen.Name != "" {
		return chosen.Name == m.DisplayName() && chosen.Withdrawn.IsZero()
	}
	withdrawn := m.Pod.Annotations[objects.AnnotationWithdrawn] != "" || verdict.Withdraw == m.PodName ||
		!v.Epoch.Choice.Withdrawn.IsZero()
	return m.Restarting() || m == v.Chosen() && !withdrawn
}

// Stays reports whether the voter serves, and will as far as it is for us to say.
func Stays(v *View, m *Member) bool { return m.Serving() && !disrupted(v, m) }

// Update is why a member must be restarted, or succeeded by another.
type Update struct {
	Reason string
	// InPlace: another image in the same pod is all that it takes.
	InPlace bool
	// NewVolume: a restart is not enough; it takes another volume.
	NewVolume bool
}

// CanLoseOne reports whether the quorum can do without one voter (S1). A third voter that is there only to replace
// one of two does not make it so: it would be one too many at once.
func (v *View) CanLoseOne() bool { return min(len(v.Voters), v.Replicas) > 2 }

// Restarting reports whether a member is about to stop, although it may serve for another moment: its pod has been
// deleted, or given another image.
func (m *Member) Restarting() bool {
	if m.PodName == "" {
		return false
	}
	return m.Pod == nil || m.Pod.DeletionTimestamp != nil || m.Pod.Annotations[objects.AnnotationExchanged] != "" &&
		m.Pod.Annotations[objects.AnnotationExchanged] == ContainerOf(m.Pod)
}
