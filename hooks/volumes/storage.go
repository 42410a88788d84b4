// Package volumes has the facts about claims, their sizes, and directories on nodes.
package volumes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// How changed storage reaches members that run. A claim can grow, when its class lets it; all of them do at once and
// beside whatever else goes on, blind or not: no member is disturbed, and a full disk may be why none answers. What a
// volume has grown to, etcd learns when it is restarted (its quota is a flag), one member at a time. Everything else
// that may differ takes a new volume, and so a new member: with migration Replace each member is succeeded by one.
//
// Whether a claim may grow is known to the API server alone: a class may forbid it, or a quota of the namespace.
// (Metacontroller can't show the classes, which are in no namespace, to the hooks of objects that are in one.) So it
// is asked, by answering the larger claim. A refusal changes nothing and never reaches us; but the claim stays as it
// was, and the status says since when it was asked.

const (
	// RefusedAfter is how long a claim takes at most to follow when the API server lets it, with a cache that lags.
	RefusedAfter = 5 * time.Second
	// ReplacedAfter is how long a member is left in peace whose volume would have to be replaced for that: an old
	// view of the claims is not worth a new member.
	ReplacedAfter = 15 * time.Second
	// AskAgain is when a claim that was refused is tried again: the class may have been changed.
	AskAgain = 10 * time.Minute
	// OnlineAfter is how long the kubelet gets to grow the file system of a volume that is in use. Some volumes only
	// grow when their pod starts.
	OnlineAfter = 2 * time.Minute
)

// Volume is one claim of a member, and what the spec asks of it.
type Volume struct {
	Claim *corev1.PersistentVolumeClaim
	size  resource.Quantity
	class *string
	// old is what the status says of it; zero for nothing.
	old v1alpha1.VolumeStatus
}

// claimSpec is what the spec asks of the claim of this name; false when it is for a write-ahead log that is to have
// none.
func claimSpec(v *state.View, claim string) (resource.Quantity, *string, bool) {
	s := &v.Cluster.Spec.Storage
	if !strings.HasSuffix(claim, spec.WALSuffix) {
		return objects.Canonical(spec.StorageSize(&v.Cluster.Spec)), s.StorageClassName, true
	}
	if s.WAL == nil {
		return resource.Quantity{}, nil, false
	}
	return objects.Canonical(spec.WALSize(s.WAL)), s.WAL.StorageClassName, true
}

// VolumeOf is the claim of this name, of which the spec asks something; nil when there is none, and where members stand
// on something else.
func VolumeOf(v *state.View, name string) *Volume {
	claim := v.Children.Claims[name]
	size, class, asks := claimSpec(v, name)
	if claim == nil || !v.OnClaims() || !asks {
		return nil
	}
	d := &Volume{Claim: claim, size: size, class: class}
	for i := range v.Cluster.Status.Members {
		m := &v.Cluster.Status.Members[i]
		switch {
		case m.Volume != nil && m.Name == name:
			d.old = *m.Volume
		case m.WALVolume != nil && state.WALClaim(m.Name) == name:
			d.old = *m.WALVolume
		}
	}
	return d
}

// Volumes are those that the member stands on, and of which the spec asks something.
func Volumes(v *state.View, member string) []*Volume {
	var list []*Volume
	for _, claim := range v.MemberClaims(member) {
		if claim == nil {
			continue
		}
		if d := VolumeOf(v, claim.Name); d != nil {
			list = append(list, d)
		}
	}
	return list
}

func (d *Volume) requested() resource.Quantity { return *d.Claim.Spec.Resources.Requests.Storage() }

func (d *Volume) capacity() resource.Quantity { return *d.Claim.Status.Capacity.Storage() }

// Smaller and larger compare what the claim asks for with what it should.
func (d *Volume) Smaller() bool { has := d.requested(); return has.Cmp(d.size) < 0 }

func (d *Volume) larger() bool { has := d.requested(); return has.Cmp(d.size) > 0 }

// Growing reports whether the claim asks for more than the volume has so far.
func (d *Volume) Growing() bool {
	has, asks := d.capacity(), d.requested()
	return !has.IsZero() && has.Cmp(asks) < 0
}

func (d *Volume) otherClass() bool {
	return d.class != nil && (d.Claim.Spec.StorageClassName == nil || *d.Claim.Spec.StorageClassName != *d.class)
}

// asked is since when the API server has been asked for the wanted size; zero when it has not.
func (d *Volume) asked() time.Time {
	if d.old.Wanted == nil || d.old.Wanted.Cmp(d.size) != 0 {
		return time.Time{}
	}
	return d.old.RequestTime.Time
}

// condition of the claim; nil when it is not true.
func (d *Volume) condition(kind corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaimCondition {
	return wording.Find(d.Claim.Status.Conditions, func(c *corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// refused reports whether the API server was asked to let the claim grow, and has not.
func refused(v *state.View, d *Volume) bool {
	wait := RefusedAfter
	if Migrates(v) {
		wait = ReplacedAfter
	}
	return d.Smaller() && !d.asked().IsZero() && !v.Now.Before(d.asked().Add(wait)) && !again(v, d)
}

// again reports whether it is time to ask once more: not for a member that will be replaced.
func again(v *state.View, d *Volume) bool {
	return !Migrates(v) && !v.Now.Before(d.asked().Add(AskAgain))
}

// grows reports whether the claim should be answered with the larger size. The API server takes that only of a claim
// that is bound. What was asked for is asked for again for a moment, in case that the answer was not carried out.
func grows(v *state.View, d *Volume) bool {
	if d == nil || !d.Smaller() || d.Claim.Status.Phase != corev1.ClaimBound || !v.Usable(d.Claim) || Migrates(v) &&
		d.otherClass() {
		return false
	}
	return d.asked().IsZero() || v.Now.Before(d.asked().Add(RefusedAfter)) || again(v, d)
}

// sized gives the claim the size that it should be answered with: its own, or a larger one.
func sized(v *state.View, claim *corev1.PersistentVolumeClaim) {
	d := VolumeOf(v, claim.Name)
	if member, _ := state.MemberOfClaim(v.Cluster.Name, claim.Name); !grows(v, d) || v.Etcd != nil &&
		v.Find(member) == nil {
		return
	}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: d.size}
	if _, class, known := strings.Cut(claim.Annotations[objects.AnnotationAskedFor], " "); known {
		claim.Annotations[objects.AnnotationAskedFor] = askedFor(d.size, &class)
	}
}

// VolumeSize is what etcd may count on: what the claim asks for, or less while the volume is still growing.
func VolumeSize(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	asks, has := *claim.Spec.Resources.Requests.Storage(), *claim.Status.Capacity.Storage()
	if !has.IsZero() && has.Cmp(asks) < 0 {
		return has
	}
	return asks
}

// VolumeStatus is the volume of a claim as far as it is not yet what the spec asks for; nil when it is.
func VolumeStatus(v *state.View, claim string) *v1alpha1.VolumeStatus {
	d := VolumeOf(v, claim)
	if d == nil || v.Suspended() || !d.Smaller() && !d.larger() && !d.otherClass() && !d.Growing() {
		return nil
	}
	s := &v1alpha1.VolumeStatus{Wanted: &d.size, Message: Pending(v, d)}
	if has := d.capacity(); !has.IsZero() {
		s.Capacity = &has
	}
	switch {
	case grows(v, d) && (d.asked().IsZero() || again(v, d)):
		s.RequestTime = metav1.NewTime(v.Now.Truncate(time.Second))
	case d.Smaller() && !d.asked().IsZero():
		s.RequestTime = d.old.RequestTime
	}
	return s
}

// Pending says what a volume waits for that is not what the spec asks for.
func Pending(v *state.View, d *Volume) string {
	switch {
	case d.otherClass():
		return fmt.Sprintf("its class is %s and should be %s", classOf(d.Claim), *d.class)
	case d.larger():
		return fmt.Sprintf("it is larger than %s, and a volume can't shrink", d.size.String())
	case refused(v, d):
		return "the API server does not let it grow: its class does not say allowVolumeExpansion: true, or a quota " +
			"of the namespace is used up"
	case d.Smaller() && d.Claim.Status.Phase != corev1.ClaimBound:
		return "it grows when it is bound to a volume"
	}
	for _, kind := range []corev1.PersistentVolumeClaimConditionType{corev1.PersistentVolumeClaimControllerResizeError,
		corev1.PersistentVolumeClaimNodeResizeError} {
		if c := d.condition(kind); c != nil {
			return cmp.Or(c.Message, "its storage can't expand it")
		}
	}
	if d.condition(corev1.PersistentVolumeClaimFileSystemResizePending) != nil {
		return "its file system grows on the node next"
	}
	return "it is growing"
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return "the default"
	}
	return cmp.Or(*claim.Spec.StorageClassName, "none")
}

// Migrates reports whether members may move to other volumes.
func Migrates(v *state.View) bool { return v.Cluster.Spec.Storage.Migration == v1alpha1.MigrateReplace }

// askedFor is what is written on a claim of what it is asked for with.
func askedFor(size resource.Quantity, class *string) string {
	if class == nil {
		return size.String() + " "
	}
	return size.String() + " " + *class
}

// denied says what the claim has although the spec's was asked for, as where an admission webhook changes claims that
// are made: another one would be the same. Empty for nothing.
func denied(d *Volume) string {
	size, class, known := strings.Cut(d.Claim.Annotations[objects.AnnotationAskedFor], " ")
	switch {
	case !known:
		return ""
	case d.otherClass() && class == *d.class:
		return fmt.Sprintf("it was asked for with class %s, and has %s", class, classOf(d.Claim))
	case size == d.size.String() && (d.Smaller() || d.larger()):
		has := d.requested()
		return fmt.Sprintf("it was asked for with %s, and has %s", size, has.String())
	}
	return ""
}

// Denied are the claims of voters that did not become what they were asked for, and what they have.
func Denied(v *state.View) (all wording.GroupedReasons) {
	for _, m := range v.Voters {
		for _, d := range Volumes(v, m.PodName) {
			if what := denied(d); what != "" {
				all.Add(d.Claim.Name, what)
			}
		}
	}
	return all
}

// Stuck reports whether the claim will never be what the spec asks for, by itself.
func Stuck(v *state.View, d *Volume) bool { return d.otherClass() || d.larger() || refused(v, d) }

// VolumeDiffers reports whether the member should be succeeded by one with another volume, and why.
func VolumeDiffers(v *state.View, m *state.Member) (string, bool) {
	if !Migrates(v) || Cramped(v, m) != "" {
		return "", false
	}
	if reason := WALDiffers(v, m); reason != "" {
		return reason, true
	}
	for _, d := range Volumes(v, m.PodName) {
		has := d.requested()
		switch {
		case !Stuck(v, d):
		case d.otherClass():
			return fmt.Sprintf("%s should be of the class %s instead of %s", d.noun(), *d.class, classOf(d.Claim)), true
		default:
			return fmt.Sprintf("%s should have %s instead of %s", d.noun(), d.size.String(), has.String()), true
		}
	}
	return "", false
}

func (d *Volume) noun() string {
	if strings.HasSuffix(d.Claim.Name, spec.WALSuffix) {
		return "the volume of its write-ahead log"
	}
	return "its volume"
}

// WALDiffers says that the member has a volume for its write-ahead log and should not, or the other way round; empty
// for neither.
func WALDiffers(v *state.View, m *state.Member) string {
	switch {
	case !v.OnClaims() || m.PodName == "" || v.HasWAL(m.PodName) == state.WantsWAL(v):
		return ""
	case state.WantsWAL(v):
		return "its write-ahead log should have its own volume"
	}
	return "its write-ahead log should have no volume of its own"
}

// Cramped says why the member's successor would have no room for the data; empty when it would.
func Cramped(v *state.View, m *state.Member) string {
	if d := VolumeOf(v, m.PodName); d != nil {
		return tooSmall(v, d)
	}
	return ""
}

// tooSmall says why the members' data does not fit the wanted size; empty when it does, or that is not smaller than
// what there is. A new member gets the whole file, with what is free in it, and etcd's quota counts that too.
func tooSmall(v *state.View, d *Volume) string {
	if !d.larger() {
		return ""
	}
	quota := spec.QuotaOn(v.Cluster.Spec.Options, spec.RoomFor(&v.Cluster.Spec))
	for _, m := range v.Members {
		switch {
		case m.Health.DBSizeInUse > quota:
			return fmt.Sprintf("the data of %s does not fit: %s with a quota of %s", m.PodName,
				Mebibytes(m.Health.DBSizeInUse), Mebibytes(quota))
		case m.Health.DBSize > quota:
			return fmt.Sprintf("the database file of %s does not fit, although the part in use does: %s with a quota "+
				"of %s; defragment the members first", m.PodName, Mebibytes(m.Health.DBSize), Mebibytes(quota))
		}
	}
	return ""
}

// Mebibytes writes a number of bytes, rounded up.
func Mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }

// FileSystemWaits reports whether the volume has grown, and its file system waits for the pod to start again. It is
// restarted for that once.
func FileSystemWaits(v *state.View, m *state.Member) (string, bool) {
	waits := func(d *Volume) bool {
		c := d.condition(corev1.PersistentVolumeClaimFileSystemResizePending)
		return c != nil && d.Growing() && v.Now.After(c.LastTransitionTime.Add(OnlineAfter)) &&
			m.Pod.CreationTimestamp.Time.Before(c.LastTransitionTime.Time)
	}
	return "its volume has grown; its file system grows when the pod restarts",
		slices.ContainsFunc(Volumes(v, m.PodName), waits)
}
