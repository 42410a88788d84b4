package schedule

import (
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// What is deleted can't be had back, so retention is made to err in one direction only:
//
//   - It asks no clock. Ages are counted back from the newest snapshot that is stored, and an hour or a day counts when it has one.
//     Nothing is let go because time went by, only because something newer was stored: while snapshots fail, everything stays.
//   - With fewer snapshots in view, or with some that are stored seen as unfinished, it lets none go that is stored and that it would keep
//     with all of them in view. So a view that lags may delay and never delete (S13, S14); the tests say it as a property.
//   - What it does not understand, it keeps.

// keptFailed is how many are kept that failed or were skipped, when the spec says nothing.
const keptFailed = 3

// retained are the names of the snapshots that are to stay, of all that a schedule has, the newest first.
func retained(all []*taken, r v1beta1.Retention, zone *time.Location) map[string]bool {
	keep := map[string]bool{}
	var stored, vain []*taken
	for i, s := range all {
		if i == 0 || s.unknown || s.used() { // the newest records, beyond the status, which run was the last
			keep[s.Name] = true
		}
		switch {
		case s.stored():
			stored = append(stored, s)
		case s.vain():
			vain = append(vain, s)
		default: // being taken, being deleted
			keep[s.Name] = true
		}
	}
	for _, s := range vain[:min(len(vain), whole(r.Failed, keptFailed))] {
		keep[s.Name] = true
	}
	if len(stored) == 0 {
		return keep
	}
	keep[stored[0].Name] = true
	if s := newestOf(stored, (*taken).verified); s != nil {
		keep[s.Name] = true
	}
	if success := newestOf(stored, (*taken).succeeded); success != nil {
		keep[success.Name] = true
		if s := stillCurrent(all, success); s != nil {
			keep[s.Name] = true
		}
	}
	byRules(keep, stored, r, zone)
	return keep
}

// byRules adds what the rules keep. A snapshot that one rule keeps is kept; without any rule, all are.
func byRules(keep map[string]bool, stored []*taken, r v1beta1.Retention, zone *time.Location) {
	ruled := r.MaxAge != nil
	for _, rule := range []struct {
		most *int32
		span func(time.Time) any // snapshots of one hour, of one day, have equal spans
	}{
		{r.Last, func(t time.Time) any { return t }},
		// an hour that comes twice is two
		{r.Hourly, func(t time.Time) any {
			_, offset := t.Zone()
			return [4]int{t.Year(), t.YearDay(), t.Hour(),
				offset}
		}},
		{r.Daily, func(t time.Time) any { return [2]int{t.Year(), t.YearDay()} }},
		{r.Weekly, func(t time.Time) any { year, week := t.ISOWeek(); return [2]int{year, week} }},
		{r.Monthly, func(t time.Time) any { return [2]int{t.Year(), int(t.Month())} }},
		{r.Yearly, func(t time.Time) any { return t.Year() }},
	} {
		if rule.most == nil {
			continue
		}
		ruled = true
		seen := map[any]bool{}
		for _, s := range stored {
			if span := rule.span(s.at.In(zone)); !seen[span] {
				if len(seen) >= int(*rule.most) {
					break // older ones are of other spans, or not the newest of these
				}
				seen[span] = true
				keep[s.Name] = true
			}
		}
	}
	for _, s := range stored {
		if !ruled || r.MaxAge != nil && stored[0].at.Sub(s.at) < r.MaxAge.Duration {
			keep[s.Name] = true
		}
	}
}

func whole(n *int32, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return max(0, int(*n))
}
