package pages

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
)

// Free are the pages of a database that nothing refers to.
type Free struct {
	meta
	ids []uint64
	// Lost is how many of them a list of free pages in the file should have, and does not: bbolt never uses them again.
	Lost int
}

// manyFree: from so many on a page of the list can't say in its header how many there are.
const manyFree = math.MaxUint16

// list reads the list of free pages; nil where the file has none.
func (w *walk) list() (page, error) {
	if w.meta.list == noList {
		return nil, nil
	}
	p, err := w.read(w.meta.list)
	if err != nil {
		return nil, err
	}
	if p.kind() != listPage {
		return nil, flawed("page %d should have the list of free pages, and does not", w.meta.list)
	}
	return append(page{}, p...), nil
}

// free is what all that was seen leaves.
func (w *walk) free(list page) (*Free, error) {
	f := &Free{meta: w.meta}
	listed := make(marks, len(w.seen))
	end := min(w.end, w.pages)
	ids, err := list.ids()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		switch {
		case id >= w.end:
			return nil, flawed("the list of free pages has page %d, and there are %d", id, w.end)
		case id >= end: // a file that was cut off lacks it
		case w.seen.has(id):
			return nil, flawed("page %d is in use, and in the list of free pages", id)
		case listed.mark(id):
			return nil, flawed("page %d is twice in the list of free pages", id)
		}
	}
	for id := uint64(2); id < end; id++ {
		if w.seen.has(id) {
			continue
		}
		f.ids = append(f.ids, id)
		if list != nil && !listed.has(id) {
			f.Lost++
		}
	}
	if list != nil { // it gives way to another one
		for i := range list.overflow() + 1 {
			f.ids = append(f.ids, w.meta.list+i)
		}
	}
	return f, nil
}

// ids are those in a list of free pages, which is none where the file has no list.
func (p page) ids() ([]uint64, error) {
	if p == nil {
		return nil, nil
	}
	rest := p[headerSize:]
	n := uint64(p.count())
	if n == manyFree {
		n = binary.NativeEndian.Uint64(rest)
		rest = rest[8:]
	}
	if n > uint64(len(rest))/8 {
		return nil, p.senseless()
	}
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = binary.NativeEndian.Uint64(rest[8*i:])
	}
	return ids, nil
}

// Write writes the list into the file that it is of, in place of the one that may be there: bbolt opens that without a
// walk over all pages, and writes where the list says. Nothing may have changed since. It is not on the disk when
// Write returns.
func (f *Free) Write(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	size := int(f.pageSize)
	entries := f.ids
	if len(entries) >= manyFree {
		entries = append([]uint64{uint64(len(entries))}, entries...)
	}
	pages := (headerSize + 8*len(entries) + size - 1) / size
	raw := make([]byte, headerSize, pages*size)
	is := binary.NativeEndian
	is.PutUint64(raw, f.end)
	is.PutUint16(raw[8:], listPage)
	is.PutUint16(raw[10:], uint16(min(len(f.ids), manyFree)))
	is.PutUint32(raw[12:], uint32(pages-1))
	for _, id := range entries {
		raw = is.AppendUint64(raw, id)
	}
	after := f.meta
	after.list = f.end
	after.end += uint64(pages)
	after.transaction++
	_, err = file.WriteAt(raw[:pages*size], int64(f.end)*int64(size))
	if err == nil {
		_, err = file.WriteAt(after.page(), int64(after.transaction%2)*int64(size))
	}
	return errors.Join(err, file.Close())
}

// Used is how many bytes the pages have that are not free.
func (f *Free) Used() int64 { return (int64(f.end) - int64(len(f.ids))) * int64(f.pageSize) }
