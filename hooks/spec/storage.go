package spec

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/wording"
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
func OnNodes(s *v1alpha1.EtcdClusterSpec) bool { return s.Storage.Medium == v1alpha1.HostPath }

// validateHostPath repeats what the API server refuses.
func validateHostPath(s *v1alpha1.EtcdClusterSpec) error {
	h := s.Storage.HostPath
	if !OnNodes(s) {
		if h != nil {
			return fmt.Errorf("spec.storage.hostPath is only for the medium HostPath")
		}
		return nil
	}
	voters := Replicas(&v1alpha1.EtcdCluster{Spec: *s})
	switch {
	case h == nil:
		return fmt.Errorf("spec.storage.medium HostPath needs spec.storage.hostPath: a path, and the nodes")
	case !path.IsAbs(h.Path) || path.Clean(h.Path) != h.Path || h.Path == "/":
		return fmt.Errorf("spec.storage.hostPath.path %q is not the full path of a directory", h.Path)
	case len(h.Nodes) == 0 || len(h.Nodes) < voters:
		return fmt.Errorf("spec.storage.hostPath.nodes has %s for %s: each member takes a node of its own",
			wording.Count(len(h.Nodes), "node"), wording.Count(voters, "member"))
	case s.Storage.StorageClassName != nil || s.Storage.WAL != nil || s.Storage.Migration != "":
		return fmt.Errorf("spec.storage.storageClassName, wal and migration have no meaning on the medium HostPath")
	}
	return validateNodes(h.Nodes)
}

func validateNodes(nodes []string) error {
	for i, node := range nodes {
		if node == "" || strings.ContainsAny(node, ":,/ ") || slices.Contains(nodes[:i], node) {
			return fmt.Errorf("spec.storage.hostPath.nodes: %q is no name of a node, or there twice", node)
		}
	}
	return nil
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
