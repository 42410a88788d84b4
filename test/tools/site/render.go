package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// repository is where files are that the site does not have.
const repository = "https://github.com/quorate-dev/quorate/"

// markdown is GitHub's kind of it. HTML in it is ours, so it stays.
var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()), goldmark.WithRendererOptions(html.WithUnsafe()))

// render makes the HTML of a page, and collects its parts, anchors and links.
func (s *site) render(p *page) error {
	named := parser.WithContext(parser.NewContext(parser.WithIDs(&ids{})))
	root := markdown.Parser().Parse(text.NewReader(p.text), named)
	err := ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Link:
			n.Destination, err = s.target(p, n.Destination)
		case *ast.Image:
			n.Destination, err = s.target(p, n.Destination)
		}
		return ast.WalkContinue, err
	})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := markdown.Renderer().Render(&out, p.text, root); err != nil {
		return err
	}
	p.body = finish(out.String())
	for _, m := range anchor.FindAllStringSubmatch(p.body, -1) {
		p.ids[m[1]] = true
	}
	p.parts = split(p)
	return nil
}

var (
	anchor  = regexp.MustCompile(`\sid="([^"]+)"`)
	remark  = regexp.MustCompile(`(?s)<!--.*?-->\n?`)
	heading = regexp.MustCompile(`<h([1-6]) id="([^"]+)">(.*?)</h[1-6]>`)
	inline  = regexp.MustCompile(`</?(?:a|code|em|strong|del)\b[^>]*>`)
	tag     = regexp.MustCompile(`<[^>]*>`)
)

// here begins the link of a heading to itself.
const here = ` <a class="here"`

// finish is what Markdown has no words for: a frame that scrolls a wide table, and links to headings.
func finish(body string) string {
	body = strings.NewReplacer("<!-- contents: begin -->", `<nav class="contents" aria-label="On this page">`,
		"<!-- contents: end -->", "</nav>", "<table>", `<div class="table" tabindex="0"><table>`,
		"</table>", "</table></div>", "<pre>", `<pre tabindex="0">`).Replace(body)
	body = remark.ReplaceAllString(body, "")
	itself := here + ` href="#$2" aria-label="Link to this part">#</a>`
	return heading.ReplaceAllString(body, `<h$1 id="$2">$3`+itself+`</h$1>`)
}

// split cuts a page at its headings.
func split(p *page) []part {
	var all []part
	at := heading.FindAllStringSubmatchIndex(p.body, -1)
	for i, m := range at {
		end := len(p.body)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		name, _, _ := strings.Cut(p.body[m[6]:m[7]], here)
		all = append(all, part{p.body[m[4]:m[5]], plain(name), plain(p.body[m[1]:end])})
	}
	return all
}

// plain is text without HTML, for the search.
func plain(body string) string {
	body = tag.ReplaceAllString(inline.ReplaceAllString(body, ""), " ")
	body = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", `"`, "&#39;", "'", "&amp;", "&").Replace(body)
	return strings.Join(strings.Fields(body), " ")
}

// target is a link as the site has it.
func (s *site) target(p *page, link []byte) ([]byte, error) {
	to, id, _ := strings.Cut(string(link), "#")
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return link, nil
	}
	if id != "" {
		id = "#" + id
	}
	if to == "" {
		p.links = append(p.links, p.url+id)
		return link, nil
	}
	to = path.Join(path.Dir(p.source), to)
	info, err := os.Stat(filepath.Join(s.root, to))
	switch known := s.by[to]; {
	case known == nil && s.by[to+"/README.md"] != nil:
		known = s.by[to+"/README.md"]
		fallthrough
	case known != nil:
		p.links = append(p.links, known.url+id)
		return []byte(p.up() + known.url + id), nil
	case err != nil:
		return nil, fmt.Errorf("%s: the link %s leads nowhere", p.source, link)
	case info.IsDir():
		return []byte(repository + "tree/main/" + to), nil
	case strings.HasPrefix(to, "docs/"):
		s.assets[to] = true
		return []byte(p.up() + strings.TrimPrefix(to, "docs/")), nil
	}
	return []byte(repository + "blob/main/" + to + id), nil
}

// up is the way from a page to the site's first folder.
func (p *page) up() string { return strings.Repeat("../", strings.Count(p.url, "/")) }

// check finds links to pages and anchors that are not there.
func (s *site) check() []error {
	var all []error
	pages := map[string]*page{}
	for _, p := range s.pages {
		pages[p.url] = p
	}
	for _, p := range s.pages {
		for _, link := range p.links {
			to, id, _ := strings.Cut(link, "#")
			if pages[to] == nil || id != "" && !pages[to].ids[id] {
				all = append(all, fmt.Errorf("%s: the link %s leads nowhere", p.source, link))
			}
		}
	}
	return all
}

// ids names headings as GitHub does.
type ids struct{ used map[string]int }

var dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// Generate is of the interface parser.IDs.
func (i *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(string(value)), ""), " ", "-")
	if i.used == nil {
		i.used = map[string]int{}
	}
	n := i.used[id]
	i.used[id]++
	if n > 0 {
		id += "-" + strconv.Itoa(n)
	}
	return []byte(id)
}

// Put is of the interface parser.IDs.
func (i *ids) Put([]byte) {}
