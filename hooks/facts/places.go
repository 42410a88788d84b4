package facts

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
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
func (f *Facts) NoteNodes() string {
	if !f.HostPath() {
		return ""
	}
	if nodes := objects.FormatPairs(f.Placed(), ":"); nodes != "" {
		return string(f.Cluster.UID) + "/" + nodes
	}
	return ""
}

// Placed are the nodes of all members: of those that etcd lists, and while blind of all that left a trace.
func (f *Facts) Placed() map[string]string {
	all := map[string]string{}
	for _, name := range f.Names {
		if node := f.NodeOf(name); node != "" && (f.Etcd == nil || f.Find(name) != nil) {
			all[name] = node
		}
	}
	return all
}

// FreeNodes are the nodes of the spec that no member has, in the order in which they should be tried for the member of
// this number: from it on, so that one that came to nothing is followed by one elsewhere; and last those where the pod
// of a former member still is, which may not answer.
func (f *Facts) FreeNodes(number int) []string {
	nodes := f.Nodes()
	taken := slices.Collect(maps.Values(f.Placed()))
	var list []string
	for i := range nodes {
		if node := nodes[(number+i)%len(nodes)]; !slices.Contains(taken, node) {
			list = append(list, node)
		}
	}
	lingers := func(node string) int {
		for _, pod := range f.Children.Pods {
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
func (f *Facts) FreeAddress(number int) string {
	for _, node := range f.FreeNodes(number) {
		if address := addressOf(f.Cluster, node); f.Certified(address) {
			return address
		}
	}
	return ""
}

// Crowded reports whether no node is free for another member.
func (f *Facts) Crowded() bool { return f.OnNamedNodes() && len(f.FreeNodes(0)) == 0 }

// AssignNodes gives each of these members a node of its own, the one that it has if it has one; nil when there are
// too few.
func (f *Facts) AssignNodes(members []string) map[string]types.UID {
	given := map[string]types.UID{}
	for _, name := range members {
		node := f.NodeOf(name)
		n := 0
		if node == "" && f.Address(name) != "" {
			return nil // the spec does not name the node with this address any more
		}
		if node == "" {
			n, _ = objects.Ordinal(f.Cluster.Name, name)
			i := slices.IndexFunc(f.FreeNodes(n),
				func(free string) bool { return !slices.Contains(slices.Collect(maps.Values(given)), types.UID(free)) })
			if i < 0 {
				return nil
			}
			node = f.FreeNodes(n)[i]
		}
		given[name] = types.UID(node)
	}
	return given
}

// MayNotBegin reports whether the cluster has run, by what the status says: then no member begins on an old view of the
// record, on whose nodes former members had directories. It only ever forbids.
func (f *Facts) MayNotBegin() bool {
	s := &f.Cluster.Status
	before := s.Epoch > 0 && s.Epoch < int64(f.Epoch.N) // it tells of an epoch before
	return f.HostPath() && s.ClusterID != "" && !before
}

// needsNode says that a member waits for a node; empty when it does not.
func (f *Facts) needsNode(m *Member) string {
	address := f.Address(m.PodName)
	switch {
	case m.PodName == "" || f.HasPlace(m.PodName):
		return ""
	case address != "":
		return fmt.Sprintf("its node is no longer in spec.hostNetwork.nodes (address %s): add it again", address)
	case m.Started():
		return "its node is no longer known: see " + v1beta1.Docs + "troubleshooting.md#nodeunknown"
	}
	return "no node is free: add one to " + defaults.NodesField(&f.Cluster.Spec)
}

// ToHaveReplaced is what a person does to have a member replaced.
func (f *Facts) ToHaveReplaced() string {
	switch {
	case f.Memory():
		return "delete its pod"
	case f.HostPath():
		return "empty its directory on its node and delete its pod"
	}
	return "delete its claim and its pod"
}
