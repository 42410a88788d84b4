package defaults

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Quota of the database in a pod; 0 when that is not known.
func Quota(pod *corev1.Pod) int64 {
	if pod == nil {
		return 0
	}
	n, _ := QuotaOf(pod)
	return n
}

// OnNodes reports whether members stand on directories of nodes that the spec names.
func OnNodes(s *v1beta1.EtcdClusterSpec) bool { return s.Storage.Medium == v1beta1.HostPath }

// validateHostPath repeats what the API server refuses.
func validateHostPath(s *v1beta1.EtcdClusterSpec) error {
	h := s.Storage.HostPath
	nodes := Nodes(s)
	if !OnNodes(s) {
		if h != nil {
			return fmt.Errorf("spec.storage.hostPath is only for the medium HostPath")
		}
		return nil
	}
	voters := Replicas(&v1beta1.EtcdCluster{Spec: *s})
	switch {
	case h == nil:
		return fmt.Errorf("spec.storage.medium HostPath needs spec.storage.hostPath: a path, and the nodes")
	case !path.IsAbs(h.Path) || path.Clean(h.Path) != h.Path || h.Path == "/":
		return fmt.Errorf("spec.storage.hostPath.path %q is not an absolute path", h.Path)
	case s.HostNetwork != nil && len(h.Nodes) > 0:
		return fmt.Errorf("spec.storage.hostPath.nodes and spec.hostNetwork.nodes both name nodes; remove the first")
	case len(nodes) == 0 || len(nodes) < voters:
		return tooFewNodes(s, voters)
	case s.Storage.StorageClassName != nil || s.Storage.WAL != nil || s.Storage.Migration != "":
		return fmt.Errorf("spec.storage.storageClassName, wal and migration can't be used with the medium HostPath")
	}
	return validateNodes(s)
}

func tooFewNodes(s *v1beta1.EtcdClusterSpec, voters int) error {
	return fmt.Errorf("%s has %s for %s: each member needs its own node", NodesField(s),
		objects.Count(len(Nodes(s)), "node"), objects.Count(voters, "member"))
}

func validateNodes(s *v1beta1.EtcdClusterSpec) error {
	nodes := Nodes(s)
	for i, node := range nodes {
		if node == "" || strings.ContainsAny(node, ":,/ ") || slices.Contains(nodes[:i], node) {
			return fmt.Errorf("%s: %q is not a node name, or is listed twice", NodesField(s), node)
		}
	}
	return nil
}

// Nodes are the names of the nodes that members may be on; none where any will do.
func Nodes(s *v1beta1.EtcdClusterSpec) []string {
	if s.HostNetwork == nil {
		if s.Storage.HostPath == nil {
			return nil
		}
		return s.Storage.HostPath.Nodes
	}
	var list []string
	for _, node := range s.HostNetwork.Nodes {
		list = append(list, node.Name)
	}
	return list
}

// NodesField is the field that names them.
func NodesField(s *v1beta1.EtcdClusterSpec) string {
	if s.HostNetwork != nil {
		return "spec.hostNetwork.nodes"
	}
	return "spec.storage.hostPath.nodes"
}

// validateHostNetwork repeats what the API server refuses.
func validateHostNetwork(s *v1beta1.EtcdClusterSpec) error {
	h := s.HostNetwork
	if h == nil {
		return nil
	}
	voters := Replicas(&v1beta1.EtcdCluster{Spec: *s})
	client, peer, metrics := objects.Ports(&v1beta1.EtcdCluster{Spec: *s})
	switch {
	case s.Storage.Medium != v1beta1.HostPath && s.Storage.Medium != v1beta1.Memory:
		return fmt.Errorf("spec.hostNetwork is for the media HostPath and Memory: the address of a member on a claim " +
			"changes with its node")
	case len(h.Nodes) < max(1, voters):
		return tooFewNodes(s, voters)
	case client == peer || client == metrics || peer == metrics:
		return fmt.Errorf("spec.hostNetwork uses one port twice; choose three different ports")
	case min(client, peer, metrics) < 1 || max(client, peer, metrics) > 65535:
		return fmt.Errorf("spec.hostNetwork: a port must be from 1 to 65535")
	}
	for i, node := range h.Nodes {
		if !usualAddress(node.Address) {
			return fmt.Errorf("spec.hostNetwork.nodes[%d].address is not an IP address in its usual form, such as "+
				"10.0.0.1", i)
		}
		if slices.ContainsFunc(h.Nodes[:i],
			func(o v1beta1.NodeAddress) bool { return o.Address == node.Address }) {
			return fmt.Errorf("spec.hostNetwork.nodes[%d].address is also that of another node", i)
		}
	}
	return validateNodes(s)
}

// usualAddress reports whether it is an IP address as certificates and the kubelet write it: they write one of version
// 4 within version 6 as one of version 4.
func usualAddress(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.String() == address && ip.Zone() == "" && !ip.Is4In6()
}

// QuotaOf is the quota by the flags that the pod was made with; false without one that can be read.
func QuotaOf(pod *corev1.Pod) (int64, bool) {
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

// A member may have a second claim, for its write-ahead log alone. What it stands on is both, then: it starts when
// both are there, it may begin empty only when both are recorded, and when one is lost its data is. (etcd with its
// data and an empty log begins again from nothing, under its old identity.) Whether a member has one is decided once,
// by the spec that it was made for, and noted in the epoch record; another spec makes new members.

const (
	// WALSuffix ends the name of the claim that has a member's write-ahead log.
	WALSuffix = "-wal"
)
