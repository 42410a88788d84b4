package defaults

import (
	"sort"
	"time"
)

// The account of a load: how large a database becomes, and what that asks of the volume, whose account is in room.go,
// and of memory. test/real/conformance (growth_test.go) holds it against a real etcd. `kubectl quorate size`, the table
// of docs/how-to/size.md and the samples have their numbers from here.

const (
	// A page of bbolt's has the kernel's size, and 16 bytes of its own. A leaf is cut at nine tenths (FillPercent in
	// etcd's storage/backend), and has two values at least, however large (MinKeysPerPage in bbolt's
	// internal/common/page.go).
	page, pageHead = 4096, 16
	filled         = page*9/10 - pageHead
	fewest         = 2
	// aroundValue is what a revision has beside its key and value: 16 bytes of bbolt's, 17 of the revision's number,
	// and up to 40 of the message (KeyValue in etcd's api/mvccpb).
	aroundValue = 16 + 17 + 40
	// What a compaction leaves of pages is joined only below a quarter (rebalance in bbolt's node.go): where keys are
	// written over at random, they were measured to take up to 1.9 times as much as at first. History lies in full
	// pages; a quarter more is for pages that are free, or are not yet, and for the tree above them.
	livePages         = 2
	pastOf, pastParts = 5, 4

	// A key takes some 200 bytes of etcd's index, a revision 16 in a list that grows by doubling (keyIndex in etcd's
	// storage/mvcc). Go's heap is let grow to twice what is in use.
	indexKey, indexRevision, heap = 200, 32, 2
	// catchUp is how many entries etcd keeps in memory behind its last snapshot (SnapshotCatchUpEntries).
	catchUp, aroundEntry = 5000, 100
	// program is etcd without data.
	program = 64 * mebibyte

	// LargestValue is how large a key may be with its value: a request has something around them.
	LargestValue = ownRequest - 1024

	gibibyte   = 1 << 30
	memoryStep = 256 * mebibyte
	// looks of periodic compaction, from one to the next.
	looks = 10
	// nearQuota: a database that fills more of its quota is defragmented (BelowQuota in hooks/facts).
	nearQuota, nearQuotaOf = 9, 10
)

// Load is what clients do to a cluster.
type Load struct {
	// Keys that there are, and how many bytes one has with its value.
	Keys, Value int64
	// Writes in a second, with those of keys that are there.
	Writes int64
	// History is the retention of periodic compaction: how far back clients can read and watch.
	History time.Duration
}

// Need is what a load asks of each member.
type Need struct {
	// Live is what the keys take of the database, and Past what the revisions before take.
	Live, Past int64
	// Volume is the smallest in whole GiB with room for that, and Quota what it gives: no more than etcd suggests,
	// unless that is too little.
	Volume, Quota int64
	// Memory is the quota, etcd's Index of keys and revisions, and Fixed, in steps of 256 MiB. Fixed is the program,
	// and the entries of the log that it keeps.
	Memory, Index, Fixed int64
}

// Need of this load, on a volume that has data and log.
func (l Load) Need() Need {
	revisions := l.Writes * int64(Kept(l.History)/time.Second)
	n := Need{Live: LiveBytes(l.Keys, l.Value), Past: PastBytes(revisions, l.Value)}
	wanted := n.Database() / nearQuota * nearQuotaOf
	enough := func(i int) bool { return roomOf(gibibyte*int64(i+1)).Quota >= wanted }
	n.Volume = gibibyte * int64(1+sort.Search(1<<32, enough))
	room := roomOf(n.Volume)
	n.Quota = min(room.Quota, max(MostQuota, wanted))
	n.Index = heap * (l.Keys*indexKey + (l.Keys+revisions)*indexRevision)
	n.Fixed = program + heap*(room.SnapshotCount+catchUp)*(l.Value+aroundEntry)
	n.Memory = (n.Quota + n.Index + n.Fixed + memoryStep - 1) / memoryStep * memoryStep
	return n
}

func roomOf(volume int64) Room { return RoomOn(Volume{Size: volume}, ownRequest) }

// Database is how large the file becomes.
func (n *Need) Database() int64 { return n.Live + n.Past }

// Growth is how many times the keys and writes could be, until the volume is too small, the memory, and the largest
// quota that etcd suggests.
func (n *Need) Growth() (disk, memory, quota float64) {
	times := func(quota int64) float64 { return float64(quota/nearQuotaOf*nearQuota) / float64(n.Database()) }
	return times(roomOf(n.Volume).Quota), float64(n.Memory-n.Quota-n.Fixed) / float64(n.Index), times(MostQuota)
}

// Kept is of how long etcd has the revisions, at most, with periodic compaction. Run in its
// etcdserver/api/v3compactor/periodic.go looks at the revision ten times in the retention, and ten times an hour where
// that is longer. Each tenth time it compacts, to the revision that is older than the retention by one look. And a
// member that has started compacts nothing for one retention: when it leads, so much more is kept.
func Kept(retention time.Duration) time.Duration {
	look := min(retention, time.Hour) / looks
	start := (retention + look - 1) / look * look
	return retention + look + looks*look + start
}

// LiveBytes are what so many keys take of a database.
func LiveBytes(keys, value int64) int64 { return keys * inPages(value) * livePages }

// PastBytes are what so many revisions take that are not compacted yet.
func PastBytes(revisions, value int64) int64 { return revisions * inPages(value) / pastParts * pastOf }

// inPages is what one revision takes of full pages.
func inPages(value int64) int64 {
	element := value + aroundValue
	together := max(fewest, filled/element)
	pages := (pageHead + together*element + page - 1) / page
	return pages * page / together
}
