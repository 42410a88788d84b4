// Package seed fills a member's data directory for a new epoch, before etcd starts: from a snapshot, or from the data
// directory of a member of an epoch that is over. What is etcd's is done by etcd's own programs, of exactly the
// version that will run.
//
//	restore.go   from a source to a data directory, and what is checked
//	replay.go    the changes of a stream, written behind a snapshot
//	skeleton.go  what etcdutl changes, and nothing else, written to a database
//	survivor.go  a member's database and its whole log, brought together into one database
//	inspection.go    how much a member's directory holds
//	log.go       reading a write-ahead log without changing it
//	database.go  reading a database without changing it
//	place.go     the way into place: all or nothing
//	program.go   running etcd and etcdutl
package seed

import "github.com/quorate-dev/quorate/etcdops/backup/archive"

// Reasons for which nothing was restored: reports.Restore has them all. [archive.ReasonOf] tells that of an error.
const (
	// OtherVersion: the data were written by an etcd that is too new.
	OtherVersion = "OtherVersion"

	damaged  = archive.Damaged
	noSpace  = archive.NoSpace
	notFound = archive.NotFound
	failed   = archive.Failed
)

func failure(reason string, cause error, format string, args ...any) error {
	return archive.Failure(reason, cause, format, args...)
}
