package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// call is the body of the call that Metacontroller would make.
type call struct {
	Parent     json.RawMessage `json:"parent"`
	Children   groups          `json:"children"`
	Related    groups          `json:"related"`
	Finalizing bool            `json:"finalizing"`
}

// groups of objects, each by name.
type groups map[string]map[string]json.RawMessage

// controllerUID is the label by which Metacontroller knows the children of one parent (generateSelector).
const controllerUID = "controller-uid"

// The snapshots and operations that the hook is shown besides.
const (
	snapshots      = "etcdsnapshots.etcd.quorate.dev"
	snapshotGroup  = "EtcdSnapshot.etcd.quorate.dev/v1beta1"
	operationGroup = "EtcdOperation.etcd.quorate.dev/v1beta1"
)

// callFor is the call about this cluster, with what people should know about it.
func (a *invocation) callFor(ctx context.Context, c *found) (*call, []string, error) {
	resources, notes := a.childResources(ctx, c.EtcdCluster)
	body := &call{Parent: c.raw, Children: groups{}, Related: groups{"Secret.v1": {}},
		Finalizing: c.DeletionTimestamp != nil}
	for _, kind := range observation.Kinds {
		if slices.Contains(resources, kind.Resource) {
			body.Children[kind.Group()] = map[string]json.RawMessage{}
		}
	}
	out, err := a.kube.run(ctx, "get", strings.Join(resources, ","), "-n", c.Namespace, "-l",
		controllerUID+"="+string(c.UID), "-o", "json")
	if err != nil {
		return nil, nil, fmt.Errorf("the objects of EtcdCluster %s/%s can't be read, and all of them are needed: %w",
			c.Namespace, c.Name, err)
	}
	if err := body.Children.add(out, func(m *metav1.ObjectMeta) bool { return childOf(m, c.EtcdCluster) }); err != nil {
		return nil, nil, err
	}
	all := func(*metav1.ObjectMeta) bool { return true }
	selector := facts.RelatedSelector(c.EtcdCluster)
	for _, chosen := range []string{metav1.FormatLabelSelector(&selector), objects.LabelExternal} {
		if out, err = a.kube.run(ctx, "get", "secrets", "-n", c.Namespace, "-l", chosen, "-o", "json"); err != nil {
			return nil, nil, fmt.Errorf("the Secrets that others keep for EtcdCluster %s/%s can't be read: %w",
				c.Namespace, c.Name, err)
		}
		if err := body.Related.add(out, all); err != nil {
			return nil, nil, err
		}
	}
	body.Related[operationGroup] = map[string]json.RawMessage{}
	if out, err = a.kube.run(ctx, "get", operations, "-n", c.Namespace, "-o", "json"); err != nil {
		return nil, nil, fmt.Errorf("the EtcdOperations of namespace %s can't be read: %w", c.Namespace, err)
	}
	if err := body.Related.add(out, all); err != nil {
		return nil, nil, err
	}
	return body, notes, a.addSnapshots(ctx, c, body, all)
}

// addSnapshots puts in the EtcdSnapshots that the hook is shown: those of the cluster, and those that its spec names.
func (a *invocation) addSnapshots(ctx context.Context, c *found, body *call, all func(*metav1.ObjectMeta) bool) error {
	body.Related[snapshotGroup] = map[string]json.RawMessage{}
	which := [][]string{{"-l", objects.LabelCluster + "=" + c.Name}}
	for _, name := range facts.SnapshotsNamed(c.EtcdCluster) {
		which = append(which, []string{"--field-selector=metadata.name=" + name})
	}
	for _, chosen := range which {
		out, err := a.kube.run(ctx, append([]string{"get", snapshots, "-n", c.Namespace, "-o", "json"}, chosen...)...)
		if err != nil {
			return fmt.Errorf("the EtcdSnapshots of EtcdCluster %s/%s can't be read: %w", c.Namespace, c.Name, err)
		}
		if err := body.Related.add(out, all); err != nil {
			return err
		}
	}
	return nil
}

// childOf reports whether Metacontroller counts an object with the right label among the children: by its owner, or
// because it would adopt it.
func childOf(m *metav1.ObjectMeta, c *v1beta1.EtcdCluster) bool {
	if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
		return owner.UID == c.UID
	}
	return m.DeletionTimestamp == nil && c.DeletionTimestamp == nil
}

// add puts the objects of a List into their groups.
func (g groups) add(list []byte, belongs func(*metav1.ObjectMeta) bool) error {
	all, err := items(list)
	if err != nil {
		return err
	}
	for _, raw := range all {
		var head struct {
			metav1.TypeMeta
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		if err := objects.Read(raw, &head); err != nil {
			return fmt.Errorf("an object that kubectl printed can't be read: %w", err)
		}
		if !belongs(&head.Metadata) {
			continue
		}
		group := head.Kind + "." + head.APIVersion
		if g[group] == nil {
			g[group] = map[string]json.RawMessage{}
		}
		g[group][head.Metadata.Name] = raw
	}
	return nil
}

// childResources are the kinds of children that the CompositeController has rules for.
func (a *invocation) childResources(ctx context.Context, c *v1beta1.EtcdCluster) ([]string, []string) {
	var usual []string
	for _, kind := range observation.Kinds {
		if !kind.Optional || c.Spec.TLS.Mode == v1beta1.TLSCertManager {
			usual = append(usual, kind.Resource)
		}
	}
	out, err := a.kube.run(ctx, "get", "compositecontrollers.metacontroller.k8s.io", "-o", "json")
	if err != nil {
		return usual, []string{"the CompositeController can't be read; its rules are assumed to be those of the " +
			"manifests"}
	}
	named, ruled := childKinds(out)
	if !named {
		return usual, []string{"no CompositeController for EtcdClusters exists, so Metacontroller does not call " +
			"Quorate: apply what `quorate install` prints"}
	}
	return ruled, nil
}

// childKinds are the kinds of children that the CompositeController for EtcdClusters names; false when there is none.
func childKinds(list []byte) (bool, []string) {
	all, err := items(list)
	if err != nil {
		return false, nil
	}
	type resource struct{ APIVersion, Resource string }
	for _, raw := range all {
		var controller struct {
			Spec struct {
				ParentResource resource
				ChildResources []resource
			}
		}
		if err := objects.Read(raw, &controller); err != nil ||
			controller.Spec.ParentResource != (resource{v1beta1.GroupVersion.String(), "etcdclusters"}) {
			continue
		}
		var resources []string
		for _, child := range controller.Spec.ChildResources {
			name := child.Resource
			if group, _, grouped := strings.Cut(child.APIVersion, "/"); grouped {
				name += "." + group
			}
			resources = append(resources, name)
		}
		return true, resources
	}
	return false, nil
}

// objects are all children as plain data, by kind and name.
func (b *call) objects() map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, group := range b.Children {
		for _, raw := range group {
			var o map[string]any
			if objects.Read(raw, &o) == nil {
				all[titleOf(o)] = o
			}
		}
	}
	return all
}

// image is that of Quorate in the members' pods; empty when there is none.
func (b *call) image() string {
	for _, pod := range b.pods() {
		for _, c := range pod.Spec.InitContainers {
			if c.Name == objects.ContainerPrepare {
				return c.Image
			}
		}
	}
	return ""
}

// etcdRepository is where the image of etcd in the members' pods comes from; empty when there is none.
func (b *call) etcdRepository() string {
	for _, pod := range b.pods() {
		for _, c := range pod.Spec.Containers {
			if colon := strings.LastIndex(c.Image, ":v"); c.Name == objects.ContainerEtcd && colon > 0 {
				return c.Image[:colon]
			}
		}
	}
	return ""
}

// pods are those of the members that can be read, by name.
func (b *call) pods() []corev1.Pod {
	var all []corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(b.Children["Pod.v1"])) {
		var pod corev1.Pod
		if objects.Read(b.Children["Pod.v1"][name], &pod) == nil {
			all = append(all, pod)
		}
	}
	return all
}
