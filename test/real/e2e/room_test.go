//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// beside lets a story run beside others, once it is its turn and there is room: at most four for each core, and of
// these those above cores + 1 only while few processes wait for a core. Members that wait too long don't answer Quorate
// in time.
func beside(t *testing.T) {
	t.Helper()
	t.Parallel() // `make e2e` gives -parallel no bound: this is the only place where stories wait
	if !stories.begin(t.Name()) {
		t.Skipf("left out: it had not begun after %s", *beginWithin)
	}
	t.Cleanup(stories.end)
}

var beginWithin = flag.Duration("begin.within", 0, "leave out the stories that have not begun after this time; 0: none")

const (
	atOnce = 4                // stories for each core
	busy   = 2                // processes for each core, that run or wait for it
	settle = 30 * time.Second // how long a story takes to show what it costs
)

var stories = &room{waiting: map[string]uint64{}}

// room counts the stories that run.
type room struct {
	sync.Mutex
	waiting map[string]uint64 // stories by name, and their turn: the lowest begins first
	asked   uint64            // how many have asked
	running int
	first   time.Time // when the first one asked
	last    time.Time // when the last one began
	load    float64   // processes that run or wait for a core, in the mean of some seconds
	watched sync.Once
}

// begin waits for the story's turn, and reports whether it begins in time.
func (r *room) begin(story string) bool {
	r.watched.Do(func() {
		r.first = time.Now()
		go r.watch()
	})
	r.Lock()
	r.asked++
	r.waiting[story] = turn(story, r.asked)
	r.Unlock()
	for *beginWithin == 0 || time.Since(r.first) < *beginWithin {
		time.Sleep(time.Second) // first, so that all have asked
		if r.enter(story) {
			return true
		}
	}
	r.Lock()
	defer r.Unlock()
	delete(r.waiting, story)
	return false
}

// turn draws lots with the seed of -shuffle. That flag alone orders tests, but not their subtests: pages and samples
// would come last each time. Without a seed it is the order in which they ask.
func turn(story string, asked uint64) uint64 {
	seed := flag.Lookup("test.shuffle").Value.String()
	if seed == "off" {
		return asked
	}
	lot := sha256.Sum256([]byte(seed + story))
	return binary.BigEndian.Uint64(lot[:8])
}

func (r *room) enter(story string) bool {
	r.Lock()
	defer r.Unlock()
	for _, other := range r.waiting {
		if other < r.waiting[story] {
			return false
		}
	}
	idle := r.load < float64(busy*runtime.NumCPU()) && time.Since(r.last) > settle
	if r.running > runtime.NumCPU() && !idle || r.running >= atOnce*runtime.NumCPU() {
		return false
	}
	delete(r.waiting, story)
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
