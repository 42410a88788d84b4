package hooks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Which voter is restarted. Whoever wants to restart one (rules Fence, Remake and Roll) has it named by the epoch record first, with the very
// pod or container that is to end. The record is written with the version that was observed, so of two calls only one can choose.
//
// A choice holds as long as a call that we don't see may still act on it: until another pod or container is seen in its place, or its end. A
// deletion of the old pod, which names its UID, then fails, and so does a new image for it, which names its version. When others wait, or
// there is no need to restart it any more, the pod is marked as spared. That write fails as long as our view of the pod is old; nobody acts
// on a choice who sees the mark; and who has not seen it is done when calls end (S2, S14).

// restart is what the record says of the voter that is restarted.
type restart struct {
	name string
	pod  string // its UID
	// container is the one that ends when the image is exchanged; empty when the pod goes.
	container string
}

// noContainer is the container of a pod in which none was seen yet.
const noContainer = "-"

func readRestart(s string) restart {
	fields := append(strings.Fields(s), "", "", "")
	return restart{fields[0], fields[1], fields[2]}
}

func (r restart) String() string {
	if r.name == "" {
		return ""
	}
	return strings.TrimRight(strings.Join([]string{r.name, r.pod, r.container}, " "), " ")
}

// restartOf a member's pod, or of the container in it.
func restartOf(pod *corev1.Pod, inPlace bool) restart {
	r := restart{name: pod.Name, pod: string(pod.UID)}
	if inPlace {
		r.container = or(containerOf(pod), noContainer)
	}
	return r
}

// held is the voter that was chosen, as long as somebody may still restart it without our seeing; nil for none.
func (v *view) held() *member {
	m := v.find(v.epoch.renewing.name)
	if m == nil || m.pod == nil || m.restarting() || finished(m.pod) || v.sparedLong(m.pod) {
		return nil
	}
	if v.epoch.renewing != restartOf(m.pod, v.epoch.renewing.container != "") {
		return nil
	}
	return m
}

// sparedLong reports whether the calls are over that have not seen that the pod is spared.
func (v *view) sparedLong(pod *corev1.Pod) bool {
	since, err := time.Parse(time.RFC3339, pod.Annotations[AnnotationSpared])
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
	switch {
	case held != nil && (held != m || m.pod.Annotations[AnnotationSpared] != ""):
		return v.letGo()
	case m.pod.Annotations[AnnotationSpared] != "":
		return &verdict{message: fmt.Sprintf("waiting until the pod of %s is no longer spared: %s", m.name, reason), resync: soon}
	case v.epoch.renewing == wanted:
		return nil
	}
	return &verdict{message: fmt.Sprintf("recording that %s is restarted next: %s", m.name, reason), renew: wanted.String(), resync: soon}
}

// letGo lets go of the voter that was chosen; nil when none is.
func (v *view) letGo() *verdict {
	held := v.held()
	if held == nil {
		return nil
	}
	return &verdict{message: fmt.Sprintf("waiting until calls are over that would still restart %s, %.0f seconds after it was spared", held.name, CallsEnd.Seconds()), spare: held.name, resync: patience}
}

// renewing is the restart that the record names from now on.
func (v *view) renewing(said *verdict) string {
	switch {
	case said.renew != "":
		return said.renew
	case v.Etcd == nil || v.held() != nil:
		return v.epoch.renewing.String()
	}
	return ""
}
