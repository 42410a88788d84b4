package archive

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// clear removes an artifact before another one takes its name. Who may only write goes on: what is written then
// replaces both, and until then the record does not agree with the artifact, which Fetch sees.
func (s *store) clear(ctx context.Context, key string) error {
	if err := s.remove(ctx, key); err != nil && ReasonOf(err) != Denied {
		return err
	}
	return nil
}

// abandoned removes what a failure has left of an upload before which there was nothing: what is whole by now is
// another run's.
func (s *store) abandoned(ctx context.Context, key string, cause error) error {
	looking, stop := context.WithTimeout(context.WithoutCancel(ctx), cleaningTime)
	defer stop()
	if now, _, err := s.kept(looking, key); now != nil || err != nil && ReasonOf(err) != Denied ||
		errors.Is(cause, errReplaced) {
		return cause
	}
	return s.cleared(ctx, key, cause)
}

// cleared removes what a failure has left, though the context may have ended.
func (s *store) cleared(ctx context.Context, key string, cause error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cleaningTime)
	defer stop()
	if err := s.remove(ctx, key); err != nil && ReasonOf(err) != ReasonOf(cause) {
		return &reasonedError{reason: ReasonOf(cause), text: fmt.Sprintf("%s; and what was stored of it could not be "+
			"removed: %s", Words(cause), Words(err)), hidden: cause}
	}
	return cause
}

// remove removes an artifact, the record first: without it the rest is not whole. What is not there is removed.
func (s *store) remove(ctx context.Context, key string) error {
	for _, name := range []string{key + recordSuffix, key + stores.ContentsSuffix, key} {
		if err := s.bucket.Delete(ctx, name); err != nil && s.reason(err) != NotFound {
			return s.changeFailure(ctx, name, err, s.about("removing", name))
		}
	}
	return s.removeRests(key)
}

// removeRests removes the files in which fileblob writes, <name>.<time>.tmp, that a process left which was killed.
func (s *store) removeRests(key string) error {
	if s.dir == "" {
		return nil
	}
	path := filepath.Join(s.dir, filepath.FromSlash(key))
	for _, pattern := range []string{path + ".*.tmp", path + recordSuffix + ".*.tmp",
		path + stores.ContentsSuffix + ".*.tmp"} {
		rests, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, rest := range rests {
			if err := discardFile(rest); err != nil {
				return s.storeFailure(err, s.about("removing what an earlier try has left of", key))
			}
		}
	}
	return nil
}

// Discard removes an artifact from its store. One that is not there is removed.
func Discard(ctx context.Context, place Place, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	store, err := openStore(ctx, place, false)
	if ReasonOf(err) == NotFound {
		return nil // a folder that was never made
	}
	if err != nil {
		return err
	}
	defer store.Close()
	return store.remove(ctx, key)
}
