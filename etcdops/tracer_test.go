package etcdops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// TestTheTracerHears: of each request that is made, whose it is, and what came of it; of another etcd its address, and
// not what else is in a URL that it may have told.
func TestTheTracerHears(t *testing.T) {
	metrics := httptest.NewServer(http.NotFoundHandler())
	defer metrics.Close()
	f := fakes(t, 2)
	f[0].endpoint.MetricsURL = metrics.URL + "/metrics"
	gone, other := f[1].endpoint, elsewhere("http://someone@10.1.2.3:2379/path")
	gone.ClientURL = "http://10.0.0.9:2379"
	var lock sync.Mutex
	heard := map[string]int{}
	e := &Etcd{
		Disks: &Disks{},
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			if address == "10.0.0.9:2379" || address == "10.1.2.3:2379" {
				return nil, errors.New("connection refused")
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
		Tracer: func(_ context.Context, member, method string) func(uint32) {
			return func(code uint32) {
				lock.Lock()
				defer lock.Unlock()
				heard[fmt.Sprint(member, " ", method, " ", codes.Code(code))]++
			}
		},
	}
	e.Observe(t.Context(), []observation.Endpoint{f[0].endpoint, gone, other})
	assert.Equal(t, map[string]int{
		"demo-0 /etcdserverpb.Maintenance/Status OK":                 1,
		"demo-0 /etcdserverpb.Cluster/MemberList OK":                 1,
		"demo-0 /metrics Unknown":                                    1,
		"demo-1 /etcdserverpb.Maintenance/Status Unavailable":        1,
		"10.1.2.3:2379 /etcdserverpb.Maintenance/Status Unavailable": 1,
	}, heard)
}
