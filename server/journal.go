package server

import (
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// keeper keeps the newest entries of decisions that changed something, or differ from the last one about the cluster:
// as many as there is room for. The oldest of the namespace that has the most make room for others.
//
// To write an entry takes a third of what a call does. So a call leaves what the entry is made of, which nothing
// changes any more, and [Server.KeepJournal] writes it. Only where too much waits does the call do it.
type keeper struct {
	version string
	room    int64   // bytes of entries; what waits has as much, and a namespace half of that
	volume  *volume // nil for none
	more    chan struct{}

	mu         sync.Mutex
	last       map[types.UID][sha256.Size]byte // of answers
	objects    map[journal.Ref]*shared
	namespaces map[string]*shelf
	held       int64
	waits      int64
	waiting    []*kept // for being packed
}

// shared is an object of some entries. It counts for the namespace that brought it.
type shared struct {
	packed []byte
	uses   int
	payer  *shelf
}

func (s *shared) bytes() int64 { return int64(len(s.packed)) + perEntry }

// shelf are the entries of a namespace, oldest first.
type shelf struct {
	entries     []*kept
	held, waits int64
}

// kept is an entry in JSON, with the objects that it has.
type kept struct {
	namespace, name string
	of              *unpacked // what it will be made of; nil once that is done, or it has been dropped
	packed          []byte
	refs            []journal.Ref
}

func (k *kept) bytes() int64 { return int64(len(k.packed)) + perEntry }

// unpacked is what an entry is made of. It takes so many bytes, rather too many.
type unpacked struct {
	o        observation.Observation
	d        decision.Decision
	withheld string // why, if it was
	bytes    int64
}

// packers are kept: each has some hundred KiB.
var packers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil { // there is that level
		panic(err)
	}
	return w
}}

func packed(text []byte) []byte {
	var out bytes.Buffer
	w, _ := packers.Get().(*flate.Writer)
	defer packers.Put(w)
	w.Reset(&out)
	_, _ = w.Write(text) // a buffer takes all
	_ = w.Close()
	return bytes.Clone(out.Bytes())
}

func textOf(packed []byte) ([]byte, error) {
	return io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
}

// perEntry is what the maps and slices take for one entry, or one object, in bytes.
const perEntry = 200

// partForJournal is which part of the memory that the process may use entries may take.
const partForJournal = 16

// roomForJournal is in bytes.
func roomForJournal() int64 {
	limit := debug.SetMemoryLimit(-1) // which only asks
	if limit == math.MaxInt64 {
		return 64 << 20
	}
	return limit / partForJournal
}

// mostLast is of how many clusters the last answer is known. One that is not is written down once more.
const mostLast = 20_000

// answered writes a decision down unless the answer is the last one. Made is how many bytes the call takes in memory.
func (r *keeper) answered(o observation.Observation, d decision.Decision, answer []byte, made int64) error {
	if r.same(o, answer) && o.Taken == nil {
		return nil
	}
	return r.add(o, d, "", made)
}

// withheld writes a decision down that breaks rules of safety, unless the one before broke the same ones.
func (r *keeper) withheld(o observation.Observation, d decision.Decision, broken error, made int64) error {
	if r.same(o, []byte(broken.Error())) {
		return nil
	}
	return r.add(o, d, broken.Error(), made)
}

// same reports whether this is what was last said about the cluster.
func (r *keeper) same(o observation.Observation, said []byte) bool {
	sum := sha256.Sum256(said)
	r.mu.Lock()
	defer r.mu.Unlock()
	same := r.last[o.Cluster.UID] == sum
	if r.last == nil || len(r.last) > mostLast { // clusters that another replica has seen the end of stay in it
		r.last = map[types.UID][sha256.Size]byte{}
	}
	r.last[o.Cluster.UID] = sum
	return same
}

// add writes a decision down, and why it was withheld, if it was.
func (r *keeper) add(o observation.Observation, d decision.Decision, withheld string, made int64) error {
	one := &kept{namespace: o.Cluster.Namespace, name: o.Cluster.Name,
		of: &unpacked{o: o, d: d, withheld: withheld, bytes: made + perTold*toldBytes(o)}}
	if r.take(one) {
		return r.volume.take(one)
	}
	return errors.Join(r.volume.take(one), r.pack(one))
}

// take takes an entry in, and reports whether it may wait.
func (r *keeper) take(one *kept) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.namespaces == nil {
		r.objects = map[journal.Ref]*shared{}
		r.namespaces = map[string]*shelf{}
	}
	s := r.namespaces[one.namespace]
	if s == nil {
		s = &shelf{}
		r.namespaces[one.namespace] = s
	}
	s.entries = append(s.entries, one)
	r.wait(s, one.of.bytes)
	if r.waits > r.room || s.waits > r.room/2 {
		return false
	}
	r.waiting = append(r.waiting, one)
	wake(r.more)
	return true
}

func wake(more chan struct{}) {
	select {
	case more <- struct{}{}:
	default: // it is awake
	}
}

// next is an entry that waits for being packed; nil for none.
func (r *keeper) next() *kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	return first(&r.waiting)
}

func first(queue *[]*kept) *kept {
	if len(*queue) == 0 {
		*queue = nil
		return nil
	}
	one := (*queue)[0]
	(*queue)[0] = nil
	*queue = (*queue)[1:]
	return one
}

// pack writes an entry and packs it, unless that was done.
func (r *keeper) pack(one *kept) error {
	r.mu.Lock()
	of := one.of
	r.mu.Unlock()
	if of == nil {
		return nil
	}
	text, objects, err := r.written(of)
	ready := r.packed(objects)
	text = packed(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	if one.of == nil { // another has, or it was dropped
		return nil
	}
	s := r.namespaces[one.namespace]
	if err != nil {
		r.remove(s, one)
		return err
	}
	r.wait(s, -of.bytes)
	one.of = nil
	one.packed = text
	for ref, object := range objects {
		one.refs = append(one.refs, ref)
		known := r.objects[ref]
		if known == nil {
			if ready[ref] == nil { // it was known, and has just been dropped
				ready[ref] = packed(object)
			}
			known = &shared{packed: ready[ref], payer: s}
			r.objects[ref] = known
			r.count(s, known.bytes())
		}
		known.uses++
	}
	r.count(s, one.bytes())
	for r.held > r.room && len(r.namespaces) > 0 {
		r.drop()
	}
	return nil
}

// written is an entry, with its objects.
func (r *keeper) written(of *unpacked) ([]byte, journal.Objects, error) {
	entry, objects, err := journal.New(r.version, of.o, of.d)
	if err != nil {
		return nil, nil, err
	}
	entry.Withheld = of.withheld
	text, err := entry.Text()
	return text, objects, err
}

// packed packs the objects that are not known yet. No other call waits meanwhile.
func (r *keeper) packed(objects journal.Objects) map[journal.Ref][]byte {
	unknown := map[journal.Ref][]byte{}
	r.mu.Lock()
	for ref := range objects {
		if r.objects[ref] == nil {
			unknown[ref] = nil
		}
	}
	r.mu.Unlock()
	for ref := range unknown {
		unknown[ref] = packed(objects[ref])
	}
	return unknown
}

func (r *keeper) count(s *shelf, bytes int64) {
	s.held += bytes
	r.held += bytes
}

func (r *keeper) wait(s *shelf, bytes int64) {
	s.waits += bytes
	r.waits += bytes
}

// drop forgets the oldest entry of the namespace that has the most. The lock is held.
func (r *keeper) drop() {
	largest := slices.MaxFunc(slices.Collect(maps.Keys(r.namespaces)), func(a, b string) int {
		return cmp.Compare(r.namespaces[a].held, r.namespaces[b].held)
	})
	s := r.namespaces[largest]
	r.remove(s, s.entries[0])
}

// remove forgets an entry. The lock is held.
func (r *keeper) remove(s *shelf, one *kept) {
	at := slices.Index(s.entries, one)
	s.entries = slices.Delete(s.entries, at, at+1)
	if one.of != nil {
		r.wait(s, -one.of.bytes)
	} else {
		r.count(s, -one.bytes())
	}
	for _, ref := range one.refs {
		known := r.objects[ref]
		if known.uses--; known.uses == 0 {
			delete(r.objects, ref)
			r.count(known.payer, -known.bytes())
		}
	}
	*one = kept{namespace: one.namespace, name: one.name}
	if len(s.entries) == 0 {
		delete(r.namespaces, one.namespace)
	}
}

// forget is for a cluster that is gone. Its entries stay.
func (r *keeper) forget(cluster types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, cluster)
}

// write writes the entries of clusters of this namespace and name, either of which may be empty for all: oldest first
// in each namespace, one line for each object and entry.
func (r *keeper) write(out io.Writer, namespace, name string) error {
	entries := r.of(namespace, name)
	for _, one := range entries {
		if err := r.pack(one); err != nil {
			return err
		}
	}
	return writeLines(out, r.lines(entries, map[journal.Ref]bool{}))
}

// of are the entries of clusters of this namespace and name.
func (r *keeper) of(namespace, name string) []*kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	var entries []*kept
	for in, s := range r.namespaces {
		if namespace != "" && in != namespace {
			continue
		}
		for _, one := range s.entries {
			if name == "" || one.name == name {
				entries = append(entries, one)
			}
		}
	}
	return entries
}

// packedLine is one of a journal: an object, or for no ref an entry.
type packedLine struct {
	ref    journal.Ref
	packed []byte
}

// lines are those of entries that are still there, each after its objects, unless these were told.
func (r *keeper) lines(entries []*kept, told map[journal.Ref]bool) []packedLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []packedLine
	for _, one := range entries {
		if one.packed == nil {
			continue
		}
		for _, ref := range one.refs {
			if !told[ref] {
				told[ref] = true
				lines = append(lines, packedLine{ref, r.objects[ref].packed})
			}
		}
		lines = append(lines, packedLine{"", one.packed})
	}
	return lines
}

func writeLines(out io.Writer, lines []packedLine) error {
	for _, one := range lines {
		text, err := textOf(one.packed)
		if err != nil {
			return err
		}
		told := journal.Line{Ref: one.ref, Object: text}
		if one.ref == "" {
			told = journal.Line{Entry: text}
		}
		if text, err = json.Marshal(told); err != nil {
			return err
		}
		if _, err := out.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// KeepJournal packs entries and writes them to the volume, if there is one, until ctx ends; and then those that wait.
func (s *Server) KeepJournal(ctx context.Context) {
	r := &s.journal
	var all sync.WaitGroup
	all.Go(func() {
		each(ctx, r.more, r.next, func(one *kept) { s.written(r.pack(one)) })
	})
	if v := r.volume; v != nil {
		all.Go(func() {
			each(ctx, v.more, v.next, func(one *kept) { s.written(v.write(r, one)) })
			v.end()
		})
	}
	all.Wait()
}

// each does something with each entry, until ctx has ended and there is none.
func each(ctx context.Context, more <-chan struct{}, next func() *kept, do func(*kept)) {
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-more:
		}
		for one := next(); one != nil; one = next() {
			do(one)
		}
	}
}
