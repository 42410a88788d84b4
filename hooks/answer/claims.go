package answer

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// How members that do not serve are healed. A voter that is unreachable for too long is given up: removed, and
// succeeded under a new name. Its data may be all that is left of something one day, so its claim is kept for a while,
// in quarantine. A learner that does not come to anything is tried again, ever more slowly. A member that answers as
// another is fenced off, and left to a person.
//
// The clock is the status: since when a member is not ready, and since when the others have quorum, as far as Quorate
// has looked (facts/since.go). Losing it only delays.

const (
	defaultKeepVolumesFor = 24 * time.Hour
)

// keepVolumesFor is how long the claim of a voter that was given up is kept.
func keepVolumesFor(s *v1beta1.EtcdClusterSpec) time.Duration {
	if d := s.MemberReplacement.KeepVolumesFor; d != nil {
		return max(0, d.Duration)
	}
	return defaultKeepVolumesFor
}

// claimKept reports whether a claim is kept although etcd no longer lists its member. What a person writes in place
// of the time keeps it for good.
func claimKept(f *facts.Facts, claim *corev1.PersistentVolumeClaim) bool {
	keep := keepVolumesFor(&f.Cluster.Spec)
	if keep == 0 || !facts.Quarantined(claim) {
		return keep > 0 && facts.OfFailedMember(claim)
	}
	since, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined])
	return err != nil || f.Now.Before(since.Add(keep))
}

// quarantine puts on the claims, with etcd's list in hand, which members are given up and which claims are kept
// without theirs. A member that serves again, and is not given up for something else, is no longer marked.
func quarantine(f *facts.Facts, claims []*corev1.PersistentVolumeClaim, plan *decision.Plan) {
	for _, claim := range claims {
		member, _ := facts.MemberOfClaim(f.Cluster.Name, claim.Name)
		m := f.Find(member)
		switch {
		case member == plan.GivenUp.Member && f.Ours(claim):
			if old := claim.Annotations[objects.AnnotationFailedMember]; old == "" || old == objects.FailedUnreachable {
				claim.Annotations[objects.AnnotationFailedMember] = plan.GivenUp.Mark
			}
		case m != nil && m.Answers():
			delete(claim.Annotations, objects.AnnotationFailedMember)
		case m == nil && facts.OfFailedMember(claim) && !facts.Quarantined(claim):
			claim.Annotations[objects.AnnotationQuarantined] = f.Now.UTC().Format(time.RFC3339)
			claim.Labels[objects.LabelQuarantined] = "true"
		}
	}
}

// formerClaims are those of earlier epochs: kept in quarantine, as long as the spec says and until the epoch that
// runs serves.
func formerClaims(f *facts.Facts) []*corev1.PersistentVolumeClaim {
	if f.Epoch == nil || f.Epoch.First == 0 {
		return nil
	}
	var list []*corev1.PersistentVolumeClaim
	for _, name := range slices.SortedFunc(maps.Keys(f.All.Claims), objects.ByOrdinal) {
		member, ours := facts.MemberOfClaim(f.Cluster.Name, name)
		if n, _ := objects.Ordinal(f.Cluster.Name, member); !ours || n >= f.Epoch.First ||
			f.Expired(f.All.Claims[name]) {
			continue
		}
		claim := *f.All.Claims[name]
		LeaveBehind(f, &claim, f.Epoch.After)
		list = append(list, &claim)
	}
	return list
}

// LeaveBehind puts a claim in quarantine, of which an epoch has no more need, and says of which epoch it is: also on
// that of a member which was given up before.
func LeaveBehind(f *facts.Facts, claim *corev1.PersistentVolumeClaim, epoch int) {
	member, _ := facts.MemberOfClaim(f.Cluster.Name, claim.Name)
	own := objects.Only(claim.Annotations, objects.AnnotationQuarantined, objects.AnnotationEpoch,
		objects.AnnotationFailedMember, objects.AnnotationAskedFor)
	own[objects.AnnotationEpoch] = cmp.Or(own[objects.AnnotationEpoch], strconv.Itoa(epoch))
	if own[objects.AnnotationQuarantined] == "" {
		own[objects.AnnotationQuarantined] = f.Now.UTC().Format(time.RFC3339)
		if own[objects.AnnotationFailedMember] == objects.FailedUnreachable {
			delete(own, objects.AnnotationFailedMember) // it was not removed
		}
	}
	claim.Labels = objects.Labels(f.Cluster, map[string]string{objects.LabelMember: member,
		objects.LabelQuarantined: "true"})
	claim.Annotations = objects.Annotations(f.Cluster, own)
}

// endedClaims are those of an epoch that is being stopped: in quarantine when no pod of it can start any more, and
// none is left. If the records are deleted then, the claims tell that this epoch is over.
func endedClaims(f *facts.Facts, _ *decision.Plan) []*corev1.PersistentVolumeClaim {
	list := keptClaims(f, f.Names)
	for _, claim := range list {
		if f.Over() && len(f.Unended()) == 0 && (f.Choosing() || f.Next.SeesAll()) {
			LeaveBehind(f, claim, f.Epoch.N)
		}
	}
	return list
}

// keptClaims are the observed claims of these members.
func keptClaims(f *facts.Facts, names []string) []*corev1.PersistentVolumeClaim {
	return claims(f, names, func(string) bool { return false })
}

// claims are the observed claims of these members, and new ones where create says so.
func claims(f *facts.Facts, names []string, create func(string) bool) []*corev1.PersistentVolumeClaim {
	var list []*corev1.PersistentVolumeClaim
	for _, name := range claimNames(f, names, create) {
		member, _ := facts.MemberOfClaim(f.Cluster.Name, name)
		if old := f.Children.Claims[name]; old != nil {
			claim := *old
			claim.Labels = objects.Labels(f.Cluster, map[string]string{objects.LabelMember: member})
			claim.Annotations = objects.Annotations(f.Cluster, objects.Only(old.Annotations,
				objects.AnnotationFailedMember, objects.AnnotationQuarantined, objects.AnnotationEpoch, objects.AnnotationAskedFor))
			if facts.Quarantined(old) {
				claim.Labels[objects.LabelQuarantined] = "true"
			}
			sized(f, &claim)
			list = append(list, &claim)
		} else if create(member) {
			list = append(list, NewClaim(f, name))
		}
	}
	return list
}

// NewClaim is a claim of this name, as the spec wants it now.
func NewClaim(f *facts.Facts, name string) *corev1.PersistentVolumeClaim {
	member, _ := facts.MemberOfClaim(f.Cluster.Name, name)
	size, class, _ := f.ClaimSpec(name)
	own := map[string]string{objects.AnnotationAskedFor: facts.AskedFor(size, class)}
	if f.Epoch != nil && f.Epoch.N > 1 {
		own[objects.AnnotationEpoch] = strconv.Itoa(f.Epoch.N)
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels:      objects.Labels(f.Cluster, map[string]string{objects.LabelMember: member}),
			Annotations: objects.Annotations(f.Cluster, own)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: size},
			},
		},
	}
}

// sized gives the claim the size that it should be answered with: its own, or a larger one.
func sized(f *facts.Facts, claim *corev1.PersistentVolumeClaim) {
	d := f.VolumeOf(claim.Name)
	if member, _ := facts.MemberOfClaim(f.Cluster.Name, claim.Name); !f.Grows(d) || f.Etcd != nil &&
		f.Find(member) == nil {
		return
	}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: d.Size}
	if _, class, known := strings.Cut(claim.Annotations[objects.AnnotationAskedFor], " "); known {
		claim.Annotations[objects.AnnotationAskedFor] = facts.AskedFor(d.Size, &class)
	}
}

// startUIDs are the UIDs of all that the member would start on, by name: of its claims, or on Memory of its pod; on
// HostPath its node. Nil while something is missing.
func startUIDs(f *facts.Facts, member string) map[string]types.UID {
	if f.HostPath() {
		return f.AssignNodes([]string{member})
	}
	if f.Memory() {
		pod := f.Children.Pods[member]
		if pod == nil || pod.DeletionTimestamp != nil || !facts.Gated(pod) {
			return nil
		}
		return map[string]types.UID{member: pod.UID}
	}
	if !f.StorageUsable(member) {
		return nil
	}
	uids := map[string]types.UID{}
	for _, c := range f.MemberClaims(member) {
		uids[c.Name] = c.UID
	}
	return uids
}

// claimNames are the names of the members' claims: those for their data, and those for their logs, where they have
// one or are to get one.
func claimNames(f *facts.Facts, members []string, create func(string) bool) []string {
	var list []string
	for _, member := range members {
		list = append(list, member)
		if f.WALOf(member) != nil || create(member) && f.HasWAL(member) {
			list = append(list, facts.WALClaim(member))
		}
	}
	return list
}
