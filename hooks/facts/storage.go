package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// How changed storage reaches members that run. A claim can grow, when its class lets it; all of them do at once and
// beside whatever else goes on, blind or not: no member is disturbed, and a full disk may be why none answers. What a
// Volume has grown to, etcd learns when it is restarted (its quota is a flag), one member at a time. Everything else
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
	// onlineAfter is how long the kubelet gets to grow the file system of a volume that is in use. Some volumes only
	// grow when their pod starts.
	onlineAfter = 2 * time.Minute
)

// Volume is one claim of a member, and what the spec asks of it.
type Volume struct {
	Claim *corev1.PersistentVolumeClaim
	Size  resource.Quantity
	class *string
	// old is what the status says of it; zero for nothing.
	old v1beta1.VolumeStatus
}

// ClaimSpec is what the spec asks of the claim of this name; false when it is for a write-ahead log that is to have
// none.
func (f *Facts) ClaimSpec(claim string) (resource.Quantity, *string, bool) {
	s := &f.Cluster.Spec.Storage
	if !strings.HasSuffix(claim, defaults.WALSuffix) {
		return objects.Canonical(defaults.StorageSize(&f.Cluster.Spec)), s.StorageClassName, true
	}
	if s.WAL == nil {
		return resource.Quantity{}, nil, false
	}
	return objects.Canonical(defaults.WALSize(s.WAL)), s.WAL.StorageClassName, true
}

// VolumeOf is the claim of this name, of which the spec asks something; nil when there is none, and where members stand
// on something else.
func (f *Facts) VolumeOf(name string) *Volume {
	claim := f.Children.Claims[name]
	size, class, asks := f.ClaimSpec(name)
	if claim == nil || !f.OnClaims() || !asks {
		return nil
	}
	d := &Volume{Claim: claim, Size: size, class: class}
	for i := range f.Cluster.Status.Members {
		m := &f.Cluster.Status.Members[i]
		switch {
		case m.Volume != nil && m.Name == name:
			d.old = *m.Volume
		case m.WALVolume != nil && WALClaim(m.Name) == name:
			d.old = *m.WALVolume
		}
	}
	return d
}

// Volumes are those that the member stands on, and of which the spec asks something.
func (f *Facts) Volumes(member string) []*Volume {
	var list []*Volume
	for _, claim := range f.MemberClaims(member) {
		if claim == nil {
			continue
		}
		if d := f.VolumeOf(claim.Name); d != nil {
			list = append(list, d)
		}
	}
	return list
}

func (d *Volume) requested() resource.Quantity { return *d.Claim.Spec.Resources.Requests.Storage() }

func (d *Volume) capacity() resource.Quantity { return *d.Claim.Status.Capacity.Storage() }

// Smaller and larger compare what the claim asks for with what it should.
func (d *Volume) Smaller() bool { has := d.requested(); return has.Cmp(d.Size) < 0 }

func (d *Volume) larger() bool { has := d.requested(); return has.Cmp(d.Size) > 0 }

// Growing reports whether the claim asks for more than the volume has so far.
func (d *Volume) Growing() bool {
	has := d.capacity()
	asks := d.requested()
	return !has.IsZero() && has.Cmp(asks) < 0
}

func (d *Volume) otherClass() bool {
	return d.class != nil && (d.Claim.Spec.StorageClassName == nil || *d.Claim.Spec.StorageClassName != *d.class)
}

// asked is since when the API server has been asked for the wanted size; zero when it has not.
func (d *Volume) asked() time.Time {
	if d.old.Wanted == nil || d.old.Wanted.Cmp(d.Size) != 0 {
		return time.Time{}
	}
	return d.old.RequestTime.Time
}

// condition of the claim; nil when it is not true.
func (d *Volume) condition(kind corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaimCondition {
	return objects.Find(d.Claim.Status.Conditions, func(c *corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// refused reports whether the API server was asked to let the claim grow, and has not.
func (f *Facts) refused(d *Volume) bool {
	wait := RefusedAfter
	if f.Migrates() {
		wait = ReplacedAfter
	}
	return d.Smaller() && !d.asked().IsZero() && !f.Now.Before(d.asked().Add(wait)) && !f.again(d)
}

// again reports whether it is time to ask once more: not for a member that will be replaced.
func (f *Facts) again(d *Volume) bool {
	return !f.Migrates() && !f.Now.Before(d.asked().Add(AskAgain))
}

// Grows reports whether the claim should be answered with the larger size. The API server takes that only of a claim
// that is bound. What was asked for is asked for again for a moment, in case that the answer was not carried out.
func (f *Facts) Grows(d *Volume) bool {
	if d == nil || !d.Smaller() || f.Migrates() && d.otherClass() {
		return false
	}
	if d.Claim.Status.Phase != corev1.ClaimBound || !f.Usable(d.Claim) {
		return false
	}
	return d.asked().IsZero() || f.Now.Before(d.asked().Add(RefusedAfter)) || f.again(d)
}

// volumeSize is what etcd may count on: what the claim asks for, or less while the volume is still growing.
func volumeSize(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	asks := *claim.Spec.Resources.Requests.Storage()
	has := *claim.Status.Capacity.Storage()
	if !has.IsZero() && has.Cmp(asks) < 0 {
		return has
	}
	return asks
}

// VolumeStatus is the volume of a claim as far as it is not yet what the spec asks for; nil when it is.
func (f *Facts) VolumeStatus(claim string) *v1beta1.VolumeStatus {
	d := f.VolumeOf(claim)
	if d == nil || f.Suspended() {
		return nil
	}
	if !d.Smaller() && !d.larger() && !d.otherClass() && !d.Growing() {
		return nil
	}
	s := &v1beta1.VolumeStatus{Wanted: &d.Size, Message: f.Pending(d)}
	if has := d.capacity(); !has.IsZero() {
		s.Capacity = &has
	}
	switch {
	case f.Grows(d) && (d.asked().IsZero() || f.again(d)):
		s.RequestTime = metav1.NewTime(f.Now.Truncate(time.Second))
	case d.Smaller() && !d.asked().IsZero():
		s.RequestTime = d.old.RequestTime
	}
	return s
}

// Pending says what a volume waits for that is not what the spec asks for.
func (f *Facts) Pending(d *Volume) string {
	switch {
	case d.otherClass():
		return fmt.Sprintf("its class is %s and should be %s", classOf(d.Claim), *d.class)
	case d.larger():
		return fmt.Sprintf("it is larger than %s, and a volume can't shrink", d.Size.String())
	case f.refused(d):
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
func (f *Facts) Migrates() bool { return f.Cluster.Spec.Storage.Migration == v1beta1.MigrateReplace }

// AskedFor is what is written on a claim of what it is asked for with.
func AskedFor(size resource.Quantity, class *string) string {
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
	case size == d.Size.String() && (d.Smaller() || d.larger()):
		has := d.requested()
		return fmt.Sprintf("it was asked for with %s, and has %s", size, has.String())
	}
	return ""
}

// Denied are the claims of voters that did not become what they were asked for, and what they have.
func (f *Facts) Denied() (all objects.GroupedReasons) {
	for _, m := range f.Voters {
		for _, d := range f.Volumes(m.PodName) {
			if what := denied(d); what != "" {
				all.Add(d.Claim.Name, what)
			}
		}
	}
	return all
}

// Stuck reports whether the claim will never be what the spec asks for, by itself.
func (f *Facts) Stuck(d *Volume) bool { return d.otherClass() || d.larger() || f.refused(d) }

// volumeDiffers reports whether the member should be succeeded by one with another volume, and why.
func (f *Facts) volumeDiffers(m *Member) (string, bool) {
	if !f.Migrates() || f.Cramped(m) != "" {
		return "", false
	}
	if reason := f.WALDiffers(m); reason != "" {
		return reason, true
	}
	for _, d := range f.Volumes(m.PodName) {
		has := d.requested()
		switch {
		case !f.Stuck(d):
		case d.otherClass():
			return fmt.Sprintf("%s should be of the class %s instead of %s", d.noun(), *d.class, classOf(d.Claim)), true
		default:
			return fmt.Sprintf("%s should have %s instead of %s", d.noun(), d.Size.String(), has.String()), true
		}
	}
	return "", false
}

func (d *Volume) noun() string {
	if strings.HasSuffix(d.Claim.Name, defaults.WALSuffix) {
		return "the volume of its write-ahead log"
	}
	return "its volume"
}

// WALDiffers says that the member has a volume for its write-ahead log and should not, or the other way round; empty
// for neither.
func (f *Facts) WALDiffers(m *Member) string {
	switch {
	case !f.OnClaims() || m.PodName == "" || f.HasWAL(m.PodName) == f.wantsWAL():
		return ""
	case f.wantsWAL():
		return "its write-ahead log should have its own volume"
	}
	return "its write-ahead log should have no volume of its own"
}

// Cramped says why the member's successor would have no room for the data; empty when it would.
func (f *Facts) Cramped(m *Member) string {
	if d := f.VolumeOf(m.PodName); d != nil {
		return f.tooSmall(d)
	}
	return ""
}

// tooSmall says why the members' data does not fit the wanted size; empty when it does, or that is not smaller than
// what there is. A new member gets the whole file, with what is free in it, and etcd's quota counts that too.
func (f *Facts) tooSmall(d *Volume) string {
	if !d.larger() {
		return ""
	}
	quota := defaults.QuotaOn(f.Cluster.Spec.Options, defaults.RoomFor(&f.Cluster.Spec))
	for _, m := range f.Members {
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

// fileSystemWaits reports whether the volume has grown, and its file system waits for the pod to start again. It is
// restarted for that once.
func (f *Facts) fileSystemWaits(m *Member) (string, bool) {
	waits := func(d *Volume) bool {
		c := d.condition(corev1.PersistentVolumeClaimFileSystemResizePending)
		return c != nil && d.Growing() && f.Now.After(c.LastTransitionTime.Add(onlineAfter)) &&
			m.Pod.CreationTimestamp.Time.Before(c.LastTransitionTime.Time)
	}
	return "its volume has grown; its file system grows when the pod restarts",
		slices.ContainsFunc(f.Volumes(m.PodName), waits)
}
