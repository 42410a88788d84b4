// Package scenario tells stories: each file below testdata/clusters, snapshots and schedules is one, and each in
// testdata/open is one of a known bug. The first line says what it is about. A block is verbs, one a line, and below
// them what they say: those that say nothing stand above the one that does, and "converged" below it. Run with -rewrite
// to write down what happens now, and read the difference. testdata/index.txt has the stories of every rule.
package scenario

import (
	"cmp"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/test/static/docs"
)

// TestMain has garbage collected rarely: worlds are small, and copied all the time. It takes half of the time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1000)
	os.Exit(m.Run())
}

// TestStories tells every story but the open ones, each from its beginning. None may break a rule.
func TestStories(t *testing.T) {
	all := stories(t, "clusters", "snapshots", "schedules")
	told := &index{stories: map[fired][]string{}}
	t.Cleanup(func() {
		whole := told.count == len(all) // and not some, which -run chooses
		if messages().settle(t, whole); whole {
			told.settle(t)
		}
	})
	for _, path := range all {
		t.Run(nameOf(path), func(t *testing.T) {
			t.Parallel()
			w, breaches := byTheBook(), ""
			switch strings.Split(path, "/")[1] {
			case "snapshots":
				breaches = run(t, path, newSnapshotStory(w), snapshotVerbs)
			case "schedules":
				breaches = run(t, path, newScheduleStory(w), scheduleVerbs)
			default:
				s := newStory(w)
				s.w.Oracle.Decisions = int(crc32.ChecksumIEEE([]byte(path))) // of each story others are replayed
				breaches = run(t, path, s, verbs)
				told.rested(s.w.Oracle.Rests)
			}
			if breaches != "" {
				t.Errorf("%s: VIOLATION\n%s", path, breaches)
			}
			told.add(nameOf(path), w.shown)
		})
	}
}

// TestStoriesInAMesh: a mesh that puts containers of its own into every pod changes nothing about what is told. With
// -short only some stories are told so.
func TestStoriesInAMesh(t *testing.T) {
	if rewrites() {
		t.Skip("they are written down without a mesh")
	}
	for i, path := range stories(t, "clusters") {
		name := nameOf(path)
		if testing.Short() && i%12 != 0 && !slices.ContainsFunc(tellsOfContainers,
			func(part string) bool { return strings.Contains(name, part) }) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(byTheBook())
			s.w.Mesh = true
			run(t, path, s, verbs)
		})
	}
}

// tellsOfContainers are parts of the names of stories in which it matters what containers do.
var tellsOfContainers = []string{"bad_image", "bootstrap_stillborn", "data_wiped", "epoch_inspection",
	"epoch_single_url", "given_up_crash", "reboot", "upgrade_refused"}

// TestOpen runs the stories of known bugs, which end in a violation. One that no longer does belongs to the others.
func TestOpen(t *testing.T) {
	for _, path := range stories(t, "open") {
		t.Run(nameOf(path), func(t *testing.T) {
			if run(t, path, newStory(byTheBook()), verbs) == "" {
				t.Errorf("%s: nothing is violated any more: move it to testdata/clusters", path)
			}
		})
	}
}

// stories are the files in folders of testdata and in the folders below, by path. No two have the same name.
func stories(t *testing.T, folders ...string) (all []string) {
	t.Helper()
	named := map[string]string{}
	for _, folder := range folders {
		require.NoError(t, filepath.WalkDir(filepath.Join("testdata", folder),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				name := nameOf(path)
				assert.Empty(t, named[name], "another story has the name of %s", path)
				named[name] = path
				all = append(all, path)
				return nil
			}))
	}
	require.NotEmpty(t, all)
	return all
}

func nameOf(path string) string { return strings.TrimSuffix(filepath.Base(path), ".txt") }

// run tells one story, and returns the rules that it broke.
func run[S teller](t *testing.T, path string, s S, verbs map[string]func(S, args) string) (breaches string) {
	title(t, path)
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		said, broken := tell(t, d, s, verbs)
		breaches += broken
		return said
	})
	return breaches
}

// teller is a story of some kind as far as it has been told: the rules broken since it was asked last, and what is
// recorded after each verb.
type teller interface {
	breaches() []string
	statuses() []recorded
}

// tell tells a block of a story: verbs, one a line. It returns what they say, and the rules that they break.
func tell[S teller](t *testing.T, d *datadriven.TestData, s S, verbs map[string]func(S, args) string) (said,
	breaches string) {
	words := wordsOf(d.CmdArgs)
	if d.Cmd == "replay" {
		words["journal"] = d.Input
		d.Input = ""
	}
	said, breaches = tellVerb(t, d.Pos, d.Cmd, words, s, verbs)
	for line := range strings.Lines(d.Input) {
		says, broken := tellLine(t, d.Pos, strings.TrimSpace(line), s, verbs)
		said, breaches = said+says, breaches+broken
	}
	return cmp.Or(said, "ok\n"), breaches
}

func tellLine[S teller](t *testing.T, at, line string, s S, verbs map[string]func(S, args) string) (said,
	breaches string) {
	cmd, words, err := datadriven.ParseLine(line)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	return tellVerb(t, at, cmd, wordsOf(words), s, verbs)
}

// tellVerb tells a verb with its words.
func tellVerb[S teller](t *testing.T, at, cmd string, words args, s S,
	verbs map[string]func(S, args) string) (said, breaches string) {
	verb, known := verbs[cmd]
	if !known {
		t.Fatalf("%s: no such verb: %s", at, cmd)
	}
	said = verb(s, words)
	record(t, at+" "+cmd, s.statuses()...)
	for _, breach := range s.breaches() {
		said += "VIOLATION " + breach + "\n"
		breaches += at + ": " + cmd + ": " + breach + "\n"
	}
	return said, breaches
}

// wordsOf are the words of a verb. In values, _ is a space.
func wordsOf(all []datadriven.CmdArg) args {
	a := args{}
	for _, word := range all {
		a[word.Key] = strings.ReplaceAll(strings.Join(word.Vals, ","), "_", " ")
	}
	return a
}

// TestTheExampleInContributing: a story that is written as CONTRIBUTING.md says gets what it shows.
func TestTheExampleInContributing(t *testing.T) {
	pages, err := docs.ReadPages("../../..")
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, page := range pages {
		for _, part := range page.Parts {
			if part.Language != "story" {
				continue
			}
			told++
			s := newStory(byTheBook())
			datadriven.RunTestFromString(t, part.Text, func(t *testing.T, d *datadriven.TestData) string {
				said, breaches := tell(t, d, s, verbs)
				if breaches != "" {
					t.Errorf("%s:%d: VIOLATION %s", page.Path, part.Line, breaches)
				}
				return said
			})
		}
	}
	if told == 0 {
		t.Error("the documents tell no story")
	}
}

// TestMutantsStories lives through what breaks the mutants of test/simulated/model, with the shipped rules: none of
// it breaks them.
func TestMutantsStories(t *testing.T) {
	paths, err := filepath.Glob("../model/testdata/mutants/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no stories", err)
	}
	for _, path := range paths {
		title(t, path)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := newStory(inFull())
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "----") || strings.TrimSpace(line) == "" {
				continue
			}
			_, breaches := tellLine(t, path, strings.TrimSpace(line), s, verbs)
			if breaches != "" {
				t.Errorf("%s: VIOLATION %s", strings.TrimSpace(line), breaches)
			}
		}
	}
}

// title insists that a story begins with a sentence about itself.
func title(t *testing.T, path string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	if !strings.HasPrefix(first, "# ") || !strings.HasSuffix(first, ".") {
		t.Errorf("%s: the first line must be one sentence after a #, and is %q", path, first)
	}
}
