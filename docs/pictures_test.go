package docs_test

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestPictures: each drawing says what it shows, needs nothing else, and is on a page.
func TestPictures(t *testing.T) {
	drawings, _ := filepath.Glob("pictures/*.svg")
	if len(drawings) < 3 {
		t.Errorf("only %v", drawings)
	}
	pages := ""
	walk(t, "docs", ".md", func(_, text string) { pages += text })
	for _, drawing := range drawings {
		parts := map[string]bool{}
		for d := xml.NewDecoder(strings.NewReader(read(t, "docs/"+drawing))); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", drawing, err)
			}
			if e, is := token.(xml.StartElement); is {
				parts[e.Name.Local] = true
			}
		}
		if !parts["svg"] || !parts["title"] || parts["script"] || parts["image"] {
			t.Errorf("%s: %v", drawing, parts)
		}
		if !strings.Contains(pages, drawing+")") {
			t.Errorf("%s is on no page", drawing)
		}
	}
}
