package pages

import (
	"bytes"
	"encoding/binary"
)

// page is one with the pages that it flows over into (internal/common/page.go of bbolt).
type page []byte

// Kinds of pages.
const (
	branchPage = 0x01
	leafPage   = 0x02
	metaPage   = 0x04
	listPage   = 0x10
)

// elementSize is that of what a page says of each of its elements: a leaf its flags, and where its name and value
// are; a branch where the name is, and the page.
const elementSize = 16

func (p page) id() uint64       { return binary.NativeEndian.Uint64(p) }
func (p page) kind() uint16     { return binary.NativeEndian.Uint16(p[8:]) }
func (p page) count() int       { return int(binary.NativeEndian.Uint16(p[10:])) }
func (p page) overflow() uint64 { return uint64(binary.NativeEndian.Uint32(p[12:])) }

// kid is an element of a branch: the page with the keys from a name on.
type kid struct {
	name []byte
	id   uint64
}

// kids are all elements of a branch page.
func (p page) kids() ([]kid, error) {
	all := make([]kid, p.count())
	for i := range all {
		at := headerSize + i*elementSize
		if at+elementSize > len(p) {
			return nil, p.senseless()
		}
		element := p[at:]
		name, ok := part(element, binary.NativeEndian.Uint32(element), binary.NativeEndian.Uint32(element[4:]))
		if !ok {
			return nil, p.senseless()
		}
		all[i] = kid{name, binary.NativeEndian.Uint64(element[8:])}
	}
	if len(all) == 0 {
		return nil, p.senseless()
	}
	return all, nil
}

// leaf is the element of a leaf page with a number: a record, or a bucket.
func (p page) leaf(i int) (name, value []byte, bucket bool, err error) {
	at := headerSize + i*elementSize
	if at+elementSize > len(p) {
		return nil, nil, false, p.senseless()
	}
	element := p[at:]
	flags := binary.NativeEndian.Uint32(element)
	from := binary.NativeEndian.Uint32(element[4:])
	length := binary.NativeEndian.Uint32(element[8:])
	name, named := part(element, from, length)
	value, valued := part(element, from, length, binary.NativeEndian.Uint32(element[12:]))
	if !named || !valued {
		return nil, nil, false, p.senseless()
	}
	return name, value, flags&1 != 0, nil
}

// part is what comes behind lengths, as long as the last one; false when that is not there.
func part(of []byte, lengths ...uint32) ([]byte, bool) {
	begin, end := uint64(0), uint64(0)
	for _, length := range lengths {
		begin = end
		end += uint64(length)
	}
	if end > uint64(len(of)) {
		return nil, false
	}
	return of[begin:end:end], true
}

func (p page) senseless() error { return flawed("what page %d says makes no sense", p.id()) }

// between says that names are in order, and those of a page from low on and below high; nil for no bound.
type between struct {
	low, high []byte
	before    []byte
	any       bool
}

func (b *between) next(name []byte, of uint64) error {
	switch {
	case b.any && bytes.Compare(name, b.before) <= 0,
		!b.any && bytes.Compare(name, b.low) < 0,
		b.high != nil && bytes.Compare(name, b.high) >= 0:
		return flawed("the names in page %d are not in order", of)
	}
	b.any = true
	b.before = name
	return nil
}
