package lone

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Words keeps the end of what a program of etcd's says, for the case that it fails.
type Words struct{ bytes.Buffer }

// kept is enough for the last lines; a termination message holds 4096 bytes in all.
const kept = 16 << 10

// Write never fails.
func (w *Words) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if over := w.Len() - kept; over > 0 {
		w.Next(over)
	}
	return n, err
}

// Has reports whether one of these words is in it.
func (w *Words) Has(some ...string) bool {
	text := w.String()
	for _, one := range some {
		if strings.Contains(text, one) {
			return true
		}
	}
	return false
}

// Panicked reports whether the program ended in a panic: what it met there it does not provide for.
func (w *Words) Panicked() bool {
	for line := range strings.Lines(w.String()) {
		if strings.HasPrefix(line, "panic:") || strings.Contains(line, `"level":"panic"`) {
			return true
		}
	}
	return false
}

// longest is how much of a line is told.
const longest = 600

// Last is the last line that says something, in a length fit for a message.
func (w *Words) Last() string {
	lines := strings.Split(strings.TrimSpace(w.String()), "\n")
	line := lines[len(lines)-1]
	for _, l := range lines { // etcd's loggers write a fatal error and then what follows from it
		if strings.Contains(l, `"level":"fatal"`) || strings.Contains(l, `"level":"panic"`) || strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "Error:") {
			line = l
			break
		}
	}
	line = plain(line)
	return strings.ToValidUTF8(line[:min(len(line), longest)], "")
}

// plain is the message of a line of etcd's log, with its error. Its other fields may quote the data.
func plain(line string) string {
	var entry struct {
		Msg   string `json:"msg"`
		Error string `json:"error"`
	}
	switch err := json.Unmarshal([]byte(line), &entry); {
	case err != nil || entry.Msg == "":
		return line
	case entry.Error == "":
		return entry.Msg
	}
	return entry.Msg + ": " + entry.Error
}
