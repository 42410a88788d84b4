package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// labImage is an image that the build makes, kept as images/<file>.tar.
type labImage struct {
	file string
	image
	// optional images are loaded by the command that needs them, not by `up`.
	optional bool
}

func (l *lab) labImages() ([]labImage, error) {
	busybox, err := l.busyboxImage()
	if err != nil {
		return nil, err
	}
	metacontroller, err := l.chooseMetacontroller()
	if err != nil {
		return nil, err
	}
	return []labImage{
		{file: "pause", image: image{
			refs:       []string{"registry.k8s.io/pause:" + pauseVersion},
			entrypoint: []string{"/pause"},
			content:    []string{l.bin + "/pause=/pause"},
		}},
		busybox,
		l.metacontrollerImage(metacontroller),
		l.etcdImage(controlPlaneEtcd),
	}, nil
}

// etcdImage is laid out as the official one: three binaries and no shell.
func (l *lab) etcdImage(version string) labImage {
	dir := filepath.Join(l.bin, "etcd-"+version)
	return labImage{file: "etcd-" + version, image: image{
		refs: []string{"gcr.io/etcd-development/etcd:v" + version, "quay.io/coreos/etcd:v" + version},
		cmd:  []string{"/usr/local/bin/etcd"},
		content: []string{
			dir + "/etcd=/usr/local/bin/etcd", dir + "/etcdctl=/usr/local/bin/etcdctl",
			dir + "/etcdutl=/usr/local/bin/etcdutl",
			"var/etcd/", "var/lib/etcd/", "tmp/",
		},
	}}
}

func (l *lab) metacontrollerImage(m metacontroller) labImage {
	return labImage{file: "metacontroller-" + m.version, optional: true, image: image{
		refs:    []string{"ghcr.io/metacontroller/metacontroller:v" + m.version},
		cmd:     []string{"/usr/bin/metacontroller"},
		user:    "65532",
		content: []string{m.binary + "=/usr/bin/metacontroller", "tmp/"},
	}}
}

// busyboxImage serves the volume provisioner's helper pods, and tests.
func (l *lab) busyboxImage() (labImage, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return labImage{}, fmt.Errorf("busybox is not there: install busybox-static, or run `lab build`")
	}
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return labImage{}, fmt.Errorf("asking busybox for its commands: %w", err)
	}
	content := []string{busybox + "=/bin/busybox", "tmp/", "etc/", "root/", "var/"}
	for _, name := range strings.Fields(string(list)) {
		if name != "busybox" {
			content = append(content, "/bin/"+name+"->busybox")
		}
	}
	return labImage{file: "busybox", image: image{
		refs:    []string{"docker.io/library/busybox:latest", "docker.io/library/busybox:1.35"},
		cmd:     []string{"sh"},
		content: content,
	}}, nil
}

func (l *lab) tarOf(i labImage) string { return filepath.Join(l.images, i.file+".tar") }

func (l *lab) buildImages() error {
	images, err := l.labImages()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.images, 0o755); err != nil {
		return err
	}
	began, written := time.Now(), 0
	for _, i := range images {
		made, err := l.buildImage(i)
		if err != nil {
			return err
		}
		if made {
			written++
		}
	}
	if written == 0 {
		fmt.Printf("images: up to date (%d)\n", len(images))
	} else {
		fmt.Printf("images: wrote %d of %d in %.1f s\n", written, len(images), time.Since(began).Seconds())
	}
	return nil
}

// buildImage writes an image unless the one there was made of the same.
func (l *lab) buildImage(i labImage) (written bool, err error) {
	if l.imageUpToDate(i) {
		return false, nil
	}
	if _, err := i.write(l.tarOf(i)); err != nil {
		return false, err
	}
	return true, os.WriteFile(l.tarOf(i)+".stamp", []byte(i.inputs()), 0o644)
}

func (l *lab) imagesUpToDate() bool {
	images, err := l.labImages()
	if err != nil {
		return false
	}
	for _, i := range images {
		if !l.imageUpToDate(i) {
			return false
		}
	}
	return true
}

func (l *lab) imageUpToDate(i labImage) bool {
	stamp, err := os.ReadFile(l.tarOf(i) + ".stamp")
	if err != nil || string(stamp) != i.inputs() {
		return false
	}
	_, err = os.Stat(l.tarOf(i))
	return err == nil
}

// inputs describes all that an image is made of: its settings, and each file's
// size and time, which is enough to notice a new build of it.
func (i image) inputs() string {
	var text strings.Builder
	fmt.Fprintln(&text, i.refs, i.entrypoint, i.cmd, i.env, i.user, layerType)
	for _, entry := range i.content {
		fmt.Fprint(&text, entry)
		if source, _, ok := strings.Cut(entry, "="); ok {
			if info, err := os.Stat(source); err == nil {
				fmt.Fprint(&text, " ", info.Size(), " ", info.ModTime().UnixNano())
			}
		}
		fmt.Fprintln(&text)
	}
	return text.String()
}
