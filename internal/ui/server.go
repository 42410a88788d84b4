package ui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"regexp"
	"slices"
	"time"
)

//go:embed page
var page embed.FS

// Bounds of what is answered.
const (
	fresh     = time.Second      // an answer is as good as a new one for so long
	patience  = 90 * time.Second // with the source
	mostBytes = 8 << 20          // of an answer
)

// headers of all answers: the page loads its own three files and nothing else, and no other page may hold it.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Cache-Control":                "no-store",
}

// server answers to who has the token, in the URL at first and then in a cookie. A browser sends a cookie to all ports
// of a host, so this one is for a path that none can guess either.
type server struct {
	hosts       []string
	path, token string
	routes      *http.ServeMux
}

// Serve answers on a port of this machine alone until ctx ends; 0 is any free one. Told hears the page's address.
func Serve(ctx context.Context, port int, source Source, told func(url string)) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("the page can't be served: %w; choose another port with --port", err)
	}
	s := newServer(listener.Addr().String(), source)
	answering := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 2 * patience,
		IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = answering.Close() })()
	told(s.url())
	if err := answering.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

func newServer(address string, source Source) *server {
	_, port, _ := net.SplitHostPort(address)
	s := &server{hosts: []string{address, "localhost:" + port}, path: "/" + rand.Text()[:12] + "/", token: rand.Text(),
		routes: http.NewServeMux()}
	s.routes.Handle(s.path, http.StripPrefix(s.path, http.FileServerFS(files())))
	s.api("clusters", false, func(ctx context.Context, _ asked) (any, error) { return source.Clusters(ctx) })
	s.api("history", true, func(ctx context.Context, a asked) (any, error) { return source.History(ctx, a.of) })
	s.api("explain", true, func(ctx context.Context, a asked) (any, error) { return source.Explain(ctx, a.of, a.at) })
	s.api("stored", true, func(ctx context.Context, a asked) (any, error) { return source.Stored(ctx, a.of) })
	s.api("contents", true, func(ctx context.Context, a asked) (any, error) { return source.Contents(ctx, a.of) })
	return s
}

func files() fs.FS {
	sub, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // it is embedded
	}
	return sub
}

func (s *server) url() string { return "http://" + s.hosts[0] + s.path + "?token=" + s.token }

// cookie that the token is kept in.
const cookie = "quorate-ui"

// ServeHTTP lets in who may look. A name that is not this host's may lead here all the same: see DNS rebinding.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	switch {
	case !slices.Contains(s.hosts, r.Host):
		http.Error(w, "this host is not known by that name", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "this page only looks: GET", http.StatusMethodNotAllowed)
	case r.URL.Path == s.path && s.is(r.URL.Query().Get("token")):
		//nolint:gosec // there is no TLS on 127.0.0.1, and not all browsers keep a Secure cookie there
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: s.token, Path: s.path, HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, s.path, http.StatusSeeOther)
	case !s.knows(r):
		http.Error(w, "open the address that `kubectl quorate ui` has printed", http.StatusForbidden)
	default:
		s.routes.ServeHTTP(w, r)
	}
}

func (s *server) knows(r *http.Request) bool {
	return slices.ContainsFunc(r.CookiesNamed(cookie), func(c *http.Cookie) bool { return s.is(c.Value) })
}

func (s *server) is(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

// asked is what a request is about.
type asked struct {
	of Name
	at time.Time // zero for now
}

// name is how Kubernetes names objects. Whatever else comes in a request is no word for kubectl.
var name = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

func read(r *http.Request) (a asked, err error) {
	q := r.URL.Query()
	a.of = Name{Namespace: q.Get("namespace"), Name: q.Get("name")}
	if !name.MatchString(a.of.Namespace) || !name.MatchString(a.of.Name) {
		return a, fmt.Errorf("namespace and name must be those of an EtcdCluster")
	}
	if at := q.Get("at"); at != "" {
		a.at, err = time.Parse(time.RFC3339, at)
	}
	return a, err
}

// api answers one kind of question in JSON: {"data": ...} or {"error": "..."}.
func (s *server) api(kind string, named bool, ask func(context.Context, asked) (any, error)) {
	one := &shelf{turn: make(chan struct{}, 1)}
	s.routes.HandleFunc(s.path+"api/"+kind, func(w http.ResponseWriter, r *http.Request) {
		a := asked{}
		var err error
		if named {
			if a, err = read(r); err != nil {
				write(w, http.StatusBadRequest, failure(err))
				return
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		text, err := one.get(ctx, a, ask)
		if err != nil {
			write(w, http.StatusBadGateway, failure(err))
			return
		}
		write(w, http.StatusOK, text)
	})
}

func write(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the browser is gone when it fails
}

func failure(err error) []byte {
	text, _ := json.Marshal(map[string]string{"error": err.Error()}) // a string always can
	return text
}

// shelf is where the last answer of a kind is kept for a moment. One at a time asks for it, however many pages there
// are.
type shelf struct {
	turn  chan struct{}
	about asked
	at    time.Time
	text  []byte
}

func (s *shelf) get(ctx context.Context, a asked, ask func(context.Context, asked) (any, error)) ([]byte, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.about == a && time.Since(s.at) < fresh {
		return s.text, nil
	}
	data, err := ask(ctx, a)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return nil, err
	}
	if len(text) > mostBytes {
		return nil, fmt.Errorf("the answer has %d bytes, more than the page takes (%d)", len(text), mostBytes)
	}
	s.about, s.at, s.text = a, time.Now(), text
	return text, nil
}
