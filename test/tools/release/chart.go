package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// charts are Quorate's, and that of one cluster, in their files as helm takes them.
var charts = []struct{ name, folder, file string }{
	{"quorate", "manifests/chart", "quorate-chart.tgz"},
	{"etcd-cluster", "manifests/cluster-chart", "etcd-cluster-chart.tgz"},
}

// chart packs a chart. helm package would do it too, but gives the files the time of the day.
func chart(name, folder string, created time.Time) ([]byte, error) {
	var files []packed
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error { // in lexical order
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		within, err := filepath.Rel(folder, path)
		files = append(files, packed{name + "/" + filepath.ToSlash(within), 0o644, content})
		return err
	})
	if err != nil {
		return nil, err
	}
	return pack(created, files)
}
