package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rhysd/actionlint"
	"sigs.k8s.io/yaml"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestRelease: what lies beside binaries is whole, and is the same again.
func TestRelease(t *testing.T) {
	made := func() map[string][]byte {
		t.Helper()
		dir := t.TempDir()
		var binaries []string
		for _, name := range []string{"quorate-linux-amd64", "quorate-snapshot-linux-amd64",
			"quorate-trim-linux-amd64", "quorate-windows-amd64.exe", licencesFile} {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, []byte("This is "+name), 0o700); err != nil {
				t.Fatal(err)
			}
			if name != licencesFile {
				binaries = append(binaries, file)
			}
		}
		if err := release("../../..", "v1.2.3", noon, binaries); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		names, _ := filepath.Glob(dir + "/*.*")
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files[filepath.Base(name)] = text
		}
		return files
	}
	first, again := made(), made()
	for name, text := range first {
		if !bytes.Equal(text, again[name]) {
			t.Errorf("%s is another one the second time", name)
		}
		if strings.Contains(name, "kubectl-quorate-snapshot") || strings.Contains(name, "kubectl-quorate-trim") {
			t.Errorf("%s: the plugin is another program", name)
		}
	}
	for archive, holds := range map[string][]string{
		"kubectl-quorate-linux-amd64.tar.gz":   {"kubectl-quorate", "LICENSE", licencesFile},
		"kubectl-quorate-windows-amd64.tar.gz": {"kubectl-quorate.exe", "LICENSE", licencesFile},
		"etcd-cluster-chart.tgz":               {"etcd-cluster/Chart.yaml", "etcd-cluster/README.md", "etcd-cluster/values.schema.json"},
		"quorate-chart.tgz": {"quorate/Chart.yaml", "quorate/README.md", "quorate/templates/_helpers.tpl",
			"quorate/values.schema.json"},
	} {
		got := names(t, first[archive])
		for _, name := range holds {
			if !slices.Contains(got, name) {
				t.Errorf("%s holds %v, and no %s", archive, got, name)
			}
		}
		if strings.HasPrefix(archive, "kubectl") && len(got) != len(holds) {
			t.Errorf("%s holds %v", archive, got)
		}
	}
	checkKrew(t, first)
}

// checkKrew holds the manifest against what krew asks of one, and against the archives.
func checkKrew(t *testing.T, files map[string][]byte) {
	t.Helper()
	var m struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				URI, Sha256, Bin string
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
			}
		}
	}
	if err := yaml.UnmarshalStrict(files[krewFile], &m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" ||
		m.Metadata.Name != "quorate" || m.Spec.Version != "v1.2.3" ||
		m.Spec.Description == "" || len(m.Spec.ShortDescription) > 60 || strings.HasSuffix(m.Spec.ShortDescription,
		".") {
		t.Errorf("%+v", m)
	}
	if len(m.Spec.Platforms) != 2 {
		t.Errorf("%d platforms", len(m.Spec.Platforms))
	}
	for _, p := range m.Spec.Platforms {
		name, found := strings.CutPrefix(p.URI, "https://github.com/quorate-dev/quorate/releases/download/v1.2.3/")
		if sum := fmt.Sprintf("%x", sha256.Sum256(files[name])); !found || files[name] == nil || sum != p.Sha256 {
			t.Errorf("%s is %s, and the archive %s", p.URI, p.Sha256, sum)
		}
		labels := p.Selector.MatchLabels
		if name != "kubectl-quorate-"+labels.OS+"-"+labels.Arch+".tar.gz" ||
			!slices.Contains(names(t, files[name]), p.Bin) {
			t.Errorf("%+v", p)
		}
	}
}

func names(t *testing.T, archive []byte) []string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if err != nil {
			return all
		}
		if !h.ModTime.Equal(noon) || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s: %+v", h.Name, h)
		}
		all = append(all, h.Name)
	}
}

// TestWorkflows: what runs at GitHub is of the form that GitHub takes, and runs nothing of others but at a commit
// that can't change.
func TestWorkflows(t *testing.T) {
	files, _ := filepath.Glob("../../../.github/workflows/*.yml")
	if len(files) < 2 {
		t.Fatalf("only %v", files)
	}
	linter, err := actionlint.NewLinter(os.Stderr, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := linter.LintFiles(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range wrong {
		t.Error(e)
	}
	pinned := regexp.MustCompile(`^[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)uses: (.*)$`).FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s is not pinned to a commit, with its version behind it", file, m[1])
			}
		}
	}
}
