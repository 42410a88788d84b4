package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"
)

// image is a container image of one layer, to be written as an OCI layout in a
// tar, which every runtime imports: no registry and no Docker is needed.
type image struct {
	refs       []string // full names
	entrypoint []string
	cmd        []string
	env        []string
	user       string
	// content holds SRC=DST (a file, its executable bit kept), DST/ (an empty
	// folder) and LINK->TARGET (a symbolic link).
	content []string
}

const imageUsage = `usage: lab image -o TAR -ref NAME [-ref NAME] [-entrypoint WORD]... [-cmd WORD]...
                 [-env K=V]... [-user USER] SRC=DST | DST/ | LINK->TARGET ...`

// The epoch: the same content gives the same image, byte for byte.
var imageTime = time.Unix(0, 0).UTC()

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	// Not compressed: the tar is imported on the machine it was made on, and
	// packing and unpacking would cost more than the disk does.
	layerType = "application/vnd.oci.image.layer.v1.tar"
)

func imageCommand(_ *lab, args []string) error {
	var i image
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	out := flags.String("o", "", "")
	flags.Var((*words)(&i.refs), "ref", "")
	flags.Var((*words)(&i.entrypoint), "entrypoint", "")
	flags.Var((*words)(&i.cmd), "cmd", "")
	flags.Var((*words)(&i.env), "env", "")
	flags.StringVar(&i.user, "user", "", "")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w\n%s", err, imageUsage)
	}
	i.content = flags.Args()
	if *out == "" || len(i.refs) == 0 || len(i.content) == 0 {
		return errors.New(imageUsage)
	}
	return i.write(*out)
}

// words is a flag that may be given many times.
type words []string

func (w *words) String() string     { return strings.Join(*w, " ") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

// write replaces the tar at once, so that no half of it is ever imported.
func (i image) write(target string) error {
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("image %s: %w", i.refs[0], err)
	}
	config := encode(i.config(layer))
	manifest := encode(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": descriptor(configType, config),
		"layers": []any{descriptor(layerType, layer)},
	})
	fresh, err := os.CreateTemp(filepath.Dir(target), ".image-")
	if err != nil {
		return fmt.Errorf("image %s: %w", i.refs[0], err)
	}
	defer os.Remove(fresh.Name())
	defer fresh.Close()
	if err := writeLayout(fresh, encode(i.index(manifest)), manifest, config, layer); err != nil {
		return fmt.Errorf("image %s: %w", i.refs[0], err)
	}
	if err := os.Chmod(fresh.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(fresh.Name(), target)
}

func (i image) config(layer []byte) map[string]any {
	config := map[string]any{"Env": i.env}
	if len(i.env) == 0 {
		config["Env"] = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
	}
	if len(i.entrypoint) > 0 {
		config["Entrypoint"] = i.entrypoint
	}
	if len(i.cmd) > 0 {
		config["Cmd"] = i.cmd
	}
	if i.user != "" {
		config["User"] = i.user
	}
	return map[string]any{
		"os": "linux", "architecture": runtime.GOARCH,
		"created": imageTime.Format(time.RFC3339),
		"config":  config,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
		"history": []any{map[string]any{"created": imageTime.Format(time.RFC3339), "created_by": "quorate lab image"}},
	}
}

// index names the one manifest once for each of the image's names.
func (i image) index(manifest []byte) map[string]any {
	var manifests []any
	for _, ref := range i.refs {
		d := descriptor(manifestType, manifest)
		d["platform"] = map[string]string{"os": "linux", "architecture": runtime.GOARCH}
		d["annotations"] = map[string]string{
			"io.containerd.image.name":          ref,
			"org.opencontainers.image.ref.name": ref[strings.LastIndex(ref, ":")+1:],
		}
		manifests = append(manifests, d)
	}
	return map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": manifests}
}

func writeLayout(to io.Writer, index []byte, blobs ...[]byte) error {
	w := tar.NewWriter(to)
	put := func(name string, content []byte) error {
		header := tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: imageTime}
		if err := w.WriteHeader(&header); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	if err := put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := put("index.json", index); err != nil {
		return err
	}
	for _, blob := range blobs {
		if err := put("blobs/sha256/"+strings.TrimPrefix(digest(blob), "sha256:"), blob); err != nil {
			return err
		}
	}
	return w.Close()
}

// layer is the image's file system as a tar.
func (i image) layer() ([]byte, error) {
	content := append([]string{}, i.content...)
	// Folders first: a folder made on the way to a file has the usual mode.
	sort.SliceStable(content, func(a, b int) bool {
		return strings.HasSuffix(content[a], "/") && !strings.HasSuffix(content[b], "/")
	})
	var buffer bytes.Buffer
	l := layerWriter{tar: tar.NewWriter(&buffer), folders: map[string]bool{}}
	for _, entry := range content {
		if err := l.add(entry); err != nil {
			return nil, err
		}
	}
	if err := l.tar.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

type layerWriter struct {
	tar     *tar.Writer
	folders map[string]bool
}

func (l layerWriter) add(entry string) error {
	if strings.HasSuffix(entry, "/") {
		return l.folder(entry)
	}
	if link, target, ok := strings.Cut(entry, "->"); ok {
		return l.link(link, target)
	}
	if source, destination, ok := strings.Cut(entry, "="); ok {
		return l.file(source, destination)
	}
	return fmt.Errorf("cannot understand %q: want SRC=DST, DST/ or LINK->TARGET", entry)
}

func (l layerWriter) folder(name string) error {
	name = strings.Trim(path.Clean(name), "/")
	if name == "" || name == "." || l.folders[name] {
		return nil
	}
	if err := l.folder(path.Dir(name)); err != nil {
		return err
	}
	l.folders[name] = true
	mode := int64(0o755)
	if name == "tmp" {
		mode = 0o1777
	}
	return l.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, ModTime: imageTime})
}

func (l layerWriter) link(name, target string) error {
	if err := l.folder(path.Dir(name)); err != nil {
		return err
	}
	return l.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeSymlink, Name: strings.Trim(name, "/"), Linkname: target, Mode: 0o777, ModTime: imageTime,
	})
}

func (l layerWriter) file(source, destination string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	if err := l.folder(path.Dir(destination)); err != nil {
		return err
	}
	header := tar.Header{Typeflag: tar.TypeReg, Name: strings.Trim(destination, "/"), Mode: mode, Size: int64(len(content)), ModTime: imageTime}
	if err := l.tar.WriteHeader(&header); err != nil {
		return err
	}
	_, err = l.tar.Write(content)
	return err
}

func descriptor(mediaType string, content []byte) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": digest(content), "size": len(content)}
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// encode cannot fail: only strings, numbers, lists and maps are given to it.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
