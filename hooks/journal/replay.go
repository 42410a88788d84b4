package journal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Replay decides once more about all that a journal has, and writes where that comes to something else: each decision,
// and at the end which pods would be deleted that were not. The result is how many decisions differ.
func Replay(out io.Writer, version string, decide func(observation.Observation) decision.Decision,
	entries []*Entry, all Objects) (int, error) {
	others := 0
	clusters := map[string]bool{}
	var deleted []string
	for _, r := range entries {
		again, err := r.Replayed(all, decide)
		if err != nil {
			return 0, err
		}
		clusters[r.Namespace+"/"+r.Name] = true
		differ, err := all.Differences(&r.Decided, &again)
		if err != nil {
			return 0, err
		}
		if len(differ) == 0 {
			continue
		}
		others++
		fmt.Fprintf(out, "%s  %s/%s  was %s, would be %s\n  differs in: %s\n", r.Time.UTC().Format(time.RFC3339), r.Namespace,
			r.Name, r.Decided.words(), again.words(), strings.Join(differ, ", "))
		was, err := all.Wanted(&r.Decided)
		if err != nil {
			return 0, err
		}
		is, err := all.Wanted(&again)
		if err != nil {
			return 0, err
		}
		for child := range was {
			pod, isPod := strings.CutPrefix(child, "Pod ")
			if isPod && is[child] == "" {
				deleted = append(deleted, r.Namespace+"/"+pod)
			}
		}
	}
	fmt.Fprintf(out, "%d of %d decisions about %d clusters are others by %s\n", others, len(entries), len(clusters),
		version)
	if slices.Sort(deleted); len(deleted) > 0 {
		fmt.Fprintf(out, "pods that it would delete, to start them again or for good, and that were left: %s\n",
			strings.Join(slices.Compact(deleted), ", "))
	}
	return others, nil
}

func (d *Decided) words() string {
	if d.Step == "" {
		return d.Rule
	}
	return d.Rule + " (" + d.Step + ")"
}

// An Event is something that was decided at a time, and what that changed.
type Event struct {
	Time    time.Time
	Decided string
	Changes []string
}

// Events are what happened to one cluster: each change of what was decided, of its words, and of children.
func Events(entries []*Entry, all Objects) ([]Event, error) {
	var events []Event
	last := ""
	for _, e := range entries {
		o, err := e.Observation(all)
		if err != nil {
			return nil, err
		}
		wanted, err := all.Wanted(&e.Decided)
		if err != nil {
			return nil, err
		}
		event := Event{Time: e.Time, Decided: e.Decided.Rule + ": " + e.Decided.Message}
		if e.Decided.Step != "" {
			event.Changes = append(event.Changes, "etcd: "+e.Decided.Step)
		}
		event.Changes = append(event.Changes, changes(&o.Children, wanted)...)
		if event.Decided != last || len(event.Changes) > 0 {
			events = append(events, event)
		}
		last = event.Decided
	}
	return events, nil
}

// changes are the children that a decision creates and deletes.
func changes(observed *observation.Children, wanted Children) []string {
	var created, deleted []string
	there := map[string]bool{}
	for _, kind := range observation.Kinds {
		for child := range kind.Observed(observed) {
			name := observation.ChildName(kind.Kind, child)
			there[name] = true
			if _, stays := wanted[name]; !stays {
				deleted = append(deleted, name)
			}
		}
	}
	for name := range wanted {
		if !there[name] {
			created = append(created, name)
		}
	}
	var list []string
	if slices.Sort(created); len(created) > 0 {
		list = append(list, "creates "+strings.Join(created, ", "))
	}
	if slices.Sort(deleted); len(deleted) > 0 {
		list = append(list, "deletes "+strings.Join(deleted, ", "))
	}
	return list
}
