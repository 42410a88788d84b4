package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress tells how far a `go build -v` is, which writes the name of each package that it compiles into it: in one
// line that is written again on a terminal, else in a line every half minute.
type progress struct {
	what    string
	out     io.Writer
	inPlace bool

	mu       sync.Mutex
	began    time.Time
	said     time.Time
	all      int // packages to compile
	compiled int
	rest     []byte       // of a line that is not yet whole
	other    bytes.Buffer // what is no package's name: errors
}

func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// say writes at once.
func (p *progress) say(text string) {
	p.said = time.Now()
	if p.inPlace {
		fmt.Fprintf(p.out, "\r\033[K%s: %s", p.what, text)
	} else {
		fmt.Fprintf(p.out, "%s: %s\n", p.what, text)
	}
}

func (p *progress) begin(packages int) {
	p.all, p.began = packages, time.Now()
	p.say(p.state(p.began))
}

// end takes the line away: what comes next tells the outcome.
func (p *progress) end() {
	if p.inPlace {
		fmt.Fprint(p.out, "\r\033[K")
	}
}

// Write counts names of packages, which have no blank, and keeps all else.
func (p *progress) Write(output []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, output...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole {
			break
		}
		p.rest = rest
		if len(line) > 0 && !bytes.ContainsAny(line, " \t") {
			p.compiled++
		} else {
			fmt.Fprintf(&p.other, "%s\n", line)
		}
	}
	patience := 30 * time.Second
	if p.inPlace {
		patience = time.Second / 2
	}
	if now := time.Now(); now.Sub(p.said) >= patience {
		p.say(p.state(now))
	}
	return len(output), nil
}

// state guesses the rest from the rate so far, when there is enough of it to tell.
func (p *progress) state(now time.Time) string {
	if p.compiled >= p.all {
		return "linking"
	}
	done := p.compiled
	text := fmt.Sprintf("%d %% of %d packages", 100*done/p.all, p.all)
	if spent := now.Sub(p.began); spent > 10*time.Second && done*20 > p.all {
		left := time.Duration(float64(spent) * float64(p.all-done) / float64(done))
		text += ", about " + roughly(left) + " left"
	}
	return text
}

// roughly is a time as one would say it: in minutes, or in tens of seconds.
func roughly(d time.Duration) string {
	if d < 95*time.Second {
		return fmt.Sprintf("%d s", max(10, int(d.Seconds()+5)/10*10))
	}
	return fmt.Sprintf("%.0f minutes", d.Minutes())
}
