package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	tableBegins = "<!-- generated: begin values -->\n"
	tableEnds   = "<!-- generated: end -->"
)

// readme is the README of a chart with the table of its values: each of values.yaml, with the comment above it. A value
// without a comment, or one that the schema does not have, is an error, and so is one that only the schema has.
func readme(folder string) (text string, err error) {
	files := map[string][]byte{}
	for _, name := range []string{"README.md", "values.yaml", "values.schema.json"} {
		if files[name], err = os.ReadFile(filepath.Join(folder, name)); err != nil {
			return "", err
		}
	}
	var values yaml.Node
	if err := yaml.Unmarshal(files["values.yaml"], &values); err != nil {
		return "", fmt.Errorf("values.yaml: %w", err)
	}
	s := schema{}
	if err := json.Unmarshal(files["values.schema.json"], &s.root); err != nil {
		return "", fmt.Errorf("values.schema.json: %w", err)
	}
	rows, err := s.rows("", values.Content[0], s.root)
	if err != nil {
		return "", err
	}
	before, rest, begins := strings.Cut(string(files["README.md"]), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("README.md has no place for the table of values: %s", tableBegins)
	}
	const head = "| Value | Default | Meaning |\n| --- | --- | --- |\n"
	return before + tableBegins + head + strings.Join(rows, "") + tableEnds + after, nil
}

// schema is values.schema.json.
type schema struct{ root object }

// rows are those of a part of values.yaml. What the schema knows no fields of is one value, whatever is in it.
func (s *schema) rows(prefix string, values *yaml.Node, of object) (rows []string, err error) {
	properties, _ := of["properties"].(object)
	var seen []string
	for n := 0; n < len(values.Content); n += 2 {
		key, value := values.Content[n], values.Content[n+1]
		name, comment := prefix+key.Value, sentence(key.HeadComment)
		its, known := properties[key.Value].(object)
		if !known {
			return nil, fmt.Errorf("values.schema.json does not know %s", name)
		}
		seen = append(seen, key.Value)
		deeper := s.resolved(its)
		if deeper["properties"] == nil {
			if comment == "" {
				return nil, fmt.Errorf("values.yaml says nothing about %s", name)
			}
			rows = append(rows, row(name, "`"+flow(value)+"`", comment))
			continue
		}
		if comment != "" {
			rows = append(rows, row(name, "", comment))
		}
		more, err := s.rows(name+".", value, deeper)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	for name := range properties {
		if prefix+name != "global" && !slices.Contains(seen, name) {
			return nil, fmt.Errorf("values.yaml lacks %s, which values.schema.json has", prefix+name)
		}
	}
	return rows, nil
}

// resolved is a part of the schema, or the definition that it refers to.
func (s *schema) resolved(part object) object {
	if ref, is := part["$ref"].(string); is {
		return at(s.root, "definitions", strings.TrimPrefix(ref, "#/definitions/"))
	}
	return part
}

func row(name, standard, meaning string) string {
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, strings.ReplaceAll(standard, "|", `\|`),
		strings.ReplaceAll(meaning, "|", `\|`))
}

var page = regexp.MustCompile(`docs/[\w/-]+\.md(#[\w-]+)?`)

// sentence is a comment as one line, in which pages can be followed.
func sentence(comment string) string {
	var words []string
	for line := range strings.Lines(comment) {
		words = append(words, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	return page.ReplaceAllString(strings.Join(words, " "),
		"[$0](https://github.com/quorate-dev/quorate/blob/main/$0)")
}

// flow is a value on one line.
func flow(value *yaml.Node) string {
	var plain any
	if err := value.Decode(&plain); err != nil { // it was read already
		panic(err)
	}
	text, err := json.Marshal(plain)
	if err != nil {
		panic(err)
	}
	return string(text)
}
