package stream

import (
	"encoding/json"
	"hash/maphash"
	"net/http"
	"sync"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/contents"
	"github.com/quorate-dev/quorate/hooks/stores"
)

const (
	// mostTold is how many prefixes are told.
	mostTold = 20
	// keysCounted is how many keys of an hour are told apart: some 6 MiB. Of more their number is not told.
	keysCounted = 1 << 17
)

// Writes counts who writes, by prefix and hour, by the times at which changes arrive.
type Writes struct {
	// Nameless: no prefix is told, as who can't read what is stored may read this.
	Nameless bool

	mu       sync.Mutex
	seed     maphash.Seed
	account  *contents.Account
	from, to time.Time
	last     *stores.Writes
}

// NewWrites has counted nothing.
func NewWrites() *Writes { return &Writes{seed: maphash.MakeSeed()} }

// add counts what has arrived. A batch with nothing in it tells the time.
func (w *Writes) add(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if hour := b.at.Truncate(time.Hour); w.account == nil {
		w.begin(b.at)
	} else if hour.After(w.from) {
		w.to = w.from.Truncate(time.Hour).Add(time.Hour)
		w.last = w.counted()
		w.begin(hour)
	}
	w.to = b.at
	_ = b.Each(func(c Change) error { // they are in order: they were put together here
		r := archive.Written(c.Value)
		r.Hash = maphash.Bytes(w.seed, r.Key)
		w.account.Add(r)
		return nil
	})
}

func (w *Writes) begin(from time.Time) {
	w.from = from
	w.account = contents.New()
	w.account.Keep = keysCounted
}

func (w *Writes) counted() *stores.Writes {
	c := w.account.Report(mostTold)
	if w.Nameless {
		c.Prefixes = nil
	}
	return &stores.Writes{From: w.from, To: w.to, Contents: c}
}

// Report is nil before anything has arrived.
func (w *Writes) Report() *stores.Writes {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil || w.account == nil {
		return w.last
	}
	return w.counted()
}

// ServeHTTP implements [http.Handler].
func (w *Writes) ServeHTTP(to http.ResponseWriter, _ *http.Request) {
	to.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(to).Encode(w.Report()) // the reader is gone when it fails
}
