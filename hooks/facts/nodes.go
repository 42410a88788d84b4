package facts

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Members stand on nodes that the spec names when their data is there (HostPath), or their address (spec.hostNetwork).
// A member never moves from its node.

// OnNamedNodes reports whether each member has a node of those that the spec names.
func (f *Facts) OnNamedNodes() bool { return f.HostPath() || f.HostNetwork() }

// HostNetwork reports whether members have the addresses of their nodes.
func (f *Facts) HostNetwork() bool { return f.Cluster.Spec.HostNetwork != nil }

// NodeOf is the node that holds the member's data, or whose address it has; empty when that is not known. All that
// tells of it agrees, however old it is.
func (f *Facts) NodeOf(member string) string {
	if !f.OnNamedNodes() {
		return ""
	}
	if node := f.placedOn(member); node != "" || !f.HostNetwork() {
		return node
	}
	address := f.Address(member)
	i := slices.IndexFunc(f.Cluster.Spec.HostNetwork.Nodes,
		func(n v1beta1.NodeAddress) bool { return n.Address == address })
	if i < 0 {
		return ""
	}
	return f.Cluster.Spec.HostNetwork.Nodes[i].Name
}

// HasPlace reports whether a pod can be made for the member: its node and its address are known, where it has some of
// its own.
func (f *Facts) HasPlace(member string) bool {
	return !f.OnNamedNodes() || f.NodeOf(member) != "" && (!f.HostNetwork() || f.Address(member) != "")
}

// placedOn is the node by what is recorded, and by the pod.
func (f *Facts) placedOn(member string) string {
	pod := f.Children.Pods[member]
	if !f.HostPath() {
		if pod == nil {
			return ""
		}
		return PinnedTo(pod)
	}
	if node := f.Epoch.Recorded(member); node != "" {
		return string(node)
	}
	if pod != nil && DirectoryIn(pod) == Directory(f.Cluster, member) {
		if node := PinnedTo(pod); node != "" {
			return node
		}
	}
	return f.notedNodes()[member]
}

// addressOf is the address that the spec says of a node; empty for none.
func addressOf(c *v1beta1.EtcdCluster, node string) string {
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

// addressIn is the address on the hosts' network that the pod was made with; empty for none.
func addressIn(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		for _, flag := range pod.Spec.Containers[i].Command {
			if url, is := strings.CutPrefix(flag, "--initial-advertise-peer-urls="); is {
				return objects.AddressIn(url)
			}
		}
	}
	return ""
}

// Address of the member: that of its node, as etcd lists it, else as its pod was made with it, else as its node has it,
// else as the record begins with it. The spec may have forgotten the node. Empty while it is not known, and without
// spec.hostNetwork.
func (f *Facts) Address(member string) string {
	if !f.HostNetwork() {
		return ""
	}
	if m := f.Find(member); m != nil {
		i := slices.IndexFunc(m.PeerURLs, func(u string) bool { return objects.AddressIn(u) != "" })
		return objects.AddressIn(m.PeerURLs[max(0, i)])
	}
	if pod := f.Children.Pods[member]; pod != nil && addressIn(pod) != "" {
		return addressIn(pod)
	}
	if address := addressOf(f.Cluster, f.placedOn(member)); address != "" {
		return address
	}
	if f.Epoch == nil {
		return ""
	}
	return objects.AddressIn(f.Epoch.Initial[member])
}

// initialAddresses are the initial members from number first on, with the address that each is known by, or gets: those
// of the spec's nodes in turn, each once.
func (f *Facts) initialAddresses(first, size int) map[string]string {
	members := map[string]string{}
	nodes := f.Cluster.Spec.HostNetwork
	for i := range size {
		name := objects.MemberName(f.Cluster.Name, first+i)
		members[name] = f.Address(name)
		if nodes != nil && members[name] == "" && len(nodes.Nodes) > 0 {
			members[name] = nodes.Nodes[(first+i)%len(nodes.Nodes)].Address
		}
	}
	return members
}

// Nodes are the names of the nodes that members may be on; none where any will do.
func (f *Facts) Nodes() []string { return defaults.Nodes(&f.Cluster.Spec) }

// Addresses are those at which members are, or will begin, by all that tells of them, and those and all at which they
// may be; sorted, and none without spec.hostNetwork.
func (f *Facts) Addresses() (members, nodes []string) {
	if !f.HostNetwork() {
		return nil, nil
	}
	for _, w := range []*Facts{f, f.Next} {
		if w == nil {
			continue
		}
		for _, name := range slices.Concat(w.Names, w.Epoch.initial()) {
			if address := w.Address(name); address != "" {
				members = append(members, address)
			}
		}
	}
	members = defaults.Distinct(members)
	for _, node := range f.Cluster.Spec.HostNetwork.Nodes {
		nodes = append(nodes, node.Address)
	}
	return members, defaults.Distinct(members, nodes)
}

// initial are the names of the initial members, while those have not had a quorum.
func (e *Epoch) initial() []string {
	if e == nil || e.HadQuorum() {
		return nil
	}
	return e.InitialNames()
}

// Certified reports whether the members' certificates are for this address: a member that begins there would not be
// dialled otherwise.
func (f *Facts) Certified(address string) bool {
	if address == "" || !objects.Encrypted(f.Cluster) {
		return true
	}
	return !slices.ContainsFunc([]string{defaults.ServerSecret(f.Cluster), defaults.PeerSecret(f.Cluster)}, func(name string) bool {
		s := f.AnySecret(name)
		return s == nil || s.Certificate == nil || !slices.Contains(s.Certificate.Names, address)
	})
}
