package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
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
		must(t, err)
		text, err := io.ReadAll(r)
		must(t, err)
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
	must(t, os.WriteFile(program, []byte("machine code"), 0o755))
	i := image{
		refs:       []string{"example.org/a/program:v1", "localhost/program:test"},
		entrypoint: []string{"/bin/program"},
		user:       "65532",
		content:    []string{program + "=/bin/program", "/bin/alias->program", "tmp/", "var/lib/program/"},
	}
	target := filepath.Join(dir, "image.tar")
	if _, err := i.write(target); err != nil {
		t.Fatal(err)
	}
	return target
}

// described is what leads to a blob.
type described struct {
	Digest, MediaType string
	Annotations       map[string]string
	Platform          struct{ OS, Architecture string }
}

type ociManifest struct {
	Config      described
	Layers      []described
	Annotations map[string]string
}

type ociConfig struct {
	Created      time.Time
	Architecture string
	Config       struct {
		Entrypoint []string
		User       string
		Labels     map[string]string
	}
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// blobOf is a blob of a layout, which has the digest by which it is stored.
func blobOf(t *testing.T, files map[string]string, d string) []byte {
	t.Helper()
	text := []byte(files["blobs/sha256/"+strings.TrimPrefix(d, "sha256:")])
	if digest(text) != d {
		t.Fatalf("blob %s has another digest: %s", d, digest(text))
	}
	return text
}

func manifestOf(t *testing.T, files map[string]string, d string) (manifest ociManifest, config ociConfig) {
	t.Helper()
	decode(t, blobOf(t, files, d), &manifest)
	decode(t, blobOf(t, files, manifest.Config.Digest), &config)
	return manifest, config
}

func TestImageIsAnOCILayout(t *testing.T) {
	content, err := os.ReadFile(writeTestImage(t))
	must(t, err)
	files, _, _ := readTar(t, content)
	blob := func(d string) []byte { return blobOf(t, files, d) }
	var index struct{ Manifests []described }
	decode(t, []byte(files["index.json"]), &index)
	var names []string
	for _, m := range index.Manifests {
		names = append(names, m.Annotations["io.containerd.image.name"])
	}
	if want := []string{"example.org/a/program:v1", "localhost/program:test"}; !slices.Equal(names, want) {
		t.Errorf("names %v, want %v", names, want)
	}
	manifest, config := manifestOf(t, files, index.Manifests[0].Digest)
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

// TestReleaseImageRepeats: an image for several architectures is the same, no matter who makes it, where and when.
func TestReleaseImageRepeats(t *testing.T) {
	made := func(mode os.FileMode, changed time.Time) (id string, content []byte) {
		t.Helper()
		dir := t.TempDir()
		for _, arch := range []string{"amd64", "arm64"} {
			file := filepath.Join(dir, "program-"+arch)
			must(t, errors.Join(os.WriteFile(file, []byte("machine code for "+arch), 0o600), os.Chmod(file, mode),
				os.Chtimes(file, changed, changed)))
		}
		target := filepath.Join(dir, "image.tar")
		i, out, err := readImage([]string{"-o", target, "-ref", "example.org/a/program:v1", "-arch", "amd64", "-arch",
			"arm64", "-gzip", "-created", "1700000000",
			"-label", "org.opencontainers.image.title=A program", dir + "/program-ARCH=/program"})
		must(t, err)
		if id, err = i.write(out); err != nil {
			t.Fatal(err)
		}
		if content, err = os.ReadFile(target); err != nil {
			t.Fatal(err)
		}
		return id, content
	}
	id, first := made(0o755, time.Now())
	again, second := made(0o700, time.Unix(1, 0))
	if id != again || !bytes.Equal(first, second) {
		t.Errorf("the same content gives %s and %s", id, again)
	}

	files, _, _ := readTar(t, first)
	blob := func(d string) []byte { return blobOf(t, files, d) }
	var layout, index struct {
		Manifests   []described
		Annotations map[string]string
	}
	decode(t, []byte(files["index.json"]), &layout)
	if len(layout.Manifests) != 1 || layout.Manifests[0].Digest != id || layout.Manifests[0].MediaType != indexType {
		t.Fatalf("index.json leads to %+v, not to the index %s", layout.Manifests, id)
	}
	decode(t, blob(id), &index)
	var archs []string
	for _, m := range index.Manifests {
		archs = append(archs, m.Platform.OS+"/"+m.Platform.Architecture)
		manifest, config := manifestOf(t, files, m.Digest)
		unpack, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0].Digest)))
		must(t, err)
		layer, err := io.ReadAll(unpack)
		must(t, err)
		content, _, _ := readTar(t, layer)
		if content["program"] != "machine code for "+m.Platform.Architecture ||
			config.Architecture != m.Platform.Architecture || digest(layer) != config.RootFS.DiffIDs[0] {
			t.Errorf("%s: layer %q, config %+v", m.Platform.Architecture, content, config)
		}
		if config.Created.Unix() != 1700000000 {
			t.Errorf("created %s", config.Created)
		}
		for _, labels := range []map[string]string{config.Config.Labels, manifest.Annotations, index.Annotations} {
			if labels["org.opencontainers.image.title"] != "A program" {
				t.Errorf("labels %v", labels)
			}
		}
	}
	if !slices.Equal(archs, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("platforms %v", archs)
	}
}

// TestDockerfileAgrees: docker build and `make image` make an image with the same labels, user and command.
func TestDockerfileAgrees(t *testing.T) {
	dry := exec.Command("make", "-C", "../../..", "-n", "image", "VERSION=v1.2.3", "COMMIT=0123abc")
	// of a make that runs this
	dry.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
	out, err := dry.Output()
	must(t, err)
	_, line, found := strings.Cut(strings.ReplaceAll(string(out), "\\\n", " "), "bin/lab image ")
	if !found {
		t.Fatalf("make image does not call lab image:\n%s", out)
	}
	line, _, _ = strings.Cut(line, "\n")
	split, err := exec.Command("bash", "-c", "printf '%s\\n' "+line).Output() // as the shell reads it
	must(t, err)
	made, _, err := readImage(strings.Split(strings.TrimSuffix(string(split), "\n"), "\n"))
	must(t, err)
	docker := readDockerfile(t, "../../../Dockerfile", map[string]string{"VERSION": "v1.2.3", "COMMIT": "0123abc"})
	if !maps.Equal(made.labels, docker.labels) {
		t.Errorf("make image has the labels %v, the Dockerfile %v", made.labels, docker.labels)
	}
	if made.user != docker.user || !slices.Equal(made.entrypoint, docker.entrypoint) ||
		!slices.Equal(made.cmd, docker.cmd) {
		t.Errorf("make image runs %v %v as %s, the Dockerfile %v %v as %s", made.entrypoint, made.cmd, made.user,
			docker.entrypoint, docker.cmd, docker.user)
	}
	compilers := map[string]string{}
	for file, pattern := range map[string]string{"../../../Dockerfile": `golang:(\d\S+)`, "../../tools/release.sh": `GOTOOLCHAIN=go(\S+)`} {
		text, err := os.ReadFile(file)
		must(t, err)
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s names no release of Go", file)
		}
		compilers[string(m[1])] = file
	}
	if len(compilers) != 1 {
		t.Errorf("binaries are the same only with the same release of Go: %v", compilers)
	}
	programs := []string{"/quorate", "/quorate-snapshot", "/quorate-trim"}
	for i, source := range made.content {
		_, made.content[i], _ = strings.Cut(source, "=")
	}
	if !slices.Equal(made.content, programs) || !slices.Equal(docker.content, programs) {
		t.Errorf("make image holds %v, the Dockerfile's image %v", made.content, docker.content)
	}
	dockerfile, err := os.ReadFile("../../../Dockerfile")
	must(t, err)
	makefile, err := os.ReadFile("../../../Makefile")
	must(t, err)
	a := regexp.MustCompile(`(?m)^TAGS := ([\w,]+)$`).FindSubmatch(makefile)
	b := regexp.MustCompile(`-tags ([\w,]+)`).FindSubmatch(dockerfile)
	if a == nil || b == nil || !bytes.Equal(a[1], b[1]) {
		t.Errorf("the Makefile has the tags %q, the Dockerfile %q", a, b)
	}
}

// TestDockerfileCopiesWhatItBuilds: every file of this module that its programs are built of is in its first stage.
func TestDockerfileCopiesWhatItBuilds(t *testing.T) {
	text, err := os.ReadFile("../../../Dockerfile")
	must(t, err)
	stage, _, _ := strings.Cut(strings.ReplaceAll(string(text), "\\\n", " "), "\nFROM scratch\n")
	build := regexp.MustCompile(`go build .* -tags (\S+) .* -o /out/ (.*)`).FindStringSubmatch(stage)
	if build == nil {
		t.Fatal("the Dockerfile's first stage has no `go build ... -tags ... -o /out/ PACKAGES`")
	}
	var copied []string
	for _, m := range regexp.MustCompile(`(?m)^COPY (.+) (\S+)$`).FindAllStringSubmatch(stage, -1) {
		for _, source := range strings.Fields(m[1]) {
			if m[2] != "./" && m[2] != source {
				t.Errorf("the Dockerfile copies %s to %s, where the module does not have it", source, m[2])
			}
			copied = append(copied, source)
		}
	}

	files := `{{if .Module}}{{if .Module.Main}}{{range .GoFiles}}{{$.Dir}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$.Dir}}/{{.}}
{{end}}{{end}}{{end}}`
	args := []string{"list", "-C", "../../..", "-deps", "-tags", build[1], "-f", files}
	list := exec.Command("go", append(args, strings.Fields(build[2])...)...)
	list.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	out, err := list.Output()
	must(t, err)
	root, err := filepath.Abs("../../..")
	must(t, err)
	missing := map[string]bool{}
	needed := strings.Fields(string(out))
	for _, path := range needed {
		file, err := filepath.Rel(root, path)
		must(t, err)
		has := slices.ContainsFunc(copied, func(source string) bool {
			is, _ := filepath.Match(source, file)
			return is || strings.HasPrefix(file, source+"/")
		})
		if !has {
			missing[filepath.Dir(file)] = true
		}
	}
	if len(needed) < 100 {
		t.Errorf("only %d files are needed: %s", len(needed), out)
	}
	for _, folder := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("the Dockerfile does not copy %s, of which it builds %s", folder, build[2])
	}
}

// readDockerfile reads what its last stage says of the image, with these build arguments.
func readDockerfile(t *testing.T, path string, args map[string]string) image {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	stage := string(text)[strings.LastIndex(string(text), "\nFROM ")+1:]
	if !strings.HasPrefix(stage, "FROM scratch\n") {
		t.Error("the Dockerfile's image has another one below")
	}
	i := image{labels: map[string]string{}}
	for line := range strings.Lines(strings.ReplaceAll(stage, "\\\n", " ")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = os.Expand(rest, func(name string) string { return args[name] })
		switch word {
		case "USER":
			i.user = rest
		case "COPY":
			files := strings.Fields(rest) // --from=build SOURCE... /
			for _, file := range files[1 : len(files)-1] {
				i.content = append(i.content, filepath.Join(files[len(files)-1], filepath.Base(file)))
			}
		case "ENTRYPOINT":
			decode(t, []byte(rest), &i.entrypoint)
		case "CMD":
			decode(t, []byte(rest), &i.cmd)
		case "LABEL":
			for _, m := range regexp.MustCompile(`(\S+)="([^"]*)"`).FindAllStringSubmatch(rest, -1) {
				i.labels[m[1]] = m[2]
			}
		}
	}
	return i
}

func TestImageRefusesWhatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	for _, content := range []string{"nonsense", filepath.Join(dir, "absent") + "=/bin/absent"} {
		i := image{refs: []string{"localhost/x:y"}, content: []string{content}}
		if _, err := i.write(filepath.Join(dir, "image.tar")); err == nil {
			t.Errorf("%q was accepted", content)
		}
	}
	if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
		t.Errorf("a failed write leaves %v", left)
	}
}

func TestPKI(t *testing.T) {
	dir := t.TempDir()
	nodes := map[string][]string{"node1": {"172.30.0.1"}, "node2": {"172.30.0.2", "fd00:172:30::2"}}
	must(t, writePKI(dir, "https://172.30.0.1:6443", dual.apiServiceIPs(), nodes, []string{"172.30.0.1"}))
	roots := x509.NewCertPool()
	roots.AddCert(readCert(t, dir, "ca"))
	for _, test := range []struct {
		file, user, group, host string
	}{
		{"apiserver", "kube-apiserver", "", "kubernetes.default.svc"},
		{"apiserver", "kube-apiserver", "", "10.96.0.1"},
		{"apiserver", "kube-apiserver", "", "fd00:96::1"},
		{"apiserver", "kube-apiserver", "", "127.0.0.1"},
		{"kubelet-serving-node2", "system:node:node2", "system:nodes", "172.30.0.2"},
		{"kubelet-serving-node2", "system:node:node2", "system:nodes", "fd00:172:30::2"},
		{"kubelet-node2", "system:node:node2", "system:nodes", ""},
		{"admin", "admin", "system:masters", ""},
		{"kube-scheduler", "system:kube-scheduler", "", ""},
	} {
		cert := readCert(t, dir, test.file)
		if cert.Subject.CommonName != test.user || strings.Join(cert.Subject.Organization, ",") != test.group {
			t.Errorf("%s is for %s", test.file, cert.Subject)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: test.host,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Errorf("%s for %q: %v", test.file, test.host, err)
		}
	}
	if _, err := readCert(t, dir, "front-proxy-client").Verify(x509.VerifyOptions{Roots: roots}); err == nil {
		t.Error("the front proxy's certificate is of the same authority as all others")
	}
	for _, name := range []string{"sa.key", "admin.kubeconfig", "ca.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s can be read by others: %v", name, info.Mode())
		}
	}
}

func readCert(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	must(t, err)
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return cert
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := &progress{what: "thing 1.0", out: &out}
	p.begin(200)
	write := func(text string) {
		if n, err := p.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("wrote %d of %d: %v", n, len(text), err)
		}
	}
	for i := range 50 {
		write(fmt.Sprintf("example.com/package%d\n", i))
	}
	write("example.com/half")
	write("/way\n# example.com/bad\nmain.go:1:1: wrong\n")
	if got := p.other.String(); got != "# example.com/bad\nmain.go:1:1: wrong\n" {
		t.Errorf("errors are %q", got)
	}
	if got := out.String(); got != "thing 1.0: 0 % of 200 packages\n" {
		t.Errorf("it said %q: more than once in half a minute, or not at once", got)
	}
	p.compiled = 50
	for after, want := range map[time.Duration]string{
		time.Second:      "25 % of 200 packages",
		20 * time.Second: "25 % of 200 packages, about 60 s left",
		2 * time.Minute:  "25 % of 200 packages, about 6 minutes left",
	} {
		if got := p.state(p.began.Add(after)); got != want {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
	if p.compiled = 201; p.state(time.Now()) != "linking" {
		t.Errorf("at the end: %q", p.state(time.Now()))
	}
}

// On a terminal there is one line, which is gone at the end.
func TestProgressInPlace(t *testing.T) {
	var out bytes.Buffer
	p := &progress{what: "thing", out: &out, inPlace: true}
	p.begin(2)
	p.said = time.Time{}
	_, _ = p.Write([]byte("a\n"))
	p.end()
	if got := out.String(); strings.Contains(got, "\n") || !strings.HasSuffix(got, "50 % of 2 packages\r\033[K") {
		t.Errorf("it wrote %q", got)
	}
}
