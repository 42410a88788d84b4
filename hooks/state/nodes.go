package state

import (
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/spec"
)

// Members stand on nodes that the spec names when their data is there (HostPath), or their address (spec.hostNetwork).
// A member never moves from its node.

// OnNamedNodes reports whether each member has a node of those that the spec names.
func (v *View) OnNamedNodes() bool { return v.HostPath() || v.HostNetwork() }

// HostNetwork reports whether members have the addresses of their nodes.
func (v *View) HostNetwork() bool { return v.Cluster.Spec.HostNetwork != nil }

// NodeOf is the node that holds the member's data, or whose address it has; empty when that is not known. All that
// tells of it agrees, however old it is.
func (v *View) NodeOf(member string) string {
	if !v.OnNamedNodes() {
		return ""
	}
	if node := v.placedOn(member); node != "" || !v.HostNetwork() {
		return node
	}
	address := v.Address(member)
	i := slices.IndexFunc(v.Cluster.Spec.HostNetwork.Nodes,
		func(n v1alpha1.NodeAddress) bool { return n.Address == address })
	if i < 0 {
		return ""
	}
	return v.Cluster.Spec.HostNetwork.Nodes[i].Name
}

// HasPlace reports whether a pod can be made for the member: its node and its address are known, where it has some of
// its own.
func (v *View) HasPlace(member string) bool {
	return !v.OnNamedNodes() || v.NodeOf(member) != "" && (!v.HostNetwork() || v.Address(member) != "")
}

// placedOn is the node by what is recorded, and by the pod.
func (v *View) placedOn(member string) string {
	pod := v.Children.Pods[member]
	if !v.HostPath() {
		if pod == nil {
			return ""
		}
		return PinnedTo(pod)
	}
	if node := v.Epoch.Recorded(member); node != "" {
		return string(node)
	}
	if pod != nil && DirectoryIn(pod) == Directory(v.Cluster, member) {
		if node := PinnedTo(pod); node != "" {
			return node
		}
	}
	return notedNodes(v)[member]
}

// AddressOf is the address that the spec says of a node; empty for none.
func AddressOf(c *v1alpha1.EtcdCluster, node string) string {
	if c.Spec.HostNetwork == nil {
		return ""
	}
	for _, n := range c.Spec.HostNetwork.Nodes {
		if n.Name == node {
			return n.Address
		}
	}
	return ""
}

// Address of the member: that of its node, as etcd lists it, else as its node has it, else as the record begins with
// it. Empty while it is not known, and without spec.hostNetwork.
func (v *View) Address(member string) string {
	if !v.HostNetwork() {
		return ""
	}
	if m := v.Find(member); m != nil {
		i := slices.IndexFunc(m.PeerURLs, func(u string) bool { return objects.AddressIn(u) != "" })
		return objects.AddressIn(m.PeerURLs[max(0, i)])
	}
	if address := AddressOf(v.Cluster, v.placedOn(member)); address != "" {
		return address
	}
	if v.Epoch == nil {
		return ""
	}
	return objects.AddressIn(v.Epoch.Initial[member])
}

// initialAddresses are the initial members from number first on, with the address that each is known by, or gets: those
// of the spec's nodes in turn, each once.
func initialAddresses(v *View, first, size int) map[string]string {
	members, nodes := map[string]string{}, v.Cluster.Spec.HostNetwork
	for i := range size {
		name := objects.MemberName(v.Cluster.Name, first+i)
		members[name] = v.Address(name)
		if nodes != nil && members[name] == "" && len(nodes.Nodes) > 0 {
			members[name] = nodes.Nodes[(first+i)%len(nodes.Nodes)].Address
		}
	}
	return members
}

// Nodes are the names of the nodes that members may be on; none where any will do.
func (v *View) Nodes() []string { return spec.Nodes(&v.Cluster.Spec) }
