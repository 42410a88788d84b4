package server

import (
	"bytes"
	"cmp"
	"compress/flate"
	"crypto/sha256"
	"encoding/json"
	"io"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/recording"
)

// recorder keeps the newest records of decisions that changed something, or differ from the last one about the cluster:
// as many as there is room for. The oldest of the namespace that has the most make room for others.
type recorder struct {
	version string
	room    int64 // bytes

	mu         sync.Mutex
	last       map[types.UID][sha256.Size]byte // of answers
	objects    map[recording.Ref]*shared
	namespaces map[string]*shelf
	held       int64
}

// shared is an object of some records. It counts for the namespace that brought it.
type shared struct {
	packed []byte
	uses   int
	payer  *shelf
}

func (s *shared) bytes() int64 { return int64(len(s.packed)) + perRecord }

// shelf are the records of a namespace, oldest first.
type shelf struct {
	records []*kept
	held    int64
}

// kept is a record in JSON, with the objects that it has.
type kept struct {
	packed []byte
	name   string
	refs   []recording.Ref
}

func (k *kept) bytes() int64 { return int64(len(k.packed)) + perRecord }

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

// perRecord is what the maps and slices take for one record, or one object, in bytes.
const perRecord = 200

// partForRecords is which part of the memory that the process may use records may take.
const partForRecords = 16

// roomForRecords is in bytes.
func roomForRecords() int64 {
	limit := debug.SetMemoryLimit(-1) // which only asks
	if limit == math.MaxInt64 {
		return 64 << 20
	}
	return limit / partForRecords
}

// answered records a decision unless the answer is the last one.
func (r *recorder) answered(o observation.Observation, d decision.Decision, answer []byte) error {
	sum := sha256.Sum256(answer)
	r.mu.Lock()
	same := r.last[o.Cluster.UID] == sum
	if r.last == nil {
		r.last = map[types.UID][sha256.Size]byte{}
	}
	r.last[o.Cluster.UID] = sum
	r.mu.Unlock()
	if same && o.Taken == nil {
		return nil
	}
	return r.record(o, d)
}

// record records a decision.
func (r *recorder) record(o observation.Observation, d decision.Decision) error {
	record, objects, err := recording.New(r.version, o, d)
	if err != nil {
		return err
	}
	text, err := record.Text()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.objects == nil {
		r.objects = map[recording.Ref]*shared{}
		r.namespaces = map[string]*shelf{}
	}
	s := r.namespaces[record.Namespace]
	if s == nil {
		s = &shelf{}
		r.namespaces[record.Namespace] = s
	}
	one := &kept{packed: packed(text), name: record.Name}
	for ref, object := range objects {
		one.refs = append(one.refs, ref)
		known := r.objects[ref]
		if known == nil {
			known = &shared{packed: packed(object), payer: s}
			r.objects[ref] = known
			r.count(s, known.bytes())
		}
		known.uses++
	}
	s.records = append(s.records, one)
	r.count(s, one.bytes())
	for r.held > r.room && len(r.namespaces) > 0 {
		r.drop()
	}
	return nil
}

func (r *recorder) count(s *shelf, bytes int64) {
	s.held += bytes
	r.held += bytes
}

// drop forgets the oldest record of the namespace that has the most. The lock is held.
func (r *recorder) drop() {
	largest := slices.MaxFunc(slices.Collect(maps.Keys(r.namespaces)), func(a, b string) int {
		return cmp.Compare(r.namespaces[a].held, r.namespaces[b].held)
	})
	s := r.namespaces[largest]
	oldest := s.records[0]
	s.records = slices.Delete(s.records, 0, 1)
	r.count(s, -oldest.bytes())
	for _, ref := range oldest.refs {
		known := r.objects[ref]
		if known.uses--; known.uses == 0 {
			delete(r.objects, ref)
			r.count(known.payer, -known.bytes())
		}
	}
	if len(s.records) == 0 {
		delete(r.namespaces, largest)
	}
}

// forget is for a cluster that is gone. Its records stay.
func (r *recorder) forget(cluster types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, cluster)
}

// write writes the records of clusters of this namespace and name, either of which may be empty for all: oldest first
// in each namespace, one line for each object and record.
func (r *recorder) write(out io.Writer, namespace, name string) error {
	type line struct {
		ref    recording.Ref
		packed []byte
	}
	var lines []line
	told := map[recording.Ref]bool{}
	r.mu.Lock()
	for in, s := range r.namespaces {
		if namespace != "" && in != namespace {
			continue
		}
		for _, one := range s.records {
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
		told := recording.Line{Ref: one.ref, Object: text}
		if one.ref == "" {
			told = recording.Line{Record: text}
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
