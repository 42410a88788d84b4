package conformance

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestKeysAndWrites: a member tells all of its keys, more than fit a page, and each change while it is watched.
func TestKeysAndWrites(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 1)
		client := c.Members[0].Client()
		const keys = 5000
		for i := range keys {
			_, err := client.Put(t.Context(), fmt.Sprintf("/app/%d", i), "value")
			require.NoError(t, err)
		}
		etcd := &etcdops.Etcd{Timeout: 5 * time.Second, StepTimeout: 10 * time.Second}
		seen := map[string]bool{}
		require.NoError(t, etcd.Keys(t.Context(), c.Endpoints()[0], func(key []byte, leased bool) {
			assert.False(t, leased)
			seen[string(key)] = true
		}))
		assert.Len(t, seen, keys)

		ctx, cancel := context.WithCancel(t.Context())
		var told, size atomic.Int64
		ended := make(chan error, 1)
		go func() {
			ended <- etcd.Writes(ctx, c.Endpoints()[0], func(_ []byte, bytes int) {
				told.Add(1)
				size.Store(int64(bytes))
			})
		}()
		require.Eventually(t, func() bool {
			_, err := client.Put(t.Context(), "/app/1", string(make([]byte, 1<<20)))
			return err == nil && told.Load() > 0
		}, time.Minute, 50*time.Millisecond)
		cancel()
		require.NoError(t, <-ended)
		assert.EqualValues(t, 1<<20+len("/app/1"), size.Load())
	})
}
