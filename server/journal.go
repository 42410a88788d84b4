package server

import (
	"bytes"
	"cmp"
	"compress/flate"
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
type keeper struct {
	version string
	room    int64   // bytes
	volume  *volume // nil for none

	mu         sync.Mutex
	last       map[types.UID][sha256.Size]byte // of answers
	objects    map[journal.Ref]*shared
	namespaces map[string]*shelf
	held       int64
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
	entries []*kept
	held    int64
}

// kept is an entry in JSON, with the objects that it has.
type kept struct {
	packed []byte
	name   string
	refs   []journal.Ref
}

func (k *kept) bytes() int64 { return int64(len(k.packed)) + perEntry }

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

func unpacked(text []byte) ([]byte, error) { return io.ReadAll(flate.NewReader(bytes.NewReader(text))) }

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

// answered writes a decision down unless the answer is the last one.
func (r *keeper) answered(o observation.Observation, d decision.Decision, answer []byte) error {
	if r.same(o, answer) && o.Taken == nil {
		return nil
	}
	return r.add(o, d, "")
}

// withheld writes a decision down that breaks rules of safety, unless the one before broke the same ones.
func (r *keeper) withheld(o observation.Observation, d decision.Decision, broken error) error {
	if r.same(o, []byte(broken.Error())) {
		return nil
	}
	return r.add(o, d, broken.Error())
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
func (r *keeper) add(o observation.Observation, d decision.Decision, withheld string) error {
	entry, objects, err := journal.New(r.version, o, d)
	if err != nil {
		return err
	}
	entry.Withheld = withheld
	return errors.Join(r.volume.add(entry, objects), r.keep(entry, objects))
}

// keep keeps an entry in memory.
func (r *keeper) keep(entry *journal.Entry, objects journal.Objects) error {
	text, err := entry.Text()
	if err != nil {
		return err
	}
	one := &kept{packed: packed(text), name: entry.Name}
	ready := r.packed(objects)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.objects == nil {
		r.objects = map[journal.Ref]*shared{}
		r.namespaces = map[string]*shelf{}
	}
	s := r.namespaces[entry.Namespace]
	if s == nil {
		s = &shelf{}
		r.namespaces[entry.Namespace] = s
	}
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
	s.entries = append(s.entries, one)
	r.count(s, one.bytes())
	for r.held > r.room && len(r.namespaces) > 0 {
		r.drop()
	}
	return nil
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

// drop forgets the oldest entry of the namespace that has the most. The lock is held.
func (r *keeper) drop() {
	largest := slices.MaxFunc(slices.Collect(maps.Keys(r.namespaces)), func(a, b string) int {
		return cmp.Compare(r.namespaces[a].held, r.namespaces[b].held)
	})
	s := r.namespaces[largest]
	oldest := s.entries[0]
	s.entries = slices.Delete(s.entries, 0, 1)
	r.count(s, -oldest.bytes())
	for _, ref := range oldest.refs {
		known := r.objects[ref]
		if known.uses--; known.uses == 0 {
			delete(r.objects, ref)
			r.count(known.payer, -known.bytes())
		}
	}
	if len(s.entries) == 0 {
		delete(r.namespaces, largest)
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
	type line struct {
		ref    journal.Ref
		packed []byte
	}
	var lines []line
	told := map[journal.Ref]bool{}
	r.mu.Lock()
	for in, s := range r.namespaces {
		if namespace != "" && in != namespace {
			continue
		}
		for _, one := range s.entries {
			if name != "" && one.name != name {
				continue
			}
			for _, ref := range one.refs {
				if !told[ref] {
					told[ref] = true
					lines = append(lines, line{ref, r.objects[ref].packed})
				}
			}
			lines = append(lines, line{"", one.packed})
		}
	}
	r.mu.Unlock()
	for _, one := range lines {
		text, err := unpacked(one.packed)
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
