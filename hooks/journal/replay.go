package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Decide is hooks.Decide, of some release.
type Decide = func(observation.Observation) decision.Decision

// Replay decides once more about all that a journal has, and writes what comes to something else: how many decisions
// and whose, first of clusters in which something would be stopped that was left, and then each decision. The result is
// how many differ.
func Replay(out io.Writer, version string, decide Decide, entries []*Entry, all Objects) (int, error) {
	var told bytes.Buffer
	others := 0
	differing := map[string]int{} // by cluster
	stopped := map[string][]string{}
	for i, v := range replayed(decide, entries, all) {
		r := entries[i]
		cluster := r.Namespace + "/" + r.Name
		differing[cluster] += 0
		if v.err != nil {
			return 0, v.err
		}
		if len(v.differ) == 0 {
			continue
		}
		others++
		differing[cluster]++
		stopped[cluster] = append(stopped[cluster], v.stops...)
		fmt.Fprintf(&told, "%s  %s  was %s, would be %s\n  differs in: %s\n", r.Time.UTC().Format(time.RFC3339), cluster,
			r.Decided.words(), v.words, strings.Join(v.differ, ", "))
	}
	fmt.Fprintf(out, "%d of %d decisions about %d clusters are others by %s\n", others, len(entries), len(differing),
		version)
	writeClusters(out, differing, stopped)
	_, err := told.WriteTo(out)
	return others, err
}

// verdict is what an entry is decided again as.
type verdict struct {
	words         string
	differ, stops []string // parts, and pods and claims that were left
	err           error
}

// replayed decides again about each entry: by clusters, as many at once as there are processors.
func replayed(decide Decide, entries []*Entry, all Objects) []verdict {
	verdicts := make([]verdict, len(entries))
	clusters := map[string][]int{}
	for i, r := range entries {
		clusters[r.UID] = append(clusters[r.UID], i)
	}
	left := make(chan []int, len(clusters))
	for _, cluster := range clusters {
		left <- cluster
	}
	close(left)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(clusters)) {
		workers.Go(func() {
			for cluster := range left {
				replayCluster(decide, entries, all, cluster, verdicts)
			}
		})
	}
	workers.Wait()
	return verdicts
}

// mostSeen is how many objects are kept in memory: most of a cluster's stay the same.
const mostSeen = 2000

// replayCluster decides again about the entries of one cluster.
func replayCluster(decide Decide, entries []*Entry, all Objects, cluster []int, verdicts []verdict) {
	k := deskOf(all, Objects{})
	defer k.leave()
	for _, i := range cluster {
		if len(k.seen) > mostSeen || k.seen == nil {
			k.seen = map[Ref]any{}
			k.last = map[string]named{}
			k.added = Objects{}
		}
		verdicts[i] = k.verdict(entries[i], decide)
	}
}

func (k *desk) verdict(r *Entry, decide Decide) (v verdict) {
	again, err := k.replayed(r, decide)
	if err != nil {
		return verdict{err: err}
	}
	if v.differ, v.err = k.differences(&r.Decided, &again); len(v.differ) > 0 {
		v.words = again.words()
		v.stops, v.err = k.stopsMore(r, &again)
	}
	return v
}

// writeClusters names those about which something else is decided, first of all whose members would be stopped.
func writeClusters(out io.Writer, differing map[string]int, stopped map[string][]string) {
	var calm []string
	for _, cluster := range slices.Sorted(maps.Keys(differing)) {
		more := stopped[cluster]
		if slices.Sort(more); len(more) > 0 {
			fmt.Fprintf(out, "%s: it would restart or delete %s, and they were left\n", cluster,
				strings.Join(slices.Compact(more), ", "))
		} else if differing[cluster] > 0 {
			calm = append(calm, cluster)
		}
	}
	if len(calm) > 0 {
		fmt.Fprintf(out, "it would treat otherwise, and stop no member: %s\n", strings.Join(calm, ", "))
	}
}

// stopsMore are the pods and claims that were left, and would be stopped.
func (k *desk) stopsMore(r *Entry, again *Decided) ([]string, error) {
	o, err := k.observation(r)
	if err != nil {
		return nil, err
	}
	was, err := k.stops(&o.Children, &r.Decided)
	if err != nil {
		return nil, err
	}
	is, err := k.stops(&o.Children, again)
	return slices.DeleteFunc(is, func(name string) bool { return slices.Contains(was, name) }), err
}

// stops are the observed pods and claims that a decision deletes, and the pods in which it has containers start again
// from other images.
func (k *desk) stops(observed *observation.Children, d *Decided) ([]string, error) {
	wanted, err := k.wanted(d)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pod := range observed.Pods {
		name := observation.ChildName("Pod", pod)
		stays := wanted[name] != ""
		if stays {
			var as corev1.Pod
			if err := k.get(wanted[name], &as, written); err != nil {
				return nil, err
			}
			stays = !slices.ContainsFunc(as.Spec.Containers, func(c corev1.Container) bool { return hasOther(pod, c) })
		}
		if !stays {
			names = append(names, name)
		}
	}
	for _, claim := range observed.Claims {
		if name := observation.ChildName("PersistentVolumeClaim", claim); wanted[name] == "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// hasOther reports whether a pod has this container with another image. Others may put containers of theirs into it.
func hasOther(pod *corev1.Pod, wanted corev1.Container) bool {
	return slices.ContainsFunc(pod.Spec.Containers,
		func(c corev1.Container) bool { return c.Name == wanted.Name && c.Image != wanted.Image })
}

// Before is the last entry before a moment, or none; all for no moment.
func Before(entries []*Entry, at time.Time) []*Entry {
	if at.IsZero() {
		return entries
	}
	after := slices.IndexFunc(entries, func(r *Entry) bool { return r.Time.After(at) })
	if after < 0 {
		after = len(entries)
	}
	return entries[max(0, after-1):after]
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
		if e.Withheld != "" {
			event.Changes = append(event.Changes, "all of it withheld: "+strings.ReplaceAll(e.Withheld, "\n", "; "))
		}
		if event.Decided != last || len(event.Changes) > 0 {
			events = append(events, event)
		}
		last = event.Decided
	}
	return events, nil
}

// Tell writes what happened to one cluster.
func Tell(out io.Writer, entries []*Entry, all Objects) error {
	events, err := Events(entries, all)
	for _, event := range events {
		fmt.Fprintf(out, "%s %s\n", event.Time.UTC().Format(time.RFC3339), event.Decided)
		for _, change := range event.Changes {
			fmt.Fprintf(out, "  %s\n", change)
		}
	}
	return err
}

// Story writes a journal of one cluster as a story of test/simulated/scenario: it decides once more, and below stands
// what was decided.
func Story(out io.Writer, entries []*Entry, all Objects) error {
	if len(entries) == 0 {
		return errors.New("the journal has no entry: there is nothing to tell")
	}
	first := entries[0]
	var asked []*Entry // what was decided is words enough, below
	for _, r := range entries {
		one := *r
		one.Decided = Decided{}
		one.Withheld = ""
		asked = append(asked, &one)
		if r.UID != first.UID {
			return fmt.Errorf("a story is about one cluster, and the journal has entries about %s/%s and %s/%s: pass what "+
				"`kubectl quorate history NAME --journal` has printed", first.Namespace, first.Name, r.Namespace, r.Name)
		}
	}
	fmt.Fprintf(out, "# What Quorate %s has decided about %s/%s: say here what is wrong, and below ---- what is right.\n\n"+
		"replay\n", first.Version, first.Namespace, first.Name)
	if err := Write(out, asked, all); err != nil {
		return err
	}
	fmt.Fprintln(out, "----")
	return Tell(out, entries, all)
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
