package seed

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// A model of a stream: an etcd and a store in memory, and the shipped processes that stream, prune and restore between
// them (stream.Run, stream.OpenTail, replay). Each request of theirs waits until the model answers it, or does not, or
// answers it with an error before or after its effect; a process is killed between any two of them or within one. Time
// is that of testing/synctest. After each change in the store a restore is judged.

var (
	schedules = flag.Int("schedules", 300, "how many TestStreamModel plays")
	seedFrom  = flag.Uint64("seed", 1, "the first of the schedules")
)

// call is a request that waits for its answer.
type call struct {
	who  *process
	what string
	// ready tells whether there is an answer; nil for always. Do has the effect, and cut half of it.
	ready   func() bool
	do      func() error
	cut     func()
	changes bool

	answer chan error
	left   bool // by who has asked
}

// process is one of ours; it ends by itself, or is killed.
type process struct {
	number int
	name   string
	stop   context.CancelFunc
	dead   bool
	// ended is set when it has. Report is a stream's, check judges what a restore got.
	ended  bool
	cuts   bool // something that it stored was cut off
	report stores.Stream
	check  func()
}

type world struct {
	dice *rand.Rand
	etcd *committed
	past []history // that were given up with a disk

	objects     map[string]*object
	claimed     map[string]int // bytes that a process wants to store
	conditional bool
	lag         time.Duration
	bases       []*base
	taking      *base
	taken       int

	flush   time.Duration
	maxSize int
	rolls   bool // disks are put back
	faulty  bool
	hangs   bool   // the store takes nothing
	wrong   string // of a mutant

	mu       sync.Mutex
	bell     chan struct{}
	calls    []*call
	late     []*call // whose effect may come yet
	streams  []*process
	restores []*process
	started  int

	dirty bool // the store has changed
	// why a new base is needed; empty once one was begun. It was why when that was not stored.
	why, was string
	sent     int64 // bytes of events
	trace    []string
	broken   string
}

func newWorld(seed uint64, wrong string) *world {
	dice := rand.New(rand.NewPCG(seed, 42))
	w := &world{dice: dice, etcd: newCommitted(), objects: map[string]*object{},
		claimed: map[string]int{}, bell: make(chan struct{}, 1), wrong: wrong, faulty: true}
	w.conditional, w.rolls = dice.IntN(2) == 0, dice.IntN(4) == 0
	w.lag = []time.Duration{0, 0, time.Minute, 20 * time.Minute}[dice.IntN(4)]
	w.flush = []time.Duration{10 * time.Second, 5 * time.Minute}[dice.IntN(2)]
	w.maxSize = []int{1, 200, 1000}[dice.IntN(3)]
	return w
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%8.0f s  ", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Seconds())+
		fmt.Sprintf(format, args...))
}

// violates notes the first rule that is broken.
func (w *world) violates(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
		w.note("BROKEN: %s", w.broken)
	}
}

func (w *world) ring() {
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// ask waits for the answer of a call. Without a process it has it at once.
func (w *world) ask(ctx context.Context, c call) error {
	if c.who == nil {
		return c.do()
	}
	c.answer = make(chan error, 1)
	w.mu.Lock()
	if c.who.dead {
		w.mu.Unlock()
		return errFault
	}
	w.calls = append(w.calls, &c)
	w.ring()
	w.mu.Unlock()
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		c.left = true
		return ctx.Err()
	}
}

// waiting are the calls that can be answered, in an order that does not hang on the scheduler of Go.
func (w *world) waiting() (all []*call) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool {
		if c.left && c.changes && w.faulty {
			w.late = append(w.late, c)
		}
		return c.left
	})
	for _, c := range w.calls {
		if (c.ready == nil || c.ready()) && (!w.hangs || !c.changes) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.who.number, b.who.number), strings.Compare(a.what, b.what))
	})
	return all
}

// serve answers a call; with faults, in some way.
func (w *world) serve(c *call) {
	w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
	how := 100
	if w.faulty {
		how = w.dice.IntN(100)
	}
	err := errFault
	switch {
	case how < 5:
		w.note("%s: %s: fails", c.who.name, c.what)
		if c.changes && w.wrong == "an error of a write is taken for success" {
			err = nil
		}
	case how < 10 && c.changes:
		_ = c.do()
		w.note("%s: %s: its answer is lost", c.who.name, c.what)
	case how < 13 && c.cut != nil:
		c.cut()
		c.who.cuts = true
		if how%2 == 0 {
			err = nil
		}
		w.note("%s: %s: half of it is stored, and the answer is %v", c.who.name, c.what, err)
	default:
		err = c.do()
		if c.what != "watch" {
			w.note("%s: %s: %v", c.who.name, c.what, err)
		}
	}
	c.answer <- err
}

// stream starts one, as its pod would: behind a base that is stored.
func (w *world) stream() {
	stored := w.stored()
	if len(stored) == 0 {
		return
	}
	from := stored[len(stored)-1]
	if w.faulty && w.dice.IntN(4) == 0 {
		from = stored[w.dice.IntN(len(stored))]
	}
	w.started++
	p := &process{number: w.started, name: fmt.Sprint("stream-", w.started)}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	w.note("%s starts behind %s at revision %d", p.name, from.name, from.revision)
	o := stream.Options{Cluster: w.cluster(p), Place: w.place(p, ""), Tail: "tail", FromRevision: from.revision,
		FlushAfter: w.flush, MaxSize: w.maxSize, Log: slog.New(slog.DiscardHandler)}
	w.streams = append(w.streams, p)
	go func() {
		report, _ := stream.Run(ctx, o, stream.NewMonitor(o.FlushAfter)) // the report has the error
		w.mu.Lock()
		defer w.mu.Unlock()
		p.ended, p.report = true, report
		w.ring()
	}()
}

// restore starts one that is disturbed like the streams.
func (w *world) restore() {
	stored := w.stored()
	if len(stored) == 0 {
		return
	}
	b := stored[w.dice.IntN(len(stored))]
	until := w.end(b)
	w.started++
	p := &process{number: w.started, name: fmt.Sprint("restore-", w.started)}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	place := w.place(p, "tail/"+clusterIDText)
	w.note("%s begins with %s and is to end at %d", p.name, b.name, until)
	w.restores = append(w.restores, p)
	go func() {
		r, records, err := b.replayed(ctx, place, until, w.wrong)
		w.mu.Lock()
		defer w.mu.Unlock()
		p.ended, p.check = true, func() { w.judge(b, r, records, err) }
		w.ring()
	}()
}

// end is the revision at which a restore is to end; 0 for the last.
func (w *world) end(b *base) int64 {
	if w.dice.IntN(2) == 0 {
		return 0
	}
	return b.revision + w.dice.Int64N(max(1, w.etcd.revision()-b.revision+1))
}

// reap looks who has ended.
func (w *world) reap() {
	synctest.Wait()
	w.streams = slices.DeleteFunc(w.streams, func(p *process) bool {
		if p.ended && !p.dead {
			w.note("%s has ended: %s %s", p.name, p.report.Reason, p.report.Error)
			w.harmed(p)
			needs := p.report.NeedsSnapshot() || p.report.Reason == stores.StreamOtherCluster
			if needs && w.wrong != "nothing is told of a gap" {
				w.why = "a stream has told so"
			}
		}
		return p.ended || p.dead
	})
	w.restores = slices.DeleteFunc(w.restores, func(p *process) bool {
		if p.ended && !p.dead {
			w.note("%s has ended", p.name)
			p.check()
		}
		return p.ended || p.dead
	})
}

// kill ends a process between two instructions. What it has asked for may happen, or happen later, or not.
func (w *world) kill(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.dead = true
	w.note("%s is killed", p.name)
	w.harmed(p)
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool {
		if c.who != p {
			return false
		}
		switch how := w.dice.IntN(4); {
		case !c.changes || how == 0:
		case how == 1:
			w.late = append(w.late, c)
		case how == 2 && c.cut != nil:
			c.cut()
			w.why = "something is stored in part"
			w.note("half of its %s is stored", c.what)
		default:
			w.note("its %s is done: %v", c.what, c.do())
		}
		c.answer <- errFault
		return true
	})
	p.stop()
}

// harmed notes that what a process has stored may not be whole: it can't put that right any more.
func (w *world) harmed(p *process) {
	if p.cuts {
		w.why = "something is stored in part"
	}
}

// stored are the bases whose records are there, the oldest first.
func (w *world) stored() []*base {
	return slices.DeleteFunc(slices.Clone(w.bases), func(b *base) bool {
		o := w.objects[b.name+".db.json"]
		return o == nil || o.gone
	})
}

// snapshot begins one, or stores the one that was begun.
func (w *world) snapshot() {
	if w.taking == nil {
		w.taken++
		w.taking = w.etcd.snapshot(fmt.Sprint("base-", w.taken))
		w.was = w.why
		if len(w.past) == 0 || w.taking.revision >= w.lastStored() { // else it is followed by the other history
			w.why = ""
		}
		w.note("%s is begun at revision %d", w.taking.name, w.taking.revision)
		return
	}
	b := w.taking
	w.taking = nil
	w.bases = append(w.bases, b)
	record, _ := json.Marshal(stores.Artifact{SHA256: "x", ClusterID: clusterIDText, Revision: b.revision,
		AuthRevision: b.auth}) // plain data
	w.put(b.name+".db", []byte("a database"))
	w.put(b.name+".db.json", record)
	w.note("%s is stored", b.name)
}

// shown is what a process reads of an object.
func (w *world) shown(who *process, key string, content []byte) []byte {
	if who != nil && w.wrong == "prune forgets the cluster of a base" && key == "base-1.db.json" {
		return []byte(strings.Replace(string(content), clusterIDText, "c2", 1))
	}
	return content
}

// pruned judges a deletion by a stream: no base that is stored may need what it deletes.
func (w *world) pruned(key string) {
	var first, last int64
	if _, err := fmt.Sscanf(key, "tail/c1/%d-%d.seg", &first, &last); err != nil {
		w.violates("a stream deletes %s", key)
	}
	for _, b := range w.stored() {
		if last > b.revision && len(w.past) == 0 {
			w.violates("%s is deleted, and %s at revision %d needs it", key, b.name, b.revision)
		}
	}
}

// judge compares what a restore has got with what etcd committed: an error, or exactly that.
func (w *world) judge(b *base, r *replay, records []string, err error) {
	if err != nil {
		return
	}
	if r.reach != r.until {
		w.violates("a restore from %s ends at %d and not at %d, and has told nothing", b.name, r.reach, r.until)
		return
	}
	for _, h := range append(slices.Clone(w.past), w.etcd.history) {
		if !b.of(h) || r.until > h.revision() {
			continue
		}
		var want []string
		for _, t := range h[b.revision+1 : r.until+1] {
			want = append(want, t.records...)
		}
		if slices.Equal(want, records) {
			w.leased(b, r, h)
			if len(w.past) == 0 && r.doubt() == "" && r.until > b.revision && h[r.until-1].auth > b.auth {
				w.violates("a restore from %s up to %d has users that have changed before", b.name, r.until)
			}
			return
		}
	}
	w.violates("a restore from %s at revision %d up to %d is no history of etcd:\n%q", b.name, b.revision, r.until,
		records)
}

// leased judges the leases: a key whose lease is not there would stay for good.
func (w *world) leased(b *base, r *replay, h history) {
	is := map[string]int64{}
	for _, t := range h[:r.until+1] {
		for _, e := range t.events {
			is[string(e.Kv.Key)] = e.Kv.Lease
		}
	}
	all := r.leases.all()
	for key, lease := range is {
		if _, there := all[lease]; lease != 0 && !there {
			w.violates("a restore from %s up to %d has the key %s of lease %d, and not that lease", b.name, r.until,
				key, lease)
		}
	}
}

func (b *base) of(h history) bool {
	if h.revision() < b.revision {
		return false
	}
	is := h[b.revision].events
	return len(is) == len(b.at.events) && (len(is) == 0 || is[0] == b.at.events[0])
}

// look judges a restore from one of the bases by what is stored now.
func (w *world) look(b *base, until int64) (*replay, error) {
	r, records, err := b.replayed(context.Background(), w.place(nil, "tail/"+clusterIDText), until, w.wrong)
	w.judge(b, r, records, err)
	return r, err
}

func (w *world) looks() {
	if !w.dirty {
		return
	}
	w.dirty = false
	if stored := w.stored(); len(stored) > 0 {
		b := stored[w.dice.IntN(len(stored))]
		_, _ = w.look(b, w.end(b)) // judged there
	}
}

// change is something that clients of etcd do.
func (w *world) change() {
	c := w.etcd
	switch n := w.dice.IntN(40); {
	case n < 3:
		c.granted++
		c.leases[c.granted] = 10 * c.granted
		c.note()
	case n < 5 && len(c.leases) > 0:
		ids := slices.Sorted(maps.Keys(c.leases))
		c.revoke(ids[w.dice.IntN(len(ids))])
	case n < 7 && c.compacted < c.revision() && len(w.past) == 0: // one of the last stored revision hides another disk
		c.compact(c.compacted+1+w.dice.Int64N(c.revision()-c.compacted), func() bool { return w.dice.IntN(2) == 0 })
		w.note("compacted at %d of %d", c.compacted, c.revision())
	case n == 7 && w.dice.IntN(2) == 0:
		c.auth++
		c.note()
		w.note("users change, at revision %d", c.revision())
	case n == 8 && w.rolls && w.dice.IntN(3) == 0 && c.revision() > 4:
		w.past = append(w.past, c.history)
		c.back(c.revision() - 1 - w.dice.Int64N(min(8, c.revision()-3)))
		w.why = "a disk was put back"
		w.note("its disk is put back to revision %d", c.revision())
	default:
		w.transaction()
	}
}

func (w *world) transaction() {
	c := w.etcd
	var ops []op
	for range 1 + w.dice.IntN(3) {
		o := op{key: string(rune('a' + w.dice.IntN(6)))}
		if w.dice.IntN(3) > 0 {
			c.values++
			o.value = fmt.Sprint("v", c.values)
			if ids := slices.Sorted(maps.Keys(c.leases)); len(ids) > 0 && w.dice.IntN(3) == 0 {
				o.lease = ids[w.dice.IntN(len(ids))]
			}
		}
		ops = append(ops, o)
	}
	if w.rolls { // two histories may not have the same revision by chance: a sum would not tell them apart
		c.values++
		ops = append(ops, op{key: "only", value: fmt.Sprint("v", c.values)})
	}
	c.commit(ops...)
	w.note("revision %d", c.revision())
}

// step is one of all that may happen.
func (w *world) step() {
	w.reap()
	waiting := w.waiting()
	switch n := w.dice.IntN(100); {
	case n < 45 && len(waiting) > 0:
		w.serve(waiting[w.dice.IntN(len(waiting))])
	case n < 58:
		w.change()
	case n < 70:
		time.Sleep(w.flush / []time.Duration{30, 5, 1}[w.dice.IntN(3)]) // and no call has an answer
	case n < 84:
		w.happens()
	case n < 90:
		w.goOn()
	default:
		w.settle(w.flush / 2)
	}
	w.looks()
}

// happens is what is rare.
func (w *world) happens() {
	switch n := w.dice.IntN(22); {
	case n < 4 && len(w.streams) > 0:
		w.kill(w.streams[w.dice.IntN(len(w.streams))])
	case n < 5 && len(w.streams) > 0:
		p := w.streams[w.dice.IntN(len(w.streams))]
		w.note("%s is told to end", p.name)
		p.stop()
	case n < 10:
		w.snapshot()
	case n < 12:
		if stored := w.stored(); len(stored) > 1 {
			gone := stored[w.dice.IntN(len(stored)-1)]
			_ = w.remove(gone.name + ".db.json") // it is there
			w.note("%s is deleted", gone.name)
		}
	case n < 13:
		w.harm()
	case n < 16 && len(w.restores) < 2:
		w.restore()
	case n < 18 && len(w.late) > 0:
		c := w.late[0]
		w.late = w.late[1:]
		if len(w.past) > 0 {
			w.why = "what is stored is of a history that is over"
		}
		w.note("late: %s of %s: %v", c.what, c.who.name, c.do())
	case n < 19 && w.flush > time.Minute:
		w.settle(150 * time.Minute)
	}
}

// goOn starts a stream, where there are not two.
func (w *world) goOn() {
	if len(w.streams) == 0 || len(w.streams) == 1 && w.dice.IntN(3) == 0 {
		w.stream()
	}
}

// harm deletes a segment, or cuts it off.
func (w *world) harm() {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		if strings.HasSuffix(key, ".seg") && !w.objects[key].gone {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 || w.dice.IntN(2) == 0 {
		return
	}
	key := keys[w.dice.IntN(len(keys))]
	w.why = "a segment is harmed"
	w.note("%s is harmed", key)
	if w.dice.IntN(2) == 0 {
		_ = w.remove(key) // it is there
		return
	}
	content := w.objects[key].content
	w.put(key, content[:w.dice.IntN(len(content)+1)])
}

// settle lets time pass in which all have their answers.
func (w *world) settle(d time.Duration) {
	for until := time.Now().Add(d); ; {
		for waiting := w.waiting(); len(waiting) > 0; waiting = w.waiting() {
			w.serve(waiting[0])
		}
		w.reap()
		left := time.Until(until)
		if left <= 0 || w.broken != "" {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-w.bell:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// catchesUp judges that the stream does, once there are no faults any more: behind the last base, or behind a new one
// where it has told so.
func (w *world) catchesUp() {
	w.faulty, w.late, w.lag = false, nil, 0
	if w.taking != nil {
		w.taking, w.why = nil, cmp.Or(w.why, w.was)
	}
	for range 4 {
		if len(w.stored()) == 0 || w.caughtUp() {
			break
		}
		if w.why == "" {
			w.violates("the stream does not catch up with revision %d, and has not told that it needs a base",
				w.etcd.revision())
			return
		}
		for w.etcd.revision() <= w.lastStored() { // until then it says that the cluster has another history
			w.transaction()
		}
		w.note("a new base is needed: %s", w.why)
		w.snapshot()
		w.snapshot()
	}
	stored := w.stored()
	if len(stored) == 0 {
		return
	}
	last := stored[len(stored)-1]
	if r, err := w.look(last, 0); err != nil || r.reach != w.etcd.revision() {
		w.violates("with a new base the stream does not catch up: %v, %d of %d", err, r.reach, w.etcd.revision())
	}
}

func (w *world) lastStored() (last int64) {
	for key, o := range w.objects {
		var first, to int64
		if _, err := fmt.Sscanf(key, "tail/c1/%d-%d.seg", &first, &to); err == nil && !o.gone {
			last = max(last, to)
		}
	}
	return last
}

// caughtUp reports whether a restore from the last base soon ends where etcd is.
func (w *world) caughtUp() bool {
	for range 8 {
		if len(w.streams) == 0 {
			w.stream()
		}
		w.transaction()
		w.settle(w.flush + time.Minute)
		stored := w.stored()
		r, err := w.look(stored[len(stored)-1], 0)
		if err == nil && r.reach == w.etcd.revision() {
			return true
		}
	}
	return false
}

// endAll ends all that runs.
func (w *world) endAll() {
	w.faulty = false
	for _, p := range slices.Concat(w.streams, w.restores) {
		w.kill(p)
	}
	time.Sleep(time.Hour)
	synctest.Wait()
}

// play plays a schedule, and returns the rule that was broken, and what happened.
func play(t *testing.T, seed uint64, wrong string) (broken string, trace []string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(seed, wrong)
		defer func() { broken, trace = w.broken, w.trace }()
		for range 1 + w.dice.IntN(5) {
			w.transaction()
		}
		w.snapshot()
		w.snapshot()
		w.stream()
		for range 20 + w.dice.IntN(150) {
			if w.step(); w.broken != "" {
				break
			}
		}
		for _, b := range w.stored() {
			_, _ = w.look(b, 0) // judged there
			_, _ = w.look(b, w.end(b))
		}
		if w.broken == "" {
			w.catchesUp()
		}
		w.endAll()
	})
	return broken, trace
}

// TestStreamModel: whenever processes are killed and whatever the store does, a restore is told an error, or exactly
// what etcd had committed; what a stored base needs is not deleted; and the stream catches up, or says that it needs a
// new base, and then does.
func TestStreamModel(t *testing.T) {
	n := *schedules
	if testing.Short() {
		n /= 3
	}
	for i := range uint64(max(n, 1)) {
		seed := *seedFrom + i
		if broken, trace := play(t, seed, ""); broken != "" {
			t.Fatalf("%s\n\n%s\n\nagain: go test ./etcdops/backup/seed -run TestStreamModel -schedules 1 -seed %d",
				strings.Join(trace[max(0, len(trace)-100):], "\n"), broken, seed)
		}
	}
}

// TestStreamMutants: the model notices what would be wrong.
func TestStreamMutants(t *testing.T) {
	for wrong, breaks := range map[string]string{
		"the sum of the segment before is not checked": "is no history of etcd",
		"another content of what overlaps is taken":    "is no history of etcd",
		"prune forgets the cluster of a base":          "at revision",
		"an error of a write is taken for success":     "the stream does not catch up",
		"nothing is told of a gap":                     "has not told that it needs a base",

		"a list of leases is of the revision of its answer": "and not that lease",
		"users are those of before":                         "has users that have changed before",
	} {
		t.Run(wrong, func(t *testing.T) {
			for seed := range uint64(3000) {
				if broken, trace := play(t, seed, wrong); broken != "" {
					if !strings.Contains(broken, breaks) {
						t.Errorf("%s, and not: %s", broken, breaks)
					}
					t.Logf("schedule %d, %d steps: %s", seed, len(trace), broken)
					return
				}
			}
			t.Error("it is not noticed")
		})
	}
}

// TestStreamMemory: while the store takes nothing, a stream reads no more than it has room for.
func TestStreamMemory(t *testing.T) {
	const room, most = 40 << 20, 5 << 20 // of records in memory, and in an answer of a member here
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, "")
		w.faulty, w.flush, w.maxSize, w.hangs = false, 10*time.Second, 8<<20, true
		w.transaction()
		w.snapshot()
		w.snapshot()
		w.stream()
		w.settle(time.Second)
		value := strings.Repeat("v", 1<<20)
		for range 60 {
			w.etcd.commit(op{key: "a", value: value})
		}
		w.settle(time.Minute)
		if w.sent < room || w.sent > room+2*most {
			t.Errorf("%d bytes were read", w.sent)
		}
		w.hangs = false
		w.settle(time.Minute)
		tail, err := stream.OpenTail(t.Context(), w.place(nil, "tail/"+clusterIDText), stream.Opening{})
		if err != nil || tail.Reach(w.bases[0].revision) != w.etcd.revision() {
			t.Errorf("the stream does not catch up: %v", err)
		}
		w.endAll()
	})
}
