package defaults

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// The account of a member's volume: what etcd writes to it besides its database, and what is left for that. It is what
// makes the alarm NOSPACE, which reads and deletions outlive, come before the volume is full, of which etcd dies.
// test/real/conformance fills volumes and looks (TestNoSpaceComesFirst); docs/evidence/volumes.md has what it saw.

const (
	mebibyte = 1 << 20
	// files are the four files of etcd's log that are there whatever is written, of 64 MB each (SegmentSizeBytes in its
	// storage/wal/wal.go): the one that is written, the next, which is made ahead, the one in which the last snapshot
	// lies, and one that is about to be removed.
	files = 256 * mebibyte
	// pastFiles is how many requests may stand at the ends of these files, which are cut only after one that is too
	// long, and leastCount the smallest number of entries after which etcd writes a snapshot.
	pastFiles, leastCount = 4, 50
	// mostCount is etcd's own number of these.
	mostCount = 10_000
	// Of a volume, so much and a 32nd is the file system's own (ext4 and xfs, from 512Mi to 100Gi).
	fileSystem, fileSystemShare = 80 * mebibyte, 32
	// entriesShare is which part of the volume the entries may take that no snapshot covers.
	entriesShare = 8
	// snapshotFiles are those of raft, of some kilobytes each. etcd removes old ones every 30 seconds.
	snapshotFiles = 16 * mebibyte
	// leastSize is the smallest volume there is, for data as for a log.
	leastSize = 512 * mebibyte
	// LeastQuota is the smallest quota that a spec may ask for.
	LeastQuota = 16 * mebibyte
	// ownRequest is how large a request of etcd's may be by default.
	ownRequest = 3 << 19
	// MostQuota is etcd's own advice for the largest database.
	MostQuota = 8 << 30
)

// Volume is what a member writes to.
type Volume struct {
	// Size of the volume that has the database.
	Size int64
	// Log is the size of another one that has the log; 0 where it is beside the database.
	Log int64
	// Memory: it is a tmpfs, which keeps nothing for itself.
	Memory bool
}

// Room is what there is room for on a volume.
type Room struct {
	// FileSystem and Log are what these take at most of the volume with the database.
	FileSystem, Log int64
	// Quota is the largest database: there is room for it twice, as a defragmentation writes a copy, and a member that
	// was away receives one. Where neither is under way, that is where a burst of writes goes.
	Quota int64
	// SnapshotCount is after how many entries a snapshot covers what is in the log before.
	SnapshotCount int64
}

// RoomOn is the account of a volume, where a request has at most so many bytes.
func RoomOn(v Volume, request int64) Room {
	r := Room{FileSystem: keptBy(v.Size, v.Memory)}
	log := entries(v.Size, request)
	r.Log = files + log
	if v.Log > 0 {
		log = max(leastEntries(request), v.Log-keptBy(v.Log, false)-files)
		r.Log = 0
	}
	r.SnapshotCount = min(log/request-pastFiles, mostCount)
	r.Quota = max(LeastQuota, (v.Size-r.FileSystem-r.Log-snapshotFiles)/2)
	return r
}

// keptBy is what the file system of a volume keeps for itself.
func keptBy(size int64, memory bool) int64 {
	if memory {
		return 0
	}
	return fileSystem + size/fileSystemShare
}

// entries is what those may take that no snapshot covers yet, in the log beside a database.
func entries(size, request int64) int64 { return max(leastEntries(request), size/entriesShare) }

func leastEntries(request int64) int64 { return (leastCount + pastFiles) * request }

// leastVolume is the smallest volume that has room for this, in whole mebibytes: the same on every medium.
func leastVolume(room int64) int64 {
	size := (room + fileSystem) / (fileSystemShare - 1) * fileSystemShare
	return max(leastSize, (size/mebibyte+1)*mebibyte)
}

// LargestRequest is how many bytes a request may have.
func LargestRequest(o v1beta1.Options) int64 {
	if o.MaxRequestBytes != nil {
		return max(1, *o.MaxRequestBytes)
	}
	return ownRequest
}

// RoomFor is the account of volumes as the spec asks for them.
func RoomFor(s *v1beta1.EtcdClusterSpec) Room {
	size := StorageSize(s)
	v := Volume{Size: size.Value(), Memory: s.Storage.Medium == v1beta1.Memory}
	if wal := s.Storage.WAL; wal != nil {
		size = WALSize(wal)
		v.Log = size.Value()
	}
	return RoomOn(v, LargestRequest(s.Options))
}

// QuotaOn is etcd's database quota on such a volume: what is asked for, else what there is room for, and never more
// than that.
func QuotaOn(o v1beta1.Options, room Room) int64 {
	if o.QuotaBackendBytes != nil {
		return min(*o.QuotaBackendBytes, room.Quota)
	}
	return min(room.Quota, MostQuota)
}

// WALSize is the size of the volumes for write-ahead logs.
func WALSize(s *v1beta1.WALSpec) resource.Quantity {
	if s.Size.IsZero() {
		return resource.MustParse("1Gi")
	}
	return s.Size
}

// ValidateRoom refuses volumes that are full before etcd says that they are.
func ValidateRoom(s *v1beta1.EtcdClusterSpec) error {
	request := LargestRequest(s.Options)
	room := RoomFor(s)
	log := files + leastEntries(request)
	size := StorageSize(s)
	least := leastVolume(snapshotFiles + 2*LeastQuota + log)
	if wal := s.Storage.WAL; wal != nil {
		least = leastVolume(snapshotFiles + 2*LeastQuota)
		has := WALSize(wal)
		if err := tooSmall("spec.storage.wal.size", has, leastVolume(log), request); err != nil {
			return err
		}
	}
	quota := s.Options.QuotaBackendBytes
	if quota != nil && *quota > room.Quota {
		return fmt.Errorf("spec.options.quotaBackendBytes %d is more than the %d that a spec.storage.size of %s has room "+
			"for, beside etcd's log and twice, for the copy of a defragmentation: lower it, or give more storage",
			*quota, room.Quota, size.String())
	}
	return tooSmall("spec.storage.size", size, least, request)
}

// tooSmall refuses a volume below what it needs, and says how much that is.
func tooSmall(field string, has resource.Quantity, least, request int64) error {
	if has.Value() >= least {
		return nil
	}
	return fmt.Errorf("%s %s is too small: it must be at least %dMi, for etcd's log with requests of up to %d bytes, "+
		"and a small database: see "+v1beta1.Docs+"evidence/volumes.md", field, has.String(), least/mebibyte, request)
}
