// Package timetable reads when something is to run: five fields of cron, by the clocks of a zone.
package timetable

import (
	"errors"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Parse reads the fields by the clock of the caller.
func Parse(text string) (cron.Schedule, error) { return fields.Parse(text) }

// Table is when something is to run: five fields of cron, read by the clocks of a zone.
type Table struct {
	fields *cron.SpecSchedule
	zone   *time.Location
}

// Read reads the fields. A zone is named beside them and not within.
func Read(text string, zone *time.Location) (*Table, error) {
	if strings.Contains(text, "=") {
		return nil, errors.New("put the time zone in timeZone")
	}
	read, err := fields.Parse(text)
	if err != nil {
		return nil, err
	}
	spec, ok := read.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("it must have five fields")
	}
	return &Table{spec, zone}, nil
}

// everyHour reports whether the hours do not matter. Such a timetable goes by the time that passes and not by what
// clocks say.
func (t *Table) everyHour() bool {
	const all = 1<<24 - 1
	return t.fields.Hour&all == all
}

// Next is the first run after a moment; zero for none in the next five years.
//
// Where clocks are put forward, a run in the time that they leave out is at the moment when they are: a backup of every
// night is missed in none. Where they are put back, a run in the time that comes twice is in the first of both. A
// timetable of every hour needs neither: it misses nothing by an hour that there is not, and would lack one where there
// are two.
//
// Between two such moments a zone is a fixed distance from UTC, and there the fields are read.
func (t *Table) Next(after time.Time) time.Time {
	for at, from := after.In(t.zone), after; ; {
		start, end := at.ZoneBounds()
		_, offset := at.Zone()
		if !start.IsZero() && !t.everyHour() {
			_, before := start.Add(-time.Second).Zone()
			moved := time.Duration(offset-before) * time.Second
			if after.Before(start) && t.leftOut(start, before, moved) {
				return start.UTC()
			}
			if again := start.Add(-moved - time.Second); moved < 0 && from.Before(again) {
				from = again
			}
		}
		next := t.fields.Next(from.In(time.FixedZone("", offset)))
		if next.IsZero() || end.IsZero() || next.Before(end) {
			return next.UTC()
		}
		at = end
		from = end.Add(-time.Second)
	}
}

// leftOut reports whether a run is in the time that clocks leave out when they are put forward.
func (t *Table) leftOut(moment time.Time, before int, forward time.Duration) bool {
	if forward <= 0 {
		return false
	}
	next := t.fields.Next(moment.Add(-time.Second).In(time.FixedZone("", before)))
	return !next.IsZero() && next.Before(moment.Add(forward))
}

// Latest is the last run after one moment and not after another; zero for none. It halves the time between, so that a
// year of runs every minute takes some thirty looks.
func (t *Table) Latest(after, until time.Time) time.Time {
	due := func(after time.Time) bool {
		run := t.Next(after)
		return !run.IsZero() && !run.After(until)
	}
	if !due(after) {
		return time.Time{}
	}
	low := after
	high := until // a run is due after low, and none after high
	for high.Sub(low) > time.Second {
		if middle := low.Add(high.Sub(low) / 2); due(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return t.Next(low)
}

// fields of a schedule: minute, hour, day of the month, month, day of the week.
var fields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
