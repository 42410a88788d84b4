package hooks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
)

// How changed storage reaches members that run. A claim can grow, when its class lets it; all of them do at once and
// beside whatever else goes on, blind or not: nobody is disturbed, and a full disk may be why nobody answers. What a
// volume has grown to, etcd learns when it is restarted (its quota is a flag), one member at a time. Everything else
// that may differ takes a new volume, and so a new member: with migration Replace each member is succeeded by one.
//
// Whether a claim may grow is known to the API server alone: a class may forbid it, or a quota of the namespace.
// (Metacontroller can't show the classes, which are in no namespace, to the hooks of objects that are in one.) So it
// is asked, by answering the larger claim. A refusal changes nothing and never reaches us; but the claim stays as it
// was, and the status says since when it was asked.

const (
	// refusedAfter is how long a claim takes at most to follow when the API server lets it, with a cache that lags.
	refusedAfter = 5 * time.Second
	// replacedAfter is how long a member is left in peace whose volume would have to be replaced for that: an old
	// view of the claims is not worth a new member.
	replacedAfter = 15 * time.Second
	// askAgain is when a claim that was refused is tried again: somebody may have changed the class.
	askAgain = 10 * time.Minute
	// onlineAfter is how long the kubelet gets to grow the file system of a volume that is in use. Some volumes only
	// grow when their pod starts.
	onlineAfter = 2 * time.Minute
)

// volume is one claim of a member, and what the spec asks of it.
type volume struct {
	claim *corev1.PersistentVolumeClaim
	size  resource.Quantity
	class *string
	// old is what the status says of it; zero for nothing.
	old v1alpha1.VolumeStatus
}

// claimSpec is what the spec asks of the claim of this name; false when it is for a write-ahead log that is to have
// none.
func (v *view) claimSpec(claim string) (resource.Quantity, *string, bool) {
	s := &v.Cluster.Spec.Storage
	if !strings.HasSuffix(claim, walSuffix) {
		return objects.Canonical(storageSize(&v.Cluster.Spec)), s.StorageClassName, true
	}
	if s.WAL == nil {
		return resource.Quantity{}, nil, false
	}
	return objects.Canonical(walSize(s.WAL)), s.WAL.StorageClassName, true
}

func walSize(s *v1alpha1.WALSpec) resource.Quantity {
	if s.Size.IsZero() {
		return resource.MustParse("1Gi")
	}
	return s.Size
}

// volume is the claim of this name, of which the spec asks something; nil when there is none, and where members stand
// on something else.
func (v *view) volume(name string) *volume {
	claim := v.Children.Claims[name]
	size, class, asks := v.claimSpec(name)
	if claim == nil || !v.onClaims() || !asks {
		return nil
	}
	d := &volume{claim: claim, size: size, class: class}
	for i := range v.Cluster.Status.Members {
		m := &v.Cluster.Status.Members[i]
		switch {
		case m.Volume != nil && m.Name == name:
			d.old = *m.Volume
		case m.WALVolume != nil && WALClaim(m.Name) == name:
			d.old = *m.WALVolume
		}
	}
	return d
}

// volumes are those that the member stands on, and of which the spec asks something.
func (v *view) volumes(member string) []*volume {
	var list []*volume
	for _, claim := range v.memberClaims(member) {
		if claim == nil {
			continue
		}
		if d := v.volume(claim.Name); d != nil {
			list = append(list, d)
		}
	}
	return list
}

func (d *volume) requested() resource.Quantity { return *d.claim.Spec.Resources.Requests.Storage() }

func (d *volume) capacity() resource.Quantity { return *d.claim.Status.Capacity.Storage() }

// smaller and larger compare what the claim asks for with what it should.
func (d *volume) smaller() bool { has := d.requested(); return has.Cmp(d.size) < 0 }
func (d *volume) larger() bool  { has := d.requested(); return has.Cmp(d.size) > 0 }

// growing reports whether the claim asks for more than the volume has so far.
func (d *volume) growing() bool {
	has, asks := d.capacity(), d.requested()
	return !has.IsZero() && has.Cmp(asks) < 0
}

func (d *volume) otherClass() bool {
	return d.class != nil && (d.claim.Spec.StorageClassName == nil || *d.claim.Spec.StorageClassName != *d.class)
}

// asked is since when the API server has been asked for the wanted size; zero when it has not.
func (d *volume) asked() time.Time {
	if d.old.Wanted == nil || d.old.Wanted.Cmp(d.size) != 0 {
		return time.Time{}
	}
	return d.old.Asked.Time
}

// condition of the claim; nil when it is not true.
func (d *volume) condition(kind corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaimCondition {
	i := slices.IndexFunc(d.claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return nil
	}
	return &d.claim.Status.Conditions[i]
}

// ---- growing

// refused reports whether the API server was asked to let the claim grow, and has not.
func (v *view) refused(d *volume) bool {
	wait := refusedAfter
	if v.migrates() {
		wait = replacedAfter
	}
	return d.smaller() && !d.asked().IsZero() && !v.Now.Before(d.asked().Add(wait)) && !v.again(d)
}

// again reports whether it is time to ask once more: not for a member that is to be replaced.
func (v *view) again(d *volume) bool { return !v.migrates() && !v.Now.Before(d.asked().Add(askAgain)) }

// grows reports whether the claim is to be answered with the larger size. The API server takes that only of a claim
// that is bound. What was asked for is asked for again for a moment, in case that the answer was not carried out.
func (v *view) grows(d *volume) bool {
	if d == nil || !d.smaller() || d.claim.Status.Phase != corev1.ClaimBound || !v.usable(d.claim) || v.migrates() &&
		d.otherClass() {
		return false
	}
	return d.asked().IsZero() || v.Now.Before(d.asked().Add(refusedAfter)) || v.again(d)
}

// sized is the claim as it is to be answered: as it is, or larger.
func (v *view) sized(claim *corev1.PersistentVolumeClaim) {
	d := v.volume(claim.Name)
	if member, _ := memberOfClaim(v.Cluster.Name, claim.Name); !v.grows(d) || v.Etcd != nil && v.find(member) == nil {
		return
	}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: d.size}
}

// volumeSize is what etcd may count on: what the claim asks for, or less while the volume is still growing.
func volumeSize(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	asks, has := *claim.Spec.Resources.Requests.Storage(), *claim.Status.Capacity.Storage()
	if !has.IsZero() && has.Cmp(asks) < 0 {
		return has
	}
	return asks
}

// volumeStatus is the volume of a claim as far as it is not yet what the spec asks for; nil when it is.
func (v *view) volumeStatus(claim string) *v1alpha1.VolumeStatus {
	d := v.volume(claim)
	if d == nil || v.Cluster.Spec.Suspend || !d.smaller() && !d.larger() && !d.otherClass() && !d.growing() {
		return nil
	}
	s := &v1alpha1.VolumeStatus{Wanted: &d.size, Message: v.pending(d)}
	if has := d.capacity(); !has.IsZero() {
		s.Capacity = &has
	}
	switch {
	case v.grows(d) && (d.asked().IsZero() || v.again(d)):
		s.Asked = metav1.NewTime(v.Now.Truncate(time.Second))
	case d.smaller() && !d.asked().IsZero():
		s.Asked = d.old.Asked
	}
	return s
}

// pending says what a volume waits for that is not what the spec asks for.
func (v *view) pending(d *volume) string {
	switch {
	case d.otherClass():
		return fmt.Sprintf("its class is %s and is to be %s", classOf(d.claim), *d.class)
	case d.larger():
		return fmt.Sprintf("it is larger than %s, and a volume can't shrink", d.size.String())
	case v.refused(d):
		return "the API server does not let it grow: its class does not say allowVolumeExpansion: true, or a quota " +
			"of the namespace is used up"
	case d.smaller() && d.claim.Status.Phase != corev1.ClaimBound:
		return "it grows when it is bound to a volume"
	}
	for _, kind := range []corev1.PersistentVolumeClaimConditionType{corev1.PersistentVolumeClaimControllerResizeError,
		corev1.PersistentVolumeClaimNodeResizeError} {
		if c := d.condition(kind); c != nil {
			return cmp.Or(c.Message, "its storage can't make it larger")
		}
	}
	if d.condition(corev1.PersistentVolumeClaimFileSystemResizePending) != nil {
		return "its file system is to grow on the node"
	}
	return "it is growing"
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return "the default"
	}
	return cmp.Or(*claim.Spec.StorageClassName, "none")
}

// groupedReasons are what is said of members, in their order: who shares a reason is named together.
type groupedReasons []groupedReason

type groupedReason struct {
	who    []string
	reason string
}

func (all *groupedReasons) add(who, reason string) {
	for i := range *all {
		if (*all)[i].reason == reason {
			(*all)[i].who = append((*all)[i].who, who)
			return
		}
	}
	*all = append(*all, groupedReason{[]string{who}, reason})
}

func (all groupedReasons) String() string {
	var list []string
	for _, c := range all {
		list = append(list, strings.Join(c.who, ", ")+": "+c.reason)
	}
	return strings.Join(list, "; ")
}

// resize tells how volumes grow. That goes on beside everything else, so there is nothing to decide any more.
func resize(v *view) *verdict {
	var all groupedReasons
	for _, m := range v.members {
		for _, d := range v.volumes(m.name) {
			if !v.stuck(d) && (d.smaller() || d.growing()) {
				all.add(d.claim.Name, v.pending(d))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &verdict{message: fmt.Sprintf("serving; volumes grow: %s", all), resync: rule.ResyncLater}
}

// ---- what takes a new volume

func (v *view) migrates() bool { return v.Cluster.Spec.Storage.Migration == v1alpha1.MigrateReplace }

// stuck reports whether the claim will never be what the spec asks for, by itself.
func (v *view) stuck(d *volume) bool { return d.otherClass() || d.larger() || v.refused(d) }

// volumeDiffers reports whether the member is to be succeeded by one with another volume, and why.
func (v *view) volumeDiffers(m *member) (string, bool) {
	if !v.migrates() || v.cramped(m) != "" {
		return "", false
	}
	if reason := v.walDiffers(m); reason != "" {
		return reason, true
	}
	for _, d := range v.volumes(m.name) {
		has := d.requested()
		switch {
		case !v.stuck(d):
		case d.otherClass():
			return fmt.Sprintf("%s is to be of the class %s instead of %s", d.noun(), *d.class, classOf(d.claim)), true
		default:
			return fmt.Sprintf("%s is to have %s instead of %s", d.noun(), d.size.String(), has.String()), true
		}
	}
	return "", false
}

func (d *volume) noun() string {
	if strings.HasSuffix(d.claim.Name, walSuffix) {
		return "the volume of its write-ahead log"
	}
	return "its volume"
}

// walDiffers says that the member has a volume for its write-ahead log and should not, or the other way round; empty
// for neither.
func (v *view) walDiffers(m *member) string {
	switch {
	case !v.onClaims() || m.name == "" || v.hasWAL(m.name) == v.wantsWAL():
		return ""
	case v.wantsWAL():
		return "its write-ahead log is to have a volume of its own"
	}
	return "its write-ahead log is to have no volume of its own"
}

// cramped says why the member's successor would have no room for the data; empty when it would.
func (v *view) cramped(m *member) string {
	if d := v.volume(m.name); d != nil {
		return v.tooSmall(d)
	}
	return ""
}

// tooSmall says why the members' data does not fit the wanted size; empty when it does, or that is not smaller than
// what there is. A new member gets the whole file, with what is free in it, and etcd's quota counts that too.
func (v *view) tooSmall(d *volume) string {
	if !d.larger() {
		return ""
	}
	quota := quotaBytes(v.Cluster.Spec.Options, d.size)
	for _, m := range v.members {
		switch {
		case m.health.DBSizeInUse > quota:
			return fmt.Sprintf("the data of %s does not fit: %s with a quota of %s", m.name,
				mebibytes(m.health.DBSizeInUse), mebibytes(quota))
		case m.health.DBSize > quota:
			return fmt.Sprintf("the database file of %s does not fit, though what is used of it does: %s with a "+
				"quota of %s; defragment the members first", m.name, mebibytes(m.health.DBSize), mebibytes(quota))
		}
	}
	return ""
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }

func volumePending(v *view) *verdict {
	var all groupedReasons
	for _, m := range v.members {
		if small := v.cramped(m); small != "" && v.migrates() {
			all.add(m.name, "not replaced, for "+small)
			continue
		}
		if v.waits(m) {
			continue
		}
		if reason := v.walDiffers(m); reason != "" {
			all.add(m.name, reason)
		}
		for _, d := range v.volumes(m.name) {
			if v.stuck(d) {
				all.add(d.claim.Name, v.pending(d))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	choice := "set storage.migration to Replace to have such members replaced one by one, or take the change of " +
		"storage back"
	if v.migrates() {
		choice = "raise storage.size again, or make room"
	}
	return &verdict{message: fmt.Sprintf("serving, but not on the volumes that the spec asks for: %s; %s", all, choice)}
}

// ---- what a restart brings

// quotaDiffers reports whether etcd runs with another quota than its volume gives.
func (v *view) quotaDiffers(m *member) (string, bool) {
	has, known := quotaOf(m.pod)
	size := storageSize(&v.Cluster.Spec)
	switch {
	case !known, v.memory(), m.claim == nil && !v.hostPath():
		return "", false
	case !v.hostPath():
		size = volumeSize(m.claim)
	}
	wanted := quotaBytes(v.Cluster.Spec.Options, size)
	switch {
	case has == wanted:
		return "", false
	case v.Cluster.Spec.Options.QuotaBackendBytes != nil:
		return fmt.Sprintf("it runs with a quota of %s instead of %s", mebibytes(has), mebibytes(wanted)), true
	}
	return fmt.Sprintf("its volume gives it a quota of %s instead of %s", mebibytes(wanted), mebibytes(has)), true
}

// quotaOf is the quota by the flags that the pod was made with; false without one that can be read.
func quotaOf(pod *corev1.Pod) (int64, bool) {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name != objects.ContainerEtcd {
			continue
		}
		for _, flag := range pod.Spec.Containers[i].Command {
			if value, is := strings.CutPrefix(flag, "--quota-backend-bytes="); is {
				n, err := strconv.ParseInt(value, 10, 64)
				return n, err == nil
			}
		}
	}
	return 0, false
}

// fileSystemWaits reports whether the volume has grown, and its file system waits for the pod to start anew. It is
// restarted for that once.
func (v *view) fileSystemWaits(m *member) (string, bool) {
	waits := func(d *volume) bool {
		c := d.condition(corev1.PersistentVolumeClaimFileSystemResizePending)
		return c != nil && d.growing() && v.Now.After(c.LastTransitionTime.Add(onlineAfter)) &&
			m.pod.CreationTimestamp.Time.Before(c.LastTransitionTime.Time)
	}
	return "its volume has grown, and its file system only does when the pod starts",
		slices.ContainsFunc(v.volumes(m.name), waits)
}
