package kubectl

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

func TestMoveLeader(t *testing.T) {
	for _, c := range []struct {
		what, member string
		edit         func(k *kube, e *etcd)
		code         int
		says         string
		steps        int
	}{
		{"to a follower", "orders-2", func(*kube, *etcd) {}, 0, "orders-2 leads now\n", 1},
		{"to the leader", "orders-0", func(*kube, *etcd) {}, 0, "orders-0 leads already\n", 0},
		{"to no member", "orders-7", func(*kube, *etcd) {}, exitTrouble,
			"orders-7 is not a member; the voters are orders-0, orders-1, orders-2", 0},
		{"to one that does not answer", "orders-1",
			func(_ *kube, e *etcd) { e.health["orders-1"] = observation.Health{Err: "unreachable: refused"} },
			exitTrouble,
			"orders-1 does not serve: unreachable: refused; choose another", 0},
		{"to one without a leader", "orders-1",
			func(_ *kube, e *etcd) { e.health["orders-1"] = observation.Health{MemberID: first + 1} }, exitTrouble,
			"orders-1 does not serve: it knows no leader", 0},
		{"to one without a pod", "orders-1", func(k *kube, _ *etcd) { k.lose("Pod orders-1") }, exitTrouble,
			"it has no pod with an address", 0},
		{"to one that can't be forwarded to", "orders-1", func(k *kube, _ *etcd) { k.closed = []string{"orders-1"} },
			exitTrouble, "orders-1 does not serve: this version can't pod/orders-1", 0},
		{"without a leader", "orders-1", func(_ *kube, e *etcd) { e.leader = 0 }, exitTrouble,
			"etcd has no leader at the moment", 0},
		{"without quorum", "orders-1", func(_ *kube, e *etcd) { e.blind = true }, exitTrouble, "no quorum answers", 0},
		{"beside a learner", "orders-1", func(_ *kube, e *etcd) { e.members[2].Learner = true }, exitTrouble,
			"the learner orders-2 is joining", 0},
		{"when nothing is reached", "orders-1",
			func(k *kube, _ *etcd) { k.closed = []string{"orders-0", "orders-1", "orders-2"} }, exitTrouble,
			"etcd of EtcdCluster shop/orders can't be reached: this version can't pod/orders-0", 0},
		{"when etcd refuses", "orders-1", func(_ *kube, e *etcd) { e.refuses = etcdops.ErrMembershipChanged },
			exitTrouble, "the membership has changed since the decision; `kubectl quorate status` shows who leads", 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			k, e := steady(t), healthy()
			c.edit(k, e)
			code, out, errs := k.runs(e, "move-leader", c.member)
			assert.Equal(t, c.code, code, errs)
			assert.Contains(t, out+errs, c.says)
			assert.Len(t, e.did, c.steps)
			if c.code != 0 {
				assert.Contains(t, errs, "shop/orders")
			}
		})
	}
}

func TestDefragAsks(t *testing.T) {
	k := steady(t)
	code, out, errs := k.runs(healthy(), "defrag", "orders", "-n", "shop")
	require.Zero(t, code, errs)
	assert.Contains(t, k.calls, "annotate "+clusters+" orders -n shop --overwrite "+
		"etcd.quorate.dev/defragment=2026-03-01T12:00:00Z")
	assert.Contains(t, out, "request 2026-03-01T12:00:00Z")

	within(k.cluster, "metadata")["deletionTimestamp"] = "2026-03-01T11:00:00Z"
	k.calls = nil
	code, _, errs = k.runs(healthy(), "defrag")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "EtcdCluster shop/orders is being deleted")
	assert.Len(t, k.calls, 1)
}

// TestDefragWaits: what happens meanwhile is printed once each, until it is done.
func TestDefragWaits(t *testing.T) {
	k := steady(t)
	status, metadata := within(k.cluster, "status"), within(k.cluster, "metadata")
	metadata["annotations"] = map[string]any{objects.AnnotationDefragment: "2026-03-01T12:00:00Z"}
	run := map[string]any{"startTime": "2026-03-01T12:00:01Z", "request": "2026-03-01T12:00:00Z"}
	looks := 0
	p := k.waiting(func() {
		switch looks++; looks {
		case 1:
			status["defragmentation"] = map[string]any{"request": "2026-02-01T12:00:00Z",
				"completionTime": "2026-02-01T12:01:00Z"}
		case 2, 3:
			status["defragmentation"] = run
		case 4:
			run["done"] = []any{"orders-1", "orders-2"}
		case 5:
			run["done"], run["completionTime"], run["reclaimed"] = []any{"orders-1", "orders-2", "orders-0"},
				"2026-03-01T12:00:00Z", "120Mi"
		}
	})
	require.Zero(t, p.Run(t.Context(), []string{"defrag", "--wait"}))
	assert.Equal(t, []string{
		"orders in namespace shop is asked to defragment its members (request 2026-03-01T12:00:00Z)",
		"it has not begun; Quorate says Converged: 3 members serve as the spec wants",
		"under way: 0 members done of 3",
		"under way: 2 members done of 3",
		"done: 0s ago (2026-03-01 12:00 UTC): 3 members done (orders-1, orders-2, orders-0), 120.0 MiB given back",
	}, strings.Split(strings.TrimSpace(k.out.String()), "\n"))
}

func TestDefragGivesUp(t *testing.T) {
	k := steady(t)
	within(k.cluster, "metadata")["annotations"] = map[string]any{objects.AnnotationDefragment: "2026-03-01T12:00:00Z"}
	p := k.waiting(func() {})
	ctx, giveUp := context.WithCancel(t.Context())
	p.pause = func(context.Context, time.Duration) { giveUp() }
	assert.Equal(t, exitTrouble, p.Run(ctx, []string{"defrag", "--wait"}))
	assert.Contains(t, k.errs.String(), "the defragmentation of shop/orders is not finished (it has not begun")

	k.errs.Reset()
	assert.Equal(t, exitTrouble,
		k.waiting(func() {}).Run(t.Context(), []string{"defrag", "--wait", "--timeout", "1ns"}))
	assert.Contains(t, k.errs.String(), "the defragmentation of shop/orders is not finished; it continues without this command")

	p = k.waiting(func() {
		within(k.cluster, "metadata")["annotations"] = map[string]any{
			objects.AnnotationDefragment: "2026-03-01T12:00:07Z"}
	})
	assert.Equal(t, exitTrouble, p.Run(t.Context(), []string{"defrag", "--wait"}))
	assert.Contains(t, k.errs.String(),
		`another request has replaced this one on EtcdCluster shop/orders: "2026-03-01T12:00:07Z"`)
}

func TestProgressOfARunBySchedule(t *testing.T) {
	c := &v1alpha1.EtcdCluster{}
	c.Status.Defragmentation = &v1alpha1.DefragmentationStatus{StartTime: metav1.NewTime(noon),
		CompletionTime: metav1.NewTime(noon)}
	words, done := progress(c, "2026-03-01T12:00:00Z", noon)
	assert.False(t, done, "that run was not requested")
	assert.Equal(t, "it has not begun", words)
}
