package stream

import "github.com/quorate-dev/quorate/etcdops/backup/archive"

// Reasons for which a stream ends, besides those in package reports and those of stores and clusters, which are package
// archive's. [archive.ReasonOf] tells that of an error.
const (
	damaged = archive.Damaged
	failed  = archive.Failed
)

func failure(reason string, cause error, format string, args ...any) error {
	return archive.Failure(reason, cause, format, args...)
}
