package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"html/template"
	"os"
	"path/filepath"
	"strings"
)

//go:embed page
var files embed.FS

var layout = template.Must(template.ParseFS(files, "page/page.html"))

// write writes pages, pictures and what the search knows.
func (s *site) write(to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	for _, p := range s.pages {
		var out bytes.Buffer
		if err := layout.Execute(&out, s.view(p)); err != nil {
			return err
		}
		if err := put(to, p.url, out.Bytes()); err != nil {
			return err
		}
	}
	for source := range s.assets {
		raw, err := os.ReadFile(filepath.Join(s.root, source))
		if err != nil {
			return err
		}
		if err := put(to, strings.TrimPrefix(source, "docs/"), raw); err != nil {
			return err
		}
	}
	for _, name := range []string{"site.css", "site.js"} {
		raw, err := files.ReadFile("page/" + name)
		if err != nil {
			return err
		}
		if err := put(to, name, raw); err != nil {
			return err
		}
	}
	return put(to, "search.js", s.index())
}

func put(to, name string, raw []byte) error {
	name = filepath.Join(to, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, raw, 0o644)
}

// index is what the search looks through: a script, since a page that is a file may not fetch another.
func (s *site) index() []byte {
	type entry struct{ U, P, H, T string } // URL, title of the page, heading, text
	var all []entry
	for _, p := range s.pages {
		for _, part := range p.parts {
			all = append(all, entry{p.url + "#" + part.id, p.title, part.heading, part.text})
		}
	}
	raw, _ := json.Marshal(all) // strings only
	return append(append([]byte("window.parts = "), raw...), ";\n"...)
}

// view is what the layout shows of a page.
type view struct {
	Title, Up, Source string
	Body              template.HTML
	Groups            []viewGroup
}

type viewGroup struct {
	Name  string
	Open  bool
	Pages []viewLink
}

type viewLink struct {
	Title, URL string
	Here       bool
}

func (s *site) view(p *page) view {
	v := view{Title: p.title, Up: p.up(), Source: repository + "blob/main/" + p.source, Body: template.HTML(p.body)}
	for _, g := range s.groups() {
		group := viewGroup{Name: g.Name, Open: g.Name != "Decisions"}
		for _, other := range g.Pages {
			here := other == p
			group.Open = group.Open || here
			group.Pages = append(group.Pages, viewLink{other.title, p.up() + other.url, here})
		}
		v.Groups = append(v.Groups, group)
	}
	return v
}
