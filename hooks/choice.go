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

// Which voter is restarted. Whoever wants to restart one (rules Fence, Remake and Roll) has it named by the epoch record first, with the very
// pod or container that is to end. The record is written with the version that was observed, so of two calls only one can choose.
//
// A choice holds as long as a call that we don't see may still act on it: until another pod or container is seen in its place, or its end. A
// deletion of the old pod, which names its UID, then fails, and so does a new image for it, which names its version. When others wait, or
// there is no need to restart it any more, the pod is marked as spared. That write fails as long as our view of the pod is old; nobody acts
// on a choice who sees the mark; and who has not seen it is done when calls end (S2, S14). A removal names no pod in etcd, but it is decided by one who has seen the choice and
// no mark; so it is over then, too (S1).

// restart is what the record says of the voter that is restarted.
type restart struct {
	name string
	pod  string // its UID
	// container is the one that ends when the image is exchanged; empty when the pod goes.
	container string
	// down: it did not serve when it was chosen, and not because of a restart before: no change is at fault that it is restarted for.
	down bool
}

// noContainer is the container of a pod in which none was seen yet.
const noContainer = "-"

// wasDown is the last word on a choice of a voter that did not serve.
const wasDown = "down"

func readRestart(s string) restart {
	words := strings.Fields(s)
	down := len(words) > 2 && words[len(words)-1] == wasDown
	if down {
		words = words[:len(words)-1]
	}
	fields := append(words, "", "", "")
	return restart{fields[0], fields[1], fields[2], down}
}

func (r restart) String() string {
	if r.name == "" {
		return ""
	}
	words := []string{r.name, r.pod, r.container}
	if r.down {
		words = append(words, wasDown)
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

// held is the voter that was chosen, as long as somebody may still restart it without our seeing; nil for none.
func (v *view) held() *member {
	m := v.find(v.epoch.renewing.name)
	if m == nil || m.pod == nil || m.restarting() || finished(m.pod) || v.sparedLong(m.pod) {
		return nil
	}
	if !v.epoch.renewing.same(restartOf(m.pod, v.epoch.renewing.container != "")) {
		return nil
	}
	return m
}

// sparedLong reports whether the calls are over that have not seen that the pod is spared.
func (v *view) sparedLong(pod *corev1.Pod) bool {
	since, err := time.Parse(time.RFC3339, pod.Annotations[objects.AnnotationSpared])
	return err == nil && !v.Now.Before(since.Add(CallsEnd))
}

// goes reports whether the member was chosen to be restarted by the deletion of its pod. That can't be taken back: another image would be
// another container in the same pod, which a late call still deletes.
func (v *view) goes(m *member) bool {
	return m == v.held() && v.epoch.renewing.container == ""
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
	case held != nil && (held != m || m.pod.Annotations[objects.AnnotationSpared] != ""):
		return v.letGo()
	case m.pod.Annotations[objects.AnnotationSpared] != "":
		return &verdict{message: fmt.Sprintf("waiting until the pod of %s is no longer spared: %s", m.name, reason), resync: rule.Soon}
	case v.epoch.renewing.same(wanted):
		return nil
	}
	return &verdict{message: fmt.Sprintf("recording that %s is restarted next: %s", m.name, reason), renew: wanted.String(), resync: rule.Soon}
}

// chooseToGo says what must happen before the voter is removed; nil when nothing must. One without a pod, or whose pod
// is on its way out, can't be restarted besides.
func (v *view) chooseToGo(m *member, why string) *verdict {
	if m.Learner || m.pod == nil || m.restarting() || finished(m.pod) {
		return nil
	}
	said := v.choose(m, false, why)
	if said != nil && said.renew != "" {
		said.message = why + "; recording that first"
	}
	return said
}

// letGo lets go of the voter that was chosen; nil when none is.
func (v *view) letGo() *verdict {
	held := v.held()
	if held == nil {
		return nil
	}
	return &verdict{message: fmt.Sprintf("waiting until calls are over that would still restart or remove %s, %.0f seconds after it was spared", held.name, CallsEnd.Seconds()), spare: held.name, resync: rule.Patience}
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
	served := chosen.name == pod.Name && !chosen.down
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
