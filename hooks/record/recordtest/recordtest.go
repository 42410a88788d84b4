// Package recordtest reads and changes the records of epochs, for tests: what a person or a fault does to them.
package recordtest

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/record"
)

// Says is what a record says; nothing where there is none, or it can't be read.
func Says(cm *corev1.ConfigMap) record.Record {
	if cm == nil {
		return record.Record{}
	}
	r, err := record.Read(cm)
	if err != nil {
		return record.Record{}
	}
	return r
}

// Edit changes what a record says, whatever it was made with. Its seal stays.
func Edit(cm *corev1.ConfigMap, change func(*record.Record)) {
	r := Says(cm)
	change(&r)
	made := record.New(&v1beta1.EtcdCluster{}, 1, r)
	made.Data[record.KeyToken] = cm.Data[record.KeyToken]
	cm.Data = made.Data
	r.State.WriteTo(cm)
}
