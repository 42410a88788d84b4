package server

import (
	"bytes"
	"encoding/base64"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/server/wire"
)

// TestSecretsOfOtherNamespacesAreNotRelated: whatever a call has, a cluster uses Secrets of its own namespace alone.
func TestSecretsOfOtherNamespacesAreNotRelated(t *testing.T) {
	secret := func(namespace, name string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
			"metadata": map[string]any{"namespace": namespace, "name": name, "uid": "uid-" + name,
				"labels": map[string]any{"etcd.quorate.dev/cluster": "orders"}},
			"data": map[string]any{"password": base64.StdEncoding.EncodeToString([]byte("of " + namespace))}}
	}
	r, err := wire.ReadCluster(t.Context(), bytes.NewReader(edited(t, func(r map[string]any) {
		user := func(name, secret string) map[string]any {
			return map[string]any{"name": name, "passwordSecretRef": map[string]any{"name": secret}}
		}
		at(r, "parent", "spec")["auth"] = map[string]any{"users": []any{user("a", "ours"), user("b", "theirs")}}
		r["related"] = map[string]any{groupSecrets: map[string]any{"bank/theirs": secret("bank", "theirs"),
			"shop/ours": secret("shop", "ours")}}
	})))
	require.NoError(t, err)
	require.Contains(t, r.Related.Secrets, "ours")
	require.Equal(t, "of shop", string(r.Secret("ours")["password"]))
	require.NotContains(t, r.Related.Secrets, "theirs")
	require.Nil(t, r.Secret("theirs"))
}

// TestSnapshotsOfOtherClustersAreNotRelated: of all that are sent, those count that have the cluster's label, or that
// its spec names.
func TestSnapshotsOfOtherClustersAreNotRelated(t *testing.T) {
	snapshot := func(namespace, name, of string) map[string]any {
		return map[string]any{"apiVersion": "etcd.quorate.dev/v1beta1", "kind": "EtcdSnapshot",
			"spec": map[string]any{"clusterRef": map[string]any{"name": of}},
			"metadata": map[string]any{"namespace": namespace, "name": name, "uid": "uid-" + name,
				"labels": map[string]any{"etcd.quorate.dev/cluster": of}}}
	}
	r, err := wire.ReadCluster(t.Context(), bytes.NewReader(edited(t, func(r map[string]any) {
		at(r, "parent", "spec")["bootstrap"] = map[string]any{
			"snapshot": map[string]any{"snapshotRef": map[string]any{"name": "named"}}}
		r["related"] = map[string]any{groupSnapshots: map[string]any{
			"a": snapshot("shop", "labelled", "orders"), "b": snapshot("shop", "named", "carts"),
			"c": snapshot("shop", "another", "carts"), "d": snapshot("bank", "theirs", "orders")}}
	})))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"labelled", "named"}, slices.Collect(maps.Keys(r.Related.Snapshots)))
}
