package seed

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Inspection says how much the data directory of a member that does not run holds. WALDir is empty where the log is in
// the data directory. Nothing is changed; both may be mounted read-only.
func Inspection(dataDir, walDir string) (stores.Inspection, error) {
	s, err := survive(dataDir, walDir)
	if err != nil {
		return stores.Inspection{}, err
	}
	report := stores.Inspection{
		LastTerm: s.log.lastTerm, LastIndex: s.log.lastIndex, Commit: s.log.commit,
		ClusterID: strconv.FormatUint(s.log.clusterID, 16), MemberID: strconv.FormatUint(s.log.memberID, 16),
		DBSize: s.db.size,
	}
	if s.db.index > report.LastIndex { // the log has lost its end, on a disk that said it had written what it had not
		report.LastTerm = s.db.term
		report.LastIndex = s.db.index
	}
	report.Members, report.Electorates = s.electorates()
	return report, nil
}

// survivor is the data of a member whose epoch is over.
type survivor struct {
	walDir string
	log    *entryLog
	db     *database
}

// survive looks at a member's data.
func survive(dataDir, walDir string) (*survivor, error) {
	if walDir == "" {
		walDir = filepath.Join(dataDir, "member", "wal")
	}
	// What the database has need not be read, but which database counts is in the log: where the log is long, it is
	// two looks at its end.
	first, err := readDatabase(filepath.Join(dataDir, "member", "snap", "db"))
	after := uint64(0)
	if err == nil {
		after = first.index
	} else if archive.ReasonOf(err) != notFound {
		return nil, err
	}
	l, err := readLog(walDir, after, nil)
	if err != nil {
		return nil, err
	}
	db, err := databaseIn(dataDir, l)
	if err != nil {
		return nil, err
	}
	return &survivor{walDir: walDir, log: l, db: db}, nil
}

// Listed is a member as a member's own database lists it.
type Listed struct {
	ID         uint64   `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	Learner    bool     `json:"isLearner"`
}

// List is the cluster's list of members in the data directory of a member that does not run, sorted by name
// (membership.Member in etcd's server/etcdserver/api/membership/member.go). Nothing is changed.
func List(dataDir string) ([]Listed, error) {
	return listIn(filepath.Join(dataDir, "member", "snap", "db"))
}

func listIn(path string) ([]Listed, error) {
	var list []Listed
	err := lookInto(path, func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("members"))
		if bucket == nil {
			return archive.OwnWords("it does not have the bucket members")
		}
		return bucket.ForEach(func(_, raw []byte) error {
			var m Listed
			if json.Unmarshal(raw, &m) != nil {
				return archive.OwnWords("an entry of the list of members can't be read")
			}
			list = append(list, m)
			return nil
		})
	})
	slices.SortFunc(list, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}
