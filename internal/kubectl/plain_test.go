package kubectl

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoEscapeSequenceReachesTheTerminal: whatever a tenant's object holds, it is text when it is shown.
func TestNoEscapeSequenceReachesTheTerminal(t *testing.T) {
	var out, err bytes.Buffer
	p := New("devel", &out, &err)
	page{p.Out}.say("it waits: \x1b]0;pwned\x07\x1b[2J\u009b31m\u202egnp.exe\r\x00 é – 漢\tyes")
	text := "é漢\x1b[2J\xff!"
	for i := range len(text) {
		_, _ = p.Err.Write([]byte(text[i : i+1]))
	}
	require.Equal(t, "  it waits: ?]0;pwned??[2J?31m?gnp.exe ? é – 漢 yes\n", out.String())
	require.Equal(t, "é漢?[2J?!", err.String())
	_, failed := New("devel", broken{}, &err).Out.Write([]byte("x"))
	require.Error(t, failed)
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the reader is gone") }
