package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
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
	// labels are those of the image, and annotations of its manifests.
	labels map[string]string
	// archs are the architectures of an image for several; empty for one image
	// of this machine's.
	archs []string
	// gzip packs the layers, for a registry.
	gzip bool
	// created is the time of the image and of its files. The same content and
	// time give the same image, byte for byte.
	created time.Time
	// content holds SRC=DST (a file, its executable bit kept; ARCH in SRC is
	// the architecture), DST/ (an empty folder) and LINK->TARGET (a symbolic
	// link).
	content []string
}

const imageUsage = `usage: lab image -o TAR -ref NAME [-ref NAME] [-entrypoint WORD]... [-cmd WORD]...
                 [-env K=V]... [-user USER] [-label K=V]... [-created SECONDS] [-gzip]
                 [-arch ARCH]... SRC=DST | DST/ | LINK->TARGET ...`

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	// Not compressed, except for a registry: the tar is imported on the machine it
	// was made on, and packing and unpacking would cost more than the disk does.
	layerType = "application/vnd.oci.image.layer.v1.tar"
)

func imageCommand(_ *lab, args []string) error {
	i, out, err := readImage(args)
	if err != nil {
		return err
	}
	id, err := i.write(out)
	if err == nil {
		fmt.Println(id)
	}
	return err
}

// readImage reads the command's flags.
func readImage(args []string) (i image, out string, err error) {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&out, "o", "", "")
	flags.Var((*words)(&i.refs), "ref", "")
	flags.Var((*words)(&i.entrypoint), "entrypoint", "")
	flags.Var((*words)(&i.cmd), "cmd", "")
	flags.Var((*words)(&i.env), "env", "")
	flags.StringVar(&i.user, "user", "", "")
	i.labels = map[string]string{}
	flags.Func("label", "", func(s string) error {
		key, value, ok := strings.Cut(s, "=")
		if i.labels[key] = value; !ok {
			return errors.New("want K=V")
		}
		return nil
	})
	flags.Var((*words)(&i.archs), "arch", "")
	flags.BoolVar(&i.gzip, "gzip", false, "")
	seconds := flags.Int64("created", 0, "")
	if err := flags.Parse(args); err != nil {
		return i, "", fmt.Errorf("%w\n%s", err, imageUsage)
	}
	i.created, i.content = time.Unix(*seconds, 0), flags.Args()
	if out == "" || len(i.refs) == 0 || len(i.content) == 0 {
		return i, "", errors.New(imageUsage)
	}
	return i, out, nil
}

// words is a flag that may be given many times.
type words []string

func (w *words) String() string     { return strings.Join(*w, " ") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

// time is that of the image and of all its files; the epoch if none is given.
func (i image) time() time.Time {
	if i.created.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return i.created.UTC()
}

// write replaces the tar at once, so that no half of it is ever imported. It
// returns the digest by which a registry knows the image.
func (i image) write(target string) (string, error) {
	top, blobs, err := i.build()
	if err != nil {
		return "", fmt.Errorf("image %s: %w", i.refs[0], err)
	}
	fresh, err := os.CreateTemp(filepath.Dir(target), ".image-")
	if err != nil {
		return "", fmt.Errorf("image %s: %w", i.refs[0], err)
	}
	defer os.Remove(fresh.Name())
	defer fresh.Close()
	if err := i.writeLayout(fresh, encode(i.index(top)), blobs...); err != nil {
		return "", fmt.Errorf("image %s: %w", i.refs[0], err)
	}
	if err := os.Chmod(fresh.Name(), 0o644); err != nil {
		return "", err
	}
	return top["digest"].(string), os.Rename(fresh.Name(), target)
}

// build makes the blobs, and the descriptor of the one that leads to all: the
// manifest, or with several architectures the index of manifests.
func (i image) build() (top map[string]any, blobs [][]byte, err error) {
	archs := i.archs
	if len(archs) == 0 {
		archs = []string{runtime.GOARCH}
	}
	var manifests []any
	for _, arch := range archs {
		layer, err := i.layer(arch)
		if err != nil {
			return nil, nil, err
		}
		config := encode(i.config(arch, layer))
		stored := descriptor(layerType, layer)
		if i.gzip {
			layer = packed(layer)
			stored = descriptor(layerType+"+gzip", layer)
		}
		manifest := encode(i.annotated(map[string]any{
			"schemaVersion": 2, "mediaType": manifestType, "config": descriptor(configType, config),
			"layers": []any{stored},
		}))
		top = descriptor(manifestType, manifest)
		top["platform"] = map[string]string{"os": "linux", "architecture": arch}
		manifests, blobs = append(manifests, top), append(blobs, manifest, config, layer)
	}
	if len(i.archs) > 0 {
		index := encode(i.annotated(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": manifests}))
		top, blobs = descriptor(indexType, index), append(blobs, index)
	}
	return top, blobs, nil
}

// annotated adds the image's labels to a manifest.
func (i image) annotated(manifest map[string]any) map[string]any {
	if len(i.labels) > 0 {
		manifest["annotations"] = i.labels
	}
	return manifest
}

// packed is compressed without name and time. Another release of Go may pack
// otherwise, as it may compile otherwise.
func packed(layer []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(layer) // to memory, which takes all
	w.Close()
	return b.Bytes()
}

func (i image) config(arch string, layer []byte) map[string]any {
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
	if len(i.labels) > 0 {
		config["Labels"] = i.labels
	}
	created := i.time().Format(time.RFC3339)
	return map[string]any{
		"os": "linux", "architecture": arch,
		"created": created,
		"config":  config,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
		"history": []any{map[string]any{"created": created, "created_by": "quorate lab image"}},
	}
}

// index names what leads to all once for each of the image's names.
func (i image) index(top map[string]any) map[string]any {
	var manifests []any
	for _, ref := range i.refs {
		d := maps.Clone(top)
		d["annotations"] = map[string]string{
			"io.containerd.image.name":          ref,
			"org.opencontainers.image.ref.name": ref[strings.LastIndex(ref, ":")+1:],
		}
		manifests = append(manifests, d)
	}
	return map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": manifests}
}

func (i image) writeLayout(to io.Writer, index []byte, blobs ...[]byte) error {
	w := tar.NewWriter(to)
	written := map[string]bool{}
	put := func(name string, content []byte) error {
		if written[name] { // architectures may share a layer
			return nil
		}
		written[name] = true
		header := tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: i.time()}
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

// layer is the image's file system for this architecture, as a tar.
func (i image) layer(arch string) ([]byte, error) {
	content := append([]string{}, i.content...)
	// Folders first: a folder made on the way to a file has the usual mode.
	sort.SliceStable(content, func(a, b int) bool {
		return strings.HasSuffix(content[a], "/") && !strings.HasSuffix(content[b], "/")
	})
	var buffer bytes.Buffer
	l := layerWriter{tar: tar.NewWriter(&buffer), folders: map[string]bool{}, time: i.time()}
	for _, entry := range content {
		if source, destination, ok := strings.Cut(entry, "="); ok && len(i.archs) > 0 {
			entry = strings.ReplaceAll(source, "ARCH", arch) + "=" + destination
		}
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
	time    time.Time
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
	return l.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, ModTime: l.time})
}

func (l layerWriter) link(name, target string) error {
	if err := l.folder(path.Dir(name)); err != nil {
		return err
	}
	return l.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeSymlink, Name: strings.Trim(name, "/"), Linkname: target, Mode: 0o777, ModTime: l.time,
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
	header := tar.Header{Typeflag: tar.TypeReg, Name: strings.Trim(destination, "/"), Mode: mode,
		Size: int64(len(content)), ModTime: l.time}
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
