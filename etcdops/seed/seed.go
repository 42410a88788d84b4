// Package seed fills a member's data directory for a new epoch, before etcd starts: from a snapshot, or from the data
// directory of a member of an epoch that is over. What is etcd's is done by etcd's own programs, of exactly the
// version that will run.
//
//	restore.go   from a source to a data directory, and what is checked
//	replay.go    the changes of a stream, written behind a snapshot
//	skeleton.go  what etcdutl changes, and nothing else, written to a database
//	survivor.go  a member's database and its whole log, brought together into one database
//	survey.go    how much a member's directory holds
//	log.go       reading a write-ahead log without changing it
//	database.go  reading a database without changing it
//	place.go     the way into place: all or nothing
//	program.go   running etcd and etcdutl
package seed

import (
	"errors"
	"fmt"

	"github.com/quorate-dev/quorate/etcdops/archive"
)

// Reasons for which nothing was restored that are found out here; those of stores and artifacts come from package
// archive. [hooks.RestoreReport] has them all.
const (
	// Damaged: what is there is not whole.
	Damaged = "Damaged"
	// noSpace: a volume has too little room.
	noSpace = "NoSpace"
	// OtherVersion: the data were written by an etcd that is too new.
	OtherVersion = "OtherVersion"
	// notFound: there is nothing to restore.
	notFound = "NotFound"
	// failed: something else.
	failed = "Failed"
)

// reasonedError is a failure with its reason. Its text says what happened, to what, and what to do.
type reasonedError struct {
	reason string
	text   string
	// err is the cause; nil when the text says all.
	err error
}

func (e *reasonedError) Error() string { return e.Words() }

// Words implements [archive.Worded]: the sentence, and in brackets what is known of the cause.
func (e *reasonedError) Words() string {
	if cause := archive.Words(e.err); cause != "" {
		return e.text + " (" + cause + ")"
	}
	return e.text
}

func (e *reasonedError) Unwrap() error { return e.err }

func failure(reason string, cause error, format string, args ...any) error {
	return &reasonedError{reason: reason, text: fmt.Sprintf(format, args...), err: cause}
}

// ReasonOf is the reason of an error of this package; empty for any other.
func ReasonOf(err error) string {
	var own *reasonedError
	if errors.As(err, &own) {
		return own.reason
	}
	return ""
}
