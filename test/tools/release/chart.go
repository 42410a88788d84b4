package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// trees are folders of manifests in their files: the Helm charts, Quorate's and that of one cluster, and all the
// others, which are kustomizations.
var trees = []struct {
	name, folder, file string
	without            []string
}{
	{"quorate", "manifests/chart", "quorate-chart.tgz", nil},
	{"etcd-cluster", "manifests/cluster-chart", "etcd-cluster-chart.tgz", nil},
	{"quorate-manifests", "manifests", "quorate-manifests.tar.gz", []string{"chart", "cluster-chart", "manifests.go"}},
}

// digestFile has the digest by which every registry knows the image. It is beside the binaries already.
const digestFile = "quorate-image.digest"

// pins are the lines of the files behind which the digest belongs: the image is then the one of this release, whatever
// its tag comes to mean.
var pins = map[string]*regexp.Regexp{
	"quorate/Chart.yaml":                     regexp.MustCompile(`(?m)^(  quorate\.dev/image-digest: )"".*$`),
	"quorate-manifests/base/deployment.yaml": regexp.MustCompile(`(?m)^( *image: ghcr\.io/quorate-dev/quorate:\S+)$`),
}

// pinned is such a file with the digest.
func pinned(name string, content []byte, digest string) ([]byte, error) {
	line := pins[name]
	if line == nil {
		return content, nil
	}
	if n := len(line.FindAll(content, -1)); n != 1 {
		return nil, fmt.Errorf("%s has %d places for the digest of the image (%s), not one", name, n, line)
	}
	if name == "quorate-manifests/base/deployment.yaml" {
		digest = "@" + digest
	}
	return line.ReplaceAll(content, []byte("${1}"+digest)), nil
}

// tree packs a folder. helm package would do it too, but gives the files the time of the day.
func tree(name, folder string, without []string, digest string, created time.Time) ([]byte, error) {
	var files []packed
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error { // in lexical order
		if err != nil {
			return err
		}
		within, err := filepath.Rel(folder, path)
		if slices.Contains(without, within) && entry.IsDir() {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || slices.Contains(without, within) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file := name + "/" + filepath.ToSlash(within)
		content, err = pinned(file, content, digest)
		files = append(files, packed{file, 0o644, content})
		return err
	})
	if err != nil {
		return nil, err
	}
	return pack(created, files)
}

// imageDigest reads digestFile.
func imageDigest(folder string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, digestFile))
	digest := strings.TrimSpace(string(text))
	if err == nil && !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(digest) {
		err = errors.New(digestFile + " has no digest: " + digest)
	}
	return digest, err
}
