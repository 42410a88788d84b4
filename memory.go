package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much garbage may pile up, in percent of what is in use, while few calls come and while many do. A call leaves
// much of it and little that lasts: to collect rarely saves a fifth of the processor under load. At rest it would
// save nothing, and cost some 12 MiB.
const (
	garbageAtRest    = 100
	garbageUnderLoad = 400
	// loaded is how much is allocated under load, in bytes a second: some twenty calls.
	loaded = 4 << 20
	// lookEvery is how often that is looked at.
	lookEvery = 15 * time.Second
)

// tuneMemory keeps memory small at rest, without a price under load, and collects harder from 48 MiB on. GOGC and
// GOMEMLIMIT in the environment win. It goes on until ctx ends.
func tuneMemory(ctx context.Context, getenv func(string) string) {
	if getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(48 << 20)
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(garbageAtRest)
		go followLoad(ctx)
	}
}

// followLoad has garbage collected rarely under load. When that ends, what is left of it goes back to the system at
// once: without calls nothing would be collected for two minutes.
func followLoad(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	now := garbageAtRest
	before := allocated()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		all := allocated()
		wanted := garbageFor(all - before)
		before = all
		if wanted == now {
			continue
		}
		now = wanted
		debug.SetGCPercent(now)
		if now == garbageAtRest {
			debug.FreeOSMemory()
		}
	}
}

// garbageFor is how much garbage may pile up after so many bytes were allocated between two looks.
func garbageFor(bytes uint64) int {
	if bytes < loaded*uint64(lookEvery/time.Second) {
		return garbageAtRest
	}
	return garbageUnderLoad
}

// allocated is how many bytes were ever allocated.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
