package chaos

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeQuorate answers with one pod and counts the calls.
type fakeQuorate struct {
	calls atomic.Int64
	code  int
}

func (f *fakeQuorate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.calls.Add(1)
	_, _ = io.Copy(io.Discard, r.Body)
	if f.code != 0 {
		w.WriteHeader(f.code)
		return
	}
	_, _ = io.WriteString(w, `{"status":{"new":true},"children":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":"v1"}],"resyncAfterSeconds":2}`)
}

// through makes a call through the proxy that meets this fault, as Metacontroller would.
func through(t *testing.T, fault faultKind, quorate *fakeQuorate) (calls int64, body string, broken []error,
	err error) {
	t.Helper()
	behind := httptest.NewServer(quorate)
	defer behind.Close()
	h := &Hooks{Schedule: &Schedule{}, Disturbs: func(string) bool { return true },
		Broken: func(e error) { broken = append(broken, e) }}
	for range 2 {
		h.Replicas = append(h.Replicas, &Replica{URL: behind.URL, Client: behind.Client(), Kill: func() {}})
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // as ServeHTTP: only then the server notices that the caller hangs up
		h.faults.begin()
		defer h.faults.end()
		d := &disturbed{h: h, w: w, r: r, actual: request(t, 1, thing("a", "1", "1")), dice: Dice(4, "test", 1)}
		d.lagged = &lagged{call: d.actual}
		d.body, _ = d.actual.body()
		d.meet(fault)
	}))
	defer front.Close()
	client := &http.Client{Timeout: 300 * time.Millisecond}
	r, err := client.Post(front.URL+"/sync", "application/json", strings.NewReader("{}"))
	if err == nil {
		raw, readErr := io.ReadAll(r.Body)
		require.NoError(t, readErr)
		require.NoError(t, r.Body.Close())
		body = string(raw)
	}
	h.Wait()
	return quorate.calls.Load(), body, broken, err
}

func TestHookFaults(t *testing.T) {
	for fault, want := range map[faultKind]struct {
		calls    int64
		answered bool
	}{
		calm: {1, true}, hookRefused: {0, false}, hookUnanswered: {1, false}, hookTooLate: {1, false},
		hookOverdue: {1, false},
		hookAtOnce:  {2, true}, hookAgain: {2, true}, hookKilled: {1, true},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			calls, body, broken, err := through(t, fault, &fakeQuorate{})
			assert.Equal(t, want.calls, calls)
			assert.Equal(t, want.answered, err == nil, "%v", err)
			assert.Empty(t, broken)
			if want.answered {
				assert.Contains(t, body, `"name":"a"`)
			}
		})
	}
}

// TestHookErrorsAreNoticed: any refusal but 429 is a bug, and what safety rules withhold is a 500.
func TestHookErrorsAreNoticed(t *testing.T) {
	_, _, broken, _ := through(t, calm, &fakeQuorate{code: http.StatusInternalServerError})
	assert.Len(t, broken, 1)
	_, _, broken, _ = through(t, calm, &fakeQuorate{code: http.StatusTooManyRequests})
	assert.Empty(t, broken)
}
