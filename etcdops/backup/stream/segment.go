// Package stream keeps the changes of an etcd behind a snapshot in a store, so that a restore can end at any revision.
//
//	segment.go   the format: some revisions of one cluster, whole
//	keys.go      by what segments and heads are signed
//	chain.go     which segments there are, and which of them follow on each other without a gap
//	receive.go   a watch of all keys, as whole revisions
//	write.go     from revisions to segments in a store
//	inspection.go    what a watch does not show: leases, users, hashes
//	prune.go     which segments no restore needs any more
//	serve.go     how the stream is, over HTTP
//	writes.go    who writes, by prefix and hour
//
// etcd's revisions have no gaps: each has at least one event (storeTxnWrite.End in etcd's package mvcc raises the
// revision only with changes). So revisions that follow on each other are complete, and nothing else is needed to know:
// a segment that is signed tells its cluster, its revisions and what is before them, so that none can be left out,
// repeated, cut off or put elsewhere without being noticed. Where the last one ends the head tells.
package stream

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// format is the only one so far.
const format = 1

// Header is the first line of a segment, in JSON. What follows are records: a mvccpb.Event each (api/mvccpb/kv.proto)
// behind its length, as protobuf writes messages in a row, in the order of revisions and within one as etcd counts
// (main and sub of its revision). A length of 0 ends them, and the SHA-256 of all before follows. It ends the segment,
// or the MAC of it does where the stream has keys.
type Header struct {
	Format int `json:"format"`
	// ClusterID in hexadecimal.
	ClusterID string `json:"clusterID"`
	// First and Last revision; Events in them.
	First  int64 `json:"first"`
	Last   int64 `json:"last"`
	Events int64 `json:"events"`
	// Times say when revisions had arrived, by the clock of the stream; the last one is of Last.
	Times []Mark `json:"times"`
	// AuthRevision of users and roles, read once all up to UsersAt had arrived. That is Last, or less where etcd did
	// not answer then, as without a quorum: whether users have changed in between is not known.
	AuthRevision int64 `json:"authRevision,omitempty"`
	UsersAt      int64 `json:"usersAt,omitempty"`
	// Before is the SHA-256 of the records of revision First - 1 in hexadecimal; empty when they were not seen.
	Before string `json:"before,omitempty"`
	// Leases that there were, and a Hash of the keys; of some revision near by, and not in each segment.
	Leases *Leases `json:"leases,omitempty"`
	Hash   *Hash   `json:"hash,omitempty"`
}

// Mark says that all up to a revision had arrived at a time: it was written before.
type Mark struct {
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
}

// Leases are those of a member, listed at some moment: etcd copies the list before it reads the revision that it
// answers with (LeaseLeases in its server/etcdserver/v3_server.go), so that leases which were granted and attached in
// between are not in it.
type Leases struct {
	// Since is the revision of the member before it was asked: a lease that is not listed may have been attached behind
	// it, and be there. Revision is that of the answer: one that was attached up to Since and is not listed was gone by
	// then, with its keys.
	Since    int64 `json:"since"`
	Revision int64 `json:"revision"`
	// TTL that was granted, in seconds, by ID; 0 when it is not known.
	TTL map[int64]int64 `json:"ttl"`
}

// Hash is what HashKV answers for a revision (rpc.proto); in hexadecimal.
type Hash struct {
	Revision        int64  `json:"revision"`
	CompactRevision int64  `json:"compactRevision"`
	Hash            string `json:"hash"`
}

// Segment is one that was read, or is being made.
type Segment struct {
	Header
	// Name in its folder, of one that was read.
	Name    string
	records []byte
	// referred are the leases of keys in it, while it is made.
	referred map[int64]struct{}
}

// Arrived is when all of it had arrived.
func (h *Header) Arrived() time.Time {
	if len(h.Times) == 0 {
		return time.Time{}
	}
	return h.Times[len(h.Times)-1].At
}

// Until is the last revision that had arrived at a time; 0 when none had.
func (h *Header) Until(at time.Time) (revision int64) {
	for _, m := range h.Times {
		if m.At.After(at) {
			break
		}
		revision = m.Revision
	}
	return revision
}

// When is when a revision of it had arrived: it was written before.
func (h *Header) When(revision int64) time.Time {
	for _, m := range h.Times {
		if m.Revision >= revision {
			return m.At
		}
	}
	return time.Time{}
}

// encode is the segment as it is stored, before compression and encryption.
func (s *Segment) encode(keys Keys) ([]byte, error) {
	line, err := json.Marshal(s.Header)
	if err != nil {
		return nil, err
	}
	whole := make([]byte, 0, len(line)+len(s.records)+2+2*sha256.Size)
	whole = append(append(append(whole, line...), '\n'), s.records...)
	whole = append(whole, 0)
	sum := sha256.Sum256(whole)
	return append(append(whole, sum[:]...), keys.sign(ofSegment, sum[:])...), nil
}

// Errors of a segment. What is in it is not repeated.
var (
	errNotWhole = archive.OwnWords("it does not end with the SHA-256 of what it holds")
	errUnsigned = archive.OwnWords("no key of the stream has signed it: others have put it there, or its key is gone")
	errHeader   = archive.OwnWords("its first line can't be read")
	errFormat   = archive.OwnWords("it was written by a later version of Quorate")
	errRecords  = archive.OwnWords("its records are not those of the revisions that its first line tells")
	errAnother  = archive.OwnWords("its revisions are not those of its name, or it is of another cluster")
)

// A first line has a mark for each second at most, and the leases that there are. What is read of it takes ten times
// its size.
const longestLine, mostObjects, mostLeases = 8 << 20, 64 << 10, 200_000

func small(line []byte) bool {
	return len(line) <= longestLine && bytes.Count(line, []byte{'{'}) <= mostObjects
}

// parts are the content of a segment, its SHA-256 and the MAC of that, which may be empty.
func parts(whole []byte) (content, sum, mac []byte, err error) {
	for _, signed := range []int{0, sha256.Size} {
		size := len(whole) - sha256.Size - signed
		if size < 1 {
			break
		}
		content = whole[:size]
		sum = whole[size:][:sha256.Size]
		mac = whole[size+sha256.Size:]
		if is := sha256.Sum256(content); bytes.Equal(is[:], sum) {
			return content, sum, mac, nil
		}
	}
	return nil, nil, nil, errNotWhole
}

// decode reads a segment that one of the keys has signed. Its records are checked by Each.
func decode(whole []byte, keys Keys) (*Segment, error) {
	content, sum, mac, err := parts(whole)
	if err != nil {
		return nil, err
	}
	if !keys.signed(ofSegment, sum, mac) {
		return nil, errUnsigned
	}
	line, records, found := bytes.Cut(content, []byte{'\n'})
	s := &Segment{}
	if !found || !small(line) || json.Unmarshal(line, &s.Header) != nil {
		return nil, errHeader
	}
	if s.Format != format {
		return nil, errFormat
	}
	if s.First < 1 || s.Last < s.First || len(records) == 0 || records[len(records)-1] != 0 {
		return nil, errRecords
	}
	s.records = records[:len(records)-1]
	return s, nil
}

// Change is one record of etcd's bucket key (server/storage/mvcc/revision.go and kvstore_txn.go): its revision counts
// the transactions, Sub the changes within one.
type Change struct {
	Revision, Sub int64
	// Deleted: the record is a tombstone.
	Deleted bool
	// Key that was changed, Value of the record: a mvccpb.KeyValue. Lease of the key; 0 for none.
	Key, Value []byte
	Lease      int64
	// raw is the event.
	raw []byte
}

// Each tells all changes, in their order. They are valid until it returns. An error may come after some were told.
func (s *Segment) Each(tell func(Change) error) error {
	revision := s.First - 1
	sub := int64(0)
	events := int64(0)
	for rest := s.records; len(rest) > 0; events++ {
		raw, n := protowire.ConsumeBytes(rest)
		if n < 0 {
			return errRecords
		}
		rest = rest[n:]
		c, ok := changeOf(raw)
		switch {
		case !ok:
			return errRecords
		case c.Revision == revision && revision >= s.First:
			sub++
		case c.Revision == revision+1:
			revision = c.Revision
			sub = 0
		default:
			return errRecords
		}
		c.Sub = sub
		if err := tell(c); err != nil {
			return err
		}
	}
	if revision != s.Last || events != s.Events {
		return errRecords
	}
	return nil
}

// Fields of mvccpb.Event and mvccpb.KeyValue (api/mvccpb/kv.proto).
const (
	fieldType        protowire.Number = 1
	fieldKV          protowire.Number = 2
	fieldKey         protowire.Number = 1
	fieldModRevision protowire.Number = 3
	fieldLease       protowire.Number = 6
	typeDelete                        = 1
)

// changeOf reads an event. etcd writes an event's KeyValue as it is into its database, and of a deleted key the key
// alone (delete in kvstore_txn.go).
func changeOf(raw []byte) (c Change, ok bool) {
	c.raw = raw
	var kind uint64
	ok = fields(raw, func(field protowire.Number, number uint64, text []byte) {
		switch field {
		case fieldType:
			kind = number
		case fieldKV:
			c.Value = text
		default:
		}
	})
	ok = ok && kind <= typeDelete && fields(c.Value, func(field protowire.Number, number uint64, text []byte) {
		switch field {
		case fieldKey:
			c.Key = text
		case fieldModRevision:
			c.Revision = int64(number)
		case fieldLease:
			c.Lease = int64(number)
		default:
		}
	})
	if kind == typeDelete {
		c.Deleted = true
		c.Lease = 0
		c.Value = protowire.AppendBytes(protowire.AppendTag(nil, fieldKey, protowire.BytesType), c.Key)
	}
	return c, ok && len(c.Key) > 0
}

// fields tells the fields of a message that are numbers or texts.
func fields(message []byte, tell func(field protowire.Number, number uint64, text []byte)) bool {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		var number uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(message)
		default:
			return false // neither message has others
		}
		if n < 0 {
			return false
		}
		message = message[n:]
		tell(field, number, text)
	}
	return true
}

// Sum is the SHA-256 of the records of one revision, in hexadecimal, as Header.Before has it.
type Sum struct {
	revision int64
	hash     hash.Hash
}

// Add takes the next change.
func (s *Sum) Add(c Change) {
	if s.hash == nil || c.Revision != s.revision {
		s.revision = c.Revision
		s.hash = sha256.New()
	}
	var length [binary.MaxVarintLen64]byte
	s.hash.Write(protowire.AppendVarint(length[:0], uint64(len(c.raw))))
	s.hash.Write(c.raw)
}

// AddRecord takes the next record of a revision from a database: a mvccpb.KeyValue.
func (s *Sum) AddRecord(revision int64, deleted bool, value []byte) {
	var event []byte
	if deleted { // of a deleted key etcd tells the revision, too (kvsToEvents in its mvcc/watchable_store.go)
		event = protowire.AppendVarint(protowire.AppendTag(event, fieldType, protowire.VarintType), typeDelete)
		value = protowire.AppendTag(bytes.Clone(value), fieldModRevision, protowire.VarintType)
		value = protowire.AppendVarint(value, uint64(revision))
	}
	event = protowire.AppendBytes(protowire.AppendTag(event, fieldKV, protowire.BytesType), value)
	s.Add(Change{Revision: revision, raw: event})
}

// Of is the sum of the revision that was added last; empty without any.
func (s *Sum) Of() string {
	if s.hash == nil {
		return ""
	}
	return hex.EncodeToString(s.hash.Sum(nil))
}

func sumOf(records []byte) string {
	sum := sha256.Sum256(records)
	return hex.EncodeToString(sum[:])
}
