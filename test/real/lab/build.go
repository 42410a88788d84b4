package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// build makes the named components, or all that a lab needs and the images.
// What is up to date is left alone. A chosen part needs Go alone: no root, no
// Debian package.
func (l *lab) build(names []string) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(l.bin, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if len(names) == 0 {
		chosen = l.needed(chosen)
		if err := needPackages(debianPackages); err != nil {
			return err
		}
	}
	if err := l.buildAll(chosen); err != nil {
		return err
	}
	if len(names) == 0 {
		return l.buildImages()
	}
	return nil
}

// upToDate says whether all that `up` needs is built, without touching anything.
func (l *lab) upToDate() bool {
	for _, c := range l.needed(components()) {
		if inputs, err := l.inputs(c); err != nil || !l.built(c, inputs) {
			return false
		}
	}
	return l.imagesUpToDate()
}

// needed are the components that a lab can't start without: not the optional
// ones, and Metacontroller only where no other release of it lies ready.
func (l *lab) needed(all []component) []component {
	return slices.DeleteFunc(all, func(c component) bool {
		return c.optional || c.name == "metacontroller" && !l.builtMetacontroller()
	})
}

// buildAll makes what is not up to date, with one command of Go's for each
// module, so that compiling and linking fill all cores.
func (l *lab) buildAll(chosen []component) error {
	groups, err := l.outdated(chosen, true)
	if err != nil {
		return err
	}
	if len(groups) > 1 {
		go l.download(groups[1:])
	}
	for i, group := range groups {
		if err := l.buildGroup(group, fmt.Sprintf("[%d/%d]", i+1, len(groups))); err != nil {
			return err
		}
	}
	return nil
}

// outdated are the components that are not up to date, those together that one command of Go's can build.
func (l *lab) outdated(chosen []component, say bool) ([][]component, error) {
	var groups [][]component
	for _, c := range chosen {
		inputs, err := l.inputs(c)
		if err != nil {
			return nil, err
		}
		if l.built(c, inputs) {
			if say {
				fmt.Printf("%s: up to date, %d MB\n", c, l.megabytes(c))
			}
			continue
		}
		same := func(group []component) bool { return !c.alone && !group[0].alone && group[0].folder() == c.folder() }
		if i := slices.IndexFunc(groups, same); i >= 0 {
			groups[i] = append(groups[i], c)
		} else {
			groups = append(groups, []component{c})
		}
	}
	return groups, nil
}

// download fetches what builds want, while something else is compiled. They
// would do it themselves, and tell its errors.
func (l *lab) download(groups [][]component) {
	for _, group := range groups {
		list := append([]string{"list", "-deps"}, group[0].settings()...)
		_ = l.goTool(group[0], append(list, packages(group)...)...).Run()
	}
}

// downloadNeeded fetches all that `up` builds.
func (l *lab) downloadNeeded(_ []string) error {
	groups, err := l.outdated(l.needed(components()), false)
	if err == nil {
		l.download(groups)
	}
	return err
}

func (l *lab) buildGroup(group []component, step string) error {
	var names []string
	for _, c := range group {
		names = append(names, c.String())
	}
	what := strings.Join(names, ", ")
	began := time.Now()
	if err := l.compile(group, step+" "+what); err != nil {
		return fmt.Errorf("building %s: %w", what, err)
	}
	size := int64(0)
	for _, c := range group {
		if err := l.finish(c); err != nil {
			return fmt.Errorf("building %s: %w", c, err)
		}
		size += l.megabytes(c)
	}
	fmt.Printf("%s %s: built in %.0f s, %d MB\n", step, what, time.Since(began).Seconds(), size)
	return nil
}

// compile builds into a folder of its own and renames: a binary that a running
// lab executes cannot be written to, but it can be replaced.
func (l *lab) compile(group []component, what string) error {
	if err := os.MkdirAll(l.bin, 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(l.bin, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := l.goBuild(group, fresh, what); err != nil {
		return err
	}
	for _, c := range group {
		for _, b := range c.binaries {
			target := filepath.Join(l.bin, b.path)
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return err
			}
			if err := os.Rename(filepath.Join(fresh, b.made()), target); err != nil {
				return err
			}
		}
	}
	return nil
}

// made is how Go calls the binary of a package: by the last part of its path that is no version.
func (b binary) made() string {
	if base := path.Base(b.pkg); !majorVersion.MatchString(base) {
		return base
	}
	return path.Base(path.Dir(b.pkg))
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

func packages(group []component) []string {
	var all []string
	for _, c := range group {
		for _, b := range c.binaries {
			all = append(all, b.pkg)
		}
	}
	return all
}

// finish adds what goes beside the binaries, and at last the stamp.
func (l *lab) finish(c component) error {
	inputs, err := l.inputs(c)
	if err != nil {
		return err
	}
	for _, link := range c.links {
		path := filepath.Join(l.bin, link)
		os.Remove(path)
		if err := os.Symlink(c.binaries[0].path, path); err != nil {
			return err
		}
	}
	if c.file != (moduleFile{}) {
		if err := l.keepModuleFile(c); err != nil {
			return err
		}
	}
	return os.WriteFile(l.stamp(c), []byte(inputs+"\n"), 0o644)
}

func (l *lab) keepModuleFile(c component) error {
	dir, err := l.goTool(c, "list", "-m", "-f", "{{.Dir}}", c.file.module).Output()
	if err != nil {
		return fmt.Errorf("where module %s is: %w", c.file.module, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), c.file.from))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("module %s has no file %s", c.file.module, c.file.from)
	}
	var content []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		content = append(content, text...)
	}
	return os.WriteFile(filepath.Join(l.bin, c.file.to), content, 0o644)
}

// goBuild compiles and links a group into a folder. It tells how far it is, and
// keeps the output in a log when it fails.
func (l *lab) goBuild(group []component, folder, what string) error {
	c := group[0]
	if _, err := os.Stat(filepath.Join(l.moduleFolder(c), "go.mod")); err != nil {
		return fmt.Errorf("%w; run this from a checkout: go run -C test/real/lab . build", err)
	}
	build := progress{what: what, out: os.Stderr, inPlace: isTerminal(os.Stderr)}
	build.say("fetching modules")
	list := append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, c.settings()...)
	// What it can't list, the build itself tells better.
	stale, _ := l.goTool(c, append(list, packages(group)...)...).Output()
	cmd := l.goTool(c, append(append([]string{"build", "-v", "-o", folder}, c.settings()...), packages(group)...)...)
	build.begin(strings.Count(string(stale), "\n"))
	cmd.Stdout, cmd.Stderr = &build, &build
	err := cmd.Run()
	build.end()
	if err == nil {
		return nil
	}
	log := filepath.Join(l.logs, "build-"+c.name+".log")
	os.MkdirAll(l.logs, 0o755)
	os.WriteFile(log, build.other.Bytes(), 0o644)
	return fmt.Errorf("go build: %w\n%s(whole output: %s)", err, lastLines(build.other.String(), 12), log)
}

// goTool is a command of Go's in the component's module folder.
func (l *lab) goTool(c component, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = l.moduleFolder(c)
	// Kept apart from what the caller has set for a project of theirs.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local", "GOWORK=off",
		// The checksum database cannot know a module that is served under
		// another path than it names; its hash is in our go.sum.
		"GONOSUMDB=github.com/metacontroller/metacontroller",
		// Compilers live for a second and need not tidy up: that saves a quarter of their time. Few reach the limit.
		"GOGC=off", "GOMEMLIMIT=3GiB")
	return cmd
}

// settings are the flags by which a component is built, and all that is in the same module.
func (c component) settings() []string {
	s := modules[c.folder()]
	flags := []string{"-trimpath", "-ldflags", strings.TrimSpace("-s -w " + s.ldflags)}
	if s.tags != "" {
		flags = append(flags, "-tags", s.tags)
	}
	if s.gcflags != "" {
		flags = append(flags, "-gcflags", s.gcflags)
	}
	return flags
}

// inputs is a hash of all that a component's binaries depend on.
func (l *lab) inputs(c component) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, c.settings(), c.binaries, c.links, c.file)
	folder := l.moduleFolder(c)
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintln(h, strings.TrimPrefix(file, folder), len(content))
		h.Write(content)
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

func (l *lab) built(c component, inputs string) bool {
	stamp, err := os.ReadFile(l.stamp(c))
	if err != nil || strings.TrimSpace(string(stamp)) != inputs {
		return false
	}
	for _, path := range c.outputs() {
		if _, err := os.Stat(filepath.Join(l.bin, path)); err != nil {
			return false
		}
	}
	return true
}

func (c component) outputs() []string {
	outputs := append([]string{}, c.links...)
	for _, b := range c.binaries {
		outputs = append(outputs, b.path)
	}
	if c.file.to != "" {
		outputs = append(outputs, c.file.to)
	}
	return outputs
}

func (l *lab) stamp(c component) string { return filepath.Join(l.bin, "."+c.name+".stamp") }

func (c component) folder() string { return cmp.Or(c.source, c.name) }

func (l *lab) moduleFolder(c component) string { return filepath.Join(l.source, "src", c.folder()) }

func (l *lab) megabytes(c component) int64 {
	var sum int64
	for _, b := range c.binaries {
		if info, err := os.Stat(filepath.Join(l.bin, b.path)); err == nil {
			sum += info.Size()
		}
	}
	return sum / 1_000_000
}

func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
