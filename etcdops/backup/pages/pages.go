// Package pages reads a database of bbolt as the file that it is: in the order of its keys, by plain reads of pages
// that are next to each other, and each page once. bbolt itself maps a file for random access, so that each page that
// is not in memory is a fault and a request to the disk, and opens one for writing by a walk over all of its pages.
//
// Every page is checked as bbolt's own Check does: what it says of itself, that no other place refers to it, that it
// is not in the list of free pages, and that its keys are in order and between those of its parent. A page that makes
// no sense is a [Flaw]. Nothing that a page says is believed beyond its bounds.
//
//	pages.go   opening a file, and the pages that say where all begins
//	page.go    what is in a page
//	walk.go    all pages, or those from a key on
//	window.go  reading them: what follows is read with what is asked for, and asked of the disk before
//	free.go    the pages that nothing refers to, and their list
package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math"
	"os"
	"time"
)

// Flaw says in which way a file is no database of bbolt, or not a whole one. It tells numbers of pages and nothing of
// what is in them.
type Flaw string

func (f Flaw) Error() string { return string(f) }

// Words are those of the flaw: they are ours.
func (f Flaw) Words() string { return string(f) }

func flawed(format string, args ...any) error { return Flaw(fmt.Sprintf(format, args...)) }

// ErrInUse says that a process has the file open for writing.
const ErrInUse = Flaw("another process has opened it for writing")

// Database is a file of bbolt. It may be read by several walks at once.
type Database struct {
	file *os.File
	// pages are as many as the file has whole.
	pages uint64
	meta
}

// meta is what one of the first two pages says, as of the last transaction that it is of (internal/common/meta.go of
// bbolt).
type meta struct {
	pageSize uint32
	// root is the page with the list of buckets, list that with the list of free pages, or noList. No page from end on
	// has ever been used.
	root, list, end uint64
	transaction     uint64
}

const (
	headerSize = 16
	metaSize   = 64
	magic      = 0xED0CDAED
	version    = 2
	noList     = math.MaxUint64
	// smallest and largest pages that are looked for, as bbolt does (getPageSizeFromSecondMeta in its db.go).
	smallest = 1 << 10
	largest  = 1 << 24
)

// Open opens a database for reading, which no process may have open for writing: it waits so long for that.
func Open(path string, wait time.Duration) (*Database, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	d := &Database{file: file}
	if err = shared(file, wait); err == nil {
		err = d.begin()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return d, nil
}

// Close closes it.
func (d *Database) Close() error { return d.file.Close() }

// begin reads the two first pages, and takes the newer one that is whole.
func (d *Database) begin() error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return &fs.PathError{Op: "read", Path: d.file.Name(), Err: errors.New("is a directory")}
	}
	one, first := d.metaAt(0)
	size := one.pageSize
	for guess := int64(smallest); !first && guess <= largest; guess *= 2 {
		if other, whole := d.metaAt(guess); whole && int64(other.pageSize) == guess {
			size = other.pageSize
			break
		}
	}
	two, second := d.metaAt(int64(size))
	switch {
	case size == 0, !first && !second:
		return Flaw("neither of its first two pages is one with which a database begins")
	case !first, second && two.transaction > one.transaction:
		d.meta = two
	default:
		d.meta = one
	}
	if d.pageSize < smallest || d.pageSize > largest || d.pageSize&(d.pageSize-1) != 0 {
		return flawed("it says that its pages have %d bytes", d.pageSize)
	}
	d.pages = uint64(info.Size()) / uint64(d.pageSize)
	return nil
}

// metaAt is what the page at an offset says; false when it is none with which a database begins.
func (d *Database) metaAt(offset int64) (meta, bool) {
	raw := make([]byte, headerSize+metaSize)
	if _, err := d.file.ReadAt(raw, offset); err != nil && !errors.Is(err, io.EOF) {
		return meta{}, false
	}
	raw = raw[headerSize:]
	sum := fnv.New64a()
	_, _ = sum.Write(raw[:metaSize-8]) // never fails
	is := binary.NativeEndian
	if is.Uint32(raw) != magic || is.Uint32(raw[4:]) != version || is.Uint64(raw[metaSize-8:]) != sum.Sum64() {
		return meta{}, false
	}
	return meta{pageSize: is.Uint32(raw[8:]), root: is.Uint64(raw[16:]), list: is.Uint64(raw[32:]),
		end: is.Uint64(raw[40:]), transaction: is.Uint64(raw[48:])}, true
}

// page makes of a meta the page that says it.
func (m meta) page() []byte {
	raw := make([]byte, m.pageSize)
	is := binary.NativeEndian
	is.PutUint64(raw, m.transaction%2)
	is.PutUint16(raw[8:], metaPage)
	body := raw[headerSize : headerSize+metaSize]
	is.PutUint32(body, magic)
	is.PutUint32(body[4:], version)
	is.PutUint32(body[8:], m.pageSize)
	is.PutUint64(body[16:], m.root)
	is.PutUint64(body[32:], m.list)
	is.PutUint64(body[40:], m.end)
	is.PutUint64(body[48:], m.transaction)
	sum := fnv.New64a()
	_, _ = sum.Write(body[:metaSize-8])
	is.PutUint64(body[metaSize-8:], sum.Sum64())
	return raw
}
