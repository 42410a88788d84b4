package schedule

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

func TestRetained(t *testing.T) {
	renamed := func(name string) func(o *Observation) {
		return func(o *Observation) {
			s := o.add("20 10:00", v1beta1.SnapshotSucceeded)
			delete(o.Snapshots, s.Name)
			s.Name = name
			o.Snapshots[name] = s
		}
	}
	aYearBefore := func(o *Observation) {
		run := clock("22 02:00").AddDate(-1, 0, 0)
		s := snapshotOf(o.Schedule, run, run)
		finish(s, v1beta1.SnapshotSucceeded, 1, run)
		o.Snapshots[s.Name] = s
	}
	hours := []string{"20 22:00", "20 23:00", "21 00:00", "21 10:00", "22 01:00", "22 02:00"}
	for _, c := range []struct {
		what  string
		rules v1beta1.Retention
		also  func(o *Observation)
		kept  string
	}{
		{"no rule keeps all", v1beta1.Retention{}, nil, "20-22 20-23 21-00 21-10 22-01 22-02"},
		{"a rule for failures is none", v1beta1.Retention{Failed: new(int32(1))}, nil,
			"20-22 20-23 21-00 21-10 22-01 22-02"},
		{"not even the last, as no API server lets through", v1beta1.Retention{Last: new(int32(0))}, nil, "22-02"},
		{"last", v1beta1.Retention{Last: new(int32(2))}, nil, "22-01 22-02"},
		{"more than there are", v1beta1.Retention{Last: new(int32(20))}, nil, "20-22 20-23 21-00 21-10 22-01 22-02"},
		{"age, from the newest and not from now",
			v1beta1.Retention{MaxAge: &metav1.Duration{Duration: 24 * time.Hour}}, nil, "21-10 22-01 22-02"},
		{"an age is not younger than itself", v1beta1.Retention{MaxAge: &metav1.Duration{Duration: 25 * time.Hour}},
			nil, "21-10 22-01 22-02"},
		{"hourly", v1beta1.Retention{Hourly: new(int32(3))}, nil, "21-10 22-01 22-02"},
		{"hourly, and an hour that comes twice is two", v1beta1.Retention{Hourly: new(int32(2))},
			func(o *Observation) {
				o.Zone, o.Schedule.Status.LastScheduleTime = zoneOf(t, "America/New_York"),
					metav1.NewTime(clock("01 06:00"))
				o.Now = clock("01 06:00:20")
				clear(o.Snapshots)
				o.Schedule.CreationTimestamp = metav1.NewTime(clock("01 00:00"))
				for _, run := range []string{"01 04:00", "01 05:00", "01 06:00"} { // 00:00, 01:00 and again 01:00 there
					o.add(run, v1beta1.SnapshotSucceeded)
				}
			}, "01-05 01-06"},
		{"daily: the newest of each", v1beta1.Retention{Daily: new(int32(2))}, nil, "21-10 22-02"},
		{"daily, and the same day of another year is another", v1beta1.Retention{Daily: new(int32(9))},
			aYearBefore, "orders-20251122-0200 20-23 21-10 22-02"},
		{"monthly, and the same month of another year is another", v1beta1.Retention{Monthly: new(int32(9))},
			aYearBefore, "orders-20251122-0200 22-02"},
		{"daily, elsewhere", v1beta1.Retention{Daily: new(int32(3))},
			func(o *Observation) { o.Zone = zoneOf(t, "America/New_York") }, "21-00 22-02"},
		{"weekly: Sunday belongs to the week before", v1beta1.Retention{Weekly: new(int32(2))},
			func(o *Observation) { o.add("23 00:00", v1beta1.SnapshotSucceeded) }, "22-02 23-00"},
		{"monthly", v1beta1.Retention{Monthly: new(int32(5))}, nil, "22-02"},
		{"yearly", v1beta1.Retention{Yearly: new(int32(5))}, nil, "22-02"},
		{"what one rule keeps is kept", v1beta1.Retention{Last: new(int32(1)), Daily: new(int32(3))}, nil,
			"20-23 21-10 22-02"},
		{"the newest that was verified", v1beta1.Retention{Last: new(int32(1))}, func(o *Observation) {
			for _, run := range []string{"20261121-1000", "20261122-0100", "20261122-0200"} {
				o.Snapshots["orders-"+run].Status.VerificationTime = metav1.Time{}
			}
		}, "21-00 22-02"},
		{"one that is being deleted counts for nothing", v1beta1.Retention{Last: new(int32(1))}, func(o *Observation) {
			o.Snapshots["orders-20261122-0200"].DeletionTimestamp = &metav1.Time{Time: o.Now}
		}, "22-01 22-02"},
		{"the last three that failed or were skipped", v1beta1.Retention{Last: new(int32(1))}, func(o *Observation) {
			for run, phase := range map[string]v1beta1.SnapshotPhase{
				"20 10:00": v1beta1.SnapshotFailed, "21 05:00": v1beta1.SnapshotSkipped,
				"21 06:00": v1beta1.SnapshotFailed, "21 07:00": v1beta1.SnapshotSkipped,
			} {
				o.add(run, phase)
			}
		}, "21-05 21-06 21-07 22-02"},
		{"none of them", v1beta1.Retention{Last: new(int32(1)), Failed: new(int32(0))},
			func(o *Observation) { o.add("21 05:00", v1beta1.SnapshotFailed) }, "22-02"},
		{"but the newest of all: it says which run was the last",
			v1beta1.Retention{Last: new(int32(1)), Failed: new(int32(0))},
			func(o *Observation) { o.add("22 03:00", v1beta1.SnapshotFailed) }, "22-02 22-03"},
		{"and the one that says that the newest is so still",
			v1beta1.Retention{Last: new(int32(1)), Failed: new(int32(0))}, func(o *Observation) {
				o.Snapshots["orders-20261122-0200"].Status.Revision = 9
				o.add("22 02:20", v1beta1.SnapshotSkipped).Status.Revision = 9
				o.add("22 02:40", v1beta1.SnapshotSkipped).Status.Revision = 9
				o.add("22 03:00", v1beta1.SnapshotFailed)
			}, "22-02 22-02:40 22-03"},
		{"what is stored and not verified counts, but not as what succeeded or was verified",
			v1beta1.Retention{Last: new(int32(2))}, func(o *Observation) {
				for _, run := range []string{"20261122-0100", "20261122-0200"} {
					s := o.Snapshots["orders-"+run]
					s.Status.Phase, s.Status.VerificationTime = v1beta1.SnapshotUnverified, metav1.Time{}
				}
				o.Snapshots["orders-20261121-1000"].Status.VerificationTime = metav1.Time{}
			}, "21-00 21-10 22-01 22-02"},
		{"what a cluster restores", v1beta1.Retention{Last: new(int32(1))}, func(o *Observation) {
			o.Snapshots["orders-20261120-2300"].Status.UsedBy = []string{"orders"}
		}, "20-23 22-02"},
		{"what is not finished", v1beta1.Retention{Last: new(int32(1))}, func(o *Observation) {
			o.add("20 10:00", v1beta1.SnapshotRunning)
			o.add("20 11:00", "")
			o.add("20 12:00", "SomePhaseOfALaterVersion")
		}, "20-10 20-11 20-12 22-02"},
		{"what has a name that says no time", v1beta1.Retention{Last: new(int32(1))}, renamed("by-hand"), "by-hand 22-02"},
		{"what has a time for a name, and nothing before it", v1beta1.Retention{Last: new(int32(1))},
			renamed("20261120-1000"), "20261120-1000 22-02"},
		{"one of midnight is of its day, though the clock of the API server is behind",
			v1beta1.Retention{Daily: new(int32(3))}, func(o *Observation) {
				o.add("22 00:00", v1beta1.SnapshotSucceeded).CreationTimestamp = metav1.NewTime(clock("21 23:59:58"))
				for _, run := range []string{"20261122-0100", "20261122-0200"} {
					delete(o.Snapshots, "orders-"+run)
				}
			}, "20-23 21-10 22-00"},
		{"what the status names, until it names another", v1beta1.Retention{Last: new(int32(1))},
			func(o *Observation) {
				o.Schedule.Status.LastVerified = &v1beta1.SnapshotReference{Name: "orders-20261121-0000"}
			}, "21-00 22-02"},
		{"one by a clock that was ahead is not the newest", v1beta1.Retention{Last: new(int32(1))},
			func(o *Observation) {
				o.add("29 10:00", v1beta1.SnapshotSucceeded).CreationTimestamp = metav1.NewTime(clock("21 12:00"))
			}, "22-02"},
	} {
		t.Run(c.what, func(t *testing.T) {
			o := everyHour()
			o.Schedule.Spec.Retention = c.rules
			o.Schedule.Status.LastScheduleTime = metav1.NewTime(clock("22 03:00"))
			for _, run := range hours {
				o.add(run, v1beta1.SnapshotSucceeded)
			}
			if c.also != nil {
				c.also(&o)
			}
			var kept []string
			for _, s := range decided(t, o).Snapshots {
				name := strings.TrimPrefix(s.Name, "orders-202611")
				if len(name) == len("22-0300") && name != "by-hand" {
					name = name[:5] + strings.TrimSuffix(":"+name[5:], ":00")
				}
				kept = append(kept, name)
			}
			if got := strings.Join(kept, " "); got != c.kept {
				t.Errorf("kept %s", got)
			}
		})
	}
}

// Three years of a snapshot every hour, with each way to keep some of them, over six changes of clocks: all runs are
// taken, each once, and what is kept at any time is what the rules say.
func TestThreeYears(t *testing.T) {
	zones := []string{"Europe/Berlin", "America/New_York"}
	if testing.Short() {
		zones = zones[:1]
	}
	for _, in := range zones {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			from := time.Date(2024, 1, 1, 0, 0, 0, 0, zoneOf(t, in)).Add(-time.Second)
			w := newVault(t, func(s *v1beta1.EtcdSnapshotScheduleSpec) {
				s.TimeZone = in
				s.Retention = v1beta1.Retention{
					Last: new(int32(3)), Hourly: new(int32(24)), Daily: new(int32(7)), Weekly: new(int32(5)),
					Monthly: new(int32(12)), Yearly: new(int32(10)),
				}
			}, from)
			w.pass(0)
			w.judged = false // but once a month
			end := time.Date(2027, 1, 1, 0, 0, 0, 0, w.o.Zone)
			runs := 0
			for d := w.call(w.view()); ; {
				w.pass(d.ResyncAfter)
				if !w.o.Now.Before(end) {
					break
				}
				runs++
				w.revision++
				if w.judged = runs%757 == 0; w.judged {
					w.exact()
				}
				if d = w.call(w.view()); d.Reason.Rule != ruleTake {
					t.Fatalf("at %s %s: %s", w.o.Now, d.Reason.Rule, d.Reason.Message)
				}
				w.pass(20 * time.Second)
				w.finish(v1beta1.SnapshotSucceeded)
				d = w.call(w.view())
			}
			if want := (366 + 365 + 365) * 24; runs != want || len(w.all) != want {
				t.Errorf("%d runs, %d snapshots, not %d", runs, len(w.all), want)
			}
			if n := len(w.o.Snapshots); n < 45 || n > 55 {
				t.Errorf("%d are kept", n)
			}
			first := snapshotName("orders", time.Date(2024, 12, 31, 23, 0, 0, 0, w.o.Zone))
			if w.o.Snapshots[first] == nil {
				t.Errorf("the last of 2024 is not kept: %s", slices.Sorted(maps.Keys(w.o.Snapshots)))
			}
		})
	}
}

// The example of docs/how-to/back-up.md: a snapshot every hour for more than a year, seen on a Sunday afternoon.
func TestTheExampleOfTheDocs(t *testing.T) {
	o := everyHour()
	o.Zone = zoneOf(t, "Europe/Berlin")
	o.Schedule.Spec.Retention = v1beta1.Retention{Hourly: new(int32(24)), Daily: new(int32(7)), Weekly: new(int32(5)),
		Monthly: new(int32(12))}
	end := time.Date(2026, 11, 22, 14, 0, 0, 0, o.Zone)
	for run := end.AddDate(-1, -3, 0).UTC(); !run.After(end); run = run.Add(time.Hour) {
		s := snapshotOf(o.Schedule, run, run.Add(time.Second))
		finish(s, v1beta1.SnapshotSucceeded, run.Unix(), run)
		o.Snapshots[s.Name] = s
	}
	o.Now = end.Add(time.Minute)
	kept := Decide(o).Snapshots
	var older []string
	for _, s := range kept {
		run, _ := time.Parse("orders-20060102-1504", s.Name)
		if end.Sub(run) >= 24*time.Hour {
			older = append(older, run.In(o.Zone).Format("01-02 15h"))
		}
	}
	want := "12-31 23h 01-31 23h 02-28 23h 03-31 23h 04-30 23h 05-31 23h 06-30 23h 07-31 23h 08-31 23h 09-30 23h " +
		"10-25 23h 10-31 23h 11-01 23h 11-08 23h 11-15 23h 11-16 23h 11-17 23h 11-18 23h 11-19 23h 11-20 23h"
	if got := strings.Join(older, " "); got != want || len(kept) != 44 {
		t.Errorf("%d are kept, and of those older than a day %s", len(kept), got)
	}
}
