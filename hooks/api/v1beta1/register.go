package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds.
const (
	// Kind of an etcd cluster.
	Kind = "EtcdCluster"
	// KindSnapshot of a snapshot.
	KindSnapshot = "EtcdSnapshot"
	// KindSchedule of a schedule of snapshots.
	KindSchedule = "EtcdSnapshotSchedule"
	// KindOperation of an act on a cluster.
	KindOperation = "EtcdOperation"
	// KindMirror of a copy of another etcd.
	KindMirror = "EtcdMirror"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "etcd.quorate.dev", Version: "v1beta1"}

// AddToScheme registers the types of this package with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &EtcdCluster{}, &EtcdClusterList{}, &EtcdSnapshot{}, &EtcdSnapshotList{},
		&EtcdSnapshotSchedule{}, &EtcdSnapshotScheduleList{}, &EtcdOperation{}, &EtcdOperationList{},
		&EtcdMirror{}, &EtcdMirrorList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
