package server

import (
	"context"
	"crypto/sha256"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/wire"
)

// A call that has the same bytes as the last one about a cluster at rest gets the same answer, if the members tell the
// same: so no JSON is read, no certificate is looked at and nothing is decided (docs/decisions/0045-unchanged-calls.md).
// The members are asked over connections that are kept meanwhile.

const (
	// perConnection and perCluster are what is kept in memory, in bytes: of a connection with TLS, and of a cluster
	// besides its answer.
	perConnection, perCluster = 28 << 10, 16 << 10
	// unlimitedRoom is in bytes, where the process may use as much memory as there is.
	unlimitedRoom = 1 << 30
	// partOfFiles is which part of the files that may be open the connections may take.
	partOfFiles = 2
)

// unchanged is what is kept of clusters at rest, as much as there is room for. A namespace has half of it at most.
type unchanged struct {
	room, files int64

	mu         sync.Mutex
	clusters   map[types.UID]*resting
	held, open int64 // bytes and connections
	namespaces map[string]int64
	swept      time.Time
}

// resting is one cluster: what the call was, what was observed and answered, and until when that is given again.
type resting struct {
	namespace string
	sum       [sha256.Size]byte
	observed  observation.Observation // of etcd alone
	again     *etcdops.Again
	answer    []byte
	rule      string
	until     time.Time
}

// roomForUnchanged is a quarter of the memory that the process may use.
func roomForUnchanged() int64 {
	limit := debug.SetMemoryLimit(-1) // which only asks
	if limit == math.MaxInt64 {
		return unlimitedRoom
	}
	return limit / 4
}

func (r *resting) bytes() int64 {
	return int64(len(r.answer)) + perCluster + int64(r.again.Connections())*perConnection
}

// of is what is kept of a cluster for a call with this sum; nil for nothing.
func (u *unchanged) of(cluster types.UID, sum [sha256.Size]byte, now time.Time) *resting {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.clusters[cluster]
	if r == nil {
		return nil
	}
	if r.sum != sum || now.After(r.until) {
		u.drop(cluster)
		return nil
	}
	return r
}

// keep keeps it if there is room.
func (u *unchanged) keep(cluster types.UID, r *resting, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(cluster)
	if now.Sub(u.swept) > hooks.LongestRest {
		u.swept = now
		for uid, old := range u.clusters {
			if now.After(old.until) {
				u.drop(uid)
			}
		}
	}
	if !u.fits(r) {
		return
	}
	if u.clusters == nil {
		u.clusters = map[types.UID]*resting{}
		u.namespaces = map[string]int64{}
	}
	u.clusters[cluster] = r
	u.held += r.bytes()
	u.open += int64(r.again.Connections())
	u.namespaces[r.namespace] += r.bytes()
}

// fits reports whether there is room. The lock is held.
func (u *unchanged) fits(r *resting) bool {
	n := r.bytes()
	files := u.open + int64(r.again.Connections())
	return u.held+n <= u.room && u.namespaces[r.namespace]+n <= u.room/2 && files <= u.files
}

// hasRoom reports whether there is room for a cluster, as far as is known before it is answered.
func (u *unchanged) hasRoom(r *resting) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.fits(r)
}

// forget is for a cluster of which something has changed.
func (u *unchanged) forget(cluster types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(cluster)
}

// drop lets go of a cluster. The lock is held.
func (u *unchanged) drop(cluster types.UID) {
	r := u.clusters[cluster]
	if r == nil {
		return
	}
	delete(u.clusters, cluster)
	u.held -= r.bytes()
	u.open -= int64(r.again.Connections())
	if u.namespaces[r.namespace] -= r.bytes(); u.namespaces[r.namespace] == 0 {
		delete(u.namespaces, r.namespace)
	}
	go r.again.Close() // which waits for a call that asks its members now
}

// sumOf is of all that an answer follows from, besides what the members tell and the time: the call, and the keys of
// records.
func (s *Server) sumOf(body wire.Body) [sha256.Size]byte {
	h := sha256.New()
	_, _ = h.Write(body.Bytes())
	for _, key := range s.options.RecordKeys.get() {
		_, _ = h.Write(key)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

type sumKey struct{}

// repeat answers as the last call was answered, if nothing has changed since.
func (s *Server) repeat(c *gin.Context) {
	body, is := c.Request.Body.(wire.Body)
	if !is {
		return
	}
	who, _ := c.Value(whoKey).(wire.Identity)
	sum := s.sumOf(body)
	ctx := c.Request.Context()
	c.Request = c.Request.WithContext(context.WithValue(ctx, sumKey{}, sum))
	if s.unchanged.of(who.UID, sum, s.now()) == nil {
		return
	}
	end, err := s.turn(ctx, who.UID)
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer end()
	r := s.unchanged.of(who.UID, sum, s.now()) // the call before may have found a change
	if r == nil {
		return
	}
	var now observation.Observation
	now.Etcd, now.Health = r.again.Observe(ctx)
	if !hooks.Alike(r.observed, now) {
		s.unchanged.forget(who.UID)
		return
	}
	s.metrics.Repeated(who.UID, r.rule)
	reply(c, r.answer)
	c.Abort()
}

// keeps is what keeps the answer to a call; nil where it is not given again. Clusters are decided about again after
// different times, so that not all are at once.
func (s *Server) keeps(ctx context.Context, r *wire.ClusterCall, etcd *guarded, d decision.Decision) func([]byte) {
	sum, is := ctx.Value(sumKey{}).([sha256.Size]byte)
	asks, can := etcd.etcd.(interface {
		Again(endpoints []observation.Endpoint) *etcdops.Again
	})
	if !is || !can || r.Finalizing {
		return nil
	}
	again := asks.Again(facts.Endpoints(etcd.o))
	if again == nil {
		return nil
	}
	kept := &resting{namespace: r.Cluster.Namespace, sum: sum, again: again, rule: d.Reason.Rule,
		observed: observation.Observation{Etcd: etcd.o.Etcd, Health: etcd.o.Health}}
	if !s.unchanged.hasRoom(kept) {
		return nil
	}
	rest := hooks.Rests(etcd.o, d)
	if rest == 0 || rest < r.Resync { // a call need not say how often it comes
		return nil
	}
	return func(answer []byte) {
		now := s.now()
		kept.answer = answer
		kept.until = now.Add(rest/2 + rand.N(rest/2)) //nolint:gosec // nothing is secret in when
		s.unchanged.keep(r.Cluster.UID, kept, now)
	}
}
