package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

// TestSite: the site can be built, and what its files refer to is in it.
func TestSite(t *testing.T) {
	to := t.TempDir()
	if err := build(root, to); err != nil {
		t.Fatal(err)
	}
	pages := 0
	err := filepath.WalkDir(to, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".html" {
			return err
		}
		pages++
		at, _ := filepath.Rel(to, name)
		for _, link := range links(string(get(t, name))) {
			file, id, _ := strings.Cut(link, "#")
			target := path.Join(path.Dir(at), file)
			if file == "" {
				target = at
			}
			raw, err := os.ReadFile(filepath.Join(to, target))
			if err != nil || id != "" && !strings.Contains(string(raw), ` id="`+id+`"`) {
				t.Errorf("%s: %s leads nowhere", at, link)
			}
		}
		return nil
	})
	if err != nil || pages < 50 {
		t.Errorf("%d pages: %v", pages, err)
	}
	questions(t, to)
}

var refers = regexp.MustCompile(`\s(?:href|src)="([^"]+)"`)

// links are those of a page to files of the site.
func links(page string) []string {
	var all []string
	for _, m := range refers.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
			all = append(all, m[1])
		}
	}
	return all
}

// questions: the how-to guides of docs/README.md are two clicks from the front page, without the sidebar.
func questions(t *testing.T, to string) {
	t.Helper()
	far := map[string]int{"index.html": 0}
	for at := []string{"index.html"}; len(at) > 0; at = at[1:] {
		if far[at[0]] == 2 {
			continue
		}
		_, text, _ := strings.Cut(string(get(t, filepath.Join(to, at[0]))), "<main")
		for _, link := range links(text) {
			file, _, _ := strings.Cut(link, "#")
			target := path.Join(path.Dir(at[0]), file)
			if _, known := far[target]; !known && path.Ext(target) == ".html" {
				far[target] = far[at[0]] + 1
				at = append(at, target)
			}
		}
	}
	_, list, _ := strings.Cut(string(get(t, filepath.Join(to, "documents.html"))), `id="how-to-guides"`)
	_, list, _ = strings.Cut(list, "<ul>")
	list, _, _ = strings.Cut(list, "</ul>")
	asked := links(list)
	if len(asked) < 20 {
		t.Errorf("only %d how-to guides are listed", len(asked))
	}
	for _, page := range asked {
		if _, found := far[page]; !found {
			t.Errorf("%s can't be reached from the front page with two clicks", page)
		}
	}
}

// TestNothingFromElsewhere: a page loads its styles, scripts and pictures from the site.
func TestNothingFromElsewhere(t *testing.T) {
	to := t.TempDir()
	if err := build(root, to); err != nil {
		t.Fatal(err)
	}
	loads := regexp.MustCompile(`<(?:script|img|link|iframe)[^>]*(?:src|href)="(?:https?:)?//|@import|url\(http`)
	for _, name := range []string{"index.html", "reference/api.html", "site.css", "site.js"} {
		if found := loads.Find(get(t, filepath.Join(to, name))); found != nil {
			t.Errorf("%s: %s", name, found)
		}
	}
}

// TestBrokenLinks: a link to no page, and one to no heading, end the build.
func TestBrokenLinks(t *testing.T) {
	for _, link := range []string{"none.md", "CHANGELOG.md#none", "#none"} {
		s := &site{root: root, by: map[string]*page{}, assets: map[string]bool{}}
		s.add("README.md", []byte("# One\n\n[x]("+link+")\n"))
		s.add("CHANGELOG.md", []byte("# Two\n"))
		err := errors.Join(s.render(s.pages[0]), s.render(s.pages[1]))
		err = errors.Join(append(s.check(), err)...)
		if err == nil || !strings.Contains(err.Error(), "leads nowhere") {
			t.Errorf("%s: %v", link, err)
		}
	}
}

// TestPictures: each is an SVG that says what it shows, needs nothing else, and is on a page.
func TestPictures(t *testing.T) {
	s, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.pages {
		if err := s.render(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"architecture", "roll", "takeover"} {
		source := "docs/pictures/" + name + ".svg"
		raw := get(t, filepath.Join(root, source))
		names := map[string]bool{}
		for d := xml.NewDecoder(strings.NewReader(string(raw))); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", source, err)
			}
			if e, is := token.(xml.StartElement); is {
				names[e.Name.Local] = true
			}
		}
		if !names["svg"] || !names["title"] || names["script"] || names["image"] || !s.assets[source] {
			t.Errorf("%s: %v, on a page: %t", source, names, s.assets[source])
		}
	}
}

func get(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
