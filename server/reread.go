package server

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
)

// reread is what some files say, read again when one of them changes: Kubernetes replaces the files of a Secret while
// the process runs. When what they say can't be used, that is logged once and the last good value stays.
type reread[T any] struct {
	files []string
	parse func(contents [][]byte) (T, error) // its errors name no content
	log   *slog.Logger

	mu    sync.Mutex
	value T
	seen  []fs.FileInfo // of the contents that were parsed last, usable or not
	said  string        // the last complaint in the log
}

// newReread reads the files for the first time. The error is about what they say now.
func newReread[T any](log *slog.Logger, parse func([][]byte) (T, error), files ...string) (*reread[T], error) {
	r := &reread[T]{files: files, parse: parse, log: log}
	seen, err := r.stat()
	if err != nil {
		return nil, err
	}
	if r.value, err = r.read(); err != nil {
		return nil, err
	}
	r.seen = seen
	return r, nil
}

// get is what the files say now, or said when it could be used last.
func (r *reread[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen, err := r.stat() // before reading: what changes in between is read again next time
	if err == nil && slices.EqualFunc(seen, r.seen, sameContent) {
		return r.value
	}
	if err == nil {
		var value T
		if value, err = r.read(); err == nil {
			r.value = value
			r.said = ""
			r.log.Info("read again", "files", strings.Join(r.files, " "))
		}
		r.seen = seen
	}
	if err != nil && err.Error() != r.said {
		r.said = err.Error()
		r.log.Error("changed files can't be used; the contents from before count until you correct them",
			"files", strings.Join(r.files, " "), "error", r.said)
	}
	return r.value
}

func (r *reread[T]) stat() ([]fs.FileInfo, error) {
	var all []fs.FileInfo
	for _, file := range r.files {
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

func (r *reread[T]) read() (T, error) {
	var contents [][]byte
	for _, file := range r.files {
		content, err := os.ReadFile(file)
		if err != nil {
			var none T
			return none, err
		}
		contents = append(contents, content)
	}
	return r.parse(contents)
}

// sameContent reports whether a file looks as it did. A Secret's file is a link to one that is never written twice, so
// that another content is another file.
func sameContent(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// errNothing is what is wrong with a file that could as well not be there.
var errNothing = errors.New("it is empty")
