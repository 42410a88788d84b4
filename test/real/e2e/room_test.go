//go:build e2e

package e2e

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// beside lets a story run beside others once there is room: at most six for each core, and of these those above
// cores + 1 only while few processes wait for a core. Members that wait too long don't answer Quorate in time.
func beside(t *testing.T) {
	t.Helper()
	t.Parallel() // -parallel has no bound here: this is the only place where stories wait
	stories.begin()
	t.Cleanup(stories.end)
}

const (
	atOnce = 6               // stories for each core
	busy   = 2               // processes for each core, that run or wait for it
	settle = 5 * time.Second // how long a story takes to show what it costs
)

var stories room

// room counts the stories that run.
type room struct {
	sync.Mutex
	running int
	last    time.Time // when the last one began
	load    float64   // processes that run or wait for a core, in the mean of some seconds
	watched sync.Once
}

// begin waits until there is room.
func (r *room) begin() {
	r.watched.Do(func() { go r.watch() })
	for !r.enter() {
		time.Sleep(time.Second)
	}
}

func (r *room) enter() bool {
	r.Lock()
	defer r.Unlock()
	idle := r.load < float64(busy*runtime.NumCPU()) && time.Since(r.last) > settle
	if r.running > runtime.NumCPU() && !idle {
		return false
	}
	if r.running >= atOnce*runtime.NumCPU() {
		return false
	}
	r.running++
	r.last = time.Now()
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
		r.load += (now - r.load) / 10
		r.Unlock()
	}
}
