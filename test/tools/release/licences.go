package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// module is one that is linked, with its licences.
type module struct {
	Path, Version, Sum string
	// Dir is where its files are.
	Dir      string
	licences []licence
}

// licence is one file of a module that is a licence or goes with one.
type licence struct {
	file string
	ids  []string // by SPDX's names; none for a NOTICE
	text []byte
}

func (m *module) String() string { return m.Path + "@" + m.Version }

// moduleOf is what is linked: the replacement, if there is one.
func moduleOf(d *debug.Module) *module {
	if d.Replace != nil {
		d = d.Replace
	}
	return &module{Path: d.Path, Version: d.Version, Sum: d.Sum}
}

// ids of the licences of a module. All of them hold.
func (m *module) ids() []string {
	var all []string
	for _, l := range m.licences {
		all = append(all, l.ids...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// compatible are licences under which a module may be linked into a binary that is passed on under Apache-2.0.
// (MPL-2.0 asks that changes of its own files be published: there are none.)
var compatible = []string{"Apache-2.0", "MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "MPL-2.0",
	"Unlicense", "CC0-1.0", "Zlib"}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)([.-].*)?$`)
)

// readLicences fills in the modules' licences from the files of Go's module cache, which go.sum vouches for.
func readLicences(source string, modules map[string]*module) error {
	download := exec.Command("go",
		append([]string{"mod", "download", "-json"}, slices.Sorted(maps.Keys(modules))...)...)
	download.Dir = source
	var errs bytes.Buffer
	download.Stderr = &errs
	out, err := download.Output()
	if err != nil {
		return fmt.Errorf("go mod download: %w: %s%s", err, errs.String(), out)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var m module
		if err := decoder.Decode(&m); err != nil {
			return err
		}
		if modules[m.String()] == nil {
			return fmt.Errorf("go mod download speaks of %s, which was not asked for", &m)
		}
		modules[m.String()].Dir = m.Dir
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if err := modules[name].read(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// read reads the licences at the top of the module.
func (m *module) read() error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		isLicence := licenceFile.MatchString(e.Name())
		if e.IsDir() || strings.HasSuffix(e.Name(), ".go") || !isLicence && !noticeFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return err
		}
		l := licence{file: e.Name(), text: text}
		if isLicence {
			if l.ids, err = identify(text); err != nil {
				return fmt.Errorf("%s: %w", e.Name(), err)
			}
		}
		m.licences = append(m.licences, l)
	}
	if len(m.ids()) == 0 {
		return fmt.Errorf("there is no licence in %s", m.Dir)
	}
	return nil
}

// identify names the licences that a text consists of, and fails when one is unknown or does not suit.
func identify(text []byte) ([]string, error) {
	var ids []string
	for _, match := range licensecheck.Scan(text).Match {
		if !match.IsURL {
			ids = append(ids, match.ID)
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("it is no licence that is known")
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for _, id := range ids {
		if !slices.Contains(compatible, id) {
			return nil, fmt.Errorf("it is not decided whether %s suits Apache-2.0", id)
		}
	}
	return ids, nil
}

// listed is the text that goes with the binaries: each licence once, behind the modules that it is of.
func listed(modules map[string]*module) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Quorate is made by %s, whose licence is BSD-3-Clause, and links the modules below.\n",
		runtime.Version())
	of := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(modules[name].ids(), ", "))
		for _, l := range modules[name].licences {
			text := string(bytes.TrimSpace(l.text))
			of[text] = append(of[text], name+" "+l.file)
		}
	}
	texts := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return slices.Compare(of[a], of[b]) })
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(of[text], "\n"), text)
	}
	return b.Bytes()
}
