// Package docs reads the blocks of the documents: the commands and manifests that a page shows, in their order, with
// what is said of them in HTML comments. This package looks at each of them without running any. TestDocuments in
// test/real/e2e plays the pages on a real Kubernetes.
//
// A page is played from top to bottom in a namespace of its own. Before a block, on a line of its own, a comment may
// say
//
//	<!-- not run: REASON -->     it can't be run there; the reason says why, and who runs it instead
//	<!-- dry run: REASON -->     its kubectl changes nothing (--dry-run=server)
//	<!-- apply -->               the manifest is applied; without this word the API server is only asked whether it would take it
//	<!-- varies: REGEXP -->      parts of the output that differ from time to time; ages are known to
//	<!-- setup: COMMAND -->      something that the page takes for granted; rare
//	<!-- recording: begin -->    what is from here to "recording: end" was recorded; `make recording` writes it
//	<!-- contents: begin -->     what is from here to "contents: end" lists headings; written by QUORATE_REWRITE=1 go test ./docs
//	<!-- generated: begin X -->  what is from here to "generated: end" is a table of the code; written by the same
//	<!-- wait: demo STATUS -->   until the EtcdCluster says so of its newest spec, as a reader of the page would wait
package docs

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Part is one thing to be done for a page: a block that it shows, or a comment that stands for itself.
type Part struct {
	Line int // of the first line, counted from 1
	// Setup is a hidden command, Wait an EtcdCluster and its STATUS. With both empty the part is a block.
	Setup, Wait string

	Language, Text string
	// notRun and DryRun are the reasons of comments of these names.
	notRun, DryRun string
	Apply          bool
	varies         []*regexp.Regexp
}

// Page is a document and its parts in order.
type Page struct {
	Path  string // relative to the root
	Parts []Part
}

// languages that fences may have. The first two are commands.
var languages = []string{"sh", "console", "yaml", "json", "text", "go", "python", "java", "promql", "mermaid", "story"}

// Runs says whether the block is played at all.
func (p Part) Runs() bool {
	return p.notRun == "" && slices.Contains([]string{"sh", "console", "yaml"}, p.Language)
}

// ReadPages reads the documents for users: README.md, CONTRIBUTING.md, SECURITY.md and docs, without docs/decisions.
func ReadPages(root string) ([]Page, error) {
	var paths []string
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && d.Name() == "decisions" {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	top, err := filepath.Glob(filepath.Join(root, "[A-Z]*.md"))
	if err != nil {
		return nil, err
	}
	var pages []Page
	for _, path := range append(top, paths...) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		page, err := readPage(relative, string(text))
		if err != nil {
			return nil, err
		}
		pages = append(pages, page)
	}
	return pages, nil
}

// Keep holds what is between two marks of a page against what it should be. QUORATE_REWRITE=1 writes it.
func Keep(path, begin, end, want string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end = "<!-- "+begin+" -->\n", "<!-- "+end+" -->"
	before, rest, found := strings.Cut(string(text), begin)
	got, after, ended := strings.Cut(rest, end)
	switch {
	case !found || !ended:
		return fmt.Errorf("%s: there is nothing between %q and %q", path, begin, end)
	case got == want:
		return nil
	case os.Getenv("QUORATE_REWRITE") != "":
		return os.WriteFile(path, []byte(before+begin+want+end+after), 0o644)
	}
	return fmt.Errorf("%s: what is after %q is out of date. Run its test with QUORATE_REWRITE=1", path, begin)
}

// reader goes through a page line by line.
type reader struct {
	page Page
	said Part // by comments, of the block to come
	// line is the number of the last line that was read.
	line  int
	lines *bufio.Scanner
	blank bool // the line before was empty
}

func readPage(path, text string) (Page, error) {
	r := &reader{page: Page{Path: path}, lines: bufio.NewScanner(strings.NewReader(text)), blank: true}
	for r.next() {
		line := r.lines.Text()
		trimmed := strings.TrimSpace(line)
		var err error
		switch {
		case strings.HasPrefix(trimmed, "```"):
			err = r.fence(line)
		case strings.HasPrefix(trimmed, "<!--"):
			err = r.comment(trimmed)
		case r.blank && strings.HasPrefix(line, "    ") && trimmed != "":
			err = r.errorf("a block that is indented; put it between fences with a language")
		case trimmed != "" && r.said.Line != 0:
			err = r.errorf("the comment in line %d is for a block, and there is none behind it", r.said.Line)
		}
		if err != nil {
			return Page{}, err
		}
		r.blank = trimmed == ""
	}
	if r.said.Line != 0 {
		return Page{}, r.errorf("the comment in line %d is for a block, and there is none behind it", r.said.Line)
	}
	return r.page, nil
}

func (r *reader) next() bool {
	r.line++
	return r.lines.Scan()
}

func (r *reader) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", r.page.Path, r.line, fmt.Sprintf(format, args...))
}

// fence reads a block up to its end, without the indentation of its fence.
func (r *reader) fence(opening string) error {
	language := strings.TrimPrefix(strings.TrimSpace(opening), "```")
	indentation := opening[:strings.Index(opening, "`")]
	if !slices.Contains(languages, language) {
		return r.errorf("a block of %q; the languages are %s", language, strings.Join(languages, ", "))
	}
	block := r.said
	block.Line, block.Language = r.line, language
	r.said = Part{}
	var text strings.Builder
	for r.next() {
		if strings.TrimSpace(r.lines.Text()) == "```" {
			block.Text = text.String()
			r.page.Parts = append(r.page.Parts, block)
			return nil
		}
		text.WriteString(strings.TrimPrefix(r.lines.Text(), indentation) + "\n")
	}
	return r.errorf("the block of line %d has no end", block.Line)
}

// comment reads one, which may go over several lines.
func (r *reader) comment(text string) error {
	begin := r.line
	for !strings.HasSuffix(text, "-->") {
		if !r.next() {
			return r.errorf("the comment of line %d has no end", begin)
		}
		text += "\n" + strings.TrimSpace(r.lines.Text())
	}
	text = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(text, "<!--"), "-->"))
	word, rest, _ := strings.Cut(text, ":")
	rest = strings.TrimSpace(rest)
	switch {
	case word == "setup" && rest != "":
		r.page.Parts = append(r.page.Parts, Part{Line: begin, Setup: rest})
		return nil
	case word == "wait" && len(strings.Fields(rest)) == 2:
		r.page.Parts = append(r.page.Parts, Part{Line: begin, Wait: rest})
		return nil
	case word == "recording" && (rest == "begin" || rest == "end"),
		word == "contents" && (rest == "begin" || rest == "end"),
		word == "generated" && (strings.HasPrefix(rest, "begin ") || rest == "end"):
		return nil
	case word == "not run" && rest != "":
		r.said.notRun = rest
	case word == "dry run" && rest != "":
		r.said.DryRun = rest
	case word == "apply" && rest == "":
		r.said.Apply = true
	case word == "varies":
		varies, err := regexp.Compile(rest)
		if err != nil {
			return r.errorf("%v", err)
		}
		r.said.varies = append(r.said.varies, varies)
	default:
		return r.errorf("an unknown comment: %s (test/static/docs/page.go has the words)", text)
	}
	r.said.Line = begin
	return nil
}
