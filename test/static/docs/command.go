package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// Command is one of a console block, with the lines that it printed.
type Command struct {
	Line   int
	Text   string
	Output []string
}

// Commands are those of a block: each line of a console that begins with "$ ", or all of a shell block as one script.
func (p Part) Commands() ([]Command, error) {
	if p.Language == "sh" {
		return []Command{{Line: p.Line + 1, Text: p.Text}}, nil
	}
	var all []Command
	for n, line := range strings.Split(strings.TrimSuffix(p.Text, "\n"), "\n") {
		command, is := strings.CutPrefix(line, "$ ")
		switch last := len(all) - 1; {
		case is:
			all = append(all, Command{Line: p.Line + 1 + n, Text: command + "\n"})
		case last < 0:
			return nil, fmt.Errorf("line %d: a console block begins with a command, \"$ ...\"", p.Line+1+n)
		case strings.HasSuffix(all[last].Text, "\\\n"):
			all[last].Text += line + "\n"
		default:
			all[last].Output = append(all[last].Output, line)
		}
	}
	for i, c := range all { // an empty line before the next command is for the eye
		if end := len(c.Output) - 1; end >= 0 && c.Output[end] == "" {
			all[i].Output = c.Output[:end]
		}
	}
	return all, nil
}

// age is how kubectl tells for how long something has been.
var age = regexp.MustCompile(`\b(\d+[smhdy]){1,2}\b( ago)?`)

// Same is a line without what differs from time to time: ages, the width of columns, and what the page says that it
// varies.
func (p Part) Same(line string) string {
	for _, v := range p.varies {
		line = v.ReplaceAllString(line, "~")
	}
	return strings.Join(strings.Fields(age.ReplaceAllString(line, "~")), " ")
}

// Differs says which line of the output should be another; empty when it is as the page shows it. A line "..." in the
// page stands for any number of lines.
func (p Part) Differs(shown, printed []string) string {
	printed = trimEnd(printed)
	for i, want := range shown {
		if want == "..." {
			for skipped := range len(printed) + 1 {
				if p.Differs(shown[i+1:], printed[skipped:]) == "" {
					return ""
				}
			}
			return "nothing follows \"...\" as the page has it"
		}
		if len(printed) == 0 {
			return fmt.Sprintf("it ends before %q", want)
		}
		if p.Same(want) != p.Same(printed[0]) {
			return fmt.Sprintf("%q where the page has %q", printed[0], want)
		}
		printed = printed[1:]
	}
	if len(printed) > 0 {
		return fmt.Sprintf("%q, of which the page has nothing", printed[0])
	}
	return ""
}

func trimEnd(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
