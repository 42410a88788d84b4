package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestGarbage: a little more than nothing is rest, and what a busy server allocates is load.
func TestGarbage(t *testing.T) {
	seconds := uint64(lookEvery / time.Second)
	for perSecond, want := range map[uint64]int{0: garbageAtRest, 1 << 20: garbageAtRest, 8 << 20: garbageUnderLoad,
		1 << 30: garbageUnderLoad} {
		assert.Equal(t, want, garbageFor(perSecond*seconds), "%d bytes a second", perSecond)
	}
	before := allocated()
	held := make([]byte, 1<<20)
	assert.GreaterOrEqual(t, allocated()-before, uint64(len(held)))
}
