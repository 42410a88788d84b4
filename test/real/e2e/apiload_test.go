//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

// load is what an API server has to write all the time: five clients that create ConfigMaps, some fifty a second.
type load struct {
	t    *testing.T
	stop context.CancelFunc
	done sync.WaitGroup

	lock     sync.Mutex
	servers  []*apiServer    // which the clients take turns at; the first is watched
	created  []string        // names that were acknowledged
	versions []int64         // highest resourceVersion that each client has seen
	watched  map[string]bool // names that were told as added
	last     time.Time
	gap      time.Duration // longest time without an acknowledged write
	count    atomic.Int64
}

const loadPath = "/api/v1/namespaces/load/configmaps"

func loads(t *testing.T) *load {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w := &load{t: t, stop: stop, servers: []*apiServer{api}, versions: make([]int64, 5), last: time.Now(),
		watched: map[string]bool{}}
	w.done.Go(func() {
		for from := ""; ctx.Err() == nil; <-time.After(100 * time.Millisecond) {
			from = w.watch(ctx, from)
		}
	})
	for client := range w.versions {
		w.done.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				w.create(ctx, client, fmt.Sprintf("load-%d-%06d", client, n))
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	t.Cleanup(func() { stop(); w.done.Wait() })
	return w
}

// writesTo has the clients write to these API servers from now on.
func (w *load) writesTo(servers ...*apiServer) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.servers = servers
}

func (w *load) serverOf(client int) *apiServer {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.servers[client%len(w.servers)]
}

// create makes one ConfigMap, until the API server has acknowledged it or says that it is there.
func (w *load) create(ctx context.Context, client int, object string) {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, object)
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		version, code := w.serverOf(client).posted(attempt, body)
		cancel()
		switch code {
		case http.StatusCreated, http.StatusConflict:
			w.acknowledged(client, object, version)
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// watch is told of ConfigMaps from a resourceVersion on, until it is cut off, and returns the last one.
func (w *load) watch(ctx context.Context, from string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		api.server+loadPath+"?watch=1&resourceVersion="+from, http.NoBody)
	if err != nil {
		return from
	}
	client := *api.client
	client.Timeout = 0 // a watch has no end
	r, err := client.Do(request)
	if err != nil {
		return from
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		return from
	}
	for events := json.NewDecoder(r.Body); ; {
		var event struct {
			Type   string
			Object corev1.ConfigMap
		}
		switch err := events.Decode(&event); {
		case err != nil:
			return from
		case event.Type == "ERROR": // an API server that has just started knows no older version: a client looks again
			return w.look(from)
		}
		from = event.Object.ResourceVersion
		w.lock.Lock()
		w.watched[event.Object.Name] = true
		w.lock.Unlock()
	}
}

// look lists what there is, and returns its resourceVersion, or the old one when there is no answer.
func (w *load) look(from string) string {
	r, err := api.client.Get(api.server + loadPath)
	if err != nil {
		return from
	}
	defer func() { _ = r.Body.Close() }()
	var all corev1.ConfigMapList
	if r.StatusCode != http.StatusOK || json.NewDecoder(r.Body).Decode(&all) != nil {
		return from
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	for i := range all.Items {
		w.watched[all.Items[i].Name] = true
	}
	return all.ResourceVersion
}

func (a *apiServer) posted(ctx context.Context, body string) (version int64, code int) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.server+loadPath, strings.NewReader(body))
	if err != nil {
		return 0, 0
	}
	request.Header.Set("Content-Type", "application/json")
	r, err := a.client.Do(request)
	if err != nil {
		return 0, 0
	}
	defer func() { _ = r.Body.Close() }()
	var made corev1.ConfigMap
	if r.StatusCode == http.StatusCreated && json.NewDecoder(r.Body).Decode(&made) != nil {
		return 0, 0 // it is there, and says so when it is asked for again
	}
	version, _ = strconv.ParseInt(made.ResourceVersion, 10, 64)
	return version, r.StatusCode
}

func (w *load) acknowledged(client int, object string, version int64) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.gap, w.last = max(w.gap, time.Since(w.last)), time.Now()
	w.created = append(w.created, object)
	if version != 0 && version <= w.versions[client] {
		w.t.Errorf("the resourceVersion %d comes after %d", version, w.versions[client])
	}
	w.versions[client] = max(w.versions[client], version)
	w.count.Add(1)
}

// longest tells of the longest time without an acknowledged write since it was asked last. How fast the machine is must
// not decide: docs/how-to/self-hosted.md has the times of a machine that did nothing else.
func (w *load) longest(what string) {
	w.t.Helper()
	w.wrote(20)
	w.lock.Lock()
	defer w.lock.Unlock()
	w.t.Logf("%s: no write was acknowledged for %d ms at most", what, w.gap.Milliseconds())
	w.gap = 0
}

// wrote waits until n more writes are acknowledged.
func (w *load) wrote(n int64) {
	w.t.Helper()
	goal := w.count.Load() + n
	eventually(w.t, fmt.Sprintf("%d writes of the API server's", n), func() string {
		if left := goal - w.count.Load(); left > 0 {
			return fmt.Sprintf("%d are missing", left)
		}
		return ""
	})
}

// losesNothing ends the load: all that was acknowledged is there, and what watches is told the same as what lists.
func (w *load) losesNothing() {
	w.t.Helper()
	last := w.count.Load()
	w.wrote(20)
	eventually(w.t, "the watch has caught up", func() string {
		w.lock.Lock()
		defer w.lock.Unlock()
		for _, object := range w.created[:last] {
			if !w.watched[object] {
				return object + " was not told"
			}
		}
		return ""
	})
	w.stop()
	w.done.Wait()
	w.created = w.created[:last]
	found := map[string]bool{}
	for _, object := range list[corev1.ConfigMap](w.t, "load", "cm") {
		found[object.Name] = true
	}
	for _, object := range w.created {
		assert.True(w.t, found[object], "%s was acknowledged, and is lost", object)
		assert.True(w.t, w.watched[object], "%s was acknowledged, and the watch was not told", object)
	}
	w.t.Logf("%d objects acknowledged, none lost", len(w.created))
}
