package kubectl

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/test/static/docs"
)

// several are two clusters, one of them in another namespace and just created.
func several(t *testing.T) *kube {
	k := steady(t)
	begun, err := json.Marshal(k.cluster)
	require.NoError(t, err)
	k.says["get "+clusters] = `{"items":[` + string(begun) + `,{"metadata":{"name":"carts","namespace":"web",
		"creationTimestamp":"2026-03-01T11:59:30Z"},"spec":{"version":"3.5.21","replicas":1}}]}`
	return k
}

// TestStatusOfSeveral is a table by what their status knows: none is asked.
func TestStatusOfSeveral(t *testing.T) {
	k := several(t)
	code, out, errs := k.runs(healthy(), "status")
	require.Zero(t, code, errs)
	assert.Equal(t, "NAME    READY  VERSION  LEADER    STATUS     AGE\n"+
		"orders  3/3    3.6.16   orders-0  Converged  3h\n"+
		"carts   0/1    3.5.21   -         -          30s\n", out)
	assert.Empty(t, k.forwards)

	k.calls = nil
	_, out, _ = k.runs(healthy(), "status", "--all-namespaces", "-o", "wide")
	assert.Equal(t, []string{"get " + clusters + " -o json -A"}, k.calls)
	lines := strings.Split(out, "\n")
	assert.Equal(t, []string{"NAMESPACE", "NAME", "READY", "VERSION", "LEADER", "STATUS", "AGE", "EPOCH", "DB",
		"CERTIFICATES", "MESSAGE"}, strings.Fields(lines[0]))
	assert.Equal(t, "shop orders 3/3 3.6.16 orders-0 Converged 3h 1 26.0 MiB - 3 members serve as the spec wants",
		strings.Join(strings.Fields(lines[1]), " "))

	_, out, _ = steady(t).runs(healthy(), "status", "-o", "wide")
	assert.Equal(t, 2, strings.Count(out, "\n"), "a table of one")
	k.says["get "+clusters] = `{"items":[]}`
	code, _, errs = k.runs(healthy(), "status", "-A")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "no EtcdCluster exists in any namespace")
	code, out, _ = k.runs(healthy(), "status", "-A", "-o", "yaml")
	assert.Zero(t, code)
	assert.Equal(t, "clusters: []\n", out)
}

// TestStatusForPrograms: one shape for one and for many; the fields are those that docs/reference/cli.md promises.
func TestStatusForPrograms(t *testing.T) {
	_, one, _ := steady(t).runs(healthy(), "status", "orders", "-o", "json")
	golden(t, "status-json", one)
	var all document
	require.NoError(t, json.Unmarshal([]byte(one), &all))
	require.Len(t, all.Clusters, 1)
	assert.True(t, all.Clusters[0].Live)
	assert.EqualValues(t, 14, *all.Clusters[0].Members[2].Lag)

	k := several(t)
	code, out, errs := k.runs(healthy(), "status", "-A", "-o", "yaml")
	require.Zero(t, code, errs)
	assert.Empty(t, k.forwards)
	all = document{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(out), &all))
	require.Len(t, all.Clusters, 2)
	assert.False(t, all.Clusters[0].Live)
	assert.Nil(t, all.Clusters[0].Members[2].Lag)
	assert.Equal(t, "web", all.Clusters[1].Namespace)
	assert.Empty(t, all.Clusters[1].Members)
}

// TestTheScreenInTheDocument: docs/reference/cli.md shows one that is printed so, without the parts that are always
// there.
func TestTheScreenInTheDocument(t *testing.T) {
	text, err := os.ReadFile("testdata/status-refused.txt")
	require.NoError(t, err)
	screen, _, _ := strings.Cut(string(text), "\nCERTIFICATES\n")
	require.NoError(t, docs.Keep("../../docs/reference/cli.md", "generated: begin screen", "generated: end",
		"<!-- not run: TestUpkeep/Plugin reads one -->\n```console\n$ kubectl quorate status -n shop\n"+screen+"```\n"))
}

// TestTheFieldsInTheDocument: docs/reference/cli.md promises what status prints for programs.
func TestTheFieldsInTheDocument(t *testing.T) {
	var lines string
	for _, d := range []struct {
		what string
		has  any
	}{
		{"clusters[]", clusterDocument{}}, {"members[]", memberDocument{}}, {"certificates[]", certificateDocument{}},
	} {
		var fields []string
		for f := range reflect.TypeOf(d.has).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, "`"+name+"`")
		}
		lines += "- `" + d.what + "`: " + strings.Join(fields, ", ") + "\n"
	}
	require.NoError(t, docs.Keep("../../docs/reference/cli.md", "generated: begin fields", "generated: end", lines))
}
