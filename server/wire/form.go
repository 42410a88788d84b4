package server

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// parts read a call about a parent whose children and related objects are few: the parent by one function, each group of objects by
// another. A group of children that is missing is a CompositeController without that rule; one that nobody reads would be deleted by an
// answer that omits it. A group of related objects that is missing is one without the hook customize, or one that says something else.
type parts struct {
	parent   func(in *source) error
	children map[string]func(in *source, where string) error
	related  map[string]func(in *source, where string) error
}

// read reads the whole call. The error is a *badRequest, unless reading the body failed.
func (p parts) read(body io.Reader) (finalizing bool, err error) {
	in, err := newSource(body)
	if err != nil {
		return false, err
	}
	seen := map[string]bool{}
	err = object(in, "the request", func(key string) error {
		switch key {
		case "parent":
			seen[key] = true
			return p.parent(in)
		case "children":
			return object(in, key, func(group string) error {
				read, known := p.children[group]
				if !known {
					return bad("children[%q] is a group that this version does not know: an answer without it would delete these objects; remove the rule from spec.childResources or upgrade Quorate", group)
				}
				seen[field(group)] = true
				return read(in, field(group))
			})
		case "related":
			return object(in, key, func(group string) error {
				read, known := p.related[group]
				if !known {
					return skip(in, group)
				}
				where := fmt.Sprintf("related[%q]", group)
				seen[where] = true
				return read(in, where)
			})
		case "finalizing":
			return value(in, key, &finalizing)
		default:
			return skip(in, key)
		}
	})
	if err == nil {
		err = in.end()
	}
	if err != nil {
		return false, err
	}
	in.done()
	return finalizing, p.missing(seen)
}

// missing finds what a call must have and has not.
func (p parts) missing(seen map[string]bool) error {
	if !seen["parent"] {
		return bad("parent is missing")
	}
	for _, group := range slices.Sorted(maps.Keys(p.children)) {
		if !seen[field(group)] {
			return bad("children[%q] is missing: the CompositeController has no such rule in spec.childResources", group)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(p.related)) {
		if !seen[fmt.Sprintf("related[%q]", group)] {
			return bad("related[%q] is missing: the CompositeController must have the hook customize of this version", group)
		}
	}
	return nil
}

// encodeParts writes the answer about such a parent. It fails when the children can't be what was meant.
func encodeParts(namespace string, status any, children []answerChild, resync time.Duration, finalized *bool) ([]byte, error) {
	if err := distinct(namespace, children); err != nil {
		return nil, err
	}
	a := answer{Status: status, Children: append([]answerChild{}, children...), ResyncAfterSeconds: resync.Seconds(), Finalized: finalized}
	return json.Marshal(a, jsonv1.DefaultOptionsV1())
}
