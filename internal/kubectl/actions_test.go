package kubectl

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
			assert.JSONEq(t, `{"apiVersion":"etcd.quorate.dev/v1alpha1","kind":"EtcdOperation","metadata":{"name":"`+name+
				`","namespace":"shop","labels":{"quorate":"blue"}},"spec":{"clusterRef":{"name":"orders"},`+c.spec+`}}`,
				k.applied[0])
			assert.Equal(t, "EtcdOperation shop/"+name+" created\n`kubectl get -n shop qop "+name+
				" -o wide` shows how it goes\n", out)
		})
	}
}

func TestOperateRefuses(t *testing.T) {
	k := steady(t)
	for line, says := range map[string]string{
		"restore":                          "restore needs either --snapshot",
		"restore --snapshot=a --epoch=2":   "restore needs either --snapshot",
		"fence":                            "fence needs the MEMBER that should stop",
		"recover":                          "recover needs a POLICY",
		"move-leader orders orders-1 more": "takes one NAME",
	} {
		code, _, errs := k.runs(healthy(), strings.Fields(line)...)
		assert.Equal(t, exitUsage, code, line)
		assert.Contains(t, errs, says)
	}
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
