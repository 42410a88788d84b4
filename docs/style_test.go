package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Bounds of the documents, in columns and words.
const (
	columns   = 100
	cellWords = 30
	pageWords = 2000  // a page that is longer has a list of its contents
	allWords  = 33600 // of all that is written by hand
)

// bounds are those of single pages; decisions have one in common.
var bounds = map[string]int{"README.md": 500, "CONTRIBUTING.md": 1200, "CHANGELOG.md": 500, "docs/decisions/": 250}

var (
	generated = regexp.MustCompile(
		`(?s)<!-- (?:generated|contents|recording): begin.*?<!-- (?:generated|contents|recording): end -->`)
	remark    = regexp.MustCompile(`(?s)<!--.*?-->`)
	span      = regexp.MustCompile("`[^`]*`")
	address   = regexp.MustCompile(`\]\([^)]*\)`)
	quotation = regexp.MustCompile(`"([^"]+)"`)
)

// prose visits the documents that are written by hand: the text as it is, and line for line without code and remarks.
func prose(t *testing.T, visit func(name, text, plain string)) {
	t.Helper()
	walk(t, "", ".md", func(name, text string) {
		if strings.HasPrefix(name, "docs/") && name != "docs/reference/api.md" || !strings.Contains(name, "/") {
			text = generated.ReplaceAllStringFunc(text, blank)
			visit(name, text, remark.ReplaceAllStringFunc(fenced.ReplaceAllStringFunc(text, blank), blank))
		}
	})
}

// blank keeps the lines and nothing of what they say.
func blank(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }

// TestStyle: a line has 100 columns at most, unless it is a row of a table, a long address or long code; a cell of a
// table is no prose.
func TestStyle(t *testing.T) {
	prose(t, func(name, _, plain string) {
		for i, line := range strings.Split(plain, "\n") {
			cells := strings.Split(strings.TrimSpace(line), "|")
			for _, cell := range cells[1:] {
				if n := words(address.ReplaceAllString(cell, "]")); n > cellWords {
					t.Errorf("%s:%d: a cell of %d words, more than %d", name, i+1, n, cellWords)
				}
			}
			long := slices.ContainsFunc(strings.Fields(line), func(w string) bool { return len(w) > columns/2 }) ||
				slices.ContainsFunc(span.FindAllString(line, -1), func(c string) bool { return len(c) > columns/2 })
			if n := len([]rune(line)); n > columns && len(cells) == 1 && !long && !strings.HasPrefix(line, "![") {
				t.Errorf("%s:%d: %d columns, more than %d", name, i+1, n, columns)
			}
		}
	})
}

// TestContents: a long page begins with a list of its parts, which is that of its headings.
func TestContents(t *testing.T) {
	prose(t, func(name, text, plain string) {
		if words(plain) <= pageWords {
			return
		}
		var list strings.Builder
		for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if len(m[1]) == 2 {
				list.WriteString("- [" + strings.ReplaceAll(m[2], "`", "") + "](#" + slug(m[2]) + ")\n")
			}
		}
		keep(t, name, "contents: begin", "contents: end", list.String())
	})
}

// TestWords: the documents can be read, all of them. What a program makes is not counted.
func TestWords(t *testing.T) {
	all := 0
	prose(t, func(name, text, _ string) {
		n := words(text)
		t.Logf("%6d %s", n, name)
		decision := strings.HasPrefix(name, "docs/decisions/")
		if !decision && name != "CHANGELOG.md" {
			all += n
		}
		bound := bounds[name]
		if decision {
			bound = bounds["docs/decisions/"]
		}
		if bound > 0 && n > bound {
			t.Errorf("%s has %d words, more than %d", name, n, bound)
		}
	})
	t.Logf("%6d in all, without decisions and changes", all)
	if all > allWords {
		t.Errorf("the documents have %d words, more than %d: say a thing once", all, allWords)
	}
}

// words counts what has a letter or a digit.
func words(text string) int {
	n := 0
	for word := range strings.FieldsSeq(text) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}
