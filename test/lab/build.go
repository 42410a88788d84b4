package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// build makes the named components, or all of them and the images. What is up
// to date is left alone. A chosen part needs Go alone: no root, no C compiler
// (but for runc), no Debian package.
func (l *lab) build(names []string) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		chosen = l.needed(chosen)
	}
	unlock, err := lock(filepath.Join(l.bin, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if len(names) == 0 {
		if err := needPackages(debianPackages); err != nil {
			return err
		}
	}
	for i, c := range chosen {
		if err := l.buildOne(c, fmt.Sprintf("[%d/%d]", i+1, len(chosen))); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return l.buildImages()
	}
	return nil
}

// upToDate says whether all of the lab is built, without touching anything.
func (l *lab) upToDate() bool {
	for _, c := range l.needed(components()) {
		inputs, err := l.inputs(c)
		if err != nil || !l.built(c, inputs) {
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

func (l *lab) buildOne(c component, progress string) error {
	inputs, err := l.inputs(c)
	if err != nil {
		return err
	}
	if l.built(c, inputs) {
		fmt.Printf("%s %s %s: up to date, %d MB\n", progress, c.name, c.version, l.megabytes(c))
		return nil
	}
	fmt.Fprintf(os.Stderr, "%s %s %s: building ...\n", progress, c.name, c.version)
	began := time.Now()
	if err := l.compile(c); err != nil {
		return fmt.Errorf("building %s %s: %w", c.name, c.version, err)
	}
	if err := l.finish(c, inputs); err != nil {
		return fmt.Errorf("building %s %s: %w", c.name, c.version, err)
	}
	fmt.Printf("%s %s %s: built in %.0f s, %d MB\n", progress, c.name, c.version, time.Since(began).Seconds(), l.megabytes(c))
	return nil
}

// compile builds into a folder of its own and renames: a binary that a running
// lab executes cannot be written to, but it can be replaced.
func (l *lab) compile(c component) error {
	if err := os.MkdirAll(l.bin, 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(l.bin, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	for _, b := range c.binaries {
		made := filepath.Join(fresh, filepath.Base(b.path))
		if err := l.goTool(c, append(append([]string{"build"}, c.flags()...), "-o", made, b.pkg)...); err != nil {
			return err
		}
		target := filepath.Join(l.bin, b.path)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.Rename(made, target); err != nil {
			return err
		}
	}
	return nil
}

// finish adds what goes beside the binaries, and at last the stamp.
func (l *lab) finish(c component, inputs string) error {
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
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", c.file.module)
	list.Dir, list.Env = l.moduleFolder(c), c.env()
	dir, err := list.Output()
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

// goTool runs go in the component's module folder, its output in a log.
func (l *lab) goTool(c component, args ...string) error {
	if _, err := os.Stat(filepath.Join(l.moduleFolder(c), "go.mod")); err != nil {
		return fmt.Errorf("%w; run this from a checkout: go run -C test/lab . build", err)
	}
	var output bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = l.moduleFolder(c), c.env()
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if err == nil {
		return nil
	}
	log := filepath.Join(l.logs, "build-"+c.name+".log")
	os.MkdirAll(l.logs, 0o755)
	os.WriteFile(log, output.Bytes(), 0o644)
	return fmt.Errorf("go %s: %w\n%s(whole output: %s)", args[0], err, lastLines(output.String(), 12), log)
}

func (c component) flags() []string {
	flags := []string{"-trimpath", "-ldflags", strings.TrimSpace("-s -w " + c.ldflags)}
	if c.tags != "" {
		flags = append(flags, "-tags", c.tags)
	}
	return flags
}

// env keeps the builds apart from what the caller has set for his own project.
func (c component) env() []string {
	cgo := "CGO_ENABLED=0"
	if c.cgo {
		cgo = "CGO_ENABLED=1"
	}
	return append(os.Environ(), cgo,
		"GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local", "GOWORK=off",
		// The checksum database cannot know a module that is served under
		// another path than it names; its hash is in our go.sum.
		"GONOSUMDB=github.com/metacontroller/metacontroller")
}

// inputs is a hash of all that a component's binaries depend on.
func (l *lab) inputs(c component) (string, error) {
	files, err := filepath.Glob(filepath.Join(l.moduleFolder(c), "*"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, c.flags(), c.cgo, c.binaries, c.links, c.file)
	for _, file := range files { // go.mod, go.sum and, where there is one, main.go
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(file), len(content))
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
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

func (l *lab) moduleFolder(c component) string {
	if c.source != "" {
		return filepath.Join(l.source, "src", c.source)
	}
	return filepath.Join(l.source, "src", c.name)
}

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
