package facts

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

const (
	// NodeField is the name of the node, in the terms of an affinity.
	NodeField = "metadata.name"
)

// HostPath reports whether members stand on directories of nodes.
func (f *Facts) HostPath() bool { return defaults.OnNodes(&f.Cluster.Spec) }

// OnClaims reports whether members stand on claims.
func (f *Facts) OnClaims() bool { return !f.Memory() && !f.HostPath() }

// Directory of a member on its node.
func Directory(c *v1beta1.EtcdCluster, member string) string {
	if c.Spec.Storage.HostPath == nil {
		return ""
	}
	return path.Join(c.Spec.Storage.HostPath.Path, DirectoryName(c, member))
}

// DirectoryName is how that ends: no other cluster has a directory of this name.
func DirectoryName(c *v1beta1.EtcdCluster, member string) string {
	return path.Join(fmt.Sprintf("%s-%s-%s", c.Namespace, c.Name, c.UID), member)
}

// onRecord are the members that the record or the copy of it names, beside those that show as pods.
func (f *Facts) onRecord() []string {
	if !f.HostPath() {
		return nil
	}
	all := f.notedNodes()
	if f.Epoch != nil {
		for name, node := range f.Epoch.StartsOn {
			all[name] = string(node)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// notedNodes is the copy on the peer Service of this very EtcdCluster.
func (f *Facts) notedNodes() map[string]string {
	peers := f.Children.Services[objects.PeerService(f.Cluster.Name)]
	if peers == nil || !f.HostPath() {
		return map[string]string{}
	}
	of, nodes, _ := strings.Cut(peers.Annotations[objects.AnnotationNodes], "/")
	if of != string(f.Cluster.UID) {
		return map[string]string{}
	}
	noted := objects.ParsePairs(nodes, ":")
	maps.DeleteFunc(noted, func(name, _ string) bool { return !f.InEpoch(name) })
	return noted
}

// PinnedTo is the node that the pod can only be on; empty for none.
func PinnedTo(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	node := ""
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		i := slices.IndexFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == NodeField && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1
		})
		if i < 0 || node != "" && node != term.MatchFields[i].Values[0] {
			return ""
		}
		node = term.MatchFields[i].Values[0]
	}
	return node
}

// DirectoryIn is the directory on its node that the pod's data is in; empty for none.
func DirectoryIn(pod *corev1.Pod) string {
	for i := range pod.Spec.Volumes {
		if h := pod.Spec.Volumes[i].HostPath; h != nil && pod.Spec.Volumes[i].Name == VolumeData {
			return h.Path
		}
	}
	return ""
}

// WALClaim names the claim for a member's write-ahead log.
func WALClaim(member string) string { return member + defaults.WALSuffix }

// MemberOfClaim is the member that a claim belongs to, by its name; false for a name that is not of a member's claim.
func MemberOfClaim(cluster, claim string) (member string, ours bool) {
	member = strings.TrimSuffix(claim, defaults.WALSuffix)
	_, ours = objects.Ordinal(cluster, member)
	return member, ours
}

// wantsWAL reports whether the spec asks for a volume of its own for the write-ahead log.
func (f *Facts) wantsWAL() bool { return f.Cluster.Spec.Storage.WAL != nil && f.OnClaims() }

// HasWAL reports whether the member has, or will be made with, a claim for its write-ahead log.
func (f *Facts) HasWAL(member string) bool {
	switch {
	case !f.OnClaims():
		return false
	case f.Epoch.Recorded(WALClaim(member)) != "":
		return true
	case f.Epoch.Recorded(member) != "":
		return false
	}
	provisioning := f.Epoch != nil && !f.Epoch.Provisioned() && f.Epoch.Initial[member] != ""
	if m := f.Find(member); provisioning || m != nil && f.MayBeMade(m) || f.ToBeAdded(member) {
		return f.wantsWAL()
	}
	// The record was deleted, and made again without what it knew.
	return f.Ours(f.WALOf(member)) || slices.Contains(ClaimsIn(f.Children.Pods[member]), WALClaim(member))
}

// WALOf is the claim with the member's write-ahead log; nil for none.
func (f *Facts) WALOf(member string) *corev1.PersistentVolumeClaim {
	return f.Children.Claims[WALClaim(member)]
}

// MemberClaims are the claims that the member stands on; nil in the place of one that is not there.
func (f *Facts) MemberClaims(member string) []*corev1.PersistentVolumeClaim {
	list := []*corev1.PersistentVolumeClaim{f.Children.Claims[member]}
	if f.HasWAL(member) {
		list = append(list, f.WALOf(member))
	}
	return list
}

// claimBeingDeleted reports whether something that the member stands on is being deleted.
func (f *Facts) claimBeingDeleted(member string) bool {
	goes := func(c *corev1.PersistentVolumeClaim) bool { return f.Ours(c) && c.DeletionTimestamp != nil }
	return goes(f.Children.Claims[member]) || f.HasWAL(member) && goes(f.WALOf(member))
}

// MayBegin reports whether the member may begin with nothing on the claims that there are.
func (f *Facts) MayBegin(member string) bool {
	if f.HostPath() {
		return f.Epoch.Recorded(member) != ""
	}
	return !slices.ContainsFunc(f.MemberClaims(member), func(c *corev1.PersistentVolumeClaim) bool {
		return c == nil || !f.Epoch.MayStartEmpty(c.Name, c.UID)
	})
}

// ClaimsIn are the claims that the pod names.
func ClaimsIn(pod *corev1.Pod) []string {
	var list []string
	if pod == nil {
		return nil
	}
	for i := range pod.Spec.Volumes {
		if c := pod.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
			list = append(list, c.ClaimName)
		}
	}
	return list
}

// OwnClaims are those of the claims that the pod names which are its member's. Others are of a survivor or of a store,
// from which its data was filled; they may go while it runs.
func OwnClaims(cluster string, pod *corev1.Pod) []string {
	return slices.DeleteFunc(ClaimsIn(pod), func(claim string) bool {
		member, ours := MemberOfClaim(cluster, claim)
		return !ours || member != pod.Name
	})
}
