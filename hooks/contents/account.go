// Package contents counts what fills a database of etcd, by prefix.
package contents

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Bounds of an account. A prefix ends at one of the first slashes of a key, never at its end, so that no whole key is
// told; a longer part of one, or one that can't be printed, is no prefix either.
const (
	deepest     = 5
	longestPart = 64
	mostNodes   = 1 << 14
	fewOf       = 16
	// mostHeld is how many keys are held in mind that were changed since the last compaction: 32 MiB.
	mostHeld = 1 << 20
)

// Record is one revision of a key.
type Record struct {
	Key []byte
	// Hash of the key: two keys of a database have different ones.
	Hash uint64
	// Bytes that it takes, and those of its Value.
	Bytes, Value int64
	// APIVersion and Kind of the object of Kubernetes in it; empty for none.
	APIVersion, Kind []byte
	// Leased: it goes with a lease. Gone: the key was deleted. Written: it is from after the last compaction.
	Leased, Gone, Written bool
	// Lives is by how much it changes the number of keys, where the record alone tells.
	Lives int64
}

// Account counts revisions in the order in which they were made. What it holds in mind does not grow with a database:
// light prefixes are counted for the one above alone when there are too many.
type Account struct {
	// Midway: a compaction was not finished, so that any key may have several revisions, and Lives is not known.
	Midway bool
	// Keep is how many keys are held in mind at most.
	Keep int

	all     *node
	nodes   map[string]*node
	held    table
	waiting []waiting
	lost    bool
	leased  int64
	most    int // mostNodes, but in tests
}

// node is a prefix, with what was counted of it and of none below.
type node struct {
	v1beta1.PrefixContents

	above           *node
	below           int
	lives           int64
	apiVersion      string
	valued, mixed   bool
	pruned, spoiled bool
	refused         int
}

// New is an account of nothing.
func New() *Account {
	return &Account{all: &node{}, nodes: map[string]*node{}, most: mostNodes, Keep: mostHeld}
}

// Changes says, before any record is counted, that a key has a record from after the last compaction.
func (a *Account) Changes(hash uint64) { a.held.of(hash, a.Keep) }

// waiting is a record that is looked up in the table later, its slices not being good any more. Most of the time goes
// by waiting for memory, and a row of lookups waits for all of it at once.
type waiting struct {
	Record
	in *node
}

const atOnce = 64

// Add counts a record.
func (a *Account) Add(r Record) {
	n := a.at(r.Key)
	if !r.Gone {
		n.holds(r.APIVersion, r.Kind)
	}
	a.waiting = append(a.waiting, waiting{r, n})
	if len(a.waiting) == atOnce {
		a.flush()
	}
}

// flush counts the records that wait.
func (a *Account) flush() {
	a.held.touch(a.waiting)
	for i := range a.waiting {
		a.add(&a.waiting[i])
	}
	a.waiting = a.waiting[:0]
}

func (a *Account) add(r *waiting) {
	keep := 0
	if r.Written || a.Midway {
		keep = a.Keep
	}
	var other held // where the key is not held in mind
	is := a.held.of(r.Hash, keep)
	if is == nil {
		a.lost = a.lost || keep > 0
		is = &other
	}
	was := *is
	*is = held{marks: was.marks&^leased + revision}
	if !r.Gone {
		is.bytes = uint32(r.Bytes)
		is.marks |= uint32(one(r.Leased)) * leased
	}
	a.leased += int64(is.marks&leased) - int64(was.marks&leased)
	r.in.lives += r.Lives
	r.in.add(&v1beta1.PrefixContents{Keys: one(is.bytes > 0) - one(was.bytes > 0), Bytes: r.Bytes, Revisions: 1,
		LiveBytes: int64(is.bytes) - int64(was.bytes), Writes: one(r.Written), MostRevisions: int64(is.marks / revision),
		LargestValue: r.Value})
}

// Count adds what is known of a key without its records.
func (a *Account) Count(key []byte, of v1beta1.PrefixContents) { a.at(key).add(&of) }

// Settle lets go of what is not needed once all is counted.
func (a *Account) Settle() {
	a.flush()
	a.held = table{}
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func (n *node) add(change *v1beta1.PrefixContents) {
	n.Keys += change.Keys
	n.LiveBytes += change.LiveBytes
	n.Bytes += change.Bytes
	n.Revisions += change.Revisions
	n.Writes += change.Writes
	n.MostRevisions = max(n.MostRevisions, change.MostRevisions)
	n.LargestValue = max(n.LargestValue, change.LargestValue)
}

// holds notes what a value is; with two kinds a prefix has none.
func (n *node) holds(apiVersion, kind []byte) {
	switch {
	case n.mixed:
	case !n.valued:
		n.valued = true
		n.apiVersion = string(apiVersion)
		n.Kind = string(kind)
	case string(apiVersion) != n.apiVersion, string(kind) != n.Kind:
		n.mixed = true
	}
}

// take adds what was counted of a node below.
func (n *node) take(below *node) {
	n.add(&below.PrefixContents)
	n.lives += below.lives
	if below.valued {
		n.holds([]byte(below.apiVersion), []byte(below.Kind))
		n.mixed = n.mixed || below.mixed
	}
}

// at is the deepest prefix of a key. Mostly it is there, and then those above are not looked for.
func (a *Account) at(key []byte) *node {
	var ends [deepest]int
	parts := 0
	for from := leading(key); parts < deepest; parts++ {
		length := bytes.IndexByte(key[from:], '/')
		if length < 0 || length > longestPart {
			break
		}
		from += length + 1
		ends[parts] = from
	}
	n := a.all
	there := parts
	for ; there > 0; there-- {
		if found := a.nodes[string(key[:ends[there-1]])]; found != nil {
			n = found
			break
		}
	}
	for ; there < parts; there++ {
		from := 0
		if there > 0 {
			from = ends[there-1]
		}
		if !n.takes() || !printed(key[from:ends[there]]) {
			break
		}
		n = a.grow(n, string(key[:ends[there]]))
	}
	return n
}

// leading is 1 for a key that begins with a slash, which ends no part.
func leading(key []byte) int { return int(one(bytes.HasPrefix(key, []byte{'/'}))) }

// takes reports whether a node gets another one below. One from which some were taken gets few: what is heavy comes
// again, and each that is light costs a place.
func (n *node) takes() bool {
	if n.pruned {
		n.refused++
	}
	return n.refused%fewOf == 0
}

func printed(part []byte) bool {
	return utf8.Valid(part) && !bytes.ContainsFunc(part, func(r rune) bool { return !unicode.IsPrint(r) })
}

// grow makes a node below one.
func (a *Account) grow(above *node, prefix string) *node {
	n := &node{above: above, PrefixContents: v1beta1.PrefixContents{Prefix: prefix}}
	above.below++
	if len(a.nodes) >= a.most {
		a.prune()
	}
	// What was counted of it before, if anything, is in the one above alone.
	n.spoiled = above.pruned || above.spoiled
	a.nodes[prefix] = n
	return n
}

// prune counts the lighter half of the prefixes with none below for the one above. One that a new one is made for stays.
func (a *Account) prune() {
	a.flush()
	var weights []int64
	for _, n := range a.nodes {
		if n.below == 0 {
			weights = append(weights, n.heft())
		}
	}
	slices.Sort(weights)
	light := weights[len(weights)/2]
	var gone []*node
	for _, n := range a.nodes {
		if n.below == 0 && n.heft() <= light {
			gone = append(gone, n)
		}
	}
	for _, n := range gone {
		delete(a.nodes, n.Prefix)
		n.above.take(n)
		n.above.below--
		n.above.pruned = true
	}
}

func (n *node) heft() int64 { return n.Bytes + n.Keys + n.Writes }
