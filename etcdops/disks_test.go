package etcdops

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// metricsOf are some of etcd's, as it tells them, in the order of their names.
func metricsOf(syncs, quick int, seconds float64) string {
	const name = "etcd_disk_wal_fsync_duration_seconds"
	return fmt.Sprintf("# HELP %s The latency distributions of fsync called by WAL.\n# TYPE %s histogram\n", name, name) +
		fmt.Sprintf("%s_bucket{le=\"0.001\"} 3\n%s_bucket{le=\"0.032\"} %d\n%s_bucket{le=\"+Inf\"} %d\n", name, name, quick,
			name, syncs) +
		fmt.Sprintf("%s_sum %g\n%s_count %d\n", name, seconds, name, syncs) +
		"go_goroutines 99\nprocess_start_time_seconds 1.79e+09\n"
}

func TestMetricsAreRead(t *testing.T) {
	long := "grpc_server{a=\"" + strings.Repeat("x", 3*longestLine) + "\"} 1\n"
	told := metricsOf(40, 30, 2.5)
	for name, text := range map[string]string{"as told": told, "behind a long line": long + told,
		"more comes": told + strings.Repeat(long, 3)} {
		r, err := readReading(strings.NewReader(text))
		require.NoError(t, err, name)
		assert.Equal(t, reading{started: 1.79e9, syncs: 40, quick: 30, seconds: 2.5}, r, name)
	}
	for name, text := range map[string]string{
		"nothing":         "",
		"another program": "go_goroutines 9\n",
		"cut off":         strings.TrimSuffix(told, "1.79e+09\n"),
		"a negative":      metricsOf(-1, 0, 0),
		"no number":       strings.Replace(told, "_count 40", "_count NaN", 1),
		"too many":        strings.Replace(told, "_count 40", "_count 1e30", 1),
		"endless":         strings.Repeat("x", mostMetrics),
	} {
		_, err := readReading(strings.NewReader(text))
		assert.ErrorIs(t, err, errNoMetrics, name)
	}
}

// TestWhatADiskDid is known by two readings of one process, some seconds apart.
func TestWhatADiskDid(t *testing.T) {
	at := time.Unix(1000, 0)
	noted := func(d *Disks, after time.Duration, syncs, quick int64, seconds, started float64) *observation.Disk {
		return d.note("shop", "pod", reading{at: at.Add(after), started: started, syncs: syncs, quick: quick,
			seconds: seconds})
	}
	s := time.Second
	d := &Disks{}
	assert.Nil(t, noted(d, 0, 100, 100, 1, 1), "the first")
	assert.Nil(t, noted(d, s, 120, 120, 1.2, 1), "too soon")
	assert.Equal(t, &observation.Disk{Over: 5 * s, Syncs: 50, Slow: 25, Mean: 100 * time.Millisecond},
		noted(d, 5*s, 150, 125, 6, 1))
	assert.Equal(t, &observation.Disk{Over: 5 * s, Syncs: 10, Mean: 10 * time.Millisecond},
		noted(d, 10*s, 160, 135, 6.1, 1), "the last seconds count")
	assert.Equal(t, &observation.Disk{Over: 10 * s, Syncs: 14, Mean: 10 * time.Millisecond},
		noted(d, 15*s, 164, 139, 6.14, 1), "those before too, where there was little")
	assert.Nil(t, noted(d, 35*s, 164, 139, 6.14, 1), "not what is long ago")
	assert.Equal(t, &observation.Disk{Over: 5 * s}, noted(d, 40*s, 164, 139, 6.14, 1), "nothing happened")
	assert.Nil(t, noted(d, 45*s, 400, 400, 9, 2), "it was restarted")
	assert.Nil(t, noted(d, 50*s, 300, 300, 9, 2), "its counters went back")
	assert.Nil(t, noted(d, 40*s, 400, 400, 9, 2), "an answer that was late")
}

// TestDisksHaveTheirRoom: a namespace has half of it, and who is not seen any more makes room.
func TestDisksHaveTheirRoom(t *testing.T) {
	d := &Disks{}
	at := time.Unix(1000, 0)
	for i := range 3 * mostDisks {
		pod := fmt.Sprint(i)
		for n := range 2 * mostReadings {
			d.note("loud", pod, reading{at: at.Add(time.Duration(n) * 3 * time.Second)})
		}
	}
	assert.Len(t, d.members, mostDisks/2)
	for _, m := range d.members {
		require.LessOrEqual(t, len(m.readings), mostReadings)
	}
	d.note("quiet", "q", reading{at: at})
	assert.NotNil(t, d.note("quiet", "q", reading{at: at.Add(5 * time.Second)}))
	d.note("quiet", "other", reading{at: at.Add(time.Hour)})
	assert.Len(t, d.members, 1)
	assert.Equal(t, map[string]int{"quiet": 1}, d.namespaces)
}

// TestASlowDiskIsSeenInTenSeconds, whenever it becomes slow and however much is written, with a look every five.
func TestASlowDiskIsSeenInTenSeconds(t *testing.T) {
	r := rand.New(rand.NewPCG(48, 4))
	for range 500 {
		began := 20 + 5*r.Float64()
		perSecond := []float64{20, 100, 400}[r.IntN(3)]
		d := &Disks{}
		var seen float64
		var total reading
		for at := 0.0; at < 60 && seen == 0; at += 0.001 {
			if due := int(at * 1000); due%5000 == 0 {
				now := total
				now.at = time.Unix(1000, 0).Add(time.Duration(due) * time.Millisecond)
				told := d.note("shop", "pod", now)
				if told != nil && told.Mean >= facts.SlowLeast && told.Slow >= max(facts.FewSyncs, told.Syncs/2) {
					seen = at - began
				}
			}
			if took := 0.001; at < began && r.Float64() < perSecond/1000 {
				total.syncs++
				total.quick++
				total.seconds += took
			} else if at >= began && r.Float64() < min(perSecond, 1/0.201)/1000 {
				total.syncs++
				total.seconds += 0.201
			}
		}
		assert.Positive(t, seen)
		assert.Less(t, seen, 10.1)
	}
}

// TestObserveReadsDisks: beside the statuses, over the network, and no one waits for metrics that don't come.
func TestObserveReadsDisks(t *testing.T) {
	all := fakes(t, 3)
	clock := atomic.Int64{}
	clock.Store(1000)
	e := &Etcd{Timeout: 3 * time.Second, Disks: &Disks{now: func() time.Time { return time.Unix(clock.Load(), 0) }}}
	asked := endpointsOf(all)
	serves := func(i int, answer http.HandlerFunc) {
		s := httptest.NewServer(answer)
		t.Cleanup(s.Close)
		asked[i].MetricsURL = s.URL + "/metrics"
		asked[i].Pod = asked[i].Name
	}
	done := make(chan struct{})
	serves(0, func(w http.ResponseWriter, _ *http.Request) {
		n := int(clock.Load() - 1000)
		_, _ = fmt.Fprint(w, strings.Repeat("# padding of more than a slot's worth\n", 1000)+metricsOf(20*n, 15*n, float64(n)))
	})
	serves(1, func(http.ResponseWriter, *http.Request) { <-done })
	serves(2, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, asked[0].MetricsURL, http.StatusFound)
	})
	t.Cleanup(func() { close(done) })
	for range largeTalks {
		slots <- struct{}{} // none is needed
	}
	defer func() {
		for range largeTalks {
			<-slots
		}
	}()
	_, health := e.Observe(t.Context(), asked)
	assert.Nil(t, health["demo-0"].Disk)
	clock.Add(5)
	took := took(func() { _, health = e.Observe(t.Context(), asked) })
	assert.Equal(t, &observation.Disk{Over: 5 * time.Second, Syncs: 100, Slow: 25, Mean: 50 * time.Millisecond},
		health["demo-0"].Disk)
	assert.Nil(t, health["demo-1"].Disk)
	assert.Nil(t, health["demo-2"].Disk)
	assert.Empty(t, health["demo-1"].Err)
	assert.Less(t, took, 2*time.Second)
	assert.Nil(t, e.Again(asked), "a kept connection does not tell it")

	asked[0].MetricsURL = ""
	_, health = e.Observe(t.Context(), asked)
	assert.Nil(t, health["demo-0"].Disk, "it is not asked for")
}
