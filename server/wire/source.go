package wire

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/quorate-dev/quorate/etcdops/pki"
)

// A Body is a call in memory.
type Body struct {
	*bytes.Buffer

	// Settle is called when it is decoded, with the bytes that were made of it.
	Settle func(made int64)
	// Turn is what has to be waited for before what a Secret holds is verified; nil for nothing.
	Turn pki.Turn
}

// Close implements io.Closer.
func (Body) Close() error { return nil }

// A source is the body of a call while it is decoded, with what may be made of it. Some JSON of few bytes becomes many
// times as many when it is decoded: an empty rule of a NetworkPolicy is two bytes in the call and 48 in memory.
type source struct {
	jsontext.Decoder
	all    []byte
	settle func(made int64) // called when the call is decoded; nil where the body is no call's
	turn   pki.Turn         // to verify what Secrets hold; nil where there is none
	// room is what may be made of it, made what was so far, both in bytes of memory by weigh.
	room, made int64
	// ample: there is room for all of it.
	ample bool
}

// perValue is what a value takes in memory besides its text, in bytes: more than nearly all of ours do.
const perValue = 128

// largestKept is how many bytes a call has at most whose source is used again.
const largestKept = 512 << 10

// RoomFor is how much memory may be made of a call of so many bytes. What is recorded of a real cluster takes four
// times its bytes by weigh.
func RoomFor(body int64) int64 { return 2<<20 + 3*body }

// sources hold a call while it is decoded. Those of calls that fail, or are large, are not used again.
var sources = sync.Pool{New: func() any { return &source{} }}

var nothing = strings.NewReader("")

// newSource reads a body, if it is not in memory yet.
func newSource(body io.Reader) (*source, error) {
	in, _ := sources.Get().(*source)
	whole := &bytes.Buffer{}
	switch body := body.(type) {
	case Body:
		whole = body.Buffer
		in.settle = body.Settle
		in.turn = body.Turn
	case *bytes.Buffer:
		whole = body
	default:
		if _, err := whole.ReadFrom(body); err != nil {
			return nil, unreadable("the request", err)
		}
	}
	in.hold(whole)
	in.room = RoomFor(int64(len(in.all)))
	in.made = roughly(in.all)
	if in.ample = in.made <= in.room; !in.ample {
		in.made = 0
	}
	return in, nil
}

// hold has the decoder read a body. That no name is there twice, object and value see to: the decoder would remember
// all names of what is only read over.
func (in *source) hold(whole *bytes.Buffer) {
	in.all = whole.Bytes()
	in.Reset(whole, jsontext.AllowDuplicateNames(true))
}

// done is called when the call is decoded.
func (in *source) done() {
	if in.settle != nil {
		in.settle(in.made)
	}
	if len(in.all) <= largestKept {
		in.all = nil
		in.settle = nil
		in.turn = nil
		in.Reset(nothing)
		sources.Put(in)
	}
}

// end checks that the request ends here.
func (in *source) end() error {
	if _, err := in.ReadToken(); err == nil {
		return Bad("the request is followed by something else")
	} else if !errors.Is(err, io.EOF) {
		return unreadable("what follows the request", err)
	}
	return nil
}

// charge takes the room for a value. The error names it.
func (in *source) charge(field string, text []byte) error {
	if in.ample {
		return nil
	}
	n := weigh(text)
	in.made += n
	if in.made > in.room {
		return Refuse(http.StatusRequestEntityTooLarge, "%s holds more values than a call of %d bytes may: make it "+
			"smaller, "+
			"or take it away from the cluster", field, len(in.all))
	}
	return nil
}

// roughly is weigh for a whole call, several times as fast: what stands in strings is counted too.
func roughly(text []byte) int64 {
	values := 0
	for _, c := range []string{",", "{", "["} {
		values += bytes.Count(text, []byte(c))
	}
	return int64(len(text)) + perValue*int64(values)
}

// weigh is what the JSON value that a text begins with takes in memory when it is decoded, in bytes, roughly and rather
// too much. The text need not be JSON: what is none will not be decoded.
func weigh(text []byte) int64 {
	values := int64(1)
	depth := 0
	i := 0
scan:
	for ; i < len(text); i++ {
		switch text[i] {
		case '"':
			if i = endOfString(text, i+1); depth == 0 {
				break scan
			}
		case '{', '[':
			depth++
			values++
		case '}', ']':
			if depth--; depth <= 0 {
				break scan
			}
		case ',':
			if depth == 0 {
				break scan
			}
			values++
		}
	}
	return int64(i) + perValue*values
}

// endOfString is where the string ends whose first character is at from: its closing quote, or the end of the text.
func endOfString(text []byte, from int) int {
	for {
		n := bytes.IndexByte(text[from:], '"')
		if n < 0 {
			return len(text)
		}
		at := from + n
		slashes := 0
		for slashes < n && text[at-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
		from = at + 1
	}
}
