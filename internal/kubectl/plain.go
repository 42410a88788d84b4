package kubectl

import (
	"bytes"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// plain is a terminal, or a file, to which nothing is written but text: messages, names and logs that are shown hold
// what tenants wrote, and an escape sequence in it would be obeyed.
type plain struct {
	lock sync.Mutex
	to   io.Writer
	rest []byte // the beginning of a character
}

// Write implements io.Writer.
func (p *plain) Write(text []byte) (int, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	n := len(text)
	text = append(p.rest, text...)
	p.rest = nil
	var out bytes.Buffer
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			p.rest = bytes.Clone(text)
			break
		}
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		if r == '\n' || r == '\t' || unicode.IsPrint(r) && r != utf8.RuneError {
			out.WriteRune(r)
		} else {
			out.WriteByte('?')
		}
	}
	if _, err := p.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return n, nil
}
