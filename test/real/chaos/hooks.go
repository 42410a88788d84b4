package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Faults between Metacontroller and Quorate.
const (
	hookRefused    faultKind = "hook: request dropped"          // the connection closes
	hookUnanswered faultKind = "hook: answer dropped"           // after Quorate has done its work
	hookTooLate    faultKind = "hook: answer after the timeout" // the same, but Metacontroller waits and gets nothing
	// Quorate gets it when no one waits any more, next to newer ones
	hookOverdue faultKind = "hook: request after the timeout"
	hookAtOnce  faultKind = "hook: twice at once"                // to two replicas; one of the answers counts
	hookAgain   faultKind = "hook: twice in a row"               // the same, one after the other
	hookKilled  faultKind = "hook: Quorate killed in the middle" // its process, with SIGKILL

	// These come on top of the others.
	hookCut    = "hook: answer applied in part" // Metacontroller dies in the middle of it
	hookStale  = "hook: stale view of "
	hookMissed = "hook: unobserved state of "
)

var hookWeights = []weight{
	{hookRefused, 4}, {hookUnanswered, 4}, {hookTooLate, 2}, {hookOverdue, 4},
	{hookAtOnce, 8}, {hookAgain, 6}, {hookKilled, 3},
}

// cutPercent of the answers that change anything are cut.
const cutPercent = 25

// A Replica is one process of Quorate.
type Replica struct {
	URL    string
	Client *http.Client
	// Kill ends the process in an instant and starts another in its place.
	Kill func()
}

// Hooks is the proxy between Metacontroller and Quorate.
type Hooks struct {
	Schedule *Schedule
	Replicas []*Replica
	// Disturbs reports whether the calls for clusters of this namespace should be disturbed; all others pass as they
	// are.
	Disturbs func(namespace string) bool
	// Broken hears of answers that must never be, and of failures of the proxy itself. It may be called from several
	// goroutines at once.
	Broken func(error)

	faults underway
	mu     sync.Mutex
	views  map[string]*views // by the UID of the cluster
	turn   int
}

// Wait waits until nothing of an earlier fault is under way any more. Stop the schedule first.
func (h *Hooks) Wait() { h.faults.wait() }

// ServeHTTP implements http.Handler.
func (h *Hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.URL.Path != "/sync" {
		h.plain(w, r, body)
		return
	}
	actual, err := readCall(body)
	if err != nil {
		h.Broken(fmt.Errorf("a request of Metacontroller: %w", err))
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if !h.Disturbs(actual.parent.meta.Namespace) {
		h.plain(w, r, body)
		return
	}
	h.faults.begin()
	defer h.faults.end()
	d := &disturbed{h: h, w: w, r: r, actual: actual, dice: h.Schedule.next("hook")}
	if err := d.look(); err != nil {
		h.Broken(err)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	d.serve()
}

// plain passes a call on as it is. The hook finalize meets lost requests and answers, but no other faults.
func (h *Hooks) plain(w http.ResponseWriter, r *http.Request, body []byte) {
	var fault faultKind
	if r.URL.Path == "/finalize" {
		if dice := h.Schedule.next("finalize"); dice != nil {
			fault = pick(dice, []weight{{hookRefused, 20}, {hookUnanswered, 20}})
		}
	}
	if fault == hookRefused {
		h.Schedule.Count(string(fault), "finalize")
		hangUp(w)
		return
	}
	reply := h.ask(r.Context(), r.URL.Path, body)
	if fault == hookUnanswered {
		h.Schedule.Count(string(fault), "finalize")
		hangUp(w)
		return
	}
	reply.send(w)
}

// reply is what came of a call of Quorate.
type reply struct {
	code  int // 0: no answer
	retry string
	body  []byte
}

func (a *reply) String() string {
	switch a.code {
	case 0:
		return "no answer"
	case http.StatusOK:
		return "answered"
	}
	return fmt.Sprintf("refused with %d", a.code)
}

func (a *reply) send(w http.ResponseWriter) {
	if a.code == 0 {
		hangUp(w)
		return
	}
	if a.retry != "" {
		w.Header().Set("Retry-After", a.retry)
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body)
}

// hangUp ends the connection without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// replicas are the replica whose turn it is, and the one after it.
func (h *Hooks) replicas() (first, second *Replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn++
	n := len(h.Replicas)
	return h.Replicas[h.turn%n], h.Replicas[(h.turn+1)%n]
}

// ask sends a call to the replica whose turn it is.
func (h *Hooks) ask(ctx context.Context, path string, body []byte) *reply {
	replica, _ := h.replicas()
	return h.send(ctx, replica, path, body)
}

func (h *Hooks) send(ctx context.Context, to *Replica, path string, body []byte) *reply {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL+path, bytes.NewReader(body))
	if err != nil {
		h.Broken(err)
		return &reply{}
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := to.Client.Do(r)
	if err != nil {
		return &reply{} // killed, or the caller has gone away
	}
	defer response.Body.Close()
	a := &reply{code: response.StatusCode, retry: response.Header.Get("Retry-After")}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		return &reply{}
	}
	// Quorate refuses with 429 while another call runs. Everything else would be a bug: of a decision that breaks a
	// rule of safety (it answers 500 then), or in its reading of what we sent.
	if a.code != http.StatusOK && a.code != http.StatusTooManyRequests && ctx.Err() == nil {
		h.Broken(fmt.Errorf("quorate answered %s with %d: %s", path, a.code, a.body))
	}
	return a
}

// disturbed is one call on its way through the proxy.
type disturbed struct {
	h      *Hooks
	w      http.ResponseWriter
	r      *http.Request
	actual *call      // as Metacontroller sent it
	lagged *lagged    // as Quorate gets it
	body   []byte     // the same as JSON
	dice   *rand.Rand // nil: no faults
}

// look decides what Quorate gets to see.
func (d *disturbed) look() (err error) {
	h := d.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.views == nil {
		h.views = map[string]*views{}
	}
	uid := d.actual.parent.meta.UID
	if h.views[uid] == nil {
		h.views[uid] = &views{}
	}
	d.lagged = h.views[uid].lag(d.actual, d.dice, time.Now())
	d.body, err = d.lagged.call.body()
	return err
}

func (d *disturbed) serve() {
	count := d.h.Schedule.Count
	if d.dice == nil {
		a := d.h.ask(d.r.Context(), "/sync", d.body)
		count("calls of the hook, undisturbed", a.String())
		d.finish(a)
		return
	}
	for _, kind := range d.lagged.stale {
		count(hookStale+kindName(kind), "shown")
	}
	for _, kind := range d.lagged.missed {
		count(hookMissed+kindName(kind), "never shown")
	}
	d.meet(pick(d.dice, hookWeights))
}

// meet lets the call meet a fault.
func (d *disturbed) meet(fault faultKind) {
	count := d.h.Schedule.Count
	ctx := d.r.Context()
	switch fault {
	case hookRefused:
		count(string(fault), "nothing happened")
		hangUp(d.w)
	case hookUnanswered:
		count(string(fault), d.h.ask(ctx, "/sync", d.body).String())
		hangUp(d.w)
	case hookTooLate:
		count(string(fault), d.h.ask(ctx, "/sync", d.body).String())
		<-ctx.Done()
	case hookOverdue:
		<-ctx.Done()
		d.later()
	case hookAtOnce, hookAgain:
		d.twice(fault)
	case hookKilled:
		d.killed()
	default:
		a := d.h.ask(ctx, "/sync", d.body)
		count("calls of the hook, without a fault of their own", a.String())
		d.finish(a)
	}
}

// later delivers the request a while after Metacontroller has given it up.
func (d *disturbed) later() {
	delay := between(d.dice, 0, 6*time.Second)
	d.h.faults.begin()
	go func() {
		defer d.h.faults.end()
		<-time.After(delay)
		a := d.h.ask(context.Background(), "/sync", d.body)
		d.h.Schedule.Count(string(hookOverdue), a.String())
	}()
}

// twice delivers the request to two replicas, at once or in a row, and takes one of the answers.
func (d *disturbed) twice(fault faultKind) {
	ctx := d.r.Context()
	counts := d.dice.IntN(2)
	one, other := d.h.replicas()
	second := make(chan *reply, 1)
	ask := func() { second <- d.h.send(ctx, other, "/sync", d.body) }
	if fault == hookAtOnce {
		go ask()
	}
	first := d.h.send(ctx, one, "/sync", d.body)
	if fault == hookAgain {
		ask()
	}
	answers := []*reply{first, <-second}
	d.h.Schedule.Count(string(fault), answers[0].String()+" and "+answers[1].String())
	d.finish(answers[counts])
}

// killed ends the replica that has the call, somewhere on its way.
func (d *disturbed) killed() {
	replica, _ := d.h.replicas()
	delay := between(d.dice, 0, 60*time.Millisecond)
	done := make(chan struct{})
	go func() {
		<-time.After(delay)
		replica.Kill()
		close(done)
	}()
	a := d.h.send(d.r.Context(), replica, "/sync", d.body)
	<-done
	d.h.Schedule.Count(string(hookKilled), a.String())
	d.finish(a)
}

// finish gives Metacontroller the answer, if it is one, with the effect that it would have had.
func (d *disturbed) finish(r *reply) {
	if r.code != http.StatusOK {
		r.send(d.w)
		return
	}
	var a answer
	if err := d.shape(&a, r); err != nil {
		d.h.Broken(fmt.Errorf("an answer of Quorate: %w", err))
		hangUp(d.w)
		return
	}
	if d.lagged.rest > 0 { // the caches would have caught up by then, and that would have been a call
		a.resyncWithin(d.lagged.rest)
	}
	body, err := json.Marshal(a)
	if err != nil {
		d.h.Broken(err)
		return
	}
	d.w.Header().Set("Content-Type", "application/json")
	_, _ = d.w.Write(body)
}

// shape reads the answer and takes from it what stale caches and an untimely death of Metacontroller would have taken.
func (d *disturbed) shape(a *answer, r *reply) error {
	if err := json.Unmarshal(r.body, a); err != nil {
		return err
	}
	if len(a.Children) == 0 {
		return errors.New("it has no children")
	}
	if len(d.lagged.stale) > 0 {
		if err := a.asIfStale(d.lagged.call, d.actual); err != nil {
			return err
		}
	}
	if d.dice == nil || d.dice.IntN(100) >= cutPercent {
		return nil
	}
	done, of, err := a.cut(d.actual, d.dice)
	if err != nil || of == 0 {
		return err
	}
	d.h.Schedule.Count(hookCut, fmt.Sprintf("%d of %d changes made", done, of))
	a.resyncWithin(500 * time.Millisecond) // a new Metacontroller begins with a call
	return nil
}

func (a *answer) resyncWithin(d time.Duration) {
	if s := d.Seconds() + 0.05; a.ResyncAfterSeconds == 0 || a.ResyncAfterSeconds > s {
		a.ResyncAfterSeconds = s
	}
}

// kindName is the kind of a group of children, for people.
func kindName(group string) string {
	kind, _, _ := strings.Cut(group, ".")
	return kind
}
