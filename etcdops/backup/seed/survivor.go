package seed

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/lone"
	"github.com/quorate-dev/quorate/etcdops/backup/pages"
)

// solo is the cluster of one in which a survivor's database and log are brought together.
var solo = member{name: lone.Name, peerURL: lone.Peer, initialCluster: lone.Cluster, token: lone.Token}

// soloBegins is the last entry that etcdutl writes into the log of a cluster of one: its member.
const soloBegins = 1

// together makes one database of what a survivor has: a copy of its own, which may lack the last moments, and all
// entries of its log after that. An entry that the member did not know to be committed is among them: those who are
// gone may have acknowledged it.
//
// The entries are given to a cluster of one, that etcdutl makes of a copy of the database, as committed; etcd applies
// them. That cluster has never known the others: etcd's own --force-new-cluster begins by dialling them, forgets
// entries that were not known to be committed, and has no voter left when the survivor is a learner.
// docs/decisions/0019-seeds.md has the whole story.
//
// The cluster of one runs in the directory that is being made. Only its database is left there.
func (s *survivor) together(ctx context.Context, p Programs, in staged) error {
	if _, err := p.make(ctx, in, solo, 0); err != nil {
		return err
	}
	last, err := s.appendTo(in.log())
	if err == nil && last > soloBegins {
		err = applied(ctx, p, in, last)
	}
	if err != nil {
		return err
	}
	return keepDatabase(in)
}

// tail is how many bytes the entries have that are not in the database, and whether one of them changes what is there.
func (s *survivor) tail() (bytes int64, changes bool, err error) {
	last := s.db.index
	_, err = readLog(s.walDir, s.db.index, func(e *raftpb.Entry) error {
		if e.GetIndex() > last+1 {
			return failure(damaged, nil, "the log continues at entry %d, but the database and the log end at %d: use "+
				"another member or a snapshot", e.GetIndex(), last)
		}
		last = e.GetIndex()
		bytes += int64(len(e.GetData())) + entryOverhead
		changes = changes || len(changeIn(e)) > 0
		return nil
	})
	return bytes, changes, err
}

// changeIn is what an entry changes in the data; empty for nothing.
func changeIn(e *raftpb.Entry) []byte {
	if e.GetType() != raftpb.EntryNormal || aboutMembers(e.GetData()) {
		return nil
	}
	return e.GetData()
}

// entryOverhead is what an entry takes in the log beside its data, rounded up: its term and index, a checksum, and
// padding (encode in wal/encoder.go).
const entryOverhead = 64

// applied has etcd apply the log until an entry.
func applied(ctx context.Context, p Programs, in staged, last uint64) (err error) {
	sockets, err := os.MkdirTemp("", "quorate-") // a short name: see lone.Etcd
	if err != nil {
		return failure(failed, err, "the directory for etcd's sockets can't be created")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(sockets)) }()
	if err := p.replay(ctx, in, sockets, last); err != nil {
		return err
	}
	made, err := readDatabase(in.database())
	if err == nil && made.index < last {
		err = failure(failed, nil, "etcd had applied entry %d of %d when it was stopped", made.index, last)
	}
	return err
}

// keepDatabase removes all except for the database.
func keepDatabase(in staged) error {
	others, err := filepath.Glob(filepath.Join(filepath.Dir(in.database()), "*"))
	for _, path := range append(others, in.log()) {
		if path != in.database() {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	if err != nil {
		return failure(failed, err, "the log of the cluster of one can't be removed")
	}
	return nil
}

// copyFile copies a file, unless the context ends.
func copyFile(ctx context.Context, from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return failure(failed, err, "the survivor's database can't be read")
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return written(err, to)
	}
	for at := int64(0); err == nil && ctx.Err() == nil; {
		var n int64
		n, err = io.CopyN(target, source, 16<<20)
		pages.WriteOut(target, at, n)
		at += n
	}
	closed := target.Close()
	switch {
	case err == nil:
		return failure(failed, nil, "ended while the survivor's database was copied")
	case errors.Is(err, io.EOF):
		return written(closed, to)
	case full(err):
		return written(err, to)
	}
	return failure(failed, err, "the survivor's database can't be copied to %s", to)
}

// appendTo gives the survivor's entries after those in its database to the log of a cluster of one, as committed, and
// returns the last one's index there.
func (s *survivor) appendTo(walDir string) (last uint64, err error) {
	w, err := wal.Open(zap.NewNop(), walDir, &walpb.Snapshot{Index: new(uint64(soloBegins)), Term: new(uint64(1))})
	if err != nil {
		return 0, failure(failed, err, "the log that etcdutl created can't be opened")
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	w.SetUnsafeNoFsync()
	_, state, _, err := w.ReadAll()
	if err != nil {
		return 0, failure(failed, err, "the log that etcdutl created can't be read")
	}
	t := &transcript{wal: w, state: state, begins: s.db.index, last: s.db.index}
	if _, err := readLog(s.walDir, s.db.index, t.take); err != nil {
		return 0, err
	}
	return t.end()
}

// transcript writes entries of one log to another, from a later point on.
type transcript struct {
	wal    *wal.WAL
	state  *raftpb.HardState
	begins uint64
	last   uint64
	batch  []*raftpb.Entry
	size   int
}

// batchSize is how many bytes of entries are in memory at once; an entry has some 1.5 MiB at most.
const batchSize = 4 << 20

func (t *transcript) take(e *raftpb.Entry) error {
	t.last = e.GetIndex()
	// All of one term: which one it was says nothing any more.
	copied := &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Term: t.state.Term, Index: new(e.GetIndex() - t.begins +
		soloBegins), Data: changeIn(e)}
	t.batch = append(t.batch, copied)
	t.size = t.size + len(copied.GetData())
	if t.size < batchSize {
		return nil
	}
	return t.write(&raftpb.HardState{})
}

func (t *transcript) write(state *raftpb.HardState) error {
	if err := t.wal.Save(state, t.batch); err != nil {
		return written(err, "the copy of the survivor's log")
	}
	t.batch = nil
	t.size = 0
	return nil
}

func (t *transcript) end() (uint64, error) {
	state := proto.Clone(t.state).(*raftpb.HardState)
	state.Commit = new(t.last - t.begins + soloBegins)
	return state.GetCommit(), t.write(state)
}

// clusterFields are those of etcd's InternalRaftRequest (api/v3/etcdserverpb/raft_internal.proto) that are about the
// cluster instead of its data: v2, cluster_version_set, cluster_member_attr_set, downgrade_info_set.
var clusterFields = []protowire.Number{2, 1300, 1301, 1302}

// aboutMembers reports whether a request in the log is about the cluster that is over: etcd would look for members
// there that the new one does not have. The same goes for requests of API 2, by which 3.5 writes what members are
// called; 3.7 can't read them at all. They are messages of another type, in which field 2 is a word such as PUT.
func aboutMembers(request []byte) bool {
	for len(request) > 0 {
		field, kind, n := protowire.ConsumeTag(request)
		if n < 0 {
			return false
		}
		if slices.Contains(clusterFields, field) {
			return true
		}
		if request = request[n:]; len(request) > 0 {
			if n = protowire.ConsumeFieldValue(field, kind, request); n < 0 {
				return false
			}
			request = request[n:]
		}
	}
	return false
}

// emptyDir makes an empty directory in place of what was there.
func emptyDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o700)
}
