package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// texts are what stands for a value, or in place of a line, in the YAML of an object. A mark in the object holds the
// place of each until the object is YAML.
type texts struct {
	inline []string // for a value or a part of it
	lines  []string // for a whole line, with its indentation; by the index of a mark
}

var (
	inlineMark = regexp.MustCompile(`INLINE(\d+)MARK`)
	// behind all other keys: the first one of an element has its dash
	lineMark = regexp.MustCompile(`(?m)^( *)(?:- )?zzzLINE(\d+)MARK(?:: null)?\n`)
)

// value is a mark for an expression.
func (t *texts) value(expression string) string {
	t.inline = append(t.inline, "{{ "+expression+" }}")
	return fmt.Sprintf("INLINE%dMARK", len(t.inline)-1)
}

// line is a mark for whole lines, as the key of an object or an element of a list.
func (t *texts) line(lines ...string) string {
	t.lines = append(t.lines, strings.Join(lines, "\n"))
	return fmt.Sprintf("zzzLINE%dMARK", len(t.lines)-1)
}

// set puts an expression in the place of a value that is there, and returns the value.
func (t *texts) set(o object, key, expression string) any {
	old, has := o[key]
	if !has {
		panic(missing(key))
	}
	o[key] = t.value(expression)
	return old
}

// put puts lines in the place of a key that is there, and returns its value.
func (t *texts) put(o object, key string, lines ...string) any {
	old, has := o[key]
	if !has {
		panic(missing(key))
	}
	delete(o, key)
	o[t.line(lines...)] = nil
	return old
}

// add puts lines where there is no key yet.
func (t *texts) add(o object, key string, lines ...string) {
	if _, has := o[key]; has {
		panic(missing("an object without " + key))
	}
	o[t.line(lines...)] = nil
}

// yaml is an object with its texts in place. Within lines, INDENT is as many spaces as there are before them,
// INDENT+2 and INDENT+4 are more.
func (t *texts) yaml(o any) string {
	raw, err := yaml.Marshal(o)
	if err != nil { // it was read from YAML
		panic(err)
	}
	text := strings.ReplaceAll(string(raw), "{{", `{{ "{{" }}`) // what is there already is Prometheus' or Grafana's
	for lineMark.MatchString(text) {
		text = lineMark.ReplaceAllStringFunc(text, func(found string) string {
			m := lineMark.FindStringSubmatch(found)
			n, _ := strconv.Atoi(m[2])
			lines := strings.NewReplacer("INDENT+2", strconv.Itoa(len(m[1])+2), "INDENT+4", strconv.Itoa(len(m[1])+4),
				"INDENT", strconv.Itoa(len(m[1]))).Replace(t.lines[n])
			return m[1] + strings.ReplaceAll(lines, "\n", "\n"+m[1]) + "\n"
		})
	}
	return inlineMark.ReplaceAllStringFunc(text, func(found string) string {
		n, _ := strconv.Atoi(inlineMark.FindStringSubmatch(found)[1])
		return t.inline[n]
	})
}

// when are lines that are there on a condition only.
func when(condition, lines string) string {
	return "{{- if " + condition + " }}\n" + strings.TrimRight(lines, "\n") + "\n{{- end }}"
}
