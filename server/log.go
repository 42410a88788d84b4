package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/rule"
)

const (
	// repeatAfter is how long a line that says the same as the one before about the same cluster is held back.
	repeatAfter = time.Minute
	// forgetAfter is how long a cluster that nobody asks about is remembered.
	forgetAfter = 15 * time.Minute
)

// said remembers, for each cluster, the last line that was logged about it, so that a cluster that waits for something
// (it is asked about every few seconds) logs once a minute. The next line then says how many were held back.
type said struct {
	mu    sync.Mutex
	lines map[types.UID]*line
	swept time.Time
}

type line struct {
	words    words
	at, seen time.Time
	held     int
	history  []v1alpha1.HistoryEntry // as answered last
}

// words are what makes a line worth repeating.
type words struct {
	hook, rule, message, step, outcome string
}

// worth reports whether to log these words now, and how many equal lines were held back since the last one.
func (s *said) worth(cluster types.UID, w words, now time.Time) (bool, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines == nil {
		s.lines = map[types.UID]*line{}
	}
	l := s.lines[cluster]
	if l == nil {
		l = &line{}
		s.lines[cluster] = l
	}
	l.seen = now
	if l.words == w && now.Sub(l.at) < repeatAfter {
		l.held++
		return false, 0
	}
	held := l.held
	l.words, l.at, l.held = w, now, 0
	return true, held
}

// remembers is the history that was answered last about a cluster.
func (s *said) remembers(cluster types.UID) []v1alpha1.HistoryEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[cluster]; l != nil {
		return l.history
	}
	return nil
}

// note keeps the history that is answered about a cluster: Metacontroller may call again before its cache shows it.
func (s *said) note(cluster types.UID, history []v1alpha1.HistoryEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lines[cluster]; l != nil {
		l.history = history
	}
}

// forget drops a cluster that is gone.
func (s *said) forget(cluster types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lines, cluster)
}

// clusters is the number of clusters asked about lately. It drops the others.
func (s *said) clusters(now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.swept) >= repeatAfter {
		s.swept = now
		for uid, l := range s.lines {
			if now.Sub(l.seen) > forgetAfter {
				delete(s.lines, uid)
			}
		}
	}
	return len(s.lines)
}

// seldom holds back lines that strangers cause, but for one a minute: they could fill the log.
type seldom struct {
	mu   sync.Mutex
	at   time.Time
	held int
}

// worth reports whether to log a line now, and how many were held back since the last one.
func (s *seldom) worth(now time.Time) (bool, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.at) < repeatAfter {
		s.held++
		return false, 0
	}
	held := s.held
	s.at, s.held = now, 0
	return true, held
}

// strangers is where net/http writes what goes wrong before there is a call, such as a failed TLS handshake.
type strangers struct {
	log *slog.Logger
	now func() time.Time
	seldom
}

// Write implements io.Writer; p is one line.
func (s *strangers) Write(p []byte) (int, error) {
	if worth, held := s.worth(s.now()); worth {
		s.log.Warn("connection failed", "error", strings.TrimSpace(string(p)), "held_back", held)
	}
	return len(p), nil
}

// logCall logs one line about an answered call: at level debug when nothing happened, else info.
func (s *Server) logCall(hook string, r *request, because rule.Because, d hooks.Desired, outcome *hooks.Outcome, took time.Duration) {
	w := words{hook: hook, rule: because.Rule, message: because.Message}
	if outcome != nil {
		w.step, w.outcome = outcome.Step.String(), "done"
		if outcome.Err != "" {
			w.outcome = outcome.Err
		}
	}
	level := slog.LevelInfo
	if outcome == nil && because.Rule == quietRule {
		level = slog.LevelDebug
	}
	now := s.now()
	worth, held := s.said.worth(r.Cluster.UID, w, now)
	s.said.clusters(now)
	if !worth {
		return
	}
	attrs := []slog.Attr{
		slog.String("cluster", r.Cluster.Namespace+"/"+r.Cluster.Name), slog.String("uid", string(r.Cluster.UID)),
		slog.String("rule", w.rule), slog.String("message", w.message),
	}
	if outcome != nil {
		attrs = append(attrs, slog.String("step", w.step), slog.String("step_rule", outcome.Because), slog.String("outcome", w.outcome))
	}
	attrs = append(attrs, slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		slog.Group("children", slog.Int("pods", len(d.Pods)), slog.Int("claims", len(d.Claims)), slog.Int("configmaps", len(d.ConfigMaps)),
			slog.Int("services", len(d.Services)), slog.Int("budgets", len(d.Budgets))))
	if held > 0 {
		attrs = append(attrs, slog.Int("held_back", held))
	}
	s.log.LogAttrs(context.Background(), level, hook, attrs...)
}

// logParent logs one line about an answered call for a parent that is no cluster: at level debug when its phase stays the same.
func (s *Server) logParent(kind string, parent *metav1.ObjectMeta, because rule.Because, quiet bool, began time.Time) {
	now := s.now()
	worth, held := s.saidOfOthers.worth(parent.UID, words{hook: kind, rule: because.Rule, message: because.Message}, now)
	s.saidOfOthers.clusters(now)
	if !worth {
		return
	}
	level := slog.LevelInfo
	if quiet {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String(kind, parent.Namespace+"/"+parent.Name), slog.String("uid", string(parent.UID)),
		slog.String("rule", because.Rule), slog.String("message", because.Message),
		slog.Float64("duration_ms", float64(now.Sub(began).Microseconds())/1000),
	}
	if held > 0 {
		attrs = append(attrs, slog.Int("held_back", held))
	}
	s.log.LogAttrs(context.Background(), level, "sync", attrs...)
}
