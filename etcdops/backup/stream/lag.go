package stream

import "time"

// A Lag knows since when what is written at an etcd may be missing where it is copied to. Its user locks it.
type Lag struct {
	// known are revisions that were the last of the cluster, at these times, and that are not copied yet.
	known []Mark
	// until is the time up to which all is copied, zero for none; began is when copying began.
	until, began time.Time
}

// knownLimit is how many times are kept in mind.
const knownLimit = 64

// NewLag is that of what begins now.
func NewLag() Lag { return Lag{began: time.Now()} }

// Saw tells that the cluster had no revision behind this one, at a time.
func (l *Lag) Saw(revision int64, at time.Time) {
	if len(l.known) < knownLimit {
		l.known = append(l.known, Mark{Revision: revision, At: at})
	}
}

// Copied tells that revisions up to this one are copied.
func (l *Lag) Copied(revision int64) {
	for len(l.known) > 0 && l.known[0].Revision <= revision {
		l.until = l.known[0].At
		l.known = l.known[1:]
	}
}

// Now is the time up to which all is copied, zero for none, and how many seconds ago that was, or the beginning.
func (l *Lag) Now() (until time.Time, seconds float64) {
	since := l.until
	if since.IsZero() {
		since = l.began
	}
	return l.until.Truncate(time.Millisecond), time.Since(since).Round(time.Millisecond).Seconds()
}
