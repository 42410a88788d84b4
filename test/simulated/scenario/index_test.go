package scenario

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/hooks/rules"
)

// index is which stories show which rule, as testdata/index.txt has it.
type index struct {
	sync.Mutex
	stories map[fired][]string
	count   int
	// resting are stories in which an answer could have been given again.
	resting int
}

func (x *index) add(story string, shown map[fired]bool) {
	x.Lock()
	defer x.Unlock()
	x.count++
	for f := range shown {
		x.stories[f] = append(x.stories[f], story)
	}
}

// rested notes in how many calls of a story the answer could have been given again.
func (x *index) rested(calls int) {
	x.Lock()
	defer x.Unlock()
	if calls > 0 {
		x.resting++
	}
}

const aboutIndex = "# Which stories show which rule, by mode. Written by -rewrite.\n"

// many stories of one rule are not listed.
const many = 40

// untold are the rules whose cause can't be in the world, where a quorum has a leader and its list is never that of
// another cluster. TestDecideFiresTheRightRule has them.
var untold = []string{"NoLeader", "WrongCluster"}

// settle insists that every rule and every mode has a story, and compares the index, or writes it.
func (x *index) settle(t *testing.T) {
	t.Helper()
	if x.resting < x.count*2/3 {
		t.Errorf("in %d of %d stories the cluster rests: the oracle judges hooks.Rests there alone", x.resting, x.count)
	}
	var b strings.Builder
	b.WriteString(aboutIndex)
	chapter := func(kind, mode string, rules []string) {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(kind+" "+mode))
		for _, rule := range rules {
			b.WriteString(x.line(fired{kind, mode, rule}))
		}
	}
	for _, mode := range rules.Modes {
		var rules []string
		for _, rule := range mode.Rules {
			rules = append(rules, rule.Name)
		}
		chapter("EtcdCluster", mode.Name, rules)
	}
	for _, kind := range []string{"EtcdSnapshot", "EtcdSnapshotSchedule"} {
		var rules []string
		for f := range x.stories {
			if f.kind == kind {
				rules = append(rules, f.rule)
			}
		}
		slices.Sort(rules)
		chapter(kind, "", rules)
	}
	golden(t, "testdata/index.txt", b.String())
	for _, rule := range rules.All() {
		assert.Equal(t, !slices.Contains(untold, rule.Name), x.shows(func(f fired) bool { return f.rule == rule.Name }),
			"a story shows the rule %s", rule.Name)
	}
	for _, mode := range rules.Modes {
		assert.True(t, x.shows(func(f fired) bool { return f.mode == mode.Name }), "no story shows the mode %s", mode.Name)
	}
}

// shows reports whether a story shows such a rule of clusters.
func (x *index) shows(such func(fired) bool) bool {
	for f := range x.stories {
		if f.kind == "EtcdCluster" && such(f) {
			return true
		}
	}
	return false
}

// line is a rule with its stories.
func (x *index) line(f fired) string {
	names := slices.Sorted(slices.Values(x.stories[f]))
	if len(names) > many {
		return fmt.Sprintf("  %s: more than %d\n", f.rule, many)
	}
	return strings.TrimRight(fmt.Sprintf("  %s: %s", f.rule, strings.Join(names, ", ")), " ") + "\n"
}
