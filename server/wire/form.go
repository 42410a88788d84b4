package wire

import "fmt"

// A form is what a call to sync or finalize about one kind of parent holds. A group of children that is missing is a
// CompositeController without that rule; one that is not in the form would be deleted by an answer that omits it. A
// group of related objects that is missing is one without the hook customize, or one that says something else.
type form struct {
	controller        func(in *source) error // nil: read over
	parent            func(in *source) (namespace string, err error)
	children, related []group
	made              int64 // of the call that was read, by weigh
}

// A group are the objects of one kind in a call.
type group struct {
	name string
	read func(in *source, where string) error
	// within is the error about an object that is not in the parent's namespace; nil when that is no error.
	within   func(namespace string) error
	optional bool // it may be missing
	seen     bool // in the call that is read
}

// maybe is the group where it may be missing.
func maybe(g group) group {
	g.optional = true
	return g
}

// child and relative name a group of children, and of related objects.
func child(group string) string    { return fmt.Sprintf("children[%q]", group) }
func relative(group string) string { return fmt.Sprintf("related[%q]", group) }

// read reads the whole call. The error is a *Refusal, unless reading the body failed.
func (f *form) read(in *source) (finalizing bool, err error) {
	namespace := ""
	err = members(in, "the request", func(key string) (err error) {
		switch {
		case key == "controller" && f.controller != nil:
			return f.controller(in)
		case key == "parent":
			namespace, err = f.parent(in)
			return err
		case key == "children":
			return members(in, key, func(group string) error { return f.child(in, group) })
		case key == "related":
			return members(in, key, func(group string) error { return f.relative(in, group) })
		case key == "finalizing":
			return value(in, key, &finalizing)
		}
		return skip(in, key)
	})
	if err == nil {
		err = in.end()
	}
	if err != nil {
		return false, err
	}
	f.made = in.made
	in.done()
	if namespace == "" {
		return false, Bad("parent is missing")
	}
	if err := f.missing(); err != nil {
		return false, err
	}
	return finalizing, f.within(namespace)
}

// child reads a group of children.
func (f *form) child(in *source, name string) error {
	g := find(f.children, name)
	if g == nil {
		return Bad("%s is a group that this version does not know: an answer without it would delete these objects; "+
			"remove the rule from spec.childResources or upgrade Quorate", child(name))
	}
	g.seen = true
	return g.read(in, child(name))
}

// relative reads a group of related objects.
func (f *form) relative(in *source, name string) error {
	g := find(f.related, name)
	if g == nil {
		return skip(in, relative(name))
	}
	g.seen = true
	return g.read(in, relative(name))
}

func find(groups []group, name string) *group {
	for i := range groups {
		if groups[i].name == name {
			return &groups[i]
		}
	}
	return nil
}

// missing finds the groups that a call must have and has not.
func (f *form) missing() error {
	for _, g := range f.children {
		if !g.optional && !g.seen {
			return Bad("%s is missing: the CompositeController has no such rule in spec.childResources", child(g.name))
		}
	}
	for _, g := range f.related {
		if !g.optional && !g.seen {
			return Bad("%s is missing: the CompositeController must have the hook customize of this version",
				relative(g.name))
		}
	}
	return nil
}

// within finds an object that is in another namespace than the parent.
func (f *form) within(namespace string) error {
	for _, groups := range [][]group{f.children, f.related} {
		for _, g := range groups {
			if g.within == nil {
				continue
			}
			if err := g.within(namespace); err != nil {
				return err
			}
		}
	}
	return nil
}
