package kubectl

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// What a report must not hold is taken out in three ways, each of which would do in most cases: an object is known by
// its kind and fields (a Secret is its keys and sizes), a text by patterns (redact_keys.go has those of private keys),
// and what the Secrets of the namespaces hold is searched for and struck out wherever it turns up.

// removed stands where something was taken out.
const removed = "[removed]"

// redactor takes out what is secret.
type redactor struct {
	known *strings.Replacer // nil: nothing is known
}

// shortestKnown is the shortest value that is searched for: shorter ones are parts of ordinary words.
const shortestKnown = 6

// publicKeys of Secrets hold what is no secret, and may be an ordinary word.
var publicKeys = []string{"username", "user", "namespace", "type", "ca.crt", "ca.crl", corev1.TLSCertKey}

// newRedactor knows what these Secrets hold, as it is and in the forms in which it may be written elsewhere.
func newRedactor(secrets []corev1.Secret) *redactor {
	found := map[string]bool{}
	for _, s := range secrets {
		for key, value := range s.Data {
			if slices.Contains(publicKeys, key) || bytes.HasPrefix(value, []byte("-----BEGIN CERTIFICATE")) {
				continue
			}
			for _, form := range forms(value) {
				if len(form) >= shortestKnown {
					found[form] = true
				}
			}
		}
	}
	if len(found) == 0 {
		return &redactor{}
	}
	longestFirst := slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	var pairs []string
	for _, form := range longestFirst {
		pairs = append(pairs, form, removed)
	}
	return &redactor{strings.NewReplacer(pairs...)}
}

// forms are how a secret may be written: itself, each of its lines, quoted, in a URL, in base64.
func forms(value []byte) []string {
	trimmed := bytes.TrimSpace(value)
	var all []string
	for _, v := range [][]byte{value, trimmed} {
		text := string(v)
		all = append(all, text, strings.Trim(strconv.Quote(text), `"`), url.QueryEscape(text), url.PathEscape(text),
			base64.StdEncoding.EncodeToString(v), base64.URLEncoding.EncodeToString(v),
			strings.TrimRight(base64.StdEncoding.EncodeToString(v), "="),
			strings.TrimRight(base64.URLEncoding.EncodeToString(v), "="))
	}
	for line := range strings.Lines(string(value)) {
		if line = strings.TrimSpace(line); len(line) >= 16 && !strings.HasPrefix(line, "-----") {
			all = append(all, line)
		}
	}
	return all
}

// struck is a text without what is known to be secret.
func (r *redactor) struck(s string) string {
	if r.known == nil {
		return s
	}
	return r.known.Replace(s)
}

// text is a text without what is secret in it.
func (r *redactor) text(s string) string {
	s = withoutKeys(r.struck(s))
	for _, p := range patterns {
		s = p.form.ReplaceAllString(s, p.by)
	}
	return assignment.ReplaceAllStringFunc(s, unassigned)
}

// patterns of what is secret wherever it is found.
var patterns = []struct {
	form *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"'@]+@`), "${1}" + removed + "@"},
	{regexp.MustCompile(`(?i)(authorization\\*["']?\s*[:=]\s*\\*["']?\[?)[^\s"'\\,\]}]+(\s+[^\s"'\\,\]}]+)?`),
		"${1}" + removed},
	{regexp.MustCompile(`(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}`), "${1}" + removed},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?`), removed},
}

// sensitive are names of what is secret.
const sensitive = `passw(?:or)?d|passphrase|passwd|token|secret|api[-_.]?key|private[-_.]?key|access[-_.]?key|credential|bearer|authorization`

var (
	sensitiveName = regexp.MustCompile(`(?i)` + sensitive)
	// assignment is name=value or "name": "value", in a flag, a query, a log or JSON, also where that is quoted itself.
	assignment = regexp.MustCompile(`(?i)([a-z0-9_.-]*(?:` + sensitive +
		`)[a-z0-9_-]*\\*["']?[ \t]*[:=][ \t]*)(\\*"[^"]*"|'[^']*'|[^\s,;&"'}\\]+)`)
	// harmless are such names of etcd's and ours whose values are none.
	harmless = regexp.MustCompile(`(?i)initial[-_]cluster[-_]token|auth[-_]token["'\s]*[:=]["'\s]*(?:jwt|simple)|secret(?:name|ref)|token[-_]ttl|service-?account-?token["'\s]*[:=]["'\s]*(?:true|false)`)
)

func unassigned(s string) string {
	if harmless.MatchString(s) {
		return s
	}
	return assignment.ReplaceAllString(s, "${1}"+removed)
}

// object is an object of Kubernetes, or a List of them, as YAML without what is secret.
func (r *redactor) object(raw []byte) ([]byte, error) {
	var o map[string]any
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("kubectl did not print an object in JSON: %w", err)
	}
	if list, ok := o["items"].([]any); ok {
		for i := range list {
			if item, ok := list[i].(map[string]any); ok {
				list[i] = r.clean(item)
			}
		}
	} else {
		o = r.clean(o)
	}
	text, err := yaml.Marshal(o)
	if err != nil {
		return nil, err
	}
	return []byte(r.struck(string(text))), nil // its strings are clean by now, and `secret: NAME` is a reference
}

// clean is one object without what is secret.
func (r *redactor) clean(o map[string]any) map[string]any {
	metadata := within(o, "metadata")
	delete(metadata, "managedFields")
	if o["kind"] == "Secret" {
		return outline(o)
	}
	hide(within(metadata, "labels"))
	if o["kind"] == "ConfigMap" {
		hide(within(o, "data"))
		delete(o, "binaryData")
	}
	cleaned, _ := r.value(o).(map[string]any)
	return cleaned
}

// outline is all that a report says of a Secret.
func outline(o map[string]any) map[string]any {
	sizes := map[string]any{}
	for key, value := range within(o, "data") {
		text, _ := value.(string)
		sizes[key] = fmt.Sprintf("%d bytes", base64.StdEncoding.DecodedLen(len(strings.TrimRight(text, "="))))
	}
	for key, value := range within(o, "stringData") {
		text, _ := value.(string)
		sizes[key] = fmt.Sprintf("%d bytes", len(text))
	}
	metadata := within(o, "metadata")
	return map[string]any{"kind": "Secret", "name": metadata["name"], "namespace": metadata["namespace"],
		"type": o["type"], "keys": sizes}
}

// hide takes the values out of a map of strings whose names tell that they are secret, and copies of whole objects.
func hide(m map[string]any) {
	for key := range m {
		text, _ := m[key].(string)
		if strings.HasSuffix(key, "last-applied-configuration") {
			m[key] = fmt.Sprintf("[removed: %d bytes, a copy of this object]", len(text))
		} else if sensitiveName.MatchString(key) && !harmless.MatchString(key) {
			m[key] = removed
		}
	}
}

// value is any value within an object without what is secret. The names of environment variables count; references to
// Secrets stay.
func (r *redactor) value(v any) any {
	switch t := v.(type) {
	case map[string]any:
		if name, ok := t["name"].(string); ok && t["value"] != nil && sensitiveName.MatchString(name) &&
			!harmless.MatchString(name) {
			t["value"] = removed
		}
		if data, ok := t["annotations"].(map[string]any); ok { // of a pod's template, too
			hide(data)
		}
		for key := range t {
			t[key] = r.value(t[key])
		}
	case []any:
		for i := range t {
			if i > 0 && isFlag(t[i-1]) {
				t[i] = removed
				continue
			}
			t[i] = r.value(t[i])
		}
	case string:
		return r.text(t)
	}
	return v
}

var secretFlag = regexp.MustCompile(`(?i)^--?[a-z0-9_.-]*(?:` + sensitive + `)[a-z0-9_-]*$`)

// isFlag reports whether an argument is a flag whose value is secret and comes next.
func isFlag(v any) bool {
	text, ok := v.(string)
	return ok && secretFlag.MatchString(text) && !harmless.MatchString(text)
}
