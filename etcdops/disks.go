package etcdops

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// Members tell by their metrics how long all syncs of etcd's log have taken since they started. What their disks do now
// is the difference of two readings, so the last few are kept: the only thing that Quorate remembers besides what it
// writes down. Another process knows nothing of it, and then nothing is decided by it.

const (
	// shortestLook and longestLook bound the time that two readings which are compared lie apart. The nearer ones count
	// if there was enough between them.
	shortestLook, longestLook = 4 * time.Second, 15 * time.Second
	enoughSyncs               = 10
	// betweenReadings is how far those that are kept lie apart at least.
	betweenReadings = 2 * time.Second
	// mostReadings are kept of a member, of so many members at most; a namespace has half of those. A member that was
	// not read for a while is forgotten.
	mostReadings = int(longestLook/betweenReadings) + 1
	mostDisks    = 4096
	diskForgot   = 2 * time.Minute
	// mostMetrics is in bytes: etcd tells some 150 KiB, and several times that with all histograms of gRPC.
	mostMetrics = 4 << 20
	// longestLine is in bytes; a longer one is none of those that are read.
	longestLine = 4 << 10
)

// Disks are the last readings of members' disks, for as long as the process runs.
type Disks struct {
	// now is the clock; nil for the process's.
	now func() time.Time

	mu         sync.Mutex
	members    map[string]*disk
	namespaces map[string]int
	swept      time.Time
}

// disk has the readings of one pod, oldest first.
type disk struct {
	namespace string
	seen      time.Time
	readings  []reading
}

// reading is what a member has told: since it started, how many syncs there were, how many of them took no longer than
// observation.SlowSync, and how many seconds all took.
type reading struct {
	at           time.Time
	started      float64
	syncs, quick int64
	seconds      float64
}

func (d *Disks) time() time.Time {
	if d.now != nil {
		return d.now()
	}
	return time.Now()
}

// note keeps a reading of a pod, and says what its disk did since an earlier one; nil where there is none to compare it
// with.
func (d *Disks) note(namespace string, pod string, r reading) *observation.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.of(namespace, pod, r.at)
	if m == nil {
		return nil
	}
	m.seen = r.at
	if n := len(m.readings); n > 0 && !m.readings[n-1].before(&r) {
		m.readings = nil // another process, whose counters began again
	}
	told := m.since(&r)
	if n := len(m.readings); n == 0 || r.at.Sub(m.readings[n-1].at) >= betweenReadings {
		m.readings = append(m.readings[max(0, n+1-mostReadings):], r)
	}
	return told
}

// of is what is kept of a pod; nil where there is no room for it.
func (d *Disks) of(namespace string, pod string, now time.Time) *disk {
	if m := d.members[pod]; m != nil {
		return m
	}
	if d.members == nil {
		d.members = map[string]*disk{}
		d.namespaces = map[string]int{}
	}
	if now.Sub(d.swept) > diskForgot/2 {
		d.sweep(now)
	}
	if len(d.members) >= mostDisks || d.namespaces[namespace] >= mostDisks/2 {
		return nil
	}
	m := &disk{namespace: namespace}
	d.members[pod] = m
	d.namespaces[namespace]++
	return m
}

// sweep forgets what was not seen for a while.
func (d *Disks) sweep(now time.Time) {
	d.swept = now
	for pod, m := range d.members {
		if now.Sub(m.seen) <= diskForgot {
			continue
		}
		delete(d.members, pod)
		if d.namespaces[m.namespace]--; d.namespaces[m.namespace] == 0 {
			delete(d.namespaces, m.namespace)
		}
	}
}

// before reports whether the other one may be a later reading of the same process.
func (r *reading) before(o *reading) bool {
	return r.started == o.started && r.syncs <= o.syncs && r.quick <= o.quick && r.seconds <= o.seconds &&
		!o.at.Before(r.at)
}

// since is what happened until this reading: since the nearest one after which there was enough, or else the furthest.
func (m *disk) since(r *reading) (told *observation.Disk) {
	for i := len(m.readings) - 1; i >= 0; i-- {
		old := &m.readings[i]
		over := r.at.Sub(old.at)
		if over < shortestLook {
			continue
		}
		if over > longestLook {
			break
		}
		told = old.until(r)
		if told.Syncs >= enoughSyncs {
			break
		}
	}
	return told
}

func (r *reading) until(o *reading) *observation.Disk {
	d := &observation.Disk{Over: o.at.Sub(r.at), Syncs: o.syncs - r.syncs}
	d.Slow = max(0, d.Syncs-(o.quick-r.quick))
	if d.Syncs > 0 {
		mean := (o.seconds - r.seconds) / float64(d.Syncs)
		d.Mean = time.Duration(min(mean, mostSeconds) * float64(time.Second)).Round(time.Microsecond)
	}
	return d
}

// mostSeconds is more than any sync takes, and no more than a duration holds.
const mostSeconds = 1e6

// readDisk reads a member's metrics; nil for what can't be read, or compared. It has a third of the time that a
// question has: a member whose metrics are not reached makes the call no slower.
func (e *Etcd) readDisk(ctx context.Context, endpoint observation.Endpoint) *observation.Disk {
	var r reading
	err := e.call(ctx, callMetrics, e.timeout()/3, func(ctx context.Context) (err error) {
		return e.traced(ctx, endpoint, "/metrics", func() error {
			r, err = e.readMetrics(ctx, endpoint.MetricsURL)
			return err
		})
	})
	if err != nil {
		return nil
	}
	r.at = e.Disks.time()
	return e.Disks.note(endpoint.Namespace, endpoint.Pod, r)
}

func (e *Etcd) readMetrics(ctx context.Context, url string) (reading, error) {
	// a connection for one question: one that is kept would hide that the address is another pod's now
	once := http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, err := e.connect(ctx, address, nil)
			if t, is := conn.(*talk); is {
				t.read = true
			}
			return conn, err
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: largestHeaders,
		ReadBufferSize:         connBuffer,
		WriteBufferSize:        connBuffer,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return reading{}, err
	}
	response, err := once.RoundTrip(request) // follows no redirection
	if err != nil {
		return reading{}, unavailable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return reading{}, because(errRefused, response.Status)
	}
	return readReading(io.LimitReader(response.Body, mostMetrics))
}

var errNoMetrics = errors.New("its metrics lack those of its disk")

// The lines that are read, each with its value behind a space.
var (
	lineStarted = []byte("process_start_time_seconds ")
	lineSyncs   = []byte("etcd_disk_wal_fsync_duration_seconds_count ")
	lineSeconds = []byte("etcd_disk_wal_fsync_duration_seconds_sum ")
	lineQuick   = []byte(`etcd_disk_wal_fsync_duration_seconds_bucket{le="0.032"} `)
)

// readReading reads metrics in the text format of Prometheus, line by line, until all that is wanted was there.
func readReading(from io.Reader) (reading, error) {
	var r reading
	var syncs, quick float64
	wanted := map[*float64][]byte{&r.started: lineStarted, &syncs: lineSyncs, &r.seconds: lineSeconds, &quick: lineQuick}
	in := bufio.NewReaderSize(from, longestLine)
	for len(wanted) > 0 {
		line, err := in.ReadSlice('\n')
		for value, name := range wanted {
			text, is := bytes.CutPrefix(line, name)
			if !is || err != nil {
				continue
			}
			n, wrong := strconv.ParseFloat(string(bytes.TrimSpace(text)), 64)
			if wrong != nil || !(n >= 0 && n < 1<<53) {
				return r, errNoMetrics
			}
			*value = n
			delete(wanted, value)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return r, errNoMetrics
		}
	}
	r.syncs = int64(syncs)
	r.quick = int64(quick)
	return r, nil
}
