package wire

import (
	"errors"
	"io"

	"github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// CustomizedCluster reads of a call to the hook customize the EtcdCluster that it is about.
func CustomizedCluster(body io.Reader) (c *v1alpha1.EtcdCluster, err error) {
	err = customized(body, parentTo(v1alpha1.Kind, &c))
	return c, err
}

// CustomizedSnapshot reads of a call to the hook customize the EtcdSnapshot that it is about.
func CustomizedSnapshot(body io.Reader) (s *v1alpha1.EtcdSnapshot, err error) {
	err = customized(body, parentTo(v1alpha1.KindSnapshot, &s))
	return s, err
}

// CustomizedOperation reads of a call to the hook customize the EtcdOperation that it is about.
func CustomizedOperation(body io.Reader) (op *v1alpha1.EtcdOperation, err error) {
	err = customized(body, parentTo(v1alpha1.KindOperation, &op))
	return op, err
}

// CustomizedSchedule reads of a call to the hook customize the EtcdSnapshotSchedule that it is about.
func CustomizedSchedule(body io.Reader) (s *v1alpha1.EtcdSnapshotSchedule, err error) {
	err = customized(body, parentTo(v1alpha1.KindSchedule, &s))
	return s, err
}

// CustomizedMirror reads of a call to the hook customize the EtcdMirror that it is about.
func CustomizedMirror(body io.Reader) (m *v1alpha1.EtcdMirror, err error) {
	err = customized(body, parentTo(v1alpha1.KindMirror, &m))
	return m, err
}

func customized(body io.Reader, parent func(in *source) error) error {
	in, err := newSource(body)
	if err != nil {
		return err
	}
	found := false
	err = members(in, "the request", func(key string) error {
		if key == "parent" {
			found = true
			return parent(in)
		}
		return skip(in, key)
	})
	if err == nil && !found {
		err = Bad("parent is missing")
	}
	return err
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

// clusters are the EtcdClusters of these names; all of the namespace where Metacontroller remembers answers by the name
// of the parent alone (byUID is false), for then the answer may depend on nothing else.
func clusters(namespace string, byUID bool, names ...string) relatedRule {
	of := relatedRule{APIVersion: v1alpha1.GroupVersion.String(), Resource: "etcdclusters"}
	if byUID {
		of.Namespace, of.Names = namespace, names
	}
	return of
}

// RelatedToCluster answers the hook customize of an EtcdCluster: which objects to send besides the children. Where
// Metacontroller remembers answers by the name alone (byUID is false), they depend on nothing else: then all
// EtcdSnapshots of the namespace are asked for, and those that matter are picked.
func RelatedToCluster(c *v1alpha1.EtcdCluster, byUID bool) ([]byte, error) {
	secrets := relatedRule{APIVersion: "v1", Resource: "secrets", LabelSelector: new(certificates.RelatedSelector(c))}
	snapshots := relatedRule{APIVersion: v1alpha1.GroupVersion.String(), Resource: "etcdsnapshots"}
	operations := relatedRule{APIVersion: v1alpha1.GroupVersion.String(), Resource: "etcdoperations"}
	if !byUID {
		return encodeRules(secrets, operations, snapshots)
	}
	labelled, named := snapshots, snapshots
	labelled.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{objects.LabelCluster: c.Name}}
	if named.Names = epochs.SnapshotsNamed(c); len(named.Names) == 0 {
		return encodeRules(secrets, operations, labelled)
	}
	named.Namespace = c.Namespace
	return encodeRules(secrets, operations, labelled, named)
}

// RelatedToSnapshot answers the hook customize of an EtcdSnapshot: its Jobs' pods, and its EtcdCluster (see
// snapshot.Pods). Where all EtcdClusters are asked for, each of their writes asks about the snapshot.
func RelatedToSnapshot(s *v1alpha1.EtcdSnapshot, byUID bool) ([]byte, error) {
	of := clusters(s.Namespace, byUID, s.Spec.SourceName())
	if s.DeletionTimestamp != nil {
		// Any of them may restore one that is being deleted; a deletion is another generation (markAsDeleting in
		// apiserver's registry/store.go).
		of.Names = nil
	}
	pods := relatedRule{APIVersion: "v1", Resource: "pods", LabelSelector: new(snapshot.Pods(s.Name))}
	return encodeRules(pods, of)
}

// RelatedToOperation answers the hook customize of an EtcdOperation: its EtcdCluster.
func RelatedToOperation(op *v1alpha1.EtcdOperation, byUID bool) ([]byte, error) {
	return encodeRules(clusters(op.Namespace, byUID, op.Spec.ClusterRef.Name))
}

// RelatedToSchedule answers the hook customize of an EtcdSnapshotSchedule: the EtcdCluster whose changes its stream
// stores; nothing without a stream.
func RelatedToSchedule(s *v1alpha1.EtcdSnapshotSchedule, byUID bool) ([]byte, error) {
	if byUID && (s.Spec.Stream == nil || s.Spec.Template.Spec.External != nil) {
		return encodeRules()
	}
	return encodeRules(clusters(s.Namespace, byUID, s.Spec.Template.Spec.SourceName()))
}

// RelatedToMirror answers the hook customize of an EtcdMirror: its destination and, where that is an EtcdCluster, its
// source.
func RelatedToMirror(m *v1alpha1.EtcdMirror, byUID bool) ([]byte, error) {
	names := []string{m.Spec.ClusterRef.Name}
	if source := m.Spec.Source.ClusterRef.Name; source != "" {
		names = append(names, source)
	}
	return encodeRules(clusters(m.Namespace, byUID, names...))
}

// encodeRules answers the hook customize.
func encodeRules(rules ...relatedRule) ([]byte, error) {
	return json.Marshal(map[string]any{"relatedResources": rules})
}

var errFound = errors.New("found")

// parentIn is the EtcdCluster that a call is about; nil when it is not found.
func parentIn(in *source) (c *v1alpha1.EtcdCluster, failed error) {
	parent := parentTo(v1alpha1.Kind, &c)
	_ = members(in, "the request", func(key string) error {
		if key == "parent" {
			failed = parent(in)
			return errFound
		}
		return skip(in, key)
	})
	return c, failed
}
