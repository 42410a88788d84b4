//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// load is what an API server has to do all the time: clients that create ConfigMaps, each some ten a second, and one
// that watches them.
type load struct {
	t        *testing.T
	stop     context.CancelFunc // writing
	unwatch  context.CancelFunc
	writers  sync.WaitGroup
	watchers sync.WaitGroup

	lock     sync.Mutex
	servers  []*apiServer       // which the clients take turns at; the first is watched
	acked    map[string][]int64 // resourceVersions that were acknowledged, by the object's path
	versions map[int]int64      // highest resourceVersion that each client has seen
	told     map[string]int64   // resourceVersions by the object's path, as those know who watch
	lost     [][2]int64         // what was acknowledged between these revisions may be lost
	relists  int                // how often those who watch had to list again
	failures map[string]int     // requests that were not carried out, by what was said of them
	last     time.Time
	gap      time.Duration // longest time without an acknowledged write
	count    atomic.Int64
}

const loadPath = "/api/v1/namespaces/load/configmaps"

// loads begins to write to an API server, with so many clients, and to watch.
func loads(t *testing.T, server *apiServer, clients int) *load {
	t.Helper()
	w := &load{t: t, servers: []*apiServer{server}, acked: map[string][]int64{}, versions: map[int]int64{},
		told: map[string]int64{}, failures: map[string]int{}, last: time.Now()}
	w.watches(loadPath)
	for client := range clients {
		w.writes(client, func(n int) (method, path, body string) {
			object := fmt.Sprintf("load-%d-%06d", client, n)
			return http.MethodPost, loadPath + "/" + object,
				fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, object)
		})
	}
	t.Cleanup(w.ends)
	return w
}

// ends stops all clients.
func (w *load) ends() {
	w.stop()
	w.writers.Wait()
	w.unwatch()
	w.watchers.Wait()
}

// writes starts a client that makes one request after the other, each until it is carried out.
func (w *load) writes(client int, nth func(n int) (method, path, body string)) {
	ctx := w.until(&w.stop)
	w.writers.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			method, path, body := nth(n)
			w.write(ctx, client, method, path, body)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
}

// watches starts a client that watches a collection.
func (w *load) watches(collection string) {
	ctx := w.until(&w.unwatch)
	w.watchers.Go(func() {
		for from := ""; ctx.Err() == nil; <-time.After(100 * time.Millisecond) {
			if from == "" {
				from = w.look(collection)
			} else {
				from = w.watch(ctx, collection, from)
			}
		}
	})
}

// until is a context that ends with this function, and with all that it has ended before.
func (*load) until(stop *context.CancelFunc) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	before := *stop
	*stop = func() {
		cancel()
		if before != nil {
			before()
		}
	}
	return ctx
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

// write makes a request about one object until the API server has carried it out or says that it is there.
func (w *load) write(ctx context.Context, client int, method, path, body string) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		version, said := w.serverOf(client).asked(attempt, method, path, body)
		cancel()
		if said == "" {
			w.acknowledged(client, path, version)
			return
		}
		w.failed(method + " " + said)
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// asked makes a request, and returns the object's resourceVersion; or what was said instead. What is created may
// be there already, by a request whose answer got lost.
func (a *apiServer) asked(ctx context.Context, method, path, body string) (version int64, said string) {
	url, contentType := a.server+path, ""
	switch method {
	case http.MethodPost:
		url, contentType = url[:strings.LastIndex(url, "/")], "application/json"
	case http.MethodPatch:
		url, contentType = url+"?fieldManager=load&force=true", applied
	}
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Content-Type", contentType)
	r, err := a.client.Do(request)
	if err != nil {
		return 0, "no answer"
	}
	defer func() { _ = r.Body.Close() }()
	var answer struct {
		metav1.PartialObjectMetadata
		Message string
	}
	switch err := json.NewDecoder(r.Body).Decode(&answer); {
	case r.StatusCode == http.StatusConflict && method == http.MethodPost:
		return a.asked(ctx, http.MethodGet, path, "")
	case r.StatusCode >= http.StatusMultipleChoices:
		return 0, fmt.Sprintf("%d: %s", r.StatusCode, answer.Message)
	case err != nil:
		return 0, "half an answer"
	}
	version, err = strconv.ParseInt(answer.ResourceVersion, 10, 64)
	if err != nil {
		return 0, err.Error()
	}
	return version, ""
}

func (w *load) acknowledged(client int, path string, version int64) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.gap, w.last = max(w.gap, time.Since(w.last)), time.Now()
	w.acked[path] = append(w.acked[path], version)
	if version <= w.versions[client] {
		w.t.Errorf("the resourceVersion %d comes after %d", version, w.versions[client])
	}
	w.versions[client] = max(w.versions[client], version)
	w.count.Add(1)
}

func (w *load) failed(said string) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.failures[said]++
}

// watch is told of a collection from a resourceVersion on, until it is cut off. It returns the last one; an empty one
// when the API server does not know that one any more.
func (w *load) watch(ctx context.Context, collection, from string) string {
	server := w.serverOf(0)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		server.server+collection+"?watch=1&resourceVersion="+from, http.NoBody)
	if err != nil {
		return from
	}
	client := *server.client
	client.Timeout = 0 // a watch has no end
	r, err := client.Do(request)
	if err != nil {
		return from
	}
	defer func() { _ = r.Body.Close() }()
	switch r.StatusCode {
	case http.StatusOK:
	case http.StatusGone:
		return ""
	default:
		return from
	}
	for events := json.NewDecoder(r.Body); ; {
		var event struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		switch err := events.Decode(&event); {
		case err != nil:
			return from
		case event.Type == "ERROR": // it knows no version as old as this
			return ""
		}
		w.tells(collection, from, event.Type, event.Object)
		from = event.Object.ResourceVersion
	}
}

func (w *load) tells(collection, from, what string, object metav1.PartialObjectMetadata) {
	before, _ := strconv.ParseInt(from, 10, 64)
	version, _ := strconv.ParseInt(object.ResourceVersion, 10, 64)
	w.lock.Lock()
	defer w.lock.Unlock()
	if version <= before {
		w.t.Errorf("a watch of %s tells of %d after %d", collection, version, before)
	}
	if path := collection + "/" + object.Name; what == "DELETED" {
		delete(w.told, path)
	} else {
		w.told[path] = version
	}
}

// look lists what there is, instead of all that was told, and returns its resourceVersion; an empty one when there is
// no answer.
func (w *load) look(collection string) string {
	all, version, said := w.serverOf(0).listed(collection)
	if said != "" {
		w.failed("LIST " + said)
		return ""
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	w.relists++
	maps.DeleteFunc(w.told, func(path string, _ int64) bool { return strings.HasPrefix(path, collection) })
	maps.Copy(w.told, all)
	return version
}

// listed are the objects of a collection with their resourceVersions, by path; and that of the list.
func (a *apiServer) listed(query string) (all map[string]int64, version, said string) {
	code, text, err := page(a.client, a.server+query)
	if err != nil {
		return nil, "", "no answer, or half of one"
	}
	if code != http.StatusOK {
		return nil, "", fmt.Sprintf("%d: %s", code, text)
	}
	var answer metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return nil, "", err.Error()
	}
	collection, _, _ := strings.Cut(query, "?")
	all = map[string]int64{}
	for i := range answer.Items {
		version, _ := strconv.ParseInt(answer.Items[i].ResourceVersion, 10, 64)
		all[collection+"/"+answer.Items[i].Name] = version
	}
	return all, answer.ResourceVersion, ""
}

// forgives what was acknowledged from one revision to another: a restore takes it away.
func (w *load) forgives(from, to int64) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.lost = append(w.lost, [2]int64{from, to})
}

// longest tells of the longest time without an acknowledged write since it was asked last. How fast the machine is must
// not decide: docs/how-to/self-hosted.md has the times of a machine that did nothing else.
func (w *load) longest(what string) {
	w.t.Helper()
	w.wrote(20)
	w.lock.Lock()
	defer w.lock.Unlock()
	w.t.Logf("%s: no write was acknowledged for %d ms at most; %d lists; not carried out: %v", what,
		w.gap.Milliseconds(), w.relists, w.failures)
	w.gap, w.relists, w.failures = 0, 0, map[string]int{}
}

// wrote waits until n more writes are acknowledged.
func (w *load) wrote(n int64) {
	w.t.Helper()
	counts(w.t, &w.count, n, fmt.Sprintf("%d writes of the API server's", n))
}

// losesNothing ends the load: all that was acknowledged is there, and what watches was told the same as what lists. It
// returns what is there, with its resourceVersions.
func (w *load) losesNothing() map[string]int64 {
	w.t.Helper()
	w.wrote(20)
	w.stop()
	w.writers.Wait()
	there := map[string]int64{}
	eventually(w.t, "those who watch know what those know who list", func() string {
		clear(there)
		for _, collection := range w.collections() {
			all, _, said := w.serverOf(0).listed(collection)
			if said != "" {
				return said
			}
			maps.Copy(there, all)
		}
		w.lock.Lock()
		defer w.lock.Unlock()
		return differ(w.told, there)
	})
	w.ends()
	for path, versions := range w.acked {
		last := int64(-1) // of those that count
		for _, version := range versions {
			if !slices.ContainsFunc(w.lost, func(r [2]int64) bool { return version > r[0] && version < r[1] }) {
				last = max(last, version)
			}
		}
		version, found := there[path]
		assert.True(w.t, found || last < 0, "%s was acknowledged, and is lost", path)
		assert.GreaterOrEqual(w.t, version, last, "%s is older than what was acknowledged", path)
	}
	w.t.Logf("%d writes of %d objects acknowledged, none lost", w.count.Load(), len(w.acked))
	return there
}

// collections that are written to.
func (w *load) collections() []string {
	w.lock.Lock()
	defer w.lock.Unlock()
	all := map[string]bool{}
	for path := range w.acked {
		all[path[:strings.LastIndex(path, "/")]] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// differ says in what two views of the same objects do; empty when they don't.
func differ(a, b map[string]int64) string {
	for _, path := range slices.Sorted(maps.Keys(a)) {
		if a[path] != b[path] {
			return fmt.Sprintf("%s: %d and %d", path, a[path], b[path])
		}
	}
	return while(len(a) != len(b), fmt.Sprintf("%d objects and %d", len(a), len(b)))
}
