package facts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Leftover reports whether a ConfigMap is the record of an epoch that is over, or that was planned and is not any more,
// or one that is not believed.
func (f *Facts) Leftover(cm *corev1.ConfigMap) bool {
	if slices.Contains(f.Unsealed, cm.Name) {
		return true
	}
	believed := slices.Collect(maps.Values(f.Recorded))
	return f.Epoch != nil && slices.ContainsFunc(believed, func(e *Epoch) bool { return e.Record == cm })
}

// Lingering is what is left of the epoch that is being stopped: its record, which would let others start, pods of its
// members, and claims that are not in quarantine yet; empty for nothing.
func (f *Facts) Lingering() string {
	var left []string
	if f.Epoch.Record != nil {
		left = append(left, "the record "+f.Epoch.Record.Name)
	}
	left = append(left, f.Unended()...)
	switch late := f.LongEnding(); {
	case len(late) > 0:
		return fmt.Sprintf("waiting for %s; %s", strings.Join(left, ", "), f.wordsForLongEnding(late))
	case len(left) > 0:
		return "waiting for " + strings.Join(left, ", ")
	}
	for _, claim := range f.Children.Claims {
		if _, ours := MemberOfClaim(f.Cluster.Name, claim.Name); ours && f.Ours(claim) &&
			claim.DeletionTimestamp == nil && !Quarantined(claim) {
			return "quarantining its volumes"
		}
	}
	return ""
}

// Unended are the pods of members that have not ended, LongEnding those that were to end long ago, and whose nodes do
// not say that they have.
func (f *Facts) Unended() []string {
	return objects.Filter(slices.SortedFunc(maps.Keys(f.Children.Pods), objects.ByOrdinal), func(name string) bool {
		_, ours := objects.Ordinal(f.Cluster.Name, name)
		return ours && !Finished(f.Children.Pods[name])
	})
}

// LongEnding are the pods of epochs that are over whose time to end has passed, by name.
func (f *Facts) LongEnding() []string {
	return objects.Filter(f.Unended(), func(name string) bool { return graceOver(f.Children.Pods[name], f.Now) })
}

func (f *Facts) wordsForLongEnding(late []string) string {
	return fmt.Sprintf("the node of %s has not confirmed that it ended: if that node is off for good, kubectl delete "+
		"pod -n %s --force --grace-period=0 %s",
		strings.Join(late, ", "), f.Cluster.Namespace, strings.Join(late, " "))
}

// OfAllEpochs is the observation with the pods and claims of every epoch.
func (f *Facts) OfAllEpochs() observation.Observation {
	o := f.Observation
	o.Children.Pods = f.All.Pods
	o.Children.Claims = f.All.Claims
	return o
}

// Expired reports whether a claim of an earlier epoch has been kept long enough.
func (f *Facts) Expired(claim *corev1.PersistentVolumeClaim) bool {
	if f.Etcd == nil || f.Next != nil || !f.Ours(claim) || !Quarantined(claim) {
		return false
	}
	since, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined])
	return err == nil && !f.Now.Before(since.Add(KeepVolumesFor(&f.Cluster.Spec)))
}

const defaultKeepVolumes = 7 * 24 * time.Hour

// KeepVolumesFor is how long the volumes of an epoch that is over are kept.
func KeepVolumesFor(s *v1beta1.EtcdClusterSpec) time.Duration {
	if keep := s.Recovery.KeepVolumesFor; keep != nil {
		return keep.Duration
	}
	return defaultKeepVolumes
}
