package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// console prints lines, and below them on a terminal what is being waited for. It may be used by many at once.
type console struct {
	lock  sync.Mutex
	out   io.Writer
	began time.Time
	// live: the last line can be written over.
	live    bool
	waiting string
	since   time.Time
}

// width of lines.
const width = 100

// say prints a line.
func (c *console) say(format string, args ...any) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.clear()
	_, _ = fmt.Fprintf(c.out, format+"\n", args...)
	c.draw()
}

// Write prints what a command says.
func (c *console) Write(text []byte) (int, error) {
	c.say("%s", strings.TrimSuffix(string(text), "\n"))
	return len(text), nil
}

// rule prints what a rule has decided, with the seconds since the beginning.
func (c *console) rule(rule, step, message string) {
	words := message
	if step != "" {
		words = fmt.Sprintf("[%s] %s", step, message)
	}
	for i, line := range wrapped(words, width-24) {
		if i == 0 {
			c.say("%6.1fs  %-14s %s", time.Since(c.began).Seconds(), rule, line)
		} else {
			c.say("%23s %s", "", line)
		}
	}
}

// wait shows what is being waited for; empty for nothing.
func (c *console) wait(what string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if what != c.waiting {
		c.since = time.Now()
	}
	c.clear()
	c.waiting = what
	c.draw()
}

func (c *console) clear() {
	if c.live && c.waiting != "" {
		_, _ = io.WriteString(c.out, "\r\x1b[K")
	}
}

func (c *console) draw() {
	if c.live && c.waiting != "" {
		_, _ = fmt.Fprintf(c.out, "... %.0f s: waiting until %s", time.Since(c.since).Seconds(), c.waiting)
	}
}

// wrapped breaks a sentence into lines of so many characters.
func wrapped(words string, most int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(words) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > most {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// onto prints to another writer from now on, on which nothing is written over.
func (c *console) onto(out io.Writer) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.out, c.live = out, false
}
