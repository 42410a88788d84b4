package ui

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const address = "127.0.0.1:4321"

// source is one cluster, or an error.
type source struct {
	err    error
	asked  atomic.Int32
	at     time.Time
	during func()
	words  string
}

func (s *source) ask() error {
	s.asked.Add(1)
	if s.during != nil {
		s.during()
	}
	return s.err
}

var orders = Name{"shop", "orders"}

func (s *source) Clusters(context.Context) ([]Cluster, error) {
	return []Cluster{{Name: orders, Status: "Converged", Message: s.words, Mood: Calm,
		Members: []Member{{Name: "orders-0", Role: "Voter", Leads: true, Ready: true, State: "serves"}}}}, s.ask()
}

func (s *source) History(context.Context, Name) (*History, error) {
	return &History{Moments: []Moment{{Time: time.Unix(0, 5).UTC()}}}, s.ask()
}

func (s *source) Explain(_ context.Context, of Name, at time.Time) (string, error) {
	s.at = at
	return of.Namespace + "/" + of.Name, s.ask()
}

func (s *source) Stored(context.Context, Name) (*Stored, error) { return &Stored{}, s.ask() }

func (s *source) Contents(context.Context, Name) (*Contents, error) {
	return &Contents{Notes: []string{}, Prefixes: []Prefix{{"/registry/", 7, 1 << 20, 9}}}, s.ask()
}

// get asks as a browser with this cookie does; change makes another request of it.
func get(s *server, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = address
	r.AddCookie(&http.Cookie{Name: cookie, Value: s.token})
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestWhoMayLook: the address of this host, the token, and no more than to look.
func TestWhoMayLook(t *testing.T) {
	from := &source{}
	s := newServer(address, from)
	none := func(r *http.Request) { r.Header.Del("Cookie") }
	for what, c := range map[string]struct {
		path   string
		change func(*http.Request)
		status int
	}{
		"the page":           {s.path, nil, http.StatusOK},
		"its script":         {s.path + "page.js", nil, http.StatusOK},
		"by another name":    {s.path, func(r *http.Request) { r.Host = "localhost:4321" }, http.StatusOK},
		"clusters":           {s.path + "api/clusters", nil, http.StatusOK},
		"a file of no page":  {s.path + "../server.go", nil, http.StatusTemporaryRedirect},
		"none there":         {s.path + "server.go", nil, http.StatusNotFound},
		"another path":       {"/", nil, http.StatusNotFound},
		"the token at first": {s.path + "?token=" + s.token, none, http.StatusSeeOther},
		"no cookie":          {s.path, none, http.StatusForbidden},
		"no cookie, script":  {s.path + "page.js", none, http.StatusForbidden},
		"no cookie, data":    {s.path + "api/clusters", none, http.StatusForbidden},
		"token, data":        {s.path + "api/clusters?token=" + s.token, none, http.StatusForbidden},
		"a wrong token":      {s.path + "?token=" + s.token[1:], none, http.StatusForbidden},
		"an empty one":       {s.path + "?token=", none, http.StatusForbidden},
		"a wrong cookie": {s.path, func(r *http.Request) { r.Header.Set("Cookie", cookie+"=x") },
			http.StatusForbidden},
		"rebound":            {s.path, func(r *http.Request) { r.Host = "evil.example:4321" }, http.StatusMisdirectedRequest},
		"another port":       {s.path, func(r *http.Request) { r.Host = "127.0.0.1:80" }, http.StatusMisdirectedRequest},
		"POST":               {s.path, func(r *http.Request) { r.Method = "POST" }, http.StatusMethodNotAllowed},
		"OPTIONS":            {s.path, func(r *http.Request) { r.Method = "OPTIONS" }, http.StatusMethodNotAllowed},
		"DELETE, no cookie":  {s.path, func(r *http.Request) { r.Method = "DELETE"; none(r) }, http.StatusMethodNotAllowed},
		"a flag for kubectl": {s.path + "api/explain?namespace=shop&name=--server=x", nil, http.StatusBadRequest},
		"another namespace":  {s.path + "api/explain?namespace=-A&name=orders", nil, http.StatusBadRequest},
		"no name":            {s.path + "api/stored?namespace=shop", nil, http.StatusBadRequest},
		"no moment":          {s.path + "api/explain?namespace=shop&name=orders&at=now", nil, http.StatusBadRequest},
	} {
		w := get(s, c.path, c.change)
		assert.Equal(t, c.status, w.Code, what)
		if w.Code == http.StatusOK {
			assert.Equal(t, "no-store", w.Header().Get("Cache-Control"), what)
		} else {
			assert.NotContains(t, w.Body.String(), s.token, what)
		}
		assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; ", what)
		assert.NotContains(t, w.Header().Get("Content-Security-Policy"), "unsafe", what)
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), what)
		assert.Empty(t, w.Header().Get("Access-Control-Allow-Origin"), what)
	}
	assert.EqualValues(t, 1, from.asked.Load(), "who may not look has nothing asked")

	w := get(s, s.path+"?token="+s.token, none)
	assert.Equal(t, s.path, w.Header().Get("Location"), "the token leaves the address")
	assert.Equal(t, cookie+"="+s.token+"; Path="+s.path+"; HttpOnly; SameSite=Strict", w.Header().Get("Set-Cookie"))
	assert.NotEqual(t, newServer(address, from).token, s.token)
}

// TestAnswers are JSON, in which what clusters say is no markup.
func TestAnswers(t *testing.T) {
	from := &source{words: `</script><img src=x onerror=alert(1)>`}
	s := newServer(address, from)
	about := "?namespace=shop&name=orders"
	for path, want := range map[string]string{
		"clusters": `{"data":[{"namespace":"shop","name":"orders","status":"Converged","message":` +
			`"\u003c/script\u003e\u003cimg src=x onerror=alert(1)\u003e","mood":"calm","version":"","voters":0,"ready":0,` +
			`"epoch":0,"attention":null,"flags":"","changed":"","members":[{"name":"orders-0","role":"Voter","leads":true,` +
			`"ready":true,"state":"serves","restarts":0,"version":"","size":0,"used":0,"quota":0,"volume":"","capacity":0,` +
			`"alarms":null,"message":""}]}]}`,
		"explain" + about:  `{"data":"shop/orders"}`,
		"stored" + about:   `{"data":{"snapshots":null,"streams":null}}`,
		"contents" + about: `{"data":{"notes":[],"prefixes":[{"prefix":"/registry/","keys":7,"bytes":1048576,"writes":9}]}}`,
	} {
		w := get(s, s.path+"api/"+path, nil)
		assert.Equal(t, want, w.Body.String())
		assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	}
	get(s, s.path+"api/explain"+about+"&at=2026-03-01T12:00:00.000000005Z", nil)
	assert.Equal(t, time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC), from.at)

	from.err = errors.New("kubectl is <gone>")
	w := get(s, s.path+"api/history"+about, nil)
	assert.Equal(t, http.StatusBadGateway, w.Code)
	assert.JSONEq(t, `{"error":"kubectl is <gone>"}`, w.Body.String())
	from.err = nil
	from.words = strings.Repeat("x", mostBytes)
	s = newServer(address, from)
	w = get(s, s.path+"api/clusters", nil)
	assert.Equal(t, http.StatusBadGateway, w.Code)
	assert.Less(t, w.Body.Len(), 200)
}

// TestOneAtATime: however many pages are open, kubectl is asked once for all that look within a second.
func TestOneAtATime(t *testing.T) {
	var within, most atomic.Int32
	from := &source{during: func() {
		most.Store(max(most.Load(), within.Add(1)))
		within.Add(-1)
	}}
	s := newServer(address, from)
	done := make(chan int)
	for range 20 {
		go func() { done <- get(s, s.path+"api/clusters", nil).Code }()
	}
	for range 20 {
		assert.Equal(t, http.StatusOK, <-done)
	}
	assert.EqualValues(t, 1, most.Load())
	assert.Less(t, from.asked.Load(), int32(20))

	ctx, cancel := context.WithCancel(t.Context())
	from.during = func() { cancel(); <-ctx.Done() }
	asked := from.asked.Load()
	w := get(s, s.path+"api/explain?namespace=shop&name=orders", func(r *http.Request) { *r = *r.WithContext(ctx) })
	assert.Equal(t, http.StatusOK, w.Code)
	w = get(s, s.path+"api/stored?namespace=shop&name=orders", nil)
	assert.Equal(t, http.StatusOK, w.Code, "another kind has its own turn")
	assert.Equal(t, asked+2, from.asked.Load())
}

// TestServe: on this machine alone, until it is ended.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	url, ended := make(chan string), make(chan error)
	go func() { ended <- Serve(ctx, 0, &source{}, func(u string) { url <- u }) }()
	at := <-url
	assert.Regexp(t, `^http://127\.0\.0\.1:\d+/[A-Z2-7]{12}/\?token=[A-Z2-7]{26}$`, at)
	answer, err := http.Get(at) //nolint:noctx // it is this machine
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Contains(t, string(text), "open the address", "who keeps no cookie sees nothing")

	port := json.Number(regexp.MustCompile(`:(\d+)/`).FindStringSubmatch(at)[1])
	taken, err := port.Int64()
	require.NoError(t, err)
	err = Serve(ctx, int(taken), &source{}, nil)
	assert.ErrorContains(t, err, "choose another port with --port")
	stop()
	assert.NoError(t, <-ended)
}

// TestPage: nothing in it makes markup of a text, has a style or script in the document, or is from elsewhere.
func TestPage(t *testing.T) {
	whole := ""
	for _, name := range []string{"index.html", "page.js", "page.css", "icon.svg"} {
		text, err := fs.ReadFile(files(), name)
		require.NoError(t, err)
		whole += strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
	}
	for _, word := range []string{
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
		"style=", "onclick=", "http://", "https://", "//cdn", "@import", "url(",
	} {
		assert.NotContains(t, whole, word)
	}
}
