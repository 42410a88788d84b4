package epochs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Leftover reports whether a ConfigMap is the record of an epoch that is over, or that was planned and is not any more,
// or one that is not believed.
func Leftover(v *state.View, cm *corev1.ConfigMap) bool {
	if slices.Contains(v.Unsealed, cm.Name) {
		return true
	}
	believed := slices.Collect(maps.Values(v.Recorded))
	return v.Epoch != nil && slices.ContainsFunc(believed, func(e *state.Epoch) bool { return e.Record == cm })
}

// Lingering is what is left of the epoch that is being stopped: its record, which would let others start, pods of its
// members, and claims that are not in quarantine yet; empty for nothing.
func Lingering(v *state.View) string {
	var left []string
	if v.Epoch.Record != nil {
		left = append(left, "the record "+v.Epoch.Record.Name)
	}
	left = append(left, unended(v)...)
	switch late := LongEnding(v); {
	case len(late) > 0:
		return fmt.Sprintf("waiting for %s; %s", strings.Join(left, ", "), wordsForLongEnding(v, late))
	case len(left) > 0:
		return "waiting for " + strings.Join(left, ", ")
	}
	for _, claim := range v.Children.Claims {
		if _, ours := state.MemberOfClaim(v.Cluster.Name, claim.Name); ours && v.Ours(claim) &&
			claim.DeletionTimestamp == nil && !state.Quarantined(claim) {
			return "quarantining its volumes"
		}
	}
	return ""
}

// unended are the pods of members that have not ended, LongEnding those that were to end long ago, and whose nodes do
// not say that they have.
func unended(v *state.View) []string {
	return wording.Filter(slices.SortedFunc(maps.Keys(v.Children.Pods), wording.ByOrdinal), func(name string) bool {
		_, ours := objects.Ordinal(v.Cluster.Name, name)
		return ours && !state.Finished(v.Children.Pods[name])
	})
}

// LongEnding are the pods of epochs that are over whose time to end has passed, by name.
func LongEnding(v *state.View) []string {
	return wording.Filter(unended(v), func(name string) bool { return state.GraceOver(v.Children.Pods[name], v.Now) })
}

func wordsForLongEnding(v *state.View, late []string) string {
	return fmt.Sprintf("the node of %s has not confirmed that it ended: if that node is off for good, kubectl delete "+
		"pod -n %s --force --grace-period=0 %s",
		strings.Join(late, ", "), v.Cluster.Namespace, strings.Join(late, " "))
}

// FormerClaims are those of earlier epochs: kept in quarantine, as long as the spec says and until the epoch that
// runs serves.
func FormerClaims(v *state.View) []*corev1.PersistentVolumeClaim {
	if v.Epoch == nil || v.Epoch.First == 0 {
		return nil
	}
	var list []*corev1.PersistentVolumeClaim
	for _, name := range slices.SortedFunc(maps.Keys(v.All.Claims), wording.ByOrdinal) {
		member, ours := state.MemberOfClaim(v.Cluster.Name, name)
		if n, _ := objects.Ordinal(v.Cluster.Name, member); !ours || n >= v.Epoch.First ||
			expired(v, v.All.Claims[name]) {
			continue
		}
		claim := *v.All.Claims[name]
		LeaveBehind(v, &claim, v.Epoch.After)
		list = append(list, &claim)
	}
	return list
}

// LeaveBehind puts a claim in quarantine, of which an epoch has no more need, and says of which epoch it is: also on
// that of a member which was given up before.
func LeaveBehind(v *state.View, claim *corev1.PersistentVolumeClaim, epoch int) {
	member, _ := state.MemberOfClaim(v.Cluster.Name, claim.Name)
	own := objects.Only(claim.Annotations, objects.AnnotationQuarantined, objects.AnnotationEpoch,
		objects.AnnotationFailedMember, objects.AnnotationAskedFor)
	own[objects.AnnotationEpoch] = cmp.Or(own[objects.AnnotationEpoch], strconv.Itoa(epoch))
	if own[objects.AnnotationQuarantined] == "" {
		own[objects.AnnotationQuarantined] = v.Now.UTC().Format(time.RFC3339)
		if own[objects.AnnotationFailedMember] == objects.FailedSilent {
			delete(own, objects.AnnotationFailedMember) // it was not removed
		}
	}
	claim.Labels = objects.Labels(v.Cluster, map[string]string{objects.LabelMember: member,
		objects.LabelQuarantined: "true"})
	claim.Annotations = objects.Annotations(v.Cluster, own)
}

// EndedClaims are those of an epoch that is being stopped: in quarantine when no pod of it can start any more, and
// none is left. If the records are deleted then, the claims tell that this epoch is over.
func EndedClaims(v *state.View, _ *decision.Verdict) []*corev1.PersistentVolumeClaim {
	list := volumes.KeptClaims(v, v.Names)
	for _, claim := range list {
		if state.Over(v) && len(unended(v)) == 0 && (v.Choosing() || SeesAll(v.Next)) {
			LeaveBehind(v, claim, v.Epoch.N)
		}
	}
	return list
}

// OfAllEpochs is the observation with the pods and claims of every epoch.
func OfAllEpochs(v *state.View) observation.Observation {
	o := v.Observation
	o.Children.Pods, o.Children.Claims = v.All.Pods, v.All.Claims
	return o
}

// expired reports whether a claim of an earlier epoch has been kept long enough.
func expired(v *state.View, claim *corev1.PersistentVolumeClaim) bool {
	if v.Etcd == nil || v.Next != nil || !v.Ours(claim) || !state.Quarantined(claim) {
		return false
	}
	since, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined])
	return err == nil && !v.Now.Before(since.Add(KeepVolumesFor(&v.Cluster.Spec)))
}

const defaultKeepVolumes = 7 * 24 * time.Hour

// KeepVolumesFor is how long the volumes of an epoch that is over are kept.
func KeepVolumesFor(s *v1alpha1.EtcdClusterSpec) time.Duration {
	if keep := s.Recovery.KeepVolumesFor; keep != nil {
		return keep.Duration
	}
	return defaultKeepVolumes
}
