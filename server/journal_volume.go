package server

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quorate-dev/quorate/hooks/journal"
)

const (
	// JournalFiles are the names of files with entries on a volume.
	JournalFiles = "*.journal.gz"
	// perFile is about how many bytes a file has, and perText of how many it is packed: who reads it has them in memory.
	// Each can be read without the others.
	perFile, perText = 4 << 20, 16 << 20
	// mostUnwritten entries wait for the volume, in memory with the others. It may be slow, and no call waits for it.
	mostUnwritten = 4096
)

var errSlowVolume = errors.New("the volume of --journal-dir is too slow for it")

// volume is where entries are kept longer than there is memory for. Other replicas may write to it too.
type volume struct {
	dir  string
	room int64 // in bytes
	more chan struct{}

	mu      sync.Mutex
	waiting []*kept

	file  *os.File
	to    *gzip.Writer
	told  map[journal.Ref]bool // objects in that file
	wrote int64                // bytes of text
}

// take has an entry wait for the volume.
func (v *volume) take(one *kept) error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.waiting) == mostUnwritten {
		return errSlowVolume
	}
	v.waiting = append(v.waiting, one)
	wake(v.more)
	return nil
}

func (v *volume) next() *kept {
	v.mu.Lock()
	defer v.mu.Unlock()
	return first(&v.waiting)
}

// write writes an entry of those in memory to a file. It is packed there in another way: with what it has in common
// with those before.
func (v *volume) write(r *keeper, one *kept) error {
	if err := r.pack(one); err != nil {
		return err
	}
	if err := v.open(); err != nil {
		return err
	}
	lines := r.lines([]*kept{one}, v.told)
	if lines == nil { // it has been dropped
		return errSlowVolume
	}
	var text bytes.Buffer
	err := writeLines(&text, lines)
	v.wrote += int64(text.Len())
	if err == nil {
		_, err = v.to.Write(text.Bytes())
	}
	if err = errors.Join(err, v.to.Flush()); err != nil {
		v.end() // the next one is not to stand behind half a line
	}
	return err
}

// open sees to it that there is a file, with room for an entry.
func (v *volume) open() error {
	if v.file != nil {
		file, err := v.file.Stat()
		if err == nil && file.Size() < perFile && v.wrote < perText {
			return nil
		}
		v.end()
	}
	if err := v.makeRoom(); err != nil {
		return err
	}
	host, _ := os.Hostname() // which tells replicas apart
	name := time.Now().UTC().Format("20060102T150405.000000Z-") + filepath.Base(host) + JournalFiles[1:]
	file, err := os.OpenFile(filepath.Join(v.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	v.file, v.to, v.told, v.wrote = file, journal.Packer(file), map[journal.Ref]bool{}, 0
	return nil
}

func (v *volume) end() {
	if v.file != nil {
		_ = v.to.Close()
		_ = v.file.Close()
		v.file = nil
	}
}

// makeRoom deletes the oldest files until there is room for another.
func (v *volume) makeRoom() error {
	names, err := filepath.Glob(filepath.Join(v.dir, JournalFiles))
	if err != nil {
		return err
	}
	var files []fs.FileInfo
	held := int64(perFile)
	for _, name := range names {
		if file, err := os.Stat(name); err == nil { // another replica may have deleted it
			files = append(files, file)
			held += file.Size()
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return cmp.Compare(a.Name(), b.Name()) })
	for ; held > v.room && len(files) > 0; files = files[1:] {
		if err := os.Remove(filepath.Join(v.dir, files[0].Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		held -= files[0].Size()
	}
	return nil
}
