// Package mirror copies the keys of an etcd to another one, one way, and goes on with each change of them.
//
//	scope.go   which keys, and what they are called at the destination
//	place.go   how far a mirror is: a key of the destination, written with the data in one transaction
//	origin.go  what is mirrored: an etcd, by a watch
//	stored.go  or what a stream has stored of one
//	shelf.go   the keys of a stored snapshot, and of the changes behind it, in their order
//	walk.go    keys in their order, page by page, and where two etcds differ
//	copy.go    the first copy, and what follows a gap
//	follow.go  from revisions to transactions
//	run.go     a mirror from its beginning to its end
//	end.go     promote and check
//	serve.go   how the mirror is, over HTTP
//
// Every transaction compares the place with what this process believes, and writes the next one. So of two processes
// one is refused, and nothing is applied twice or left out (docs/decisions/0042-stream.md).
package mirror

import (
	"slices"
	"strings"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// Reserved is the prefix of the places of mirrors, in every etcd. Nothing below it is mirrored.
const Reserved = "/quorate.dev/mirror/"

// Scope says which keys are mirrored.
type Scope struct {
	// Prefix of the keys at the source; empty for all. ToPrefix takes its place at the destination.
	Prefix   string `json:"prefix"`
	ToPrefix string `json:"toPrefix"`
	// Exclude are prefixes of keys at the source that are not mirrored. What is there at the destination is left alone.
	Exclude []string `json:"exclude,omitempty"`
}

// MostExcluded is how many prefixes can be excluded: each is a comparison in the first transaction, of which etcd takes
// 128.
const MostExcluded = 100

// Check says what is wrong with a scope; nil for nothing.
func (s Scope) Check() error {
	for _, prefix := range append([]string{s.Prefix, s.ToPrefix}, s.Exclude...) {
		if !utf8.ValidString(prefix) {
			return archive.OwnWords("a prefix must be UTF-8")
		}
	}
	if len(s.Exclude) > MostExcluded {
		return archive.OwnWords("at most %d prefixes can be excluded", MostExcluded)
	}
	for _, prefix := range s.Exclude {
		if !strings.HasPrefix(prefix, s.Prefix) || prefix == s.Prefix {
			return archive.OwnWords("what is excluded must begin with the prefix that is mirrored, and be longer")
		}
	}
	if strings.HasPrefix(s.Prefix, Reserved) || strings.HasPrefix(s.ToPrefix, Reserved) {
		return archive.OwnWords("keys below %s are never mirrored", Reserved)
	}
	return nil
}

func (s Scope) same(other Scope) bool {
	return s.Prefix == other.Prefix && s.ToPrefix == other.ToPrefix && slices.Equal(s.Exclude, other.Exclude)
}

// holes are the prefixes at the source that are not mirrored, in their order and none within another.
func (s Scope) holes() []string {
	all := append(slices.Clone(s.Exclude), Reserved)
	if rest, below := strings.CutPrefix(Reserved, s.ToPrefix); below { // it would be written below Reserved
		all = append(all, s.Prefix+rest)
	}
	slices.Sort(all)
	var holes []string
	for _, hole := range all {
		within := len(holes) > 0 && strings.HasPrefix(hole, holes[len(holes)-1])
		if strings.HasPrefix(hole, s.Prefix) && !within {
			holes = append(holes, hole)
		}
	}
	return holes
}

// to is what a key of the source is called at the destination; mirrored tells whether it is there at all.
func (s Scope) to(key string, holes []string) (name string, mirrored bool) {
	rest, mirrored := strings.CutPrefix(key, s.Prefix)
	hidden := func(hole string) bool { return strings.HasPrefix(key, hole) }
	if name = s.ToPrefix + rest; !mirrored || name == "" || slices.ContainsFunc(holes, hidden) {
		return "", false
	}
	return name, true
}

// span are the keys from one to before another, as etcd's Range has it: "\x00" as the end is that of all keys.
type span struct{ from, end string }

const noEnd = "\x00"

func (a span) touches(b span) bool {
	return (b.end == noEnd || a.from < b.end) && (a.end == noEnd || b.from < a.end)
}

// spans are the mirrored keys of the source. One that would have no name at the destination is not among them.
func (s Scope) spans() []span {
	all := spansOf(s.Prefix, s.holes())
	if s.ToPrefix == "" && s.Prefix != "" && len(all) > 0 && all[0].from == s.Prefix {
		all[0].from += "\x00"
	}
	return all
}

// toSpans are the same at the destination.
func (s Scope) toSpans() []span {
	holes := s.holes()
	for i, hole := range holes {
		holes[i] = s.ToPrefix + strings.TrimPrefix(hole, s.Prefix)
	}
	return spansOf(s.ToPrefix, holes)
}

func spansOf(prefix string, holes []string) (all []span) {
	from := prefix
	end := clientv3.GetPrefixRangeEnd(prefix)
	if from == "" {
		from = "\x00"
	}
	for _, hole := range holes {
		if from < hole {
			all = append(all, span{from, hole})
		}
		if from = clientv3.GetPrefixRangeEnd(hole); from == noEnd {
			return all
		}
	}
	if end == noEnd || from < end {
		all = append(all, span{from, end})
	}
	return all
}

// touches reports whether two mirrors write the same keys.
func (s Scope) touches(other Scope) bool {
	return slices.ContainsFunc(s.toSpans(), func(a span) bool {
		return slices.ContainsFunc(other.toSpans(), a.touches)
	})
}
