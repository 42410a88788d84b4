package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/server/wire"
)

// A call is one to the hook sync or finalize, about a parent of one of our kinds: what was read of it, and what
// differs between the kinds.
type call struct {
	kind       string // of the parent, as the API names it
	parent     metav1.Object
	finalizing bool // so Metacontroller says
	// untimely: it is finalized and not being deleted, or the other way round where that must not be.
	untimely bool
	// turn waits for the parent's turn; nil where calls about one parent may run at once.
	turn func(ctx context.Context) (end func(), err error)
	// decide says what to answer; letGo, about a parent that has not, or no longer, the labels that this server looks
	// after. Metacontroller asks so once the labels have changed, and it takes its finalizer away when everything is
	// answered as it is: what happens next is up to the Quorate whose labels it has. A parent is let go whether it is
	// being deleted or not: that other Quorate has a finalizer of its own.
	decide func(ctx context.Context, began time.Time) (*decided, error)
	letGo  func(began time.Time) *decided
}

// decided is the answer to a call, and what is told of it once the answer could be written.
type decided struct {
	encode func() ([]byte, error)
	gone   bool      // nothing more will be asked about the parent
	log    *answered // nil for nothing
	tell   func()    // behind the log; nil for nothing
	// write writes the decision down; nil for not.
	write func(body []byte)
	// keep keeps the answer for calls that are the same; nil for none.
	keep func(body []byte)
}

// hook answers the hooks sync and finalize of one kind.
func (s *Server) hook(read func(ctx context.Context, s *Server, body io.Reader) (*call, error)) gin.HandlerFunc {
	return func(c *gin.Context) {
		began := s.now()
		ctx := c.Request.Context()
		asked, err := read(ctx, s, c.Request.Body)
		if err == nil {
			var body []byte
			if body, err = s.answer(ctx, asked, c.FullPath(), began); err == nil {
				reply(c, body)
				return
			}
		}
		s.refuse(c, err)
	}
}

// answer is the body of the answer to a call that came to this path.
func (s *Server) answer(ctx context.Context, c *call, path string, began time.Time) ([]byte, error) {
	scope := &s.options.Scope
	if err := scope.elsewhere(c.kind, c.parent); err != nil {
		return nil, err
	}
	if c.finalizing != strings.HasSuffix(path, "/finalize") {
		return nil, c.misplaced(path)
	}
	if c.finalizing && !scope.selects(c.parent) {
		return s.finish(ctx, c, c.letGo(began))
	}
	if err := scope.check(c.kind, c.parent); err != nil {
		return nil, err
	}
	if c.untimely {
		return nil, c.misplaced(path)
	}
	if c.turn != nil {
		end, err := c.turn(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	d, err := c.decide(ctx, began)
	if err != nil {
		return nil, err
	}
	return s.finish(ctx, c, d)
}

// misplaced says what is wrong with a call that came to the wrong hook, or is untimely.
func (c *call) misplaced(path string) error {
	kind := strings.TrimSuffix(strings.TrimSuffix(path, "/sync"), "/finalize")
	return wire.Bad("the hook is %s, finalizing is %t, and the parent is being deleted: %t; only a parent that is "+
		"being deleted is finalized, by %s/finalize alone", path, c.finalizing, c.parent.GetDeletionTimestamp() != nil,
		kind)
}

// byName are objects in the order of their names.
func byName[T metav1.Object](all map[string]T) []T {
	return slices.SortedFunc(maps.Values(all), func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// finish writes an answer, and tells of it.
func (s *Server) finish(ctx context.Context, c *call, d *decided) ([]byte, error) {
	body, err := d.encode()
	if err != nil {
		return nil, err
	}
	if d.log != nil {
		s.logAnswer(d.log)
		traceAnswer(ctx, d.log)
	}
	if d.tell != nil {
		d.tell()
	}
	if d.write != nil {
		d.write(body)
	}
	if d.keep != nil {
		d.keep(body)
	}
	if d.gone {
		s.logged.forget(c.parent.GetUID())
		s.unchanged.forget(c.parent.GetUID())
		s.journal.forget(c.parent.GetUID())
		s.metrics.Forget(c.parent.GetUID())
	}
	return body, nil
}

// customize answers the hook customize of one kind: which objects matter, besides the children.
func (s *Server) customize(kind string) gin.HandlerFunc {
	return func(c *gin.Context) {
		asked, err := wire.ReadCustomized(kind, c.Request.Body)
		if err == nil {
			err = s.options.Scope.elsewhere(kind, asked.Parent)
		}
		var body []byte
		if err == nil {
			body, err = asked.Related(s.options.RelatedByUID)
		}
		if err != nil {
			s.refuse(c, err)
			return
		}
		reply(c, body)
	}
}

// reply answers a hook with status 200. It is the only place that does.
func reply(c *gin.Context, body []byte) {
	c.Header("Content-Length", strconv.Itoa(len(body)))
	c.Data(http.StatusOK, "application/json", body)
}

// clientGone is the code in metrics for a call whose client did not wait for the answer.
const clientGone = 499

// refuse answers with an error, which changes nothing: Metacontroller asks again.
func (s *Server) refuse(c *gin.Context, err error) {
	code := http.StatusInternalServerError
	if put := putOff(c.Request.Context()); put != nil && errors.Is(err, context.Canceled) {
		who, _ := c.Value(whoKey).(wire.Identity)
		s.metrics.PutOff(who.Namespace, "slow")
		c.Header("Retry-After", "5") // about when a slot is free, and rarely enough that asking costs little
		err = put
	}
	if refusal := (*wire.Refusal)(nil); errors.As(err, &refusal) {
		code = refusal.Code
	} else if errors.Is(c.Request.Context().Err(), context.Canceled) {
		code = clientGone
	}
	later := code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable
	if later && c.Writer.Header().Get("Retry-After") == "" {
		c.Header("Retry-After", "1")
	}
	_ = c.Error(err)
	c.AbortWithStatusJSON(code, gin.H{"error": err.Error()})
}

// measured counts and times a hook, logs its errors and turns a panic into a 500.
func (s *Server) measured(hook string) gin.HandlerFunc {
	return func(c *gin.Context) {
		began := time.Now()
		defer func() {
			if p := recover(); p != nil {
				s.panicked(c, hook, p)
			}
			s.metrics.Hook(hook, c.Writer.Status(), time.Since(began))
		}()
		c.Next()
		if err := c.Errors.Last(); err != nil {
			s.logRefusal(c, hook, err)
		}
	}
}
