package record

import (
	"fmt"
	"time"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// Words name it, and what is restored of a stream, for messages.
func (r *Resolved) Words() string {
	words := r.Artifact()
	switch {
	case r.Tail == "":
	case r.Until != 0:
		words += fmt.Sprintf(" and what its stream has stored since, until revision %d", r.Until)
	case !r.UntilTime.IsZero():
		words += " and what its stream has stored since, until " + r.UntilTime.UTC().Format(time.RFC3339)
	case r.AsFar:
		words += " and anything that a stream has stored since"
	default:
		words += " and all that its stream has stored since"
	}
	return words
}

// Artifact names it alone.
func (r *Resolved) Artifact() string {
	if r.Name != "" {
		return "EtcdSnapshot " + r.Name + " " + stores.Words(r.URL)
	}
	return "the snapshot " + stores.Words(r.URL)
}
