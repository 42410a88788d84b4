//go:build e2e

package e2e

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// beside lets a story run beside others, as soon as there is room for it: at most -parallel at once, and of these those
// above cores + 1 only while few processes wait for a core. Members that wait too long don't answer Quorate in time.
func beside(t *testing.T) {
	t.Helper()
	t.Parallel()
	if !stories.begin() {
		t.Skipf("left out: it had not begun after %s", *beginWithin)
	}
	t.Cleanup(stories.end)
}

var beginWithin = flag.Duration("begin.within", 0, "leave out the stories that have not begun after this time; 0: none")

const (
	busy   = 2                // processes for each core, that run or wait for it
	settle = 30 * time.Second // how long a story takes to show what it costs
)

var stories = &room{}

// room counts the stories that run.
type room struct {
	sync.Mutex
	running int
	first   time.Time // when the first one asked
	last    time.Time // when the last one began
	load    float64   // processes that run or wait for a core, in the mean of some seconds
	watched sync.Once
}

// begin waits for room, and reports whether the story begins in time.
func (r *room) begin() bool {
	r.watched.Do(func() {
		r.first = time.Now()
		go r.watch()
	})
	for *beginWithin == 0 || time.Since(r.first) < *beginWithin {
		if r.enter() {
			return true
		}
		time.Sleep(time.Second)
	}
	return false
}

func (r *room) enter() bool {
	r.Lock()
	defer r.Unlock()
	idle := r.load < float64(busy*runtime.NumCPU()) && time.Since(r.last) > settle
	if r.running > runtime.NumCPU() && !idle {
		return false
	}
	r.running, r.last = r.running+1, time.Now()
	return true
}

func (r *room) end() {
	r.Lock()
	defer r.Unlock()
	r.running--
}

func (r *room) watch() {
	for range time.Tick(500 * time.Millisecond) {
		text, err := os.ReadFile("/proc/loadavg") // "0.20 0.18 0.12 3/817 1234": three of 817 run or wait
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text))
		running, _, _ := strings.Cut(fields[3], "/")
		now, _ := strconv.ParseFloat(running, 64)
		r.Lock()
		r.load += (now - r.load) / 20
		r.Unlock()
	}
}
