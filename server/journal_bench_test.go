package server

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/server/wire"
)

// BenchmarkJournal is what the journal costs of a call, with a whole call (without its network) to compare: when the
// answer is the last one, and when it is another; and what is left to be done of that after the call. An entry at rest
// is one in which nothing but the members' logs and the time have changed.
//
//	go test ./server -run '^$' -bench Journal
func BenchmarkJournal(b *testing.B) {
	s, _ := testServer(Options{Version: "v0.1.0"})
	call, err := wire.ReadCluster(b.Context(), bytes.NewReader(steady(b)))
	require.NoError(b, err)
	o := call.Observation(time.Unix(1, 0), s.options.Settings)
	o.Etcd, o.Health = healthy{}.Observe(b.Context(), nil)
	d := hooks.Decide(o)
	answer, err := call.Answer(d, nil)
	require.NoError(b, err)
	b.Run("call", func(b *testing.B) {
		handler, body := s.Handler(), steady(b)
		for b.Loop() {
			require.Equal(b, http.StatusOK, post(handler, "/sync", body).Code)
		}
	})
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, s.journal.answered(o, d, answer, call.Made))
		}
	})
	r := keeper{room: 1 << 40}
	first := int64(0)
	other := func(b *testing.B) {
		o.Now = o.Now.Add(time.Second)
		o.Health = maps.Clone(o.Health)
		for name, h := range o.Health {
			h.RaftIndex += 17
			h.Revision += 11
			o.Health[name] = h
		}
		answer = fmt.Append(answer[:0], o.Now)
		require.NoError(b, r.answered(o, d, answer, call.Made))
	}
	b.Run("other", func(b *testing.B) {
		for b.Loop() {
			other(b)
			if len(r.waiting) == 1000 {
				b.StopTimer()
				r.waiting = nil
				r.namespaces = nil
				b.StartTimer()
			}
		}
	})
	b.Run("afterwards", func(b *testing.B) {
		r = keeper{room: 1 << 40}
		for b.Loop() {
			b.StopTimer()
			other(b)
			b.StartTimer()
			require.NoError(b, r.pack(r.next()))
			if first == 0 {
				first = r.held
			}
		}
		if b.N > 1 {
			b.ReportMetric(float64(r.held-first)/float64(b.N-1), "B/entry")
		}
		b.ReportMetric(float64(first), "B/first")
	})
}
