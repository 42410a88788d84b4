package facts

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// MadeForVersion is the version that the pod's flags are for. They stay when the image is exchanged, and so does what
// is noted of them.
func MadeForVersion(pod *corev1.Pod) string {
	return cmp.Or(pod.Annotations[objects.AnnotationFlagsFor], objects.VersionOf(pod.Annotations[objects.AnnotationImage]))
}

// VersionNow is the version that pods get now: the recorded one. While blind nothing can be recorded, and what the
// last version lacks to start may be all that keeps the quorum away; so another patch release that the spec asks for
// is followed then, and so is a version that other members have been given.
func (f *Facts) VersionNow() string {
	if f.Etcd != nil || !f.Epoch.HadQuorum() {
		return f.Epoch.Version
	}
	wanted, err := defaults.ParseRelease(f.Cluster.Spec.Version)
	if err == nil && (wanted.Minor() == f.Release().Minor() || f.given(f.Cluster.Spec.Version)) {
		return f.Cluster.Spec.Version
	}
	return f.Epoch.Version
}

// Planned is the version of an epoch that takes over from this one: the spec's, unless that is one to which the members
// that run don't go in one step either. Once it is recorded it stays, with the flags and images that follow from it,
// until the epoch runs or is prepared again.
func (f *Facts) Planned() string {
	if f.Epoch.HadQuorum() && f.Refuses(f.Hops()) {
		return f.VersionNow()
	}
	return f.Cluster.Spec.Version
}

// SameMinor reports whether two versions are of one minor version: whatever the one has written, the other can read.
func SameMinor(a, b string) bool {
	first, err := defaults.ParseRelease(a)
	second, err2 := defaults.ParseRelease(b)
	return err == nil && err2 == nil && first.Base() == second.Base()
}

// given reports whether some member's pod has the image of this version.
func (f *Facts) given(version string) bool {
	return slices.ContainsFunc(f.Names, func(name string) bool {
		pod := f.Children.Pods[name]
		return pod != nil && objects.VersionOf(pod.Annotations[objects.AnnotationImage]) == version
	})
}
