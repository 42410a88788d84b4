package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/quorate-dev/quorate/server/wire"
)

const (
	// largeBody is from how many bytes on a call is large. Of those, one is read at a time: by turns, one of each
	// namespace.
	largeBody = 512 << 10
	// largeMade is from how many bytes of memory on it stays one when it is decoded.
	largeMade = 4 << 20
	// prefixOf is how many bytes of a call are read to see which parent it is about.
	prefixOf = 64 << 10
)

// mostReading is how many bytes calls that are not large may take at once, body and what is made of it: a quarter of
// the memory that the process may use.
func mostReading() int64 {
	const least, most = 16 << 20, 256 << 20
	return min(max(debug.SetMemoryLimit(-1)/4, least), most) // a negative limit only asks
}

// bodies are buffers for calls that are not large.
var bodies = sync.Pool{New: func() any { return &bytes.Buffer{} }}

// admit lets a call in when there is room for it, reads it, and gives it its time, in which all of this counts.
func (s *Server) admit(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.options.CallTimeout)
	defer cancel()
	body := http.MaxBytesReader(c.Writer, c.Request.Body, s.options.MaxBody)
	size := c.Request.ContentLength
	if size > s.options.MaxBody {
		s.refuse(c, wire.Unreadable(&http.MaxBytesError{Limit: s.options.MaxBody}))
		return
	}
	if size < 0 { // not told: it may be the largest
		size = s.options.MaxBody
	}
	buffer, _ := bodies.Get().(*bytes.Buffer)
	buffer.Reset()
	if _, err := io.CopyN(buffer, body, prefixOf); err != nil && !errors.Is(err, io.EOF) {
		s.refuse(c, wire.Unreadable(err))
		return
	}
	who := wire.Identify(buffer.Bytes())
	t, err := s.room(ctx, who, size)
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer t.end()
	buffer.Grow(int(max(0, size-int64(buffer.Len()))) + bytes.MinRead)
	if _, err := buffer.ReadFrom(body); err != nil {
		s.refuse(c, wire.Unreadable(err))
		return
	}
	if who.UID == "" { // not at the beginning, where Metacontroller sends it
		who = wire.Identify(buffer.Bytes())
		t.of(who.Namespace)
	}
	c.Request = c.Request.WithContext(ctx)
	c.Request.Body = s.body(buffer, t, who, size)
	c.Set(whoKey, who)
	c.Next()
	if buffer.Cap() <= largeBody {
		bodies.Put(buffer)
	}
}

// body is a call that has this part of the memory. One that is large waits no more: it has its turn.
func (s *Server) body(buffer *bytes.Buffer, t *ticket, who wire.Identity, size int64) wire.Body {
	if t.pool == &s.large {
		return wire.Body{Buffer: buffer, Settle: func(made int64) {
			*buffer = bytes.Buffer{}
			if made < largeMade {
				t.keep(0)
			}
		}}
	}
	return wire.Body{
		Buffer: buffer, Settle: func(made int64) { t.keep(size + made) },
		Turn: func(ctx context.Context) (func(), error) {
			turn, err := s.verifying.take(ctx, who.Namespace, 1)
			if err != nil {
				return nil, err
			}
			return turn.end, nil
		},
	}
}

const whoKey = "who"

// room waits until there is memory for a call of so many bytes, for half of its time at most.
func (s *Server) room(ctx context.Context, who wire.Identity, size int64) (*ticket, error) {
	waiting, cancel := context.WithTimeout(ctx, s.options.CallTimeout/2)
	defer cancel()
	var t *ticket
	var err error
	if size > largeBody {
		t, err = s.large.take(waiting, who.Namespace, 1)
	} else {
		t, err = s.memory.take(waiting, who.Namespace, size+wire.RoomFor(size))
	}
	if err != nil && errors.Is(waiting.Err(), context.DeadlineExceeded) {
		s.metrics.PutOff(who.Namespace, "memory")
		return nil, wire.Refuse(http.StatusServiceUnavailable,
			"the call about %s has %d bytes, and there was no memory for it within %s: other calls, or others of its "+
				"namespace, hold what there is; ask again", who, size, s.options.CallTimeout/2)
	}
	return t, err
}

// putOff is why a call is answered later: its namespace has its part of the workers already. Nil when it is not.
func putOff(ctx context.Context) *wire.Refusal {
	var put *wire.Refusal
	errors.As(context.Cause(ctx), &put)
	return put
}

// limitSlow refuses a call about a slow cluster when its namespace has its part of those already, and cuts off one that
// turns out to be slow. What the call has learned until then decides nothing.
func (s *Server) limitSlow(c *gin.Context) {
	who, _ := c.Value(whoKey).(wire.Identity)
	ctx, cut := context.WithCancelCause(c.Request.Context())
	defer cut(nil)
	c.Request = c.Request.WithContext(ctx)
	tooMany := wire.Refuse(http.StatusTooManyRequests,
		"calls about %s last long, and as many calls of its namespace wait for slow clusters as may; ask again", who)
	began := time.Now()
	call := s.slow.begin(who.Namespace, who.UID, began)
	if call == nil {
		cut(tooMany)
		s.refuse(c, ctx.Err())
		return
	}
	lasts := time.AfterFunc(s.slow.long(), func() {
		if !call.stays() {
			cut(tooMany)
		}
	})
	defer func() {
		lasts.Stop()
		now := time.Now()
		call.end(now.Sub(began), now)
	}()
	c.Next()
}
