package kubectl

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// TestOperate: each command creates one EtcdOperation, and says nothing else than the line.
func TestOperate(t *testing.T) {
	for _, c := range []struct {
		line string
		spec string
	}{
		{"defrag", `"type":"Defragment"`},
		{"move-leader orders-2", `"type":"MoveLeader","moveLeader":{"to":"orders-2"}`},
		{"fence orders orders-1", `"type":"Fence","fence":{"members":["orders-1"]}`},
		{"fence orders-1 --duration=1h", `"type":"Fence","fence":{"members":["orders-1"],"duration":"1h0m0s"}`},
		{"recover FromSnapshot", `"type":"Recover","recover":{"epoch":1,"policy":"FromSnapshot"}`},
		{"recover Recreate --yes", `"type":"Recover","recover":{"epoch":1,"policy":"Recreate"}`},
		{"restore --epoch=3", `"type":"Restore","restore":{"epoch":3}`},
		{"restore orders --snapshot=nightly --stop-first",
			`"type":"Restore","restore":{"snapshot":{"snapshotRef":{"name":"nightly"}},"stopFirst":true}`},
	} {
		t.Run(c.line, func(t *testing.T) {
			k := steady(t)
			within(k.cluster, "metadata")["labels"] = map[string]any{"quorate": "blue",
				"app.kubernetes.io/instance": "shop"}
			code, out, errs := k.runs(healthy(), strings.Fields(c.line)...)
			require.Zero(t, code, errs)
			require.Len(t, k.applied, 1)
			command, _, _ := strings.Cut(c.line, " ")
			name := "orders-" + command + "-20260301-120000"
			assert.JSONEq(t, `{"apiVersion":"etcd.quorate.dev/v1beta1","kind":"EtcdOperation","metadata":{"name":"`+name+
				`","namespace":"shop","labels":{"quorate":"blue"}},"spec":{"clusterRef":{"name":"orders"},`+c.spec+`}}`,
				k.applied[0])
			assert.Equal(t, "EtcdOperation shop/"+name+" created\n`kubectl get -n shop qop "+name+
				" -o wide` shows how it goes\n", out)
		})
	}
}

func TestOperateRefuses(t *testing.T) {
	k := steady(t)
	k.fails["create"] = "etcdoperations.etcd.quorate.dev is forbidden (Forbidden)"
	code, _, errs := k.runs(healthy(), "defrag")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "no EtcdOperation was created for EtcdCluster shop/orders")
	assert.Contains(t, errs, "ask your Kubernetes administrator")

	within(k.cluster, "metadata")["deletionTimestamp"] = "2026-03-01T11:00:00Z"
	k.applied = nil
	code, _, errs = k.runs(healthy(), "defrag")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "EtcdCluster shop/orders is being deleted")
	assert.Empty(t, k.applied)
}

// TestDryRun prints what would be created, which kubectl can create.
func TestDryRun(t *testing.T) {
	k := steady(t)
	code, out, errs := k.runs(healthy(), "recover", "orders", "Recreate", "--dry-run")
	require.Zero(t, code, errs)
	assert.Empty(t, k.applied)
	var op v1beta1.EtcdOperation
	require.NoError(t, yaml.UnmarshalStrict([]byte(out), &op))
	assert.Equal(t, v1beta1.RecoverRecreate, op.Spec.Recover.Policy)
}

// TestOperateWaits: what happens meanwhile is printed once each, until it has ended.
func TestOperateWaits(t *testing.T) {
	k := steady(t)
	shows := func(status string) {
		k.says["get "+operations+" orders-defrag-20260301-120000"] = `{"status":` + status + `}`
	}
	shows(`{}`)
	looks := 0
	p := k.waiting(func() {
		switch looks++; looks {
		case 1, 2:
			shows(`{"phase":"Running","message":"no member defragmented so far"}`)
		case 3:
			shows(`{"phase":"Succeeded","message":"3 members defragmented"}`)
		}
	})
	require.Zero(t, p.Run(t.Context(), []string{"defrag", "--wait"}))
	assert.Equal(t, "EtcdOperation shop/orders-defrag-20260301-120000 created\nRunning: no member defragmented so far\n"+
		"Succeeded: 3 members defragmented\n", k.out.String())

	shows(`{"phase":"Failed","message":"withdrawn"}`)
	assert.Equal(t, exitTrouble, k.waiting(func() {}).Run(t.Context(), []string{"defrag", "--wait"}))
	assert.Contains(t, k.errs.String(), "EtcdOperation shop/orders-defrag-20260301-120000 has failed: withdrawn")

	shows(`{"phase":"Pending","message":"waiting"}`)
	ctx, giveUp := context.WithCancel(t.Context())
	p = k.waiting(func() {})
	p.pause = func(context.Context, time.Duration) { giveUp() }
	assert.Equal(t, exitTrouble, p.Run(ctx, []string{"defrag", "--wait"}))
	assert.Contains(t, k.errs.String(), "has not ended (Pending: waiting); it goes on without this command")
}

// formerly are claims that another operator has left, one of them with a pod.
func formerly(t *testing.T) *kube {
	k := steady(t)
	k.says["get pvc"] = `{"items":[
		{"metadata":{"name":"data-former-0","namespace":"shop"},
			"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"fast"},
			"status":{"phase":"Bound","capacity":{"storage":"2Gi"}}},
		{"metadata":{"name":"data-former-1","namespace":"shop",
				"ownerReferences":[{"kind":"EtcdMember","name":"former-1","controller":true}]},
			"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"fast",
				"resources":{"requests":{"storage":"1Gi"}}},
			"status":{"phase":"Pending"}}]}`
	k.says["get pods"] = `{"items":[
		{"metadata":{"name":"former-0"},
			"spec":{"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"data-former-0"}}]},
			"status":{"phase":"Running"}},
		{"metadata":{"name":"done"},
			"spec":{"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"data-former-1"}}]},
			"status":{"phase":"Succeeded"}}]}`
	return k
}

// TestAdopt: it prints the EtcdCluster that begins with the claims, and what is known of these; nothing is changed.
func TestAdopt(t *testing.T) {
	for _, line := range []string{"taken data-former-0 data-former-1", "taken -l app=former"} {
		k := formerly(t)
		code, out, errs := k.runs(healthy(),
			strings.Fields("adopt -n shop --dry-run --etcd-version=3.6.16 --path=. "+line)...)
		require.Zero(t, code, errs)
		assert.Empty(t, k.applied)
		comments, manifest, _ := strings.Cut(out, "apiVersion")
		assert.Equal(t, "# data-former-0: Bound, 2Gi, fast, ReadWriteOnce; IN USE by pod former-0: stop its etcd "+
			"first\n# data-former-1: Pending, 1Gi, fast, ReadWriteOnce; EtcdMember former-1 owns it, and it goes "+
			"with that\n", comments)
		var c v1beta1.EtcdCluster
		require.NoError(t, yaml.UnmarshalStrict([]byte("apiVersion"+manifest), &c))
		assert.Equal(t, "shop/taken", c.Namespace+"/"+c.Name)
		assert.Equal(t, "2Gi", c.Spec.Storage.Size.String())
		assert.Equal(t, "fast", *c.Spec.Storage.StorageClassName)
		assert.EqualValues(t, 2, *c.Spec.Replicas)
		assert.Equal(t, &v1beta1.FormerClaims{Names: []string{"data-former-0", "data-former-1"}, Path: "."},
			c.Spec.Bootstrap.Claims)
	}
}

func TestAdoptRefuses(t *testing.T) {
	code, _, errs := formerly(t).runs(healthy(),
		strings.Fields("adopt taken data-gone-0 --dry-run --etcd-version=3.6.16")...)
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "claim data-gone-0 does not exist in namespace")
	k := formerly(t)
	k.says["get pvc"] = `{"items":[]}`
	_, _, errs = k.runs(healthy(), strings.Fields("adopt taken -l app=former --dry-run --etcd-version=3.6.16")...)
	assert.Contains(t, errs, "no claim in namespace")
}
