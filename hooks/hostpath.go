package hooks

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// On the medium HostPath a member's data is a directory on a node, and a member stands on that node as others do on a
// claim. Which one that is, the epoch record says before the first pod is made, in the place where it has the UIDs of
// claims; it stays so while the member is one. A directory belongs to one member of one EtcdCluster, by its path, and
// names are never used again: so nobody meets the data of somebody else, although nobody clears a directory away.
//
// Whether a directory still holds anything, only prepare can tell. A node that was set up anew has lost what prepare
// remembers, too: so a pod that may begin says so in an annotation, which is taken away once the member has begun.
//
// The peer Service has a copy of who is where, for the day that somebody deletes the record.

const (
	dataMount = "/var/lib/etcd"
	// nodeField is the name of the node, in the terms of an affinity.
	nodeField = "metadata.name"
	// EnvBegins is the variable by which prepare is told whom the member may begin with, without
	// data; empty when it may not.
	EnvBegins = "BEGINS"
)

func (v *view) hostPath() bool { return onNodes(&v.Cluster.Spec) }

func onNodes(s *v1alpha1.EtcdClusterSpec) bool { return s.Storage.Medium == v1alpha1.HostPath }

// onClaims reports whether members stand on claims.
func (v *view) onClaims() bool { return !v.memory() && !v.hostPath() }

// directory of a member on its node.
func directory(c *v1alpha1.EtcdCluster, member string) string {
	if c.Spec.Storage.HostPath == nil {
		return ""
	}
	return path.Join(c.Spec.Storage.HostPath.Path, fmt.Sprintf("%s-%s-%s", c.Namespace, c.Name, c.UID), member)
}

// ---- who is where

// nodeOf is the node that holds the member's data; empty when nobody knows. All that tells of it agrees, however old
// it is: a member never moves.
func (v *view) nodeOf(member string) string {
	if node := v.epoch.recorded(member); node != "" {
		return string(node)
	}
	if pod := v.Children.Pods[member]; pod != nil && directoryIn(pod) == directory(v.Cluster, member) {
		if node := pinnedTo(pod); node != "" {
			return node
		}
	}
	return v.notedNodes()[member]
}

// onRecord are the members that the record or the copy of it names, beside those that show as pods.
func (v *view) onRecord() []string {
	if !v.hostPath() {
		return nil
	}
	all := v.notedNodes()
	if v.epoch != nil {
		for name, node := range v.epoch.startsOn {
			all[name] = string(node)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// notedNodes is the copy on the peer Service of this very EtcdCluster.
func (v *view) notedNodes() map[string]string {
	peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]
	if peers == nil || !v.hostPath() {
		return map[string]string{}
	}
	of, nodes, _ := strings.Cut(peers.Annotations[objects.AnnotationNodes], "/")
	if of != string(v.Cluster.UID) {
		return map[string]string{}
	}
	noted := parsePairs(nodes, ":")
	maps.DeleteFunc(noted, func(name, _ string) bool { return !v.inEpoch(name) })
	return noted
}

// noteNodes is that copy as it should be; empty for none.
func (v *view) noteNodes() string {
	if !v.hostPath() {
		return ""
	}
	if nodes := formatPairs(v.placed(), ":"); nodes != "" {
		return string(v.Cluster.UID) + "/" + nodes
	}
	return ""
}

// placed are the nodes of all members: of those that etcd lists, and while blind of all that left a trace.
func (v *view) placed() map[string]string {
	all := map[string]string{}
	for _, name := range v.names {
		if node := v.nodeOf(name); node != "" && (v.Etcd == nil || v.find(name) != nil) {
			all[name] = node
		}
	}
	return all
}

// pinnedTo is the node that the pod can only be on; empty for none.
func pinnedTo(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	node := ""
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		i := slices.IndexFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == nodeField && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1
		})
		if i < 0 || node != "" && node != term.MatchFields[i].Values[0] {
			return ""
		}
		node = term.MatchFields[i].Values[0]
	}
	return node
}

// directoryIn is the directory on its node that the pod's data is in; empty for none.
func directoryIn(pod *corev1.Pod) string {
	for i := range pod.Spec.Volumes {
		if h := pod.Spec.Volumes[i].HostPath; h != nil && pod.Spec.Volumes[i].Name == volumeData {
			return h.Path
		}
	}
	return ""
}

// ---- which nodes are free

// freeNodes are the nodes of the spec that no member has, in the order in which they are to be tried for the member
// of this number: from it on, so that one that came to nothing is followed by one elsewhere; and last those where the
// pod of a former member still is, which may not answer.
func (v *view) freeNodes(number int) []string {
	if v.Cluster.Spec.Storage.HostPath == nil {
		return nil
	}
	nodes := v.Cluster.Spec.Storage.HostPath.Nodes
	taken := slices.Collect(maps.Values(v.placed()))
	var list []string
	for i := range nodes {
		if node := nodes[(number+i)%len(nodes)]; !slices.Contains(taken, node) {
			list = append(list, node)
		}
	}
	lingers := func(node string) int {
		for _, pod := range v.Children.Pods {
			if pinnedTo(pod) == node {
				return 1
			}
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b string) int { return lingers(a) - lingers(b) })
	return list
}

// crowded reports whether no node is free for another member.
func (v *view) crowded() bool { return v.hostPath() && len(v.freeNodes(0)) == 0 }

// assignNodes gives each of these members a node of its own, the one that it has if it has one; nil when there are
// too few.
func (v *view) assignNodes(members []string) map[string]types.UID {
	given := map[string]types.UID{}
	for _, name := range members {
		node, n := v.nodeOf(name), 0
		if node == "" {
			n, _ = objects.Ordinal(v.Cluster.Name, name)
			i := slices.IndexFunc(v.freeNodes(n),
				func(free string) bool { return !slices.Contains(slices.Collect(maps.Values(given)), types.UID(free)) })
			if i < 0 {
				return nil
			}
			node = v.freeNodes(n)[i]
		}
		given[name] = types.UID(node)
	}
	return given
}

// mayNotBegin reports whether the cluster has run, by what the status says: then nobody begins on an old view of the
// record, on whose nodes former members had directories. It only ever forbids.
func (v *view) mayNotBegin() bool {
	s := &v.Cluster.Status
	before := s.Epoch > 0 && s.Epoch < int64(v.epoch.n) // it tells of an epoch before
	return v.hostPath() && s.ClusterID != "" && !before
}

// provisionOnNodes says what becomes of an epoch whose members have no nodes yet.
func (v *view) provisionOnNodes() *verdict {
	initial := v.epoch.initialNames()
	if v.assignNodes(initial) == nil {
		return &verdict{message: fmt.Sprintf("waiting: spec.storage.hostPath.nodes has %s for the %s that the first "+
			"epoch was recorded with; add nodes",
			wording.Count(len(v.Cluster.Spec.Storage.HostPath.Nodes), "node"), wording.Count(len(initial), "member")),
			outlook: Waits, resync: rule.ResyncLater}
	}
	return &verdict{message: "recording the nodes of the initial members: " + strings.Join(initial, ", "),
		resync: rule.ResyncLater}
}

// needsNode says that a member waits for a node; empty when it does not.
func (v *view) needsNode(m *member) string {
	if !v.hostPath() || m.name == "" || v.nodeOf(m.name) != "" {
		return ""
	}
	if m.Started() {
		return "nobody knows its node any more: see NodeUnknown in docs/failure-modes.md"
	}
	return "no node is free: add one to spec.storage.hostPath.nodes"
}

// offNodes says which members are on nodes that the spec does not name any more; empty for none.
func (v *view) offNodes() string {
	if !v.hostPath() || v.Cluster.Spec.Storage.HostPath == nil {
		return ""
	}
	var all []string
	placed := v.placed()
	for _, name := range v.names {
		if node := placed[name]; node != "" && !slices.Contains(v.Cluster.Spec.Storage.HostPath.Nodes, node) {
			all = append(all, fmt.Sprintf("%s stays on node %s", name, node))
		}
	}
	if len(all) == 0 {
		return ""
	}
	words := strings.Join(all, ", ") + ", which spec.storage.hostPath.nodes does not have any more"
	if v.Etcd != nil && v.canLoseOne() { // else it would be the data of all
		words += "; to have a member replaced, " + v.toHaveReplaced() + ", one after the other"
	}
	return words
}

// toHaveReplaced is what a person does to have a member replaced.
func (v *view) toHaveReplaced() string {
	switch {
	case v.memory():
		return "delete its pod"
	case v.hostPath():
		return "empty its directory on its node and delete its pod"
	}
	return "delete its claim and its pod"
}

// ---- pods

// onNode puts a new pod on its member's node, in the member's directory there.
func (v *view) onNode(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == volumeData {
			pod.Spec.Volumes[i].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: directory(v.Cluster, pod.Name), Type: new(corev1.HostPathDirectoryOrCreate),
			}}
		}
	}
	pod.Spec.Affinity = pinned(pod.Spec.Affinity, v.nodeOf(pod.Name))
	prepare := &pod.Spec.InitContainers[0]
	prepare.Env = append(prepare.Env, corev1.EnvVar{Name: EnvBegins, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" +
			objects.AnnotationInitialCluster + "']"},
	}})
	pod.Spec.InitContainers = append([]corev1.Container{ownContainer(v.Observation)}, pod.Spec.InitContainers...)
}

// pinned is an affinity that also asks for this node. Of the terms one must hold, so each of them gets it; an empty
// one, which no node meets, stays empty.
func pinned(a *corev1.Affinity, node string) *corev1.Affinity {
	a = a.DeepCopy()
	if a == nil {
		a = &corev1.Affinity{}
	}
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	if a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	this := corev1.NodeSelectorRequirement{Key: nodeField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	var terms []corev1.NodeSelectorTerm
	for _, term := range required.NodeSelectorTerms {
		if len(term.MatchExpressions)+len(term.MatchFields) > 0 {
			term.MatchFields = append(term.MatchFields, this)
			terms = append(terms, term)
		}
	}
	if len(required.NodeSelectorTerms) == 0 {
		terms = []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{this}}}
	}
	if len(terms) > 0 {
		required.NodeSelectorTerms = terms
	}
	return a
}

// ownContainer gives the directory, which the kubelet makes as root's, to etcd's user.
func ownContainer(o Observation) corev1.Container {
	own := prepareContainer(o)
	own.Name, own.Args = objects.ContainerOwn,
		[]string{"own", "--dir=" + dataMount, fmt.Sprintf("--user=%d", objects.UserID)}
	own.VolumeMounts = []corev1.VolumeMount{{Name: volumeData, MountPath: dataMount}}
	own.SecurityContext.RunAsNonRoot, own.SecurityContext.RunAsUser, own.SecurityContext.RunAsGroup = new(false),
		new(int64(0)), new(int64(0))
	own.SecurityContext.Capabilities.Add = []corev1.Capability{"CHOWN"}
	return own
}

// ---- the spec

// validateHostPath repeats what the API server refuses.
func validateHostPath(s *v1alpha1.EtcdClusterSpec) error {
	h := s.Storage.HostPath
	if !onNodes(s) {
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
