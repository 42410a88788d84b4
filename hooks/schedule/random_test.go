package schedule

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// walk is a random time of a schedule: its spec changes, time goes by in small and large steps, clocks are wrong,
// snapshots end in all ways, statuses are lost, lists lag, people delete, and calls come twice. The numbers choose
// what happens.
func walk(t testing.TB, next func(n int) int, steps int) *vault {
	w := newVault(t, func(s *v1beta1.EtcdSnapshotScheduleSpec) {
		s.Schedule = []string{"* * * * *", "0 * * * *", "*/7 3,4 * * *", "30 2 * * *"}[next(4)]
		s.TimeZone = []string{"", "Europe/Berlin", "America/New_York"}[next(3)]
		s.SkipUnchanged = new(next(2) == 0)
		rules := []**int32{&s.Retention.Last, &s.Retention.Hourly, &s.Retention.Daily, &s.Retention.Weekly,
			&s.Retention.Monthly, &s.Retention.Yearly, &s.Retention.Failed}
		for range next(4) {
			*rules[next(len(rules))] = new(int32(1 + next(4)))
		}
		if next(3) == 0 {
			s.Retention.MaxAge = &metav1.Duration{Duration: time.Duration(1+next(100)) * time.Hour}
		}
		if next(3) == 0 {
			s.Stream = &v1beta1.Stream{}
		}
	}, time.Date(2026, time.Month(1+next(12)), 1+next(28), next(24), next(60), next(60), 0, time.UTC))
	w.pass(0)
	past := []Observation{w.view()}
	phases := []v1beta1.SnapshotPhase{v1beta1.SnapshotSucceeded, v1beta1.SnapshotSucceeded, v1beta1.SnapshotUnverified,
		v1beta1.SnapshotFailed, v1beta1.SnapshotSkipped, v1beta1.SnapshotRunning}
	off := time.Duration(0)
	for range steps {
		switch next(14) {
		case 0:
			w.o.Schedule.Status = v1beta1.EtcdSnapshotScheduleStatus{}
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
		case 12, 13:
			w.happens(next(6))
		case 5, 6, 7:
			w.finish(phases[next(len(phases))])
		default:
			w.pass([]time.Duration{time.Second, time.Minute, 20 * time.Minute, time.Hour, 26 * time.Hour,
				20 * 24 * time.Hour}[next(6)])
		}
		o := w.view()
		past = append(past, o)
		if lag := next(8); lag < 4 { // the list of snapshots lags behind the schedule, or the other way round
			old := past[max(0, len(past)-1-next(5))]
			if lag%2 == 0 {
				o.Snapshots, o.Pods = old.Snapshots, old.Pods
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
	rules, deleted, streamed := map[string]int{}, 0, 0
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 6))
		var w *vault
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { w = walk(t, r.IntN, 60) }) {
			return
		}
		for rule, n := range w.rules {
			rules[rule] += n
		}
		deleted, streamed = deleted+len(w.all)-len(w.o.Snapshots), streamed+w.streamed
	}
	for _, rule := range allRules {
		if rules[rule.Name] == 0 && rule.Name != ruleUnreadable {
			t.Errorf("the rule %s was never the one", rule.Name)
		}
	}
	if streamed < 300 {
		t.Errorf("only %d pods of streams were made", streamed)
	}
	if deleted < 300 {
		t.Errorf("only %d snapshots went", deleted)
	}
}

func FuzzSchedule(f *testing.F) {
	for _, seed := range []string{"", "0123456789",
		"\x00\x05\x01\x02\x00\x07\x08\x03\x09\x01\x01\x01\x05\x00\x08\x03\x02\x01"} {
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
		s := o.add("22 02:00", v1beta1.SnapshotSucceeded)
		delete(o.Snapshots, s.Name)
		s.Name = child
		o.Snapshots[s.Name] = s
		d := decided(t, o)
		if _, err := json.Marshal(d.Status); err != nil {
			t.Fatal(err)
		}
	})
}
