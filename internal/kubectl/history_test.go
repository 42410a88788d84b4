package kubectl

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/observation"
)

const execJournal = "exec orders-0 -n quorate-system -c quorate -- /quorate journal --namespace shop --name orders"

// journalOf has an entry of each of these times.
func journalOf(t *testing.T, times ...time.Time) string {
	t.Helper()
	var lines strings.Builder
	line := func(l journal.Line) {
		text, err := json.Marshal(l)
		require.NoError(t, err)
		lines.WriteString(string(text) + "\n")
	}
	for i, at := range times {
		o := observation.Observation{Cluster: &v1beta1.EtcdCluster{}, Now: at}
		o.Cluster.Name, o.Cluster.Namespace, o.Cluster.UID = "orders", "shop", "u"
		o.Cluster.Spec.Suspend = i > 0
		entry, objects, err := journal.New("v0.1.0", o, hooks.Decide(o))
		require.NoError(t, err)
		for ref, object := range objects {
			line(journal.Line{Ref: ref, Object: object})
		}
		text, err := entry.Text()
		require.NoError(t, err)
		line(journal.Line{Entry: text})
	}
	return lines.String()
}

// TestHistory tells what was decided, by the journals of all pods, and what was so at a moment.
func TestHistory(t *testing.T) {
	k := steady(t)
	k.says["get pods -n quorate-system"] = string(listOf(k.child("Pod orders-0")))
	k.says[execJournal] = journalOf(t, noon.Add(-2*time.Hour), noon.Add(-time.Hour))
	code, out, errs := k.runs(healthy(), "history", "orders", "-n", "shop")
	assert.Zero(t, code, errs)
	golden(t, "history", out)

	code, out, errs = k.runs(healthy(), "history", "orders", "-n", "shop", "--at", "2026-03-01T10:30:00Z")
	assert.Zero(t, code, errs)
	golden(t, "history-at", out)

	code, _, errs = k.runs(healthy(), "history", "orders", "-n", "shop", "--at", "2026-03-01T09:30:00Z")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "no entry about EtcdCluster shop/orders is from before 2026-03-01T09:30:00Z")

	code, out, _ = k.runs(healthy(), "history", "orders", "-n", "shop", "--journal")
	assert.Zero(t, code)
	entries, _, err := journal.Read(strings.NewReader(out))
	require.NoError(t, err)
	assert.Len(t, entries, 2)

	delete(k.says, execJournal)
	k.fails[execJournal] = "forbidden"
	code, _, errs = k.runs(healthy(), "history", "orders", "-n", "shop")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "the journal is read with `kubectl exec` in Quorate's pods")
	k.fails, k.says[execJournal] = nil, ""
	_, _, errs = k.runs(healthy(), "history", "orders", "-n", "shop")
	assert.Contains(t, errs, "no pod of Quorate in namespace quorate-system has an entry about EtcdCluster shop/orders")
}
