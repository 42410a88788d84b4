package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// try is a Kubernetes in this process, with a real hook server and real etcds. One goroutine, loop, has the world to
// itself; others do with it what they want by ask.
type try struct {
	dir     string
	world   *world.World
	vault   vault
	kubelet *runner
	net     *network
	keeper  *keeper
	hook    http.Handler
	journal string // where the hook server is asked for it
	stop    context.CancelFunc
	logs    []*os.File

	asks    chan func()
	wake    chan struct{}
	answers chan answered
	// told hears of every decision that says something new.
	told  func(rule, step, message string)
	heard []v1beta1.HistoryEntry
	last  string // what the hook refused

	calling bool
	seen    int       // of the world's changes, when the hook was asked last
	again   time.Time // when it is asked without a change
}

type answered struct {
	question *world.Question
	answer   *answer
	err      error
}

// newTry begins everything that is not etcd. Told is called from the loop.
func newTry(told func(rule, step, message string)) (*try, error) {
	dir, err := os.MkdirTemp("", "quorate-try-")
	if err != nil {
		return nil, err
	}
	t := &try{dir: dir, world: world.New(), vault: vault{}, told: told, asks: make(chan func()),
		wake: make(chan struct{}, 1), answers: make(chan answered, 1)}
	if t.keeper, err = newKeeper(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	t.kubelet = &runner{world: t.world, vault: t.vault, dir: dir, keeper: t.keeper, poke: t.poke,
		nodes: map[types.UID]*podRun{}}
	t.kubelet.images = &images{logs: t.kubelet.logs(), keeper: t.keeper, poke: t.poke, pulls: map[string]*pull{}}
	if err := os.MkdirAll(t.kubelet.logs(), 0o700); err != nil {
		return nil, err
	}
	if t.net, err = newNetwork(); err != nil {
		return nil, err
	}
	t.kubelet.net = t.net
	log, err := os.Create(filepath.Join(t.kubelet.logs(), "quorate.log"))
	if err != nil {
		return nil, err
	}
	t.logs = append(t.logs, log)
	etcd := &etcdops.Etcd{Dial: func(ctx context.Context, address string) (net.Conn, error) {
		return t.net.dial(ctx, address)
	}}
	hooks := server.New(server.Options{Etcd: etcd, Settings: observation.Settings{
		Images: objects.Images{Image: "quorate"}},
		Verify: true, Log: slog.New(slog.NewTextHandler(log, nil))})
	t.hook = hooks.Handler()
	t.journal = filepath.Join(dir, "journal")
	socket, err := new(net.ListenConfig).Listen(context.Background(), "unix", t.journal)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	go hooks.KeepJournal(ctx)
	go hooks.ServeJournal(ctx, socket)
	return t, nil
}

// close ends all processes and removes what they have written.
func (t *try) close() {
	t.stop()
	t.net.close()
	for _, log := range t.logs {
		_ = log.Close()
	}
	t.keeper.end()
}

// poke makes the loop look at once.
func (t *try) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// ask does something with the world, in the loop.
func (t *try) ask(f func()) {
	done := make(chan struct{})
	t.asks <- func() { f(); close(done) }
	<-done
}

// loop is the time of this Kubernetes. It goes on until ctx ends.
func (t *try) loop(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-t.asks:
			f()
		case a := <-t.answers:
			t.take(a)
		case <-t.wake:
		case <-tick.C:
		}
		t.world.Now = time.Now().Truncate(time.Second)
		t.world.Collect()
		t.kubelet.pass()
		t.world.GrowVolumes()
		t.call()
	}
}

// resync is how often the hook is asked when nothing changes, as the CompositeController says.
const resync = 30 * time.Second

// call asks the hook, when something has changed or it is time.
func (t *try) call() {
	if t.calling || t.seen == t.world.Changes && time.Now().Before(t.again) {
		return
	}
	q := t.world.Ask()
	t.seen, t.again = t.world.Changes, time.Now().Add(resync)
	if q == nil {
		return
	}
	body, err := t.vault.asks(q)
	if err != nil {
		t.told("Refused", "", fmt.Sprintf("the hook can't be asked: %v", err))
		return
	}
	t.calling = true
	held := maps.Clone(t.vault)
	go func() {
		a, err := call(t.hook, body, held, q.Finalizing)
		t.answers <- answered{q, a, err}
	}()
}

// take applies what the hook has answered.
func (t *try) take(a answered) {
	t.calling = false
	if a.err != nil {
		if t.last != a.err.Error() {
			t.last = a.err.Error()
			t.told("Refused", "", t.last)
		}
		t.again = time.Now().Add(time.Second)
		return
	}
	t.last = ""
	t.world.Take(a.question, a.answer.Reply)
	t.logWrites()
	for name, data := range a.answer.secrets {
		t.vault[name] = data
	}
	if s := a.answer.again; s > 0 {
		t.again = time.Now().Add(time.Duration(s * float64(time.Second)))
	}
	t.tell(&a.answer.Status)
}

// tell tells what is new in a status: the decisions in its history, and what it says now.
func (t *try) tell(s *v1beta1.EtcdClusterStatus) {
	for _, e := range fresh(t.heard, s.History) {
		t.told(e.Rule, e.Step, e.Message)
	}
	t.heard = s.History
}

// fresh are the entries of a history that were not in the one before. Two of one second may be equal: a member that
// serves again within the second makes Converged, Heal, Converged of it.
func fresh(before, history []v1beta1.HistoryEntry) (entries []v1beta1.HistoryEntry) {
	left := slices.Clone(before)
	for _, e := range history {
		i := slices.IndexFunc(left, func(old v1beta1.HistoryEntry) bool {
			return old.Rule == e.Rule && old.Step == e.Step && old.Message == e.Message &&
				old.Time.Unix() == e.Time.Unix()
		})
		if i < 0 {
			entries = append(entries, e)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	return entries
}

// logWrites notes what Metacontroller has written to the API server.
func (t *try) logWrites() {
	log, err := os.OpenFile(filepath.Join(t.kubelet.logs(), "metacontroller.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600)
	if err != nil {
		return
	}
	defer func() { _ = log.Close() }()
	for _, line := range t.world.TakeLog() {
		_, _ = fmt.Fprintf(log, "%s %s\n", time.Now().Format("15:04:05.000"), line)
	}
}

// pods are all pods, for those outside of the loop.
func (t *try) pods() (all []*corev1.Pod) {
	t.ask(func() { all = t.world.Pods() })
	return all
}

// cluster as it is now; nil when there is none.
func (t *try) cluster() (c *v1beta1.EtcdCluster) {
	t.ask(func() { c = t.world.Cluster() })
	return c
}
