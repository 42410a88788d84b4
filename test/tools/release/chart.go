package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// chartFile is the Helm chart as helm takes it.
const chartFile = "quorate-chart.tgz"

// chart packs a chart. helm package would do it too, but gives the files the time of the day.
func chart(folder string, created time.Time) ([]byte, error) {
	var files []packed
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error { // in lexical order
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		files = append(files, packed{"quorate/" + filepath.ToSlash(name), 0o644, content})
		return err
	})
	if err != nil {
		return nil, err
	}
	return pack(created, files)
}
