package cluster

import (
	"fmt"
	"testing"
)

// BenchmarkDecide is the cost of one decision at rest. Bounds: 50 microseconds for 3 members, 150 for 9.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{3, 9} {
		o := serve(n)
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			for b.Loop() {
				Decide(o)
			}
		})
	}
}
