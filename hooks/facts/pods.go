package facts

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// JoinsOnAnotherClaim reports whether a learner that has not started yet was recorded to start on another claim than
// this one.
func (f *Facts) JoinsOnAnotherClaim(m *Member) bool {
	return f.OnClaims() && f.StartOf(m) == objects.StartJoin && f.ClaimGone(m)
}

// JoinCluster is the membership as a joining member must be told it: all of the list, itself by our name for it.
func (f *Facts) JoinCluster(joining *Member) string {
	var fields []string
	for _, m := range f.Members {
		name := cmp.Or(m.Name, m.PodName)
		if m.Alias != "" {
			name = "external-" + objects.Hex(m.ID) // its own may be that of one of ours
		}
		if m.ID == joining.ID {
			name = joining.PodName
		}
		for _, u := range m.PeerURLs {
			fields = append(fields, name+"="+u)
		}
	}
	return strings.Join(fields, ",")
}

// TakesImage reports whether another image is put into a pod in which no etcd runs, as one that can't be pulled.
func (f *Facts) TakesImage(pod *corev1.Pod) bool {
	idle := NeverRan(pod) || f.Etcd == nil && !Running(pod)
	return idle && f.Epoch.Began() && f.otherImage(pod) && f.fitsFlags(pod)
}

func (f *Facts) otherImage(pod *corev1.Pod) bool {
	return pod.Annotations[objects.AnnotationImage] != f.Settings.Etcd(&f.Cluster.Spec, f.VersionNow())
}

// fitsFlags reports whether the image that the pod should have knows all else that the pod was made with: its flags,
// and what fills its data directory, which runs in etcd's image too.
func (f *Facts) fitsFlags(pod *corev1.Pod) bool {
	return defaults.SameFlags(MadeForVersion(pod), f.VersionNow()) &&
		(!isFilled(pod) || Seeded(pod))
}

// WaitsForSeed reports whether the pod can't go on as it is.
func WaitsForSeed(pod *corev1.Pod) bool {
	return stuck(pod) || SeedFailure(pod) != nil && !Seeded(pod)
}

// Superseded reports whether a pod whose etcd has never run can't go on, and would be made otherwise now, in a way that
// it can't be given: by its template, its flags, or the image that fills its data directory.
func (f *Facts) Superseded(pod *corev1.Pod) bool {
	takes := f.Epoch.Began() && f.fitsFlags(pod)
	return WaitsForSeed(pod) && (f.TemplateOutdated(pod) || f.otherImage(pod) && !takes)
}

// IsInspectPod reports whether the pod of this name looks at a member's volumes.
func (f *Facts) IsInspectPod(name string) bool {
	of, is := strings.CutSuffix(name, InspectSuffix)
	_, ours := objects.Ordinal(f.Cluster.Name, of)
	return is && ours
}

// ProtectingPods are the pods that alone keep a claim that is being deleted, and the data on it.
func (f *Facts) ProtectingPods() []string {
	return objects.Filter(f.Names, func(name string) bool {
		pod := f.Children.Pods[name]
		if pod == nil || pod.DeletionTimestamp != nil || Finished(pod) {
			return false
		}
		return f.claimBeingDeleted(name) && pod.Spec.NodeName != ""
	})
}

const (
	// VolumeData is the volume of a member's pod with its data.
	VolumeData = "data"
	// VolumeState is a volume of its own for what prepare remembers of having started here.
	VolumeState = "state"
	// StateMount is where that is mounted.
	StateMount = "/var/run/quorate"
)
