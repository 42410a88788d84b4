package kubectl

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
)

// What serves all clusters may have logged what belongs to any: Metacontroller logs whole Secrets at some levels, and
// has a copy of each in an annotation besides. Whose Secrets these are is not known here, and they can't be read. So
// keys are told by their form, however deep they are wrapped.

var (
	blank = `(?: |\+|%20)`
	// keyInPEM is a private key up to its end, or to that of the text.
	keyInPEM = regexp.MustCompile(`(?s)-----BEGIN` + blank + `(?:[A-Z0-9]+` + blank + `)*PRIVATE` + blank + `KEY-----.*?(-----END` + blank + `(?:[A-Z0-9]+` + blank + `)*PRIVATE` + blank + `KEY-----|\z)`)
	// keyOfAge is an identity by which snapshots are read.
	keyOfAge = regexp.MustCompile(`(?i)AGE-SECRET-KEY-[0-9A-Z]+`)
	// keysInData is what a Secret holds, within an object that is part of a text: as JSON, quoted or not, and as Go
	// prints a map.
	keysInData = regexp.MustCompile(`((?:\\*"(?:data|stringData)\\*"\s*:\s*|\b(?:data|stringData):))(?:\{[^{}]*"[^{}]*\}|map\[[^\[\]]+\])`)
	// run is what may be base64, in one line or wrapped.
	run       = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}(?:={0,2}(?:\s|\\+[nr])+[A-Za-z0-9+/_-]{16,})*={0,2}`)
	wrappings = regexp.MustCompile(`(?:\s|\\+[nr]|=)+`)
)

// deepest is how often a key is looked for within base64 within base64.
const deepest = 3

// withoutKeys is a text without what has the form of a private key, or of what a Secret holds.
func withoutKeys(s string) string {
	s = keysInData.ReplaceAllString(s, "${1}"+removed)
	s = keyInPEM.ReplaceAllLiteralString(s, removed)
	s = keyOfAge.ReplaceAllLiteralString(s, removed)
	return run.ReplaceAllStringFunc(s, func(found string) string {
		if holdsKey(found, deepest) {
			return removed
		}
		return found
	})
}

// holdsKey reports whether a run of base64 is, or wraps, a private key. Where it begins is not known: what stands
// before it may look like a part.
func holdsKey(found string, depth int) bool {
	clean := strings.NewReplacer("-", "+", "_", "/").Replace(wrappings.ReplaceAllString(found, ""))
	for from := range 4 {
		part := clean[from:]
		if len(part)%4 == 1 {
			part = part[:len(part)-1]
		}
		raw, err := base64.RawStdEncoding.DecodeString(part)
		if err != nil {
			raw, _ = base64.RawStdEncoding.DecodeString(part[:len(part)/4*4]) // the bits behind the last byte are not 0
		}
		if isKey(raw) || tellsKey(raw, depth-1) {
			return true
		}
	}
	return false
}

// tellsKey reports whether a text has a key in it.
func tellsKey(raw []byte, depth int) bool {
	if keyInPEM.Match(raw) || keyOfAge.Match(raw) || keysInData.Match(raw) {
		return true
	}
	if depth > 0 {
		for _, found := range run.FindAll(raw, -1) {
			if holdsKey(string(found), depth) {
				return true
			}
		}
	}
	return false
}

// isKey reports whether it begins as a private key in DER does: a sequence whose first elements are a version and, by
// PKCS #8 an algorithm, by PKCS #1 a number, by SEC 1 the key.
func isKey(der []byte) bool {
	if len(der) < 16 || der[0] != 0x30 {
		return false
	}
	header := 2
	if der[1] > 0x80 {
		header += int(der[1] - 0x80)
	}
	for _, begins := range [][]byte{{2, 1, 0, 0x30}, {2, 1, 0, 2}, {2, 1, 1, 4}} {
		if header < len(der) && bytes.HasPrefix(der[header:], begins) {
			return true
		}
	}
	return false
}
