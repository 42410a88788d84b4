package kubectl

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// filled: two snapshots of the cluster, and one of another, tell what fills it.
func (k *kube) filled() {
	of := func(name, cluster, at, rest string, inUse int64) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"clusterRef":{"name":%q}},"status":{"completionTime":%q,
			"clusterID":"cd","contents":{"inUse":%d,"leases":2,"leasedKeys":40,"total":{"keys":1000,"liveBytes":3000000,
			"revisions":5000,"bytes":15000000,"writes":4000,"mostRevisions":70,"largestValue":9000}%s}}}`, name, cluster, at,
			inUse, rest)
	}
	k.says["get "+snapshots+" -n shop -o json"] = `{"items":[` + strings.Join([]string{
		of("nightly-2", "orders", "2026-03-01T11:00:00Z", `,"prefixes":[
			{"prefix":"/registry/","keys":1000,"liveBytes":3000000,"revisions":5000,"bytes":15000000,"writes":4000,
				"mostRevisions":70,"largestValue":9000},
			{"prefix":"/registry/leases/","kind":"coordination.k8s.io/v1 Lease","keys":50,"liveBytes":20000,
				"revisions":4000,"bytes":1600000,"writes":3500,"mostRevisions":70,"largestValue":400},
			{"prefix":"/registry/pods/","kind":"v1 Pod","keys":700,"liveBytes":2500000,"revisions":800,"bytes":12000000,
				"writes":300,"mostRevisions":5,"largestValue":9000},
			{"prefix":"/registry/pods/shop/","kind":"v1 Pod","keys":600,"liveBytes":2000000,"revisions":700,
				"bytes":9000000,"writes":280,"mostRevisions":5,"largestValue":9000,"partial":true}]`, 14<<20),
		of("nightly-1", "orders", "2026-02-28T11:00:00Z", "", 12<<20),
		of("theirs", "others", "2026-03-01T11:30:00Z", "", 1),
	}, ",") + `]}`
}

// streaming: two schedules of the cluster have a stream, and the pod of the first tells who writes.
func (k *kube) streaming(told string) {
	of := func(name, cluster string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"template":{"spec":{"clusterRef":{"name":%q}}}},
			"status":{"stream":{"pod":"%s-stream-1"}}}`, name, cluster, name)
	}
	k.says["get "+schedules+" -n shop -o json"] = `{"items":[` + of("hourly", "orders") + `,` + of("nightly", "orders") +
		`,` + of("theirs", "others") + `]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(told))
	}))
	k.t.Cleanup(server.Close)
	k.served = map[string]string{"hourly-stream-1": server.Listener.Addr().String()}
	k.closed = []string{"nightly-stream-1"}
}

const writesTold = `{"from":"2026-03-01T10:20:30Z","to":"2026-03-01T11:00:00Z","contents":{"total":{"keys":12,"bytes":9000,
	"writes":40,"revisions":40,"mostRevisions":9,"largestValue":700}%s}}`

// TestTopOfStreams shows who wrote in the last hour, by the streams that tell it.
func TestTopOfStreams(t *testing.T) {
	k := steady(t)
	k.filled()
	k.streaming(fmt.Sprintf(writesTold, `,"prefixes":[
		{"prefix":"/registry/","keys":12,"bytes":9000,"writes":40,"revisions":40,"mostRevisions":9,"largestValue":700},
		{"prefix":"/registry/pods/","kind":"v1 Pod","keys":9,"bytes":5000,"writes":10,"revisions":10,"mostRevisions":2},
		{"prefix":"/registry/leases/","keys":3,"bytes":4000,"writes":30,"revisions":30,"mostRevisions":9}]`))
	code, out, errs := k.runs(healthy(), "top", "orders", "-n", "shop", "--by=writes")
	assert.Zero(t, code, errs)
	golden(t, "top-streams", out)
	assert.NotContains(t, k.forwards, "port-forward theirs-stream-1 -n shop")

	code, out, errs = k.runs(healthy(), "top", "orders", "-n", "shop", "-o", "json")
	assert.Zero(t, code, errs)
	var d topDocument
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Len(t, d.Streams, 1)
	assert.Equal(t, "hourly", d.Streams[0].Schedule)
	assert.EqualValues(t, 40, d.Streams[0].Contents.Total.Writes)

	k.streaming(fmt.Sprintf(writesTold, ""))
	_, out, _ = k.runs(healthy(), "top", "orders", "-n", "shop")
	assert.Contains(t, out, "or what it stores is encrypted")
	k.streaming("null")
	_, out, _ = k.runs(healthy(), "top", "orders", "-n", "shop")
	assert.Contains(t, out, "does not tell who writes: nothing has arrived yet")
}

// TestTop shows who fills etcd by the newest snapshot, and when it will be full; what a snapshot does not name; and a
// member that is asked.
func TestTop(t *testing.T) {
	k := steady(t)
	k.filled()
	code, out, errs := k.runs(healthy(), "top", "-n", "shop")
	assert.Zero(t, code, errs)
	golden(t, "top", out)

	code, out, errs = k.runs(healthy(), "top", "orders", "-n", "shop", "--by=writes", "--depth=3")
	assert.Zero(t, code, errs)
	golden(t, "top-depth", out)

	code, out, errs = k.runs(healthy(), "top", "orders", "-n", "shop", "--snapshot=nightly-1")
	assert.Zero(t, code, errs)
	golden(t, "top-encrypted", out)

	code, out, errs = k.runs(healthy(), "top", "orders", "-n", "shop", "--live", "--by=keys")
	assert.Zero(t, code, errs)
	golden(t, "top-live", out)

	code, out, errs = k.runs(healthy(), "top", "orders", "-n", "shop", "-o", "json")
	assert.Zero(t, code, errs)
	var d topDocument
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	assert.Equal(t, "nightly-2", d.Snapshot)
	assert.EqualValues(t, 2<<20, d.GrowthPerDay)
	assert.Len(t, d.Contents.Prefixes, 4)
	assert.True(t, d.FullAt.After(noon))

	k = steady(t)
	code, _, errs = k.runs(healthy(), "top", "orders", "-n", "shop")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "no verified EtcdSnapshot of EtcdCluster shop/orders tells what fills it")
	e := healthy()
	e.refuses = errors.New("permission denied")
	code, _, errs = k.runs(e, "top", "orders", "-n", "shop", "--live")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, errs, "permission denied")
	for _, line := range []string{"--depth=6", "--live --snapshot=a", "--live --by=revisions", "--by=age"} {
		code, _, _ := steady(t).runs(healthy(), append([]string{"top", "-n", "shop"}, strings.Fields(line)...)...)
		assert.Equal(t, exitUsage, code, line)
	}
}
