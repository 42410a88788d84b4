package pages

import (
	"slices"
)

// window is what was read last: some pages in a row.
type window struct {
	raw []byte
	// at is the first page, and have is how many there are.
	at, have uint64
	// step is how many are read where what was asked for follows on what was read before.
	step uint64
	// leaf is how many pages the last leaf had: the next one is taken to have as many.
	leaf uint64
}

const (
	// mostStep is as many pages as are read at once, where there is no leaf that has more.
	mostStep = 64
	// askedFor is how many bytes of leaves the disk is asked for before they are read.
	askedFor = 4 << 20
	// mostly leaves that follow on each other have no more than this many pages of others between them.
	mostly = 8
)

// node is a page that was read. A leaf is good until the next one is read, a branch as long as it is needed.
type node struct {
	page
	// kids are those of a branch; asked is how many of them the disk was asked for.
	kids  []kid
	asked int
}

// load reads a page that others refer to, and checks what it says of itself.
func (w *walk) load(id uint64) (*node, error) {
	p, err := w.read(id)
	if err != nil {
		return nil, err
	}
	switch p.kind() {
	case leafPage:
		w.leaf = p.overflow() + 1
		return &node{page: p}, nil
	case branchPage:
		n := &node{page: slices.Clone(p)}
		n.kids, err = n.page.kids()
		return n, err
	}
	return nil, flawed("page %d is neither a leaf nor a branch", id)
}

// read reads a page with those that it flows over into.
func (w *walk) read(id uint64) (page, error) {
	raw, err := w.row(id, 1)
	if err != nil {
		return nil, err
	}
	p := page(raw)
	if p.id() != id {
		return nil, flawed("page %d says that it is page %d", id, p.id())
	}
	n := p.overflow() + 1
	if n > 1 {
		if raw, err = w.row(id, n); err != nil {
			return nil, err
		}
	}
	for i := id; w.seen != nil && i < id+n; i++ {
		if w.seen.mark(i) {
			return nil, flawed("two places refer to page %d", i)
		}
	}
	return page(raw), nil
}

// row is so many pages from one on.
func (w *walk) row(id, n uint64) ([]byte, error) {
	end := min(w.end, w.pages)
	if id < 2 || id >= end || n > end-id {
		return nil, flawed("page %d is not in the file, which has %d", id+n-1, end)
	}
	size := uint64(w.pageSize)
	if id < w.at || id+n > w.at+w.have {
		follows := id == w.at+w.have
		w.step = min(2*w.step, mostStep)
		if !follows {
			w.step = 1
		}
		w.have = 0 // until it is read
		want := min(max(n, w.step, w.leaf), end-id)
		w.raw = slices.Grow(w.raw[:0], int(want*size))[:want*size]
		if _, err := w.file.ReadAt(w.raw, int64(id*size)); err != nil {
			return nil, err
		}
		w.at = id
		w.have = want
	}
	return w.raw[(id-w.at)*size : (id-w.at+n)*size], nil
}

// ask tells the disk which pages of a branch are read next, from one of its kids on.
func (w *walk) ask(n *node, from int) {
	if n == nil || len(n.kids) == 0 {
		return
	}
	size := uint64(w.pageSize)
	most := max(mostly, askedFor/int(w.leaf*size))
	if n.asked-from > most/2 {
		return
	}
	until := min(from+most, len(n.kids))
	for i := max(from, n.asked); i < until; {
		begin := n.kids[i].id
		end := begin
		for i < until && n.kids[i].id >= end && n.kids[i].id-end <= mostly {
			end = n.kids[i].id + w.leaf
			i++
		}
		willNeed(w.file, int64(begin*size), int64((end-begin)*size))
	}
	n.asked = max(until, n.asked)
}

// marks is a set of pages.
type marks []uint64

func (m marks) has(id uint64) bool { return m[id/64]&(1<<(id%64)) != 0 }

// mark adds a page, and reports whether it was there.
func (m marks) mark(id uint64) bool {
	was := m.has(id)
	m[id/64] |= 1 << (id % 64)
	return was
}
