package seed

import (
	"encoding/json"
	"slices"
	"strconv"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// mostElectorates is how many a report has room for, which is 4096 bytes. A log hardly ever ends with even one change
// of members that is not known to be committed.
const mostElectorates = 8

// electorates are the names of all members by ID in hexadecimal, and the sets of IDs whose votes may count: those by
// the last change that is known to be committed, and by each that may be. Both are nil when that can't be told.
//
// Whatever was acknowledged before a change that is committed is in the log of everyone who could lead after it, so
// what counted before that says nothing more (section 4.1 of the raft dissertation).
func (s *survivor) electorates() (names map[string]string, sets [][]string) {
	list, err := listIn(s.db.path)
	if err != nil {
		return nil, nil
	}
	members := map[uint64]Listed{}
	names = map[string]string{}
	note := func() {
		for id, m := range members {
			names[strconv.FormatUint(id, 16)] = m.Name
		}
		for _, set := range [][]string{voters(members, false), voters(members, true)} {
			if !slices.ContainsFunc(sets, func(old []string) bool { return slices.Equal(old, set) }) {
				sets = append(sets, set)
			}
		}
	}
	for _, m := range list {
		members[m.ID] = m
	}
	changes, err := s.changes()
	committed := 0
	for ; err == nil && committed < len(changes) && changes[committed].index <= s.log.commit; committed++ {
		err = changes[committed].apply(members)
	}
	note()
	for _, change := range changes[committed:] {
		if err == nil {
			err = change.apply(members)
			note()
		}
	}
	if err != nil || len(sets) > mostElectorates {
		return nil, nil
	}
	return names, sets
}

// voters are the IDs of members, with learners or without, sorted. etcd 3.5.1 to 3.5.19 do not write to the database
// that a learner became a voter (etcd-io/etcd#19557), so those that it calls learners may vote: what is known of a
// majority of all has to be known too.
func voters(members map[uint64]Listed, learners bool) []string {
	set := []string{}
	for id, m := range members {
		if learners || !m.Learner {
			set = append(set, strconv.FormatUint(id, 16))
		}
	}
	slices.Sort(set)
	return set
}

// changeOfMembers is what an entry of the log does to the list of members (ConfigChangeContext in etcd's
// server/etcdserver/api/membership/cluster.go).
type changeOfMembers struct {
	index  uint64
	change *raftpb.ConfChange
}

// changes are those in the log behind the database, in order.
func (s *survivor) changes() ([]changeOfMembers, error) {
	var list []changeOfMembers
	_, err := readLog(s.walDir, s.db.index, func(e *raftpb.Entry) error {
		// an entry takes the place of the one with its index and of all behind that
		list = slices.DeleteFunc(list, func(old changeOfMembers) bool { return old.index >= e.GetIndex() })
		switch e.GetType() {
		case raftpb.EntryNormal:
			return nil
		case raftpb.EntryConfChange:
		default:
			return archive.OwnWords("an entry of type %s, by which etcd changes no members", e.GetType())
		}
		change := &raftpb.ConfChange{}
		if err := proto.Unmarshal(e.GetData(), change); err != nil {
			return err
		}
		list = append(list, changeOfMembers{e.GetIndex(), change})
		return nil
	})
	return list, err
}

func (c *changeOfMembers) apply(members map[uint64]Listed) error {
	id := c.change.GetNodeId()
	what := c.change.GetType()
	if what == raftpb.ConfChangeType_ConfChangeRemoveNode {
		delete(members, id)
		return nil
	}
	if what == raftpb.ConfChangeType_ConfChangeUpdateNode {
		return nil // its URLs
	}
	var m Listed
	if err := json.Unmarshal(c.change.GetContext(), &m); err != nil {
		return err
	}
	m.Learner = what == raftpb.ConfChangeType_ConfChangeAddLearnerNode
	if old, known := members[id]; known {
		m.Name = old.Name
	}
	members[id] = m
	return nil
}
