package kubectl

import (
	"maps"
	"path/filepath"
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
	var all []observation.Observation
	for i, at := range times {
		o := observation.Observation{Cluster: &v1beta1.EtcdCluster{}, Now: at}
		o.Cluster.Name, o.Cluster.Namespace, o.Cluster.UID = "orders", "shop", "u"
		o.Cluster.Spec.Suspend = i > 0
		all = append(all, o)
	}
	return journalBy(t, all...)
}

// journalBy is what is decided of these.
func journalBy(t *testing.T, observed ...observation.Observation) string {
	t.Helper()
	var entries []*journal.Entry
	all := journal.Objects{}
	for _, o := range observed {
		entry, objects, err := journal.New("v0.1.0", o, hooks.Decide(o))
		require.NoError(t, err)
		entries = append(entries, entry)
		maps.Copy(all, objects)
	}
	var lines strings.Builder
	require.NoError(t, journal.Write(&lines, entries, all))
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

	k.says["exec orders-0 -n quorate-system -c quorate -- /quorate journal --namespace  --name "] = journalOf(t, noon)
	code, out, errs = k.runs(healthy(), "history", "-A", "--journal")
	assert.Zero(t, code, errs)
	assert.Contains(t, out, `"Name":"orders"`)

	delete(k.says, execJournal)
	k.fails[execJournal] = "forbidden"
	code, _, errs = k.runs(healthy(), "history", "orders", "-n", "shop")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "the journal is read with `kubectl exec` in Quorate's pods")
	k.fails, k.says[execJournal] = nil, ""
	_, _, errs = k.runs(healthy(), "history", "orders", "-n", "shop")
	assert.Contains(t, errs, "no pod of Quorate in namespace quorate-system has an entry about EtcdCluster shop/orders")
}

// TestReportHasTheJournal: as much as there is room for, the newest, and it can be decided about once more.
func TestReportHasTheJournal(t *testing.T) {
	k := steady(t)
	k.says["get pods -n quorate-system"] = string(listOf(k.child("Pod orders-0")))
	var all []observation.Observation
	for i := range 3 {
		o := observation.Observation{Cluster: &v1beta1.EtcdCluster{}, Now: noon.Add(time.Duration(i) * time.Minute)}
		o.Cluster.Name, o.Cluster.Namespace, o.Cluster.UID = "orders", "shop", "u"
		o.Cluster.Annotations = map[string]string{"note": strings.Repeat(string(rune('a'+i)), mostOfJournal/2)}
		o.Health = map[string]observation.Health{"orders-0": {MemberID: 1<<64 - 1}}
		all = append(all, o)
	}
	k.says[execJournal] = journalBy(t, all...)
	file := filepath.Join(t.TempDir(), "r.tar.gz")
	code, _, errs := k.runs(healthy(), "report", "-o", file)
	require.Zero(t, code, errs)
	text := unpacked(t, file)["journal"]
	assert.LessOrEqual(t, len(text), mostOfJournal, len(k.says[execJournal]))
	entries, objects, err := journal.Read(strings.NewReader(text))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.Equal(t, noon.Add(2*time.Minute), entries[0].Time)
	var told strings.Builder
	others, err := journal.Replay(&told, "this one", hooks.Decide, entries, objects)
	require.NoError(t, err)
	assert.Zero(t, others, told.String())
}
