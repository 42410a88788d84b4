package server

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }

// chunked is a call whose length is not told.
func chunked(body []byte) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/sync", io.MultiReader(bytes.NewReader(body)))
}

// queued is a pool with those who wait for it: each says so when it is served.
type queued struct {
	pool
	t    *testing.T
	told chan *ticket
}

func (q *queued) ask(tenant string, n int64) {
	q.t.Helper()
	q.mu.Lock()
	before := len(q.waiting)
	q.mu.Unlock()
	go func() {
		t, err := q.take(context.Background(), tenant, n)
		if err == nil {
			q.told <- t
		}
	}()
	require.Eventually(q.t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.waiting) > before
	}, 10*time.Second, time.Millisecond)
}

// TestThePoolIsShared: with a hundred calls of one tenant before them, those of others wait for one of them at most,
// and take turns.
func TestThePoolIsShared(t *testing.T) {
	q := &queued{pool: pool{size: 1}, t: t, told: make(chan *ticket, 100)}
	first, err := q.take(t.Context(), "hostile", 1)
	require.NoError(t, err)
	for range 20 {
		q.ask("hostile", 1)
	}
	for _, other := range []string{"a", "b", "a"} {
		q.ask(other, 1)
	}
	first.end()
	var order []string
	for range 23 {
		next := <-q.told
		order = append(order, next.tenant)
		next.end()
	}
	require.Equal(t, []string{"a", "b", "hostile", "a", "hostile"}, order[:5])
	require.Zero(t, q.held)
	require.Empty(t, q.tenants)
}

// TestHalfAtMost: what one tenant holds leaves half for others, and one who asks for more than there is, is served
// alone.
func TestHalfAtMost(t *testing.T) {
	q := &queued{pool: pool{size: 100}, t: t, told: make(chan *ticket, 100)}
	a, err := q.take(t.Context(), "hostile", 40)
	require.NoError(t, err)
	q.ask("hostile", 40)
	b, err := q.take(t.Context(), "other", 60)
	require.NoError(t, err, "who waits for its own does not stop others")
	b.end()
	a.keep(10)
	second := <-q.told
	require.EqualValues(t, 50, q.held)
	q.ask("other", 1000)
	over, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = q.take(over, "third", 100)
	require.Error(t, err, "who is larger than what is left keeps its place")
	a.end()
	second.end()
	require.EqualValues(t, 1000, (<-q.told).n)
}

// TestWhoHasHadMuchRests: after a call that took long, a tenant's next one waits three times as long, and those of
// others do not.
func TestWhoHasHadMuchRests(t *testing.T) {
	p := pool{size: 1, rest: 3}
	first, err := p.take(t.Context(), "hostile", 1)
	require.NoError(t, err)
	first.since = time.Now().Add(-time.Hour)
	first.end()
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = p.take(soon, "hostile", 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	other, err := p.take(t.Context(), "other", 1)
	require.NoError(t, err)
	other.since = time.Now().Add(-10 * time.Millisecond)
	began := time.Now()
	other.end()
	again, err := p.take(t.Context(), "other", 1)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), 25*time.Millisecond)
	again.end()
	require.Empty(t, p.tenants)
}

// TestAPartOfSomeoneUnknown is charged to its tenant once that is known.
func TestAPartOfSomeoneUnknown(t *testing.T) {
	p := &pool{size: 10}
	first, err := p.take(t.Context(), "", 5)
	require.NoError(t, err)
	first.of("shop")
	require.Equal(t, int64(5), p.tenants["shop"].held)
	require.NotContains(t, p.tenants, "")
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	_, err = p.take(short, "shop", 1)
	require.Error(t, err, "it has its half")
	other, err := p.take(t.Context(), "bank", 5)
	require.NoError(t, err)
	other.end()
	first.end()
	require.Empty(t, p.tenants)
	require.Zero(t, p.held)
}
