package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := &progress{what: "thing 1.0", out: &out}
	p.begin(200)
	write := func(text string) {
		if n, err := p.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("wrote %d of %d: %v", n, len(text), err)
		}
	}
	for i := range 50 {
		write(fmt.Sprintf("example.com/package%d\n", i))
	}
	write("example.com/half")
	write("/way\n# example.com/bad\nmain.go:1:1: wrong\n")
	if got := p.other.String(); got != "# example.com/bad\nmain.go:1:1: wrong\n" {
		t.Errorf("errors are %q", got)
	}
	if got := out.String(); got != "thing 1.0: 0 % of 200 packages\n" {
		t.Errorf("it said %q: more than once in half a minute, or not at once", got)
	}
	p.compiled = 50
	for after, want := range map[time.Duration]string{
		time.Second:      "25 % of 200 packages",
		20 * time.Second: "25 % of 200 packages, about 60 s left",
		2 * time.Minute:  "25 % of 200 packages, about 6 minutes left",
	} {
		if got := p.state(p.began.Add(after)); got != want {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
	if p.compiled = 201; p.state(time.Now()) != "linking" {
		t.Errorf("at the end: %q", p.state(time.Now()))
	}
}

// On a terminal there is one line, which is gone at the end.
func TestProgressInPlace(t *testing.T) {
	var out bytes.Buffer
	p := &progress{what: "thing", out: &out, inPlace: true}
	p.begin(2)
	p.said = time.Time{}
	_, _ = p.Write([]byte("a\n"))
	p.end()
	if got := out.String(); strings.Contains(got, "\n") || !strings.HasSuffix(got, "50 % of 2 packages\r\033[K") {
		t.Errorf("it wrote %q", got)
	}
}
