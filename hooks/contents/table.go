package contents

// held is the last revision of a key that may have several.
type held struct {
	// bytes that it takes; 0 of a key that is gone.
	bytes uint32
	// marks are how many revisions there were, each counted as revision, and leased.
	marks uint32
}

const leased, revision = 1, 2

// table has keys by their hashes: in less memory than a map, and with one look at it for a key.
type table struct {
	slots []slot // a power of two, at least a quarter of them free
	used  int
	// touched is no number that means something: it is kept so that no compiler leaves out what loads slots.
	touched uint64
}

type slot struct {
	hash uint64 // 0 of a free one
	held
}

// of is what is held of a key, for as long as no other one is asked for. Where nothing is, it is taken in while there
// are fewer than most; else it is nil.
func (t *table) of(hash uint64, most int) *held {
	hash = max(hash, 1)
	if t.used >= len(t.slots)/4*3 && t.used < most {
		t.grow()
	}
	if len(t.slots) == 0 {
		return nil
	}
	s := t.at(hash)
	switch {
	case s.hash == hash:
	case t.used >= most:
		return nil
	default:
		s.hash = hash
		t.used++
	}
	return &s.held
}

// at is the slot of a key, or the free one where it belongs.
func (t *table) at(hash uint64) *slot {
	last := uint64(len(t.slots) - 1)
	for i := hash & last; ; i = (i + 1) & last {
		if s := &t.slots[i]; s.hash == hash || s.hash == 0 {
			return s
		}
	}
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, max(2*len(old), 64))
	for _, s := range old {
		if s.hash != 0 {
			*t.at(s.hash) = s
		}
	}
}

// touch loads the slots of keys into the processor's cache.
func (t *table) touch(all []waiting) {
	if len(t.slots) == 0 {
		return
	}
	last := uint64(len(t.slots) - 1)
	for i := range all {
		t.touched += t.slots[all[i].Hash&last].hash
	}
}
