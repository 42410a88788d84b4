package wire

import (
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/mirror"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// Customized is a call to the hook customize.
type Customized struct {
	Parent  metav1.Object
	related func(byUID bool) []relatedRule
}

// Related is the body of the answer: which objects to send besides the children. Where Metacontroller remembers answers
// by the name alone (byUID is false), it depends on nothing else.
func (c *Customized) Related(byUID bool) ([]byte, error) {
	return json.Marshal(map[string]any{"relatedResources": c.related(byUID)})
}

// customized reads the parent of a call to the hook customize, by its kind.
var customized = map[string]func(in *source) (*Customized, error){
	v1beta1.Kind:          customizedBy(v1beta1.Kind, relatedToCluster),
	v1beta1.KindSnapshot:  customizedBy(v1beta1.KindSnapshot, relatedToSnapshot),
	v1beta1.KindOperation: customizedBy(v1beta1.KindOperation, relatedToOperation),
	v1beta1.KindSchedule:  customizedBy(v1beta1.KindSchedule, relatedToSchedule),
	v1beta1.KindMirror:    customizedBy(v1beta1.KindMirror, relatedToMirror),
}

func customizedBy[T any, O objectOf[T]](
	kind string, related func(o *T, byUID bool) []relatedRule,
) func(in *source) (*Customized, error) {
	return func(in *source) (*Customized, error) {
		var o *T
		_, err := parentTo[T, O](kind, &o)(in)
		return &Customized{Parent: O(o), related: func(byUID bool) []relatedRule { return related(o, byUID) }}, err
	}
}

// ReadCustomized reads a call to the hook customize about a parent of one of our kinds.
func ReadCustomized(kind string, body io.Reader) (*Customized, error) {
	in, err := newSource(body)
	if err != nil {
		return nil, err
	}
	var c *Customized
	err = members(in, "the request", func(key string) (err error) {
		if key != "parent" {
			return skip(in, key)
		}
		c, err = customized[kind](in)
		return err
	})
	if err == nil && c == nil {
		err = Bad("parent is missing")
	}
	return c, err
}

// relatedRule is one of the answer to the hook customize: objects of the parent's namespace by label or by name; all
// without either. The namespace is said too where it may be: Metacontroller else looks for names in all namespaces.
type relatedRule struct {
	APIVersion    string                `json:"apiVersion"`
	Resource      string                `json:"resource"`
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	Namespace     string                `json:"namespace,omitempty"`
	Names         []string              `json:"names,omitempty"`
}

// clusters are all EtcdClusters of the namespace.
var clusters = relatedRule{APIVersion: v1beta1.GroupVersion.String(), Resource: "etcdclusters"}

// clustersNamed are those of these names alone, where that may be asked for; without names, all of the namespace.
func clustersNamed(byUID bool, namespace string, names ...string) relatedRule {
	rule := clusters
	if byUID {
		rule.Namespace = namespace
		rule.Names = names
	}
	return rule
}

// labelled are the Secrets that pods of ours may have for what Quorate does not run. Only that they are there is read.
var labelled = relatedRule{APIVersion: "v1", Resource: "secrets", LabelSelector: &metav1.LabelSelector{
	MatchExpressions: []metav1.LabelSelectorRequirement{{Key: objects.LabelExternal,
		Operator: metav1.LabelSelectorOpExists}}}}

// withLabelled has them beside other rules, where a spec names any or the answer may depend on the name alone.
func withLabelled(byUID bool, secrets []string, all ...relatedRule) []relatedRule {
	named := slices.ContainsFunc(secrets, func(name string) bool { return name != "" })
	if !byUID || named {
		return append(all, labelled)
	}
	return all
}

// relatedToCluster: Secrets, EtcdSnapshots and EtcdOperations of the cluster, and what was made for an earlier one of
// its name. Where the answer may depend on the name alone, all EtcdSnapshots of the namespace are asked for, and those
// that matter are picked.
func relatedToCluster(c *v1beta1.EtcdCluster, byUID bool) []relatedRule {
	secrets := relatedRule{APIVersion: "v1", Resource: "secrets", LabelSelector: new(facts.RelatedSelector(c))}
	snapshots := relatedRule{APIVersion: v1beta1.GroupVersion.String(), Resource: "etcdsnapshots"}
	operations := relatedRule{APIVersion: v1beta1.GroupVersion.String(), Resource: "etcdoperations"}
	remains := new(facts.RemainsSelector(c, byUID))
	all := []relatedRule{secrets, labelled, operations,
		{APIVersion: "v1", Resource: "persistentvolumeclaims", LabelSelector: remains},
		{APIVersion: "v1", Resource: "configmaps", LabelSelector: remains}}
	if !byUID {
		return append(all, snapshots)
	}
	labelled := snapshots
	named := snapshots
	labelled.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{objects.LabelCluster: c.Name}}
	if named.Names = facts.SnapshotsNamed(c); len(named.Names) == 0 {
		return append(all, labelled)
	}
	named.Namespace = c.Namespace
	return append(all, labelled, named)
}

// relatedToSnapshot: its pods and its EtcdCluster (see snapshot.Pods). Where all EtcdClusters are asked for, each of
// their writes asks about the snapshot. Any of them may restore one that is being deleted; a deletion is another
// generation (markAsDeleting in apiserver's registry/store.go).
func relatedToSnapshot(s *v1beta1.EtcdSnapshot, byUID bool) []relatedRule {
	pods := relatedRule{APIVersion: "v1", Resource: "pods", LabelSelector: new(snapshot.Pods(s.Name))}
	named := clustersNamed(byUID, s.Namespace, s.Spec.SourceName())
	if s.DeletionTimestamp != nil {
		named = clustersNamed(byUID, s.Namespace)
	}
	return withLabelled(byUID, snapshot.Secrets(&s.Spec), pods, named)
}

// relatedToOperation: its EtcdCluster.
func relatedToOperation(op *v1beta1.EtcdOperation, byUID bool) []relatedRule {
	return []relatedRule{clustersNamed(byUID, op.Namespace, op.Spec.ClusterRef.Name)}
}

// relatedToSchedule: the etcd whose changes its stream stores, and whose upgrades may wait for a snapshot.
func relatedToSchedule(s *v1beta1.EtcdSnapshotSchedule, byUID bool) []relatedRule {
	cluster := clustersNamed(byUID, s.Namespace, s.Spec.Template.Spec.SourceName())
	external := s.Spec.Template.Spec.External != nil
	switch {
	case byUID && external && s.Spec.Stream == nil:
		return nil
	case byUID && external:
		return []relatedRule{labelled}
	case byUID && s.Spec.Stream == nil:
		return []relatedRule{cluster}
	}
	return withLabelled(byUID, snapshot.Secrets(&s.Spec.Template.Spec), cluster)
}

// relatedToMirror: its destination and its source.
func relatedToMirror(m *v1beta1.EtcdMirror, byUID bool) []relatedRule {
	names := []string{m.Spec.ClusterRef.Name}
	if source := m.Spec.Source.ClusterRef.Name; source != "" {
		names = append(names, source)
	}
	return withLabelled(byUID, mirror.Secrets(&m.Spec.Source), clustersNamed(byUID, m.Namespace, names...))
}

var errFound = errors.New("found")

// parentIn is the EtcdCluster that a call is about; nil when it is not found.
func parentIn(in *source) (c *v1beta1.EtcdCluster, failed error) {
	parent := parentTo(v1beta1.Kind, &c)
	_ = members(in, "the request", func(key string) error {
		if key == "parent" {
			_, failed = parent(in)
			return errFound
		}
		return skip(in, key)
	})
	return c, failed
}
