package scenario

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/simulated/model"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// replaysAlike writes a journal as a volume has it, reads it and decides once more about all of it. The result is what
// differs.
func replaysAlike(t *testing.T, j *world.Journal) string {
	t.Helper()
	if j == nil {
		return ""
	}
	var file, told strings.Builder
	packer := journal.Packer(&file)
	lines := journal.Writer{Out: packer}
	for _, r := range j.Entries {
		require.NoError(t, lines.Add(r, j.Objects))
		require.NoError(t, packer.Flush())
	}
	text, whole := journal.Unpack([]byte(file.String()))
	require.True(t, whole)
	entries, objects, err := journal.Read(strings.NewReader(string(text)))
	require.NoError(t, err)
	others, err := journal.Replay(&told, "this release", hooks.Decide, entries, objects)
	require.NoError(t, err)
	t.Logf("%d entries in %d bytes are replayed, %d packed", len(entries), len(text), file.Len())
	if others > 0 {
		return told.String()
	}
	return ""
}

// replay decides once more about a journal: the answer to each entry, and the safety rules that it breaks.
func (s *story) replay(a args) string {
	entries, objects, err := journal.Read(strings.NewReader(a["journal"]))
	for _, r := range entries {
		var o observation.Observation
		if o, err = r.Observation(objects); err != nil {
			break
		}
		if broken := hooks.Verify(o, s.w.Decides(o)); broken != nil {
			s.w.Oracle.Broken = append(s.w.Oracle.Broken, strings.Split(broken.Error(), "\n")...)
		}
		if r.Decided, err = r.Replayed(objects, s.w.Decides); err != nil {
			break
		}
	}
	var told strings.Builder
	if err == nil {
		err = journal.Tell(&told, entries, objects)
	}
	if err != nil {
		return err.Error() + "\n"
	}
	return told.String()
}

// removesTheFenced decides as before e0e424f5: a cluster that shrinks removes the member whose volume a person looks at.
func removesTheFenced(o observation.Observation) decision.Decision {
	d := hooks.Decide(o)
	if d.Reason.Rule != "Shrink" || d.Step != nil || o.Taken != nil {
		return d
	}
	for _, m := range o.Etcd.Members {
		if !o.Health[m.Name].Serving() {
			d.Step = decision.Remove{ID: m.ID, Name: m.Name}
		}
	}
	return d
}

// TestAPastBugIsFoundInAJournal: what a release with a bug has written down, one without it decides otherwise and says
// so; and the story that its journal becomes fails for as long as the bug is there.
func TestAPastBugIsFoundInAJournal(t *testing.T) {
	s := newStory(inFull())
	s.w.Decide = removesTheFenced
	s.w.Journal = &world.Journal{Objects: journal.Objects{}}
	for _, line := range []string{"cluster replicas=5 tls=Disabled ready", "fence member=demo-1", "stabilize",
		"edit replicas=4", "stabilize"} {
		tellLine(t, "", line, s, verbs)
	}
	var told strings.Builder
	others, err := journal.Replay(&told, "the next release", hooks.Decide, s.w.Journal.Entries, s.w.Journal.Objects)
	require.NoError(t, err)
	assert.Positive(t, others)
	assert.Contains(t, told.String(), "was Shrink (remove demo-1), would be Shrink\n")

	n := slices.IndexFunc(s.w.Journal.Entries, func(r *journal.Entry) bool { return r.Decided.Step == "remove demo-1" })
	require.Positive(t, n)
	told.Reset()
	require.NoError(t, journal.Story(&told, s.w.Journal.Entries[n:n+1], s.w.Journal.Objects))
	play := func(text string, decide func(observation.Observation) decision.Decision) (said, breaches string) {
		s := newStory(inFull())
		s.w.Decide = decide
		datadriven.RunTestFromString(t, text, func(t *testing.T, d *datadriven.TestData) string {
			said, breaches = tell(t, d, s, verbs)
			return d.Expected
		})
		return said, breaches
	}
	kept, err := os.ReadFile("testdata/clusters/operations/fence_shrink_journal.txt") // by quorate replay --as-story
	require.NoError(t, err)
	for _, text := range []string{told.String(), string(kept)} {
		said, breaches := play(text, removesTheFenced)
		assert.Contains(t, said, "\n  etcd: remove demo-1\n")
		assert.Contains(t, breaches, "S6: ")
		said, breaches = play(text, nil)
		assert.Contains(t, said, "delete that operation to go on\n")
		assert.NotContains(t, said, "etcd: ")
		assert.Empty(t, breaches)
	}
}

// telling are stories in which each mutant of the model would decide otherwise, beside those of the mutants themselves.
var telling = []string{"alarms/corrupt_claim_lost", "alarms/defragment_roll", "auth/auth_restore",
	"auth/passwords_alone_authority", "external/external", "versions/patch_release", "versions/upgrade_step",
	"epochs/epoch_survivor_by_itself"}

// TestMutantsAreSeenInJournals: what the shipped rules have written down is decided otherwise by every mutant, so each
// would be reported by quorate replay, before it is installed. That members join as voters, and that a promotion needs
// no proof, are mutants of etcd: nothing is decided otherwise.
func TestMutantsAreSeenInJournals(t *testing.T) {
	paths, err := filepath.Glob("../model/testdata/mutants/*.txt")
	require.NoError(t, err)
	for _, name := range telling {
		paths = append(paths, "testdata/clusters/"+name+".txt")
	}
	unseen := maps.Clone(model.Deciders)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		s := newStory(inFull())
		s.w.Journal = &world.Journal{Objects: journal.Objects{}}
		datadriven.RunTestFromString(t, string(text), func(t *testing.T, d *datadriven.TestData) string {
			tell(t, d, s, verbs)
			return d.Expected
		})
		tellLine(t, path, "sync", s, verbs) // some end with what people did
		require.Empty(t, replaysAlike(t, s.w.Journal), path)
		for _, r := range s.w.Journal.Entries {
			maps.DeleteFunc(unseen, func(_ string, mutant func(observation.Observation) decision.Decision) bool {
				return decidesOtherwise(t, r, s.w.Journal.Objects, mutant)
			})
		}
	}
	assert.Empty(t, slices.Sorted(maps.Keys(unseen)), "a story in which they decide otherwise belongs to telling")
}

// decidesOtherwise reports whether a mutant is seen in an entry. Some know only what happens in the model's worlds.
func decidesOtherwise(t *testing.T, r *journal.Entry, all journal.Objects,
	mutant func(observation.Observation) decision.Decision) (otherwise bool) {
	t.Helper()
	defer func() {
		if recover() != nil {
			otherwise = false
		}
	}()
	o, err := r.Observation(all)
	require.NoError(t, err)
	if reflect.DeepEqual(mutant(o), hooks.Decide(o)) {
		return false
	}
	again, err := r.Replayed(all, mutant)
	require.NoError(t, err)
	differ, err := all.Differences(&r.Decided, &again)
	require.NoError(t, err)
	return len(differ) > 0
}
