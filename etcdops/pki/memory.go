package pki

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// known remembers what was read of the data that came lately: to verify a signature takes longer than all the rest of a
// decision. It is a pure function's; nothing depends on what is in it.
var known memory

type memory struct {
	mu      sync.Mutex
	read    map[content]*remembered
	tenants map[string]*tenant
	bytes   int64
	// reading are the contents that a call reads just now; others wait for it.
	reading map[content]chan struct{}
}

type content [sha256.Size]byte

type remembered struct {
	secret *observation.Secret
	tenant string
	bytes  int64
}

type tenant struct {
	read  map[content]bool
	bytes int64
}

// A Turn waits until something that takes long may be read, and returns what is called afterwards. The error is ctx's,
// when ctx ends first.
type Turn func(ctx context.Context) (end func(), err error)

// atOnce does not wait.
func atOnce(context.Context) (func(), error) { return func() {}, nil }

// mostKnown is how many bytes what is remembered takes: a quarter of the memory that the process may use. A cluster has
// six Secrets of some 2 KiB, so that a limit of 128Mi is enough for 2,400 clusters; from then on the time of a call
// grows.
func mostKnown() int64 {
	const least, most = 4 << 20, 512 << 20
	return min(max(debug.SetMemoryLimit(-1)/4, least), most) // a negative limit only asks
}

// of is what the data says, without metadata. It is shared: do not change it. Of several calls for the same, one reads,
// in its turn.
func (m *memory) of(ctx context.Context, tenant string, turn Turn, data map[string][]byte) (*observation.Secret,
	error) {
	key := sum(data)
	for {
		read, others := m.begin(key)
		switch {
		case read != nil:
			return read, nil
		case others == nil:
			return m.finish(ctx, tenant, turn, key, data)
		}
		select {
		case <-others:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin is what is known, or else who reads it already; neither, if it is for the caller to read.
func (m *memory) begin(key content) (*observation.Secret, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if read := m.read[key]; read != nil {
		return read.secret, nil
	}
	if others := m.reading[key]; others != nil {
		return nil, others
	}
	if m.reading == nil {
		m.reading = map[content]chan struct{}{}
	}
	m.reading[key] = make(chan struct{})
	return nil, nil
}

// finish reads what begin has left to the caller.
func (m *memory) finish(
	ctx context.Context, tenant string, turn Turn, key content, data map[string][]byte,
) (*observation.Secret, error) {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		close(m.reading[key])
		delete(m.reading, key)
	}()
	end, err := turn(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	read := readData(data)
	m.note(tenant, key, read, mostKnown())
	return read, nil
}

// note remembers what was read, in the place of something else of the tenant who has most when there are so many bytes
// already, whatever that is. All clusters are asked about in turn: were the oldest forgotten, or everything, then with
// a few clusters too many nothing would ever be known when it is asked for again.
func (m *memory) note(owner string, key content, read *observation.Secret, most int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.read == nil {
		m.read = map[content]*remembered{}
		m.tenants = map[string]*tenant{}
	}
	m.forget(key)
	size := sizeOf(read)
	for m.bytes > 0 && m.bytes+size > most {
		m.forget(m.largest(owner, size).any())
	}
	t := m.tenants[owner]
	if t == nil {
		t = &tenant{read: map[content]bool{}}
		m.tenants[owner] = t
	}
	m.read[key] = &remembered{read, owner, size}
	t.read[key] = true
	t.bytes += size
	m.bytes += size
}

func (m *memory) forget(key content) {
	r := m.read[key]
	if r == nil {
		return
	}
	t := m.tenants[r.tenant]
	delete(m.read, key)
	delete(t.read, key)
	t.bytes -= r.bytes
	m.bytes -= r.bytes
	if len(t.read) == 0 {
		delete(m.tenants, r.tenant)
	}
}

// largest is the tenant who has most, when this owner gets so many bytes more.
func (m *memory) largest(owner string, more int64) *tenant {
	most := m.tenants[owner]
	for name, t := range m.tenants {
		if name != owner && (most == nil || t.bytes > most.bytes+more) {
			most = t
			more = 0
		}
	}
	return most
}

// any is one of what is remembered for the tenant, another one each time.
func (t *tenant) any() content {
	for key := range t.read {
		return key
	}
	return content{}
}

// sizeOf is what a Secret takes in memory, roughly, in bytes.
func sizeOf(s *observation.Secret) int64 {
	n := 1 << 10 // itself, and how it is found again
	for _, key := range s.Keys {
		n += 16 + len(key)
	}
	for key, flaw := range s.Unfit {
		n += 64 + len(key) + len(flaw)
	}
	of := func(c *observation.Certificate) {
		if c == nil {
			return
		}
		n += 320 + len(c.ID) + len(c.CommonName) + len(c.Subject) + len(c.Key) + len(c.Issuer)
		for _, name := range c.Names {
			n += 32 + len(name)
		}
	}
	of(s.Certificate)
	of(s.Previous)
	serials := s.Serials
	if s.CRL != nil {
		n += 128 + len(s.CRL.Flaw)
		serials = slices.Concat(serials, s.CRL.Serials)
	}
	for _, serial := range serials {
		n += 16 + len(serial)
	}
	for _, list := range [][]observation.Certificate{s.Trust, s.Anchors} {
		for i := range list {
			of(&list[i])
		}
	}
	return int64(n)
}

// sum tells data apart.
func sum(data map[string][]byte) content {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		_, _ = fmt.Fprintf(h, "%d %s %d ", len(key), key, len(data[key]))
		_, _ = h.Write(data[key])
	}
	return content(h.Sum(nil))
}
