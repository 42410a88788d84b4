// Package bench measures the whole of Quorate from the outside: the time of a call and the memory of the process.
//
//	go test ./test/real/bench -run '^$' -bench .
package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server"
)

const image = "ghcr.io/quorate-dev/quorate:v0.1.0"

// BenchmarkSync is a call of the hook sync over HTTP on the loopback interface, for a cluster of three that is as it
// should be, with objects of full size and an etcd that answers at once. Target: 1 ms. cpu-ms/op is the processor
// time of both ends, and passes/op is that in units of one json.Valid of the request, which tells a slow or busy
// machine from slow code.
func BenchmarkSync(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as quorate serve does under load
	for _, verify := range []bool{false, true} {
		b.Run(fmt.Sprintf("verify=%t", verify), func(b *testing.B) {
			s := server.New(server.Options{
				Etcd: healthy{}, Settings: observation.Settings{Images: objects.Images{Image: image}}, Verify: verify,
				Log: slog.New(slog.NewJSONHandler(io.Discard, nil)),
			})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			pages, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			ctx, stop := context.WithCancel(b.Context())
			b.Cleanup(stop)
			go func() { _ = s.Serve(ctx, l, pages) }()
			url, body := "http://"+l.Addr().String()+"/sync", requestOf(b, "orders", "10.244.0")
			var answered int
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			began := cpuTime()
			for b.Loop() {
				answered = len(post(b, url, body))
			}
			spent := float64((cpuTime() - began).Microseconds()) / 1000 / float64(b.N)
			const passes = 200
			began = cpuTime()
			for range passes {
				require.True(b, json.Valid(body))
			}
			pass := float64((cpuTime() - began).Microseconds()) / 1000 / passes
			b.ReportMetric(spent, "cpu-ms/op")
			b.ReportMetric(spent/pass, "passes/op")
			b.ReportMetric(float64(answered), "answer-B")
		})
	}
}

// freeAddress is one on the loopback interface where nothing listens.
func freeAddress(b testing.TB) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	require.NoError(b, l.Close())
	return l.Addr().String()
}

// BenchmarkResidentMemory is bin/quorate, as `make build` makes it, in three states: a minute after its start; after
// it has answered for a hundred clusters many times over, whose members refuse connections; and a minute after that.
// Targets: 32, 64 and 32 MiB.
func BenchmarkResidentMemory(b *testing.B) {
	const clusters, rounds = 100, 20
	address, pages := freeAddress(b), freeAddress(b)
	quorate := exec.CommandContext(b.Context(), "../../../bin/quorate", "serve", "--listen", address,
		"--metrics-listen", pages, "--image", image, "--drain-delay=-1ns")
	require.NoError(b, quorate.Start(), "make build")
	b.Cleanup(func() {
		_ = quorate.Process.Signal(syscall.SIGTERM)
		_ = quorate.Wait()
	})
	answers(b, pages)
	bodies := make([][]byte, clusters)
	for i := range bodies {
		bodies[i] = requestOf(b, fmt.Sprintf("c%03d", i), "127.0.0")
	}
	time.Sleep(time.Minute)
	idle := memory(b, quorate.Process.Pid, "VmRSS")
	calls := 0
	for b.Loop() {
		for range rounds {
			gate := make(chan struct{}, 5) // as many as Metacontroller has workers
			for _, body := range bodies {
				gate <- struct{}{}
				go func() { defer func() { <-gate }(); post(b, "http://"+address+"/sync", body) }()
			}
			for range cap(gate) {
				gate <- struct{}{}
			}
			calls += clusters
		}
	}
	resident, peak := memory(b, quorate.Process.Pid, "VmRSS"), memory(b, quorate.Process.Pid, "VmHWM")
	time.Sleep(time.Minute)
	rest := memory(b, quorate.Process.Pid, "VmRSS")
	b.ReportMetric(idle, "MiB-idle")
	b.ReportMetric(resident, "MiB-resident")
	b.ReportMetric(peak, "MiB-peak")
	b.ReportMetric(rest, "MiB-rest")
	b.ReportMetric(float64(calls), "calls")
	for _, bound := range []struct {
		what          string
		measured, MiB float64
	}{{"a minute after the start", idle, 32}, {"at the peak", peak, 64}, {"a minute after calls", rest, 32}} {
		if bound.measured > bound.MiB {
			b.Errorf("%.1f MiB resident %s, the target is %.0f", bound.measured, bound.what, bound.MiB)
		}
	}
}

// answers waits until a server says at its pages that it does.
func answers(b testing.TB, pages string) {
	b.Helper()
	require.Eventually(b, func() bool {
		resp, err := http.Get("http://" + pages + "/readyz")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, 10*time.Second, 10*time.Millisecond)
}

// requestOf is the steady request of package server's tests for another cluster: its name, and the first three numbers
// of its pods' addresses.
func requestOf(b testing.TB, name, network string) []byte {
	b.Helper()
	raw, err := os.ReadFile("../../../server/testdata/sync.json")
	require.NoError(b, err)
	var compact bytes.Buffer
	require.NoError(b, json.Compact(&compact, raw))
	return []byte(strings.NewReplacer(
		"orders", name, "12c500ed-0b78-7910-5fb4-6af0f246be87", "12c500ed-0b78-7910-5fb4-"+fmt.Sprintf("%012s", name),
		"10.244.0.7", network+".7", "10.244.1.7", network+".8", "10.244.2.7", network+".9",
	).Replace(compact.String()))
}

// post makes one call and returns the answer.
func post(b testing.TB, url string, body []byte) []byte {
	resp, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		b.Error(err)
		return nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Errorf("%d %s %v", resp.StatusCode, answer, err)
	}
	return answer
}

// cpuTime is the processor time of this process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory reads a field of /proc/<pid>/status, in MiB.
func memory(b testing.TB, pid int, field string) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(b, err)
			return float64(kib) / 1024
		}
	}
	b.Fatalf("no %s", field)
	return 0
}

// healthy is an etcd whose members all serve, without a network.
type healthy struct{}

func (healthy) Observe(_ context.Context, endpoints []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	m := &observation.Membership{ClusterID: 0xcdf818194e3a8c32, Leader: 0x8e9e05c521646940}
	health := make(map[string]observation.Health, len(endpoints))
	for i, e := range endpoints {
		id := m.Leader + uint64(i)
		m.Members = append(m.Members, observation.Member{
			ID: id, Name: e.Name, PeerURLs: []string{"http://" + e.Name + ".orders-peers.shop.svc:2380"},
			ClientURLs: []string{e.ClientURL},
		})
		health[e.Name] = observation.Health{
			ClusterID: m.ClusterID, MemberID: id, Leader: m.Leader, Version: "3.6.16",
			RaftTerm: 2, RaftIndex: 1000, DBSize: 26 << 20, DBSizeInUse: 12 << 20,
		}
	}
	return m, health
}

func (healthy) Do(context.Context, decision.Step, *observation.Membership, []observation.Endpoint) error {
	return errors.New("no step is expected")
}
