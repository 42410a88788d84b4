package docs_test

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Bounds of the documents.
const (
	columns     = 100
	cellWords   = 30
	pageWords   = 1400 // a page that is longer has a list of its contents
	allWords    = 35000
	readmeWords = 700
)

// phrases are not used, in documents and in what code says: they belong to another kind of English.
var phrases = []string{
	"nobody", "somebody", "anybody", "everybody", "whoever", "whomever", "whom", "whosoever", "anew",
	"but for", "is to be", "are to be", "was to be", "were to be", "for want of", "lest", "thereof", "hence",
	"for ever", "of its own accord", "in vain", "in order to",
}

// hollow are not used in documents: they say less than a plain word, or nothing.
var hollow = []string{
	"as it were", "beside others of", "is wont", "be it", "please note", "simply", "obviously", "leverage", "utilize",
	"seamless", "robust",
}

// prose is what the rules of style are about: README, CONTRIBUTING and docs, without the decisions, which are old
// pages, and without what is made by a program.
func prose(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for path, text := range markdown(t) {
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case name == "README.md", name == "CONTRIBUTING.md":
		case !strings.HasPrefix(name, "docs/"), strings.HasPrefix(name, "docs/decisions/"), name == "docs/reference/api.md":
			continue
		}
		all[name] = generated.ReplaceAllStringFunc(text, blank)
	}
	if len(all) < 20 {
		t.Fatalf("there are only %d documents", len(all))
	}
	return all
}

var (
	generated = regexp.MustCompile(`(?s)<!-- (?:generated|contents): begin.*?<!-- (?:generated|contents): end -->`)
	remark    = regexp.MustCompile(`(?s)<!--.*?-->`)
	span      = regexp.MustCompile("`[^`]*`")
	target2   = regexp.MustCompile(`\]\([^)]*\)`)
)

// blank keeps the lines and nothing of what they say.
func blank(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }

// plain is a document without blocks of code and remarks, line for line.
func plain(text string) string {
	return remark.ReplaceAllStringFunc(fenced.ReplaceAllStringFunc(text, blank), blank)
}

// TestPhrases: the documents do not use the phrases of the list.
func TestPhrases(t *testing.T) {
	list := anyOf(slices.Concat(phrases, hollow))
	for name, text := range prose(t) {
		text = span.ReplaceAllStringFunc(plain(text), blank)
		text = regexp.MustCompile(`"[^"\n]*"`).ReplaceAllString(text, "") // words of others
		for i, line := range strings.Split(target2.ReplaceAllString(text, "]"), "\n") {
			if found := list.FindString(line); found != "" {
				t.Errorf("%s:%d: %q is not used here: say it in plain words", name, i+1, found)
			}
		}
	}
}

func anyOf(phrases []string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(phrases, "|") + `)\b`)
}

// TestPhrasesOfCode: what code says to its users and its readers has none of the phrases either.
func TestPhrasesOfCode(t *testing.T) {
	list, files := anyOf(phrases), 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || name == "bin"):
			return fs.SkipDir
		case name == "docs/style_test.go", !slices.Contains([]string{".go", ".sh", ".yaml", ".yml", ""}, filepath.Ext(name)),
			filepath.Ext(name) == "" && entry.Name() != "Makefile" && entry.Name() != "Dockerfile", entry.IsDir():
			return nil
		}
		files++
		text := strings.ReplaceAll(readAll(t, name), "http.NoBody", "")
		for i, line := range strings.Split(text, "\n") {
			if found := list.FindString(line); found != "" {
				t.Errorf("%s:%d: %q is not used here: say it in plain words", name, i+1, found)
			}
		}
		return nil
	})
	if err != nil || files < 300 {
		t.Fatalf("%d files were read: %v", files, err)
	}
}

// TestLines: a line has 100 columns at most, unless it is a row of a table, code, or one long address.
func TestLines(t *testing.T) {
	for name, text := range prose(t) {
		for i, line := range strings.Split(plain(text), "\n") {
			row := strings.HasPrefix(strings.TrimSpace(line), "|")
			address := strings.Contains(line, "](") && len(strings.Fields(line)) < 12 || strings.HasPrefix(line, "![")
			if len([]rune(line)) > columns && !row && !address && !longCode(line) {
				t.Errorf("%s:%d: %d columns, more than %d", name, i+1, len([]rune(line)), columns)
			}
		}
	}
}

// longCode reports whether a line can't be shorter, because code in it has no place to break.
func longCode(line string) bool {
	return slices.ContainsFunc(span.FindAllString(line, -1), func(c string) bool { return len(c) > columns/2 })
}

// TestCells: a cell of a table is no prose: thirty words at most.
func TestCells(t *testing.T) {
	for name, text := range prose(t) {
		for i, line := range strings.Split(plain(text), "\n") {
			row, is := strings.CutPrefix(strings.TrimSpace(line), "|")
			if !is {
				continue
			}
			for cell := range strings.SplitSeq(strings.TrimSuffix(row, "|"), "|") {
				if n := words(target2.ReplaceAllString(cell, "]")); n > cellWords {
					t.Errorf("%s:%d: a cell of %d words, more than %d: %s", name, i+1, n, cellWords, cell)
				}
			}
		}
	}
}

// TestContents: a long page begins with a list of its parts, which is that of its headings.
func TestContents(t *testing.T) {
	for name, text := range prose(t) {
		has := strings.Contains(readAll(t, name), "<!-- contents: begin -->")
		if !has && words(plain(text)) > pageWords && name != "README.md" && name != "CONTRIBUTING.md" {
			t.Errorf("%s has %d words, and no contents: put <!-- contents: begin --> and <!-- contents: end --> "+
				"below its beginning, and run QUORATE_REWRITE=1 go test ./docs", name, words(plain(text)))
		}
		if !has {
			continue
		}
		var list strings.Builder
		for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if len(m[1]) == 2 {
				list.WriteString("- [" + strings.ReplaceAll(m[2], "`", "") + "](#" + slug(m[2]) + ")\n")
			}
		}
		keep(t, name, "contents: begin", "contents: end", list.String())
	}
}

// TestWords: the documents can be read, all of them. Not counted is what a program writes, and what a page does not
// show.
func TestWords(t *testing.T) {
	all := 0
	texts := prose(t)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if name == "CONTRIBUTING.md" {
			continue
		}
		n := words(remark.ReplaceAllString(texts[name], ""))
		t.Logf("%6d %s", n, name)
		all += n
	}
	t.Logf("%6d in all", all)
	if all > allWords {
		t.Errorf("the documents have %d words, more than %d: say a thing once", all, allWords)
	}
	if n := words(remark.ReplaceAllString(texts["README.md"], "")); n > readmeWords {
		t.Errorf("README.md has %d words, more than %d", n, readmeWords)
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
