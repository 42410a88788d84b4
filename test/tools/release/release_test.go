package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rhysd/actionlint"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// pin is the digest of an image.
var pin = "sha256:" + strings.Repeat("0123456789abcdef", 4)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestRelease: what lies beside binaries is whole, and is the same again.
func TestRelease(t *testing.T) {
	program := program(t)
	made := func() map[string][]byte {
		t.Helper()
		dir := t.TempDir()
		put := func(name string, content []byte) string {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, content, 0o700); err != nil {
				t.Fatal(err)
			}
			return file
		}
		var binaries []string
		for _, name := range []string{"quorate-linux-amd64", "quorate-snapshot-linux-amd64",
			"quorate-trim-linux-amd64", "quorate-windows-amd64.exe"} {
			binaries = append(binaries, put(name, program))
		}
		put(licencesFile, []byte("licences"))
		put(digestFile, []byte(pin+"\n"))
		if err := release("../../..", build{version: "v1.2.3"}, noon, binaries); err != nil {
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
		"quorate-manifests.tar.gz": {"quorate-manifests/default/kustomization.yaml",
			"quorate-manifests/samples/etcdcluster.yaml"},
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
	checkChart(t, first["quorate-chart.tgz"])
	checkKustomizations(t, first["quorate-manifests.tar.gz"])
	var s statement
	if err := json.Unmarshal(first[provenanceFile], &s); err != nil {
		t.Fatal(err)
	}
	for _, file := range s.Subject {
		if text := first[file.Name]; text != nil && file.Digest["sha256"] != fmt.Sprintf("%x", sha256.Sum256(text)) {
			t.Errorf("%s is not the one of %+v", file.Name, file)
		}
	}
	if n := len(first) + 3 - 1; len(s.Subject) != n { // and the programs of linux, whose names have no dot; not itself
		t.Errorf("%d files have a provenance, and not %d: %+v", len(s.Subject), n, s.Subject)
	}
}

// program is one, so small that it is packed at once.
func program(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/main.go", []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", dir+"/program", dir+"/main.go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(dir + "/program")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// unpack puts an archive into a folder.
func unpack(t *testing.T, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	command := exec.Command("tar", "-xz", "-C", dir)
	command.Stdin = bytes.NewReader(archive)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// images are those of Quorate in rendered objects.
func images(text string) []string {
	var all []string
	line := regexp.MustCompile(`(?m)^ *(?:image|value): (\S+/(?:quorate|mine)[:@]\S+)$`)
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// checkChart: the chart installs the image of its release by its digest, from another registry too, and another image
// if the user has one.
func checkChart(t *testing.T, archive []byte) {
	t.Helper()
	dir, other := unpack(t, archive), "sha256:"+strings.Repeat("9", 64)
	for set, want := range map[string]string{
		"name=":                              "ghcr.io/quorate-dev/quorate:v0.1.0@" + pin,
		"registry=r.example":                 "r.example/quorate-dev/quorate:v0.1.0@" + pin,
		"image.repository=r.example/mine":    "r.example/mine:v0.1.0",
		"image.tag=v9":                       "ghcr.io/quorate-dev/quorate:v9",
		"image.digest=" + other:              "ghcr.io/quorate-dev/quorate@" + other,
		"image.tag=v9,image.digest=" + other: "ghcr.io/quorate-dev/quorate:v9@" + other,
	} {
		out, err := exec.Command("../../../bin/helm", "template", "quorate", dir+"/quorate", "--kube-version=1.36",
			"--set", set).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := images(string(out)); !slices.Equal(got, []string{want, want}) {
			t.Errorf("--set %s installs %v, not %s twice: as the server, and for the members", set, got, want)
		}
	}
}

// checkKustomizations: they install the image by its digest, and all that they name is there.
func checkKustomizations(t *testing.T, archive []byte) {
	t.Helper()
	dir, want := unpack(t, archive), "ghcr.io/quorate-dev/quorate:v0.1.0@"+pin
	for folder, n := range map[string]int{"default": 2, "without-metacontroller": 2, "crds": 0, "monitoring": 0} {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
			filepath.Join(dir, "quorate-manifests", folder))
		if err != nil {
			t.Fatal(err)
		}
		text, err := built.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		if got := images(string(text)); !slices.Equal(got, slices.Repeat([]string{want}, n)) {
			t.Errorf("%s installs %v, not %s in %d places", folder, got, want, n)
		}
	}
}

// TestNoPlaceForTheDigest: a file that came to look otherwise is no release without its digest.
func TestNoPlaceForTheDigest(t *testing.T) {
	for name := range pins {
		if _, err := pinned(name, []byte("kind: Deployment\n"), pin); err == nil {
			t.Errorf("%s has no place for the digest, and that was not noticed", name)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, digestFile), []byte("sha256:0123\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if digest, err := imageDigest(dir); err == nil {
		t.Errorf("%s is a digest", digest)
	}
}

// statement is a provenance as its readers read it.
type statement struct {
	Type          string `json:"_type"`
	PredicateType string
	Subject       []resource
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string
			ExternalParameters   map[string]string
			ResolvedDependencies []resource
		}
		RunDetails struct{ Builder struct{ ID string } }
	}
}

// TestProvenance: it names the files, the commit, the words, and each module with the sum of go.sum.
func TestProvenance(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	commit := strings.Repeat("ab", 20)
	text, err := provenance(dir, build{"v1.2.3", commit, "make release VERSION=v1.2.3"}, []string{own, own})
	if err != nil {
		t.Fatal(err)
	}
	var s statement
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	b := s.Predicate.BuildDefinition
	for got, want := range map[string]string{
		s.Type: statementType, s.PredicateType: predicateType, b.BuildType: buildType,
		s.Predicate.RunDetails.Builder.ID: builder, b.ExternalParameters["command"]: "make release VERSION=v1.2.3",
	} {
		if got != want {
			t.Errorf("%q is not %q", got, want)
		}
	}
	want := []resource{{Name: "a", Digest: map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256([]byte("a")))}}}
	if !reflect.DeepEqual(s.Subject, want) {
		t.Errorf("the files are %+v", s.Subject)
	}
	if from := b.ResolvedDependencies[0]; from.Digest["gitCommit"] != commit {
		t.Errorf("the source is %+v", from)
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, m := range b.ResolvedDependencies[1:] {
		path, version, _ := strings.Cut(strings.TrimPrefix(m.URI, "pkg:golang/"), "@")
		if path == "std" {
			continue
		}
		read++
		hash, err := hex.DecodeString(m.Digest["dirHash"])
		line := path + " " + strings.ReplaceAll(version, "%2B", "+") + " h1:" + base64.StdEncoding.EncodeToString(hash) + "\n"
		if err != nil || !strings.Contains(string(sums), line) {
			t.Errorf("go.sum has no %s", line)
		}
	}
	if read < 2 {
		t.Errorf("only %d modules: %+v", read, b.ResolvedDependencies)
	}
	if _, err := provenance(dir, build{}, []string{filepath.Join(dir, "a")}); err == nil {
		t.Error("what is no program has a provenance")
	}
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
