// Package v1beta1 holds the API of Quorate: the kinds EtcdCluster, EtcdSnapshot, EtcdSnapshotSchedule,
// EtcdOperation and EtcdMirror of the group etcd.quorate.dev.
//
// It depends on k8s.io/api and k8s.io/apimachinery alone, so that a program that creates EtcdClusters
// can import it without dragging anything else in.
//
// +groupName=etcd.quorate.dev
package v1beta1
