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

// Which member is restarted or removed. The epoch record names it first. It is written with the version that was observed, so of two calls
// only one can choose.
//
// A restart (rules Fence, RecreatePod and RollingUpdate) names the very pod or container that ends. It holds as long as a call that we don't
// see may still act on it: until another pod or container is seen in its place, or its end. A deletion of the old pod, which names its UID,
// then fails, and so does a new image for it, which names its version. When others wait, or there is no need to restart it any more, the pod
// is marked as spared. That write fails as long as our view of the pod is old; no call acts on a choice that sees the mark; and a call that
// has not seen it is done when calls end (S2, S14).
//
// A removal names the member, for that is all that etcd asks for. It holds while the member is listed, whatever becomes of its pod. One that
// is no longer wanted is withdrawn in the record, and is over when calls end (S1, S3). Until then the member is not restarted either: on
// Memory that would take its data.

// restart is what the record says of the member that is restarted, or removed.
type restart struct {
	name string
	pod  string // its UID; none for a removal
	// container is the one that ends when the image is exchanged; empty when the pod goes.
	container string
	// down: it did not serve when it was chosen, and not because of a restart before: no change is at fault that it is restarted for.
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

func readRestart(s string) restart {
	words := strings.Fields(s)
	down := len(words) > 2 && words[len(words)-1] == wasDown
	if down {
		words = words[:len(words)-1]
	}
	fields := append(words, "", "", "", "")
	if fields[1] == aRemoval {
		since, _ := time.Parse(time.RFC3339, fields[3])
		return restart{name: fields[0], removes: true, withdrawn: since}
	}
	return restart{name: fields[0], pod: fields[1], container: fields[2], down: down}
}

func (r restart) String() string {
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
func (r restart) same(other restart) bool {
	r.down = other.down
	return r == other
}

// restartOf a member's pod, or of the container in it.
func restartOf(pod *corev1.Pod, inPlace bool) restart {
	r := restart{name: pod.Name, pod: string(pod.UID)}
	if inPlace {
		r.container = cmp.Or(containerOf(pod), noContainer)
	}
	return r
}

// held is the member that was chosen, as long as a call that we don't see may still restart or remove it; nil for none.
func (v *view) held() *member {
	if v.epoch == nil { // its record is gone
		return nil
	}
	if v.epoch.renewing.removes {
		return v.heldForRemoval()
	}
	m := v.find(v.epoch.renewing.name)
	if m == nil || m.pod == nil || m.restarting() || finished(m.pod) || v.sparedLong(m.pod) {
		return nil
	}
	if !v.epoch.renewing.same(restartOf(m.pod, v.epoch.renewing.container != "")) {
		return nil
	}
	return m
}

func (v *view) heldForRemoval() *member {
	chosen := v.epoch.renewing
	if !chosen.withdrawn.IsZero() && !v.Now.Before(chosen.withdrawn.Add(CallsEnd)) {
		return nil
	}
	i := slices.IndexFunc(v.members, func(m *member) bool { return m.called() == chosen.name })
	if i < 0 {
		return nil
	}
	return v.members[i]
}

// sparedLong reports whether the calls are over that have not seen that the pod is spared.
func (v *view) sparedLong(pod *corev1.Pod) bool {
	since, err := time.Parse(time.RFC3339, pod.Annotations[objects.AnnotationSpared])
	return err == nil && !v.Now.Before(since.Add(CallsEnd))
}

// goes reports whether the member was chosen to be restarted by the deletion of its pod. That can't be taken back: another image would be
// another container in the same pod, which a late call still deletes.
func (v *view) goes(m *member) bool {
	return m == v.held() && !v.epoch.renewing.removes && v.epoch.renewing.container == ""
}

// heldFirst are the members, with the one first that was chosen already.
func (v *view) heldFirst(list []*member) []*member {
	held := v.held()
	if held == nil {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *member) int {
		switch held {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	return list
}

// choose says what must happen before the voter is restarted in this way; nil when nothing must, for it was chosen for it.
func (v *view) choose(m *member, inPlace bool, reason string) *verdict {
	held, wanted := v.held(), restartOf(m.pod, inPlace)
	wanted.down = !m.serving() && (!servedBefore(m.pod) || m.pod.Labels[objects.LabelRole] != "") // one without a role has not served since
	switch {
	case held != nil && (held != m || v.epoch.renewing.removes || m.pod.Annotations[objects.AnnotationSpared] != ""):
		return v.letGo()
	case m.pod.Annotations[objects.AnnotationSpared] != "":
		return &verdict{message: fmt.Sprintf("waiting until the pod of %s is no longer spared: %s", m.name, reason), resync: rule.Soon}
	case v.epoch.renewing.same(wanted):
		return nil
	}
	return &verdict{message: fmt.Sprintf("recording that %s is restarted next: %s", m.name, reason), renew: wanted.String(), resync: rule.Soon}
}

// chooseToGo says what must happen before the member is removed; nil when nothing must, for it was chosen for it. One that was chosen to be
// restarted needs no wait: it is out of the count all the same.
func (v *view) chooseToGo(m *member, why string) *verdict {
	held, chosen := v.held(), v.epoch.renewing
	switch {
	case held == m && chosen.removes && chosen.withdrawn.IsZero():
		return nil
	case held != nil && (held != m || chosen.removes):
		said := v.letGo()
		said.message = why + "; " + said.message
		return said
	}
	return &verdict{message: why + "; recording that first", renew: restart{name: m.called(), removes: true}.String(), resync: rule.Soon}
}

// recordsRemoval reports whether what is said has the record name a member that is removed next.
func (v *verdict) recordsRemoval() bool {
	chosen := readRestart(v.renew)
	return chosen.removes && chosen.withdrawn.IsZero()
}

// letGo lets go of the member that was chosen; nil when none is.
func (v *view) letGo() *verdict {
	held, chosen := v.held(), v.epoch.renewing
	switch {
	case held == nil:
		return nil
	case !chosen.removes:
		return &verdict{message: fmt.Sprintf("waiting until calls are over that would still restart %s, %.0f seconds after it was spared", held.name, CallsEnd.Seconds()), spare: held.name, resync: rule.Patience}
	case chosen.withdrawn.IsZero():
		chosen.withdrawn = v.Now
	}
	return &verdict{message: fmt.Sprintf("waiting until calls are over that would still remove %s, %.0f seconds after that was withdrawn", held.called(), CallsEnd.Seconds()), renew: chosen.String(), resync: rule.Patience}
}

// renewing is the restart that the record names from now on.
func (v *view) renewing(said *verdict) string {
	switch {
	case said.renew != "":
		return said.renew
	case v.Etcd == nil || v.held() != nil:
		return v.epoch.renewing.String()
	}
	if m := v.find(v.epoch.renewing.name); m != nil && m.pod != nil && string(m.pod.UID) == v.epoch.renewing.pod && m.pod.DeletionTimestamp != nil {
		return v.epoch.renewing.String() // whether it served, the next pod is to tell
	}
	return ""
}

// ---- whether a change may be at fault

// noteRestart puts on the pod of a voter, new or with another image, whether that served when it was chosen for it.
func (v *view) noteRestart(pod *corev1.Pod) {
	chosen := v.epoch.renewing
	served := chosen.name == pod.Name && !chosen.down && !chosen.removes
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
