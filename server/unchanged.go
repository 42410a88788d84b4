package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
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
	// besides its answer. perTold is for a byte that its members told: in hostile words it is many.
	perConnection, perCluster, perTold = 28 << 10, 16 << 10, 3
	// unlimitedRoom is in bytes, where the process may use as much memory as there is.
	unlimitedRoom = 1 << 30
	// partOfFiles is which part of the files that may be open the connections may take.
	partOfFiles = 2
)

// unchanged is what is kept of clusters at rest, as much as there is room for. A namespace has half of it at most.
type unchanged struct {
	room int64 // in bytes

	mu         sync.Mutex
	clusters   map[types.UID]*resting
	held       int64
	namespaces map[string]int64
	swept      time.Time
}

// resting is one cluster: what the call was, what was observed and answered, and from when until when that is given
// again.
type resting struct {
	namespace string
	sum       [sha256.Size]byte
	observed  observation.Observation // of etcd alone
	told      int64                   // bytes that are in it
	again     *etcdops.Again
	answer    []byte
	rule      string

	from, until time.Time
}

// roomForUnchanged is a quarter of the memory that the process may use, and no more than there are files for: each
// connection is one, and has a part of the room.
func roomForUnchanged() int64 {
	limit := debug.SetMemoryLimit(-1) // which only asks
	memory := limit / 4
	if limit == math.MaxInt64 {
		memory = unlimitedRoom
	}
	return min(memory/perConnection, mostOpenFiles()/partOfFiles) * perConnection
}

func (r *resting) bytes() int64 {
	return int64(len(r.answer)) + perCluster + int64(r.again.Connections())*perConnection + r.told*perTold
}

// over reports whether it is not given again now. The time that has passed is not that of the clock where this was set,
// or stood still while the machine slept.
func (r *resting) over(now time.Time) bool {
	clock := now.Round(0)
	return now.After(r.until) || clock.After(r.until.Round(0)) || clock.Before(r.from.Round(0))
}

// of is what is kept of a cluster for a call with this sum; nil for nothing.
func (u *unchanged) of(cluster types.UID, sum [sha256.Size]byte, now time.Time) *resting {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.clusters[cluster]
	if r == nil {
		return nil
	}
	if r.sum != sum || r.over(now) {
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
			if old.over(now) {
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
	u.namespaces[r.namespace] += r.bytes()
}

// fits reports whether there is room. The lock is held.
func (u *unchanged) fits(r *resting) bool {
	n := r.bytes()
	return u.held+n <= u.room && u.namespaces[r.namespace]+n <= u.room/2
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

// sumKey has the sum of a call in its context, and turnKey the cluster whose turn it has already.
type (
	sumKey  struct{}
	turnKey struct{}
)

// repeat answers as the last call was answered, if nothing has changed since.
func (s *Server) repeat(c *gin.Context) {
	body, is := c.Request.Body.(wire.Body)
	if !is || body.Len() > largeBody { // no other large call is read while this one is
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
	if r != nil && s.isAlike(ctx, r) {
		s.metrics.Repeated(who.UID, r.rule)
		traceRepeated(ctx, r.rule)
		reply(c, r.answer)
		c.Abort()
		return
	}
	s.unchanged.forget(who.UID)
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), turnKey{}, who.UID))
	c.Next() // in this turn: to wait for another one could leave no time to ask etcd
}

// isAlike asks the members. That is over when half of the call's time is: the rest is for a decision.
func (s *Server) isAlike(ctx context.Context, r *resting) bool {
	if deadline, has := ctx.Deadline(); has {
		half, cancel := context.WithDeadline(ctx, deadline.Add(-s.options.CallTimeout/2))
		defer cancel()
		ctx = half
	}
	var now observation.Observation
	now.Etcd, now.Health = r.again.Observe(ctx)
	return hooks.Alike(r.observed, now)
}

// toldBytes is how many bytes members have told.
func toldBytes(o observation.Observation) int64 {
	told, _ := json.Marshal([]any{o.Etcd, o.Health})
	return int64(len(told))
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
	kept.told = toldBytes(etcd.o)
	if !s.unchanged.hasRoom(kept) {
		return nil
	}
	rest := hooks.Rests(etcd.o, d)
	if rest == 0 || rest < r.Resync { // a call need not say how often it comes
		return nil
	}
	return func(answer []byte) {
		kept.answer = answer
		kept.from = etcd.o.Now
		kept.until = kept.from.Add(rest/2 + rand.N(rest/2+1)) //nolint:gosec // nothing is secret in when
		s.unchanged.keep(r.Cluster.UID, kept, s.now())
	}
}
