package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quorate-dev/quorate/hooks/journal"
)

const (
	// JournalFiles are the names of files with entries on a volume.
	JournalFiles = "*.journal"
	// perFile is about how many bytes a file has. Each can be read without the others.
	perFile = 4 << 20
	// mostWaiting entries wait for the volume. It may be slow, and no call waits for it.
	mostWaiting = 64
)

var errSlowVolume = errors.New("the volume of --journal-dir is too slow for it")

// volume is where entries are kept longer than there is memory for. Other replicas may write to it too.
type volume struct {
	dir     string
	room    int64 // in bytes
	waiting chan waiting

	file  *os.File
	to    journal.Writer
	began int64 // bytes in that file
}

type waiting struct {
	entry   *journal.Entry
	objects journal.Objects
}

func (v *volume) add(entry *journal.Entry, objects journal.Objects) error {
	if v == nil {
		return nil
	}
	select {
	case v.waiting <- waiting{entry, objects}:
		return nil
	default:
		return errSlowVolume
	}
}

// WriteJournal writes entries to the volume, if there is one, until ctx ends.
func (s *Server) WriteJournal(ctx context.Context) {
	v := s.journal.volume
	if v == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			v.end()
			return
		case one := <-v.waiting:
			if err := v.write(one); err != nil {
				s.written(err)
				v.end() // the next one is not to stand behind half a line
			}
		}
	}
}

func (v *volume) write(one waiting) error {
	if v.file == nil || v.began > perFile {
		v.end()
		if err := v.makeRoom(); err != nil {
			return err
		}
		host, _ := os.Hostname() // which tells replicas apart
		name := time.Now().UTC().Format("20060102T150405.000000Z-") + filepath.Base(host) + JournalFiles[1:]
		file, err := os.OpenFile(filepath.Join(v.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		v.file, v.began = file, 0
		v.to = journal.Writer{}
	}
	var lines bytes.Buffer
	v.to.Out = &lines
	if err := v.to.Add(one.entry, one.objects); err != nil {
		return err
	}
	n, err := v.file.Write(lines.Bytes())
	v.began += int64(n)
	return err
}

func (v *volume) end() {
	if v.file != nil {
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
