package journal

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
)

// Packer packs lines for a file. What was written before a Flush can be read, whatever becomes of the rest.
func Packer(file io.Writer) *gzip.Writer { return gzip.NewWriter(file) }

// packedBy is what a packed file begins with, and flushed what it ends with after a Flush.
const packedBy, flushed = "\x1f\x8b", "\x00\x00\xff\xff"

// Unpack is the text of a file, which may be packed. Where that ends within what was written last, that is left out, and
// it is not whole.
func Unpack(file []byte) (text []byte, whole bool) {
	if !bytes.HasPrefix(file, []byte(packedBy)) {
		return file, true
	}
	in, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, false
	}
	text, err = io.ReadAll(in)
	whole = err == nil || errors.Is(err, io.ErrUnexpectedEOF) && bytes.HasSuffix(file, []byte(flushed))
	lines := bytes.LastIndexByte(text, '\n') + 1
	return text[:lines], whole && lines == len(text)
}
