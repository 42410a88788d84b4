package stream

import (
	"errors"
	"fmt"

	"github.com/quorate-dev/quorate/etcdops/archive"
)

// Reasons for which a stream ends, besides those in package reports and those of stores and clusters, which are package
// archive's.
const (
	// Damaged: what is stored is not what was written.
	Damaged = "Damaged"
	failed  = "Failed"
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

// ReasonOf is the reason of an error of this package, or of package archive.
func ReasonOf(err error) string {
	var own *reasonedError
	if errors.As(err, &own) {
		return own.reason
	}
	return archive.ReasonOf(err)
}
