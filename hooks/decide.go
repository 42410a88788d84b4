package hooks

import (
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rules"
)

// Where it is not known what time it is, a decision is made twice: as if no more time had passed than the API server
// has told of, and as if our clock were right. In what both agree, the time does not matter, and that is done. What
// they differ in waits for one call: the API server is asked for the time, by writing the status. So no rule can forget
// to ask whether the clock is right. The status has the later of both times: what is counted from it only ends later.

// Decide is the whole of Quorate's judgement: a pure function of what was observed. It is total (any observation of a
// cluster with a name gets an answer), deterministic, and leaves its input untouched. With o.Taken set it asks for no
// further step.
func Decide(o observation.Observation) decision.Decision {
	known := facts.ReadClock(o)
	ours := o.Now
	at := func(now time.Time) decision.Decision {
		one := o
		one.Cluster = facts.WithTimesUntil(o.Cluster, now)
		one.Now = now
		one.Clock = ours
		one.Ahead = known.Ahead
		return decide(one)
	}
	if known.Sure {
		return at(known.Now)
	}
	earlier := at(known.Now)
	later := at(ours)
	if ours.Before(known.Now) {
		earlier, later = later, earlier
	}
	d := later
	d.ResyncAfter = sooner(earlier.ResyncAfter, later.ResyncAfter)
	if same(earlier.Step, later.Step) && same(earlier.Children, later.Children) && same(earlier.Status, later.Status) {
		return d
	}
	if !same(earlier.Step, later.Step) {
		d.Step = nil
	}
	d.Children = agreed(answer.AsObserved(o), earlier.Children, later.Children)
	// what begins or is counted only by the later time does not yet
	d.Status.Defragmentation = earlier.Status.Defragmentation
	d.Status.Internal.Defragmentation = earlier.Status.Internal.Defragmentation
	d.Status.Internal.Replacement = earlier.Status.Internal.Replacement
	d.Status.Internal.ClockTime = metav1.NewTime(ours.Truncate(time.Second))
	d.ResyncAfter = sooner(d.ResyncAfter, time.Duration(decision.ResyncSoon))
	return d
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// sooner is the shorter of two times until the next call; 0 is the resync period.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// agreed are the children that two decisions have in common; those in which they differ are as they were observed.
// Metacontroller may be cut off between any two of them, so each of them may as well wait.
func agreed(was, a, b decision.Desired) decision.Desired {
	return decision.Desired{
		Services:     inCommon(was.Services, a.Services, b.Services),
		Budgets:      inCommon(was.Budgets, a.Budgets, b.Budgets),
		Policies:     inCommon(was.Policies, a.Policies, b.Policies),
		Secrets:      inCommon(was.Secrets, a.Secrets, b.Secrets),
		Certificates: inCommon(was.Certificates, a.Certificates, b.Certificates),
		ConfigMaps:   inCommon(was.ConfigMaps, a.ConfigMaps, b.ConfigMaps),
		Claims:       inCommon(was.Claims, a.Claims, b.Claims),
		Pods:         inCommon(was.Pods, a.Pods, b.Pods),
	}
}

// inCommon is agreed, of one kind.
func inCommon[T metav1.Object](was, a, b []T) []T {
	named := func(list []T) map[string]T {
		all := map[string]T{}
		for _, o := range list {
			all[o.GetName()] = o
		}
		return all
	}
	before := named(was)
	one := named(a)
	other := named(b)
	var names []string
	for _, o := range slices.Concat(was, a, b) {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	var list []T
	for _, name := range slices.Compact(names) {
		found, is := one[name]
		if otherwise, also := other[name]; is != also || is && !same(found, otherwise) {
			found, is = before[name]
		}
		if is {
			list = append(list, found)
		}
	}
	return list
}

// decide is Decide, at a time: the facts, what the rules plan, and the answer.
func decide(o observation.Observation) decision.Decision {
	f := facts.New(o)
	return answer.Of(f, rules.Decide(f))
}
