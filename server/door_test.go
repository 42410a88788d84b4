package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestManyConnectionsOfStrangers: those that show no token are few at once, callers are served meanwhile, and the
// connection of a caller stays.
func TestManyConnectionsOfStrangers(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	address, pages, _, _ := secured(t, f.CallerFiles, Options{ReadTimeout: 2 * time.Minute})
	caller := f.ca.caller(nil)
	right := func() {
		t.Helper()
		code, text, err := send(t, caller, "https://"+address+"/sync", "Bearer "+rightToken, steady(t))
		require.NoError(t, err)
		require.Equal(t, 200, code, text)
	}
	right()
	var all []net.Conn
	for range mostUnauthenticated + 50 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		all = append(all, conn)
	}
	for _, conn := range all[:50] {
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err)
		var late net.Error
		require.False(t, errors.As(err, &late) && late.Timeout(), "the oldest is closed")
	}
	right()
	right()

	for _, url := range []string{pages + "/nothing", pages + "/metrics"} {
		answer, err := http.Post(url, "", nil)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, answer.Body)
		require.NoError(t, answer.Body.Close())
		require.True(t, answer.Close, "404 and 405 end the connection")
	}
}
