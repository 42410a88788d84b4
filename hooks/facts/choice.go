package facts

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
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
	// WasDown is said of a voter that did not serve when it was chosen.
	WasDown = "down"
)

// SameChoice reports whether both end the same pod, or the same container.
func SameChoice(a, b record.Choice) bool {
	a.Down = b.Down
	return a == b
}

// RestartChoice is that of a member's pod, or of the container in it.
func RestartChoice(pod *corev1.Pod, inPlace bool) record.Choice {
	r := record.Choice{Name: pod.Name, Pod: string(pod.UID)}
	if inPlace {
		r.Container = cmp.Or(ContainerOf(pod), noContainer)
	}
	return r
}

// Chosen is the member that was chosen, as long as a call that we don't see may still restart or remove it; nil for
// none.
func (f *Facts) Chosen() *Member {
	if f.Epoch == nil { // its record is gone
		return nil
	}
	if f.Epoch.Choice.Removes {
		return f.chosenForRemoval()
	}
	m := f.Find(f.Epoch.Choice.Name)
	if m == nil || m.Pod == nil || m.Restarting() {
		return nil
	}
	if Finished(m.Pod) || f.withdrawnLong(m.Pod) {
		return nil
	}
	if !SameChoice(f.Epoch.Choice, RestartChoice(m.Pod, f.Epoch.Choice.Container != "")) {
		return nil
	}
	return m
}

func (f *Facts) chosenForRemoval() *Member {
	recorded := f.Epoch.Choice
	if !recorded.Withdrawn.IsZero() && f.CallsLeft(recorded.Withdrawn) <= 0 {
		return nil
	}
	return objects.First(f.Members, func(m *Member) bool { return m.DisplayName() == recorded.Name })
}

// withdrawnLong reports whether the calls are over that have not seen that the restart was withdrawn.
func (f *Facts) withdrawnLong(pod *corev1.Pod) bool {
	since, err := time.Parse(time.RFC3339, pod.Annotations[objects.AnnotationWithdrawn])
	return err == nil && f.CallsLeft(since) <= 0
}

// ChosenForDeletion reports whether the member was chosen to be restarted by the deletion of its pod. That can't be
// taken back: another image would be another container in the same pod, which a late call still deletes.
func (f *Facts) ChosenForDeletion(m *Member) bool {
	return m == f.Chosen() && !f.Epoch.Choice.Removes && f.Epoch.Choice.Container == ""
}

// ChosenFirst are the members, with the one first that was chosen already.
func (f *Facts) ChosenFirst(list []*Member) []*Member {
	chosen := f.Chosen()
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

// ServedBefore reports whether the member served until it was restarted into this pod, or into the image that is in it.
func ServedBefore(pod *corev1.Pod) bool {
	noted := pod.Annotations[objects.AnnotationRestarted]
	return noted != WasDown && (noted != "" || pod.Annotations[objects.AnnotationExchanged] != "")
}

// Voters that may be down because of us: restarted, stopped by a fence, or defragmented, or chosen for it. A call
// that we don't see may carry such a choice out in a moment, so a rule that takes a voter away or down, or makes the
// quorum larger, counts none of them among those that serve (S1, S2).

// disrupted reports whether the voter may be down because of us, now or in a moment, although it may serve still.
func (f *Facts) disrupted(m *Member) bool {
	return m.Restarting() || m == f.Chosen() || !m.Serving() && f.busy(m)
}

// Stays reports whether the voter serves, and will as far as it is for us to say.
func (f *Facts) Stays(m *Member) bool { return m.Serving() && !f.disrupted(m) }

// Update is why a member must be restarted, or succeeded by another.
type Update struct {
	Reason string
	// InPlace: another image in the same pod is all that it takes.
	InPlace bool
	// NewVolume: a restart is not enough; it takes another volume.
	NewVolume bool
	// ForDefragmentation: nothing differs. The run has begun, and waits for no window.
	ForDefragmentation bool
}

// CanLoseOne reports whether the quorum can do without one voter (S1). A third voter that is there only to replace
// one of two does not make it so: it would be one too many at once.
func (f *Facts) CanLoseOne() bool { return min(len(f.Voters), f.Replicas) > 2 }

// Restarting reports whether a member is about to stop, although it may serve for another moment: its pod has been
// deleted, or given another image.
func (m *Member) Restarting() bool {
	if m.PodName == "" {
		return false
	}
	return m.Pod == nil || m.Pod.DeletionTimestamp != nil || m.Pod.Annotations[objects.AnnotationExchanged] != "" &&
		m.Pod.Annotations[objects.AnnotationExchanged] == ContainerOf(m.Pod)
}
