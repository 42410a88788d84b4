package server

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// exchange is one call of a hook, and its answer.
type exchange struct {
	w       http.ResponseWriter
	request *http.Request
	code    int   // of the answer; 0 while there is none
	refusal error // why it was refused; nil when it was not
}

// hook is its path without the slash at the beginning, such as snapshots/sync.
func (c *exchange) hook() string { return strings.TrimPrefix(c.request.URL.Path, "/") }

// body is what was sent, up to so many bytes.
func (c *exchange) body(most int64) io.Reader { return http.MaxBytesReader(c.w, c.request.Body, most) }

// fail answers with an error.
func (c *exchange) fail(code int, words string) {
	c.code = code
	writeError(c.w, code, words)
}

func writeError(w http.ResponseWriter, code int, words string) {
	body, err := json.Marshal(map[string]string{"error": words})
	if err != nil { // a string always encodes
		body = []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the caller may be gone
}

// byPath answers requests of one method, by their exact path: nothing is cleaned and nothing is redirected. Otherwise is what those of another
// method are told.
func byPath(method, otherwise string, pages map[string]http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, known := pages[r.URL.Path]
		switch {
		case !known:
			writeError(w, http.StatusNotFound, "no such page")
		case r.Method != method:
			w.Header().Set("Allow", method)
			writeError(w, http.StatusMethodNotAllowed, otherwise)
		default:
			page(w, r)
		}
	})
}

// measured is a hook for those who may call it. It is counted and timed, its errors are logged, and a panic becomes a 500.
func (s *Server) measured(hook func(*exchange)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, began := &exchange{w: w, request: r}, time.Now()
		defer func() {
			if p := recover(); p != nil {
				s.panicked(c, p)
			}
			s.metrics.hook(c.hook(), c.code, time.Since(began))
		}()
		if s.authenticate(c) {
			hook(c)
		}
		if c.refusal != nil {
			s.logRefusal(c)
		}
	}
}
