package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
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
func NoteNodes(v *state.View) string {
	if !v.HostPath() {
		return ""
	}
	if nodes := objects.FormatPairs(Placed(v), ":"); nodes != "" {
		return string(v.Cluster.UID) + "/" + nodes
	}
	return ""
}

// Placed are the nodes of all members: of those that etcd lists, and while blind of all that left a trace.
func Placed(v *state.View) map[string]string {
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
func FreeNodes(v *state.View, number int) []string {
	nodes := v.Nodes()
	taken := slices.Collect(maps.Values(Placed(v)))
	var list []string
	for i := range nodes {
		if node := nodes[(number+i)%len(nodes)]; !slices.Contains(taken, node) {
			list = append(list, node)
		}
	}
	lingers := func(node string) int {
		for _, pod := range v.Children.Pods {
			if state.PinnedTo(pod) == node {
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
func FreeAddress(v *state.View, number int) string {
	for _, node := range FreeNodes(v, number) {
		if address := state.AddressOf(v.Cluster, node); v.Certified(address) {
			return address
		}
	}
	return ""
}

// Crowded reports whether no node is free for another member.
func Crowded(v *state.View) bool { return v.OnNamedNodes() && len(FreeNodes(v, 0)) == 0 }

// AssignNodes gives each of these members a node of its own, the one that it has if it has one; nil when there are
// too few.
func AssignNodes(v *state.View, members []string) map[string]types.UID {
	given := map[string]types.UID{}
	for _, name := range members {
		node, n := v.NodeOf(name), 0
		if node == "" && v.Address(name) != "" {
			return nil // the spec does not name the node with this address any more
		}
		if node == "" {
			n, _ = objects.Ordinal(v.Cluster.Name, name)
			i := slices.IndexFunc(FreeNodes(v, n),
				func(free string) bool { return !slices.Contains(slices.Collect(maps.Values(given)), types.UID(free)) })
			if i < 0 {
				return nil
			}
			node = FreeNodes(v, n)[i]
		}
		given[name] = types.UID(node)
	}
	return given
}

// MayNotBegin reports whether the cluster has run, by what the status says: then no member begins on an old view of the
// record, on whose nodes former members had directories. It only ever forbids.
func MayNotBegin(v *state.View) bool {
	s := &v.Cluster.Status
	before := s.Epoch > 0 && s.Epoch < int64(v.Epoch.N) // it tells of an epoch before
	return v.HostPath() && s.ClusterID != "" && !before
}

// ProvisionOnNodes says what becomes of an epoch whose members have no nodes yet.
func ProvisionOnNodes(v *state.View) *decision.Verdict {
	initial := v.Epoch.InitialNames()
	if AssignNodes(v, initial) == nil {
		return &decision.Verdict{
			Message: fmt.Sprintf("waiting: %s has %s for the %s of the first epoch; add nodes",
				spec.NodesField(&v.Cluster.Spec), wording.Count(len(v.Nodes()), "node"),
				wording.Count(len(initial), "member")),
			Outlook: rule.Waits, Resync: rule.ResyncLater}
	}
	return &decision.Verdict{Message: "recording the nodes of the initial members: " + strings.Join(initial, ", "),
		Resync: rule.ResyncLater}
}

// NeedsNode says that a member waits for a node; empty when it does not.
func NeedsNode(v *state.View, m *state.Member) string {
	address := v.Address(m.PodName)
	switch {
	case m.PodName == "" || v.HasPlace(m.PodName):
		return ""
	case address != "":
		return fmt.Sprintf("its node is no longer in spec.hostNetwork.nodes (address %s): add it again", address)
	case m.Started():
		return "its node is no longer known: see NodeUnknown in docs/troubleshooting.md"
	}
	return "no node is free: add one to " + spec.NodesField(&v.Cluster.Spec)
}

// ToHaveReplaced is what a person does to have a member replaced.
func ToHaveReplaced(v *state.View) string {
	switch {
	case v.Memory():
		return "delete its pod"
	case v.HostPath():
		return "empty its directory on its node and delete its pod"
	}
	return "delete its claim and its pod"
}
