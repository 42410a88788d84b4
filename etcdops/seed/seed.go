// Package seed fills a member's data directory for a new epoch, before etcd starts: from a snapshot, or from the data directory of a member
// of an epoch that is over. What is etcd's is done by etcd's own programs, of exactly the version that will run.
//
//	restore.go   from a source to a data directory, and what is checked
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

// Reasons for which nothing was restored that are found out here; those of stores and artifacts come from package archive.
// [reports.Restore] has them all.
const (
	// Damaged: what is there is not whole.
	Damaged = "Damaged"
	// NoSpace: a volume has too little room.
	NoSpace = "NoSpace"
	// OtherVersion: the data were written by an etcd that is too new.
	OtherVersion = "OtherVersion"
	// NotFound: there is nothing to restore.
	NotFound = "NotFound"
	// Failed: something else.
	Failed = "Failed"
)

// Error is a failure with its reason. Its text says what happened, to what, and what to do.
type Error struct {
	Reason string
	Text   string
	// Err is the cause; nil when the text says all.
	Err error
}

func (e *Error) Error() string { return e.Words() }

// Words implements [archive.Worded]: the sentence, and in brackets what is known of the cause.
func (e *Error) Words() string {
	if cause := archive.Words(e.Err); cause != "" {
		return e.Text + " (" + cause + ")"
	}
	return e.Text
}

func (e *Error) Unwrap() error { return e.Err }

func failure(reason string, cause error, format string, args ...any) error {
	return &Error{Reason: reason, Text: fmt.Sprintf(format, args...), Err: cause}
}

// ReasonOf is the reason of an error of this package; empty for any other.
func ReasonOf(err error) string {
	var own *Error
	if errors.As(err, &own) {
		return own.Reason
	}
	return ""
}
