package server

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
)

const (
	// repeatAfter is how long a line that says the same as the one before about the same cluster is held back.
	repeatAfter = time.Minute
	// forgetAfter is how long a parent that is not asked about any more is remembered.
	forgetAfter = 15 * time.Minute
)

// lastLines remember, for each parent, the last line that was logged about it, so that a cluster that waits for
// something (it is asked about every few seconds) logs once a minute. The next line then says how many were held back.
type lastLines struct {
	mu    sync.Mutex
	lines map[types.UID]*line
	swept time.Time
}

type line struct {
	words    words
	at, seen time.Time
	held     int
	history  []v1beta1.HistoryEntry // of a cluster, as answered last
}

// words are what makes a line worth repeating.
type words struct {
	hook, rule, message, step, outcome string
}

// worth reports whether to log these words now, and how many equal lines were held back since the last one.
func (s *lastLines) worth(parent types.UID, w words, now time.Time) (bool, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines == nil {
		s.lines = map[types.UID]*line{}
	}
	l := s.lines[parent]
	if l == nil {
		l = &line{}
		s.lines[parent] = l
	}
	l.seen = now
	if l.words == w && now.Sub(l.at) < repeatAfter {
		l.held++
		return false, 0
	}
	held := l.held
	l.words = w
	l.at = now
	l.held = 0
	return true, held
}

// remembers is the history that was answered last about a cluster.
func (s *lastLines) remembers(cluster types.UID) []v1beta1.HistoryEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[cluster]; l != nil {
		return l.history
	}
	return nil
}

// note keeps the history that is answered about a cluster: Metacontroller may call again before its cache shows it.
func (s *lastLines) note(cluster types.UID, history []v1beta1.HistoryEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[cluster]; l != nil {
		l.history = history
	}
}

// forget drops a parent that is gone.
func (s *lastLines) forget(parent types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lines, parent)
}

// sweep drops the parents that are not asked about any more.
func (s *lastLines) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.swept) < repeatAfter {
		return
	}
	s.swept = now
	maps.DeleteFunc(s.lines, func(_ types.UID, l *line) bool { return now.Sub(l.seen) > forgetAfter })
}

// onceAMinute lets through one line a minute of those that unauthenticated callers cause: they could fill the log.
type onceAMinute struct {
	mu   sync.Mutex
	at   time.Time
	held int
}

// worth reports whether to log a line now, and how many were held back since the last one.
func (s *onceAMinute) worth(now time.Time) (bool, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.at) < repeatAfter {
		s.held++
		return false, 0
	}
	held := s.held
	s.at = now
	s.held = 0
	return true, held
}

// tlsErrors is where net/http writes what goes wrong before there is a call, such as a failed TLS handshake.
type tlsErrors struct {
	log *slog.Logger
	now func() time.Time
	onceAMinute
}

// Write implements io.Writer; p is one line.
func (s *tlsErrors) Write(p []byte) (int, error) {
	if worth, held := s.worth(s.now()); worth {
		s.log.Warn("connection failed", "error", strings.TrimSpace(string(p)), "held_back", held)
	}
	return len(p), nil
}

// answered is what the log says of a call that was answered.
type answered struct {
	hook, kind string // kind is what the log calls the parent
	parent     metav1.Object
	because    decision.Reason
	outcome    *decision.Outcome // nil for no step
	children   *decision.Desired // nil where they are not counted
	quiet      bool              // nothing has happened: at level debug, else info
	began      time.Time
}

// logAnswer logs one line about an answered call, unless the last one about its parent said the same and is not old.
func (s *Server) logAnswer(a *answered) {
	w := words{hook: a.hook, rule: a.because.Rule, message: a.because.Message}
	if a.outcome != nil {
		w.step = a.outcome.Step.String()
		w.outcome = cmp.Or(a.outcome.Err, "done")
	}
	now := s.now()
	worth, held := s.logged.worth(a.parent.GetUID(), w, now)
	s.logged.sweep(now)
	if !worth {
		return
	}
	level := slog.LevelInfo
	if a.quiet {
		level = slog.LevelDebug
	}
	s.log.LogAttrs(context.Background(), level, a.hook, a.attributes(w, now.Sub(a.began), held)...)
}

func (a *answered) attributes(w words, took time.Duration, held int) []slog.Attr {
	all := []slog.Attr{
		slog.String(a.kind, a.parent.GetNamespace()+"/"+a.parent.GetName()),
		slog.String("uid", string(a.parent.GetUID())),
		slog.String("rule", w.rule), slog.String("message", w.message),
	}
	if a.outcome != nil {
		all = append(all, slog.String("step", w.step), slog.String("step_rule", a.outcome.Rule),
			slog.String("outcome", w.outcome))
	}
	all = append(all, slog.Float64("duration_ms", float64(took.Microseconds())/1000))
	if d := a.children; d != nil {
		all = append(all, slog.Group("children", slog.Int("pods", len(d.Pods)), slog.Int("claims", len(d.Claims)),
			slog.Int("configmaps", len(d.ConfigMaps)), slog.Int("services", len(d.Services)),
			slog.Int("budgets", len(d.Budgets))))
	}
	if held > 0 {
		all = append(all, slog.Int("held_back", held))
	}
	return all
}
