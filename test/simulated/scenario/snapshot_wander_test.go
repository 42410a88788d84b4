package scenario

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// what may happen to a snapshot, between calls. The cache of pods lags only while the snapshot is not deleted: a pod
// that is not seen any more may store after the deletion, until the garbage collector has ended it.
var snapshotMishaps = []string{
	"sync", "sync", "sync", "sync", "pass", "pass", "pass", "pass", "tick 1s", "tick 30s", "tick 10m", "tick 2h",
	"pod runs", "pod stores", "pod keeps", "pod keeps", "pod keeps fails=why", "pod fails=why", "pod killed=OOMKilled",
	"pod discards", "pod stuck=ImagePullBackOff",
	"cluster unavailable=no_quorum_answers", "cluster", "cluster gone", "cluster restore=nightly",
	"cluster restore=nightly restored", "cluster filling", "cache freeze=jobs", "cache freeze=snapshot",
	"cache freeze=pods", "cache thaw", "cache thaw",
	"status wipe", "delete snapshot", "lose job", "lose pod",
}

// TestSnapshotsWander: whatever happens in whatever order, no second snapshot is taken, and once things go well again
// the snapshot ends; one that is deleted leaves nothing behind, unless it says so.
func TestSnapshotsWander(t *testing.T) {
	for seed := range 50 * walks() { // they are short
		r := rand.New(rand.NewPCG(uint64(seed), 6))
		s, told := newSnapshotStory(inFull()), []string{}
		last := "" // what Quorate said last
		tell := func(line string) {
			if said := s.happens(r, line); line == "sync" {
				last = said
				line += "  # " + strings.Join(strings.Split(strings.TrimSpace(said), "\n"), " | ")
			}
			told = append(told, line)
		}
		tell("snapshot policy=Delete")
		frozenPods := false
		for range 10 + r.IntN(40) {
			line := snapshotMishaps[r.IntN(len(snapshotMishaps))]
			switch {
			case line == "cache freeze=pods" && s.snapshot.DeletionTimestamp != nil, line == "delete snapshot" &&
				frozenPods:
				continue
			case strings.HasPrefix(line, "cache"):
				frozenPods = line == "cache freeze=pods" || frozenPods && line != "cache thaw"
			}
			if tell(line); s.snapshot == nil {
				break
			}
		}
		s.goesWell(tell)
		if why := s.wrong(last); why != "" {
			t.Fatalf("seed %d: %s\n%s", seed, why, strings.Join(told, "\n"))
		}
	}
}

// happens carries out one line of a walk.
func (s *snapshotStory) happens(r *rand.Rand, line string) string {
	switch line {
	case "lose job":
		if names := sortedKeys(s.jobs); len(names) > 0 {
			if name := names[r.IntN(len(names))]; !s.takesUnseen(name) {
				delete(s.jobs, name)
			}
		}
		return ""
	case "lose pod":
		if names := sortedKeys(s.pods); len(names) > 0 {
			delete(s.pods, names[r.IntN(len(names))])
		}
		return ""
	case "pod stores", "pod discards": // each pod does what it is for
		if pod := s.active(); pod == nil || (pod.Spec.Containers[0].Name == objects.ContainerDelete) != (line == "pod discards") {
			return ""
		}
	case "pod keeps", "pod keeps fails=why":
		if pod := s.active(); pod == nil || pod.Spec.Containers[0].Name != "snapshot" {
			return ""
		}
	}
	verb, words, err := datadriven.ParseLine(line)
	if err != nil {
		panic(err)
	}
	return snapshotVerbs[verb](s, wordsOf(words))
}

// takesUnseen reports whether a Job takes a snapshot that is being deleted, and is not in view. The Job that deletes
// may have begun for that reason, and be done before it. Once the two are in view, that is seen by their times
// (deleted_unseen). If the one that takes is lost before, with its pods, nothing is left to see it by, and what it
// stored stays.
func (s *snapshotStory) takesUnseen(job string) bool {
	takes := s.jobs[job].Spec.Template.Spec.Containers[0].Name == objects.ContainerSnapshot
	return takes && s.snapshot.DeletionTimestamp != nil && shown(s, "jobs", s.jobs)[job] == nil
}

func sortedKeys[V any](all map[string]V) []string {
	return slices.Sorted(maps.Keys(all))
}

// goesWell lets everything go well from now on.
func (s *snapshotStory) goesWell(tell func(string)) {
	tell("cache thaw")
	tell("cluster")
	for range 60 {
		if s.snapshot == nil {
			break
		}
		tell("sync")
		tell("pass")
		tell("pod stores")
		tell("pod discards")
		tell("pass")
		tell("tick 40s")
	}
	tell("pass") // the garbage collector ends
}

// wrong says what is not as it should be in the end; empty for nothing. Last is what Quorate said last.
func (s *snapshotStory) wrong(last string) string {
	deleted := s.snapshot == nil
	switch {
	case slices.ContainsFunc(s.broken, func(b string) bool {
		return strings.HasPrefix(b, "a second") || strings.HasPrefix(b, "it has succeeded") ||
			strings.HasPrefix(b, "what a cluster")
	}):
		return strings.Join(s.broken, "; ")
	case deleted && len(s.store) > 0 && !strings.HasPrefix(last, "Abandoned"):
		return "it is gone, and something is stored"
	case deleted:
		return ""
	case s.snapshot.DeletionTimestamp != nil:
		return "it never goes: " + s.snapshot.Status.Message
	case s.snapshot.Status.Phase == v1beta1.SnapshotFailed && len(s.store) > 0 &&
		!strings.Contains(s.snapshot.Status.Message, "the check whether anything was stored failed"):
		return "it has failed, and something is stored: " + s.snapshot.Status.Message
	case !slices.Contains([]v1beta1.SnapshotPhase{v1beta1.SnapshotSucceeded, v1beta1.SnapshotUnverified,
		v1beta1.SnapshotFailed}, s.snapshot.Status.Phase):
		return "it never ends: " + s.snapshot.Status.Message
	}
	return ""
}

// active is the first pod that has not ended; nil for none.
func (s *snapshotStory) active() *corev1.Pod {
	for _, name := range sortedKeys(s.pods) {
		if p := s.pods[name]; p.Status.Phase == corev1.PodPending || p.Status.Phase == corev1.PodRunning {
			return p
		}
	}
	return nil
}
