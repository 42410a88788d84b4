// Package journal keeps what decisions were made of, so that they can be made once more: on another machine, or by
// another release. Decide is a pure function of its observation, so a journal of those is all that is needed.
//
// An entry has no Secret and no key of one: an observation has none, except for annotations in which others keep
// the manifest of a Secret, and those are left out here.
package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Entry is one decision.
type Entry struct {
	// Version of Quorate that decided.
	Version string
	// Time of the call, by Quorate's clock.
	Time time.Time
	// Cluster is its namespace and name; UID tells clusters of the same name apart.
	Namespace, Name, UID string
	// Observed is the observation, with a Ref for each object.
	Observed jsontext.Value
	Decided  Decided
	// Withheld says which rules of safety it breaks, for which it was neither carried out nor answered; empty for none.
	Withheld string `json:",omitempty"`
}

// Line is one of a journal: an object, or an entry that has it. An object is before the entries that have it.
type Line struct {
	Ref    Ref            `json:"ref,omitempty"`
	Object jsontext.Value `json:"object,omitempty"`
	Entry  jsontext.Value `json:"entry,omitempty"`
}

// Read reads files of a journal, oldest first. What was written down twice is there once.
func Read(files ...io.Reader) ([]*Entry, Objects, error) {
	all := Objects{}
	var entries []*Entry
	seen := map[string]bool{}
	for _, file := range files {
		in := jsontext.NewDecoder(file)
		n := 1
		for ; in.PeekKind() != 0; n++ { // 0 is the end, or no JSON
			var line Line
			if err := json.UnmarshalDecode(in, &line); err != nil {
				return nil, nil, noEntry(n)
			}
			if line.Entry == nil {
				all[line.Ref] = line.Object
				continue
			}
			if seen[string(line.Entry)] {
				continue
			}
			seen[string(line.Entry)] = true
			r := &Entry{}
			if err := json.Unmarshal(line.Entry, r, written); err != nil {
				return nil, nil, noEntry(n)
			}
			entries = append(entries, r)
		}
		if _, err := in.ReadToken(); !errors.Is(err, io.EOF) {
			return nil, nil, noEntry(n)
		}
	}
	slices.SortStableFunc(entries, func(a, b *Entry) int { return a.Time.Compare(b.Time) })
	return entries, all, nil
}

// Write writes entries as Read reads them.
func Write(out io.Writer, entries []*Entry, all Objects) error {
	w := Writer{Out: out}
	for _, r := range entries {
		if err := w.Add(r, all); err != nil {
			return err
		}
	}
	return nil
}

// Writer writes entries, each after the objects that it has and no entry before it had.
type Writer struct {
	Out  io.Writer
	told map[Ref]bool
}

// Add writes an entry. Its objects must be among these.
func (w *Writer) Add(r *Entry, all Objects) error {
	text, err := r.Text()
	if err != nil {
		return err
	}
	if w.told == nil {
		w.told = map[Ref]bool{}
	}
	if err := w.named(text, all); err != nil {
		return err
	}
	return writeLine(w.Out, Line{Entry: text})
}

// named writes the objects that a text names, and those that they name, unless they were told.
func (w *Writer) named(text jsontext.Value, all Objects) error {
	in := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		token, err := in.ReadToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		ref := Ref(token.String())
		object, is := all[ref]
		if token.Kind() != '"' || !is || w.told[ref] {
			continue
		}
		w.told[ref] = true
		if err := w.named(object, all); err != nil {
			return err
		}
		if err := writeLine(w.Out, Line{Ref: ref, Object: object}); err != nil {
			return err
		}
	}
}

func writeLine(out io.Writer, line Line) error {
	text, err := json.Marshal(line, written) // an object that is empty is one
	if err == nil {
		_, err = out.Write(append(text, '\n'))
	}
	return err
}

// Decided is a decision. Two are the same if all of it is.
type Decided struct {
	Mode, Rule, Message string
	// Step is what it does in etcd; empty for nothing.
	Step        string
	ResyncAfter time.Duration
	// Children are those that should exist: a [Children].
	Children Ref
	Status   Ref
}

// Children are objects by kind and name, such as "Pod demo-0".
type Children map[string]Ref

// Wanted are the children of a decision.
func (all Objects) Wanted(d *Decided) (Children, error) {
	var children Children
	return children, all.get(d.Children, &children, written)
}

// New entries a decision. The result holds its objects by itself, and o and d are not changed.
func New(version string, o observation.Observation, d decision.Decision) (*Entry, Objects, error) {
	all := Objects{}
	k := deskOf(nil, all)
	defer k.leave()
	// not so objects: of theirs an amount of 0 is something else than none
	observed, err := json.Marshal(observedOf(o), written, k.apart, json.OmitZeroStructFields(true))
	if err != nil {
		return nil, nil, fmt.Errorf("an observation can't be written down: %w", err)
	}
	decided, err := k.decided(d)
	if err != nil {
		return nil, nil, err
	}
	return &Entry{Version: version, Time: o.Now, Namespace: o.Cluster.Namespace, Name: o.Cluster.Name,
		UID: string(o.Cluster.UID), Observed: observed, Decided: decided}, all, nil
}

// noEntry says nothing of what is there: it may be another file, with anything in it.
func noEntry(line int) error {
	return fmt.Errorf("line %d is no entry of a journal: pass what `quorate journal` has printed, and all of it", line)
}

// Text is the entry as files have it.
func (r *Entry) Text() (jsontext.Value, error) { return json.Marshal(r, written) }

// Observation is what was observed. The objects must be among these.
func (r *Entry) Observation(all Objects) (observation.Observation, error) {
	k := deskOf(all, nil)
	defer k.leave()
	return k.observation(r)
}

func (k *desk) observation(r *Entry) (observation.Observation, error) {
	var read observed
	if err := json.Unmarshal(r.Observed, &read, written, k.together); err != nil {
		return observation.Observation{}, fmt.Errorf("the entry of %s/%s at %s can't be read: %w", r.Namespace, r.Name,
			r.Time.Format(time.RFC3339), err)
	}
	return read.observation()
}

// Replayed is what this release decides of what was observed. Its objects are added to those.
func (r *Entry) Replayed(all Objects, decide Decide) (Decided, error) {
	k := deskOf(all, all)
	defer k.leave()
	return k.replayed(r, decide)
}

func (k *desk) replayed(r *Entry, decide Decide) (Decided, error) {
	o, err := k.observation(r)
	if err != nil {
		return Decided{}, err
	}
	return k.decided(decide(o))
}

// decided is a decision as entries have it.
func (k *desk) decided(d decision.Decision) (Decided, error) {
	told := Decided{Mode: d.Mode, Rule: d.Reason.Rule, Message: d.Reason.Message, ResyncAfter: d.ResyncAfter}
	if d.Step != nil {
		told.Step = d.Step.String()
	}
	children := Children{}
	for _, kind := range observation.Kinds {
		for child := range kind.Wanted(&d.Children) {
			name := observation.ChildName(kind.Kind, child)
			ref, err := k.refTo(name, child)
			if err != nil {
				return told, err
			}
			children[name] = ref
		}
	}
	var err error
	if told.Children, err = k.added.add(children); err == nil {
		told.Status, err = k.refTo("", &d.Status)
	}
	return told, err
}

// wanted are the children of a decision.
func (k *desk) wanted(d *Decided) (Children, error) {
	var children Children
	err := once(k, d.Children, &children, written)
	return children, err
}

// Differences are the parts in which two decisions differ, with children by name; none for the same.
func (all Objects) Differences(one, other *Decided) ([]string, error) {
	k := deskOf(all, nil)
	defer k.leave()
	return k.differences(one, other)
}

func (k *desk) differences(one, other *Decided) ([]string, error) {
	var list []string
	differ := func(part string, same bool) {
		if !same {
			list = append(list, part)
		}
	}
	differ("step", one.Step == other.Step)
	differ("rule", one.Mode == other.Mode && one.Rule == other.Rule)
	differ("message", one.Message == other.Message)
	differ("pause", one.ResyncAfter == other.ResyncAfter)
	differ("status", one.Status == other.Status)
	if one.Children == other.Children {
		return list, nil
	}
	a, err := k.wanted(one)
	if err != nil {
		return nil, err
	}
	b, err := k.wanted(other)
	if err != nil {
		return nil, err
	}
	both := maps.Clone(a)
	maps.Copy(both, b)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		differ(name, a[name] == b[name])
	}
	return list, nil
}
