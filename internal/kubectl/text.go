package kubectl

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// width that everything is readable at.
const width = 100

// page is plain text in sections.
type page struct {
	w io.Writer
}

// section begins one.
func (p page) section(title string) { fmt.Fprintf(p.w, "\n%s\n", title) }

// say prints a sentence, in lines that fit.
func (p page) say(words string) {
	for _, line := range wrapped(words, width-2) {
		fmt.Fprintln(p.w, "  "+line)
	}
}

// point prints a sentence as one of several.
func (p page) point(words string) {
	for i, line := range wrapped(words, width-4) {
		fmt.Fprintf(p.w, "  %s %s\n", []string{"-", " "}[min(i, 1)], line)
	}
}

// table prints lines of cells below each other.
func (p page) table(lines [][]string) { p.columns("  ", lines) }

// columns are a table behind a margin.
func (p page) columns(margin string, lines [][]string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, cells := range lines {
		for i := range cells {
			cells[i] = cmp.Or(cells[i], "-")
		}
		fmt.Fprintf(t, "%s%s\n", margin, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // like fmt.Fprint: the reader is gone when it fails
}

// wrapped breaks a sentence into lines of so many characters. A longer word has a line of its own.
func wrapped(words string, most int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(words) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= most:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// lasting is a time span in one unit.
func lasting(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// moment is a time with its distance from now.
func moment(t, now time.Time) string {
	at := t.UTC().Format("2006-01-02 15:04 UTC")
	if t.After(now) {
		return fmt.Sprintf("in %s (%s)", lasting(t.Sub(now)), at)
	}
	return fmt.Sprintf("%s ago (%s)", lasting(now.Sub(t)), at)
}

// size is a number of bytes.
func size(bytes int64) string {
	switch {
	case bytes < 1<<20:
		return fmt.Sprintf("%d KiB", bytes>>10)
	case bytes < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
