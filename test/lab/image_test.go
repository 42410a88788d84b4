package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readTar returns the files of a tar, links as "-> target".
func readTar(t *testing.T, content []byte) (files map[string]string, order []string, modes map[string]int64) {
	t.Helper()
	files, modes = map[string]string{}, map[string]int64{}
	r := tar.NewReader(bytes.NewReader(content))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, order, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
		if h.Typeflag == tar.TypeSymlink {
			files[h.Name] = "-> " + h.Linkname
		}
		modes[h.Name] = h.Mode
		order = append(order, h.Name)
	}
}

func writeTestImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("machine code"), 0o755); err != nil {
		t.Fatal(err)
	}
	i := image{
		refs:       []string{"example.org/a/program:v1", "localhost/program:test"},
		entrypoint: []string{"/bin/program"},
		user:       "65532",
		content:    []string{program + "=/bin/program", "/bin/alias->program", "tmp/", "var/lib/program/"},
	}
	target := filepath.Join(dir, "image.tar")
	if err := i.write(target); err != nil {
		t.Fatal(err)
	}
	return target
}

func TestImageIsAnOCILayout(t *testing.T) {
	content, err := os.ReadFile(writeTestImage(t))
	if err != nil {
		t.Fatal(err)
	}
	files, _, _ := readTar(t, content)
	blob := func(d string) []byte {
		text := []byte(files["blobs/sha256/"+strings.TrimPrefix(d, "sha256:")])
		if digest(text) != d {
			t.Fatalf("blob %s has another digest: %s", d, digest(text))
		}
		return text
	}
	type described struct {
		Digest      string
		Size        int
		Annotations map[string]string
	}
	var index struct{ Manifests []described }
	decode(t, []byte(files["index.json"]), &index)
	var names []string
	for _, m := range index.Manifests {
		names = append(names, m.Annotations["io.containerd.image.name"])
	}
	if want := []string{"example.org/a/program:v1", "localhost/program:test"}; !slices.Equal(names, want) {
		t.Errorf("names %v, want %v", names, want)
	}
	var manifest struct {
		Config described
		Layers []described
	}
	decode(t, blob(index.Manifests[0].Digest), &manifest)
	var config struct {
		Config struct {
			Entrypoint []string
			User       string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(t, blob(manifest.Config.Digest), &config)
	if config.Config.User != "65532" || !slices.Equal(config.Config.Entrypoint, []string{"/bin/program"}) {
		t.Errorf("config %+v", config.Config)
	}
	if len(manifest.Layers) != 1 || !slices.Equal(config.RootFS.DiffIDs, []string{manifest.Layers[0].Digest}) {
		t.Errorf("layers %v do not match diff ids %v", manifest.Layers, config.RootFS.DiffIDs)
	}

	layer, order, modes := readTar(t, blob(manifest.Layers[0].Digest))
	if layer["bin/program"] != "machine code" || modes["bin/program"] != 0o755 {
		t.Errorf("bin/program: %q, mode %o", layer["bin/program"], modes["bin/program"])
	}
	if layer["bin/alias"] != "-> program" {
		t.Errorf("bin/alias: %q", layer["bin/alias"])
	}
	if modes["tmp/"] != 0o1777 {
		t.Errorf("tmp/ has mode %o", modes["tmp/"])
	}
	if slices.Index(order, "var/") > slices.Index(order, "var/lib/") {
		t.Errorf("a folder comes before its parent: %v", order)
	}
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
}

func TestImageRepeats(t *testing.T) {
	first, err := os.ReadFile(writeTestImage(t))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(writeTestImage(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the same content gives two different images")
	}
}

func TestImageRefusesWhatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	for _, content := range []string{"nonsense", filepath.Join(dir, "absent") + "=/bin/absent"} {
		i := image{refs: []string{"localhost/x:y"}, content: []string{content}}
		if err := i.write(filepath.Join(dir, "image.tar")); err == nil {
			t.Errorf("%q was accepted", content)
		}
	}
	if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
		t.Errorf("a failed write leaves %v", left)
	}
}
