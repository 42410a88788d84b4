package safety

import (
	"time"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// What can't be taken back waits until its time has passed for sure: a claim that is kept, a member that may come back,
// a call that may still act, an authority that has not expired. So all of it is judged by the earliest time that it may
// be.

// earliest is the earliest time that it may be.
func earliest(o observation.Observation) time.Time {
	clock := facts.ReadClock(o)
	if !clock.Sure && o.Now.Before(clock.Now) {
		return o.Now
	}
	return clock.Now
}

// passed reports whether it is later than that for sure.
func (j *judgement) passed(t time.Time) bool { return !t.After(j.o.Now) }
