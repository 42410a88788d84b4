package seed

import (
	"path/filepath"
	"strconv"

	"github.com/quorate-dev/quorate/hooks/reports"
)

// Survey says how much the data directory of a member that does not run holds. WALDir is empty where the log is in
// the data directory. Nothing is changed; both may be mounted read-only.
func Survey(dataDir, walDir string) (reports.Survey, error) {
	s, err := survive(dataDir, walDir)
	if err != nil {
		return reports.Survey{}, err
	}
	report := reports.Survey{
		LastTerm: s.log.lastTerm, LastIndex: s.log.lastIndex, Commit: s.log.commit,
		ClusterID: strconv.FormatUint(s.log.clusterID, 16), MemberID: strconv.FormatUint(s.log.memberID, 16),
		DBSize: s.db.size,
	}
	if s.db.index > report.LastIndex { // the log has lost its end, on a disk that said it had written what it had not
		report.LastTerm, report.LastIndex = s.db.term, s.db.index
	}
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
	} else if ReasonOf(err) != notFound {
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
