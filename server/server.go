// Package server is the HTTP edge: it lets Metacontroller's calls in, asks the hooks, and answers. It makes no
// decisions. Package wire has the format of calls and answers, package metrics what Prometheus is told.
//
// Metacontroller deletes every child that an answer with status 200 omits. So a 200 is complete, and everything that
// goes wrong is another status, on which Metacontroller changes nothing and asks again (rule S13 in hooks/doc.go).
package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/metrics"
)

// Options of a server. The zero value of a duration or size takes its default.
type Options struct {
	// Etcd carries out what the decisions need. Required.
	Etcd hooks.Etcd
	// Callers says who may call the hooks; nil is plain HTTP without authentication.
	Callers *Callers
	// RecordKeys seal records; nil seals none, and all are believed.
	RecordKeys *RecordKeys
	// Settings of the installation, as decisions see them.
	Settings observation.Settings
	// Scope says whose hooks are answered; the zero value is all of them.
	Scope Scope
	// RelatedByUID: Metacontroller remembers by UID and generation what the hook customize has answered, as 4.16 and
	// later do, so that the answer may depend on the namespace and the spec. 1.5.20 remembers by the name alone, for
	// all namespaces together.
	RelatedByUID bool
	// Metrics of the server; nil makes new ones.
	Metrics *metrics.Metrics
	// Traces are sent to a collector of OpenTelemetry; nil for none.
	Traces *Traces
	// Log gets one line per call; nil is slog's default.
	Log *slog.Logger
	// MaxBody is the largest request in bytes; default 8 MiB.
	MaxBody int64
	// CallTimeout is how long one call may take, including its turn and etcd; default 8 s. It must be below the
	// webhook's timeout in the CompositeController.
	CallTimeout time.Duration
	// ReadTimeout is how long a request may take to arrive; default 10 s. Its headers, and a TLS handshake, get half of
	// it at most.
	ReadTimeout time.Duration
	// DrainDelay is how long /readyz fails before the listener closes at shutdown, so that no new call meets a closed
	// door; default 2 s, negative for none.
	DrainDelay time.Duration
	// ShutdownTimeout is how long calls in flight may take to finish at shutdown; default 15 s.
	ShutdownTimeout time.Duration
	// ClusterMetrics is how many clusters have gauges of their own at most; default 1000, negative for none.
	ClusterMetrics int
	// Version of Quorate, for the journal.
	Version string
	// JournalDir is where the journal is written too, in JournalBytes at most; empty for nowhere.
	JournalDir   string
	JournalBytes int64
	// Verify checks every decision against the rules of safety before it is carried out or answered.
	Verify bool
}

// Server answers Metacontroller's calls. Make one with New.
type Server struct {
	options Options
	log     *slog.Logger
	metrics *metrics.Metrics
	locks   parentLocks
	slow    slowCalls
	memory  pool // bytes of calls that are not large, with what is made of them
	large   pool // large calls
	// verifying is what reads Secrets that are not known: one of each namespace, and two in all.
	verifying pool
	unchanged unchanged
	journal   keeper
	logged    lastLines
	refused   onceAMinute
	stopping  atomic.Bool

	// What it calls, and the clock; tests put others in their place.
	now        func() time.Time
	syncFn     func(context.Context, observation.Observation, hooks.Etcd) (decision.Decision, *decision.Outcome)
	finalizeFn func(observation.Observation) (decision.Desired, bool)
	decideFn   func(observation.Observation) decision.Decision
	verifyFn   func(observation.Observation, decision.Decision) error
}

// New makes a server.
func New(o Options) *Server {
	orElse(&o.MaxBody, 8<<20)
	orElse(&o.CallTimeout, 8*time.Second)
	orElse(&o.ReadTimeout, 10*time.Second)
	orElse(&o.DrainDelay, 2*time.Second)
	orElse(&o.ShutdownTimeout, 15*time.Second)
	if o.Metrics == nil {
		o.Metrics = metrics.New("unknown", "unknown")
	}
	if o.ClusterMetrics != 0 {
		o.Metrics.LimitClusters(o.ClusterMetrics)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Settings.Keyed = o.RecordKeys != nil
	s := &Server{
		options: o, log: o.Log, metrics: o.Metrics, now: time.Now,
		journal:   keeper{version: o.Version, room: roomForJournal(), more: make(chan struct{}, 1)},
		unchanged: unchanged{room: roomForUnchanged()},
		memory:    pool{size: mostReading()}, large: pool{size: 1, rest: 3}, verifying: pool{size: 2, rest: 3},
		syncFn: hooks.Sync, finalizeFn: answer.Finalize, decideFn: hooks.Decide, verifyFn: hooks.Verify,
	}
	if o.JournalDir != "" {
		s.journal.volume = &volume{dir: o.JournalDir, room: o.JournalBytes, more: make(chan struct{}, 1)}
	}
	return s
}

func orElse[T int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Handler is the hooks, and nothing else.
func (s *Server) Handler() http.Handler {
	e := routes("hooks take POST")
	for _, k := range kinds {
		answered := []gin.HandlerFunc{s.hook(k.read)}
		if k.kind == v1beta1.Kind { // the only one that waits for an etcd
			answered = append([]gin.HandlerFunc{s.limitSlow}, answered...)
		}
		synced := answered
		if k.kind == v1beta1.Kind {
			synced = []gin.HandlerFunc{s.limitSlow, s.repeat, s.hook(k.read)}
		}
		for name, handlers := range map[string][]gin.HandlerFunc{
			"sync": synced, "finalize": answered, "customize": {s.customize(k.kind)},
		} {
			path := k.path + name
			first := []gin.HandlerFunc{s.measured(path), s.authenticate}
			if s.options.Traces != nil { // who may not call makes no span
				first = append(first, s.options.Traces.call)
			}
			e.POST("/"+path, slices.Concat(first, []gin.HandlerFunc{s.admit}, handlers)...)
		}
	}
	return e
}

// pages are the server's metrics and health. They change nothing and tell nothing secret.
func (s *Server) pages() http.Handler {
	e := routes("pages take GET")
	e.GET("/healthz", func(c *gin.Context) { c.String(http.StatusOK, "ok\n") })
	e.GET("/readyz", func(c *gin.Context) {
		if s.stopping.Load() {
			c.String(http.StatusServiceUnavailable, "stopping\n")
			return
		}
		c.String(http.StatusOK, "ok\n")
	})
	e.GET("/metrics", gin.WrapH(s.metrics.Handler()))
	return e
}

// routes is an engine without any.
func routes(methods string) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.HandleMethodNotAllowed = true
	refuse := func(code int, why string) gin.HandlerFunc {
		return func(c *gin.Context) {
			c.Header("Connection", "close")
			c.JSON(code, gin.H{"error": why})
		}
	}
	e.NoRoute(refuse(http.StatusNotFound, "no such page"))
	e.NoMethod(refuse(http.StatusMethodNotAllowed, methods))
	return e
}

// Serve answers hooks on one listener, with TLS if the options' Callers say so, and metrics and health on the other,
// until ctx ends. Then it shuts down gracefully: /readyz fails first, then the hooks' listener closes, then calls in
// flight finish, then the other listener closes. The error is nil after that, and not when calls had to be cut off.
// Both listeners are closed when it returns.
func (s *Server) Serve(ctx context.Context, hooks, pages net.Listener) error {
	calls := s.httpServer(s.Handler())
	scrapes := s.httpServer(s.pages())
	defer calls.Close()
	defer scrapes.Close()
	hooks = &door{Listener: hooks}
	pages = &door{Listener: pages}
	failed := make(chan error, 2)
	go func() { failed <- scrapes.Serve(pages) }()
	if c := s.options.Callers; c != nil && c.pair != nil {
		calls.TLSConfig = c.tlsConfig()
		go func() { failed <- calls.ServeTLS(hooks, "", "") }()
	} else {
		go func() { failed <- calls.Serve(hooks) }()
	}
	s.log.Info("listening", "hooks", hooks.Addr().String(), "pages", pages.Addr().String(), "tls",
		calls.TLSConfig != nil)
	if warning := s.options.Callers.warning(); warning != "" {
		s.log.Warn(warning)
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.stopping.Store(true)
	s.log.Info("stopping: calls in flight finish")
	if s.options.DrainDelay > 0 {
		time.Sleep(s.options.DrainDelay)
	}
	limited, cancel := context.WithTimeout(context.Background(), s.options.ShutdownTimeout)
	defer cancel()
	if err := calls.Shutdown(limited); err != nil {
		return errors.New("calls in flight did not finish in time and were cut off")
	}
	s.log.Info("stopped")
	return nil
}

// httpServer has the limits that both listeners share. HTTP/2 is off: it gives Metacontroller nothing, and an
// unauthenticated caller ways to keep the server busy.
func (s *Server) httpServer(h http.Handler) *http.Server {
	headers := min(5*time.Second, s.options.ReadTimeout/2)
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headers, // and of a TLS handshake
		ReadTimeout:       s.options.ReadTimeout,
		WriteTimeout:      s.options.ReadTimeout + s.options.CallTimeout + 5*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       withGuest,
		ErrorLog:          log.New(&tlsErrors{log: s.log, now: s.now}, "", 0),
		Protocols:         new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	return server
}

// panicked answers a call that panicked. The stack goes to the log only.
func (s *Server) panicked(c *gin.Context, hook string, p any) {
	s.log.Error("panic", "hook", hook, "panic", fmt.Sprintf("%.200v", p), "stack", string(debug.Stack()))
	if !c.Writer.Written() {
		c.AbortWithStatusJSON(http.StatusInternalServerError,
			gin.H{"error": "internal error; the log of Quorate has the stack"})
	}
}

// logRefusal logs a call that was answered with an error. Unauthenticated calls are logged once a minute: they could
// fill the log.
func (s *Server) logRefusal(c *gin.Context, hook string, err error) {
	held := 0
	if c.Writer.Status() == http.StatusUnauthorized {
		worth := false
		if worth, held = s.refused.worth(s.now()); !worth {
			return
		}
	}
	level := slog.LevelWarn
	if c.Writer.Status() == http.StatusInternalServerError {
		level = slog.LevelError
	}
	attrs := []slog.Attr{
		slog.String("hook", hook), slog.Int("code", c.Writer.Status()), slog.String("client", c.Request.RemoteAddr),
		slog.String("error", err.Error()),
	}
	if held > 0 {
		attrs = append(attrs, slog.Int("held_back", held))
	}
	s.log.LogAttrs(context.Background(), level, "refused", attrs...)
}
