package hooks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
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

// choice is what the record says of the member that is restarted, or removed.
type choice struct {
	name string
	pod  string // its UID; none for a removal
	// container is the one that ends when the image is exchanged; empty when the pod goes.
	container string
	// down: it did not serve when it was chosen, and not because of a restart before: no change is at fault that it
	// is restarted for.
	down bool
	// removes: the member is removed instead.
	removes bool
	// withdrawn is when a removal was taken back; zero when it was not.
	withdrawn time.Time
}

const (
	// noContainer is the container of a pod in which none was seen yet.
	noContainer = "-"
	// wasDown is the last word on a choice of a voter that did not serve.
	wasDown = "down"
	// aRemoval stands where a restart names the pod; isWithdrawn behind it, and then the time.
	aRemoval, isWithdrawn = "removal", "withdrawn"
)

func readChoice(s string) choice {
	words := strings.Fields(s)
	down := len(words) > 2 && words[len(words)-1] == wasDown
	if down {
		words = words[:len(words)-1]
	}
	fields := append(words, "", "", "", "")
	if fields[1] == aRemoval {
		since, _ := time.Parse(time.RFC3339, fields[3])
		return choice{name: fields[0], removes: true, withdrawn: since}
	}
	return choice{name: fields[0], pod: fields[1], container: fields[2], down: down}
}

func (r choice) String() string {
	if r.name == "" {
		return ""
	}
	words := []string{r.name, r.pod, r.container}
	if r.down {
		words = append(words, wasDown)
	}
	if r.removes {
		words = append(words, aRemoval)
	}
	if !r.withdrawn.IsZero() {
		words = append(words, isWithdrawn, r.withdrawn.UTC().Format(time.RFC3339))
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// same reports whether the other one ends the same pod, or the same container.
func (r choice) same(other choice) bool {
	r.down = other.down
	return r == other
}

// restartChoice is that of a member's pod, or of the container in it.
func restartChoice(pod *corev1.Pod, inPlace bool) choice {
	r := choice{name: pod.Name, pod: string(pod.UID)}
	if inPlace {
		r.container = cmp.Or(containerOf(pod), noContainer)
	}
	return r
}

// chosen is the member that was chosen, as long as a call that we don't see may still restart or remove it; nil for
// none.
func (v *view) chosen() *member {
	if v.epoch == nil { // its record is gone
		return nil
	}
	if v.epoch.choice.removes {
		return v.chosenForRemoval()
	}
	m := v.find(v.epoch.choice.name)
	if m == nil || m.pod == nil || m.restarting() || finished(m.pod) || v.withdrawnLong(m.pod) {
		return nil
	}
	if !v.epoch.choice.same(restartChoice(m.pod, v.epoch.choice.container != "")) {
		return nil
	}
	return m
}

func (v *view) chosenForRemoval() *member {
	recorded := v.epoch.choice
	if !recorded.withdrawn.IsZero() && !v.Now.Before(recorded.withdrawn.Add(CallsEnd)) {
		return nil
	}
	i := slices.IndexFunc(v.members, func(m *member) bool { return m.displayName() == recorded.name })
	if i < 0 {
		return nil
	}
	return v.members[i]
}

// withdrawnLong reports whether the calls are over that have not seen that the restart was withdrawn.
func (v *view) withdrawnLong(pod *corev1.Pod) bool {
	since, err := time.Parse(time.RFC3339, pod.Annotations[objects.AnnotationWithdrawn])
	return err == nil && !v.Now.Before(since.Add(CallsEnd))
}

// chosenForDeletion reports whether the member was chosen to be restarted by the deletion of its pod. That can't be
// taken back: another image would be another container in the same pod, which a late call still deletes.
func (v *view) chosenForDeletion(m *member) bool {
	return m == v.chosen() && !v.epoch.choice.removes && v.epoch.choice.container == ""
}

// chosenFirst are the members, with the one first that was chosen already.
func (v *view) chosenFirst(list []*member) []*member {
	chosen := v.chosen()
	if chosen == nil {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *member) int {
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

// chooseForRestart says what must happen before the voter is restarted in this way; nil when nothing must, for it was
// chosen for it.
func (v *view) chooseForRestart(m *member, inPlace bool, reason string) *verdict {
	chosen, wanted := v.chosen(), restartChoice(m.pod, inPlace)
	// one without a role has not served since
	wanted.down = !m.serving() && (!servedBefore(m.pod) || m.pod.Labels[objects.LabelRole] != "")
	switch {
	case chosen != nil && (chosen != m || v.epoch.choice.removes ||
		m.pod.Annotations[objects.AnnotationWithdrawn] != ""):
		return v.withdraw()
	case m.pod.Annotations[objects.AnnotationWithdrawn] != "":
		return &verdict{message: fmt.Sprintf("waiting until the mark that withdraws the restart of %s is gone: %s",
			m.name, reason), resync: rule.ResyncSoon}
	case v.epoch.choice.same(wanted):
		return nil
	}
	return &verdict{message: fmt.Sprintf("recording that %s is restarted next: %s", m.name, reason),
		choose: wanted.String(), resync: rule.ResyncSoon}
}

// chooseForRemoval says what must happen before the member is removed; nil when nothing must, for it was chosen for
// it. One that was chosen to be restarted needs no wait: it is out of the count all the same.
func (v *view) chooseForRemoval(m *member, why string) *verdict {
	chosen, recorded := v.chosen(), v.epoch.choice
	switch {
	case chosen == m && recorded.removes && recorded.withdrawn.IsZero():
		return nil
	case chosen != nil && (chosen != m || recorded.removes):
		decision := v.withdraw()
		decision.message = why + "; " + decision.message
		return decision
	}
	return &verdict{message: why + "; recording that first",
		choose: choice{name: m.displayName(), removes: true}.String(), resync: rule.ResyncSoon}
}

// recordsRemoval reports whether what is said has the record name a member that is removed next.
func (v *verdict) recordsRemoval() bool {
	recorded := readChoice(v.choose)
	return recorded.removes && recorded.withdrawn.IsZero()
}

// withdraw lets go of the member that was chosen; nil when none is.
func (v *view) withdraw() *verdict {
	chosen, recorded := v.chosen(), v.epoch.choice
	switch {
	case chosen == nil:
		return nil
	case !recorded.removes:
		return &verdict{message: fmt.Sprintf("waiting until calls are over that would still restart %s, %.0f seconds "+
			"after that was withdrawn", chosen.name, CallsEnd.Seconds()), withdraw: chosen.name,
			resync: rule.ResyncLater}
	case recorded.withdrawn.IsZero():
		recorded.withdrawn = v.Now
	}
	return &verdict{message: fmt.Sprintf("waiting until calls are over that would still remove %s, %.0f seconds "+
		"after that was withdrawn", chosen.displayName(), CallsEnd.Seconds()), choose: recorded.String(),
		resync: rule.ResyncLater}
}

// nextChoice is what the record names from now on.
func (v *view) nextChoice(decision *verdict) string {
	switch {
	case decision.choose != "":
		return decision.choose
	case v.Etcd == nil || v.chosen() != nil:
		return v.epoch.choice.String()
	}
	if m := v.find(v.epoch.choice.name); m != nil && m.pod != nil && string(m.pod.UID) == v.epoch.choice.pod &&
		m.pod.DeletionTimestamp != nil {
		return v.epoch.choice.String() // whether it served, the next pod is to tell
	}
	return ""
}

// ---- whether a change may be at fault

// noteRestart puts on the pod of a voter, new or with another image, whether that served when it was chosen for it.
func (v *view) noteRestart(pod *corev1.Pod) {
	recorded := v.epoch.choice
	served := recorded.name == pod.Name && !recorded.down && !recorded.removes
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

// servedBefore reports whether the member served until it was restarted into this pod, or into the image that is in it.
func servedBefore(pod *corev1.Pod) bool {
	noted := pod.Annotations[objects.AnnotationRestarted]
	return noted != wasDown && (noted != "" || pod.Annotations[objects.AnnotationExchanged] != "")
}
