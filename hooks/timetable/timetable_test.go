package timetable

import (
	"testing"
	"time"
	_ "time/tzdata"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func timetableOf(t testing.TB, text, in string) *Table {
	t.Helper()
	table, err := Read(text, zone(t, in))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// What clocks say about a run when they are put forward or back. Times are in RFC 3339, with the distance from UTC.
func TestClocksArePutForwardAndBack(t *testing.T) {
	for _, c := range []struct {
		what, fields, zone, from string
		runs                     []string
	}{
		{"every night, in an hour that there is not", "30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00+01:00",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"every night, in an hour that comes twice", "30 2 * * *", "Europe/Berlin", "2026-10-24T00:00:00+02:00",
			[]string{"2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"asked between the two", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:00:00+01:00",
			[]string{"2026-10-26T02:30:00+01:00"}},
		{"asked in the first of them", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00"}},
		{"every hour, forward", "15 * * * *", "Europe/Berlin", "2026-03-29T00:30:00+01:00",
			[]string{"2026-03-29T01:15:00+01:00", "2026-03-29T03:15:00+02:00", "2026-03-29T04:15:00+02:00"}},
		{"every hour, back", "15 * * * *", "Europe/Berlin", "2026-10-25T01:00:00+02:00",
			[]string{"2026-10-25T01:15:00+02:00", "2026-10-25T02:15:00+02:00", "2026-10-25T02:15:00+01:00",
				"2026-10-25T03:15:00+01:00"}},
		{"two runs in the hour that there is not are one", "10,40 2 * * *", "America/New_York",
			"2026-03-08T00:00:00-05:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:10:00-04:00", "2026-03-09T02:40:00-04:00"}},
		{"and one with the run at its end", "0 2,3 * * *", "America/New_York", "2026-03-08T00:00:00-05:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:00:00-04:00", "2026-03-09T03:00:00-04:00"}},
		{"back, with runs before and after", "30 0,1,2 * * *", "America/New_York", "2026-11-01T00:00:00-04:00",
			[]string{"2026-11-01T00:30:00-04:00", "2026-11-01T01:30:00-04:00", "2026-11-01T02:30:00-05:00"}},
		{"a midnight that there is not", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00",
			[]string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"}},
		{"an hour before midnight that comes twice", "30 23 * * *", "America/Sao_Paulo", "2019-02-16T12:00:00-02:00",
			[]string{"2019-02-16T23:30:00-02:00", "2019-02-17T23:30:00-03:00"}},
		{"half an hour, forward", "15 2 * * *", "Australia/Lord_Howe", "2026-10-04T00:00:00+10:30",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"a day that there is not", "0 3 * * *", "Pacific/Apia", "2011-12-29T12:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00", "2011-12-31T03:00:00+14:00"}},
		{"no clock is moved in UTC", "30 2 * * *", "UTC", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z"}},
		{"once in four years", "0 0 29 2 *", "Europe/Berlin", "2026-01-01T00:00:00Z",
			[]string{"2028-02-29T00:00:00+01:00", "2032-02-29T00:00:00+01:00"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			table := timetableOf(t, c.fields, c.zone)
			at, _ := time.Parse(time.RFC3339, c.from)
			first := at
			for _, want := range c.runs {
				wanted, err := time.Parse(time.RFC3339, want)
				if err != nil {
					t.Fatal(err)
				}
				if at = table.Next(at); !at.Equal(wanted) {
					t.Fatalf("the next run is %s, not %s", at.In(table.zone).Format(time.RFC3339), want)
				}
				if latest := table.Latest(first, at); !latest.Equal(at) {
					t.Errorf("the latest until %s is %s", want, latest)
				}
			}
		})
	}
}

// Every year has the runs that a year has: none is lost with the hour that clocks leave out, and none doubled.
func TestAYearHasItsRuns(t *testing.T) {
	for _, in := range []string{"Europe/Berlin", "America/New_York", "Africa/Casablanca", "Asia/Kolkata", "UTC"} {
		for fields, want := range map[string]int{"30 2 * * *": 365, "0 * * * *": 8760, "*/15 * * * *": 35040,
			"0 2 * * 0": 52, "59 1 1 * *": 12} {
			table := timetableOf(t, fields, in)
			at := time.Date(2026, 1, 1, 0, 0, 0, 0, table.zone).Add(-time.Second)
			end := time.Date(2027, 1, 1, 0, 0, 0, 0, table.zone)
			n := 0
			for at = table.Next(at); at.Before(end); at = table.Next(at) {
				n++
			}
			if n != want {
				t.Errorf("%s in %s: %d runs in 2026, not %d", fields, in, n, want)
			}
		}
	}
}

func TestLatestOfAYearOfMinutes(t *testing.T) {
	table := timetableOf(t, "* * * * *", "Europe/Berlin")
	now := time.Date(2026, 11, 22, 3, 0, 30, 0, time.UTC)
	if got, want := table.Latest(now.AddDate(-3, 0, 0), now), now.Truncate(time.Minute); !got.Equal(want) {
		t.Errorf("%s, not %s", got, want)
	}
	if got := table.Latest(now.Truncate(time.Minute), now); !got.IsZero() {
		t.Errorf("a run that was taken is due again: %s", got)
	}
}

func TestTimetablesThatCannotBeRead(t *testing.T) {
	for _, text := range []string{"", "61 * * * *", "* * * *", "* * * * * *", "@hourly", "@every 1s",
		"TZ=Europe/Berlin 0 3 * * *", "CRON_TZ=UTC 0 3 * * *", "a b c d e"} {
		if _, err := Read(text, time.UTC); err == nil {
			t.Errorf("%q is read", text)
		}
	}
	if never := timetableOf(t, "0 0 30 2 *", "Europe/Berlin").Next(time.Date(2026, 3, 1, 9, 0, 0, 0,
		time.UTC)); !never.IsZero() {
		t.Errorf("the 30th of February is %s", never)
	}
}
