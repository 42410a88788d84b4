package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestEveryLinkedModuleHasALicence that is known and suits, on every system that there is a binary for.
func TestEveryLinkedModuleHasALicence(t *testing.T) {
	linked := map[string]*module{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		list := exec.Command("go", "list", "-deps", "-tags", "disable_grpc_modules,grpcnotrace,nomsgpack", "-f",
			"{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}{{end}}{{end}}", ".", "./etcdops/quorate-snapshot")
		list.Dir = "../../.."
		list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0", "GOWORK=off")
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(string(out)) {
			path, version, _ := strings.Cut(name, "@")
			linked[name] = &module{Path: path, Version: version}
		}
	}
	if len(linked) < 50 {
		t.Fatalf("only %d modules", len(linked))
	}
	if err := readLicences("../../..", linked); err != nil {
		t.Fatal(err)
	}
	text := string(listed(linked))
	for name, m := range linked {
		if !strings.Contains(text, name+": "+strings.Join(m.ids(), ", ")+"\n") {
			t.Errorf("%s is not listed", name)
		}
	}
	t.Logf("%d modules, %d bytes", len(linked), len(text))
}

func TestIdentify(t *testing.T) {
	apache, err := os.ReadFile("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := identify(apache); err != nil || !slices.Equal(ids, []string{"Apache-2.0"}) {
		t.Errorf("%v, %v", ids, err)
	}
	if ids, err := identify([]byte("You may do what you like.")); err == nil {
		t.Errorf("no licence at all is %v", ids)
	}
}

// TestRelease: what lies beside a binary, here this very test's, is whole, says what the binary says, and is the same
// again.
func TestRelease(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	made := func() map[string][]byte {
		t.Helper()
		dir := t.TempDir()
		var binaries []string
		for _, name := range []string{"quorate-linux-amd64", "quorate-snapshot-linux-amd64",
			"quorate-windows-amd64.exe"} {
			binaries = append(binaries, filepath.Join(dir, name))
			if err := os.WriteFile(binaries[len(binaries)-1], content, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		// Its modules are those of the tools' go.sum; its LICENSE is ours.
		tools := filepath.Join(dir, "tools")
		for from, to := range map[string]string{"../go.mod": "go.mod", "../go.sum": "go.sum",
			"../../../LICENSE": "LICENSE"} {
			text, err := os.ReadFile(from)
			if err == nil {
				if err = os.MkdirAll(tools, 0o700); err == nil {
					err = os.WriteFile(filepath.Join(tools, to), text, 0o600)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range charts {
			if err := os.CopyFS(filepath.Join(tools, c.folder), os.DirFS("../../../"+c.folder)); err != nil {
				t.Fatal(err)
			}
		}
		if err := release(tools, "v1.2.3", noon, binaries); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		names, _ := filepath.Glob(dir + "/*.*")
		for _, name := range names {
			if files[filepath.Base(name)], err = os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
		return files
	}
	first, again := made(), made()
	for name, text := range first {
		if !bytes.Equal(text, again[name]) {
			t.Errorf("%s is another one the second time", name)
		}
	}
	for archive, plugin := range map[string]string{"kubectl-quorate-linux-amd64.tar.gz": "kubectl-quorate",
		"kubectl-quorate-windows-amd64.tar.gz": "kubectl-quorate.exe"} {
		if got := names(t, first[archive]); !slices.Equal(got, []string{plugin, "LICENSE", licencesFile}) {
			t.Errorf("%s holds %v", archive, got)
		}
	}
	if got := names(t, first["etcd-cluster-chart.tgz"]); !slices.Contains(got, "etcd-cluster/Chart.yaml") ||
		!slices.Contains(got, "etcd-cluster/values.schema.json") {
		t.Errorf("the chart of one cluster holds %v", got)
	}
	if got := names(t, first["quorate-chart.tgz"]); !slices.Contains(got, "quorate/Chart.yaml") ||
		!slices.Contains(got, "quorate/templates/_helpers.tpl") || !slices.Contains(got, "quorate/values.schema.json") {
		t.Errorf("the chart holds %v", got)
	}
	checkSPDX(t, first["quorate-linux-amd64.spdx.json"], content)
	checkSPDX(t, first["quorate-snapshot-linux-amd64.spdx.json"], content)
	for name := range first {
		if strings.Contains(name, "kubectl-quorate-snapshot") {
			t.Errorf("%s: the plugin is the other program", name)
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

// checkSPDX holds a document against what SPDX 2.3 asks of one, and against the binary.
func checkSPDX(t *testing.T, text, binary []byte) {
	t.Helper()
	var d spdxDocument
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if d.Version != "SPDX-2.3" || d.License != "CC0-1.0" || d.ID != "SPDXRef-DOCUMENT" ||
		d.Creation.Created != "2026-03-01T12:00:00Z" {
		t.Errorf("%+v", d)
	}
	ids := map[string]bool{d.ID: true}
	id, purl := regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`), regexp.MustCompile(`^pkg:golang/[^@\s]+@[^@\s]+$`)
	for _, p := range d.Packages {
		if !id.MatchString(p.ID) || ids[p.ID] || !purl.MatchString(p.Refs[0].Locator) || p.Concluded == "" ||
			p.Version == "" || p.Download == "" {
			t.Errorf("package %+v", p)
		}
		ids[p.ID] = true
	}
	for _, r := range d.Relationships {
		if !ids[r.Of] || !ids[r.To] {
			t.Errorf("relationship %+v", r)
		}
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	// and the binary itself, and Go's library
	if want := len(info.Deps) + 2; len(d.Packages) != want || len(d.Relationships) != want {
		t.Errorf("%d packages and %d relationships, not %d", len(d.Packages), len(d.Relationships), want)
	}
}
