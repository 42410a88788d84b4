package seed

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// entryLog is what a write-ahead log says besides its entries.
type entryLog struct {
	clusterID, memberID uint64
	// lastTerm and lastIndex are those of the last entry, or of a later snapshot that the leader sent.
	lastTerm, lastIndex uint64
	commit              uint64
	// snapshots are the indexes of those that the log mentions.
	snapshots []uint64
}

// newestSnapshot that etcd would start from: it takes none beyond what it knew to be committed
// (wal.ValidSnapshotEntries).
func (l *entryLog) newestSnapshot() uint64 {
	var newest uint64
	for _, index := range l.snapshots {
		if index <= l.commit {
			newest = max(newest, index)
		}
	}
	return newest
}

// readLog reads the log in a directory record by record and passes on each entry after an index, in the order of the
// file: one with an index that was there before takes the place of that one and of all behind it. Nothing is changed
// and no more than one record is in memory, which is why it is not done by wal.ReadAll. What etcd would do without is
// no error: an end that was torn when the power went (wal.Repair), and files that end before the index.
func readLog(dir string, after uint64, each func(*raftpb.Entry) error) (*entryLog, error) {
	names, err := logFiles(dir, after)
	if err != nil {
		return nil, err
	}
	l := &entryLog{}
	var sum uint32
	for i, name := range names {
		sum, err = l.readFile(filepath.Join(dir, name), sum, func(e *raftpb.Entry) error {
			if e.GetIndex() <= after || each == nil {
				return nil
			}
			return each(e)
		})
		torn := i == len(names)-1 && errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !torn {
			return nil, damagedLog(filepath.Join(dir, name), err)
		}
	}
	if l.memberID == 0 {
		return nil, failure(damaged, nil, "the write-ahead log in %s does not say whose it is: it holds no record "+
			"that can be read", dir)
	}
	return l, nil
}

func damagedLog(path string, err error) error {
	if archive.Reasoned(err) {
		return err
	}
	if errors.Is(err, wal.ErrCRCMismatch) || errors.Is(err, walpb.ErrCRCMismatch) {
		err = archive.OwnWords("a checksum in it is wrong")
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return failure(failed, err, "the write-ahead log %s can't be read", path)
	}
	return failure(damaged, err, "the write-ahead log %s is damaged before its end: etcd would not start on it "+
		"either; use another member or a snapshot", path)
}

// logFiles are the names of the files that hold the entries after an index, in order. etcd names them by their number
// and the index of their first entry.
func logFiles(dir string, after uint64) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, failure(failed, err, "the directory of the write-ahead log can't be read")
	}
	var names []string
	var numbers []uint64
	first := 0
	for _, entry := range entries { // sorted by name
		var number, index uint64
		if n, err := fmt.Sscanf(entry.Name(), "%016x-%016x.wal", &number, &index); n != 2 || err != nil ||
			filepath.Ext(entry.Name()) != ".wal" {
			continue
		}
		if index <= after {
			first = len(names)
		}
		names = append(names, entry.Name())
		numbers = append(numbers, number)
	}
	if len(names) == 0 {
		return nil, failure(notFound, nil, "%s holds no write-ahead log: no etcd has run there, or its data is lost",
			dir)
	}
	names = names[first:]
	numbers = numbers[first:]
	for i := range numbers {
		if numbers[i] != numbers[0]+uint64(i) {
			return nil, failure(damaged, nil, "the write-ahead log in %s does not have the file before %s", dir,
				names[i])
		}
	}
	return names, nil
}

// readFile reads one file; each file begins with the checksum of all that comes before.
func (l *entryLog) readFile(path string, sum uint32, each func(*raftpb.Entry) error) (uint32, error) {
	file, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	decoder := wal.NewDecoder(fileutil.NewFileReader(file))
	decoder.UpdateCRC(sum)
	for {
		record := &walpb.Record{}
		if err := decoder.Decode(record); errors.Is(err, io.EOF) {
			return decoder.LastCRC(), nil
		} else if err != nil {
			return decoder.LastCRC(), err
		}
		if record.GetType() == wal.CrcType {
			if before := decoder.LastCRC(); before != 0 && record.Validate(before) != nil {
				return before, wal.ErrCRCMismatch
			}
			decoder.UpdateCRC(record.GetCrc())
			continue
		}
		if err := l.take(record, each); err != nil {
			return decoder.LastCRC(), err
		}
	}
}

// take notes what a record says.
func (l *entryLog) take(record *walpb.Record, each func(*raftpb.Entry) error) error {
	switch record.GetType() {
	case wal.MetadataType:
		var whose etcdserverpb.Metadata
		if err := proto.Unmarshal(record.GetData(), &whose); err != nil {
			return err
		}
		l.clusterID = whose.GetClusterID()
		l.memberID = whose.GetNodeID()
	case wal.StateType:
		var state raftpb.HardState
		if err := proto.Unmarshal(record.GetData(), &state); err != nil {
			return err
		}
		l.commit = state.GetCommit()
	case wal.EntryType:
		entry := &raftpb.Entry{}
		if err := proto.Unmarshal(record.GetData(), entry); err != nil {
			return err
		}
		l.lastTerm = entry.GetTerm()
		l.lastIndex = entry.GetIndex()
		return each(entry)
	case wal.SnapshotType:
		var snapshot walpb.Snapshot
		if err := proto.Unmarshal(record.GetData(), &snapshot); err != nil {
			return err
		}
		if !slices.Contains(l.snapshots, snapshot.GetIndex()) {
			l.snapshots = append(l.snapshots, snapshot.GetIndex())
		}
		if snapshot.GetIndex() > l.lastIndex {
			l.lastTerm = snapshot.GetTerm()
			l.lastIndex = snapshot.GetIndex()
		}
	default:
		return archive.OwnWords("a record of type %d, which is unknown", record.GetType())
	}
	return nil
}
