package lone

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What etcd says last is told without the other fields of its log, which may quote the data.
func TestWords(t *testing.T) {
	for said, want := range map[string]string{
		"": "",
		"Error: snapshot missing hash but " +
			"--skip-hash-check=false\n": "Error: snapshot missing hash but --skip-hash-check=false",
		`{"level":"warn","msg":"slow"}` + "\n" +
			`{"level":"fatal","msg":"failed to start","error":"no space","key":"secret"}`: "failed to start: no space",
		`{"level":"panic","msg":"failed to recover","value":"secret"}` +
			"\npanic: failed to recover\n\ngoroutine 1": "failed to recover",
		"panic: proto: wrong wireType = 5\n\ngoroutine 1 " +
			"[running]:\nmain.main()\n": "panic: proto: wrong wireType = 5",
		strings.Repeat("ä", 600): strings.Repeat("ä", 300),
	} {
		w := &Words{}
		for _, b := range []byte(said) {
			_, _ = w.Write([]byte{b})
		}
		assert.Equal(t, want, w.Last())
		assert.Equal(t, strings.Contains(said, "panic"), w.Panicked())
	}
	w := &Words{}
	_, _ = w.Write([]byte(strings.Repeat("x", 3*kept) + "the end"))
	assert.Equal(t, kept, w.Len())
	assert.True(t, w.Has("nothing", "the end"))
	assert.False(t, w.Has("nothing"))
}
