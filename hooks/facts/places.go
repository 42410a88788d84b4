package facts

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// On the medium HostPath a member's data is a directory on a node, and a member stands on that node as others do on a
// claim. Which one that is, the epoch record says before the first pod is made, in the place where it has the UIDs of
// claims; it stays so while the member is one. A directory belongs to one member of one EtcdCluster, by its path, and
// names are never used again: so no member meets the data of another one, although directories are not cleared away.
//
// Whether a directory still holds anything, only prepare can tell. A node that was set up again has lost what prepare
// remembers, too: so a pod that may begin says so in an annotation, which is taken away once the member has begun.
//
// The peer Service has a copy of who is where, in case the record is deleted.

const (
	// DataMount is where a member's volume is mounted.
	DataMount = "/var/lib/etcd"
	// EnvBegins is the variable that tells prepare which members the member may begin with, without data; empty when it
	// may not.
	EnvBegins = "BEGINS"
)

// NoteNodes is that copy as it should be; empty for none.
func (v *Facts) NoteNodes() string {
	if !v.HostPath() {
		return ""
	}
	if nodes := objects.FormatPairs(v.Placed(), ":"); nodes != "" {
		return string(v.Cluster.UID) + "/" + nodes
	}
	return ""
}

// Placed are the nodes of all members: of those that etcd lists, and while blind of all that left a trace.
func (v *Facts) Placed() map[string]string {
	all := map[string]string{}
	for _, name := range v.Names {
		if node := v.NodeOf(name); node != "" && (v.Etcd == nil || v.Find(name) != nil) {
			all[name] = node
		}
	}
	return all
}

// FreeNodes are the nodes of the spec that no member has, in the order in which they should be tried for the member of
// this number: from it on, so that one that came to nothing is followed by one elsewhere; and last those where the pod
// of a former member still is, which may not answer.
func (v *Facts) FreeNodes(number int) []string {
	nodes := v.Nodes()
	taken := slices.Collect(maps.Values(v.Placed()))
	var list []string
	for i := range nodes {
		if node := nodes[(number+i)%len(nodes)]; !slices.Contains(taken, node) {
			list = append(list, node)
		}
	}
	lingers := func(node string) int {
		for _, pod := range v.Children.Pods {
			if PinnedTo(pod) == node {
				return 1
			}
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b string) int { return lingers(a) - lingers(b) })
	return list
}

// FreeAddress is the address of the first of those nodes that the members' certificates are for; empty for none, and
// without spec.hostNetwork.
func (v *Facts) FreeAddress(number int) string {
	for _, node := range v.FreeNodes(number) {
		if address := addressOf(v.Cluster, node); v.Certified(address) {
			return address
		}
	}
	return ""
}

// Crowded reports whether no node is free for another member.
func (v *Facts) Crowded() bool { return v.OnNamedNodes() && len(v.FreeNodes(0)) == 0 }

// AssignNodes gives each of these members a node of its own, the one that it has if it has one; nil when there are
// too few.
func (v *Facts) AssignNodes(members []string) map[string]types.UID {
	given := map[string]types.UID{}
	for _, name := range members {
		node, n := v.NodeOf(name), 0
		if node == "" && v.Address(name) != "" {
			return nil // the spec does not name the node with this address any more
		}
		if node == "" {
			n, _ = objects.Ordinal(v.Cluster.Name, name)
			i := slices.IndexFunc(v.FreeNodes(n),
				func(free string) bool { return !slices.Contains(slices.Collect(maps.Values(given)), types.UID(free)) })
			if i < 0 {
				return nil
			}
			node = v.FreeNodes(n)[i]
		}
		given[name] = types.UID(node)
	}
	return given
}

// MayNotBegin reports whether the cluster has run, by what the status says: then no member begins on an old view of the
// record, on whose nodes former members had directories. It only ever forbids.
func (v *Facts) MayNotBegin() bool {
	s := &v.Cluster.Status
	before := s.Epoch > 0 && s.Epoch < int64(v.Epoch.N) // it tells of an epoch before
	return v.HostPath() && s.ClusterID != "" && !before
}

// NeedsNode says that a member waits for a node; empty when it does not.
func (v *Facts) needsNode(m *Member) string {
	address := v.Address(m.PodName)
	switch {
	case m.PodName == "" || v.HasPlace(m.PodName):
		return ""
	case address != "":
		return fmt.Sprintf("its node is no longer in spec.hostNetwork.nodes (address %s): add it again", address)
	case m.Started():
		return "its node is no longer known: see NodeUnknown in docs/troubleshooting.md"
	}
	return "no node is free: add one to " + defaults.NodesField(&v.Cluster.Spec)
}

// ToHaveReplaced is what a person does to have a member replaced.
func (v *Facts) ToHaveReplaced() string {
	switch {
	case v.Memory():
		return "delete its pod"
	case v.HostPath():
		return "empty its directory on its node and delete its pod"
	}
	return "delete its claim and its pod"
}
