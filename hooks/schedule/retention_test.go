package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

func TestRetained(t *testing.T) {
	hours := []string{"20 22:00", "20 23:00", "21 00:00", "21 10:00", "22 01:00", "22 02:00"}
	for _, c := range []struct {
		what  string
		rules v1alpha1.Retention
		also  func(o *Observation)
		kept  string
	}{
		{"no rule keeps all", v1alpha1.Retention{}, nil, "20-22 20-23 21-00 21-10 22-01 22-02"},
		{"a rule for failures is none", v1alpha1.Retention{Failed: new(int32(1))}, nil, "20-22 20-23 21-00 21-10 22-01 22-02"},
		{"not even the last, as no API server lets through", v1alpha1.Retention{Last: new(int32(0))}, nil, "22-02"},
		{"last", v1alpha1.Retention{Last: new(int32(2))}, nil, "22-01 22-02"},
		{"more than there are", v1alpha1.Retention{Last: new(int32(20))}, nil, "20-22 20-23 21-00 21-10 22-01 22-02"},
		{"age, from the newest and not from now", v1alpha1.Retention{MaxAge: &metav1.Duration{Duration: 24 * time.Hour}}, nil, "21-10 22-01 22-02"},
		{"an age is not younger than itself", v1alpha1.Retention{MaxAge: &metav1.Duration{Duration: 25 * time.Hour}}, nil, "21-10 22-01 22-02"},
		{"hourly", v1alpha1.Retention{Hourly: new(int32(3))}, nil, "21-10 22-01 22-02"},
		{"hourly, and an hour that comes twice is two", v1alpha1.Retention{Hourly: new(int32(2))}, func(o *Observation) {
			o.Zone, o.Schedule.Status.LastScheduled = zoneOf(t, "America/New_York"), metav1.NewTime(clock("01 06:00"))
			o.Now = clock("01 06:00:20")
			clear(o.Snapshots)
			o.Schedule.CreationTimestamp = metav1.NewTime(clock("01 00:00"))
			for _, run := range []string{"01 04:00", "01 05:00", "01 06:00"} { // 00:00, 01:00 and again 01:00 there
				o.add(run, v1alpha1.SnapshotSucceeded)
			}
		}, "01-05 01-06"},
		{"daily: the newest of each", v1alpha1.Retention{Daily: new(int32(2))}, nil, "21-10 22-02"},
		{"daily, and the same day of another year is another", v1alpha1.Retention{Daily: new(int32(9))}, func(o *Observation) {
			run := clock("22 02:00").AddDate(-1, 0, 0)
			s := snapshotOf(o.Schedule, run, run)
			finish(s, v1alpha1.SnapshotSucceeded, 1, run)
			o.Snapshots[s.Name] = s
		}, "orders-20251122-0200 20-23 21-10 22-02"},
		{"monthly, and the same month of another year is another", v1alpha1.Retention{Monthly: new(int32(9))}, func(o *Observation) {
			run := clock("22 02:00").AddDate(-1, 0, 0)
			s := snapshotOf(o.Schedule, run, run)
			finish(s, v1alpha1.SnapshotSucceeded, 1, run)
			o.Snapshots[s.Name] = s
		}, "orders-20251122-0200 22-02"},
		{"daily, elsewhere", v1alpha1.Retention{Daily: new(int32(3))},
			func(o *Observation) { o.Zone = zoneOf(t, "America/New_York") }, "21-00 22-02"},
		{"weekly: Sunday belongs to the week before", v1alpha1.Retention{Weekly: new(int32(2))},
			func(o *Observation) { o.add("23 00:00", v1alpha1.SnapshotSucceeded) }, "22-02 23-00"},
		{"monthly", v1alpha1.Retention{Monthly: new(int32(5))}, nil, "22-02"},
		{"yearly", v1alpha1.Retention{Yearly: new(int32(5))}, nil, "22-02"},
		{"what one rule keeps is kept", v1alpha1.Retention{Last: new(int32(1)), Daily: new(int32(3))}, nil, "20-23 21-10 22-02"},
		{"the newest that was verified", v1alpha1.Retention{Last: new(int32(1))}, func(o *Observation) {
			for _, run := range []string{"20261121-1000", "20261122-0100", "20261122-0200"} {
				o.Snapshots["orders-"+run].Status.VerifiedAt = metav1.Time{}
			}
		}, "21-00 22-02"},
		{"one that is being deleted counts for nothing", v1alpha1.Retention{Last: new(int32(1))}, func(o *Observation) {
			o.Snapshots["orders-20261122-0200"].DeletionTimestamp = &metav1.Time{Time: o.Now}
		}, "22-01 22-02"},
		{"the last three that failed or were skipped", v1alpha1.Retention{Last: new(int32(1))}, func(o *Observation) {
			for run, phase := range map[string]v1alpha1.SnapshotPhase{
				"20 10:00": v1alpha1.SnapshotFailed, "21 05:00": v1alpha1.SnapshotSkipped, "21 06:00": v1alpha1.SnapshotFailed, "21 07:00": v1alpha1.SnapshotSkipped,
			} {
				o.add(run, phase)
			}
		}, "21-05 21-06 21-07 22-02"},
		{"none of them", v1alpha1.Retention{Last: new(int32(1)), Failed: new(int32(0))}, func(o *Observation) { o.add("21 05:00", v1alpha1.SnapshotFailed) }, "22-02"},
		{"but the newest of all: it says which run was the last", v1alpha1.Retention{Last: new(int32(1)), Failed: new(int32(0))},
			func(o *Observation) { o.add("22 03:00", v1alpha1.SnapshotFailed) }, "22-02 22-03"},
		{"and the one that says that the newest is so still", v1alpha1.Retention{Last: new(int32(1)), Failed: new(int32(0))}, func(o *Observation) {
			o.Snapshots["orders-20261122-0200"].Status.Revision = 9
			o.add("22 02:20", v1alpha1.SnapshotSkipped).Status.Revision = 9
			o.add("22 02:40", v1alpha1.SnapshotSkipped).Status.Revision = 9
			o.add("22 03:00", v1alpha1.SnapshotFailed)
		}, "22-02 22-02:40 22-03"},
		{"what is stored and not verified counts, but not as what succeeded or was verified", v1alpha1.Retention{Last: new(int32(2))}, func(o *Observation) {
			for _, run := range []string{"20261122-0100", "20261122-0200"} {
				s := o.Snapshots["orders-"+run]
				s.Status.Phase, s.Status.VerifiedAt = v1alpha1.SnapshotStored, metav1.Time{}
			}
			o.Snapshots["orders-20261121-1000"].Status.VerifiedAt = metav1.Time{}
		}, "21-00 21-10 22-01 22-02"},
		{"what a cluster restores", v1alpha1.Retention{Last: new(int32(1))}, func(o *Observation) {
			o.Snapshots["orders-20261120-2300"].Status.UsedBy = []string{"orders"}
		}, "20-23 22-02"},
		{"what is not finished", v1alpha1.Retention{Last: new(int32(1))}, func(o *Observation) {
			o.add("20 10:00", v1alpha1.SnapshotRunning)
			o.add("20 11:00", "")
			o.add("20 12:00", "SomePhaseOfALaterVersion")
		}, "20-10 20-11 20-12 22-02"},
		{"what has a name that says no time", v1alpha1.Retention{Last: new(int32(1))}, func(o *Observation) {
			s := o.add("20 10:00", v1alpha1.SnapshotSucceeded)
			delete(o.Snapshots, s.Name)
			s.Name = "by-hand"
			o.Snapshots[s.Name] = s
		}, "by-hand 22-02"},
		{"what has a time for a name, and nothing before it", v1alpha1.Retention{Last: new(int32(1))}, func(o *Observation) {
			s := o.add("20 10:00", v1alpha1.SnapshotSucceeded)
			delete(o.Snapshots, s.Name)
			s.Name = "20261120-1000"
			o.Snapshots[s.Name] = s
		}, "20261120-1000 22-02"},
		{"one of midnight is of its day, though the clock of the API server is behind", v1alpha1.Retention{Daily: new(int32(3))}, func(o *Observation) {
			o.add("22 00:00", v1alpha1.SnapshotSucceeded).CreationTimestamp = metav1.NewTime(clock("21 23:59:58"))
			for _, run := range []string{"20261122-0100", "20261122-0200"} {
				delete(o.Snapshots, "orders-"+run)
			}
		}, "20-23 21-10 22-00"},
		{"what the status names, until it names another", v1alpha1.Retention{Last: new(int32(1))}, func(o *Observation) {
			o.Schedule.Status.LastVerified = &v1alpha1.SnapshotReference{Name: "orders-20261121-0000"}
		}, "21-00 22-02"},
		{"one by a clock that was ahead is not the newest", v1alpha1.Retention{Last: new(int32(1))}, func(o *Observation) {
			o.add("29 10:00", v1alpha1.SnapshotSucceeded).CreationTimestamp = metav1.NewTime(clock("21 12:00"))
		}, "22-02"},
	} {
		t.Run(c.what, func(t *testing.T) {
			o := everyHour()
			o.Schedule.Spec.Retention, o.Schedule.Spec.Concurrency = c.rules, v1alpha1.ConcurrencyAllow
			o.Schedule.Status.LastScheduled = metav1.NewTime(clock("22 03:00"))
			for _, run := range hours {
				o.add(run, v1alpha1.SnapshotSucceeded)
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

// ---- a world

// vault is a Kubernetes with one schedule in it, as Metacontroller shows and changes it.
type vault struct {
	testing.TB
	o        Observation // what is true, but for the time; Now is the clock of Quorate
	true     time.Time   // the clock of the API server
	revision int64
	uids     int
	all      map[string]time.Time // every snapshot that was ever made, by name, and when
	rules    map[string]int
	// judged: decisions are checked. It takes as long as some hundred decisions.
	judged bool
}

func newVault(t testing.TB, spec func(*v1alpha1.EtcdSnapshotScheduleSpec), from time.Time) *vault {
	o := everyHour()
	o.Schedule.CreationTimestamp = metav1.NewTime(from)
	spec(&o.Schedule.Spec)
	if o.Schedule.Spec.TimeZone != "" {
		o.Zone = zoneOf(t, o.Schedule.Spec.TimeZone)
	}
	return &vault{TB: t, o: o, true: from, all: map[string]time.Time{}, rules: map[string]int{}, judged: true}
}

// pass lets time go by, on both clocks.
func (w *vault) pass(d time.Duration) {
	w.true = w.true.Add(d)
	w.o.Now = w.true
}

// view is what Metacontroller's caches show now.
func (w *vault) view() Observation {
	o := w.o
	o.Schedule = o.Schedule.DeepCopy()
	o.Snapshots = maps.Clone(o.Snapshots) // decisions do not change snapshots: decided checks that, and so does the vault below
	return o
}

// call asks for a decision about a view, and carries it out on what is true.
func (w *vault) call(o Observation) Decision {
	w.Helper()
	d := Decide(o)
	w.rules[d.Because.Rule]++
	stays := map[string]bool{}
	for _, s := range d.Snapshots {
		stays[s.Name] = true
	}
	if w.judged {
		w.judge(o, d, stays)
	}
	for name, seen := range o.Snapshots {
		if s := w.o.Snapshots[name]; !stays[name] && s != nil && s.UID == seen.UID {
			delete(w.o.Snapshots, name)
		}
	}
	for _, s := range d.Snapshots {
		if s.UID == "" && w.o.Snapshots[s.Name] == nil { // else AlreadyExists
			s = s.DeepCopy()
			w.uids++
			s.UID, s.CreationTimestamp = types.UID(fmt.Sprint("uid-", w.uids)), metav1.NewTime(w.true.Truncate(time.Second))
			w.o.Snapshots[s.Name] = s
			if before, again := w.all[s.Name]; again {
				w.Logf("%s is made at %s, and was at %s", s.Name, w.true, before)
			}
			w.all[s.Name] = w.true
		}
	}
	w.o.Schedule.Status = d.Status
	return d
}

// judge checks a decision: by what it saw, and what it lets go by what is true. What it saw and is gone counts as well: a person may have
// deleted it a moment ago, and until then it stood for others.
func (w *vault) judge(o Observation, d Decision, stays map[string]bool) {
	w.Helper()
	if wrong := wrongWith(o, d); wrong != "" {
		w.Fatalf("%s\nat %s, rule %s: %s\nchanges: %s", wrong, o.Now.Format(time.RFC3339), d.Because.Rule, d.Because.Message, changes(o, d))
	}
	if len(d.Snapshots) >= len(o.Snapshots) {
		return
	}
	all := w.o
	all.Snapshots = maps.Clone(o.Snapshots)
	maps.Copy(all.Snapshots, w.o.Snapshots)
	must := mustBeKept(all)
	for name := range o.Snapshots {
		if s := w.o.Snapshots[name]; !stays[name] && s != nil && inStore(s) && must[name] != "" {
			w.Fatalf("at %s %s is let go: %s\nof %s", w.o.Now.Format(time.RFC3339), name, must[name], slices.Sorted(maps.Keys(must)))
		}
	}
}

// finish lets the snapshots that are under way end so.
func (w *vault) finish(phase v1alpha1.SnapshotPhase) {
	for name, s := range w.o.Snapshots {
		if s.Status.Phase != "" && s.Status.Phase != v1alpha1.SnapshotRunning {
			continue
		}
		s = s.DeepCopy()
		end := phase
		if phase == v1alpha1.SnapshotSucceeded && s.Spec.Unless != nil && s.Spec.Unless.Revision == w.revision {
			end = v1alpha1.SnapshotSkipped
		}
		finish(s, end, w.revision, w.true)
		w.o.Snapshots[name] = s
	}
}

// mustBeKept are the snapshots that the rules keep, with the reason: the rules of retention one snapshot at a time, in other words.
func mustBeKept(o Observation) map[string]string {
	must := map[string]string{}
	r := &o.Schedule.Spec.Retention
	spans := []struct {
		what string
		most *int32
		of   func(time.Time) string
	}{
		{"last", r.Last, func(t time.Time) string { return t.String() }},
		{"hourly", r.Hourly, func(t time.Time) string { return t.Format("2006-01-02 15 MST") }},
		{"daily", r.Daily, func(t time.Time) string { return t.Format(time.DateOnly) }},
		{"weekly", r.Weekly, func(t time.Time) string { return t.AddDate(0, 0, -(int(t.Weekday())+6)%7).Format(time.DateOnly) }}, // its Monday
		{"monthly", r.Monthly, func(t time.Time) string { return t.Format("2006-01") }},
		{"yearly", r.Yearly, func(t time.Time) string { return t.Format("2006") }},
	}
	var stored []*v1alpha1.EtcdSnapshot
	newestOf := time.Time{}
	for _, s := range o.Snapshots {
		if inStore(s) {
			stored = append(stored, s)
			if takenFor(s).After(newestOf) {
				newestOf = takenFor(s)
			}
		}
	}
	for _, s := range stored {
		if why := mustStay(o, s); why != "" {
			must[s.Name] = why
		}
		if r.MaxAge != nil && newestOf.Sub(takenFor(s)) < r.MaxAge.Duration {
			must[s.Name] = "maxAge"
		}
		for _, span := range spans {
			mine, later, newest := span.of(takenFor(s).In(o.Zone)), map[string]bool{}, true
			for _, other := range stored {
				if theirs := span.of(takenFor(other).In(o.Zone)); cmp.Or(takenFor(other).Compare(takenFor(s)), cmp.Compare(other.Name, s.Name)) > 0 {
					later[theirs] = true
					newest = newest && theirs != mine
				}
			}
			if span.most != nil && newest && len(later) < int(*span.most) {
				must[s.Name] = span.what
			}
		}
	}
	return must
}

// Three years of a snapshot every hour, with each way to keep some of them, over six changes of clocks: all runs are taken, each once, and
// what is kept at any time is what the rules say.
func TestThreeYears(t *testing.T) {
	zones := []string{"Europe/Berlin", "America/New_York"}
	if testing.Short() {
		zones = zones[:1]
	}
	for _, in := range zones {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			from := time.Date(2024, 1, 1, 0, 0, 0, 0, zoneOf(t, in)).Add(-time.Second)
			w := newVault(t, func(s *v1alpha1.EtcdSnapshotScheduleSpec) {
				s.TimeZone = in
				s.Retention = v1alpha1.Retention{
					Last: new(int32(3)), Hourly: new(int32(24)), Daily: new(int32(7)), Weekly: new(int32(5)), Monthly: new(int32(12)), Yearly: new(int32(10)),
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
				if d = w.call(w.view()); d.Because.Rule != ruleTake {
					t.Fatalf("at %s %s: %s", w.o.Now, d.Because.Rule, d.Because.Message)
				}
				w.pass(20 * time.Second)
				w.finish(v1alpha1.SnapshotSucceeded)
				d = w.call(w.view())
			}
			if want := (366 + 365 + 365) * 24; runs != want || len(w.all) != want {
				t.Errorf("%d runs, %d snapshots, not %d", runs, len(w.all), want)
			}
			if n := len(w.o.Snapshots); n < 45 || n > 55 {
				t.Errorf("%d are kept", n)
			}
			first := SnapshotName("orders", time.Date(2024, 12, 31, 23, 0, 0, 0, w.o.Zone))
			if w.o.Snapshots[first] == nil {
				t.Errorf("the last of 2024 is not kept: %s", slices.Sorted(maps.Keys(w.o.Snapshots)))
			}
		})
	}
}

// exact checks that what is there is what the rules keep, no less and no more.
func (w *vault) exact() {
	w.Helper()
	must := mustBeKept(w.o)
	for name := range w.o.Snapshots {
		if must[name] == "" {
			w.Fatalf("at %s %s is kept, and no rule says so", w.o.Now, name)
		}
	}
}

// Quorate, or Metacontroller, is down: one run is caught up, the latest that was missed.
func TestOutage(t *testing.T) {
	w := newVault(t, func(s *v1alpha1.EtcdSnapshotScheduleSpec) { s.Schedule = "*/10 * * * *" }, clock("01 00:00:05"))
	step := func(d time.Duration) {
		w.pass(d)
		w.revision++
		w.call(w.view())
		w.finish(v1alpha1.SnapshotSucceeded)
		w.call(w.view())
	}
	for range 12 {
		step(10 * time.Minute)
	}
	before := len(w.all)
	step(24*time.Hour + 4*time.Minute)
	for range 5 {
		step(10 * time.Second)
	}
	if len(w.all) != before+1 || w.o.Snapshots["orders-20261102-0200"] == nil {
		t.Errorf("after a day %d runs were caught up: %s", len(w.all)-before, slices.Sorted(maps.Keys(w.o.Snapshots)))
	}
	step(6 * time.Minute)
	if w.o.Snapshots["orders-20261102-0210"] == nil {
		t.Errorf("the next run is not on time: %s", slices.Sorted(maps.Keys(w.o.Snapshots)))
	}
}

// A snapshot that can't be made, as by a quota, is not taken for made, though Metacontroller writes the status all the same.
func TestARunThatIsRefusedIsDueStill(t *testing.T) {
	o := everyHour()
	o.add("22 02:00", v1alpha1.SnapshotSucceeded)
	for range 3 {
		d := decided(t, o)
		if d.Because.Rule != ruleTake || !d.Status.LastScheduled.Time.Equal(clock("22 02:00")) {
			t.Fatalf("%s, the last run was %s", d.Because.Rule, d.Status.LastScheduled)
		}
		o.Schedule.Status = d.Status
	}
}

// While snapshots fail for a year nothing that is stored is let go.
func TestNothingGoesWhileSnapshotsFail(t *testing.T) {
	w := newVault(t, func(s *v1alpha1.EtcdSnapshotScheduleSpec) {
		s.Retention = v1alpha1.Retention{Hourly: new(int32(3)), MaxAge: &metav1.Duration{Duration: 5 * time.Hour}}
	}, clock("01 00:00:05"))
	w.judged = false
	phase := v1alpha1.SnapshotSucceeded
	for i := range 365 * 24 {
		w.pass(time.Hour)
		w.revision++
		w.call(w.view())
		w.finish(phase)
		w.call(w.view())
		if i == 23 {
			phase = v1alpha1.SnapshotFailed
		}
	}
	if n := w.o.Schedule.Status.Kept; n != 5 || len(w.o.Snapshots) != 5+keptFailed {
		t.Errorf("%d are kept: %s", n, slices.Sorted(maps.Keys(w.o.Snapshots)))
	}
}

// An idle cluster is stored once. The age of what is stored, as the metric has it, does not grow meanwhile.
func TestIdle(t *testing.T) {
	w := newVault(t, func(s *v1alpha1.EtcdSnapshotScheduleSpec) {
		s.Retention = v1alpha1.Retention{Last: new(int32(2)), Failed: new(int32(0))}
	}, clock("01 00:00:05"))
	w.revision = 5
	for range 100 {
		w.pass(time.Hour)
		w.call(w.view())
		w.finish(v1alpha1.SnapshotSucceeded)
		w.call(w.view())
	}
	s := w.o.Schedule.Status
	if len(w.all) != 100 || len(w.o.Snapshots) != 2 || s.Kept != 1 || s.LastVerified.Name != "orders-20261101-0100" || w.true.Sub(s.LastVerified.Time.Time) > time.Minute {
		t.Errorf("%d runs, %d kept, the last verified is %+v", len(w.all), len(w.o.Snapshots), s.LastVerified)
	}
}

// walk is a random time of a schedule: its spec changes, time goes by in small and large steps, clocks are wrong, snapshots end in all ways,
// statuses are lost, lists lag, people delete, and calls come twice. The numbers choose what happens.
func walk(t testing.TB, next func(n int) int, steps int) *vault {
	w := newVault(t, func(s *v1alpha1.EtcdSnapshotScheduleSpec) {
		s.Schedule = []string{"* * * * *", "0 * * * *", "*/7 3,4 * * *", "30 2 * * *"}[next(4)]
		s.TimeZone = []string{"", "Europe/Berlin", "America/New_York"}[next(3)]
		s.Concurrency = []v1alpha1.Concurrency{"", v1alpha1.ConcurrencyForbid, v1alpha1.ConcurrencyAllow}[next(3)]
		s.SkipUnchanged = new(next(2) == 0)
		rules := []**int32{&s.Retention.Last, &s.Retention.Hourly, &s.Retention.Daily, &s.Retention.Weekly, &s.Retention.Monthly, &s.Retention.Yearly, &s.Retention.Failed}
		for range next(4) {
			*rules[next(len(rules))] = new(int32(1 + next(4)))
		}
		if next(3) == 0 {
			s.Retention.MaxAge = &metav1.Duration{Duration: time.Duration(1+next(100)) * time.Hour}
		}
		if next(3) == 0 {
			s.StartingDeadline = &metav1.Duration{Duration: time.Duration(1+next(90)) * time.Minute}
		}
	}, time.Date(2026, time.Month(1+next(12)), 1+next(28), next(24), next(60), next(60), 0, time.UTC))
	w.pass(0)
	past := []Observation{w.view()}
	phases := []v1alpha1.SnapshotPhase{v1alpha1.SnapshotSucceeded, v1alpha1.SnapshotSucceeded, v1alpha1.SnapshotStored, v1alpha1.SnapshotFailed, v1alpha1.SnapshotSkipped, v1alpha1.SnapshotRunning}
	off := time.Duration(0)
	for range steps {
		switch next(12) {
		case 0:
			w.o.Schedule.Status = v1alpha1.EtcdSnapshotScheduleStatus{}
		case 1:
			w.o.Schedule.Spec.Suspend = !w.o.Schedule.Spec.Suspend
		case 2:
			off = time.Duration(next(9)-4) * 20 * time.Minute
		case 3:
			if all := slices.Sorted(maps.Keys(w.o.Snapshots)); len(all) > 0 {
				delete(w.o.Snapshots, all[next(len(all))])
				if s := w.o.Snapshots[all[next(len(all))]]; s != nil { // a restore begins or ends
					s = s.DeepCopy()
					s.Status.UsedBy = [][]string{nil, {"orders"}}[next(2)]
					w.o.Snapshots[s.Name] = s
				}
			}
		case 4:
			w.revision++
		case 5, 6, 7:
			w.finish(phases[next(len(phases))])
		default:
			w.pass([]time.Duration{time.Second, time.Minute, 20 * time.Minute, time.Hour, 26 * time.Hour, 20 * 24 * time.Hour}[next(6)])
		}
		o := w.view()
		past = append(past, o)
		if lag := next(8); lag < 4 { // the list of snapshots lags behind the schedule, or the other way round
			old := past[max(0, len(past)-1-next(5))]
			if lag%2 == 0 {
				o.Snapshots = old.Snapshots
			} else {
				o.Schedule.Status = old.Schedule.Status
			}
		}
		o.Now = w.true.Add(off)
		w.call(o)
		if next(3) == 0 {
			w.call(o)
		}
	}
	return w
}

// Whatever happens, nothing is let go that the rules keep, and nothing is made that is no run.
func TestRandomSchedules(t *testing.T) {
	rules, deleted := map[string]int{}, 0
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 6))
		var w *vault
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { w = walk(t, r.IntN, 60) }) {
			return
		}
		for rule, n := range w.rules {
			rules[rule] += n
		}
		deleted += len(w.all) - len(w.o.Snapshots)
	}
	for _, rule := range Rules {
		if rules[rule.Name] == 0 && rule.Name != ruleUnreadable {
			t.Errorf("the rule %s was never the one", rule.Name)
		}
	}
	if deleted < 300 {
		t.Errorf("only %d snapshots went", deleted)
	}
}

func FuzzSchedule(f *testing.F) {
	for _, seed := range []string{"", "0123456789", "\x00\x05\x01\x02\x00\x07\x08\x03\x09\x01\x01\x01\x05\x00\x08\x03\x02\x01"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		walk(t, func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			c := int(choices[0]) % n
			choices = choices[1:]
			return c
		}, min(len(choices), 60))
	})
}

// A spec of any text changes nothing but what it says, and never panics.
func FuzzScheduleSpec(f *testing.F) {
	f.Add("0 3 * * *", "orders", "orders-20261122-0300", int64(3), int64(1795316400))
	f.Add("*/0 * * * *", "a", "a-", int64(0), int64(0))
	f.Add("0-59/70 * 31 2 7", "", "-20261122-0300", int64(-1), int64(-62135596800))
	f.Fuzz(func(t *testing.T, schedule, name, child string, last, when int64) {
		o := everyHour()
		o.Schedule.Name, o.Schedule.Spec.Schedule = name, schedule
		o.Schedule.Spec.Retention.Last = new(int32(last))
		o.Now = time.Unix(when%(1<<35), 0)
		s := o.add("22 02:00", v1alpha1.SnapshotSucceeded)
		delete(o.Snapshots, s.Name)
		s.Name = child
		o.Snapshots[s.Name] = s
		d := decided(t, o)
		if _, err := json.Marshal(d.Status); err != nil {
			t.Fatal(err)
		}
	})
}

// ---- deletion

func TestFinalizeSchedule(t *testing.T) {
	given := func(policy v1alpha1.DeletionPolicy) Observation {
		o := everyHour()
		o.Schedule.Spec.DeletionPolicy = policy
		o.Schedule.DeletionTimestamp = &metav1.Time{Time: o.Now.Add(-time.Minute)}
		for _, run := range []string{"22 01:00", "22 02:00"} {
			o.add(run, v1alpha1.SnapshotSucceeded).OwnerReferences = []metav1.OwnerReference{{Name: "orders", UID: o.Schedule.UID}}
		}
		return o
	}
	o := given(v1alpha1.DeletionDelete)
	if left, finalized, _ := Finalize(o); len(left) != 2 || !finalized || left[0].Annotations[objects.AnnotationRetained] != "" || len(Told(left[0]).OwnerReferences) > 0 {
		t.Errorf("Delete: they go with their owner, by Kubernetes: %v, %t", left, finalized)
	}
	for _, policy := range []v1alpha1.DeletionPolicy{"", v1alpha1.DeletionRetain} {
		o := given(policy)
		left, finalized, _ := Finalize(o)
		if len(left) != 2 || finalized || len(Told(left[0]).OwnerReferences) != 1 || Told(left[1]).Annotations[objects.AnnotationRetained] != "orders" {
			t.Fatalf("Retain: the owner is to be told first: %v, %t", left, finalized)
		}
		if o.Snapshots[left[0].Name].Annotations[objects.AnnotationRetained] != "" {
			t.Error("what was given is changed")
		}
		for _, s := range left {
			o.Snapshots[s.Name] = s
		}
		if left, finalized, _ = Finalize(o); finalized || len(Told(left[0]).OwnerReferences) != 1 {
			t.Fatalf("Retain: without Metacontroller's note of the owner, it is told again: %v, %t", left, finalized)
		}
		for _, s := range left {
			s.Annotations[objects.AnnotationLastApplied] = "{}"
			o.Snapshots[s.Name] = s
		}
		if left, finalized, _ = Finalize(o); finalized || len(Told(left[0]).OwnerReferences) != 0 || len(Told(left[1]).OwnerReferences) != 0 {
			t.Fatalf("Retain: then the owner is told no more: %v, %t", left, finalized)
		}
		o.Snapshots["orders-20261122-0100"].DeletionTimestamp = &metav1.Time{Time: o.Now}
		delete(o.Snapshots, "orders-20261122-0200") // it has no owner now
		if left, finalized, _ = Finalize(o); !finalized || len(left) != 1 {
			t.Errorf("Retain: %v, %t", left, finalized)
		}
		for at, want := range map[time.Duration]time.Duration{0: shown, 2 * time.Second: 3 * time.Second, -2 * time.Second: 7 * time.Second, shown: 0, -time.Hour: 0} {
			o.Now = o.Schedule.DeletionTimestamp.Add(at)
			if _, finalized, again := Finalize(o); finalized != (want == 0) || again != want {
				t.Errorf("%s after the deletion: finalized %t, asked again after %s", at, finalized, again)
			}
		}
	}
}

// The example of docs/backup.md: a snapshot every hour for more than a year, seen on a Sunday afternoon.
func TestTheExampleOfTheDocs(t *testing.T) {
	o := everyHour()
	o.Zone = zoneOf(t, "Europe/Berlin")
	o.Schedule.Spec.Retention = v1alpha1.Retention{Hourly: new(int32(24)), Daily: new(int32(7)), Weekly: new(int32(5)), Monthly: new(int32(12))}
	end := time.Date(2026, 11, 22, 14, 0, 0, 0, o.Zone)
	for run := end.AddDate(-1, -3, 0).UTC(); !run.After(end); run = run.Add(time.Hour) {
		s := snapshotOf(o.Schedule, run, run.Add(time.Second))
		finish(s, v1alpha1.SnapshotSucceeded, run.Unix(), run)
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
	want := "12-31 23h 01-31 23h 02-28 23h 03-31 23h 04-30 23h 05-31 23h 06-30 23h 07-31 23h 08-31 23h 09-30 23h 10-25 23h 10-31 23h " +
		"11-01 23h 11-08 23h 11-15 23h 11-16 23h 11-17 23h 11-18 23h 11-19 23h 11-20 23h"
	if got := strings.Join(older, " "); got != want || len(kept) != 44 {
		t.Errorf("%d are kept, and of those older than a day %s", len(kept), got)
	}
}
