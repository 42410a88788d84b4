//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestANamespaceComesBackFromABackup: Velero's way, without Velero. The objects of a namespace are kept, the namespace
// is deleted, its volumes stay, and the objects are made again: with the owners of before, which are gone. No empty
// cluster takes the place of the one with the data. It waits, says so, and has every acknowledged write once its spec
// names claims that are bound to the volumes.
func TestANamespaceComesBackFromABackup(t *testing.T) {
	beside(t)
	c := newCluster(t, three+"  storage: {size: 512Mi}\n")
	c.converges(3)
	w := c.writes()
	w.wrote(30)
	w.ends()
	volumes := c.retainsVolumes()
	backup := c.backedUp("pvc", "configmaps", "secrets", "etcdclusters.etcd.quorate.dev")
	kube(t, "delete", "namespace", c.ns, "--wait=true")
	kube(t, "create", "namespace", c.ns)
	for claim, pv := range volumes {
		c.frees(pv, claim)
	}

	for _, object := range backup {
		c.adds(object)
	}
	c.decides("RecordEpoch", "spec.bootstrap")
	eventually(t, "Kubernetes deletes the claims, whose owner is gone", func() string {
		left := list[corev1.PersistentVolumeClaim](t, c.ns, "pvc")
		return while(len(left) > 0, len(left))
	})
	c.decides("RecordEpoch", "spec.bootstrap")
	assert.Empty(t, c.pods(), "no empty cluster begins")

	var names []string
	for claim, pv := range volumes {
		c.frees(pv, claim)
		c.adds(fmt.Sprintf("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, namespace: %s}, spec: "+
			"{accessModes: [ReadWriteOnce], volumeName: %s, storageClassName: %q, resources: {requests: {storage: 512Mi}}}}",
			claim, c.ns, pv, classOf(t, pv)))
		names = append(names, claim)
	}
	c.edit(fmt.Sprintf(`{"bootstrap":{"claims":{"names":["%s"]}}}`, strings.Join(names, `","`)))
	c.converges(3)
	assert.Empty(t, missing(w.acked, c.present(w.word)))
}

// retainsVolumes has the volumes stay when their claims go; by claim.
func (c *cluster) retainsVolumes() map[string]string {
	volumes := map[string]string{}
	for _, claim := range c.claims(3) {
		volumes[claim.Name] = claim.Spec.VolumeName
		kube(c.t, "patch", "pv", claim.Spec.VolumeName, "--type=merge", "-p",
			`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	}
	c.t.Cleanup(func() {
		for _, pv := range volumes {
			kube(c.t, "patch", "pv", pv, "--type=merge", "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
		}
	})
	return volumes
}

// frees has a volume wait for the claim of this name alone, whatever its UID.
func (c *cluster) frees(pv, claim string) {
	kube(c.t, "patch", "pv", pv, "--type=merge", "-p", fmt.Sprintf(
		`{"spec":{"claimRef":{"name":%q,"namespace":%q,"uid":null,"resourceVersion":null}}}`, claim, c.ns))
}

func classOf(t *testing.T, pv string) string {
	return strings.TrimSpace(kube(t, "get", "pv", pv, "-o", "jsonpath={.spec.storageClassName}"))
}

// backedUp are the objects of these resources as Velero makes them again: without status and what the API server gives
// them, with their owners, and with its label.
func (c *cluster) backedUp(resources ...string) (backup []string) {
	for _, resource := range resources {
		var found struct {
			Items []map[string]any `json:"items"`
		}
		require.NoError(c.t, json.Unmarshal([]byte(c.kube("get", resource, "-o", "json")), &found))
		for _, object := range found.Items {
			meta, is := object["metadata"].(map[string]any)
			require.True(c.t, is)
			if meta["name"] == "kube-root-ca.crt" {
				continue
			}
			delete(object, "status")
			for _, given := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
				"finalizers", "deletionTimestamp"} {
				delete(meta, given)
			}
			meta["labels"] = restored(meta["labels"])
			if annotations, has := meta["annotations"].(map[string]any); has {
				delete(annotations, "pv.kubernetes.io/bind-completed")
				delete(annotations, "pv.kubernetes.io/bound-by-controller")
			}
			raw, err := json.Marshal(object)
			require.NoError(c.t, err)
			backup = append(backup, string(raw))
		}
	}
	return backup
}

// restored are labels with that of a restore.
func restored(labels any) map[string]any {
	all := map[string]any{"velero.io/restore-name": "friday"}
	if before, is := labels.(map[string]any); is {
		maps.Copy(all, before)
	}
	return all
}
