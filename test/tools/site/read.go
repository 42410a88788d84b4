package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// page is one Markdown file.
type page struct {
	source string // where it is in the repository
	url    string // where it is on the site
	title  string
	text   []byte
	body   string          // HTML
	ids    map[string]bool // its anchors
	links  []string        // to other pages of the site, with their anchors
	parts  []part          // for the search
}

// part is a heading with the text below it.
type part struct{ id, heading, text string }

// group is a part of the sidebar.
type group struct {
	Name  string
	Pages []*page
}

// site is all of it.
type site struct {
	root   string
	pages  []*page
	by     map[string]*page // by source
	assets map[string]bool  // files of docs that pages show or link to, by source
}

// read finds the documents.
func read(root string) (*site, error) {
	s := &site{root: root, by: map[string]*page{}, assets: map[string]bool{"docs/icon.svg": true}}
	sources := []string{"README.md", "CHANGELOG.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(name, ".md") {
			source, _ := filepath.Rel(root, name)
			sources = append(sources, source)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, source := range sources {
		text, err := os.ReadFile(filepath.Join(root, source))
		if err != nil {
			return nil, err
		}
		s.add(source, text)
	}
	for _, p := range s.pages {
		if p.title == "" {
			return nil, fmt.Errorf("%s has no title", p.source)
		}
	}
	return s, nil
}

var title = regexp.MustCompile(`(?m)^# (.*)$`)

func (s *site) add(source string, text []byte) {
	p := &page{source: source, url: url(source), text: text, ids: map[string]bool{}}
	if m := title.FindSubmatch(text); m != nil {
		p.title = strings.ReplaceAll(string(m[1]), "`", "")
	}
	s.pages, s.by[source] = append(s.pages, p), p
}

// url is the place of a document on the site: that without docs/, and the page of a folder is its index.
func url(source string) string {
	switch source {
	case "README.md":
		return "index.html"
	case "docs/README.md":
		return "documents.html"
	}
	name := strings.TrimSuffix(strings.TrimPrefix(source, "docs/"), ".md")
	if folder, is := strings.CutSuffix(name, "README"); is {
		name = folder + "index"
	}
	return strings.ToLower(name) + ".html"
}

// in are the pages below a folder, in the order in which docs/README.md lists them, the page of the folder first.
func (s *site) in(folder string) []*page {
	var all []*page
	for _, p := range s.pages {
		if strings.HasPrefix(p.source, folder) {
			all = append(all, p)
		}
	}
	listed := string(s.by["docs/README.md"].text)
	place := func(p *page) int {
		if path.Base(p.source) == "README.md" {
			return -1
		}
		if at := strings.Index(listed, "("+strings.TrimPrefix(p.source, "docs/")); at >= 0 {
			return at
		}
		return len(listed)
	}
	slices.SortStableFunc(all, func(a, b *page) int { return place(a) - place(b) })
	return all
}

// groups are the sidebar: the documents by what a reader needs.
func (s *site) groups() []group {
	return []group{
		{"Start", s.named("README.md", "docs/README.md", "docs/tutorial.md", "docs/troubleshooting.md")},
		{"How-to", s.in("docs/how-to/")},
		{"Reference", append(s.in("docs/reference/"), s.by["CHANGELOG.md"])},
		{"Explanation", s.in("docs/explanation/")},
		{"Evidence", s.in("docs/evidence/")},
		{"Decisions", s.in("docs/decisions/")},
	}
}

func (s *site) named(sources ...string) []*page {
	var all []*page
	for _, source := range sources {
		all = append(all, s.by[source])
	}
	return all
}
