package model

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

var (
	deep  = flag.Bool("deep", false, "search the large worlds too, as `make model` does: minutes, and gigabytes")
	steps = flag.Int("steps", 5_000, "how many random steps TestWalks takes in each of its worlds")
	seed  = flag.Uint64("seed", 1, "of the random steps")
)

// TestMain has garbage collected rarely where states are few enough.
func TestMain(m *testing.M) {
	if flag.Parse(); !*deep {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(6 << 30)
	}
	os.Exit(m.Run())
}

// noEdits is nothing that a spec may be edited to.
var noEdits, noSizes = []uint8{}, []int{}

// Versions and templates, the last of which does not work; and two versions that differ in more than the patch release.
var (
	anyPatch    = []uint8{usualVersion, patchRelease, unpullable}
	anyTemplate = []uint8{0, 1, unplaced}
	minors      = []uint8{usualVersion, nextMinor}
)

// worlds are what is searched. A search that ends has seen every state that its budgets allow.
var worlds = []struct {
	name  string
	model model
	deep  bool
}{
	{"a new cluster, one fault", model{Replicas: 3, Faults: 1}, false},
	{"a new cluster, one edit of its size", model{Replicas: 3, Edits: 1, Versions: noEdits, Templates: noEdits}, false},
	{"a new cluster on Memory, one fault", model{Medium: v1beta1.Memory, Replicas: 3, Faults: 1}, false},
	{"a new cluster on Memory, one edit of its size or version", model{Medium: v1beta1.Memory, Replicas: 3, Edits: 1,
		Templates: noEdits}, false},
	{"a single member, one edit and one hitch", model{Replicas: 1, Ready: true, Edits: 1, Hitches: 1,
		Sizes: []int{1, 3}}, false},
	{"a running cluster whose etcd insists on old connections, one fault",
		model{Replicas: 3, Ready: true, Faults: 1, Young: true}, false},

	{"a running cluster, two edits of versions and templates, which may be bad",
		model{Replicas: 3, Ready: true, Edits: 2, Sizes: noSizes, Versions: anyPatch, Templates: anyTemplate}, false},
	{"a running cluster on Memory, two edits of versions and templates, which may be bad",
		model{Medium: v1beta1.Memory, Replicas: 3, Ready: true, Edits: 2, Sizes: noSizes, Versions: anyPatch,
			Templates: anyTemplate}, false},
	{"a single member, two edits of versions and templates, which may be bad",
		model{Replicas: 1, Ready: true, Edits: 2, Sizes: noSizes, Versions: anyPatch, Templates: anyTemplate}, false},
	{"a running cluster, one edit of version or template, two hitches, and the leader moves",
		model{Replicas: 3, Ready: true, Faults: 1, Edits: 1, Hitches: 2, Sizes: noSizes, Just: []deed{leaderMoves}},
		false},
	{"a running cluster goes up a minor version and back, one hitch",
		model{Replicas: 3, Ready: true, Edits: 2, Hitches: 1, Sizes: noSizes, Versions: minors, Templates: noEdits},
		false},
	{"a running cluster on Memory goes up a minor version and back",
		model{Medium: v1beta1.Memory, Replicas: 3, Ready: true, Edits: 2, Sizes: noSizes, Versions: minors,
			Templates: noEdits}, false},
	{"a single member goes up a minor version and back", model{Replicas: 1, Ready: true, Edits: 2, Sizes: noSizes,
		Versions: minors, Templates: noEdits}, false},

	{"the API server's own etcd, one edit, also of what is refused",
		model{Replicas: 3, Ready: true, Edits: 1, Sizes: []int{0, 1, 3, 5}, SelfHosted: true}, false},
	{"the API server's own etcd, one fault and one edit",
		model{Replicas: 3, Ready: true, Faults: 1, Edits: 1, Sizes: []int{0, 1, 3, 5}, SelfHosted: true}, true},
	{"the API server's own etcd, all nodes off and one edit", model{Replicas: 3, Ready: true, Faults: 3, Edits: 1,
		Sizes: []int{0, 1, 3}, Templates: noEdits, SelfHosted: true, Just: []deed{nodeLost}}, false},

	{"a running cluster with a spare, one fault", model{Replicas: 3, Spares: 1, Ready: true, Faults: 1}, false},
	{"a running cluster with a spare, one edit", model{Replicas: 3, Spares: 1, Ready: true, Edits: 1}, false},
	{"a running cluster with a spare on Memory, one fault or eviction", model{Medium: v1beta1.Memory, Replicas: 3,
		Spares: 1, Ready: true, Faults: 1, Evictions: 1}, false},
	{"a running cluster with a spare, one fault and one edit of its template", model{Replicas: 3, Spares: 1,
		Ready: true, Faults: 1, Edits: 1, Sizes: noSizes, Versions: noEdits, Templates: anyTemplate}, true},
	{"a running cluster with a spare, one fault and one hitch", model{Replicas: 3, Spares: 1, Ready: true, Faults: 1,
		Hitches: 1}, false},
	{"a running cluster with a spare, two faults", model{Replicas: 3, Spares: 1, Ready: true, Faults: 2}, true},

	{"a running cluster on Memory, two evictions and one edit", model{Medium: v1beta1.Memory, Replicas: 3,
		Ready: true, Evictions: 2, Edits: 1}, false},
	{"a running cluster, two evictions and one edit of its size", model{Replicas: 3, Ready: true, Evictions: 2,
		Edits: 1, Versions: noEdits, Templates: noEdits}, false},
	{"a single member on Memory, two evictions and one edit", model{Medium: v1beta1.Memory, Replicas: 1,
		Ready: true, Evictions: 2, Edits: 1}, false},
	{"a running cluster on Memory, two evictions, one edit, and one fault that takes no data",
		model{Medium: v1beta1.Memory, Replicas: 3, Ready: true, Evictions: 2, Edits: 1, Faults: 1,
			Just: []deed{leaderMoves, memberIsolated, memberUnreachable, etcdOut}}, true},
	{"a running cluster on Memory, two evictions, one edit and one hitch", model{Medium: v1beta1.Memory,
		Replicas: 3, Ready: true, Evictions: 2, Edits: 1, Hitches: 1}, true},

	{"a new cluster, one fault and one edit of its size", model{Replicas: 3, Faults: 1, Edits: 1, Versions: noEdits,
		Templates: noEdits}, true},
	{"a new cluster on Memory, one fault and one edit of its size or version",
		model{Medium: v1beta1.Memory, Replicas: 3, Faults: 1, Edits: 1, Templates: noEdits}, true},
	{"a running cluster, two edits of versions and templates, which may be bad, one fault",
		model{Replicas: 3, Ready: true, Faults: 1, Edits: 2, Sizes: noSizes, Versions: anyPatch,
			Templates: anyTemplate}, true},
	{"a running cluster, two edits of versions and templates, which may be bad, one hitch",
		model{Replicas: 3, Ready: true, Edits: 2, Hitches: 1, Sizes: noSizes, Versions: anyPatch,
			Templates: anyTemplate}, true},
	{"a running cluster goes up a minor version and back, one fault",
		model{Replicas: 3, Ready: true, Faults: 1, Edits: 2, Sizes: noSizes, Versions: minors, Templates: noEdits},
		true},
	{"a running cluster, one edit of version, one hitch, and one fault that takes no data",
		model{Replicas: 3, Ready: true, Faults: 1, Edits: 1, Hitches: 1, Sizes: noSizes, Versions: anyPatch,
			Templates: noEdits, Just: []deed{podKilled, memberUnreachable, leaderMoves, memberIsolated}}, true},
	{"a running cluster, two edits of sizes, versions and templates",
		model{Replicas: 3, Ready: true, Edits: 2, Sizes: []int{1, 3, 5}}, true},
	{"a new cluster, one fault and one edit", model{Replicas: 3, Faults: 1, Edits: 1}, true},
	{"a new cluster on Memory, one fault and one edit", model{Medium: v1beta1.Memory, Replicas: 3, Faults: 1,
		Edits: 1}, true},
	{"a new cluster, two faults and one edit", model{Replicas: 3, Faults: 2, Edits: 1}, true},
	{"a new cluster on Memory, two faults and one edit", model{Medium: v1beta1.Memory, Replicas: 3, Faults: 2,
		Edits: 1}, true},
	{"a new cluster, one fault and one hitch", model{Replicas: 3, Faults: 1, Hitches: 1}, true},
	{"a new cluster, one edit and one hitch", model{Replicas: 3, Edits: 1, Hitches: 1}, true},
	{"a running cluster, one fault, one edit and one hitch", model{Replicas: 3, Ready: true, Faults: 1, Edits: 1,
		Hitches: 1}, true},
	{"a running cluster on Memory, one fault, one edit and one hitch",
		model{Medium: v1beta1.Memory, Replicas: 3, Ready: true, Faults: 1, Edits: 1, Hitches: 1}, true},
	{"a running cluster, one edit and two hitches", model{Replicas: 3, Ready: true, Edits: 1, Hitches: 2}, true},
	{"a running cluster, two faults and one hitch", model{Replicas: 3, Ready: true, Faults: 2, Hitches: 1}, true},
	{"a single member, one fault, one edit and one hitch", model{Replicas: 1, Ready: true, Faults: 1, Edits: 1,
		Hitches: 1, Sizes: []int{1, 3}}, true},
	{"a running cluster whose etcd insists on old connections, one fault and one edit",
		model{Replicas: 3, Ready: true, Faults: 1, Edits: 1, Young: true}, true},
}

// usualEdits are those of versions and templates in a world that says nothing of them.
func (m model) usualEdits() model {
	if m.Versions == nil {
		m.Versions = []uint8{usualVersion, patchRelease}
	}
	if m.Templates == nil {
		m.Templates = []uint8{0, 1}
	}
	return m
}

// sizes are those that the edits of the design go through; none on Memory is 0, for it can't be paused.
func sizes(m *model) []int {
	switch {
	case m.Sizes != nil:
		return m.Sizes
	case m.Medium == v1beta1.Memory:
		return []int{1, 3, 5}
	}
	return []int{0, 1, 3, 5}
}

func TestNoRuleBreaksAndNothingIsStuck(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			if w.deep && !*deep {
				t.Skip("large: make model")
			}
			m := w.model.usualEdits()
			m.Sizes = sizes(&m)
			if m.Medium == "" {
				m.Medium = v1beta1.Persistent
			}
			if testing.Short() && !m.Ready { // the largest worlds, by far
				m.Edits = 0
			}
			r := m.search()
			t.Log(r)
			if r.Broken != nil {
				fail(t, &m, r.Broken)
			}
		})
	}
}

// fail tells the way to what is broken as a story.
func fail(t *testing.T, m *model, b *breach[action]) {
	t.Helper()
	story := m.story(strings.ReplaceAll(t.Name(), "_", " ")+".", b.Path)
	path := filepath.Join(os.TempDir(), "quorate-model-story.txt")
	if err := os.WriteFile(path, []byte(story), 0o600); err != nil {
		t.Log(err)
	}
	t.Errorf("%s\nThe way there, also in %s, for test/simulated/scenario/testdata:\n\n%s", b, path, story)
}

// TestWalks goes far in worlds that are too large to be searched.
func TestWalks(t *testing.T) {
	for _, m := range []model{
		{Medium: v1beta1.Persistent, Replicas: 5, Faults: 3, Edits: 2, Hitches: 3, Sizes: []int{0, 1, 3, 5}},
		{Medium: v1beta1.Memory, Replicas: 5, Faults: 3, Edits: 2, Hitches: 3, Sizes: []int{1, 3, 5}},
	} {
		t.Run(string(m.Medium), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			episodes, broken := m.walk(*seed, *steps)
			t.Logf("seed %d: %d steps in %d episodes, %d decisions, %s", *seed, *steps, episodes, m.judge.decisions(),
				time.Since(began).Round(time.Millisecond))
			if broken != nil {
				fail(t, &m, broken)
			}
		})
	}
}

// TestTry searches one world that is told by flags, to find out how large it is.
func TestTry(t *testing.T) {
	if *try == "" {
		t.Skip("no -try")
	}
	m := model{Medium: v1beta1.Persistent}
	var memory bool
	if _, err := fmt.Sscanf(*try, "%d,%d,%d,%d,%t,%t", &m.Replicas, &m.Faults, &m.Edits, &m.Hitches, &m.Ready,
		&memory); err != nil {
		t.Fatal(err)
	}
	if memory {
		m.Medium = v1beta1.Memory
	}
	m = m.usualEdits()
	m.Sizes = sizes(&m)
	r := m.search()
	t.Log(r)
	if r.Broken != nil {
		fail(t, &m, r.Broken)
	}
}

var try = flag.String("try", "", "replicas,faults,edits,hitches,ready,memory: a world to search")
