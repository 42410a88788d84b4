package pages

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
)

// Each is called with a record; both are good until it returns.
type Each func(name, value []byte) error

// errNested: etcd has no buckets in buckets.
const errNested = Flaw("it has a bucket in a bucket, which etcd does not make")

// deepest is far beyond how deep a tree of pages is: a page has 2 others at least below it, and mostly 50.
const deepest = 64

// All reads every page once. For each bucket, in the order of their names, it asks whom to call with its
// records, in the order of theirs; nil for nothing. It returns the pages that nothing refers to.
func (d *Database) All(ctx context.Context, bucket func(name []byte) Each) (*Free, error) {
	w := d.walk(ctx)
	w.seen = make(marks, min(d.end, d.pages)/64+1)
	w.seen.mark(0)
	w.seen.mark(1)
	list, err := w.list()
	if err != nil {
		return nil, err
	}
	err = w.buckets(func(name []byte, t tree) error {
		each := bucket(name)
		if each == nil {
			each = func(_, _ []byte) error { return nil }
		}
		return t.records(each)
	})
	if err != nil {
		return nil, err
	}
	return w.free(list)
}

// From calls each with the records of a bucket whose names are not below one; a bucket that is not there has none.
func (d *Database) From(ctx context.Context, bucket, first []byte, each Each) error {
	return d.walk(ctx).buckets(func(name []byte, t tree) error {
		if !bytes.Equal(name, bucket) {
			return nil
		}
		t.first = first
		return t.records(each)
	})
}

// Get is the value of a record; nil when it is not there.
func (d *Database) Get(ctx context.Context, bucket, name []byte) (value []byte, err error) {
	err = d.From(ctx, bucket, name, func(found, is []byte) error {
		if bytes.Equal(found, name) {
			value = append([]byte{}, is...)
		}
		return errEnough
	})
	if err == errEnough { //nolint:errorlint // it is passed on as it is
		err = nil
	}
	return value, err
}

// errEnough ends a walk.
const errEnough = Flaw("enough")

// Has reports whether there is a bucket.
func (d *Database) Has(ctx context.Context, bucket []byte) (has bool, err error) {
	err = d.walk(ctx).buckets(func(name []byte, _ tree) error {
		has = has || bytes.Equal(name, bucket)
		return nil
	})
	return has, err
}

// walk is one way over pages.
type walk struct {
	*Database
	ctx context.Context
	window
	// seen are the pages that were read, where each must be read once; nil elsewhere.
	seen marks
}

func (d *Database) walk(ctx context.Context) *walk {
	return &walk{Database: d, ctx: ctx, window: window{leaf: 1}}
}

// tree is a bucket: the pages below one, or a page that is in the list of buckets itself.
type tree struct {
	*walk
	root   uint64
	inline page
	// first is the name before which no record is wanted; nil for none.
	first []byte
}

// buckets calls f for each bucket. Its name is good until f returns.
func (w *walk) buckets(f func(name []byte, t tree) error) error {
	list := tree{walk: w, root: w.root}
	type one struct {
		name []byte
		tree
	}
	var all []one // they are few, and the pages that list them are not kept while others are read
	err := list.pages(func(name, value []byte, bucket bool) error {
		const header = 16
		if !bucket || len(value) < header {
			return Flaw("it has a record outside of all buckets, which etcd does not write")
		}
		t := tree{walk: w, root: binary.NativeEndian.Uint64(value)}
		if t.root == 0 {
			t.inline = slices.Clone(page(value[header:]))
		}
		all = append(all, one{slices.Clone(name), t})
		return nil
	})
	for _, b := range all {
		if err == nil {
			err = f(b.name, b.tree)
		}
	}
	return err
}

// records calls each with the records.
func (t tree) records(each Each) error {
	return t.pages(func(name, value []byte, bucket bool) error {
		if bucket {
			return errNested
		}
		return each(name, value)
	})
}

type element func(name, value []byte, bucket bool) error

func (t tree) pages(each element) error {
	if t.root == 0 {
		if len(t.inline) < headerSize || t.inline.kind() != leafPage {
			return Flaw("it has a bucket that makes no sense")
		}
		return t.leaf(t.inline, between{}, each)
	}
	n, err := t.load(t.root)
	if err != nil {
		return err
	}
	return t.below(n, between{}, 0, each)
}

// below is all that is in a page and below it.
func (t tree) below(n *node, names between, depth int, each element) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	if n.kind() == leafPage {
		return t.leaf(n.page, names, each)
	}
	if depth == deepest {
		return flawed("page %d is below %d others", n.id(), depth)
	}
	for _, k := range n.kids {
		if err := names.next(k.name, n.id()); err != nil {
			return err
		}
	}
	var next *node
	for i := t.skip(n.kids); i < len(n.kids); i++ {
		is := next
		next = nil
		t.ask(n, i)
		var err error
		if is == nil {
			is, err = t.load(n.kids[i].id)
		}
		within := between{low: n.kids[i].name, high: names.high}
		if i+1 < len(n.kids) {
			within.high = n.kids[i+1].name
		}
		if err == nil && is.kind() == branchPage && i+1 < len(n.kids) {
			// What is below the next one is on its way while this one is read.
			next, err = t.load(n.kids[i+1].id)
			t.ask(next, 0)
		}
		if err != nil {
			return err
		}
		if err := t.below(is, within, depth+1, each); err != nil {
			return err
		}
	}
	return nil
}

// skip is how many kids have nothing from first on.
func (t tree) skip(kids []kid) int {
	n := 0
	for n+1 < len(kids) && t.first != nil && bytes.Compare(kids[n+1].name, t.first) <= 0 {
		n++
	}
	return n
}

func (t tree) leaf(p page, names between, each element) error {
	for i := range p.count() {
		name, value, bucket, err := p.leaf(i)
		if err == nil {
			err = names.next(name, p.id())
		}
		if err == nil && bytes.Compare(name, t.first) >= 0 {
			err = each(name, value, bucket)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
