//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// result of one run.
type result struct {
	tally, snapshots tally
	over             time.Duration
	server           usage         // cpu of the time that was measured, the most of all else
	stub             time.Duration // cpu of this process
	sent             int           // bytes of a call
}

const tableHead = `| clusters | workers | etcd's delay | calls in a second | round | a call, p50, p99 | CPU a call | of a core | memory of its own, and with mapped files, most | files | goroutines | refused | writes | stub's CPU |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

func measure(ctx context.Context, o options, f *fleet, q *quorate) (*result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clusters := newCaller(q.url("/sync"), q.hooks, q.trust)
	clusters.reuse, clusters.patient = o.plain, o.patient
	clusters.body = func(to *bytes.Buffer, n int) { f.fill(to, f.clusters[n]) }
	clusters.answers = f.answered(clusters)
	clusters.counts = func(n int) bool { return !f.clusters[n].silent }
	done := clusters.work(ctx, o.workers)
	go clusters.resync(ctx, o.clusters+o.silent, o.resync)
	if err := clusters.warm(ctx, o.clusters); err != nil {
		return nil, err
	}
	r := &result{}
	var sample bytes.Buffer
	f.fill(&sample, f.clusters[0])
	r.sent = sample.Len()
	snapshots, err := o.noise(ctx, q)
	if err != nil {
		return nil, err
	}
	clusters.reset()
	before, err := q.usage(ctx, true)
	if err != nil {
		return nil, err
	}
	began, ours := time.Now(), cpuTime()
	r.server, err = q.most(ctx, o.measure)
	r.over, r.stub = time.Since(began), cpuTime()-ours
	r.server.cpu -= before.cpu
	r.tally = clusters.reset()
	if snapshots != nil {
		r.snapshots = snapshots.reset()
	}
	cancel()
	done.Wait()
	return r, err
}

// warm waits until every cluster was asked about, which makes first statuses and fills what is remembered.
func (c *caller) warm(ctx context.Context, clusters int) error {
	for range 6000 { // ten minutes
		c.mu.Lock()
		answered, refused := len(c.tally.took), len(c.tally.refused)
		c.mu.Unlock()
		switch {
		case answered >= clusters:
			return nil
		case refused > 0 && answered == 0:
			return fmt.Errorf("the first calls were refused, by code: %v", c.reset().refused)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.New("not every cluster was answered for within ten minutes")
}

// most watches the server for a while. The cpu is that of now.
func (q *quorate) most(ctx context.Context, during time.Duration) (usage, error) {
	var most usage
	end := time.Now().Add(during)
	for scrape := 0; time.Now().Before(end); scrape++ {
		u, err := q.usage(ctx, scrape%5 == 0)
		if err != nil {
			return most, err
		}
		most.anonymous, most.peak = max(most.anonymous, u.anonymous), max(most.peak, u.peak)
		most.files, most.goroutines = max(most.files, u.files), max(most.goroutines, u.goroutines)
		select {
		case <-ctx.Done():
			return most, ctx.Err()
		case <-time.After(min(200*time.Millisecond, time.Until(end))):
		}
	}
	u, err := q.usage(ctx, false)
	most.cpu = u.cpu
	return most, err
}

// noise are the calls about snapshots. The rule by which a snapshot gets its EtcdCluster has neither names nor
// labels, and such a rule tells Metacontroller 1.5.20 to ask about every snapshot, in whatever namespace, when any
// EtcdCluster is written (matchesRelatedRule in pkg/controller/common/customize). Nil when there are no snapshots.
func (o options) noise(ctx context.Context, q *quorate) (*caller, error) {
	if o.snapshots == 0 {
		return nil, nil //nolint:nilnil // no snapshots, no calls
	}
	raw, err := os.ReadFile("server/testdata/snapshot.json")
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	var c call
	if err := errors.Join(json.Compact(&compact, raw), json.Unmarshal(raw, &c)); err != nil {
		return nil, err
	}
	var parent struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(c.Parent, &parent); err != nil {
		return nil, err
	}
	parts := strings.Split(compact.String(), parent.Metadata.UID)
	uids := make([]string, o.snapshots)
	for i := range uids {
		uids[i] = string(uuid.NewUUID())
	}
	s := newCaller(q.url("/snapshots/sync"), q.hooks, q.trust)
	s.reuse = o.plain
	s.body = func(to *bytes.Buffer, n int) {
		to.Reset()
		to.WriteString(strings.Join(parts, uids[n]))
	}
	s.answers = func(int, []byte, func(time.Duration)) error { return nil }
	s.work(ctx, o.workers)
	go s.resync(ctx, o.snapshots, o.writes)
	return s, nil
}

// row is the result as a line of the table.
func (r *result) row(o options) string {
	calls := len(r.tally.took) + len(r.tally.silent) + len(r.snapshots.took)
	round := "not done in " + o.resync.String()
	if len(r.tally.drained) > 0 {
		round = fmt.Sprintf("%.1f s", quantile(r.tally.drained, 0.5).Seconds())
	} else if len(r.tally.since) > 0 {
		round += fmt.Sprintf(", each asked about every %.0f s", quantile(r.tally.since, 0.5).Seconds())
	}
	line := fmt.Sprintf("| %d | %d | %s | %.0f | %s | %.1f ms, %.0f ms | %.2f ms | %.0f%% | %.0f, %.0f MiB | %d | "+
		"%.0f | %v | %d | %.0f%% |\n",
		o.clusters, o.workers, o.latency, float64(len(r.tally.took))/r.over.Seconds(), round,
		quantile(r.tally.took, 0.5).Seconds()*1000, quantile(r.tally.took, 0.99).Seconds()*1000,
		r.server.cpu.Seconds()*1000/float64(max(calls, 1)), 100*r.server.cpu.Seconds()/r.over.Seconds(),
		r.server.anonymous, r.server.peak, r.server.files, r.server.goroutines,
		r.tally.refused, r.tally.writes, 100*r.stub.Seconds()/r.over.Seconds())
	if o.silent > 0 {
		var busy time.Duration
		for _, took := range r.tally.silent {
			busy += took
		}
		line += fmt.Sprintf("| %d silent clusters of one other namespace besides: %.1f calls a second about them, "+
			"p50 %.1f s, p99 %.1f s, %.1f workers busy with them; the times above are those of the others |\n",
			o.silent, float64(len(r.tally.silent))/r.over.Seconds(), quantile(r.tally.silent, 0.5).Seconds(),
			quantile(r.tally.silent, 0.99).Seconds(), busy.Seconds()/r.over.Seconds())
	}
	line += fmt.Sprintf("| from the queue to the answer: p50 %.0f ms, p99 %.0f ms |\n",
		quantile(r.tally.late, 0.5).Seconds()*1000, quantile(r.tally.late, 0.99).Seconds()*1000)
	if o.snapshots > 0 {
		line += fmt.Sprintf("| with %d snapshots, one cluster written every %s: %.0f calls a second about them, p50 "+
			"%.1f ms, p99 %.0f ms, a round %.1f s |\n", o.snapshots, o.writes,
			float64(len(r.snapshots.took))/r.over.Seconds(), quantile(r.snapshots.took, 0.5).Seconds()*1000,
			quantile(r.snapshots.took, 0.99).Seconds()*1000, quantile(r.snapshots.drained, 0.5).Seconds())
	}
	return line + fmt.Sprintf("<!-- a call has %d bytes -->\n", r.sent)
}

// cpuTime is the processor time of this process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
