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

// How a change reaches members that run. A member whose pod is not the one that the spec asks for is updated:
// restarted by deleting its pod, or by exchanging the image in it, where nothing else differs. Where a member can't
// be restarted (its data is in memory, or there are one or two voters) it is succeeded by a new one, which joins
// first.
//
// Updates go in the order of dead, starting, not serving (rule RecreatePod), then with everybody serving one follower
// after the other, and the leader last (rule RollingUpdate). So a change that does not work stops at its first
// member, and taking it back mends that one first. Which voter is restarted is written to the epoch record before:
// see choice.go.

// update is why a member must be restarted, or succeeded by another.
type update struct {
	reason string
	// inPlace: another image in the same pod is all that it takes.
	inPlace bool
	// newVolume: a restart is not enough; it takes another volume.
	newVolume bool
}

// updateOf of a member; nil when it is as it should be.
func (v *view) updateOf(m *member) *update {
	if m.update == nil {
		found := v.findUpdate(m)
		m.update = &found
	}
	return *m.update
}

func (v *view) findUpdate(m *member) *update {
	if m.name == "" || m.pod == nil {
		return nil
	}
	for _, otherwise := range []func(*member) (string, bool){v.distrusts, v.tlsFlagsDiffer, v.allowsAnyPeer,
		v.templateDiffers, v.quotaDiffers, v.fileSystemWaits} {
		if reason, differs := otherwise(m); differs {
			return &update{reason: reason}
		}
	}
	if reason, differs := v.imageDiffers(m); differs && !v.mayDiffer(m) {
		return &update{reason: reason, inPlace: sameFlags(madeForVersion(m.pod), v.epoch.version)}
	}
	if v.peersInPlain(m) {
		return &update{reason: "its peers reach it in plain text"}
	}
	if reason, differs := v.volumeDiffers(m); differs {
		return &update{reason: reason, newVolume: true}
	}
	return nil
}

func (v *view) templateDiffers(m *member) (string, bool) {
	return "the template of its pod has changed", v.hasOutdatedTemplate(m)
}

// imageDiffers reports whether the member is to run another image, and which.
func (v *view) imageDiffers(m *member) (string, bool) {
	wanted, has := v.Settings.Etcd(&v.Cluster.Spec, v.epoch.version), m.pod.Annotations[objects.AnnotationImage]
	switch {
	case has == wanted:
		return "", false
	case tagOf(has) != tagOf(wanted):
		return fmt.Sprintf("it is to run etcd %s instead of %s", tagOf(wanted), cmp.Or(tagOf(has), "what it runs")),
			true
	}
	return fmt.Sprintf("its image is to be %s", wanted), true
}

// rolledWithin is how long Quorate's own Deployment takes at most to be rolled when nothing is wrong, nodes' pulls of
// its image included.
const rolledWithin = 5 * time.Minute

// mayDiffer reports whether the member's image may be from another repository for now: from one that the spec does
// not name, and that a replica of Quorate which is about to go has in its settings still. The two would answer by
// turns, and exchange the image back and forth.
func (v *view) mayDiffer(m *member) bool {
	return v.Cluster.Spec.Image.Repository == "" && v.Now.Before(v.Settings.Since.Add(rolledWithin)) &&
		m.serving() && tagOf(m.pod.Annotations[objects.AnnotationImage]) == v.epoch.version
}

// wantsImage reports whether another image, whatever else differs, may be put into the member's pod, and why. While
// the kubelet is about to start it from the last one it may not: put back, the old image would never be started anew,
// and the wait for that not end.
func (v *view) wantsImage(m *member) (string, bool) {
	if m.name == "" || m.pod == nil || m.restarting() && running(m.pod) || m.pod.DeletionTimestamp != nil ||
		finished(m.pod) {
		return "", false
	}
	reason, differs := v.imageDiffers(m)
	return reason, differs && sameFlags(madeForVersion(m.pod), v.epoch.version)
}

// tagOf is the version in the tag of an etcd image; empty when there is none.
func tagOf(image string) string {
	_, version, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":v")
	return version
}

// madeForVersion is the version that the pod's flags are for. They stay when the image is exchanged, and so does what
// is noted of them.
func madeForVersion(pod *corev1.Pod) string {
	return cmp.Or(pod.Annotations[objects.AnnotationFlagsFor], tagOf(pod.Annotations[objects.AnnotationImage]))
}

// peersInPlain reports whether a member that can't be restarted to listen by TLS must be succeeded by one that does.
func (v *view) peersInPlain(m *member) bool {
	return !v.restartable() && objects.Encrypted(v.Cluster) && v.everyoneDials() && !byTLS(m.PeerURLs...)
}

// canLoseOne reports whether the quorum can do without one voter (S1). A third voter that is there only to replace
// one of two does not make it so: it would be one too many at once.
func (v *view) canLoseOne() bool { return min(len(v.voters), v.replicas) > 2 }

// restartable reports whether a voter's pod may be deleted without losing its data or the quorum.
func (v *view) restartable() bool { return !v.memory() && v.canLoseOne() }

// restartSuffices reports whether the update may be done to the member itself; otherwise another one must succeed it.
func (v *view) restartSuffices(r *update) bool {
	return !r.newVolume && (v.restartable() || r.inPlace && v.canLoseOne())
}

// due are the voters that are to be updated themselves, the leader last.
func (v *view) due() []*member {
	list := filter(v.voters, func(m *member) bool {
		r := v.updateOf(m)
		return r != nil && v.restartSuffices(r) && !v.waits(m)
	})
	slices.SortStableFunc(list, func(a, b *member) int { return v.leads(a) - v.leads(b) })
	return list
}

func (v *view) leads(m *member) int {
	if m.ID == v.Etcd.Leader {
		return 1
	}
	return 0
}

func rollingUpdate(v *view) *verdict {
	if decision := v.unsettled(); decision != nil {
		return decision
	}
	due := v.chosenFirst(v.due())
	if len(due) == 0 {
		return v.withdraw()
	}
	m := due[0]
	r := v.updateOf(m)
	inPlace := r.inPlace && !v.chosenForDeletion(m)
	if v.leads(m) == 1 {
		return v.change(v.handOver(m), fmt.Sprintf("restarting %s: %s; it leads and hands over first", m.name,
			r.reason))
	}
	if decision := v.chooseForRestart(m, inPlace, r.reason); decision != nil {
		return decision
	}
	if inPlace {
		return &verdict{message: fmt.Sprintf("exchanging the image of %s: %s", m.name, r.reason), patchImage: m.name,
			resync: rule.ResyncSoon}
	}
	return &verdict{message: fmt.Sprintf("restarting %s: %s", m.name, r.reason), deletePod: m.name,
		resync: rule.ResyncSoon}
}

// unsettled says which voter's last restart is not over yet; nil for none. A pod that stops, or whose image has just
// been exchanged, serves on for a moment.
func (v *view) unsettled() *verdict {
	for _, m := range v.voters {
		switch {
		case m.name == "":
		case m.pod == nil || m.pod.DeletionTimestamp != nil:
			return &verdict{message: fmt.Sprintf("waiting for the pod of %s to stop before another member is restarted",
				m.name), resync: rule.ResyncSoon}
		case m.restarting():
			return &verdict{message: fmt.Sprintf("waiting for %s to start from its new image", m.name),
				resync: rule.ResyncSoon}
		case v.runsOtherVersion(m):
			return &verdict{message: fmt.Sprintf("%s runs etcd %s although its image %s should be %s: check what the "+
				"image holds; nobody else is restarted", m.name, m.health.Version,
				m.pod.Annotations[objects.AnnotationImage], v.epoch.version), outlook: Waits, resync: rule.ResyncSoon}
		}
	}
	return nil
}

// restarting reports whether a member is about to stop, although it may serve for another moment: its pod has been
// deleted, or given another image.
func (m *member) restarting() bool {
	if m.name == "" {
		return false
	}
	return m.pod == nil || m.pod.DeletionTimestamp != nil || m.pod.Annotations[objects.AnnotationExchanged] != "" &&
		m.pod.Annotations[objects.AnnotationExchanged] == containerOf(m.pod)
}

// runsOtherVersion reports whether a member with the wanted image answers with another version than that of the image.
func (v *view) runsOtherVersion(m *member) bool {
	_, differs := v.imageDiffers(m)
	return !differs && m.serving() && m.health.Version != v.epoch.version
}

// versionNow is the version that pods get now: the recorded one. While blind nothing can be recorded, and what the
// last version lacks to start may be all that keeps the quorum away; so another patch release that the spec asks for
// is followed then, and so is a version that other members have been given.
func (v *view) versionNow() string {
	if v.Etcd != nil || !v.epoch.hadQuorum() {
		return v.epoch.version
	}
	wanted, err := parseRelease(v.Cluster.Spec.Version)
	if err == nil && (wanted.minor == v.release().minor || v.given(v.Cluster.Spec.Version)) {
		return v.Cluster.Spec.Version
	}
	return v.epoch.version
}

// given reports whether some member's pod has the image of this version.
func (v *view) given(version string) bool {
	return slices.ContainsFunc(v.names, func(name string) bool {
		pod := v.Children.Pods[name]
		return pod != nil && tagOf(pod.Annotations[objects.AnnotationImage]) == version
	})
}

// exchange gives a desired pod another image for etcd, and a note of the container that is to end by that.
func (v *view) exchange(pod *corev1.Pod) {
	wanted := v.Settings.Etcd(&v.Cluster.Spec, v.versionNow())
	if made := madeForVersion(pod); made != tagOf(wanted) {
		pod.Annotations[objects.AnnotationFlagsFor] = made
	}
	pod.Annotations[objects.AnnotationImage] = wanted
	if id := containerOf(pod); id != "" {
		pod.Annotations[objects.AnnotationExchanged] = id
		v.noteRestart(pod)
	}
	pod.Spec.Containers = slices.Clone(pod.Spec.Containers)
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == objects.ContainerEtcd {
			pod.Spec.Containers[i].Image = wanted
		}
	}
}
