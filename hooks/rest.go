package hooks

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// The decision about a cluster at rest is the same as long as Kubernetes shows the same objects, the members tell the
// same, and no time is over at which something begins. So an answer may be given again without deciding
// (docs/decisions/0045-unchanged-calls.md).
//
// How long that is, no rule has to say: it is decided once more at the end of that time, and with numbers as far away
// as they may be while they count as alike. What depends on them is whether they are above or below something, so
// what is the same at both ends is the same between them. The stories and walks of test/simulated decide between the
// ends at each rest, and insist that nothing differs.

// LongestRest is for how long an answer is given again at most. What a kept connection can't tell is noticed within it.
const LongestRest = 5 * time.Minute

// Rests is for how long the decision stays the same while what was observed is [Alike]; 0 where it may not.
func Rests(o observation.Observation, d decision.Decision) time.Duration {
	atRest := d.Quiet && d.Step == nil && o.Taken == nil && d.Outlook == decision.Rests
	if !atRest || o.Etcd == nil || !equality.Semantic.DeepEqual(d.Status, o.Cluster.Status) {
		return 0
	}
	rest := beforeTurns(o, d)
	for _, health := range []map[string]observation.Health{furthest(o.Health, false), furthest(o.Health, true)} {
		end := o
		end.Now = o.Now.Add(rest)
		end.Health = health
		if other := Decide(end); !sameAnswer(d, other) {
			return 0
		}
	}
	return rest
}

// beforeTurns is for how long time only runs on: until then it is known in the same way, and nothing that comes back
// again and again has come and gone.
func beforeTurns(o observation.Observation, d decision.Decision) time.Duration {
	rest := min(LongestRest, facts.UntilAuthLook(o))
	if d.ResyncAfter > 0 {
		rest = min(rest, d.ResyncAfter)
	}
	if known := facts.ReadClock(o); known.Sure && !known.Until.IsZero() {
		rest = min(rest, known.Until.Sub(o.Now))
	}
	return rest
}

func sameAnswer(a, b decision.Decision) bool {
	return same(a.Step, b.Step) && same(a.Children, b.Children) && same(a.Status, b.Status)
}

// Alike reports whether a decision at rest is the same for both: everything is equal but numbers that grow while
// clients write, and these nearly.
func Alike(a, b observation.Observation) bool {
	steps := firstIndex(a.Health)/indexStep == firstIndex(b.Health)/indexStep
	return steps && same(a.Etcd, b.Etcd) && same(coarse(a.Health), coarse(b.Health))
}

const (
	// fewEntries is by how many entries one member may be behind another one while they count as equal: fewer than
	// those by which a member counts as lagging.
	fewEntries = facts.MostBehind / 4
	// indexStep is in entries: a step further the log counts as another one.
	indexStep = 1 << 20
)

// coarse is a health with sizes as the status shows them, revisions as the record notes them, and instead of the index
// how far the member is behind the first.
func coarse(all map[string]observation.Health) map[string]observation.Health {
	first := firstIndex(all)
	told := make(map[string]observation.Health, len(all))
	for name, h := range all {
		h.RaftIndex = (first - h.RaftIndex) / fewEntries
		h.Revision = facts.Noted(h.Revision)
		h.DBSize = answer.Rounded(h.DBSize)
		h.DBSizeInUse = answer.Rounded(h.DBSizeInUse)
		told[name] = h
	}
	return told
}

// furthest has the numbers that are furthest from these and alike. The log is as long as may be. With most of the
// databases free they are as large as may be, and one member is as far ahead of the others; else they are as small and
// full, and the members as near to each other.
func furthest(all map[string]observation.Health, free bool) map[string]observation.Health {
	first := firstIndex(all)
	last := first - first%indexStep + indexStep - 1
	ahead := ""
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].RaftIndex == first {
			ahead = name
		}
	}
	told := maps.Clone(all)
	for name, h := range told {
		behind := (first - h.RaftIndex) / fewEntries * fewEntries
		if free && name != ahead {
			behind += fewEntries - 1
		}
		h.RaftIndex = last - min(last, behind)
		h.Revision = facts.Noted(h.Revision) - 1
		if free {
			h.DBSize = answer.Rounded(h.DBSize)
			h.DBSizeInUse = smallest(h.DBSizeInUse)
		} else {
			h.DBSize = smallest(h.DBSize)
			h.DBSizeInUse = answer.Rounded(h.DBSizeInUse)
		}
		told[name] = h
	}
	return told
}

// smallest is the smallest size that is rounded to the same.
func smallest(size int64) int64 {
	shown := answer.Rounded(size)
	return max(0, shown-answer.SizeStep(shown-1)+1)
}

func firstIndex(all map[string]observation.Health) (first uint64) {
	for _, h := range all {
		first = max(first, h.RaftIndex)
	}
	return first
}
